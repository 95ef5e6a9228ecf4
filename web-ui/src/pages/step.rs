//! Step through a collective: the first view.

use super::call_choice::CallChoice;
use super::exports::Exports;
use super::simulation::{Addressed, Simulated, use_addressed_moment, use_simulation, use_view};
use super::step_call::StepCall;
use super::step_choice::{StepChoice, StepForm};
use crate::app::use_shared;
use crate::explain;
use crate::playback::{Act, use_playback};
use crate::route::Route;
use crate::ui::{BufferMap, Buffers, Elements, Fold, Matrix, RealRun, Ring, Timeline, Transport};
use lockstep_core::schedule::Schedule;
use lockstep_sim::Topology;
use std::rc::Rc;
use yew::prelude::*;

/// Worlds above this are drawn on canvases.
const MAX_CELLS: u32 = 16;

/// More chunks a rank than this have no room for their values.
const MAX_COLUMNS: usize = 18;

/// The most chunks that a rank's buffers have together.
fn columns(view: &lockstep_sim::View) -> usize {
    let calls = view.ranks.iter().filter_map(|rank| rank.calls.last());
    let chunks = calls
        .map(|call| call.input.chunks.len() + call.output.chunks.len() + call.scratch.chunks.len());
    chunks.max().unwrap_or(0)
}

/// Step through a collective by one of its algorithms, or a call as PyTorch makes it.
#[component(Step)]
pub(crate) fn step() -> Html {
    match CallChoice::read(&use_shared().nav.route) {
        Some(choice) => html! { <StepCall {choice} /> },
        None => html! { <StepCollective /> },
    }
}

/// Step through a collective.
#[component(StepCollective)]
fn step_collective() -> Html {
    let shared = use_shared();
    let nav = shared.nav.clone();
    let choice = StepChoice::read(&nav.route);
    let plan = use_memo(choice, |choice| choice.plan().map(Rc::new));
    let simulated = use_simulation(&plan, Topology::default());
    let playback = use_playback();
    let selected = use_state(|| 0u32);
    let select = {
        let selected = selected.setter();
        Callback::from(move |rank| selected.set(rank))
    };
    let opened = simulated.ready().cloned();
    let session = opened.as_ref().map(|opened| opened.session);
    // Where the first messages are.
    use_addressed_moment(&playback, Addressed::of(opened.as_ref()), choice.route(), |last| {
        last.min(1)
    });
    let view = use_view(session, playback.moment);
    let rank = (*selected).min(choice.lab.world_size - 1);
    let moments = opened.as_ref().map(|opened| opened.moments.clone()).unwrap_or_default();
    let time_ps = playback.time_ps(&moments);
    let schedule =
        Schedule::new(choice.lab.collective, choice.lab.algorithm, choice.lab.world_size).ok();
    let switches =
        schedule.as_ref().map_or(0, |schedule| schedule.participants() - schedule.size());
    let go = {
        let nav = nav.clone();
        Callback::from(move |route: Route| nav.replace(route))
    };
    let seek = {
        let (dispatch, moments) = (playback.dispatcher(), moments.clone());
        Callback::from(move |time_ps: u64| {
            let moment = moments.partition_point(|at| *at <= time_ps).saturating_sub(1);
            dispatch.dispatch(Act::To(moment));
        })
    };
    let sentence = match (&simulated, &view, schedule) {
        (Simulated::Failed { why }, _, _) => why.clone(),
        (Simulated::Loading { progress }, _, _) if !progress.is_empty() => {
            format!("Simulating… {progress}")
        }
        (_, Some(view), Some(schedule)) => explain::moment(&schedule, view),
        _ => "Simulating…".to_owned(),
    };
    let failed = matches!(simulated, Simulated::Failed { .. });
    let name =
        format!("{}-{}-{}", choice.lab.algorithm, choice.lab.collective, choice.lab.world_size);
    html! {
        <div class="step-grid" data-ready={session.is_some().to_string()}>
            <aside class="panel side">
                <h1>{ "Step through a collective" }</h1>
                <Fold words={choice.words()}>
                <StepForm {choice} on_route={go} />
                if let Ok(plan) = &*plan {
                    <RealRun plan={plan.clone()} simulated={session} />
                    <Exports {session} {name} plan={plan.clone()} />
                }
                </Fold>
            </aside>
            <p class={classes!("sentence", failed.then_some("bad"))} aria-live="polite" data-test="sentence">{ sentence }</p>
            if let (Some(view), Some(opened)) = (&view, &opened) {
                <section class="panel graph" aria-label="Messages on their way">
                    if view.ranks.len() <= MAX_CELLS as usize {
                        <Ring view={view.clone()} {time_ps} selected={rank} on_select={select.clone()} {switches} />
                    } else {
                        <Matrix view={view.clone()} {time_ps} selected={rank} on_select={select.clone()} {switches} />
                    }
                </section>
                <section class="panel memory" aria-label="Buffers of each rank">
                    <header><h2>{ "Buffers" }</h2><span class="grow" />
                        <span class="muted hint">{ "pips: whose data is in a chunk · outlined: being sent · dashed: awaited" }</span></header>
                    if choice.lab.world_size <= MAX_CELLS && columns(view) <= MAX_COLUMNS {
                        <Buffers view={view.clone()} selected={rank} on_select={select.clone()} />
                    } else {
                        <BufferMap view={view.clone()} selected={rank} on_select={select.clone()} />
                    }
                </section>
                <section class="panel inspector" aria-label="Values">
                    <h2>{ "Values" }</h2>
                    if let Ok(plan) = &*plan {
                        <Elements session={opened.session} plan={plan.clone()} moment={playback.moment} {rank} on_rank={select} />
                    }
                </section>
                <section class="panel lanes" aria-label="Timeline">
                    <Timeline session={opened.session} world_size={opened.header.world_size} lanes={opened.lanes}
                              end_ps={opened.end_ps} fit={opened.fit} playhead_ps={time_ps} on_seek={seek} />
                </section>
                <Transport {playback} {time_ps} />
            }
        </div>
    }
}
