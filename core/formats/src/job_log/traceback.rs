//! Python's tracebacks: the exception of a process, and the line of the job's own code that raised it.

use super::going_on::{Lines, is_record};
use super::writer::Writer;
use crate::frames::Libraries;
use std::collections::BTreeMap;

/// Longer texts are cut in findings.
pub(super) const MOST_CHARS: usize = 160;

/// A traceback with so many other lines of its process behind it ended nothing.
const LINES_AFTER_THE_END: u64 = 50;

/// Python's line before a traceback.
const STARTS: &str = "Traceback (most recent call last):";

/// Python's line between two tracebacks of which the second came up while the first was handled.
const IN_HANDLING: &str = "During handling of the above";

/// Python's line between two exceptions if the second was raised `from` the first, which is the real cause.
const CAUSED: &str = "The above exception was the direct cause";

/// Writers whose tracebacks are followed at once.
const MAX_WRITERS: usize = 1 << 14;

/// An exception that a process raised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Raise {
    /// Its type and text.
    pub(super) error: String,
    /// `train.py:88`, the innermost line that is the job's own.
    pub(super) frame: Option<String>,
    /// The text of that line.
    pub(super) source: Option<String>,
    /// The function of torch.distributed that the job was in: `all_reduce`.
    pub(super) call: Option<String>,
    /// The line of the log.
    pub(super) line: u64,
    pub(super) why: Why,
    /// True if a line of a log comes before the traceback, as `logging.exception` writes it.
    pub(super) recorded: bool,
}

/// The reason that something was raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Because of the process's own code.
    Own,
    /// Because another rank did not come, or is gone.
    Others,
    /// It was asked to end; or it is a launcher, and reports on the processes that it launched.
    Told,
}

#[derive(Clone, Debug, Default)]
struct Frame {
    path: String,
    number: u64,
    function: String,
    source: Option<String>,
}

/// The answer to whether a line is the job's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Own {
    No,
    Maybe,
    Yes,
}

#[derive(Debug, Default)]
struct Process {
    /// Spaces before the traceback that is being read, and its innermost frames.
    open: Option<(usize, Vec<Frame>)>,
    last: Option<Raise>,
    /// Lines since.
    since: u64,
    /// The other lines that it writes.
    lines: Lines,
    /// True if the traceback that is being read follows a line of a log.
    recorded: bool,
    /// True if it is of an exception that Python ignores.
    ignored: bool,
    /// The verdict on a traceback after the previous line: that line is a log's, or is ignored.
    before: (bool, bool),
    /// True behind a traceback that nothing has announced another one after.
    over: bool,
    /// True if the next exception was raised while the last was handled, or because of it.
    chained: bool,
    /// True if it was raised because of it.
    caused: bool,
}

/// The tracebacks of a log, process by process.
#[derive(Debug, Default)]
pub(super) struct Tracebacks {
    processes: BTreeMap<Writer, Process>,
}

impl Tracebacks {
    /// Takes a line of a process, without its prefix.
    pub(super) fn take(&mut self, writer: Writer, text: &str, line: u64) {
        let starts = text.contains(STARTS);
        if self.processes.len() >= MAX_WRITERS && !self.processes.contains_key(&writer) {
            return;
        }
        let process = self.processes.entry(writer).or_default();
        if starts {
            let spaces = text.len() - text.trim_start().len();
            process.open = Some((spaces, Vec::new()));
            (process.recorded, process.ignored) = std::mem::take(&mut process.before);
            return;
        }
        match &mut process.open {
            Some((spaces, frames)) => {
                let before = text.len() - text.trim_start().len();
                let text = text.get(before.min(*spaces)..).unwrap_or(text).trim_end();
                if text.is_empty() || text.starts_with(' ') {
                    frame(frames, text);
                } else if let Some(raised) = raised(text) {
                    let frames = std::mem::take(frames);
                    process.ended(raised, frames, line);
                } else {
                    process.open = None;
                }
            }
            None if !text.trim().is_empty() => {
                process.since += 1;
                process.caused |= text.contains(CAUSED);
                process.chained |= process.caused || text.contains(IN_HANDLING);
                process.lines.take(text);
                process.before = (is_record(text), text.starts_with("Exception ignored "));
            }
            None => {}
        }
    }

    /// The last exception of each process that did not go on from it, with the other lines that it wrote.
    pub(super) fn ends(self) -> impl Iterator<Item = (Writer, Raise, Lines)> {
        self.processes.into_iter().filter_map(|(writer, process)| {
            // PyTorch's hook prints what ends a process, and nothing else.
            let ended = matches!(writer, Writer::Rank(_)) || process.since <= LINES_AFTER_THE_END;
            Some((writer, process.last.filter(|_| ended)?, process.lines))
        })
    }

    /// The next traceback of this process is announced.
    pub(super) fn announced(&mut self, writer: Writer) {
        if let Some(process) = self.processes.get_mut(&writer) {
            process.over = false;
        }
    }

    /// True where a line begins another traceback than the one of this process, which has ended.
    pub(super) fn is_over(&self, writer: Writer, text: &str) -> bool {
        let over = |process: &Process| process.open.is_none() && process.over && !process.chained;
        text.contains(STARTS) && self.processes.get(&writer).is_some_and(over)
    }

    /// True while a traceback of this process is being read.
    pub(super) fn is_open(&self, writer: Writer) -> bool {
        self.processes.get(&writer).is_some_and(|process| process.open.is_some())
    }
}

impl Frame {
    /// `train.py:88`
    fn at(&self) -> String {
        let name = self.path.rsplit(['/', '\\']).next().unwrap_or(&self.path);
        format!("{name}:{}", self.number)
    }

    /// True of the file in which torch.distributed's calls are.
    fn is_c10d(&self) -> bool {
        self.path.ends_with("torch/distributed/distributed_c10d.py")
    }
}

impl Process {
    fn ended(&mut self, raised: Raised<'_>, frames: Vec<Frame>, line: u64) {
        (self.open, self.over) = (None, true);
        if self.ignored {
            return;
        }
        self.lines.raised();
        let libraries = Libraries::of(frames.iter().map(|frame| frame.path.as_str()));
        let own = |path: &str| match path {
            // Code given to `python -c`, or that a library wrote.
            "<string>" => Own::Maybe,
            path if libraries.hold(path) => Own::No,
            _ => Own::Yes,
        };
        // Of equals the last, which is the innermost.
        let innermost = frames.iter().enumerate().max_by_key(|(_, frame)| own(&frame.path));
        let behind = innermost.map_or(0, |(at, _)| at + 1);
        let call = frames.iter().skip(behind).find(|frame| frame.is_c10d());
        let call = call.map(|frame| frame.function.clone()).filter(|name| !name.is_empty());
        let innermost = innermost.map(|(_, frame)| frame.clone());
        let (frame, source) = innermost.map_or((None, None), |it| (Some(it.at()), it.source));
        let found = Raise {
            error: raised.error.chars().take(MOST_CHARS).collect(),
            frame,
            source,
            call,
            line,
            why: raised.why,
            recorded: self.recorded,
        };
        // An exception that other ranks caused does not hide one of the process's own.
        let in_handling = std::mem::take(&mut self.chained) && self.since <= 2;
        let caused = std::mem::take(&mut self.caused) && in_handling;
        let keep = self.last.as_ref().is_some_and(|last| last.why == Why::Own);
        if !((caused || found.why != Why::Own && in_handling) && keep) {
            self.last = Some(found);
        }
        self.since = 0;
    }
}

/// A line between a traceback's first and last: `  File "train.py", line 88, in main`, or the code.
fn frame(frames: &mut Vec<Frame>, text: &str) {
    const MOST: usize = 256;
    if let Some((path, rest)) =
        text.trim_start().strip_prefix("File \"").and_then(|rest| rest.split_once("\", line "))
        && let Some(number) = super::line_words::number(rest)
    {
        if frames.len() >= MOST {
            frames.drain(..MOST / 2);
        }
        let function = rest.split_once(", in ").map_or("", |(_, name)| name.trim());
        let function = function.chars().take(MOST_CHARS).collect();
        frames.push(Frame { path: path.to_owned(), number, function, source: None });
    } else if let Some(last) = frames.last_mut()
        && last.source.is_none()
        && text.starts_with("    ")
    {
        let code: String = text.trim().chars().take(MOST_CHARS).collect();
        last.source = Some(code).filter(|code| !code.is_empty());
    }
}

/// The last line of a traceback.
pub(super) struct Raised<'a> {
    /// The exception's type and text.
    pub(super) error: &'a str,
    pub(super) why: Why,
}

/// The exception that a line reports, if it is the last one of a traceback.
pub(super) fn raised(line: &str) -> Option<Raised<'_>> {
    /// Exceptions that a rank raises because of others.
    const OTHERS_FAULT: [&str; 14] = [
        "Connection closed by peer",
        "Connection reset by peer",
        "Broken pipe",
        "ocket has timed out",
        "Socket Timeout",
        "wait timeout after",
        "Gloo connectFullMesh failed",
        "Timed out waiting",
        "Application timeout caused pair closure",
        "NCCL",
        "atchdog",
        "torch.distributed.Dist",
        "successfully reached monitoredBarrier",
        "Detected at least one rank that exhausted inputs",
    ];
    /// Exceptions that end it from outside, or say more elsewhere.
    const TOLD: [&str; 9] = [
        "KeyboardInterrupt",
        "SystemExit",
        "SignalException",
        "GeneratorExit",
        "ChildFailedError",
        "torch.multiprocessing.spawn.ProcessRaisedException",
        "torch.multiprocessing.spawn.ProcessExitedException",
        "DataLoader worker (pid",
        "Expected to have finished reduction",
    ];
    let error = line.trim_end();
    let name = error.split(':').next().unwrap_or_default();
    let begins = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let is_name = begins && name.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '.');
    let why = match () {
        () if TOLD.iter().any(|what| error.contains(what)) => Why::Told,
        () if OTHERS_FAULT.iter().any(|what| error.contains(what)) => Why::Others,
        () if name.starts_with("torch.distributed.") => Why::Told,
        () => Why::Own,
    };
    is_name.then_some(Raised { error, why })
}

/// An exception outside of a traceback, where only a name that ends in `Error` or `Exception` counts.
pub(super) fn raised_alone(line: &str) -> Option<Raised<'_>> {
    raised(line).filter(|raised| {
        let name = raised.error.split(':').next().unwrap_or_default();
        name.ends_with("Error") || name.ends_with("Exception")
    })
}
