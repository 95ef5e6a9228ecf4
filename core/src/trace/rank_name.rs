//! The rank that a recording's file name says: a dump does not hold its own rank.

use crate::rank::{GlobalRank, MAX_WORLD_SIZE};

/// A file name from which no rank follows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RankNameError {
    /// Neither the name nor a folder says a rank.
    #[error(
        "{file} does not say which rank wrote it; name it by its rank, as PyTorch does: \
         nccl_trace_rank_3"
    )]
    NoRank {
        /// The file's name.
        file: String,
    },
    /// The number is larger than any rank's.
    #[error(
        "{file} is named after rank {rank}, over the limit of {MAX_WORLD_SIZE} ranks; rename it"
    )]
    RankTooLarge {
        /// The file's name.
        file: String,
        /// The rank in its name.
        rank: u64,
    },
}

/// The rank in a dump's file name: the number behind `rank`, else its last number, before an extension if
/// there is one. `nccl_trace_rank_3`, `dumps/rank3.json` and `3.pkl` are all rank 3's. Where the name says
/// none, the nearest folder that does: `rank3/dump.pickle`, `node1/rank_3/trace`, `3/fr.pkl`.
///
/// # Errors
/// When neither name nor folders end in a number, or in one that no rank can have.
pub fn rank_of_file_name(file_name: &str) -> Result<GlobalRank, RankNameError> {
    let (_, name) = split_name(file_name);
    let digits = in_name(name).or_else(|| Some(in_folders(file_name)?.1));
    let Some(digits) = digits else {
        return Err(RankNameError::NoRank { file: file_name.to_owned() });
    };
    let rank: u64 = digits.parse().unwrap_or(u64::MAX);
    match u32::try_from(rank) {
        Ok(rank) if rank < MAX_WORLD_SIZE => Ok(GlobalRank(rank)),
        _ => Err(RankNameError::RankTooLarge { file: file_name.to_owned(), rank }),
    }
}

/// The folder of the job of a file: the beginning of its name, up to the last slash, and without the folders
/// from the one on that names its rank.
pub fn job_folder_of(file_name: &str) -> &str {
    let (folder, name) = split_name(file_name);
    match in_name(name).is_none().then(|| in_folders(file_name)).flatten() {
        Some((before, _)) => before,
        None => folder,
    }
}

/// A path's folder, without the last slash, and its last part.
fn split_name(path: &str) -> (&str, &str) {
    let at = path.rfind(['/', '\\']);
    at.and_then(|at| Some((path.get(..at)?, path.get(at + 1..)?))).unwrap_or(("", path))
}

/// A name's last digits.
fn last_digits(name: &str) -> Option<&str> {
    let before = name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    name.get(before..).filter(|digits| !digits.is_empty())
}

/// The digits of the rank that a file's own name says.
fn in_name(name: &str) -> Option<&str> {
    let stem = match name.rsplit_once('.') {
        Some((stem, extension)) if extension.bytes().any(|byte| byte.is_ascii_alphabetic()) => stem,
        _ => name,
    };
    behind_rank(stem).or_else(|| last_digits(stem))
}

/// The digits behind `rank` in a name; those of a rank that counts on one machine are none.
fn behind_rank(name: &str) -> Option<&str> {
    let lower = name.to_ascii_lowercase();
    lower.match_indices("rank").find_map(|(at, what)| {
        let local = lower.get(..at)?.trim_end_matches(['_', '-', '.']).ends_with("local");
        let rest = name.get(at + what.len()..)?.trim_start_matches(['_', '-', '.', '=', ' ']);
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest.get(..end).filter(|digits| !digits.is_empty() && !local)
    })
}

/// The nearest folder of a path that names a rank: the path before it, and the rank's digits. The folder's
/// name ends in a number after `rank`, or it is the file's own folder and only a number.
fn in_folders(path: &str) -> Option<(&str, &str)> {
    let (mut folder, _) = split_name(path);
    let mut nearest = true;
    while !folder.is_empty() {
        let (before, name) = split_name(folder);
        let number = last_digits(name).filter(|digits| {
            (nearest && *digits == name) || behind_rank(name).is_some_and(|it| it == *digits)
        });
        if let Some(digits) = number {
            return Some((before, digits));
        }
        (folder, nearest) = (before, false);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_in_the_names() {
        for (name, rank) in [
            ("rank_3", 3),
            ("nccl_trace_rank_17", 17),
            ("dumps/2026.11.21/comm_lib_trace_rank_0", 0),
            ("C:\\dumps\\rank12.pkl", 12),
            ("json/rank_1.json", 1),
            ("7", 7),
            ("_dump_9", 9),
            ("rank3_trace.pickle", 3),
            ("nccl_trace_rank_3_1763740000.pkl", 3),
            // If the file's name has no rank, the nearest folder counts.
            ("rank0/dump.pickle", 0),
            ("job/12/fr.pkl", 12),
            ("node1/rank_7/trace", 7),
            ("host_a\\Rank-4\\dumps\\trace", 4),
            ("host_a/nccl_trace_rank_3", 3),
            ("rank_2/nccl_trace_5", 5),
        ] {
            assert_eq!(rank_of_file_name(name), Ok(GlobalRank(rank)), "{name}");
        }
        for name in [
            "",
            "torchfrtrace_patched.txt",
            "rank_",
            "rank_3.d/notes",
            "node1/dump.pickle",
            "attempt_0/trace",
            "local_rank_1/trace",
            "2026/dumps/trace",
        ] {
            assert!(matches!(rank_of_file_name(name), Err(RankNameError::NoRank { .. })));
        }
        assert_eq!(job_folder_of("a/rank_0"), "a");
        assert_eq!(job_folder_of("attempt_0/rank_3/dumps/trace"), "attempt_0");
        assert_eq!(job_folder_of("3/trace"), "");
        let huge = rank_of_file_name("rank_99999999999999999999999");
        assert!(matches!(huge, Err(RankNameError::RankTooLarge { .. })));
    }
}
