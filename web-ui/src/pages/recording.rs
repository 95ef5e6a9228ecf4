//! Recording: dumps, logs, profiles and traces of ours, dropped on the page and read in the worker.

pub(crate) mod files;
pub(crate) mod samples;
mod save;

use super::workbench::{KEPT, Workbench, sources};
use crate::app::use_shared;
use crate::explain;
use crate::kept::{self, Kept};
use crate::nav::Nav;
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

/// The parameter of an address that opens a recording whose files this browser keeps.
const OWN: &str = "own";

/// A recording as its address names it.
#[derive(Clone, PartialEq)]
enum Source {
    /// One that ships with the page.
    Sample(String),
    /// One that was dropped, by the name under which its files are kept.
    Own(String),
}

impl Source {
    fn of(route: &Route) -> Option<Source> {
        let named = |name: &str| route.get(name).map(str::to_owned);
        named(samples::PARAMETER).map(Source::Sample).or_else(|| named(OWN).map(Source::Own))
    }

    fn write(&self, route: Route) -> Route {
        let route = without_source(route);
        match self {
            Source::Sample(id) => route.with(samples::PARAMETER, id),
            Source::Own(name) => route.with(OWN, name),
        }
    }
}

/// The address without the name of its recording.
fn without_source(route: Route) -> Route {
    route.without(samples::PARAMETER).without(OWN)
}

/// Recordings, dropped on the page.
#[component(Recording)]
pub(crate) fn recording() -> Html {
    let reading = use_reading();
    let read = {
        let reading = reading.clone();
        Callback::from(move |files| reading.add(files))
    };
    let is_missing = use_source(&reading) | use_kept(&reading);
    {
        let reading = reading.clone();
        let handed = use_shared().handed;
        use_effect_with(handed, move |handed| {
            let files = handed.take(&Route::to(View::Recording));
            if !files.is_empty() {
                // What is dropped elsewhere is another job. Where none was open, the marks in the address are its own.
                if !reading.opened.borrow().is_empty() {
                    reading.set_aside();
                }
                reading.add(files);
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
                Stage::Empty if is_missing => missing_files(&nav.route),
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
    let marked = route.get(OWN).is_some() || KEPT.iter().any(|name| route.get(name).is_some());
    if route.view() != View::Recording || !marked {
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
                <b>{ "They are read in this tab and go nowhere; until you close them, this browser keeps them for a reload and for Back." }</b>
            </p>
            <div class="row">{ pickers(read) }</div>
            <p class="muted">{ "Nothing at hand? These are real:" }
                { for samples::samples().map(|sample| html! { <>{ " " }<a href={sample.route().to_hash()}>{ sample.title }</a>{ "." }</> }) }</p>
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
            "Files of other names are added to them; one of the same name, or another dump of a rank, opens another recording, and Back leads to this one."
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
    nav: Nav,
    stage: UseStateHandle<Stage>,
    /// The open recording's name in the address.
    source: Rc<RefCell<Option<Source>>>,
    /// True if the open file is no recording but a trace or plan: nothing is added to it.
    is_whole: bool,
    opened: Rc<RefCell<Vec<File>>>,
    /// The job's programs among the dropped files: they are shown, and no part of the recording.
    programs: Rc<RefCell<Vec<File>>>,
    texts: UseStateHandle<Texts>,
    asked: Rc<RefCell<Option<Asked>>>,
    turns: Turns,
}

#[hook]
fn use_reading() -> Reading {
    let shared = use_shared();
    let stage = use_state(|| Stage::Empty);
    let is_whole = matches!(&*stage, Stage::Open(opened, _) if !is_recorded(opened));
    Reading {
        client: shared.client,
        nav: shared.nav,
        is_whole,
        source: use_mut_ref(|| None),
        opened: use_mut_ref(Vec::new),
        programs: use_mut_ref(Vec::new),
        texts: use_state(Texts::default),
        asked: use_mut_ref(|| None),
        turns: use_turns(),
        stage,
    }
}

impl Reading {
    /// Reads files that were dropped or chosen, together with those that are open. Files that are dropped while others
    /// are read come to them, too.
    fn add(&self, files: Vec<File>) {
        let (sources, files): (Vec<File>, Vec<File>) =
            files.into_iter().partition(sources::is_source);
        let is_sample = matches!(&*self.source.borrow(), Some(Source::Sample(_)));
        let have_come = !files.is_empty();
        if have_come {
            let count = files.len();
            let had_files = !self.opened.borrow().is_empty();
            if self.is_whole || is_sample {
                self.opened.borrow_mut().clear();
            }
            let together = together(&mut self.opened.borrow_mut(), files).len();
            if together == count {
                self.begin(had_files);
            }
        }
        self.keep_programs(sources);
        if have_come {
            self.read();
        }
    }

    /// Gives the files that have just been opened a name of their own. Back leads to those before, with the reader's
    /// marks on them.
    fn begin(&self, had_files: bool) {
        let source = Source::Own(kept::new_name());
        let nav = &self.nav;
        let now = nav.now();
        if now.view() == View::Recording && !nav.is_stale() && !nav.is_inside() {
            match had_files {
                true => nav.push(source.write(Route::to(View::Recording))),
                // The marks in the address are meant for these files.
                false => nav.replace(source.write(now)),
            }
        }
        if had_files {
            self.programs.borrow_mut().clear();
            self.texts.set(Texts::default());
        }
        *self.source.borrow_mut() = Some(source);
    }

    /// Shows the job's programs beside it.
    fn keep_programs(&self, programs: Vec<File>) {
        if programs.is_empty() {
            return;
        }
        self.programs.borrow_mut().extend(programs.iter().cloned());
        let texts = self.texts.clone();
        wasm_bindgen_futures::spawn_local(async move {
            texts.set(sources::with((*texts).clone(), programs).await);
        });
    }

    /// Opens the recording that the address names; the marks in the address are its own.
    async fn open(self, source: Source, missing: UseStateSetter<bool>) {
        let turn = self.turns.next();
        let found = match &source {
            Source::Sample(id) => match Sample::named(id) {
                Some(sample) => sample.fetch().await.map(|file| vec![file]),
                None => Err(format!("This page has no sample {id:?}.")),
            },
            Source::Own(name) => {
                Ok(kept::kept(name).await.into_iter().map(files::put_back).collect())
            }
        };
        if !turn.counts() {
            return;
        }
        match found {
            Ok(files) if files.is_empty() => {
                self.stage.set(Stage::Empty);
                missing.set(true);
            }
            Ok(files) => {
                let (programs, files) = files.into_iter().partition(sources::is_source);
                *self.opened.borrow_mut() = files;
                self.keep_programs(programs);
                self.read();
            }
            Err(why) => self.stage.set(Stage::Failed { why }),
        }
    }

    /// Reads all files that are open.
    fn read(&self) {
        let files = self.opened.borrow().clone();
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

    /// Begins anew: the next files belong to none of those so far.
    fn set_aside(&self) {
        self.opened.borrow_mut().clear();
        self.programs.borrow_mut().clear();
        self.texts.set(Texts::default());
        *self.source.borrow_mut() = None;
    }

    fn close(&self) {
        let closed = self.source.borrow_mut().take();
        self.set_aside();
        self.stage.set(Stage::Empty);
        self.nav.replace(Route::to(View::Recording));
        if let Some(Source::Own(name)) = closed {
            wasm_bindgen_futures::spawn_local(async move { kept::forget(&name).await });
        }
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

/// Opens the recording that the address names, and keeps its name in the address while it is open.
#[hook]
fn use_source(reading: &Reading) -> bool {
    let (reading, nav) = (reading.clone(), reading.nav.clone());
    let missing = use_state(|| false);
    let setter = missing.setter();
    let shown = nav.route.view() == View::Recording;
    let asked = Source::of(&nav.route).filter(|_| shown);
    let open = matches!(&*reading.stage, Stage::Open(..) | Stage::Reading(_));
    let inside = nav.is_inside();
    // Whatever else is written into the address: the name of what is open stays in it.
    let route = nav.route.clone();
    use_effect_with((asked, shown, open, route), move |(asked, shown, open, _)| match asked {
        Some(source) if reading.source.borrow().as_ref() != Some(source) => {
            reading.set_aside();
            *reading.source.borrow_mut() = Some(source.clone());
            // Nothing of the recording before may write its marks into this address.
            reading.stage.set(Stage::Reading(Reached {
                done: 0,
                total: 0,
                unit: Unit::Bytes,
                what: "the recording".to_owned(),
            }));
            wasm_bindgen_futures::spawn_local(reading.open(source.clone(), setter));
        }
        None if *shown && *open && !inside => {
            let now = nav.now();
            let lacks = now.path == nav.route.path && Source::of(&now).is_none();
            if let Some(source) =
                reading.source.borrow().as_ref().filter(|_| lacks && !nav.is_stale())
            {
                nav.replace(source.write(now));
            }
        }
        _ => {}
    });
    *missing
}

/// Keeps the files of what is open in the browser, and opens those that were opened last when the page is loaded at the
/// bare address. Samples are not kept: their address opens them. True once the browser was asked for kept files.
#[hook]
fn use_kept(reading: &Reading) -> bool {
    let asked = use_state(|| false);
    let nav = &reading.nav;
    // A lesson brings files of its own.
    let inside = nav.is_inside();
    let session = match &*reading.stage {
        Stage::Open(opened, _) if !inside => Some(opened.session),
        _ => None,
    };
    let own = match &*reading.source.borrow() {
        Some(Source::Own(name)) if session.is_some() => Some(name.clone()),
        _ => None,
    };
    {
        let (opened, programs) = (reading.opened.clone(), reading.programs.clone());
        use_effect_with((session, own.clone()), move |(_, own)| {
            if let Some(name) = own.clone() {
                let files = [opened.borrow().clone(), programs.borrow().clone()].concat();
                let pair = |file: File| Kept { path: path_of(&file), file };
                let files = files.into_iter().map(pair).collect();
                wasm_bindgen_futures::spawn_local(kept::keep(name, files));
            }
        });
    }
    {
        // The reader's marks: another page may open the recording at the bare address of the view.
        let route = nav.route.clone();
        let own = own.filter(|own| route.get(OWN) == Some(own.as_str()));
        let bare = Route::to(View::Recording);
        let marks = KEPT.iter().chain([&OWN]).fold(bare, |marks, name| match route.get(name) {
            Some(value) => marks.with(name, value),
            None => marks,
        });
        use_effect_with((own, marks), move |(own, marks)| {
            if let Some(name) = own.clone() {
                let hash = marks.to_hash();
                wasm_bindgen_futures::spawn_local(async move {
                    kept::keep_address(&name, hash).await;
                });
            }
        });
    }
    let (reading, has_asked) = (reading.clone(), asked.setter());
    use_effect_with((), move |()| {
        let bare = reading.nav.route == Route::to(View::Recording);
        wasm_bindgen_futures::spawn_local(async move {
            // Something may have been dropped meanwhile.
            if bare
                && !inside
                && let Some(name) = kept::newest().await
                && reading.source.borrow().is_none()
            {
                let address = kept::address(&name).await;
                let address = address.map(|address| Route::parse(&address));
                let address = address.unwrap_or_else(|| Route::to(View::Recording));
                reading.nav.replace(Source::Own(name).write(address));
            }
            has_asked.set(true);
        });
    });
    *asked
}

/// The progress of the reading.
fn how_far(Reached { done, total, unit, what }: &Reached) -> Html {
    let words = match unit {
        Unit::Bytes if *total == 0 => format!("Reading {what}"),
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
