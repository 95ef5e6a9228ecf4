//! The lines of `py-spy dump`.

use super::MAX_NAME_CHARS;
use lockstep_core::rank::MAX_WORLD_SIZE;
use lockstep_core::trace::Frame;

/// Options that give scripts their rank.
const RANK_OPTIONS: [&str; 3] = ["--rank", "--global-rank", "--global_rank"];

/// Local variables that hold a process's rank.
const RANK_VARIABLES: [&str; 3] = ["rank", "global_rank", "RANK"];

/// A line that begins a process, or names the parent of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u64,
    pub(super) is_parent: bool,
    /// The rank in the command line.
    pub(super) rank: Option<u32>,
}

/// `Process 2311: python train.py --rank 3`, `Parent Process 2310: …`.
pub(super) fn process(text: &str) -> Option<Process> {
    let at = text.find("Process ")?;
    let (before, rest) = (text.get(..at)?, text.get(at + "Process ".len()..)?);
    let (pid, command) = rest.split_once(": ")?;
    let is_parent = before.ends_with("Parent ");
    Some(Process { pid: pid.parse().ok()?, is_parent, rank: rank_in_command(command) })
}

/// The rank that a command line gives to its process.
pub(super) fn rank_in_command(command: &str) -> Option<u32> {
    let mut words = command.split_whitespace();
    while let Some(word) = words.next() {
        let (option, value) = word.split_once('=').unwrap_or((word, ""));
        if RANK_OPTIONS.contains(&option) {
            let value = if value.is_empty() { words.next()? } else { value };
            return small_rank(value);
        }
    }
    None
}

fn small_rank(text: &str) -> Option<u32> {
    text.parse().ok().filter(|rank| *rank < MAX_WORLD_SIZE)
}

/// The rank that a local variable holds, if it is one that is called so.
pub(super) fn rank_of_variable(name: &str, value: &str) -> Option<u32> {
    RANK_VARIABLES.contains(&name).then(|| small_rank(value.trim())).flatten()
}

/// A line that begins a thread's stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Thread {
    /// The position in the line at which it begins.
    pub(super) at: usize,
    pub(super) id: u64,
    pub(super) name: Option<String>,
    pub(super) idle: bool,
    pub(super) holds_gil: bool,
}

/// `Thread 2311 (active+gil): "MainThread"`; a thread without a name has no colon.
pub(super) fn thread(text: &str) -> Option<Thread> {
    let at = text.find("Thread ")?;
    let (id, rest) = text.get(at + "Thread ".len()..)?.split_once(" (")?;
    let id = match id.strip_prefix("0x").or_else(|| id.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => id.parse().ok()?,
    };
    let (status, name) = rest.split_once(')')?;
    let (idle, holds_gil) = match status {
        "idle" => (true, false),
        "active" => (false, false),
        "active+gil" => (false, true),
        _ => return None,
    };
    let name = name.trim().strip_prefix(": \"").and_then(|name| name.strip_suffix('"'));
    let name = name.map(|name| name.chars().take(MAX_NAME_CHARS).collect());
    Some(Thread { at, id, name, idle, holds_gil })
}

/// A line below a thread's first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StackLine {
    Frame(Frame),
    /// A local variable that holds the process's rank.
    Rank(u32),
    /// Another local variable, or the heading of some.
    Remark,
}

/// `    load_batch (train.py:10)`, `    pthread_cond_wait (libc.so.6)`, and below a frame, further in, its
/// variables.
pub(super) fn below(text: &str) -> Option<StackLine> {
    let rest = text.strip_prefix("    ")?.trim_end();
    if rest.starts_with("    ") {
        let variable = rest.trim_start().split_once(": ");
        let rank = variable.and_then(|(name, value)| rank_of_variable(name, value));
        return Some(rank.map_or(StackLine::Remark, StackLine::Rank));
    }
    let (function, place) = rest.strip_suffix(')')?.rsplit_once(" (")?;
    let with_line =
        place.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?)));
    let (file, line) = with_line.unwrap_or((place, 0));
    let shortened = |text: &str| text.chars().take(MAX_NAME_CHARS).collect();
    Some(StackLine::Frame(Frame { function: shortened(function), file: shortened(file), line }))
}
