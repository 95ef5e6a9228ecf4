//! Two runs side by side: how they ended, where their time went, their collectives, their values, and both
//! timelines on one scale.

use super::words::{diagnosis, ending};
use crate::app::use_shared;
use crate::explain;
use crate::route::{Route, View};
use crate::server::{self, Run};
use crate::ui::Timeline;
use lockstep_analysis::{Analysis, CallKind, Share, Stretch};
use lockstep_core::plan::Fault;
use lockstep_core::trace::Outcome;
use lockstep_core::words::counted;
use lockstep_sim::Comparison;
use lockstep_web_protocol::{Client, Opened, Request, Response, Session, SessionQuestion};
use std::collections::BTreeMap;
use std::rc::Rc;
use yew::prelude::*;

/// The last word of the address of two runs: `#/runs/compare?a=3&b=5`.
pub(super) const WORD: &str = "compare";

/// The address of two runs side by side.
pub(super) fn address(a: &str, b: &str) -> Route {
    Route::below(View::Runs, WORD).with("a", a).with("b", b)
}

/// A run with its trace.
struct Side {
    run: Run,
    /// The faults that it was asked for, as its form shows them; `none` without.
    faults: String,
    opened: Opened,
    /// Absent for a run whose trace cannot be analysed.
    analysis: Option<Analysis>,
    session: Session,
}

/// Both runs, and their values against each other.
struct Both {
    sides: [Side; 2],
    values: Result<Comparison, String>,
}

async fn load(client: &Client, id: &str) -> Result<Side, String> {
    let run = server::run(id).await?;
    if run.text("state") == "running" {
        return Err(format!("Run {id} goes on; two runs are compared when both have ended."));
    }
    let trace = server::trace(id).await?;
    let session = client.new_session();
    let open = Request::OpenTrace { session: session.id(), name: format!("run {id}") };
    let (_asked, answer) = client.ask_with(open, &[trace.into()], None);
    let Response::Opened(opened) = answer.await?.response else {
        return Err("the worker answered something else".to_owned());
    };
    let analysed = client.ask(SessionQuestion::Analyse.about(session.id())).await;
    let analysis = match analysed.map(|answered| answered.response) {
        Ok(Response::Analysed(analysis)) => Some(*analysis),
        _ => None,
    };
    let faults = faults_words(id).await?;
    Ok(Side { run, faults, opened: *opened, analysis, session })
}

async fn faults_words(id: &str) -> Result<String, String> {
    let asked = server::asked(id).await?.map(|(faults, _)| faults).unwrap_or_default();
    let words: Vec<String> = asked.iter().map(Fault::to_string).collect();
    Ok(if words.is_empty() { "none".to_owned() } else { words.join(", ") })
}

async fn both(client: &Client, a: &str, b: &str) -> Result<Both, String> {
    let sides = [load(client, a).await?, load(client, b).await?];
    let [simulated, run] = [&sides[0], &sides[1]].map(|side| side.session.id());
    let compared = client.ask(Request::Compare { simulated, run }).await;
    let values = match compared.map(|answered| answered.response) {
        Ok(Response::Compared(found)) => Ok(found),
        Ok(_) => Err("the worker answered something else".to_owned()),
        Err(why) => Err(why),
    };
    Ok(Both { sides, values })
}

/// Properties of [`TwoRuns`].
#[derive(Properties, PartialEq)]
pub(super) struct TwoRunsProps {
    pub(super) a: String,
    pub(super) b: String,
}

/// Two runs side by side.
#[component(TwoRuns)]
pub(super) fn two_runs(props: &TwoRunsProps) -> Html {
    let client = use_shared().client;
    let found = use_state(|| None::<Rc<Result<Both, String>>>);
    {
        let found = found.setter();
        use_effect_with((props.a.clone(), props.b.clone()), move |(a, b)| {
            let (a, b) = (a.clone(), b.clone());
            wasm_bindgen_futures::spawn_local(async move {
                found.set(Some(Rc::new(both(&client, &a, &b).await)));
            });
        });
    }
    let swap = address(&props.b, &props.a).to_hash();
    html! {
        <div class="one-run two-runs">
            <p class="crumbs"><a href={Route::to(View::Runs).to_hash()} data-test="back-to-runs">{ "← All runs" }</a>{ " " }<a href={swap}>{ "Swap them" }</a></p>
            <h1>{ format!("Run {} and run {}", props.a, props.b) }</h1>
            { match found.as_deref() {
                None => html! { <p class="muted">{ "Fetching both traces…" }</p> },
                Some(Err(why)) => html! { <p class="verdict bad" role="alert" data-test="run-error">{ why }</p> },
                Some(Ok(both)) => shown(both),
            } }
        </div>
    }
}

fn shown(Both { sides, values }: &Both) -> Html {
    let [a, b] = sides;
    let end_ps = a.opened.end_ps.max(b.opened.end_ps);
    let fit = (0, end_ps.saturating_add(end_ps / 50).max(1));
    let word = |name: &str, of: &dyn Fn(&Side) -> String| {
        let (a, b) = (of(a), of(b));
        let class = (a != b).then_some("differs");
        html! { <tr {class}><th scope="row">{ name }</th><td>{ a }</td><td>{ b }</td><td /></tr> }
    };
    let time = |name: &str, of: &dyn Fn(&Analysis) -> Option<u64>| {
        let [a, b] = [a, b].map(|side| side.analysis.as_ref().and_then(of));
        if a.is_none() && b.is_none() {
            return html! {};
        }
        let told = |ps: Option<u64>| ps.map(explain::time).unwrap_or_else(|| "–".to_owned());
        html! { <tr><th scope="row">{ name }</th><td>{ told(a) }</td><td>{ told(b) }</td><td class="n">{ change(a, b) }</td></tr> }
    };
    let stretch = match (&a.analysis, &b.analysis) {
        (Some(a), Some(b)) => Some(Stretch::of_both(a, b)),
        _ => None,
    };
    // Of a run that hung only what happened before counts; how long it then stood is in its end.
    let completed = sides.iter().all(|side| side.opened.outcome == Some(Outcome::Completed));
    let all = if completed { "all" } else { "up to the last call that ended" };
    let mean = |of: fn(Share) -> u64| move |it: &Analysis| Some(it.mean_ps(stretch?, of));
    html! {
        <>
        <section class="panel" data-test="two-runs">
            <div class="scroll" tabindex="0"><table class="plain figures-table">
                <thead><tr><td />{ for sides.iter().map(|side| html! {
                    <th><a href={Route::below(View::Runs, &side.run.id).to_hash()}>{ format!("run {}", side.run.id) }</a></th>
                }) }<th class="n">{ "change" }</th></tr></thead>
                <tbody>
                    { word("name", &|side| side.run.text("name")) }
                    { word("ranks", &|side| side.run.text("world_size")) }
                    { word("backend", &|side| side.run.text("backend")) }
                    { word("faults", &|side| side.faults.clone()) }
                    { word("end", &|side| ending(&side.run)) }
                    { word("diagnosis", &|side| diagnosis(&side.run.fields)) }
                    { word("calls", &|side| side.opened.calls.to_string()) }
                    { time(all, &|it| Some(it.time_ps)) }
                    { time("a step", &|it| it.step_ps) }
                    { time("computing", &mean(|share| share.computing_ps)) }
                    { time("exposed communication", &mean(|share| share.communicating_ps)) }
                    { time("waiting for late ranks", &mean(|share| share.waiting_ps)) }
                </tbody>
            </table></div>
            <p data-test="two-runs-values">{ values_words(values, sides.each_ref().map(|side| format!("run {}", side.run.id))) }</p>
            { calls(a, b) }
        </section>
        { for sides.iter().map(|side| {
            let opened = &side.opened;
            let culprits: Vec<u32> = opened.report.culprits().iter().map(|rank| rank.0).collect();
            html! {
                <section class="panel run-lanes" aria-label={format!("Timeline of run {}", side.run.id)}>
                    <h2>{ format!("Run {}: {}", side.run.id, side.run.text("name")) }</h2>
                    <Timeline session={opened.session} world_size={opened.header.world_size} lanes={opened.lanes} {end_ps} {fit} {culprits} />
                </section>
            }
        }) }
        </>
    }
}

/// `+12.5%`, from the first to the second.
fn change(a: Option<u64>, b: Option<u64>) -> String {
    match a.zip(b) {
        Some((a @ 1.., b)) => format!("{:+.1}%", (b as f64 / a as f64 - 1.0) * 100.0),
        _ => String::new(),
    }
}

/// The comparison of the values that both runs ended with, in a sentence.
fn values_words(values: &Result<Comparison, String>, [a, b]: [String; 2]) -> String {
    match values {
        Err(why) => format!("Their values are not compared: {why}."),
        Ok(found) if found.tensors > 0 && found.equal == found.tensors => {
            format!(
                "Both ended with the same values: {}, equal to the bit.",
                counted(found.tensors, "tensor")
            )
        }
        Ok(found) if found.tensors > 0 => format!(
            "They ended with different values: {} of {} differ.",
            found.tensors - found.equal,
            counted(found.tensors, "tensor")
        ),
        Ok(found) => match (&found.calls.first_difference, &found.not_compared) {
            (Some(first), _) => format!("Their calls differ: {}.", first.words([&a, &b])),
            (None, Some(why)) => {
                format!("Both made the same calls. Their values are not compared: {why}.")
            }
            (None, None) => "Both made the same calls.".to_owned(),
        },
    }
}

/// The kinds of collectives of both runs, by name, group and size.
fn calls(a: &Side, b: &Side) -> Html {
    let mut kinds: BTreeMap<(String, String, u64), [Option<&CallKind>; 2]> = BTreeMap::new();
    for (at, side) in [a, b].into_iter().enumerate() {
        for kind in side.analysis.iter().flat_map(|analysis| &analysis.calls) {
            kinds.entry((kind.op.clone(), kind.group.clone(), kind.bytes)).or_default()[at]
                .get_or_insert(kind);
        }
    }
    if kinds.is_empty() {
        return html! {};
    }
    let names = [a, b].map(|side| format!("calls, run {}", side.run.id));
    let row = |((op, group, bytes), sides): (&(String, String, u64), &[Option<&CallKind>; 2])| {
        let [a, b] = sides.map(|kind| kind.map(|kind| kind.median_ps));
        let cell = |(kind, of): (&Option<&CallKind>, &String)| {
            let (count, median) = kind.map_or(("–".to_owned(), String::new()), |kind| {
                (kind.count.to_string(), explain::time(kind.median_ps))
            });
            html! { <><td class="n" data-name={of.clone()}>{ count }</td><td class="n" data-name="median time">{ median }</td></> }
        };
        html! { <tr><th scope="row">{ op }</th><td data-name="group">{ group }</td><td class="n" data-name="bytes">{ explain::bytes(*bytes) }</td>{ for sides.iter().zip(&names).map(cell) }<td class="n" data-name="change">{ change(a, b) }</td></tr> }
    };
    html! {
        <div class="scroll" tabindex="0"><table class="plain figures-table cards">
            <thead><tr><th>{ "collective" }</th><th>{ "group" }</th><th class="n">{ "bytes" }</th>{ for names.iter().map(|name| html! {
                <><th class="n">{ name }</th><th class="n">{ "median time" }</th></>
            }) }<th class="n">{ "change" }</th></tr></thead>
            <tbody>{ for kinds.iter().map(row) }</tbody>
        </table></div>
    }
}
