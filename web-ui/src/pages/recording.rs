//! Recording: dumps, logs, profiles and traces of ours, dropped on the page and read in the worker.

pub(crate) mod files;
pub(crate) mod samples;
mod save;

use super::workbench::{KEPT, Workbench, sources};
use crate::app::use_shared;
use crate::explain;
use crate::kept::{self, Kept};
use crate::route::{Route, View};
use crate::sets::set;
use crate::turns::{Turns, use_turns};
use crate::ui::dropped::Texts;
use crate::ui::prose;
use files::{dropped, path_of, picked};
use lockstep_core::trace::Origin;
use lockstep_core::words::counted;
use lockstep_web_protocol::Session;
use lockstep_web_protocol::{
    Asked, CANCELLED, Client, Opened, Progress, Reached, Request, Response, Unit,
};
use samples::Sample;
use save::Save;
use std::cell::RefCell;
use std::rc::Rc;
use web_sys::{DragEvent, Event, File, HtmlInputElement};
use yew::prelude::*;

#[derive(Clone, PartialEq)]
enum Stage {
    Empty,
    Reading(Reached),
    /// With the session, held for as long as it is shown.
    Open(Rc<Opened>, Session),
    Failed {
        why: String,
    },
}

/// Recordings, dropped on the page.
#[component(Recording)]
pub(crate) fn recording() -> Html {
    let reading = use_reading();
    let sample = use_mut_ref(|| None::<String>);
    let read = reading.callback();
    let forget_sample = use_sample(&reading, &read, &sample);
    let asked_kept = use_kept(&reading.stage, &read, &sample, &reading.opened, &reading.programs);
    let read = {
        let (forget_sample, reading, sample) =
            (forget_sample.clone(), reading.clone(), sample.clone());
        read.reform(move |files: Vec<File>| {
            // A sample is another job than the one whose files come.
            let was_sample = sample.borrow().is_some();
            forget_sample.emit(());
            if was_sample {
                reading.set_aside();
            }
            files
        })
    };
    {
        let (read, reading) = (read.clone(), reading.clone());
        let handed = use_shared().handed;
        use_effect_with(handed, move |handed| {
            let files = handed.take(&Route::to(View::Recording));
            if !files.is_empty() {
                // What is dropped elsewhere is another job. Where none was open, the marks in the address are its own.
                if !reading.opened.borrow().is_empty() {
                    reading.set_aside();
                }
                read.emit(files);
            }
        });
    }
    let nav = use_shared().nav;
    let over = use_state(|| false);
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
    let close = {
        let reading = reading.clone();
        Callback::from(move |_: MouseEvent| {
            reading.close();
            forget_sample.emit(());
        })
    };
    let cancel = {
        let reading = reading.clone();
        Callback::from(move |_: MouseEvent| reading.cancel())
    };
    let stage_word = match &*reading.stage {
        Stage::Empty => "empty",
        Stage::Reading(_) => "reading",
        Stage::Open(..) => "open",
        Stage::Failed { .. } => "failed",
    };
    let small = matches!(&*reading.stage, Stage::Open(..));
    // Once a recording is open, a file anywhere on it belongs to it: more ranks, or the job's source.
    let anywhere = small.then(|| drop.clone());
    html! {
        <div class="recording" data-test="recording" data-stage={stage_word} ondrop={anywhere}>
            <section class={classes!("drop", over.then_some("over"), small.then_some("small"))} ondrop={(!small).then_some(drop)}
                     ondragover={dragged(true)} ondragenter={dragged(true)} ondragleave={dragged(false)} data-test="drop">
                { match small {
                    true => adding(&reading, &read, close),
                    false => inviting(&read),
                } }
            </section>
            { match &*reading.stage {
                Stage::Empty if asked_kept => missing_files(&nav.route),
                Stage::Empty => html! {},
                Stage::Reading(reached) => html! {
                    <section class="panel reading" role="status">
                        { how_far(reached) }
                        <button onclick={cancel} data-test="cancel-reading">{ "Cancel" }</button>
                    </section>
                },
                Stage::Failed { why } => html! {
                    <section class="panel" role="alert" data-test="recording-error">
                        { for why.lines().take(50).map(|line| html! { <p class="verdict bad">{ prose(line) }</p> }) }
                    </section>
                },
                Stage::Open(opened, _) => html! { <Workbench opened={opened.clone()} texts={(*reading.texts).clone()} /> },
            } }
        </div>
    }
}

/// Says what an address with marks of a recording needs, which does not carry the recording's files.
fn missing_files(route: &Route) -> Html {
    if route.view() != View::Recording || KEPT.iter().all(|name| route.get(name).is_none()) {
        return html! {};
    }
    html! {
        <p class="note" role="status" data-test="missing-files">
            { "This address marks places in a recording whose files are not in this browser. Drop them again, and it opens as it was left." }
        </p>
    }
}

/// The drop zone before anything is open.
fn inviting(read: &Callback<Vec<File>>) -> Html {
    html! {
        <>
            <h1>{ "Open a recording of a real job" }</h1>
            <p>
                { "Drop what your job left here, alone or together: PyTorch's Flight Recorder dumps (one file a rank, their folder, or an archive), logs with NCCL's lines (NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT,COLL) or PyTorch's messages, traces of its profiler. Or a Lockstep trace, or a plan (ours, or a GOAL file), which is simulated. " }
                <b>{ "They are read in this tab and go nowhere; until you close them, this browser keeps them for a reload." }</b>
            </p>
            <div class="row">{ pickers(read) }</div>
            <details>
                <summary>{ "How to get dumps from a job" }</summary>
                <p>{ "Set these before the job starts; when a collective times out every rank writes one file." }</p>
                <pre class="mono">{ "TORCH_FR_BUFFER_SIZE=2000   # older PyTorch: TORCH_NCCL_TRACE_BUFFER_SIZE\nTORCH_NCCL_DUMP_ON_TIMEOUT=1\nTORCH_NCCL_DEBUG_INFO_TEMP_FILE=/shared/dump_rank_" }</pre>
            </details>
        </>
    }
}

/// The drop zone of a recording that is open.
fn adding(reading: &Reading, read: &Callback<Vec<File>>, close: Callback<MouseEvent>) -> Html {
    let count = counted(reading.opened.borrow().len() as u64, "file");
    let next = match reading.is_whole {
        true => "What you drop now is opened in its place.",
        false => {
            "Files of other names are added to them; one of the same name, or another dump of a rank, opens another recording."
        }
    };
    html! {
        <>
            <h1 class="hidden">{ "Recording" }</h1>
            <p>{ "Drop more of this job anywhere: dumps, logs, profiles, its sources." }
                <span class="muted small-print">{ format!(" {count} so far. {next}") }</span></p>
            <div class="row">
                { pickers(read) }
                <button onclick={close} data-test="close-recording">{ "Close" }</button>
                <Save files={reading.opened.clone()} programs={reading.programs.clone()} />
            </div>
        </>
    }
}

/// The buttons that choose files and a folder.
fn pickers(read: &Callback<Vec<File>>) -> Html {
    let read = read.clone();
    let pick = Callback::from(move |event: Event| {
        let input: HtmlInputElement = event.target_unchecked_into();
        let files = picked(&input);
        if !files.is_empty() {
            read.emit(files);
        }
        input.set_value("");
    });
    html! {
        <>
            <label class="button primary">{ "Choose files" }
                <input class="hidden" type="file" multiple={true} onchange={pick.clone()} data-test="pick-files" /></label>
            <label class="button">{ "Choose a folder" }
                <input class="hidden" type="file" multiple={true} webkitdirectory={true} onchange={pick} data-test="pick-folder" /></label>
        </>
    }
}

/// The recording that is open or being read, and the files that it is made of.
#[derive(Clone)]
struct Reading {
    client: Client,
    stage: UseStateHandle<Stage>,
    /// True if the open file is no recording but a trace or plan: nothing is added to it.
    is_whole: bool,
    opened: Rc<RefCell<Vec<File>>>,
    /// The job's programs among the dropped files: they are shown, and no part of the recording.
    programs: Rc<RefCell<Vec<File>>>,
    texts: UseStateHandle<Texts>,
    asked: Rc<RefCell<Option<Asked>>>,
    turns: Turns,
    /// Takes the reader's marks on a recording out of the address.
    forget_marks: Callback<()>,
}

#[hook]
fn use_reading() -> Reading {
    let shared = use_shared();
    let stage = use_state(|| Stage::Empty);
    let is_whole = matches!(&*stage, Stage::Open(opened, _) if !is_recorded(opened));
    let nav = shared.nav;
    Reading {
        client: shared.client,
        is_whole,
        opened: use_mut_ref(Vec::new),
        programs: use_mut_ref(Vec::new),
        texts: use_state(Texts::default),
        asked: use_mut_ref(|| None),
        turns: use_turns(),
        forget_marks: Callback::from(move |()| {
            let now = nav.now();
            if now.view() == View::Recording && !nav.is_stale() {
                nav.replace(KEPT.iter().fold(now, |route, name| route.without(name)));
            }
        }),
        stage,
    }
}

impl Reading {
    /// Reads files that were dropped or chosen.
    fn callback(&self) -> Callback<Vec<File>> {
        let reading = self.clone();
        Callback::from(move |files: Vec<File>| {
            let (sources, files): (Vec<File>, Vec<File>) =
                files.into_iter().partition(sources::is_source);
            if !sources.is_empty() {
                reading.programs.borrow_mut().extend(sources.iter().cloned());
                let texts = reading.texts.clone();
                wasm_bindgen_futures::spawn_local(async move {
                    texts.set(sources::with((*texts).clone(), sources).await);
                });
            }
            if !files.is_empty() {
                reading.open(files);
            }
        })
    }

    /// Opens files together with those that are open. Files that are dropped while others are read come
    /// to them, too.
    fn open(&self, files: Vec<File>) {
        if self.is_whole {
            self.opened.borrow_mut().clear();
            self.forget_marks.emit(());
        }
        let before = self.opened.borrow().len();
        let count = files.len();
        let files = together(&mut self.opened.borrow_mut(), files);
        if before > 0 && files.len() == count {
            // Another recording has other calls to mark.
            self.forget_marks.emit(());
        }
        let (session, turn) = (self.client.new_session(), self.turns.next());
        let total = files.iter().map(|file| file.size() as u64).sum();
        let what = counted(files.len() as u64, "file");
        self.stage.set(Stage::Reading(Reached { done: 0, total, unit: Unit::Bytes, what }));
        let progress: Progress = {
            let (stage, turn) = (self.stage.clone(), turn.clone());
            Rc::new(move |reached| {
                if turn.counts() {
                    stage.set(Stage::Reading(reached));
                }
            })
        };
        let paths = files.iter().map(path_of).collect();
        let files: Vec<wasm_bindgen::JsValue> = files.into_iter().map(Into::into).collect();
        let request = Request::OpenFiles { session: session.id(), paths };
        let reading = self.clone();
        wasm_bindgen_futures::spawn_local(async move {
            reading.client.has_heard().await;
            if !turn.counts() {
                return;
            }
            let (question, answer) = reading.client.ask_with(request, &files, Some(progress));
            *reading.asked.borrow_mut() = Some(question);
            let answered = answer.await.map(|answered| answered.response);
            if !turn.counts() {
                return;
            }
            reading.stage.set(match answered {
                Ok(Response::Opened(opened)) => Stage::Open(Rc::new(*opened), session),
                Ok(_) => return,
                Err(why) if why == CANCELLED => Stage::Empty,
                Err(why) => {
                    // The next files are of no recording with one that could not be read.
                    if files.len() == 1 {
                        reading.opened.borrow_mut().clear();
                    }
                    Stage::Failed { why }
                }
            });
        });
    }

    /// Begins anew: the next files belong to none of those so far, and have no marks.
    fn set_aside(&self) {
        self.opened.borrow_mut().clear();
        self.programs.borrow_mut().clear();
        self.texts.set(Texts::default());
        self.forget_marks.emit(());
    }

    fn close(&self) {
        self.set_aside();
        self.stage.set(Stage::Empty);
        wasm_bindgen_futures::spawn_local(kept::forget());
    }

    /// Gives up on the files that are being read: the next ones neither belong to them nor wait for
    /// their end.
    fn cancel(&self) {
        self.opened.borrow_mut().clear();
        self.turns.end();
        self.stage.set(Stage::Empty);
        if let Some(asked) = self.asked.borrow_mut().take() {
            self.client.give_up(asked);
        }
    }
}

/// Opens the sample that the address names, and keeps it in the address while it is open. What is
/// returned takes it out, and what is looked at in it.
#[hook]
fn use_sample(
    reading: &Reading,
    read: &Callback<Vec<File>>,
    opened: &Rc<RefCell<Option<String>>>,
) -> Callback<()> {
    let (reading, stage, opened) = (reading.clone(), &reading.stage, opened.clone());
    let nav = use_shared().nav;
    let shown = nav.route.view() == View::Recording;
    let asked = nav.route.get(samples::PARAMETER).filter(|_| shown).map(str::to_owned);
    let stage = stage.clone();
    let open = matches!(&*stage, Stage::Open(..) | Stage::Reading(_));
    let read = read.clone();
    let forget = {
        let (opened, nav) = (opened.clone(), nav.clone());
        Callback::from(move |()| {
            if opened.borrow_mut().take().is_some() {
                nav.replace(Route::to(View::Recording));
            }
        })
    };
    // Whatever else is written into the address: what is open stays in it.
    let route = nav.route.clone();
    use_effect_with((asked, shown, open, route), move |(asked, shown, open, _)| match asked {
        Some(id) if opened.borrow().as_ref() != Some(id) => {
            *opened.borrow_mut() = Some(id.clone());
            // It is no part of the job that was open, which stays kept. Where none was, the marks in the address
            // are its own.
            if !reading.opened.borrow().is_empty() {
                reading.set_aside();
            }
            let Some(sample) = Sample::named(id) else {
                stage.set(Stage::Failed { why: format!("This page has no sample {id:?}.") });
                return;
            };
            wasm_bindgen_futures::spawn_local(async move {
                match sample.fetch().await {
                    Ok(file) => read.emit(vec![file]),
                    Err(why) => stage.set(Stage::Failed { why }),
                }
            });
        }
        Some(_) => {}
        None if *shown && *open => {
            let now = nav.now();
            let lacks = now.path == nav.route.path && now.get(samples::PARAMETER).is_none();
            if let Some(id) = opened.borrow().as_ref().filter(|_| lacks && !nav.is_stale()) {
                nav.replace(now.with(samples::PARAMETER, id));
            }
        }
        None => {}
    });
    forget
}

/// Keeps the files of what is open in the browser, and opens what was kept when the page is loaded
/// again. Samples are not kept: their address opens them. True once the browser was asked for kept files.
#[hook]
fn use_kept(
    stage: &UseStateHandle<Stage>,
    read: &Callback<Vec<File>>,
    sample: &Rc<RefCell<Option<String>>>,
    opened: &Rc<RefCell<Vec<File>>>,
    programs: &Rc<RefCell<Vec<File>>>,
) -> bool {
    let asked = use_state(|| false);
    let shared = use_shared();
    // A lesson brings files of its own.
    let inside = shared.nav.is_inside();
    let session = match &**stage {
        Stage::Open(opened, _) if !inside => Some(opened.session),
        _ => None,
    };
    {
        let (sample, opened, programs) = (sample.clone(), opened.clone(), programs.clone());
        use_effect_with(session, move |session| {
            if session.is_some() && sample.borrow().is_none() {
                let files = [opened.borrow().clone(), programs.borrow().clone()].concat();
                let pair = |file: File| Kept { path: path_of(&file), file };
                let files = files.into_iter().map(pair).collect();
                wasm_bindgen_futures::spawn_local(kept::keep(files));
            }
        });
    }
    {
        // The reader's marks: another page may open the recording at the bare address of the view.
        let route = shared.nav.route.clone();
        let marks = route.query.into_iter().filter(|(name, _)| KEPT.contains(&name.as_str()));
        let marks = Route { query: marks.collect(), ..Route::to(View::Recording) };
        let (sample, shown) = (sample.clone(), shared.nav.route.view() == View::Recording);
        use_effect_with((session.is_some() && shown, marks), move |(open, marks)| {
            if *open && sample.borrow().is_none() {
                wasm_bindgen_futures::spawn_local(kept::keep_address(marks.to_hash()));
            }
        });
    }
    let (read, opened, has_asked) = (read.clone(), opened.clone(), asked.setter());
    use_effect_with((), move |()| {
        let named = shared.nav.route.get(samples::PARAMETER).is_some();
        if !named && !inside {
            wasm_bindgen_futures::spawn_local(async move {
                let kept = kept::kept().await;
                // Something may have been dropped meanwhile.
                if opened.borrow().is_empty() && !kept.is_empty() {
                    let bare = shared.nav.route == Route::to(View::Recording);
                    if let Some(address) = kept::address().await.filter(|_| bare) {
                        shared.nav.replace(Route::parse(&address));
                    }
                    read.emit(kept.into_iter().map(files::put_back).collect());
                }
                has_asked.set(true);
            });
        } else {
            has_asked.set(true);
        }
    });
    *asked
}

/// The progress of the reading.
fn how_far(Reached { done, total, unit, what }: &Reached) -> Html {
    let words = match unit {
        Unit::Bytes => {
            format!("Reading {what}: {} of {}", explain::bytes(*done), explain::bytes(*total))
        }
        Unit::Each if *total == 0 => format!("{done} {what}"),
        Unit::Each => format!("{done} of {total} {what}"),
    };
    html! {
        <>
            <progress value={done.to_string()} max={total.max(done).max(&1).to_string()} />
            <p>{ words }</p>
        </>
    }
}

fn is_recorded(opened: &Opened) -> bool {
    matches!(opened.header.origin, Origin::Recorded { .. })
}

/// The files of a recording with those that have come: one of a name that is there already begins
/// another recording, as do dumps of ranks that have dumps, and a trace is a whole one.
fn together(opened: &mut Vec<File>, come: Vec<File>) -> Vec<File> {
    let names = set(opened.iter().map(identity));
    let dumped = set(opened.iter().filter_map(|file| dumped_rank(&file.name()).map(str::to_owned)));
    let another = |file: &File| {
        let name = file.name();
        let has_dump = dumped_rank(&name).is_some_and(|rank| dumped.contains(rank));
        has_dump || names.contains(&identity(file)) || name.ends_with(".lks")
    };
    if come.iter().any(another) || opened.iter().any(|file| file.name().ends_with(".lks")) {
        opened.clear();
    }
    opened.extend(come);
    opened.clone()
}

/// The rank of a file that is named as PyTorch names dumps: a word, `_`, the rank, and no ending.
fn dumped_rank(name: &str) -> Option<&str> {
    let (word, rank) = name.rsplit_once('_')?;
    let is_rank = !rank.is_empty() && rank.bytes().all(|byte| byte.is_ascii_digit());
    (is_rank && word.ends_with("rank") && !name.contains('.')).then_some(rank)
}

/// The identity of a file, which no two files of a recording share: a dump's name, in whatever
/// folder (another job's folder has the same names), and the path of a source, or of what says no
/// rank (`3/stderr.log`).
fn identity(file: &File) -> String {
    let name = file.name();
    let says_rank = name.bytes().any(|byte| byte.is_ascii_digit());
    if name.ends_with(".py") || !says_rank { path_of(file) } else { name }
}
