//! A schedule from a file: proved, and ready to step through, or shown at the step where it goes
//! wrong.

use super::recording::files::{dropped, picked};
use super::simulation::{Addressed, use_simulation, use_view};
use crate::app::use_shared;
use crate::playback::{Act, seeking, use_playback};
use crate::route::{Route, View};
use crate::ui::{BufferMap, Matrix, Ring, Timeline, Transport};
use lockstep_core::plan::Plan;
use lockstep_core::schedule::{Buffer, Holding, Loss, Standing};
use lockstep_core::words::counted;
use lockstep_web_protocol::Machine;
use lockstep_web_protocol::{Refused, Request, Response, ScheduleFile};
use std::rc::Rc;
use web_sys::{DragEvent, Event, File, HtmlInputElement, InputEvent};
use yew::prelude::*;

/// Larger worlds are drawn as a matrix.
const MAX_RING: usize = 16;

#[derive(Clone, PartialEq)]
enum Stage {
    Empty,
    Open(Rc<ScheduleFile>),
    Failed(String),
}

/// A drop zone for an MSCCL program, and what it does.
#[component(SchedulePage)]
pub(crate) fn schedule_page() -> Html {
    let client = use_shared().client;
    let stage = use_state(|| Stage::Empty);
    let file = use_state(|| None::<File>);
    let check = {
        let (stage, client) = (stage.setter(), client.clone());
        Callback::from(move |(file, step): (File, Option<u32>)| {
            let (stage, request) = (stage.clone(), Request::CheckSchedule { step });
            // Dropping the handle would give the question up.
            let (asked, answer) = client.ask_with(request, &[file.into()], None);
            wasm_bindgen_futures::spawn_local(async move {
                let answered = answer.await;
                drop(asked);
                match answered.map(|answered| answered.response) {
                    Ok(Response::ScheduleChecked(found)) => stage.set(Stage::Open(Rc::new(*found))),
                    Ok(_) => {}
                    Err(why) => stage.set(Stage::Failed(why)),
                }
            });
        })
    };
    let open = {
        let (file, check) = (file.setter(), check.clone());
        Callback::from(move |files: Vec<File>| {
            if let Some(first) = files.into_iter().next() {
                file.set(Some(first.clone()));
                check.emit((first, None));
            }
        })
    };
    {
        let open = open.clone();
        let handed = use_shared().handed;
        use_effect_with(handed, move |handed| {
            let files = handed.take(&Route::below(View::Gallery, "file"));
            if !files.is_empty() {
                open.emit(files);
            }
        });
    }
    let drop_files = {
        let open = open.clone();
        Callback::from(move |event: DragEvent| {
            event.prevent_default();
            let (open, files) = (open.clone(), dropped(&event));
            wasm_bindgen_futures::spawn_local(async move { open.emit(files.await) });
        })
    };
    let over = Callback::from(|event: DragEvent| event.prevent_default());
    let pick = Callback::from(move |event: Event| {
        let input: HtmlInputElement = event.target_unchecked_into();
        open.emit(picked(&input));
        input.set_value("");
    });
    let go = {
        let file = (*file).clone();
        Callback::from(move |step: u32| {
            if let Some(file) = file.clone() {
                check.emit((file, Some(step)));
            }
        })
    };
    let small = !matches!(&*stage, Stage::Empty);
    html! {
        <div class="recording schedule-file" data-test="schedule-file" ondrop={drop_files}
             ondragover={over.clone()} ondragenter={over}>
            <a href={Route::to(View::Gallery).to_hash()}>{ "← All algorithms" }</a>
            <section class={classes!("drop", small.then_some("small"))}>
                if !small { <h1>{ "Check a schedule of your own" }</h1> }
                <p>
                    { "Drop an MSCCL program (XML) here. It is proved for every element count before anything runs it; one that does not do what it claims is shown at the step where it goes wrong. " }
                    <b>{ "It is read in this tab and goes nowhere." }</b>
                </p>
                <div class="row">
                    <label class="button primary">{ "Choose a file" }
                        <input class="hidden" type="file" accept=".xml" onchange={pick} data-test="pick-schedule" /></label>
                </div>
            </section>
            { match &*stage {
                Stage::Empty => html! {},
                Stage::Failed(why) => html! {
                    <section class="panel" role="alert"><p class="verdict bad" data-test="schedule-error">{ why }</p></section>
                },
                Stage::Open(found) => opened(found, go),
            } }
        </div>
    }
}

fn opened(found: &Rc<ScheduleFile>, go: Callback<u32>) -> Html {
    let claim = format!("{} of {}", found.claims, counted(found.ranks, "rank"));
    // A step is a round, as on the cards, but where one follows a wrong file through its own.
    let steps = found.verdict.as_ref().map_or(found.steps, |proved| proved.rounds);
    let steps = counted(steps, "step");
    // A file of ours says in its name what it carries out.
    let what = match found.name.contains(&claim) {
        true => format!("{} in {steps}", found.name),
        false => format!("{}: {claim} in {steps}", found.name),
    };
    match &found.verdict {
        Ok(proved) => html! { <>
            <p class="sentence" data-test="schedule-verdict" data-proved="true">
                { format!("{what}. Proved: {}, {} moved.", counted(proved.messages, "message"), counted(proved.chunks_moved, "chunk")) }
            </p>
            <RunOnce plan={Rc::new(proved.plan.clone())} />
        </> },
        Err(refused) => html! { <>
            <p class="sentence bad" data-test="schedule-verdict" data-proved="false">
                { format!("{what}. Refused: {}.", refused.sentence) }
                if let Some(lost) = lost(refused) {
                    <span data-test="schedule-loss">{ lost }</span>
                }
            </p>
            { match &found.standing {
                Some(standing) => follow(found, refused, standing, go),
                None => html! { <p class="muted">{ "It has too many chunks to be drawn." }</p> },
            } }
        </> },
    }
}

/// The contents of every rank's chunks before a step, the wrong one marked.
fn follow(found: &ScheduleFile, refused: &Refused, standing: &Standing, go: Callback<u32>) -> Html {
    let wrong = Wrong { refused, step: standing.step };
    let slide = {
        let go = go.clone();
        Callback::from(move |event: InputEvent| {
            let input: HtmlInputElement = event.target_unchecked_into();
            if let Ok(step) = input.value().parse() {
                go.emit(step);
            }
        })
    };
    let names = ["input", "output", "scratch"];
    let used = [0, 1, 2].map(|b| standing.participants.iter().any(|rank| !rank[b].is_empty()));
    html! {
        <section class="panel followed">
            <div class="row">
                <label for="followed-step">{ before(standing.step, found.steps) }</label>
                <input id="followed-step" type="range" min="0" max={found.steps.to_string()} value={standing.step.to_string()}
                       oninput={slide} data-test="schedule-step" data-step={standing.step.to_string()} />
            </div>
            { jumps(refused, go) }
            <table class="holdings">
                <thead><tr><th>{ "rank" }</th>
                    { for names.iter().zip(used).filter(|(_, used)| *used).map(|(name, _)| html! { <th>{ name }</th> }) }
                </tr></thead>
                <tbody>{ for (0u32..).zip(&standing.participants).map(|(rank, buffers)| html! {
                    <tr class={classes!(wrong.on(rank).then_some("wrong-rank"))}>
                        <th>{ rank }</th>
                        { for buffers.iter().enumerate().filter(|(b, _)| used[*b]).map(|(b, chunks)| html! {
                            <td><div class="chunks">{ for (0u32..).zip(chunks).map(|(chunk, holding)| {
                                let wrong = wrong.at(rank, Standing::BUFFERS[b], chunk);
                                cell(chunk, holding, found.ranks, wrong)
                            }) }</div></td>
                        }) }
                    </tr>
                }) }</tbody>
            </table>
            <p class="muted hint">{ "Shade: how many ranks' data a chunk holds. Hover a chunk to read it." }</p>
        </section>
    }
}

/// The error of a refused file before a step.
#[derive(Clone, Copy)]
struct Wrong<'a> {
    refused: &'a Refused,
    step: u32,
}

impl Wrong<'_> {
    /// The loss shows in the step after it; what came of it may be anywhere then.
    fn loss(&self) -> Option<&Loss> {
        self.refused.loss.as_ref().filter(|loss| loss.step + 1 == self.step)
    }

    /// True if the chunk that the proof names is wrong by now.
    fn is_met(&self) -> bool {
        self.refused.step.is_none_or(|step| match self.refused.at_the_end {
            // The chunk is wrong from the step after the one that wrote it.
            true => self.step > step,
            false => self.step == step,
        })
    }

    fn on(&self, rank: u32) -> bool {
        let lost = self.loss().is_some_and(|loss| loss.rank.0 == rank);
        lost || rank == self.refused.rank && (self.is_met() || self.refused.loss.is_none())
    }

    fn at(&self, rank: u32, buffer: Buffer, chunk: u32) -> bool {
        let lost = self
            .loss()
            .is_some_and(|loss| (loss.rank.0, loss.buffer, loss.chunk) == (rank, buffer, chunk));
        let named = self.is_met()
            && rank == self.refused.rank
            && self.refused.slice.is_some_and(|slice| {
                slice.buffer == buffer && (slice.chunk..slice.chunk + slice.chunks).contains(&chunk)
            });
        lost || named
    }
}

/// The sentence about the place where the result's data was lost: the write that it names, or one
/// before it.
fn lost(refused: &Refused) -> Option<String> {
    let loss = refused.loss.as_ref()?;
    let earlier = if refused.step == Some(loss.step) { "" } else { " earlier" };
    Some(format!("It goes wrong{earlier}: {loss}."))
}

/// Steps are counted from 0, as the proof's sentence and MSCCL's files count them.
fn before(step: u32, steps: u32) -> String {
    match (step, steps.checked_sub(1)) {
        (_, None) => "The file has no step".to_owned(),
        (step, Some(last)) if step > last => format!("After the last step, {last}"),
        (step, Some(last)) => format!("Before step {step} (steps are 0 to {last})"),
    }
}

/// Ways to the step that goes wrong and to the wrong result, where they are two.
fn jumps(refused: &Refused, go: Callback<u32>) -> Html {
    let (Some(loss), Some(step)) = (&refused.loss, refused.step) else { return html! {} };
    let elsewhere = step != loss.step;
    let to = |step: u32| {
        let go = go.clone();
        Callback::from(move |_: MouseEvent| go.emit(step))
    };
    html! {
        <div class="row">
            <button onclick={to(loss.step)}>{ format!("Before step {}", loss.step) }</button>
            <button onclick={to(loss.step + 1)} data-test="schedule-to-loss">{ format!("Where it goes wrong: after step {}", loss.step) }</button>
            if elsewhere {
                <button onclick={to(step + 1)} data-test="schedule-to-result">{ format!("The wrong result: after step {step}") }</button>
            }
        </div>
    }
}

fn cell(chunk: u32, holding: &Holding, ranks: u32, wrong: bool) -> Html {
    let share = 100 * holding.contributors / ranks.max(1);
    let style = format!("--share: {share}%");
    let title = format!("chunk {chunk}: {}", holding.words);
    html! {
        <span class={classes!("held", wrong.then_some("wrong"), (holding.contributors == 0).then_some("empty"))}
              {style} title={title.clone()} aria-label={title} data-test={wrong.then_some("wrong-chunk")}>
            { if wrong { holding.words.as_str() } else { "" } }
        </span>
    }
}

/// Properties of [`RunOnce`].
#[derive(Properties, PartialEq)]
struct RunOnceProps {
    plan: Rc<Plan>,
}

/// A proved schedule, run once in the simulator.
#[component(RunOnce)]
fn run_once(props: &RunOnceProps) -> Html {
    let plan = use_memo(props.plan.clone(), |plan| Ok::<_, String>(plan.clone()));
    let simulated = use_simulation(&plan, Machine::default());
    let playback = use_playback();
    let opened = simulated.ready().cloned();
    let view = use_view(opened.as_ref().map(|opened| opened.session), playback.moment);
    let selected = use_state(|| 0u32);
    let select = {
        let selected = selected.setter();
        Callback::from(move |rank| selected.set(rank))
    };
    {
        let dispatch = playback.dispatcher();
        use_effect_with(Addressed::of(opened.as_ref()), move |moments| {
            if let Some(Addressed { of, last }) = *moments {
                dispatch.dispatch(Act::Load { of: Some(of), moment: last.min(1), last });
            }
        });
    }
    let (Some(opened), Some(view)) = (opened, view) else {
        return html! { <p class="muted">{ "Simulating…" }</p> };
    };
    let time_ps = playback.time_ps(&opened.moments);
    let seek = seeking(&playback, opened.moments.clone());
    html! { <div class="file-run">
        <section class="panel graph" aria-label="Messages on their way">
            if view.ranks.len() <= MAX_RING {
                <Ring view={view.clone()} {time_ps} selected={*selected} on_select={select.clone()} />
            } else {
                <Matrix view={view.clone()} {time_ps} selected={*selected} on_select={select.clone()} />
            }
        </section>
        <section class="panel memory" aria-label="Buffers of each rank">
            <BufferMap {view} selected={*selected} on_select={select} />
        </section>
        <section class="panel lanes" aria-label="Timeline">
            <Timeline session={opened.session} world_size={opened.header.world_size} lanes={opened.lanes}
                      end_ps={opened.end_ps} fit={opened.fit} playhead_ps={time_ps} on_seek={seek} />
        </section>
        <Transport {playback} {time_ps} />
    </div> }
}
