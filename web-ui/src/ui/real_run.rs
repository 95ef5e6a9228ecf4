//! The button that runs a plan for real, and what it leads to.

use super::{ComparisonCard, Findings, Timeline, WaitGraph};
use crate::app::use_shared;
use crate::explain;
use crate::live::{Stage, use_real_run};
use crate::protocol::SessionId;
use crate::route::{Route, View};
use lockstep_core::plan::Plan;
use lockstep_sim::{SimConfig, value_bytes};
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`RealRun`].
#[derive(Properties, PartialEq)]
pub(crate) struct RealRunProps {
    pub(crate) plan: Rc<Plan>,
    /// The simulation to compare the run with.
    pub(crate) simulated: Option<SessionId>,
    /// Whether the run is meant to hang, so that its findings are the point.
    #[prop_or_default]
    pub(crate) hangs: bool,
}

/// Runs a plan for real, watches it, and compares it.
#[component(RealRun)]
pub(crate) fn real_run(props: &RealRunProps) -> Html {
    let shared = use_shared();
    let run = use_real_run();
    let missing = shared.server.missing();
    let running = matches!(run.stage, Stage::Starting | Stage::Running { .. });
    let start = {
        let (run, plan, simulated) = (run.clone(), props.plan.clone(), props.simulated);
        Callback::from(move |_: MouseEvent| run.start(plan.clone(), simulated))
    };
    let cancel = {
        let run = run.clone();
        Callback::from(move |_: MouseEvent| run.cancel())
    };
    let close = {
        let run = run.clone();
        Callback::from(move |_: MouseEvent| run.clear())
    };
    let (values, most) = (value_bytes(&props.plan), SimConfig::default().max_value_bytes);
    let compared = values <= most;
    let stage = match &run.stage {
        Stage::Idle => "idle",
        Stage::Starting => "starting",
        Stage::Running { .. } => "running",
        Stage::Ended { .. } => "ended",
        Stage::Failed { .. } => "failed",
    };
    html! {
        <section class="real-run" data-test="real-run" data-stage={stage}>
            <button class="primary" onclick={start} disabled={missing.is_some() || running} data-test="run-real"
                    aria-describedby={missing.is_some().then_some("no-server")}>
                { if running { "Running…" } else { "Run it for real" } }
            </button>
            if let Some(why) = missing {
                <p id="no-server" class="muted" data-test="run-disabled">{ why }</p>
            } else if run.stage == Stage::Idle {
                <p class="muted">{ format!("{} on this machine, the same schedule{}.", match props.plan.world_size { 1 => "1 process".to_owned(), many => format!("{many} processes") },
                    match compared { _ if props.hangs => "; a watchdog ends it", true => ", then value by value against the simulation", false => ", then call by call against the simulation" }) }</p>
                if !compared && !props.hangs {
                    <p class="muted" data-test="no-values">{ format!("Not value by value: the tensors take {} on all ranks together, and the page simulates values of {} at most. The order and the sizes of all calls are compared.",
                        explain::bytes(values), explain::bytes(most)) }</p>
                }
            }
            { match &run.stage {
                Stage::Idle | Stage::Starting => html! {},
                Stage::Failed { why } => html! { <p class="verdict bad" role="alert" data-test="run-failed">{ why }</p> },
                Stage::Running { id, session, count, lost } => html! {
                    <div class="sheet" role="region" aria-label="The real run">
                        <header><h2>{ format!("Run {id}, live") }</h2><span class="grow" />
                            <button onclick={cancel} data-test="run-cancel">{ "Stop it" }</button></header>
                        <p class="muted" data-test="run-events" data-events={count.events.to_string()}>
                            { format!("{} events, {}", count.events, explain::time(count.end_ps)) }</p>
                        if *lost { <p class="bad" role="status">{ "The connection to the server was lost; trying again…" }</p> }
                        <Timeline session={*session} world_size={count.world_size} lanes={count.lanes.max(1)}
                                  end_ps={count.end_ps} tick={count.events} follow={true} />
                    </div>
                },
                Stage::Ended { id, opened, comparison } => html! {
                    <div class="sheet" role="region" aria-label="The real run">
                        <header>
                            <h2>{ format!("Run {id}") }</h2><span class="grow" />
                            <a href={Route::below(View::Runs, id).to_hash()} data-test="run-link">{ "In the list of runs" }</a>
                            <button onclick={close} data-test="run-close" aria-label="Close the run">{ "Close" }</button>
                        </header>
                        <p data-test="run-outcome">
                            { opened.outcome.as_ref().map_or("The stream ended before the run did.".to_owned(), |outcome| {
                                format!("After {}: {}", explain::time(opened.end_ps), explain::ending(outcome))
                            }) }
                        </p>
                        if let Some(words) = opened.header.stand_in() { <p class="muted" data-test="stand-in">{ words }</p> }
                        if let Some(comparison) = comparison {
                            if !props.hangs || comparison.tensors > 0 {
                                <ComparisonCard comparison={comparison.clone()} />
                            }
                        }
                        <Timeline session={opened.session} world_size={opened.header.world_size} lanes={opened.lanes}
                                  end_ps={opened.end_ps} fit={opened.fit} />
                        if props.hangs || !opened.report.findings.is_empty() {
                            <Findings report={opened.report.clone()} />
                            <WaitGraph waits={opened.waits.clone()} world_size={opened.header.world_size} />
                        }
                    </div>
                },
            } }
        </section>
    }
}
