//! Step through a call of torch.distributed as PyTorch makes it: its program, what every rank
//! does, messages, buffers, streams, and what works answered.

use super::asked::ways;
use super::backend_table::BackendTable;
use super::call_choice::{CallChoice, CallForm, use_planned};
use super::exports::Exports;
use super::machine_note::machine_note;
use super::simulation::Simulated;
use super::standing::standing;
use super::stepping::use_stepping;
use crate::app::use_shared;
use crate::explain;
use crate::route::Route;
use crate::ui::{
    BufferMap, Buffers, Elements, Fold, Messages, RealRun, SourceView, Timeline, Transport,
};
use lockstep_core::plan::Source;
use lockstep_web_protocol::{Opened, WorkAnswer};
use yew::prelude::*;

/// Worlds above this are drawn on canvases.
const MAX_CELLS: usize = 16;

/// Rows are high enough to be read: which of them waits is the point.
const LEAST_ROW: f64 = 12.0;

/// Properties of [`StepCall`].
#[derive(Properties, PartialEq)]
pub(super) struct StepCallProps {
    pub(super) choice: CallChoice,
}

/// Step through a call.
#[component(StepCall)]
pub(super) fn step_call(props: &StepCallProps) -> Html {
    let nav = use_shared().nav;
    let choice = &props.choice;
    let planned = use_planned(choice);
    let plan = use_memo(planned.clone(), |planned| match planned {
        Some(planned) => planned.plan.clone(),
        None => Err(String::new()),
    });
    let fresh = planned.as_ref().is_some_and(|planned| planned.choice == *choice);
    let stepping = use_stepping(&plan, choice.machine, choice.route(), |last| last.min(1));
    let (opened, session) = (stepping.opened().cloned(), stepping.session());
    let (rank, select, time_ps) = (stepping.rank, stepping.select.clone(), stepping.time_ps);
    let view = stepping.view.clone();
    let ranks_per_node = choice.machine.ranks_per_node();
    let go = Callback::from(move |route: Route| nav.replace(route));
    let refused = match &stepping.simulated {
        Simulated::Failed { why } if fresh && !why.is_empty() => Some(why.clone()),
        _ => None,
    };
    let sentence = match (&refused, &view) {
        (Some(why), _) => why.clone(),
        (None, Some(view)) => explain::job(view),
        (None, None) => "Simulating…".to_owned(),
    };
    let source = plan.as_ref().as_ref().ok().and_then(|plan| plan.sources.first().cloned());
    let source = source.unwrap_or_else(|| Source {
        path: format!("{}.py", choice.call.name),
        text: choice.call.source(&choice.options),
    });
    let name =
        format!("{}-{}-{}", choice.call.name, choice.options.backend, choice.options.world_size);
    let moves = view.as_ref().is_some_and(|view| {
        view.ranks
            .iter()
            .any(|rank| rank.calls.last().is_some_and(|call| !call.output.chunks.is_empty()))
    });
    html! {
        <div class="step-grid call" data-ready={(fresh && session.is_some()).to_string()} data-test="step-call" data-call={choice.call.name} data-backend={choice.options.backend.clone()}
             data-refused={refused.is_some().to_string()}>
            <aside class="panel side">
                <h1>{ "Step through a call" }</h1>
                <Fold words={choice.words()}>
                <CallForm choice={choice.clone()} on_route={go} />
                if let Some(opened) = &opened { { machine_note(opened) } }
                <BackendTable call={choice.call.name} />
                if let Ok(plan) = &*plan {
                    <RealRun plan={plan.clone()} simulated={session} />
                    <Exports {session} {name} plan={plan.clone()} />
                }
                </Fold>
            </aside>
            <div class="sentence"><p class={classes!(refused.is_some().then_some("bad"))} aria-live="polite" data-test="sentence">{ sentence }</p>
                if refused.is_some() { { ways(&planned.map(|planned| planned.ways).unwrap_or_default()) } }
                <p class="muted small-print">{ choice.call.about }</p></div>
            <section class="panel memory" aria-label="Program">
                <SourceView {source} view={view.clone()} />
                <ul class="standing" data-test="standing">{ standing(view.as_deref(), opened.as_deref().map_or(&[], |opened| &opened.header.groups)) }</ul>
                if let (Some(view), true) = (&view, moves) {
                    if view.ranks.len() <= MAX_CELLS {
                        <Buffers view={view.clone()} selected={rank} on_select={select.clone()} />
                    } else {
                        <BufferMap view={view.clone()} selected={rank} on_select={select.clone()} />
                    }
                }
            </section>
            if let (Some(view), Some(opened)) = (&view, &opened) {
                <section class="panel graph" aria-label="Messages on their way">
                    <Messages view={view.clone()} {time_ps} selected={rank} on_select={select.clone()} {ranks_per_node} />
                </section>
                <section class="panel inspector" aria-label="Values">
                    { answers(opened, time_ps) }
                    <h2>{ "Values" }</h2>
                    if let Ok(plan) = &*plan {
                        <Elements session={opened.session} plan={plan.clone()} moment={stepping.playback.moment} {rank} on_rank={select} />
                    }
                </section>
                <section class="panel lanes" aria-label="Timeline">
                    <Timeline session={opened.session} world_size={opened.header.world_size} lanes={opened.lanes}
                              end_ps={opened.end_ps} fit={opened.fit} playhead_ps={time_ps} on_seek={stepping.seek.clone()}
                              least_row={LEAST_ROW} />
                    <p class="muted small-print">{ rows(choice) }</p>
                </section>
                <Transport playback={stepping.playback.clone()} {time_ps} />
            }
        </div>
    }
}

/// The meaning of a rank's rows: blocking the process is not blocking its device.
fn rows(choice: &CallChoice) -> &'static str {
    match choice.options.backend.contains("nccl") {
        true => {
            "The process enqueues and goes on (green while it is free), the compute stream does what was enqueued (striped while it waits for a call), and calls run on the communication stream. Enqueuing takes no time here."
        }
        false => {
            "The process stands while a call blocks it (pale); its calls and the messages that it sends are below it."
        }
    }
}

/// Answers that differ only in who asked, with all who did.
fn together<'a>(answers: impl Iterator<Item = &'a WorkAnswer>) -> Vec<(&'a WorkAnswer, Vec<u32>)> {
    let mut found: Vec<(&WorkAnswer, Vec<u32>)> = Vec::new();
    for answer in answers {
        let same = |(other, _): &&mut (&WorkAnswer, Vec<u32>)| {
            (other.time_ps, &other.question, &other.answer)
                == (answer.time_ps, &answer.question, &answer.answer)
        };
        match found.iter_mut().find(same) {
            Some((_, ranks)) => ranks.push(answer.rank),
            None => found.push((answer, vec![answer.rank])),
        }
    }
    found
}

/// `rank 2`, `ranks 0–3`.
fn who(ranks: Vec<u32>) -> String {
    let who = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{who} {}", explain::ranks(ranks))
}

/// The answers of works up to a time.
fn answers(opened: &Opened, time_ps: u64) -> Html {
    if opened.answers.is_empty() {
        return html! {};
    }
    let so_far = opened.answers.iter().filter(|answer| answer.time_ps <= time_ps);
    html! {
        <>
        <h2>{ "Answers" }</h2>
        <ul class="answers mono" data-test="answers" data-all={opened.answers.len().to_string()}>
            { for together(so_far).into_iter().map(|(answer, ranks)| html! {
                <li><b>{ who(ranks) }</b>{ format!(" {}() → {} ", answer.question, answer.answer) }
                    <small class="muted">{ match answer.time_ps {
                        0 => "at the start".to_owned(),
                        time_ps => format!("at {}", explain::time(time_ps)),
                    } }</small></li>
            }) }
        </ul>
        </>
    }
}
