//! The rank and the folder in a file's name.
//!
//! torchrun puts a process's words into `attempt_0/3/stderr.log`, people into `rank_3.log` or
//! `rank3/out.txt`.

use lockstep_core::rank::MAX_WORLD_SIZE;

/// The folder of a file: its name up to the last slash.
pub(crate) fn folder_of(name: &str) -> &str {
    name.rfind(['/', '\\']).and_then(|at| name.get(..at)).unwrap_or_default()
}

/// The words before a number that counts processes: `train_3.log`, `worker-3.log`.
const COUNTED: [&str; 14] = [
    "log", "out", "err", "stdout", "stderr", "output", "train", "trainer", "worker", "process",
    "proc", "gpu", "task", "debug",
];

/// A launcher's names for the files of a process in its folder.
const STREAMS: [&str; 6] = ["stdout", "stderr", "out", "err", "log", "output"];

/// The claim of a file's name about whose log it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Claim {
    /// `rank_3.log`, `rank3/stderr.log`.
    Rank(u32),
    /// `3.log`, `attempt_0/3/stderr.log`.
    Number(u32),
    /// `train_3.log`, which counts where all files are alike.
    Counted(u32),
}

impl Claim {
    pub(crate) fn rank(self) -> u32 {
        match self {
            Claim::Rank(rank) | Claim::Number(rank) | Claim::Counted(rank) => rank,
        }
    }
}

/// True if a file is named like a log.
pub(crate) fn is_log(name: &str) -> bool {
    let file = name.rsplit(['/', '\\']).next().unwrap_or(name).to_ascii_lowercase();
    let end = file.rsplit_once('.').map_or("", |(_, end)| end);
    matches!(end, "log" | "txt" | "out" | "err" | "stdout" | "stderr")
        || STREAMS.contains(&file.as_str())
}

/// The rank that a log's name says for certain.
pub(crate) fn said_rank(name: &str) -> Option<u32> {
    match claim(name).filter(|_| is_log(name)) {
        Some(Claim::Rank(rank)) => Some(rank),
        _ => None,
    }
}

pub(crate) fn claim(name: &str) -> Option<Claim> {
    let mut parts = name.rsplit(['/', '\\']);
    let file = parts.next()?.to_ascii_lowercase();
    let stem = file.split('.').next().unwrap_or_default();
    if let Some(rank) = behind_rank(&file).or_else(|| {
        let folder = parts.clone().next()?.to_ascii_lowercase();
        behind_rank(&folder)
    }) {
        return Some(Claim::Rank(rank));
    }
    if let Some(rank) = small(stem) {
        return Some(Claim::Number(rank));
    }
    if let Some(rank) = parts.next().and_then(small).filter(|_| STREAMS.contains(&stem)) {
        return Some(Claim::Number(rank));
    }
    // `log.3`, `train_3.log`, `worker-3.out`.
    let end = file.rsplit('.').next().filter(|end| small(end).is_some());
    let named = end.map_or(stem, |_| file.as_str());
    let word = named.trim_end_matches(|c: char| c.is_ascii_digit());
    let rank = small(named.get(word.len()..)?)?;
    let word = word.trim_end_matches(['_', '-', '.']);
    let last = word.rsplit(['_', '-', '.']).next().unwrap_or(word);
    COUNTED.contains(&last).then_some(Claim::Counted(rank))
}

/// The number behind `rank` in a name.
fn behind_rank(name: &str) -> Option<u32> {
    name.match_indices("rank").find_map(|(at, what)| {
        let rest = name.get(at + what.len()..)?.trim_start_matches(['_', '-', '.', '=', ' ']);
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        rest.get(..digits)?.parse().ok().filter(|rank| *rank < MAX_WORLD_SIZE)
    })
}

/// A number that is no job's.
fn small(text: &str) -> Option<u32> {
    let digits = (1..5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_known_by_their_names() {
        assert!(is_log("a/3/stderr.log") && is_log("0/STDERR") && !is_log("nccl_trace_rank_3"));
    }
}
