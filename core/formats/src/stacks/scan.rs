//! Stacks among the lines of a text: each writer's lines are followed on their own, since ranks write into
//! one log at once.

use super::faulthandler as fault;
use super::{Cause, MAX_FRAMES, MAX_LINE_BYTES, MAX_THREADS, ProcessStacks, ThreadStack, py_spy};
use crate::job_log::writer::{Labels, Line, Writer, is_numbered};
use lockstep_core::rank::{GlobalRank, MAX_WORLD_SIZE};
use std::collections::BTreeMap;

/// Writers that are followed at once.
const MAX_WRITERS: usize = 1 << 14;

/// Frames of one file past this many are left out.
const MAX_FILE_FRAMES: usize = 1 << 21;

/// The most other lines between the reason of stacks and the stacks.
const LINES_TO_STACKS: usize = 4;

/// The processes whose stacks stand in a text.
pub(super) fn read(file_name: &str, bytes: &[u8]) -> Vec<ProcessStacks> {
    // Most texts have none.
    if !bytes
        .windows(7)
        .any(|window| window == b"Thread " || window == b"thread " || window == b"Stack (")
    {
        return Vec::new();
    }
    let mut scan = Scan { file_name, ..Scan::default() };
    let numbered = is_numbered(bytes);
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let line = line.get(..line.len().min(MAX_LINE_BYTES)).unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        scan.line(number, &Line::of(&String::from_utf8_lossy(line), numbered));
    }
    scan.end()
}

#[derive(Default)]
struct Scan<'a> {
    file_name: &'a str,
    labels: Labels,
    writers: BTreeMap<Writer, WriterState>,
    /// The rank in a heading, `=== Rank 3: http://node-1:25999 ===`, until other text follows.
    heading: Option<u32>,
    found: Vec<(Writer, ProcessStacks)>,
    threads: usize,
    frames: usize,
}

/// The state of one writer.
#[derive(Default)]
struct WriterState {
    /// The process that py-spy announced, and its parent.
    process: Option<py_spy::Process>,
    parent: Option<u64>,
    /// The reason that faulthandler writes, and the number of other lines behind that.
    cause: Option<(Cause, usize)>,
    /// The process whose threads are being read: its index among the found ones.
    open: Option<usize>,
    /// The form of the thread that is being read, and where in a line it begins.
    thread: Option<(Form, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    PySpy,
    Faulthandler,
}

impl Scan<'_> {
    fn line(&mut self, number: u64, line: &Line<'_>) {
        self.labels.take(line);
        let (writer, text) = (line.writer(), line.text);
        if self.writers.len() >= MAX_WRITERS && !self.writers.contains_key(&writer) {
            return;
        }
        let mut writing = self.writers.remove(&writer).unwrap_or_default();
        if !self.frame(number, &writing, text) {
            self.other(number, writer, &mut writing, text);
        }
        self.writers.insert(writer, writing);
    }

    /// Takes a line of the thread that is being read; false if it is none.
    fn frame(&mut self, number: u64, writing: &WriterState, text: &str) -> bool {
        let (Some((form, at)), Some(open)) = (writing.thread, writing.open) else { return false };
        let Some((_, process)) = self.found.get_mut(open) else { return false };
        let Some(text) = text.get(at..) else { return false };
        let (mut frame, mut cut) = (None, false);
        match form {
            Form::PySpy => match py_spy::below(text) {
                Some(py_spy::StackLine::Frame(read)) => frame = Some(read),
                Some(py_spy::StackLine::Rank(rank)) => {
                    process.rank = process.rank.or(Some(GlobalRank(rank)));
                }
                Some(py_spy::StackLine::Remark) => {}
                None => return false,
            },
            Form::Faulthandler => match fault::below(text) {
                Some(fault::StackLine::Frame(read)) => frame = Some(read),
                Some(fault::StackLine::Cut) => cut = true,
                Some(fault::StackLine::Remark) => {}
                None => return false,
            },
        }
        if let Some(thread) = process.threads.last_mut() {
            thread.cut |= cut;
            if let Some(frame) = frame {
                self.frames += 1;
                match thread.frames.len() < MAX_FRAMES && self.frames <= MAX_FILE_FRAMES {
                    true => {
                        thread.frames.push(frame);
                        thread.lines.push(number);
                    }
                    false => thread.cut = true,
                }
            }
        }
        true
    }

    /// Takes a line that is no frame.
    fn other(&mut self, number: u64, writer: Writer, writing: &mut WriterState, text: &str) {
        writing.thread = None;
        if text.trim().is_empty() {
            return;
        }
        if let Some(thread) = fault::thread(text) {
            let stack = ThreadStack { id: thread.id, name: thread.name, ..ThreadStack::default() };
            self.begin(number, writer, writing, (Form::Faulthandler, thread.at), stack);
        } else if let Some(thread) = py_spy::thread(text) {
            let stack = ThreadStack {
                id: Some(thread.id),
                name: thread.name,
                holds_gil: Some(thread.holds_gil),
                idle: Some(thread.idle),
                ..ThreadStack::default()
            };
            self.begin(number, writer, writing, (Form::PySpy, thread.at), stack);
        } else if let Some(process) = py_spy::process(text) {
            writing.open = None;
            match process.is_parent {
                true => writing.parent = Some(process.pid),
                false => (writing.process, writing.parent) = (Some(process), None),
            }
        } else if let Some(cause) = fault::cause(text) {
            (writing.open, writing.cause) = (None, Some((cause, 0)));
        } else if let Some(rank) = rank_of_heading(text) {
            (writing.open, self.heading) = (None, Some(rank));
        } else {
            writing.other_text(text);
            // py-spy names Python's version below the process, and draws a line between processes.
            if !text.starts_with("Python v") && !text.starts_with("-----") {
                self.heading = None;
            }
        }
    }

    /// Begins a thread.
    fn begin(
        &mut self,
        number: u64,
        writer: Writer,
        writing: &mut WriterState,
        form: (Form, usize),
        thread: ThreadStack,
    ) {
        self.threads += 1;
        if self.threads > MAX_THREADS {
            writing.open = None;
            return;
        }
        let open = writing.open.and_then(|open| self.found.get(open));
        if open.is_none_or(|(_, process)| is_complete(process, &thread)) {
            writing.open = Some(self.found.len());
            let cause = writing.cause.take().map_or(Cause::Asked, |(cause, _)| cause);
            let of_pyspy = form.0 == Form::PySpy;
            let announced = writing.process.take().filter(|_| of_pyspy);
            let rank = self.heading.or(announced.and_then(|process| process.rank));
            let process = ProcessStacks {
                file_name: self.file_name.to_owned(),
                line: number,
                rank: rank.map(GlobalRank),
                pid: announced.map(|process| process.pid),
                parent: writing.parent.take().filter(|_| of_pyspy),
                cause: if of_pyspy { Cause::Outside } else { cause },
                threads: Vec::new(),
            };
            self.found.push((writer, process));
        }
        if let Some((_, process)) = writing.open.and_then(|open| self.found.get_mut(open)) {
            process.threads.push(thread);
            writing.thread = Some(form);
        }
    }

    fn end(self) -> Vec<ProcessStacks> {
        let Scan { labels, found, .. } = self;
        let rank = |writer: Writer| match writer {
            Writer::Rank(rank) => Some(rank),
            Writer::Labelled(label) => labels.rank_of(label),
            Writer::Nobody | Writer::Carried(_) => None,
        };
        let found = found.into_iter().map(|(writer, process)| {
            let said = rank(writer).and_then(|rank| u32::try_from(rank).ok());
            let said = said.filter(|rank| *rank < MAX_WORLD_SIZE).map(GlobalRank);
            ProcessStacks { rank: said.or(process.rank), ..process }
        });
        found.filter(|process| process.threads.iter().any(|it| !it.frames.is_empty())).collect()
    }
}

impl WriterState {
    fn other_text(&mut self, text: &str) {
        if let Some((_, lines)) = &mut self.cause {
            *lines += 1;
            if *lines > LINES_TO_STACKS {
                self.cause = None;
            }
        }
        // Between a process and its threads py-spy writes its version of Python.
        if !text.starts_with("Python v") {
            (self.process, self.open) = (None, None);
        }
    }
}

/// True if a thread begins the next process, or the next moment of this one: faulthandler writes no line
/// between them. The main thread, which it started first, it writes last.
fn is_complete(process: &ProcessStacks, next: &ThreadStack) -> bool {
    let repeated = process.threads.iter().any(|thread| thread.id == next.id);
    let is_main = |thread: &ThreadStack| {
        thread.frames.last().is_some_and(|outermost| outermost.function == "<module>")
    };
    repeated || (process.cause != Cause::Outside && process.threads.last().is_some_and(is_main))
}

/// The rank in a heading: `=== Rank 3: http://node-1:25999 ===`, `# rank 3`, `rank 3:`.
fn rank_of_heading(text: &str) -> Option<u32> {
    let words = text.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    let is_marked = text.starts_with(['=', '#', '-', '*', '>']);
    let (word, rest) = words.split_at_checked(4)?;
    if !word.eq_ignore_ascii_case("rank") {
        return None;
    }
    let rest = rest.trim_start_matches([' ', '_', ':', '=', '#', '-']);
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (number, behind) = rest.split_at_checked(digits)?;
    let ends = match is_marked {
        true => !behind.starts_with(|c: char| c.is_alphanumeric()),
        false => !behind.contains(|c: char| c.is_alphanumeric()),
    };
    number.parse().ok().filter(|rank| ends && *rank < MAX_WORLD_SIZE)
}
