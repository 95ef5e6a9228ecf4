//! Recording: Flight Recorder dumps and traces of ours, dropped on the page and read in the worker.

pub(crate) mod files;

use crate::app::use_shared;
use crate::explain;
use crate::protocol::{CANCELLED, Opened, Request, Response};
use crate::ui::{Findings, Timeline, WaitGraph};
use files::{dropped, picked};
use lockstep_core::trace::Origin;
use lockstep_core::words::counted;
use std::rc::Rc;
use web_sys::{DragEvent, Event, File, HtmlInputElement};
use yew::prelude::*;

#[derive(Clone, PartialEq)]
enum Stage {
    Empty,
    Reading { done: u64, total: u64, what: String },
    Open(Rc<Opened>),
    Failed { why: String },
}

/// Recordings, dropped on the page.
#[component(Recording)]
pub(crate) fn recording() -> Html {
    let client = use_shared().client;
    let canceller = client.clone();
    let stage = use_state(|| Stage::Empty);
    let over = use_state(|| false);
    let asked = use_mut_ref(|| None);
    let read = {
        let (client, stage, asked) = (client.clone(), stage.setter(), asked.clone());
        Callback::from(move |files: Vec<File>| {
            let session = client.new_session();
            let total = files.iter().map(|file| file.size() as u64).sum();
            stage.set(Stage::Reading { done: 0, total, what: format!("{} files", files.len()) });
            let progress = {
                let stage = stage.clone();
                Callback::from(move |(done, total, what)| {
                    stage.set(Stage::Reading { done, total, what })
                })
            };
            let files: Vec<wasm_bindgen::JsValue> = files.into_iter().map(Into::into).collect();
            let (question, answer) =
                client.ask_with(Request::OpenFiles { session }, &files, Some(progress));
            *asked.borrow_mut() = Some(question);
            let stage = stage.clone();
            wasm_bindgen_futures::spawn_local(async move {
                stage.set(match answer.await.map(|answered| answered.response) {
                    Ok(Response::Opened(opened)) => Stage::Open(Rc::new(*opened)),
                    Ok(_) => return,
                    Err(why) if why == CANCELLED => Stage::Empty,
                    Err(why) => Stage::Failed { why },
                });
            });
        })
    };
    {
        // Leaving the view, or opening other files, lets go of what the worker holds.
        let session = match &*stage {
            Stage::Open(opened) => Some(opened.session),
            _ => None,
        };
        use_effect_with(session, move |session| {
            let session = *session;
            move || {
                if let Some(session) = session {
                    client.tell(Request::Close { session });
                }
            }
        });
    }
    {
        let (read, handed) = (read.clone(), use_shared().handed);
        use_effect_with((), move |()| {
            let files = handed.take();
            if !files.is_empty() {
                read.emit(files);
            }
        });
    }
    let drop = {
        let (read, over) = (read.clone(), over.setter());
        Callback::from(move |event: DragEvent| {
            event.prevent_default();
            over.set(false);
            let read = read.clone();
            // The browser empties the list when the event is over: it is taken now, walked later.
            let files = dropped(&event);
            wasm_bindgen_futures::spawn_local(async move { read.emit(files.await) });
        })
    };
    let dragged = |is_over: bool| {
        let over = over.setter();
        Callback::from(move |event: DragEvent| {
            event.prevent_default();
            over.set(is_over);
        })
    };
    let pick = {
        let read = read.clone();
        Callback::from(move |event: Event| {
            let input: HtmlInputElement = event.target_unchecked_into();
            let files = picked(&input);
            if !files.is_empty() {
                read.emit(files);
            }
            input.set_value("");
        })
    };
    let cancel = Callback::from(move |_: MouseEvent| {
        if let Some(asked) = asked.borrow_mut().take() {
            canceller.give_up(asked);
        }
    });
    let stage_word = match &*stage {
        Stage::Empty => "empty",
        Stage::Reading { .. } => "reading",
        Stage::Open(_) => "open",
        Stage::Failed { .. } => "failed",
    };
    let small = matches!(&*stage, Stage::Open(_));
    html! {
        <div class="recording" data-test="recording" data-stage={stage_word}>
            <section class={classes!("drop", over.then_some("over"), small.then_some("small"))} ondrop={drop}
                     ondragover={dragged(true)} ondragenter={dragged(true)} ondragleave={dragged(false)} data-test="drop">
                if !small { <h1>{ "Open a recording of a real job" }</h1> }
                <p>
                    { "Drop PyTorch Flight Recorder dumps here (one file a rank, or their folder), or a Lockstep trace. " }
                    <b>{ "They are read in this tab and go nowhere." }</b>
                </p>
                <div class="row">
                    <label class="button primary">{ "Choose files" }
                        <input class="hidden" type="file" multiple={true} onchange={pick.clone()} data-test="pick-files" /></label>
                    <label class="button">{ "Choose a folder" }
                        <input class="hidden" type="file" multiple={true} webkitdirectory={true} onchange={pick} data-test="pick-folder" /></label>
                </div>
                if !small {
                    <details>
                        <summary>{ "How to get dumps from a job" }</summary>
                        <p>{ "Set these before the job starts; when a collective times out every rank writes one file." }</p>
                        <pre class="mono">{ "TORCH_NCCL_TRACE_BUFFER_SIZE=2000\nTORCH_NCCL_DUMP_ON_TIMEOUT=1\nTORCH_NCCL_DEBUG_INFO_TEMP_FILE=/shared/dump_rank_" }</pre>
                    </details>
                }
            </section>
            { match &*stage {
                Stage::Empty => html! {},
                Stage::Reading { done, total, what } => html! {
                    <section class="panel reading" role="status">
                        <progress value={done.to_string()} max={(*total).max(1).to_string()} />
                        <p>{ format!("Reading {what}: {} of {}", explain::bytes(*done), explain::bytes(*total)) }</p>
                        <button onclick={cancel} data-test="cancel-reading">{ "Cancel" }</button>
                    </section>
                },
                Stage::Failed { why } => html! {
                    <section class="panel" role="alert" data-test="recording-error">
                        { for why.lines().take(50).map(|line| html! { <p class="verdict bad">{ line }</p> }) }
                    </section>
                },
                Stage::Open(opened) => html! { <OpenTrace opened={opened.clone()} /> },
            } }
        </div>
    }
}

/// Properties of [`OpenTrace`].
#[derive(Properties, PartialEq)]
pub(super) struct OpenTraceProps {
    pub(super) opened: Rc<Opened>,
}

/// A trace that is open: what it is, its timeline, its findings.
#[component(OpenTrace)]
pub(super) fn open_trace(props: &OpenTraceProps) -> Html {
    let opened = &props.opened;
    let culprits: Vec<u32> = opened.report.culprits().iter().map(|rank| rank.0).collect();
    let recorded = matches!(opened.header.origin, Origin::Recorded { .. });
    let origin = match &opened.header.origin {
        Origin::Simulated { topology, .. } => format!("Simulated, {topology}"),
        Origin::Run { backend, device } => format!("Run on backend {backend}, {device}"),
        Origin::Recorded { by, files } => format!("Recorded by {by}, {} files", files.len()),
    };
    html! {
        <div class="trace-grid" data-test="open-trace" data-world={opened.header.world_size.to_string()} data-calls={opened.calls.to_string()}>
            <p class="sentence" data-test="trace-summary">
                { format!("{origin}. {}, {}, {} over {}. ", counted(opened.header.world_size, "rank"), counted(opened.header.groups.len(), "group"), counted(opened.calls, "call"), explain::time(if recorded { opened.last_ps } else { opened.end_ps })) }
                if let Some(outcome) = &opened.outcome { { format!("The end: {}", explain::ending(outcome)) } }
            </p>
            <section class="panel lanes" aria-label="Timeline">
                <Timeline session={opened.session} world_size={opened.header.world_size} lanes={opened.lanes} end_ps={opened.end_ps} fit={opened.fit} {culprits} />
                <crate::ui::Legend />
            </section>
            <section class="panel verdicts">
                { for opened.problems.iter().map(|problem| html! { <p class="note bad" data-test="file-problem">{ problem }</p> }) }
                <Findings report={opened.report.clone()} />
                <h3>{ "Who waits for whom, at the end" }</h3>
                <WaitGraph waits={opened.waits.clone()} world_size={opened.header.world_size} />
            </section>
        </div>
    }
}
