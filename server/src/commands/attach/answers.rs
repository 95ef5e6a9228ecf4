//! The answers of a job's ranks: their Flight Recorders and their threads, as files that every reader of recordings
//! knows.

use crate::http::{AskError, Place};
use futures_util::stream::{self, StreamExt};
use hyper::Method;
use lockstep_core::rank::GlobalRank;
use lockstep_formats::flight_recorder::Dump;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The most ranks that are asked at once.
const AT_ONCE: usize = 16;

/// The backends whose recorders are asked for: those that PyTorch has in every build.
const BACKENDS: [&str; 2] = ["gloo", "nccl"];

/// NCCL's recorder as the dump that its watchdog writes, with the stack of every call.
const NCCL_DUMP: &str = "dump_nccl_trace_pickle";
const NCCL_DUMP_REQUEST: &str =
    "dump_nccl_trace_pickle?includecollectives=true&includestacktraces=true&onlyactive=false";

/// A rank's state at one moment.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// The files that were written.
    pub(super) files: Vec<String>,
    /// True if the rank's process listens no longer.
    pub(super) is_gone: bool,
    /// True if it took the connection and answered nothing.
    pub(super) is_silent: bool,
    /// True if its process is stopped by a signal or a debugger.
    pub(super) is_stopped: bool,
    /// The frames of its main thread, if somebody said.
    pub(super) main_thread: Option<String>,
    /// The answers that did not come, a sentence each.
    pub(super) problems: Vec<String>,
}

impl Answer {
    fn failed(&mut self, error: &AskError) {
        self.is_gone |= matches!(error, AskError::Refused(_));
        self.is_silent |= matches!(error, AskError::Silent { .. });
        self.problems.push(error.to_string());
    }

    /// Writes a file as soon as it has come: those of all ranks need not be in memory at once.
    pub(super) fn keep(&mut self, folder: &Path, name: String, bytes: &[u8]) {
        match std::fs::write(folder.join(&name), bytes) {
            Ok(()) => self.files.push(name),
            Err(error) => self.problems.push(format!("{name} cannot be written: {error}")),
        }
    }
}

/// The rules by which ranks are asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// Backends of the user's own, beside gloo and NCCL.
    pub(super) more_backends: &'a [String],
    /// The longest time for one answer.
    pub(super) within: Duration,
    /// The folder into which the answers are written.
    pub(super) folder: &'a Path,
}

/// The answers of ranks, asked side by side.
pub(super) async fn of_ranks(
    workers: &BTreeMap<GlobalRank, Place>,
    asked: Asked<'_>,
) -> BTreeMap<GlobalRank, Answer> {
    let ask = |(rank, place): (&GlobalRank, &Place)| {
        let (rank, place) = (*rank, place.clone());
        async move { (rank, of_worker(&place, &rank.to_string(), asked).await) }
    };
    let questions: Vec<_> = workers.iter().map(ask).collect();
    stream::iter(questions).buffer_unordered(AT_ONCE).collect().await
}

/// The answer of one worker's debug server, in files named after `name`: the rank, where it is known.
pub(super) async fn of_worker(place: &Place, name: &str, asked: Asked<'_>) -> Answer {
    let Asked { more_backends, within, folder } = asked;
    let mut answer = Answer::default();
    let handlers = match place.ask(Method::GET, "/handler/", within).await {
        Ok(body) => serde_json::from_slice::<Vec<String>>(&body).unwrap_or_default(),
        Err(error) => {
            answer.failed(&error);
            return answer;
        }
    };
    let has = |name: &str| handlers.iter().any(|handler| handler == name);
    let mut dumps: Vec<(String, String)> = Vec::new();
    let by_pickle = has(NCCL_DUMP);
    if by_pickle {
        dumps.push((NCCL_DUMP_REQUEST.to_owned(), format!("nccl_trace_rank_{name}")));
    }
    let backends = BACKENDS.iter().copied().filter(|backend| !(by_pickle && *backend == "nccl"));
    for backend in backends.chain(more_backends.iter().map(String::as_str)) {
        if has("fr_trace_json") {
            let request = format!("fr_trace_json?backend={backend}");
            dumps.push((request, format!("{backend}_trace_rank_{name}.json")));
        }
    }
    for (request, file) in dumps {
        match place.ask(Method::POST, &format!("/handler/{request}"), within).await {
            Ok(body) if has_calls(&file, &body) => answer.keep(folder, file, &body),
            Ok(_) => {}
            Err(error) => answer.failed(&error),
        }
    }
    // Python's own threads need the interpreter; py-spy does not, where it is installed.
    let stacks = ["dump_traceback", "pyspy_dump?nonblocking=1"];
    for request in stacks.into_iter().filter(|it| has(it.split('?').next().unwrap_or(it))) {
        match place.ask(Method::POST, &format!("/handler/{request}"), within).await {
            Ok(body) => {
                let mut text = format!("=== Rank {name}: http://{place} ===\n").into_bytes();
                text.extend(body);
                answer.keep(folder, format!("stacks_rank_{name}.txt"), &text);
                break;
            }
            Err(error) => answer.failed(&error),
        }
    }
    // A rank that answers anything is there.
    answer.is_silent &= answer.files.is_empty();
    answer
}

/// The pages of the job's own server on rank 0, which asks all ranks itself; and the problems.
pub(super) async fn of_pages(place: &Place, asked: Asked<'_>) -> Answer {
    let Asked { more_backends, within, folder } = asked;
    let mut answer = Answer::default();
    let backends = BACKENDS.iter().copied().chain(more_backends.iter().map(String::as_str));
    let dumps = backends.map(|backend| {
        (format!("/fr_trace_json?backend={backend}"), format!("fr_trace_{backend}.html"))
    });
    let pages = dumps.chain([("/stacks".to_owned(), "stacks.html".to_owned())]);
    for (page, file) in pages.collect::<Vec<_>>() {
        match place.ask(Method::GET, &page, within).await {
            Ok(body) if file.starts_with("stacks") || contains(&body, b"entries") => {
                answer.keep(folder, file, &body);
            }
            Ok(_) => {}
            Err(error) => answer.failed(&error),
        }
    }
    answer
}

/// True of a dump with calls: a recorder of a backend that the job does not use is empty. One that cannot be read is
/// kept, for its reader to say why.
fn has_calls(file: &str, dump: &[u8]) -> bool {
    Dump::read(file, dump).map_or(true, |dump| !dump.entries.is_empty())
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
