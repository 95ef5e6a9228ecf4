//! The output of `py-spy dump --json`: a list of threads, or several such lists one after the other.

use super::py_spy::{rank_in_command, rank_of_variable};
use super::{Cause, MAX_FRAMES, MAX_THREADS, ProcessStacks, StacksError, ThreadStack};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::Frame;
use serde::Deserialize;

/// A larger file is refused: a thread takes some ten kilobytes.
pub(super) const MAX_JSON_BYTES: usize = 64 << 20;

/// The first bytes of a file in which a thread's keys are looked for.
const HEAD: usize = 1 << 16;

#[derive(Deserialize)]
struct Trace {
    pid: i64,
    thread_id: u64,
    thread_name: Option<String>,
    os_thread_id: Option<u64>,
    active: bool,
    owns_gil: bool,
    frames: Vec<TracedFrame>,
    process_info: Option<ProcessInfo>,
}

#[derive(Deserialize)]
struct TracedFrame {
    name: String,
    filename: String,
    line: i64,
    locals: Option<Vec<Local>>,
}

#[derive(Deserialize)]
struct Local {
    name: String,
    repr: Option<String>,
}

#[derive(Deserialize)]
struct ProcessInfo {
    command_line: String,
    parent: Option<Box<Parent>>,
}

#[derive(Deserialize)]
struct Parent {
    pid: i64,
}

/// True if bytes begin like such a list.
pub(super) fn is_one(bytes: &[u8]) -> bool {
    let head = bytes.get(..bytes.len().min(HEAD)).unwrap_or_default();
    let has = |what: &[u8]| head.windows(what.len()).any(|window| window == what);
    bytes.trim_ascii_start().first() == Some(&b'[') && has(b"\"thread_id\"") && has(b"\"frames\"")
}

/// The processes of a file.
pub(super) fn read(file: &str, bytes: &[u8]) -> Result<Vec<ProcessStacks>, StacksError> {
    if bytes.len() > MAX_JSON_BYTES {
        return Err(StacksError::TooLarge { file: file.to_owned(), bytes: bytes.len() });
    }
    let mut lists = serde_json::Deserializer::from_slice(bytes).into_iter::<Vec<Trace>>();
    let mut processes: Vec<ProcessStacks> = Vec::new();
    let (mut line, mut counted, mut threads) = (1, 0, 0);
    loop {
        let start = lists.byte_offset();
        let Some(list) = lists.next() else { return Ok(processes) };
        let list = list.map_err(|error| StacksError::Damaged {
            file: file.to_owned(),
            why: error.to_string(),
        })?;
        // A list begins behind the white space after the last one.
        let until = bytes.get(start..).unwrap_or_default();
        let start = start + (until.len() - until.trim_ascii_start().len());
        let passed = bytes.get(counted..start).unwrap_or_default();
        line += passed.iter().filter(|byte| **byte == b'\n').count() as u64;
        counted = start;
        let first = processes.len();
        for trace in list.into_iter().take(MAX_THREADS - threads) {
            threads += 1;
            let pid = u64::try_from(trace.pid).ok();
            let own = processes.iter().skip(first).position(|process| process.pid == pid);
            let at = own.map_or(processes.len(), |at| first + at);
            if own.is_none() {
                processes.push(process(file, line, pid, trace.process_info.as_ref()));
            }
            if let Some(process) = processes.get_mut(at) {
                let rank = rank_in_locals(&trace.frames).map(GlobalRank);
                process.rank = process.rank.or(rank);
                process.threads.push(thread(trace));
            }
        }
    }
}

fn process(file: &str, line: u64, pid: Option<u64>, info: Option<&ProcessInfo>) -> ProcessStacks {
    let parent = info.and_then(|info| info.parent.as_ref());
    ProcessStacks {
        file_name: file.to_owned(),
        line,
        rank: info.and_then(|info| rank_in_command(&info.command_line)).map(GlobalRank),
        pid,
        parent: parent.and_then(|parent| u64::try_from(parent.pid).ok()),
        cause: Cause::Outside,
        threads: Vec::new(),
    }
}

fn rank_in_locals(frames: &[TracedFrame]) -> Option<u32> {
    let mut locals = frames.iter().flat_map(|frame| frame.locals.iter().flatten());
    locals.find_map(|local| rank_of_variable(&local.name, local.repr.as_deref()?))
}

fn thread(trace: Trace) -> ThreadStack {
    let cut = trace.frames.len() > MAX_FRAMES;
    let frame = |frame: TracedFrame| Frame {
        function: frame.name,
        file: frame.filename,
        line: u32::try_from(frame.line).unwrap_or(0),
    };
    ThreadStack {
        id: Some(trace.os_thread_id.unwrap_or(trace.thread_id)),
        name: trace.thread_name,
        holds_gil: Some(trace.owns_gil),
        idle: Some(!trace.active),
        frames: trace.frames.into_iter().take(MAX_FRAMES).map(frame).collect(),
        lines: Vec::new(),
        cut,
    }
}
