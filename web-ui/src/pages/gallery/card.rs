//! One algorithm as a card.

use super::choice::GalleryChoice;
use super::on_cluster::OnCluster;
use crate::explain;
use crate::pages::machine_choice;
use crate::route::{Route, View};
use crate::ui::WeaveDrawing;
use lockstep_core::schedule::Algorithm;
use lockstep_core::words::counted;
use lockstep_web_protocol::{Account, Explanation};
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`AlgorithmCard`].
#[derive(Properties, PartialEq)]
pub(super) struct CardProps {
    pub(super) choice: GalleryChoice,
    pub(super) algorithm: Algorithm,
    pub(super) account: Option<Result<Rc<Account>, String>>,
    /// Its time on the chosen cluster.
    pub(super) on_cluster: Option<OnCluster>,
    /// True if the account is of what is chosen now.
    pub(super) fresh: bool,
    pub(super) fastest: bool,
    pub(super) on_pick: Callback<Algorithm>,
}

/// One algorithm: drawn, counted, timed and explained.
#[component(AlgorithmCard)]
pub(super) fn algorithm_card(props: &CardProps) -> Html {
    let CardProps { choice, algorithm, on_cluster, .. } = *props;
    let account = props.account.as_ref().and_then(|account| account.as_ref().ok());
    let chosen = choice.pair.contains(&algorithm);
    let pick = props.on_pick.reform(move |_: MouseEvent| algorithm);
    let step = machine_choice::write(Route::to(View::Step), choice.machine)
        .with("collective", choice.collective.name())
        .with("world", choice.world_size)
        .with("count", choice.count)
        .with("algorithm", algorithm);
    let nodes = choice.machine.ranks_per_node();
    let several = nodes > 0 && nodes < choice.world_size;
    let figure = |read: fn(&Account) -> u64| account.map(|account| read(account).to_string());
    let time_ps = match on_cluster {
        None => account.map(|account| account.cost.time_ps),
        Some(OnCluster::Takes { ps, .. }) => Some(ps),
        Some(OnCluster::Absent) => None,
    };
    html! {
        <article class={classes!("card", chosen.then_some("chosen"), (!props.fresh).then_some("stale"))}
                 data-test={format!("algorithm-{algorithm}")} data-fastest={props.fastest.to_string()} data-fresh={props.fresh.to_string()}
                 data-steps={figure(|a| a.steps.into())} data-messages={figure(|a| a.tally.messages)}
                 data-sent={account.map(|a| (a.tally.most_sent * choice.element_bytes()).to_string())}
                 data-time-ps={time_ps.map(|ps| ps.to_string())} data-latency-ps={figure(|a| a.cost.latency_ps())}>
            <header>
                if choice.pair.contains(&algorithm) { <i class={classes!("swatch", (choice.pair[1] == algorithm).then_some("dashed"))} style="background-color:var(--accent)" title="Its curve above" /> }
                <h2>{ algorithm.name() }</h2>
                if matches!(on_cluster, Some(OnCluster::Takes { picked: true, .. })) { <span class="badge" data-test="picked">{ "NCCL picks it" }</span> }
                if props.fastest { <span class="badge">{ "fastest here" }</span> }
            </header>
            { match &props.account {
                None => html! { <div class="weave"><p class="muted">{ "Counting…" }</p></div> },
                Some(Err(why)) => html! { <p class="bad">{ why }</p> },
                Some(Ok(account)) => html! {
                    <>
                    <WeaveDrawing account={account.clone()} ranks_per_node={choice.machine.ranks_per_node()}
                                  words={format!("who sends to whom in each of {}", counted(account.steps, "step"))} />
                    { facts(account, choice, (several, on_cluster)) }
                    </>
                },
            } }
            { account.map(|account| explanation(account, algorithm, several)).unwrap_or_default() }
            <footer>
                <button onclick={pick} aria-pressed={chosen.to_string()} data-test={format!("pick-{algorithm}")}>
                    { if chosen { "Chosen" } else { "Compare" } }</button>
                <a href={step.to_hash()} data-test={format!("step-{algorithm}")}>{ "Step through" }</a>
            </footer>
        </article>
    }
}

/// The title of the formula's line.
fn formula_title(several: bool) -> &'static str {
    match several {
        true => {
            "the time inside one node, where every pair of ranks is alike; the figures above are of the nodes that are chosen"
        }
        false => "the time in a network where every pair of ranks is alike",
    }
}

/// The formula of the algorithm's time, and how it works.
fn explanation(account: &Account, algorithm: Algorithm, several: bool) -> Html {
    let Explanation { formula, idea, used_by, cost, .. } = &account.explanation;
    html! {
        <>
        <p class="formula mono" title={formula_title(several)} data-test={format!("formula-{algorithm}")}>
            if several { <small class="muted">{ "one node: " }</small> }
            { format!("{formula} ") }<small class="muted">{ note(account) }</small></p>
        <div class="lesson"><p>{ idea }</p><p><b>{ "When: " }</b>{ used_by }</p><p><b>{ "Cost: " }</b>{ cost }</p></div>
        </>
    }
}

/// The note behind the formula: where it holds, and how many segments there are.
fn note(account: &Account) -> String {
    let Explanation { note, has_segments, .. } = &account.explanation;
    let segments = has_segments.then(|| format!("k = {}", account.segments));
    let notes = [Some(note.clone()).filter(|note| !note.is_empty()), segments];
    notes.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The title of the steps' figure.
fn steps_title(account: &Account, several: bool) -> String {
    let form = match several {
        true => String::new(),
        false => format!(" ({})", account.explanation.rounds),
    };
    let inside = match account.steps_inside {
        0 => String::new(),
        1 => "; in 1 more, ranks or switches only copy or add".to_owned(),
        more => format!("; in {more} more, ranks or switches only copy or add"),
    };
    format!("rounds in which messages move{form}{inside}")
}

/// The counts, and the time in its parts.
fn facts(
    account: &Account,
    choice: GalleryChoice,
    (several, on_cluster): (bool, Option<OnCluster>),
) -> Html {
    let bytes = |elements: u64| explain::bytes(elements.saturating_mul(choice.element_bytes()));
    let (cost, tally) = (&account.cost, &account.tally);
    let part = |ps: u64| format!("width:{:.1}%", 100.0 * ps as f64 / cost.time_ps.max(1) as f64);
    let path = &cost.path;
    let parts = format!(
        "{} latency + {} bytes on their way + {} waiting for ports",
        explain::time(path.latency_ps()),
        explain::time(path.transmit_ps()),
        explain::time(path.waiting_ps)
    );
    html! {
        <dl class="figures">
            <div title={steps_title(account, several)}><dt>{ if account.steps == 1 { "step" } else { "steps" } }</dt><dd>{ account.steps }</dd></div>
            <div><dt>{ if tally.messages == 1 { "message" } else { "messages" } }</dt><dd>{ tally.messages }</dd></div>
            <div title="what the rank that sends the most sends; others may send less"><dt>{ "most sent a rank" }</dt><dd>{ bytes(tally.most_sent) }</dd></div>
            if choice.machine.ranks_per_node() > 0 {
                <div title="what all messages between nodes carry"><dt>{ "across" }</dt><dd>{ bytes(account.across_elements) }</dd></div>
            }
            { match on_cluster {
                None => html! {
                    <div class="time" title={parts.clone()}><dt>{ "time" }</dt><dd>{ explain::time(cost.time_ps) }
                        <span class="split" role="img" aria-label={parts}><i style={part(path.latency_ps())} /><i class="waiting" style={part(path.waiting_ps)} /></span></dd></div>
                },
                Some(OnCluster::Takes { ps, .. }) => html! {
                    <div class="time" title="what NCCL takes with this algorithm on the cluster"><dt>{ "NCCL's time" }</dt><dd>{ explain::time(ps) }</dd></div>
                },
                Some(OnCluster::Absent) => html! {
                    <div class="time" title="NCCL has no such algorithm for this call on this cluster"><dt>{ "NCCL's time" }</dt><dd class="muted">{ "not in NCCL" }</dd></div>
                },
            } }
        </dl>
    }
}
