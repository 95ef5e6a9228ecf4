//! The rank whose file each is, by its content, its name and its folder.
//!
//! The number of a folder of torchrun's counts on one machine; PyTorch's own prefix, where it stands in
//! the file, is right.

use crate::file_names::{Claim, claim, folder_of};
use crate::job_log::JobLog;
use lockstep_core::rank::GlobalRank;
use std::collections::{BTreeMap, BTreeSet};

/// A file of one process or of several.
#[derive(Clone, Debug)]
pub(super) struct NamedFile<'a> {
    pub(super) name: &'a str,
    /// The first ranks that its content names as those that wrote it; more than two need not be here.
    pub(super) written_by: Vec<GlobalRank>,
    /// True if its content is of any use.
    pub(super) tells: bool,
}

impl NamedFile<'_> {
    /// A log of a name.
    pub(super) fn of_log((name, log): &(String, JobLog)) -> NamedFile<'_> {
        let written_by = log.wrote.keys().copied().take(2).collect();
        NamedFile { name, written_by, tells: !log.is_empty() }
    }
}

/// Two files of one rank that are of two runs, or of two machines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{one} and {other} both say that they are rank {rank}'s log: they are of two runs, or of two \
     machines. Give the files of one run."
)]
pub(super) struct TwoRuns {
    one: String,
    other: String,
    rank: u32,
}

/// The rank whose file each is, if it is one rank's.
///
/// # Errors
/// When two files of different folders say that they are one rank's, and both are of use: they are of two
/// runs.
pub(super) fn ranks_of(files: &[NamedFile<'_>]) -> Result<Vec<Option<GlobalRank>>, TwoRuns> {
    let mut claims: Vec<Option<Claim>> = files.iter().map(|file| claim(file.name)).collect();
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
    for (file, claim) in files.iter().zip(&claims) {
        if let Some(claim) = claim {
            let known = places.entry(claim.rank()).or_default();
            let place = known.entry(folder_of(file.name)).or_insert((file.name, false));
            place.1 |= file.tells;
        }
    }
    for (rank, places) in &places {
        let mut telling = places.values().filter(|(_, tells)| *tells).map(|(name, _)| *name);
        let Some((one, other)) = telling.next().zip(telling.next()) else { continue };
        if claims.iter().flatten().any(|claim| *claim == Claim::Rank(*rank)) {
            let (one, other) = (one.to_owned(), other.to_owned());
            return Err(TwoRuns { one, other, rank: *rank });
        }
        // Two machines' processes have one number each.
        claims.iter_mut().for_each(|claim| *claim = claim.filter(|it| it.rank() != *rank));
    }
    let own = |(file, claim): (&NamedFile<'_>, Option<Claim>)| match file.written_by.as_slice() {
        [] => claim.map(|claim| GlobalRank(claim.rank())),
        [only] => Some(*only),
        _ => None,
    };
    Ok(files.iter().zip(claims).map(own).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_log;

    fn ranks(files: &[(&str, &str)]) -> Result<Vec<Option<u32>>, TwoRuns> {
        let logs: Vec<(String, JobLog)> = files
            .iter()
            .map(|(name, text)| ((*name).to_owned(), job_log::read(name, text.as_bytes())))
            .collect();
        let files: Vec<NamedFile<'_>> = logs.iter().map(NamedFile::of_log).collect();
        let ranks = ranks_of(&files)?;
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
        let why =
            ranks(&[("a/rank_0.log", raised), ("b/rank_0.log", raised)]).unwrap_err().to_string();
        assert!(why.contains("a/rank_0.log and b/rank_0.log both say"), "{why}");
        // The output and the errors of a process belong together.
        let both = [("out/rank_0.log", "fine"), ("err/rank_0.log", raised)];
        assert_eq!(ranks(&both).unwrap(), [Some(0), Some(0)]);
        let machines = [("n0/3/stderr.log", raised), ("n1/3/stderr.log", raised)];
        assert_eq!(ranks(&machines).unwrap(), [None, None]);
    }
}
