//! The training run as a plan, simulated message by message and stepped through; or run for real.

use super::answers::{use_model_file, use_plan};
use super::choice::LabChoice;
use super::model_ref;
use crate::app::use_shared;
use crate::explain;
use crate::pages::exports::Exports;
use crate::pages::machine_note::machine_note;
use crate::pages::simulation::Simulated;
use crate::pages::standing::standing;
use crate::pages::stepping::{Stepping, use_stepping};
use crate::route::{Route, View};
use crate::ui::prose;
use crate::ui::{
    BufferMap, Buffers, Elements, Matrix, RealRun, Ring, SourceView, Timeline, Transport,
};
use lockstep_core::plan::{Plan, Source};
use lockstep_torch::ddp::lab::Setting;
use lockstep_web_protocol::{ModelRef, Opened, SessionId};
use std::rc::Rc;
use yew::prelude::*;

/// Worlds above this are drawn on canvases.
const MAX_CELLS: usize = 16;
/// Larger worlds have too many messages for a page.
const MAX_WORLD: u32 = 64;
/// Processes on a reader's machine, and what their tensors may take together.
const MAX_REAL_WORLD: u32 = 16;
const MAX_REAL_BYTES: u64 = 4 << 30;

/// The setting, if its ranks are few enough to be stepped.
fn steppable(setting: Setting) -> Result<Setting, String> {
    match setting.training.ranks() {
        0..=MAX_WORLD => Ok(setting),
        world => Err(format!(
            "{world} ranks send too many messages to be stepped here: at most {MAX_WORLD}. The lab \
             shows any world in closed form, and `lockstep ddp --plan` with `lockstep sim` goes \
             further."
        )),
    }
}

/// The plan of the lab's setting A.
#[component(Simulate)]
pub(super) fn simulate() -> Html {
    let choice = LabChoice::read(&use_shared().nav.route);
    let (file, _, _) = use_model_file(Callback::noop());
    let model = model_ref(&choice, file.as_ref());
    let of = model.clone().unwrap_or_else(|_| ModelRef::Named(String::new()));
    let known = use_plan(&of, model.and(choice.a.setting()).and_then(steppable));
    let plan = match &known.found {
        Some(Ok(plan)) if known.fresh => Ok(plan.clone()),
        Some(Err(why)) if known.fresh => Err(why.clone()),
        _ => Err(String::new()),
    };
    let base = choice.below("simulate");
    let stepping = use_stepping(&plan, choice.a.machine, base, |last| last.min(1));
    let Stepping { simulated, playback, view, time_ps, seek, rank, select } = stepping;
    let opened = simulated.ready().cloned();
    let session = opened.as_ref().map(|opened| opened.session);
    let sentence = match (&plan, &simulated, &view) {
        (Err(why), _, _) if !why.is_empty() => why.clone(),
        (_, Simulated::Failed { why }, _) if !why.is_empty() => why.clone(),
        (_, Simulated::Loading { progress }, _) if !progress.is_empty() => {
            format!("Simulating… {progress}")
        }
        (_, _, Some(view)) => explain::job(view),
        _ => "Writing the plan…".to_owned(),
    };
    html! {
        <div class="step-grid call" data-test="ddp-simulate" data-ready={session.is_some().to_string()}>
            { side(&choice, plan.as_ref().ok(), opened.as_ref()) }
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

/// The panel beside the simulation: the way back, a real run of the plan, and its files.
fn side(choice: &LabChoice, plan: Option<&Rc<Plan>>, opened: Option<&Rc<Opened>>) -> Html {
    let back = Route { path: Route::to(View::Ddp).path, ..choice.route() };
    let passes =
        choice.a.setting().map_or(0, |setting| setting.optimizer_steps() * setting.passes_a_step());
    let session = opened.map(|opened| opened.session);
    html! {
        <aside class="panel side">
            <a href={back.to_hash()} data-test="back-to-lab">{ "← The lab" }</a>
            <h1>{ "The training run, message by message" }</h1>
            <p class="muted">{ format!("{}: {passes} passes of setting A, from the constructor's broadcasts to the last optimizer step.", choice.words()) }</p>
            if let Some(opened) = opened { { machine_note(opened) } }
            if let Some(plan) = plan {
                { real_run(plan, session) }
                <Exports {session} name={format!("ddp-{}-{}", choice.model.replace([':', ','], "-"), choice.a.world)} plan={plan.clone()} />
            }
        </aside>
    }
}

/// A real run of a plan, or why it is too large for one.
fn real_run(plan: &Rc<Plan>, session: Option<SessionId>) -> Html {
    let tensors = plan.tensors.iter().map(|t| t.numel.saturating_mul(t.dtype.size_bytes()));
    let bytes = tensors.fold(0, u64::saturating_add).saturating_mul(plan.world_size.into());
    if bytes <= MAX_REAL_BYTES && plan.world_size <= MAX_REAL_WORLD {
        return html! { <RealRun plan={plan.clone()} simulated={session} /> };
    }
    let words = format!(
        "A real run here takes {MAX_REAL_WORLD} ranks and {} at most; this plan's tensors take {} on \
         {} ranks. `lockstep ddp --plan` and `lockstep run` take more.",
        explain::bytes(MAX_REAL_BYTES),
        explain::bytes(bytes),
        plan.world_size
    );
    html! { <p class="muted" data-test="no-real-run">{ prose(&words) }</p> }
}

fn empty() -> Source {
    Source { path: String::new(), text: String::new() }
}
