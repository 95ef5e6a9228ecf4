//! The problems of a dump, or of a set of them.

use super::dump::MAX_DUMP_BYTES;
use crate::pickle::PickleError;
use crate::problem::{FileProblem, ProblemKind};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::RankNameError;

/// The reason that an entry of a dump cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The entry itself is something else.
    #[error("it is {found}, not a dict")]
    NotADict {
        /// The value, as it is shown.
        found: String,
    },
    /// A field holds something else.
    #[error("{field}: is {found}, not a {expected}")]
    Is {
        /// The field.
        field: &'static str,
        /// The value, as it is shown.
        found: String,
        /// Such as "number".
        expected: &'static str,
    },
    /// A list in a field has an element that does not belong there.
    #[error("{field}: holds {found}, not a {expected}")]
    Holds {
        /// The field.
        field: &'static str,
        /// The element, as it is shown.
        found: String,
        /// Such as "list".
        expected: &'static str,
    },
    /// An entry without a required field.
    #[error("it has no {0}")]
    Lacks(&'static str),
    /// More than a dump can hold, from values that the file writes once and uses often.
    #[error("the file repeats itself beyond what a dump does")]
    Repeats,
}

/// The problem with a dump, or with a set of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlightRecorderError {
    /// The file is empty.
    #[error(
        "{file} is empty: it was taken before its rank wrote it, or that ended before. Copy the file again, or \
         leave it out: the diagnosis goes on without it"
    )]
    Empty {
        /// The file's name.
        file: String,
    },
    /// The file is larger than [`MAX_DUMP_BYTES`].
    #[error("{file} has {bytes} bytes; a dump has at most {MAX_DUMP_BYTES}: is it another file?")]
    TooLarge {
        /// The file's name.
        file: String,
        /// Its size.
        bytes: usize,
    },
    /// The file's name does not say whose it is.
    #[error(transparent)]
    RankName(#[from] RankNameError),
    /// The pickle is cut off, damaged or hostile.
    #[error("{file}: {error}")]
    Pickle {
        /// The file's name.
        file: String,
        /// The problem.
        error: PickleError,
    },
    /// The JSON is cut off, damaged or no dump.
    #[error("{file} is no Flight Recorder JSON: {why}")]
    Json {
        /// The file's name.
        file: String,
        /// The problem, with line and column.
        why: String,
    },
    /// The file is a text, as a log is.
    #[error(
        "{file} is text without any message that PyTorch, NCCL, torchrun or Python writes: it tells nothing of the job"
    )]
    Text {
        /// The file's name.
        file: String,
    },
    /// The file is something else, an image say.
    #[error("{file} is no Flight Recorder dump: it is neither a pickle nor JSON")]
    Foreign {
        /// The file's name.
        file: String,
    },
    /// The file is neither a pickle nor JSON of a dump.
    #[error("{file} is no Flight Recorder dump: {why}")]
    NotADump {
        /// The file's name.
        file: String,
        /// The value that was found.
        why: String,
    },
    /// An entry lacks a field or holds something else in it.
    #[error(
        "{file} is no Flight Recorder dump, or a damaged one: entry {entry}: {why}. Copy the whole \
         file again"
    )]
    BadEntry {
        /// The file's name.
        file: String,
        /// The entry's place in the file, from 0.
        entry: usize,
        /// The problem.
        why: EntryError,
    },
    /// Two files are named after the same rank.
    #[error("{file} and {other} are both named after rank {rank}; keep the one of the hang")]
    SameRank {
        /// The file that was left out.
        file: String,
        /// The file that was used.
        other: String,
        /// The rank.
        rank: GlobalRank,
    },
    /// A rank's dump is there twice, as where a pickle and its JSON lie side by side.
    #[error("{file} holds what {other} does, the dump of rank {rank}, and was left out")]
    SameDump {
        /// The file that was left out.
        file: String,
        /// The file that was used.
        other: String,
        /// The rank.
        rank: GlobalRank,
    },
    /// Files of another job, or of another moment, that claim the ranks of newer ones.
    #[error(
        "Several files claim the same rank, so they are of different jobs or moments. {judged} was \
         judged, where the latest call is; {set} was not ({files} older files): diagnose it by itself."
    )]
    OtherSet {
        /// Their folder, or the common beginning of their names.
        set: String,
        /// The number of files.
        files: usize,
        /// Those that were judged.
        judged: String,
    },
    /// Files whose calls had all ended long before the other ranks made the same ones.
    #[error(
        "{file}{} left out, as of another attempt: calls that ended there lie {minutes} minutes before \
         the other ranks made the same ones. If it is the rank's clock that is wrong, set it right; else \
         add the rank's own dump of this attempt",
        match files {
            0 | 1 => " was".to_owned(),
            2 => " and another file were".to_owned(),
            files => format!(" and {} more files were", files - 1),
        }
    )]
    OtherAttempt {
        /// The first file.
        file: String,
        /// The number of files.
        files: usize,
        /// By how much they are older, at the least.
        minutes: u64,
    },
    /// Files that claim one rank, and nothing says which others belong to which.
    #[error(
        "{file} and {other} both claim to be rank {rank}'s, and hold different calls: they are of \
         different jobs or moments, and nothing tells which files belong together and are the newest. \
         Keep the dumps of each in a folder of their own, and diagnose one folder"
    )]
    Mixed {
        /// One file.
        file: String,
        /// The other.
        other: String,
        /// The rank.
        rank: GlobalRank,
    },
    /// Nothing to read.
    #[error(
        "no Flight Recorder dump among {files} files; expected one a rank, named like nccl_trace_rank_0"
    )]
    NoDumps {
        /// The number of files there were.
        files: usize,
    },
}

impl FlightRecorderError {
    /// The problem of a file.
    pub(super) fn of_file(self, file_name: String) -> FileProblem {
        let kind = match self {
            FlightRecorderError::Text { .. } => ProblemKind::Text,
            FlightRecorderError::OtherSet { .. } => ProblemKind::OtherSet,
            FlightRecorderError::OtherAttempt { .. } => ProblemKind::OtherAttempt,
            FlightRecorderError::SameRank { .. } => ProblemKind::SameRank,
            FlightRecorderError::SameDump { .. } => ProblemKind::SameContent,
            _ => ProblemKind::Unreadable,
        };
        FileProblem { file_name, kind, why: self.to_string() }
    }
}
