//! Whose log a file is, by what stands in it and by its name and folder; and which attempt of a job it is
//! of.
//!
//! torchrun puts a process's words into `attempt_0/3/stderr.log`, people into `rank_3.log` or
//! `rank3/out.txt`. The number of a folder of torchrun's counts on one machine; PyTorch's own prefix,
//! where it stands in the file, is right.

use crate::flight_recorder::folder_of;
use crate::job_log::JobLog;
use lockstep_core::rank::GlobalRank;
use lockstep_core::rank::MAX_WORLD_SIZE;
use std::collections::{BTreeMap, BTreeSet};

/// What stands before a number that counts processes: `train_3.log`, `worker-3.log`.
const COUNTED: [&str; 14] = [
    "log", "out", "err", "stdout", "stderr", "output", "train", "trainer", "worker", "process",
    "proc", "gpu", "task", "debug",
];

/// What a launcher calls the files of a process in its folder.
const STREAMS: [&str; 6] = ["stdout", "stderr", "out", "err", "log", "output"];

/// How a file's name says whose log it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Claim {
    /// `rank_3.log`, `rank3/stderr.log`.
    Rank(u32),
    /// `3.log`, `attempt_0/3/stderr.log`.
    Number(u32),
    /// `train_3.log`, which counts where all files are alike.
    Counted(u32),
}

impl Claim {
    fn rank(self) -> u32 {
        match self {
            Claim::Rank(rank) | Claim::Number(rank) | Claim::Counted(rank) => rank,
        }
    }
}

/// The rank whose log each file is, if it is one rank's.
///
/// # Errors
/// When two files of different folders say that they are one rank's, and both tell of it: they are of
/// two runs.
pub(super) fn ranks_of(logs: &[(String, JobLog)]) -> Result<Vec<Option<GlobalRank>>, String> {
    let mut claims: Vec<Option<Claim>> = logs.iter().map(|(name, _)| claim(name)).collect();
    let counted: BTreeSet<u32> = claims
        .iter()
        .flatten()
        .filter_map(|claim| match claim {
            Claim::Counted(rank) => Some(*rank),
            _ => None,
        })
        .collect();
    // Numbers that count ranks are all there, from 0.
    let all_there = counted.len() > 1 && counted.iter().copied().eq(0..counted.len() as u32);
    claims.iter_mut().for_each(|claim| {
        *claim = claim.filter(|claim| all_there || !matches!(claim, Claim::Counted(_)));
    });
    let mut places: BTreeMap<u32, BTreeMap<&str, (&str, bool)>> = BTreeMap::new();
    for ((name, log), claim) in logs.iter().zip(&mut claims) {
        if let Some(claim) = claim {
            let known = places.entry(claim.rank()).or_default();
            let place = known.entry(folder_of(name)).or_insert((name, false));
            place.1 |= !log.is_empty();
        }
    }
    for (rank, places) in &places {
        let mut telling = places.values().filter(|(_, tells)| *tells).map(|(name, _)| *name);
        let Some((one, other)) = telling.next().zip(telling.next()) else { continue };
        if claims.iter().flatten().any(|claim| *claim == Claim::Rank(*rank)) {
            return Err(format!(
                "{one} and {other} both say that they are rank {rank}'s log: they are of two runs, or \
                 of two machines. Give the files of one run."
            ));
        }
        // Two machines' processes have one number each.
        claims.iter_mut().for_each(|claim| *claim = claim.filter(|it| it.rank() != *rank));
    }
    let own = |((_, log), claim): (&(String, JobLog), Option<Claim>)| {
        let mut wrote = log.wrote.keys().copied();
        match (wrote.next(), wrote.next()) {
            (None, _) => claim.map(|claim| GlobalRank(claim.rank())),
            (only, None) => only,
            _ => None,
        }
    };
    Ok(logs.iter().zip(claims).map(own).collect())
}

/// True if a file is called what logs are called.
pub(super) fn is_log(name: &str) -> bool {
    let file = name.rsplit(['/', '\\']).next().unwrap_or(name).to_ascii_lowercase();
    let end = file.rsplit_once('.').map_or("", |(_, end)| end);
    matches!(end, "log" | "txt" | "out" | "err" | "stdout" | "stderr")
        || STREAMS.contains(&file.as_str())
}

/// The rank that a log's name says for certain.
pub(super) fn said_rank(name: &str) -> Option<u32> {
    match claim(name).filter(|_| is_log(name)) {
        Some(Claim::Rank(rank)) => Some(rank),
        _ => None,
    }
}

fn claim(name: &str) -> Option<Claim> {
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

/// Which files are of the job, and of the attempt of it, that is judged.
#[derive(Debug, Default)]
pub(super) struct Judged {
    /// The folders of dumps that are left out, with what else lies there.
    left_out: BTreeSet<String>,
    /// Those of dumps that are not.
    kept: BTreeSet<String>,
    /// The attempt, where there are several.
    attempt: Option<u32>,
    /// The files of earlier attempts.
    earlier: BTreeSet<u32>,
}

impl Judged {
    /// Of the folders in which dumps lie, those of them that are left out, and the names of logs.
    pub(super) fn of<'a>(
        folders: BTreeSet<String>,
        left_out: BTreeSet<String>,
        logs: impl Iterator<Item = &'a str>,
    ) -> Judged {
        let kept: BTreeSet<String> =
            folders.into_iter().filter(|folder| !left_out.contains(folder)).collect();
        let of_dumps: BTreeSet<Option<u32>> =
            kept.iter().map(|folder| attempt(&format!("{folder}/"))).collect();
        let mut earlier: BTreeSet<u32> = logs.filter_map(attempt).collect();
        let attempt = match of_dumps.first().copied() {
            Some(only) if of_dumps.len() == 1 => only,
            Some(_) => None,
            None => earlier.last().copied(),
        };
        earlier.retain(|it| attempt.is_some_and(|attempt| *it != attempt));
        Judged { left_out, kept, attempt, earlier }
    }

    /// True if a file is to be judged.
    pub(super) fn holds(&self, name: &str) -> bool {
        let mut folder = folder_of(name);
        while !folder.is_empty() && !self.kept.contains(folder) {
            if self.left_out.contains(folder) {
                return false;
            }
            folder = folder_of(folder);
        }
        let of = attempt(name).zip(self.attempt);
        of.is_none_or(|(of, judged)| of == judged)
    }

    /// What is said of logs that are not judged.
    pub(super) fn note(&self) -> Option<String> {
        let judged = self.attempt.filter(|_| !self.earlier.is_empty())?;
        let others: Vec<String> = self.earlier.iter().map(u32::to_string).collect();
        let (noun, was) = if others.len() == 1 { ("", "was") } else { ("s", "were") };
        Some(format!(
            "Of the logs, those of attempt {judged} were judged; attempt{noun} {} {was} left out.",
            others.join(", ")
        ))
    }
}

/// The attempt that a file is of, as torchrun names folders: `attempt_1`.
pub(super) fn attempt(name: &str) -> Option<u32> {
    let of = |part: &str| {
        let part = part.to_ascii_lowercase();
        let names = ["attempt", "restart", "try"];
        let rest = names.iter().find_map(|name| part.strip_prefix(name))?;
        rest.trim_start_matches(['_', '-']).parse().ok()
    };
    folder_of(name).split(['/', '\\']).find_map(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_log;

    fn ranks(files: &[(&str, &str)]) -> Result<Vec<Option<u32>>, String> {
        let logs: Vec<(String, JobLog)> = files
            .iter()
            .map(|(name, text)| ((*name).to_owned(), job_log::read(text.as_bytes())))
            .collect();
        let ranks = ranks_of(&logs)?;
        Ok(ranks.into_iter().map(|rank| rank.map(|rank| rank.0)).collect())
    }

    fn alone(name: &str) -> Option<u32> {
        ranks(&[(name, "loading")]).unwrap()[0]
    }

    #[test]
    fn names_and_folders_say_whose_log_it_is() {
        for (name, rank) in [
            ("rank_3.log", Some(3)),
            ("logs/rank3/stderr.log", Some(3)),
            ("train.rank-12.err", Some(12)),
            ("attempt_0/3/stderr.log", Some(3)),
            ("none_8x/attempt_1/0/stdout.log", Some(0)),
            ("3.log", Some(3)),
            ("slurm-48120.out", None),
            ("train_3.log", None),
            ("node_3/train.log", None),
            ("2026/train.log", None),
            ("frank.log", None),
        ] {
            assert_eq!(alone(name), rank, "{name}");
        }
        let counted = [("train_0.log", ""), ("train_1.log", ""), ("train_2.log", "")];
        assert_eq!(ranks(&counted).unwrap(), [Some(0), Some(1), Some(2)]);
        assert_eq!(ranks(&counted[1..]).unwrap(), [None, None], "rank 0's is not there");
        assert_eq!(ranks(&[("job_0.log", ""), ("job_1.log", "")]).unwrap(), [None, None]);
    }

    #[test]
    fn what_stands_in_the_file_is_right() {
        let second = "[rank11]:[E1 a.cpp:1] x\nmore\n";
        assert_eq!(ranks(&[("attempt_0/3/stderr.log", second)]).unwrap(), [Some(11)]);
        let node = "[rank0]: a\n[rank1]: b\n";
        assert_eq!(ranks(&[("rank_0.log", node)]).unwrap(), [None]);
    }

    #[test]
    fn two_runs_are_not_one() {
        let raised = "Traceback (most recent call last):\nValueError: x\n";
        let why = ranks(&[("a/rank_0.log", raised), ("b/rank_0.log", raised)]).unwrap_err();
        assert!(why.contains("a/rank_0.log and b/rank_0.log both say"), "{why}");
        // What a process wrote and what it complained of are one's.
        let both = [("out/rank_0.log", "fine"), ("err/rank_0.log", raised)];
        assert_eq!(ranks(&both).unwrap(), [Some(0), Some(0)]);
        let machines = [("n0/3/stderr.log", raised), ("n1/3/stderr.log", raised)];
        assert_eq!(ranks(&machines).unwrap(), [None, None]);
    }

    #[test]
    fn attempts_are_in_the_folders() {
        assert_eq!(attempt("x/attempt_1/3/stderr.log"), Some(1));
        assert_eq!(attempt("x/restart2/rank_3.log"), Some(2));
        assert_eq!(attempt("attempt_1.log"), None);
        assert_eq!(attempt("country/a.log"), None);
        assert!(is_log("a/3/stderr.log") && is_log("0/STDERR") && !is_log("nccl_trace_rank_3"));
    }
}
