//! Tells if a process went on after a traceback that it printed: `logging.exception` prints one and ends
//! nothing.
//!
//! The lines after an exception may be the rest of its text, messages of PyTorch, NCCL and Python while a
//! process ends, or the output of an exit handler. Only lines of a form that the process wrote before, such
//! as its steps, and several of them, count as evidence that it goes on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use xxhash_rust::xxh3::xxh3_64;

/// The number of lines before a traceback whose forms are known.
const KNOWN: usize = 128;

/// The most lines after a traceback that are looked at.
const MOST_BEHIND: usize = 1 << 10;

/// The number of lines of known forms after a traceback that show that its process goes on: an exit handler
/// writes one or two.
const ENOUGH: usize = 3;

/// A text of an exception is not longer, in lines.
const MOST_OF_A_TEXT: usize = 50;

/// Bytes of a line that are its form.
const FORM: usize = 40;

/// A line: its form, and all of it.
type Seen = (u64, u64);

/// The lines that a process writes besides tracebacks.
#[derive(Debug, Default)]
pub(super) struct Lines {
    before: VecDeque<Seen>,
    /// Lines since the last exception that may be of its text.
    of_text: Option<usize>,
    /// The lines before the last exception, and the lines of the same forms behind it.
    known: Vec<Seen>,
    behind: Vec<Seen>,
}

impl Lines {
    /// Takes a line that is not of a traceback.
    pub(super) fn take(&mut self, text: &str) {
        let text = text.trim_end();
        if text.is_empty() || is_anothers(text) {
            return;
        }
        let seen = (form(text), xxh3_64(text.as_bytes()));
        if self.behind.len() < MOST_BEHIND && self.known.iter().any(|known| known.0 == seen.0) {
            self.of_text = None;
            self.behind.push(seen);
        }
        // The text of an exception may come again with the next one.
        match &mut self.of_text {
            Some(lines) if *lines < MOST_OF_A_TEXT => {
                *lines += 1;
                return;
            }
            _ => self.of_text = None,
        }
        if self.before.len() >= KNOWN {
            self.before.pop_front();
        }
        self.before.push_back(seen);
    }

    /// A traceback ended.
    pub(super) fn raised(&mut self) {
        self.known = self.before.iter().copied().collect();
        self.behind.clear();
        self.of_text = Some(0);
    }

    /// True if the process went on, if all that was taken is one process's.
    pub(super) fn went_on(&self) -> bool {
        self.behind.len() >= ENOUGH
    }

    /// True if all of several processes, no fewer than `ranks`, went on: lines that all of them wrote in the
    /// same words before were written again after it. A process that ended would be missing.
    pub(super) fn all_went_on(&self, ranks: usize) -> bool {
        let all = counted(&self.known).into_values().max().unwrap_or(0);
        let mut steps: BTreeMap<u64, usize> = BTreeMap::new();
        for ((form, _), times) in counted(&self.behind) {
            *steps.entry(form).or_default() += usize::from(times >= all);
        }
        all >= ranks.max(2) && steps.into_values().any(|steps| steps >= ENOUGH)
    }
}

/// The number of times each line occurs.
fn counted(lines: &[Seen]) -> BTreeMap<Seen, usize> {
    let mut counted = BTreeMap::new();
    lines.iter().for_each(|line| *counted.entry(*line).or_default() += 1);
    counted
}

/// True for a line that is written on behalf of a process, or by a process that is ending: PyTorch's, NCCL's,
/// C++'s and Python's own messages, a launcher's, and the output of services as a run ends.
fn is_anothers(text: &str) -> bool {
    const STARTS: [&str; 11] = [
        "terminate called",
        "what():",
        "frame #",
        "Exception ",
        "Fatal ",
        "Signal ",
        "*** ",
        "Current thread ",
        "Thread ",
        "wandb:",
        "During handling of ",
    ];
    const HOLDS: [&str; 8] = [
        "Warning:",
        "warnings.warn",
        "resource_tracker",
        "NCCL ",
        "ProcessGroup",
        "torch/distributed/",
        "slurmstepd",
        "srun: ",
    ];
    let text = text.trim_start();
    let bytes = text.strip_prefix('[').unwrap_or(text).as_bytes();
    // `[W1123 10:00:00.1 a.cpp:3]`, `[E ProcessGroupNCCL.cpp:1]`, `W1123 10:00:00.1 3 torch/…`.
    let by_level = match bytes {
        [b'E' | b'W' | b'I' | b'F', next, ..] => {
            next.is_ascii_digit() || (*next == b' ' && text.starts_with('['))
        }
        _ => false,
    };
    by_level
        || STARTS.iter().any(|what| text.starts_with(what))
        || HOLDS.iter().any(|what| text.contains(what))
}

/// The form that lines of a loop have in common: all but their numbers.
fn form(text: &str) -> u64 {
    let number = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+');
    let mut last = false;
    let form = text.bytes().take(FORM).filter_map(|byte| {
        let was = std::mem::replace(&mut last, number(&byte));
        match last {
            true => (!was).then_some(b'0'),
            false => Some(byte),
        }
    });
    xxh3_64(&form.collect::<Vec<u8>>())
}

/// True of a line that logging wrote before the traceback that it was given.
pub(super) fn is_record(text: &str) -> bool {
    const LEVELS: [&str; 5] = ["ERROR", "WARNING", "WARN", "CRITICAL", "EXCEPTION"];
    let mut words = text.split(|c: char| !c.is_ascii_alphanumeric());
    !is_anothers(text) && words.any(|word| LEVELS.contains(&word))
}

/// True if a log's last line says that the process is done, after others of other forms.
pub(super) fn ends_well(text: &[u8]) -> bool {
    const ENDS: [&str; 7] =
        ["done", "finished", "complete", "completed", "success", "bye", "exiting"];
    let mut lines = text.rsplit(|byte| matches!(byte, b'\n' | b'\r'));
    let mut lines = lines.by_ref().map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let start = |line: &[u8]| {
        String::from_utf8_lossy(line.get(..line.len().min(256)).unwrap_or(line)).into_owned()
    };
    let Some(last) = lines.next().map(start) else { return false };
    let lower = last.to_ascii_lowercase();
    if !lower.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| ENDS.contains(&word)) {
        return false;
    }
    let last = form(&last);
    let forms: Vec<u64> = lines.map(|line| form(&start(line))).collect();
    // A loop was run through before.
    let loops = forms.len() > forms.iter().collect::<BTreeSet<_>>().len() + 1;
    loops && !forms.contains(&last)
}
