//! Step through a collective: the first view.

use super::asked::cannot;
use super::call_choice::{CallChoice, CallForm, CallRead};
use super::exports::Exports;
use super::machine_note::machine_note;
use super::simulation::Simulated;
use super::step_call::StepCall;
use super::step_choice::{StepChoice, StepForm};
use super::stepping::use_stepping;
use crate::app::use_shared;
use crate::explain;
use crate::route::Route;
use crate::ui::{
    BufferMap, Buffers, Elements, Fold, Messages, RealRun, Timeline, Transport, trees_of,
};
use lockstep_core::schedule::Rounds;
use std::rc::Rc;
use yew::prelude::*;

/// Worlds above this are drawn on canvases.
const MAX_CELLS: u32 = 16;

/// More chunks a rank than this have no room for their values.
const MAX_COLUMNS: usize = 18;

/// Above what the address asks for that cannot be.
const TITLE: &str = "Step through";

/// The most chunks that a rank's buffers have together.
fn columns(view: &lockstep_sim::View) -> usize {
    let calls = view.ranks.iter().filter_map(|rank| rank.calls.last());
    let chunks = calls
        .map(|call| call.input.chunks.len() + call.output.chunks.len() + call.scratch.chunks.len());
    chunks.max().unwrap_or(0)
}

/// Step through a collective by one of its algorithms, or a call as PyTorch makes it; or read what
/// the address asks for that cannot be.
#[component(Step)]
pub(crate) fn step() -> Html {
    let nav = use_shared().nav;
    let go = Callback::from({
        let nav = nav.clone();
        move |route: Route| nav.replace(route)
    });
    match CallChoice::read(&nav.route) {
        CallRead::Call(choice, unmet) if unmet.is_empty() => {
            html! { <StepCall choice={*choice} /> }
        }
        CallRead::Call(choice, unmet) => {
            let words = choice.words();
            cannot(TITLE, unmet, words, html! { <CallForm choice={*choice} on_route={go} /> })
        }
        CallRead::Unknown(unmet) => {
            let (choice, _) = StepChoice::read(&nav.route);
            cannot(
                TITLE,
                vec![unmet],
                choice.words(),
                html! { <StepForm {choice} on_route={go} /> },
            )
        }
        CallRead::None => match StepChoice::read(&nav.route) {
            (choice, unmet) if unmet.is_empty() => html! { <StepCollective {choice} /> },
            (choice, unmet) => {
                cannot(TITLE, unmet, choice.words(), html! { <StepForm {choice} on_route={go} /> })
            }
        },
    }
}

#[derive(Properties, PartialEq)]
struct StepCollectiveProps {
    choice: StepChoice,
}

/// Step through a collective.
#[component(StepCollective)]
fn step_collective(props: &StepCollectiveProps) -> Html {
    let nav = use_shared().nav;
    let choice = props.choice;
    let plan = use_memo(choice, |choice| choice.plan().map(Rc::new));
    // It begins where the first messages are.
    let stepping = use_stepping(&plan, choice.machine, choice.route(), |last| last.min(1));
    let (opened, session) = (stepping.opened().cloned(), stepping.session());
    let (rank, select, time_ps) = (stepping.rank, stepping.select.clone(), stepping.time_ps);
    let ranks_per_node = choice.machine.ranks_per_node();
    let schedule = choice.schedule();
    let rounds = use_memo(choice, |choice| choice.schedule().as_ref().map(Rounds::of));
    let trees =
        use_memo(choice, |choice| choice.schedule().as_ref().and_then(trees_of).map(Rc::new));
    let trees = (*trees).clone();
    let switches =
        schedule.as_ref().map_or(0, |schedule| schedule.participants() - schedule.size());
    let go = Callback::from(move |route: Route| nav.replace(route));
    let counted = schedule.as_ref().zip(rounds.as_ref().as_ref());
    let sentence = match (&stepping.simulated, &stepping.view, counted) {
        (Simulated::Failed { why }, _, _) => why.clone(),
        (Simulated::Loading { progress }, _, _) if !progress.is_empty() => {
            format!("Simulating… {progress}")
        }
        (_, Some(view), Some((schedule, rounds))) => explain::moment(schedule, rounds, view),
        _ => "Simulating…".to_owned(),
    };
    let failed = matches!(stepping.simulated, Simulated::Failed { .. });
    let name =
        format!("{}-{}-{}", choice.lab.algorithm, choice.lab.collective, choice.lab.world_size);
    html! {
        <div class="step-grid" data-ready={session.is_some().to_string()} data-nodes={ranks_per_node.to_string()}>
            <aside class="panel side">
                <h1>{ "Step through a collective" }</h1>
                <Fold words={choice.words()}>
                <StepForm {choice} on_route={go} />
                if let Some(opened) = &opened { { machine_note(opened) } }
                if let Ok(plan) = &*plan {
                    <RealRun plan={plan.clone()} simulated={session} />
                    <Exports {session} {name} plan={plan.clone()} />
                }
                </Fold>
            </aside>
            <p class={classes!("sentence", failed.then_some("bad"))} aria-live="polite" data-test="sentence">{ sentence }</p>
            if let (Some(view), Some(opened)) = (&stepping.view, &opened) {
                <section class="panel graph" aria-label="Messages on their way">
                    <Messages view={view.clone()} {time_ps} selected={rank} on_select={select.clone()} {switches} {ranks_per_node} {trees} />
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
                        <Elements session={opened.session} plan={plan.clone()} moment={stepping.playback.moment} {rank} on_rank={select} />
                    }
                </section>
                <section class="panel lanes" aria-label="Timeline">
                    <Timeline session={opened.session} world_size={opened.header.world_size} lanes={opened.lanes}
                              end_ps={opened.end_ps} fit={opened.fit} playhead_ps={time_ps} on_seek={stepping.seek.clone()} />
                </section>
                <Transport playback={stepping.playback.clone()} {time_ps} />
            }
        </div>
    }
}
