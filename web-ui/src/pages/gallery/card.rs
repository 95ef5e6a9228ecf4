//! One algorithm as a card.

use super::choice::GalleryChoice;
use crate::explain::{self, Lesson, lesson};
use crate::pages::topology_choice;
use crate::palette::{RANK_COLOURS, rank_fill};
use crate::protocol::Account;
use crate::route::{Route, View};
use crate::ui::WeaveDrawing;
use lockstep_core::schedule::Algorithm;
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`AlgorithmCard`].
#[derive(Properties, PartialEq)]
pub(super) struct CardProps {
    pub(super) choice: GalleryChoice,
    pub(super) algorithm: Algorithm,
    /// Where it is in the list: its colour in the chart.
    pub(super) index: usize,
    pub(super) account: Option<Result<Rc<Account>, String>>,
    /// Whether the account is of what is chosen now.
    pub(super) fresh: bool,
    pub(super) fastest: bool,
    pub(super) on_pick: Callback<Algorithm>,
}

/// One algorithm: drawn, counted, timed and explained.
#[component(AlgorithmCard)]
pub(super) fn algorithm_card(props: &CardProps) -> Html {
    let CardProps { choice, algorithm, .. } = *props;
    let Lesson { formula, how, when, cost } = lesson(choice.collective, algorithm);
    let account = props.account.as_ref().and_then(|account| account.as_ref().ok());
    let chosen = choice.pair.contains(&algorithm);
    let pick = props.on_pick.reform(move |_: MouseEvent| algorithm);
    let step = topology_choice::write(Route::to(View::Step), choice.topology)
        .with("collective", choice.collective.name())
        .with("world", choice.world_size)
        .with("count", choice.count)
        .with("algorithm", algorithm);
    let figure = |read: fn(&Account) -> u64| account.map(|account| read(account).to_string());
    html! {
        <article class={classes!("card", chosen.then_some("chosen"), (!props.fresh).then_some("stale"))}
                 data-test={format!("algorithm-{algorithm}")} data-fastest={props.fastest.to_string()} data-fresh={props.fresh.to_string()}
                 data-steps={figure(|a| a.steps.into())} data-messages={figure(|a| a.tally.messages)}
                 data-sent={account.map(|a| (a.tally.most_sent * choice.element_bytes()).to_string())}
                 data-time-ps={figure(|a| a.cost.time_ps)} data-latency-ps={figure(|a| a.cost.latency_ps)}>
            <header>
                <i class={classes!("swatch", (props.index >= RANK_COLOURS).then_some("dashed"))} style={format!("background-color:{}", rank_fill(props.index as u32))} />
                <h2>{ algorithm.name() }</h2>
                if props.fastest { <span class="badge">{ "fastest here" }</span> }
            </header>
            { match &props.account {
                None => html! { <div class="weave"><p class="muted">{ "Counting…" }</p></div> },
                Some(Err(why)) => html! { <p class="bad">{ why }</p> },
                Some(Ok(account)) => html! {
                    <>
                    <WeaveDrawing account={account.clone()} ranks_per_node={choice.topology.ranks_per_node()}
                                  words={format!("who sends to whom in each of the {} steps", account.steps)} />
                    { facts(account, choice) }
                    </>
                },
            } }
            <p class="formula mono" title="the time in a network where every pair of ranks is alike">
                { format!("{} {} ", formula.holds.sign(), formula.text()) }<small class="muted">{ formula.holds.note() }</small></p>
            <div class="lesson"><p>{ how }</p><p><b>{ "When: " }</b>{ when }</p><p><b>{ "Cost: " }</b>{ cost }</p></div>
            <footer>
                <button onclick={pick} aria-pressed={chosen.to_string()} data-test={format!("pick-{algorithm}")}>
                    { if chosen { "Chosen" } else { "Compare" } }</button>
                <a href={step.to_hash()} data-test={format!("step-{algorithm}")}>{ "Step through" }</a>
            </footer>
        </article>
    }
}

/// The counts, and the time in its two parts.
fn facts(account: &Account, choice: GalleryChoice) -> Html {
    let bytes = |elements: u64| explain::bytes(elements.saturating_mul(choice.element_bytes()));
    let (cost, tally) = (&account.cost, &account.tally);
    let share = 100.0 * cost.latency_ps as f64 / cost.time_ps.max(1) as f64;
    let parts = format!(
        "{} latency + {} bandwidth",
        explain::time(cost.latency_ps),
        explain::time(cost.bandwidth_ps())
    );
    html! {
        <dl class="figures">
            <div><dt>{ "steps" }</dt><dd>{ account.steps }</dd></div>
            <div><dt>{ "messages" }</dt><dd>{ tally.messages }</dd></div>
            <div title="what the busiest rank sends"><dt>{ "sent a rank" }</dt><dd>{ bytes(tally.most_sent) }</dd></div>
            if choice.topology.ranks_per_node() > 0 {
                <div title="what all messages between nodes carry"><dt>{ "across" }</dt><dd>{ bytes(account.across_elements) }</dd></div>
            }
            <div class="time" title={parts.clone()}><dt>{ "time" }</dt><dd>{ explain::time(cost.time_ps) }</dd>
                <span class="split" role="img" aria-label={parts}><i style={format!("width:{share:.1}%")} /></span></div>
        </dl>
    }
}
