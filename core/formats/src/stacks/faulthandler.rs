//! The lines of Python's faulthandler.

use super::{Cause, MAX_NAME_CHARS};
use lockstep_core::trace::Frame;

/// The end, or nearly, of a line that begins a thread.
const FIRST: &str = " (most recent call first):";

/// A line that begins a thread's stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Thread {
    /// The position in the line at which it begins.
    pub(super) at: usize,
    pub(super) id: Option<u64>,
    pub(super) name: Option<String>,
}

/// `Thread 0x00007f3e528266c0 [heartbeat] (most recent call first):`, `Current thread 0x…`, and `Stack (most
/// recent call first):` if threads are not distinguished.
pub(super) fn thread(text: &str) -> Option<Thread> {
    let before = text.get(..text.find(FIRST)?)?;
    if let Some(at) = before.rfind("Stack").filter(|at| before.get(at + 5..) == Some("")) {
        return Some(Thread { at, id: None, name: None });
    }
    let (at, rest) = ["Current thread 0x", "Thread 0x"].iter().find_map(|start| {
        let at = before.rfind(start)?;
        Some((at, before.get(at + start.len()..)?))
    })?;
    let digits = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
    let (id, name) = (rest.get(..digits)?, rest.get(digits..)?.trim());
    let id = u64::from_str_radix(id, 16).ok()?;
    let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    let name = name.map(|name| name.chars().take(MAX_NAME_CHARS).collect());
    Some(Thread { at, id: Some(id), name })
}

/// The reason that stacks follow: `Fatal Python error: Segmentation fault`, `Timeout (0:00:30)!`.
pub(super) fn cause(text: &str) -> Option<Cause> {
    let shortened = |text: &str| text.trim().chars().take(MAX_NAME_CHARS).collect();
    if let Some((_, error)) = text.split_once("Fatal Python error: ") {
        return Some(Cause::Fatal(shortened(error)));
    }
    let (_, rest) = text.split_once("Timeout (")?;
    let (time, _) = rest.split_once(")!")?;
    let is_time = time.chars().all(|c| c.is_ascii_digit() || matches!(c, ':' | '.'));
    is_time.then(|| Cause::Timeout(shortened(time)))
}

/// A line below a thread's first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StackLine {
    Frame(Frame),
    /// Outer frames are left out.
    Cut,
    /// Nothing of use, and the stack may go on.
    Remark,
}

/// `  File "/job/train.py", line 10 in load_batch`, without the comma of tracebacks.
pub(super) fn below(text: &str) -> Option<StackLine> {
    let text = text.strip_prefix("  ")?.trim_end();
    let Some(rest) = text.strip_prefix("File ") else {
        return match text {
            "..." | "<truncated rest of calls>" => Some(StackLine::Cut),
            _ => {
                (text.starts_with('<') || text == "Garbage-collecting").then_some(StackLine::Remark)
            }
        };
    };
    let (file, rest) = rest.rsplit_once(", line ")?;
    let (line, function) = rest.split_once(" in ")?;
    let shortened = |text: &str| text.chars().take(MAX_NAME_CHARS).collect();
    Some(StackLine::Frame(Frame {
        function: shortened(function.trim_matches('"')),
        file: shortened(file.trim_matches('"')),
        // Python writes `???` where it does not know.
        line: line.parse().unwrap_or(0),
    }))
}
