//! The training run as a plan, simulated message by message and stepped through; or run for real.

use super::answers::{use_model_file, use_plan};
use super::choice::LabChoice;
use super::model_ref;
use crate::app::use_shared;
use crate::explain;
use crate::pages::exports::Exports;
use crate::pages::machine_note::MachineNote;
use crate::pages::simulation::{
    Addressed, Simulated, use_addressed_moment, use_simulation, use_view,
};
use crate::pages::standing::standing;
use crate::playback::{Act, use_playback};
use crate::route::{Route, View};
use crate::ui::prose;
use crate::ui::{
    BufferMap, Buffers, Elements, Matrix, RealRun, Ring, SourceView, Timeline, Transport,
};
use lockstep_core::plan::Source;
use lockstep_web_protocol::ModelRef;
use yew::prelude::*;

/// Worlds above this are drawn on canvases.
const MAX_CELLS: usize = 16;
/// Larger worlds have too many messages for a page.
const MAX_WORLD: u32 = 64;
/// Processes on a reader's machine, and what their tensors may take together.
const MAX_REAL_WORLD: u32 = 16;
const MAX_REAL_BYTES: u64 = 4 << 30;

/// The plan of the lab's setting A.
#[component(Simulate)]
pub(super) fn simulate() -> Html {
    let nav = use_shared().nav;
    let choice = LabChoice::read(&nav.route);
    let (file, _, _) = use_model_file(Callback::noop());
    let model = model_ref(&choice, file.as_ref());
    let of = model.clone().unwrap_or_else(|_| ModelRef::Named(String::new()));
    let setting = model.and(choice.a.setting()).and_then(|setting| match setting.training.ranks() {
        0..=MAX_WORLD => Ok(setting),
        world => Err(format!(
            "{world} ranks send too many messages to be stepped here: at most {MAX_WORLD}. The lab \
             shows any world in closed form, and `lockstep ddp --plan` with `lockstep sim` goes \
             further."
        )),
    });
    let known = use_plan(&of, setting);
    let plan = match &known.found {
        Some(Ok(plan)) if known.fresh => Ok(plan.clone()),
        Some(Err(why)) if known.fresh => Err(why.clone()),
        _ => Err(String::new()),
    };
    let simulated = use_simulation(&plan, choice.a.machine);
    let playback = use_playback();
    let selected = use_state(|| 0u32);
    let select = {
        let selected = selected.setter();
        Callback::from(move |rank| selected.set(rank))
    };
    let opened = simulated.ready().cloned();
    let session = opened.as_ref().map(|opened| opened.session);
    use_addressed_moment(
        &playback,
        Addressed::of(opened.as_ref()),
        choice.below("simulate"),
        |last| last.min(1),
    );
    let view = use_view(session, playback.moment);
    let moments = opened.as_ref().map(|opened| opened.moments.clone()).unwrap_or_default();
    let time_ps = playback.time_ps(&moments);
    let seek = {
        let (dispatch, moments) = (playback.dispatcher(), moments.clone());
        Callback::from(move |time_ps: u64| {
            let moment = moments.partition_point(|at| *at <= time_ps).saturating_sub(1);
            dispatch.dispatch(Act::To(moment));
        })
    };
    let sentence = match (&plan, &simulated, &view) {
        (Err(why), _, _) if !why.is_empty() => why.clone(),
        (_, Simulated::Failed { why }, _) if !why.is_empty() => why.clone(),
        (_, Simulated::Loading { progress }, _) if !progress.is_empty() => {
            format!("Simulating… {progress}")
        }
        (_, _, Some(view)) => explain::job(view),
        _ => "Writing the plan…".to_owned(),
    };
    let ranks = plan.as_ref().map_or(choice.a.world, |plan| plan.world_size);
    let bytes = plan.as_ref().ok().map(|plan| {
        let tensors = plan.tensors.iter().map(|t| t.numel.saturating_mul(t.dtype.size_bytes()));
        tensors.fold(0, u64::saturating_add).saturating_mul(plan.world_size.into())
    });
    let real = bytes.is_some_and(|bytes| bytes <= MAX_REAL_BYTES) && ranks <= MAX_REAL_WORLD;
    let rank = (*selected).min(ranks.saturating_sub(1));
    let back = Route { path: Route::to(View::Ddp).path, ..choice.route() };
    html! {
        <div class="step-grid call" data-test="ddp-simulate" data-ready={session.is_some().to_string()}>
            <aside class="panel side">
                <a href={back.to_hash()} data-test="back-to-lab">{ "← The lab" }</a>
                <h1>{ "The training run, message by message" }</h1>
                <p class="muted">{ format!("{}: {} passes of setting A, from the constructor's broadcasts to the last optimizer step.", choice.words(),
                    choice.a.setting().map_or(0, |setting| setting.optimizer_steps() * setting.passes_a_step())) }</p>
                if let Some(opened) = &opened { <MachineNote opened={opened.clone()} /> }
                if let Ok(plan) = &plan {
                    if real {
                        <RealRun plan={plan.clone()} simulated={session} />
                    } else {
                        <p class="muted" data-test="no-real-run">{ prose(&format!("A real run here takes {MAX_REAL_WORLD} ranks and {} at most; this plan's tensors take {} on {} ranks. `lockstep ddp --plan` and `lockstep run` take more.",
                            explain::bytes(MAX_REAL_BYTES), explain::bytes(bytes.unwrap_or(0)), ranks)) }</p>
                    }
                    <Exports {session} name={format!("ddp-{}-{}", choice.model.replace([':', ','], "-"), choice.a.world)} plan={plan.clone()} />
                }
            </aside>
            <div class="sentence"><p class={classes!((plan.as_ref().is_err_and(|why| !why.is_empty())).then_some("bad"))} aria-live="polite" data-test="sentence">{ prose(&sentence) }</p></div>
            <section class="panel memory" aria-label="Program">
                if let Ok(plan) = &plan {
                    <SourceView source={plan.sources.first().cloned().unwrap_or_else(empty)} view={view.clone()} />
                    <ul class="standing" data-test="standing">{ standing(view.as_deref(), opened.as_deref().map_or(&[], |opened| &opened.header.groups)) }</ul>
                }
                if let Some(view) = &view {
                    if view.ranks.len() <= MAX_CELLS {
                        <Buffers view={view.clone()} selected={rank} on_select={select.clone()} />
                    } else {
                        <BufferMap view={view.clone()} selected={rank} on_select={select.clone()} />
                    }
                }
            </section>
            if let (Some(view), Some(opened)) = (&view, &opened) {
                <section class="panel graph" aria-label="Messages on their way">
                    if view.ranks.len() <= MAX_CELLS {
                        <Ring view={view.clone()} {time_ps} selected={rank} on_select={select.clone()} />
                    } else {
                        <Matrix view={view.clone()} {time_ps} selected={rank} on_select={select.clone()} />
                    }
                </section>
                <section class="panel inspector" aria-label="Values">
                    <h2>{ "Values" }</h2>
                    if let Ok(plan) = &plan {
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

fn empty() -> Source {
    Source { path: String::new(), text: String::new() }
}
