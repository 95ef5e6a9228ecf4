//! Runs: what the server has run, each of them opened, and two of them side by side.

mod compare;
mod list;
mod watched;
mod words;

use super::workbench::Workbench;
use crate::app::{Server, use_shared};
use crate::dom;
use crate::explain;
use crate::live::{Stage, settle, use_real_run};
use crate::route::{Route, View};
use crate::server;
use crate::sets::set;
use crate::turns::use_turns;
use crate::ui::prose;
use crate::ui::{LiveRun, RealRun, comparison_card};
use compare::TwoRuns;
use list::List;
use lockstep_core::plan::{Fault, Plan};
use lockstep_core::trace::Outcome;
use lockstep_sim::Comparison;
use lockstep_web_protocol::Client;
use lockstep_web_protocol::Session;
use lockstep_web_protocol::{LiveCount, Machine, Opened, Request, Response, SessionId};
use std::rc::Rc;
use watched::WatchedJob;
use words::{compared_there, is_paused};
use yew::prelude::*;

/// The list of runs, or the run that the address names.
#[component(Runs)]
pub(crate) fn runs() -> Html {
    let shared = use_shared();
    match (&shared.server, shared.nav.route.name()) {
        (Server::Asking, _) => html! { <p class="muted">{ "Asking for the server…" }</p> },
        (Server::None { why }, _) => html! {
            <section class="alone panel" data-test="no-server">
                <h1>{ "Runs need the server" }</h1>
                <p>{ "This page simulates, steps and diagnoses by itself. To run a plan as real processes, start the server on your machine; it opens this page with runs enabled." }</p>
                <pre class="mono">{ "lockstep serve --open" }</pre>
                <p class="muted">{ format!("There is none beside this page: {why}.") }</p>
                <details id="host" data-test="how-to-host"><summary>{ "How to host this page" }</summary>
                    <p>{ "All but real runs works from static files, under any path. Build them, and give the folder to any web server:" }</p>
                    <pre class="mono">{ "cargo xtask web\ncd dist && python3 -m http.server" }</pre>
                </details>
            </section>
        },
        (Server::Here { .. }, None) => html! { <List /> },
        (Server::Here { .. }, Some(compare::WORD)) => {
            let run = |name: &str| shared.nav.route.get(name).unwrap_or_default().to_owned();
            let (a, b) = (run("a"), run("b"));
            let key = format!("{a} {b}");
            html! { <TwoRuns {key} {a} {b} /> }
        }
        (Server::Here { .. }, Some(name)) => match watched::id_of(name) {
            Some(id) => html! { <WatchedJob key={name} id={id.to_owned()} /> },
            None => html! { <OneRun key={name} id={name.to_owned()} /> },
        },
    }
}

#[derive(Properties, PartialEq)]
struct OneRunProps {
    id: String,
}

/// A run that the server knows.
#[derive(Clone, PartialEq)]
enum Known {
    GoesOn { name: String, world_size: u32, paused: bool },
    Ended(Loaded),
}

/// The plan of a run without its faults, and the faults.
type AskedRun = (Rc<Plan>, Vec<Fault>);

#[derive(Clone, PartialEq)]
struct Loaded {
    name: String,
    opened: Rc<Opened>,
    /// Held for as long as the run is shown.
    session: Session,
    /// None where nothing can be compared; or why it was not.
    comparison: Result<Option<Comparison>, String>,
    /// The plan that was asked for, with its faults beside it; or why it is not known.
    asked: Result<Option<AskedRun>, String>,
}

/// Fetches a run, and opens its trace if that is whole. A comparison that cannot be had is no reason not
/// to show it.
async fn load(client: &Client, id: &str) -> Result<Known, String> {
    let run = server::run(id).await?;
    if run.text("state") == "running" {
        let world_size = run.text("world_size").parse().unwrap_or(1);
        return Ok(Known::GoesOn { name: run.text("name"), world_size, paused: is_paused(&run) });
    }
    let trace = server::trace(id).await?;
    let session = client.new_session();
    let open = Request::OpenTrace { session: session.id(), name: format!("run {id}") };
    let (_asked, answer) = client.ask_with(open, &[trace.into()], None);
    let Response::Opened(opened) = answer.await?.response else {
        return Err("the worker answered something else".to_owned());
    };
    let comparison = match (compared_there(&run.fields), &opened.header.plan) {
        (Some(compared), _) => Ok(Some(compared)),
        (None, Some(plan)) => compare(client, Plan::clone(plan), session.id()).await.map(Some),
        (None, None) => Ok(None),
    };
    let comparison = comparison.map(|found| found.filter(|found| found.tensors > 0));
    let own = || opened.header.plan.as_ref().map(|plan| (Rc::new(Plan::clone(plan)), Vec::new()));
    let asked = asked(client, id).await.map(|asked| asked.or_else(own));
    let (name, opened) = (run.text("name"), Rc::new(*opened));
    Ok(Known::Ended(Loaded { name, opened, session, comparison, asked }))
}

/// The plan without faults, and the faults, of a run. Its trace only has the plan with the faults written into it.
async fn asked(client: &Client, id: &str) -> Result<Option<AskedRun>, String> {
    let Some((faults, json)) = server::asked(id).await? else { return Ok(None) };
    match client.ask(Request::ReadPlan { json }).await?.response {
        Response::Plan(plan) => Ok(Some((Rc::new(*plan), faults))),
        _ => Err("the worker answered something else".to_owned()),
    }
}

/// Simulates a plan and holds a run of it against that.
async fn compare(client: &Client, plan: Plan, run: SessionId) -> Result<Comparison, String> {
    let simulated = client.new_session();
    let (session, plan, machine) = (simulated.id(), Box::new(plan), Machine::default());
    client.ask(Request::Simulate { session, plan, machine, order: None }).await?;
    match client.ask(Request::Compare { simulated: session, run }).await?.response {
        Response::Compared(found) => Ok(found),
        _ => Err("the worker answered something else".to_owned()),
    }
}

/// One run: its timeline, its findings, and how it compares with a simulation of its plan; live while it
/// goes on.
#[component(OneRun)]
fn one_run(props: &OneRunProps) -> Html {
    let client = use_shared().client;
    let known = use_state(|| None::<Result<Known, String>>);
    let ends = use_state(|| 0u32);
    {
        let known = known.setter();
        use_effect_with((props.id.clone(), *ends), move |(id, _)| {
            let id = id.clone();
            wasm_bindgen_futures::spawn_local(async move {
                known.set(Some(load(&client, &id).await));
            });
        });
    }
    let on_end = {
        let ends = ends.clone();
        Callback::from(move |()| ends.set(*ends + 1))
    };
    html! {
        <div class="one-run">
            <p class="crumbs"><a href={Route::to(View::Runs).to_hash()} data-test="back-to-runs">{ "← All runs" }</a></p>
            <h1>{ match &*known {
                Some(Ok(Known::GoesOn { name, .. } | Known::Ended(Loaded { name, .. }))) => format!("Run {}: {name}", props.id),
                _ => format!("Run {}", props.id),
            } }</h1>
            { match &*known {
                None => html! { <p class="muted">{ "Fetching its trace…" }</p> },
                Some(Err(why)) => html! { <p class="verdict bad" role="alert" data-test="run-error">{ prose(why) }</p> },
                Some(Ok(Known::GoesOn { world_size, paused, .. })) => html! {
                    <Watched key={*ends} id={props.id.clone()} world_size={*world_size} paused={*paused} {on_end} />
                },
                Some(Ok(Known::Ended(Loaded { opened, comparison, asked, .. }))) => html! {
                    <>
                    { stopped(opened) }
                    if let Some(words) = opened.header.stand_in() { <p class="muted" data-test="stand-in">{ words }</p> }
                    { match comparison {
                        Ok(None) => html! {},
                        Ok(Some(comparison)) => comparison_card(comparison),
                        Err(why) => html! { <p class="muted" data-test="not-compared">{ format!("Not compared with a simulation: {why}") }</p> },
                    } }
                    <Workbench opened={opened.clone()} />
                    { match asked {
                        Ok(None) => html! {},
                        Ok(Some((plan, faults))) => html! {
                            <section class="panel again"><h2>{ "Run this plan again" }</h2><RealRun plan={plan.clone()} faults={faults.clone()} simulated={None} /></section>
                        },
                        Err(why) => html! { <p class="muted">{ format!("Its plan and faults are not known, so it cannot be run again: {why}") }</p> },
                    } }
                    </>
                },
            } }
        </div>
    }
}

/// Tells of a run that its user ended that it did so, and who waited then: they might have gone on.
fn stopped(opened: &Opened) -> Html {
    if opened.outcome != Some(Outcome::Cancelled) {
        return html! {};
    }
    let then = explain::time(opened.end_ps);
    // Per call, the ranks that waited in it.
    let mut waiting: Vec<(&str, Vec<u32>)> = Vec::new();
    for wait in &opened.waits {
        match waiting.iter_mut().find(|(op, _)| *op == wait.op) {
            Some((_, ranks)) => ranks.push(wait.rank.0),
            None => waiting.push((&wait.op, vec![wait.rank.0])),
        }
    }
    let in_call = |(op, ranks): &(&str, Vec<u32>)| {
        let who = if ranks.len() == 1 { "rank" } else { "ranks" };
        format!("{who} {} in {op}", explain::ranks(set(ranks.iter().copied())))
    };
    let stood = match waiting.is_empty() {
        true => "No rank waited in a call then.".to_owned(),
        false => {
            let calls: Vec<String> = waiting.iter().map(in_call).collect();
            format!("Then these waited in a call: {}.", calls.join(", "))
        }
    };
    let judged = match (waiting.is_empty(), opened.report.findings.is_empty()) {
        (true, _) => "",
        (false, true) => " They might have gone on: this is no hang, as far as the trace shows.",
        (false, false) => " The findings name what would have kept them waiting.",
    };
    html! {
        <p class="note" role="status" data-test="ended-by-user">
            <b>{ format!("Its user ended this run after {then}. ") }</b>{ stood }{ judged }
        </p>
    }
}

#[derive(Properties, PartialEq)]
struct LiveBenchProps {
    session: Session,
    count: LiveCount,
}

/// The shortest pause between two accounts of a live run, in milliseconds.
const PACE_MS: f64 = 1000.0;

/// The largest share of the worker's time that these accounts take.
const SHARE: f64 = 0.2;

/// The workbench of a run that goes on. Its timeline is the newest; the account of its calls follows as fast as the
/// worker makes one.
#[component(LiveBench)]
fn live_bench(props: &LiveBenchProps) -> Html {
    let client = use_shared().client;
    let account = use_state(|| None::<Rc<Opened>>);
    let newest = use_mut_ref(|| 0);
    *newest.borrow_mut() = props.count.events;
    let turns = use_turns();
    {
        let (account, session) = (account.setter(), props.session.id());
        use_effect_with(session, move |session| {
            let (session, turn) = (*session, turns.next());
            wasm_bindgen_futures::spawn_local(async move {
                let mut told = 0;
                while turn.counts() {
                    let (began, events) = (dom::now_ms(), *newest.borrow());
                    if events > told
                        && let Ok((opened, _)) = settle(&client, session, None).await
                        && turn.counts()
                    {
                        told = events;
                        account.set(Some(opened));
                    }
                    let pause_ms = ((dom::now_ms() - began) / SHARE).max(PACE_MS);
                    dom::sleep_ms(pause_ms as i32).await;
                }
            });
            move || turns.end()
        });
    }
    match &*account {
        Some(opened) => {
            html! { <Workbench opened={opened.clone()} grown={props.count} judged=false /> }
        }
        None => html! { <p class="muted">{ "Its calls appear with its first events…" }</p> },
    }
}

#[derive(Properties, PartialEq)]
struct WatchedProps {
    id: String,
    world_size: u32,
    paused: bool,
    /// The run has ended, and the server has all of it.
    on_end: Callback<()>,
}

/// A run that goes on, whoever started it.
#[component(Watched)]
fn watched(props: &WatchedProps) -> Html {
    let run = use_real_run();
    {
        let (run, id, world_size) = (run.clone(), props.id.clone(), props.world_size);
        use_effect_with((), move |()| run.watch(id, world_size));
    }
    {
        let on_end = props.on_end.clone();
        use_effect_with(matches!(run.stage, Stage::Ended { .. }), move |ended| {
            if *ended {
                on_end.emit(());
            }
        });
    }
    match &run.stage {
        Stage::Running { session, count, .. } => html! {
            <section class="panel watched">
                <LiveRun run={run.clone()} paused={props.paused}><LiveBench session={session.clone()} count={*count} /></LiveRun>
            </section>
        },
        Stage::Failed { why } => {
            html! { <p class="verdict bad" role="alert" data-test="run-error">{ prose(why) }</p> }
        }
        Stage::Idle | Stage::Starting | Stage::Ended { .. } => {
            html! { <p class="muted">{ "Fetching its trace…" }</p> }
        }
    }
}
