//! The button that runs a plan for real, and what it leads to.

use super::fault_form::FaultForm;
use super::in_sight::use_in_sight;
use super::prose::prose;
use super::{Choice, Findings, LiveRun, SelectField, Timeline, WaitGraph, comparison_card};
use crate::app::use_shared;
use crate::dom;
use crate::explain;
use crate::live::{Stage, use_real_run};
use crate::route::{Route, View};
use crate::server::{self, Executor, RunAsked};
use lockstep_core::plan::{Fault, Plan};
use lockstep_sim::{Comparison, SimConfig, value_bytes};
use lockstep_web_protocol::{Opened, SessionId};
use std::rc::Rc;
use yew::prelude::*;

/// Properties of [`RealRun`].
#[derive(Properties, PartialEq)]
pub(crate) struct RealRunProps {
    pub(crate) plan: Rc<Plan>,
    /// The simulation to compare the run with.
    pub(crate) simulated: Option<SessionId>,
    /// True if the run is meant to hang, so that its findings are the point.
    #[prop_or_default]
    pub(crate) hangs: bool,
    /// The faults that are filled in at first.
    #[prop_or_default]
    pub(crate) faults: Vec<Fault>,
}

/// Runs a plan for real, watches it, and compares it.
#[component(RealRun)]
pub(crate) fn real_run(props: &RealRunProps) -> Html {
    let shared = use_shared();
    let run = use_real_run();
    let missing = shared.server.missing();
    let running = matches!(run.stage, Stage::Starting | Stage::Running { .. });
    let faults = use_state(|| props.faults.clone());
    let chosen = use_state(Executor::default);
    let executor = *chosen;
    let choose = {
        let chosen = chosen.setter();
        Callback::from(move |name: String| {
            let known = Executor::ALL.into_iter().find(|executor| executor.name() == name);
            chosen.set(known.unwrap_or_default());
        })
    };
    let executors = Executor::ALL.map(|executor| Choice::new(executor.name(), executor.label()));
    let wrong = wrong_with(&faults, &props.plan);
    let is_wrong = wrong.is_some();
    let start = {
        let (run, plan, simulated) = (run.clone(), props.plan.clone(), props.simulated);
        let faults = faults.clone();
        Callback::from(move |_: MouseEvent| {
            let asked = RunAsked { executor, faults: (*faults).clone() };
            run.start(plan.clone(), simulated, asked);
        })
    };
    let change_faults = {
        let faults = faults.setter();
        Callback::from(move |changed| faults.set(changed))
    };
    let close = {
        let run = run.clone();
        Callback::from(move |_: MouseEvent| run.clear())
    };
    let stage = match &run.stage {
        Stage::Idle => "idle",
        Stage::Starting => "starting",
        Stage::Running { .. } => "running",
        Stage::Ended { .. } => "ended",
        Stage::Failed { .. } => "failed",
    };
    // The card tells of a plan that is no longer on the page once another is chosen; the list of runs keeps the run.
    use_effect_with(Rc::as_ptr(&props.plan), {
        let run = run.clone();
        move |_| run.clear()
    });
    let sheet = use_in_sight(Some(stage).filter(|stage| matches!(*stage, "running" | "ended")));
    let is_missing = missing.is_some();
    html! {
        <section class="real-run" data-test="real-run" data-stage={stage}>
            <button class="primary" onclick={start} disabled={is_missing || running || is_wrong} data-test="run-real"
                    aria-describedby={is_missing.then_some("no-server")}>
                { if running { "Running…" } else { "Run it for real" } }
            </button>
            if let Some(why) = missing {
                <p id="no-server" class="muted" data-test="run-disabled">{ prose(&why) }</p>
            } else if run.stage == Stage::Idle {
                { before_it_runs(props, executor) }
            }
            if !is_missing && !running {
                <SelectField name="executor" label="By" value={executor.name()} choices={executors.to_vec()} on_choose={choose} />
                <details class="faults" open={!props.faults.is_empty()}>
                    <summary>{ "Break it on purpose" }</summary>
                    <FaultForm faults={(*faults).clone()} world_size={props.plan.world_size} {wrong} on_change={change_faults} />
                </details>
            }
            { match &run.stage {
                Stage::Idle | Stage::Starting => html! {},
                Stage::Failed { why } => html! { <p class="verdict bad" role="alert" data-test="run-failed">{ prose(why) }</p> },
                Stage::Running { .. } => html! {
                    <div class="sheet" role="region" aria-label="The real run" ref={sheet}><LiveRun run={run.clone()} /></div>
                },
                Stage::Ended { id, opened, comparison, .. } => html! {
                    <div class="sheet" role="region" aria-label="The real run" ref={sheet}>
                        { ended(id, opened, comparison.as_ref(), props.hangs, close) }
                    </div>
                },
            } }
        </section>
    }
}

/// The words before a run: where it runs, and what is compared.
fn before_it_runs(props: &RealRunProps, executor: Executor) -> Html {
    let (values, most) = (value_bytes(&props.plan), SimConfig::default().max_value_bytes);
    let compared = values <= most;
    let then = match compared {
        _ if props.hangs => "; a watchdog ends it",
        true => ", then value by value against the simulation",
        false => ", then call by call against the simulation",
    };
    html! {
        <>
        <p class="muted">{ format!("{}{then}.", where_it_runs(executor, props.plan.world_size)) }</p>
        if !compared && !props.hangs {
            <p class="muted" data-test="no-values">{ format!("Not value by value: the tensors take {} on all ranks together, and the page simulates values of {} at most. The order and the sizes of all calls are compared.",
                explain::bytes(values), explain::bytes(most)) }</p>
        }
        </>
    }
}

/// A run that ended: its outcome, the comparison with the simulation, its dumps and its findings.
fn ended(
    id: &str,
    opened: &Rc<Opened>,
    comparison: Option<&Comparison>,
    hangs: bool,
    close: Callback<MouseEvent>,
) -> Html {
    let outcome = opened.outcome.as_ref().map_or_else(
        || "The stream ended before the run did.".to_owned(),
        |outcome| format!("After {}: {}", explain::time(opened.end_ps), explain::ending(outcome)),
    );
    let culprits: Vec<u32> = opened.report.culprits().iter().map(|rank| rank.0).collect();
    html! {
        <>
        <header>
            <h2>{ format!("Run {id}") }</h2><span class="grow" />
            <a href={Route::below(View::Runs, id).to_hash()} data-test="run-link">{ "In the list of runs" }</a>
            <button onclick={close} data-test="run-close" aria-label="Close the run">{ "Close" }</button>
        </header>
        <p data-test="run-outcome">{ outcome }</p>
        if let Some(words) = opened.header.stand_in() { <p class="muted" data-test="stand-in">{ words }</p> }
        if let Some(comparison) = comparison.filter(|comparison| !hangs || comparison.tensors > 0) {
            { comparison_card(comparison) }
        }
        <Dumps run={id.to_owned()} />
        <Timeline session={opened.session} world_size={opened.header.world_size} lanes={opened.lanes}
                  end_ps={opened.end_ps} fit={opened.fit} {culprits} />
        if hangs || !opened.report.findings.is_empty() {
            <Findings report={opened.report.clone()} />
            <WaitGraph waits={opened.waits.clone()} causes={opened.causes.clone()} world_size={opened.header.world_size} />
        }
        </>
    }
}

/// `4 processes on this machine, the same schedule`.
fn where_it_runs(executor: Executor, world_size: u32) -> String {
    let of = |what: &str, many: &str| match world_size {
        1 => format!("1 {what}"),
        ranks => format!("{ranks} {many}"),
    };
    match executor {
        Executor::Host => {
            format!("{} on this machine, the same schedule", of("process", "processes"))
        }
        Executor::NcclSchedules => {
            format!("{} of the server, the same schedule", of("GPU", "GPUs"))
        }
        Executor::NcclLibrary => {
            format!("{} of the server, as NCCL sees fit", of("GPU", "GPUs"))
        }
    }
}

/// The first mistake in faults of a plan, in a sentence.
fn wrong_with(faults: &[Fault], plan: &Plan) -> Option<String> {
    plan.check_faults(faults).err().map(|error| error.to_string())
}

/// Properties of [`Dumps`].
#[derive(Properties, PartialEq)]
struct DumpsProps {
    run: String,
}

/// The Flight Recorder dumps that a run left, as files.
#[component(Dumps)]
fn dumps(props: &DumpsProps) -> Html {
    let ranks = use_state(Vec::new);
    {
        let (ranks, run) = (ranks.setter(), props.run.clone());
        use_effect_with(run, move |run| {
            let run = run.clone();
            wasm_bindgen_futures::spawn_local(async move {
                ranks.set(server::dumps(&run).await.unwrap_or_default());
            });
        });
    }
    if ranks.is_empty() {
        return html! {};
    }
    let link = |rank: &u64| {
        // Fetched by the page: a link would not send the token.
        let (run, rank) = (props.run.clone(), *rank);
        let save = Callback::from(move |_: MouseEvent| {
            let run = run.clone();
            wasm_bindgen_futures::spawn_local(async move {
                if let Ok(pickle) = server::dump(&run, rank).await {
                    dom::download(&format!("nccl_trace_rank_{rank}"), &pickle);
                }
            });
        });
        html! { <li><button class="link" onclick={save} data-test="run-dump-file">{ format!("rank {rank}") }</button></li> }
    };
    html! {
        <details data-test="run-dumps">
            <summary>{ format!("Flight Recorder dumps of {} ranks", ranks.len()) }</summary>
            <ul>{ for ranks.iter().map(link) }</ul>
        </details>
    }
}
