//! PyTorch's Flight Recorder: the dump that every rank writes when a collective hangs.
//!
//! A dump is a pickle (or JSON) of the last calls of one rank: see PyTorch's
//! `torch/csrc/distributed/c10d/FlightRecorder.hpp`. [`Dump::read`] reads one file,
//! [`read_files`] a set of them, and [`trace_of`] merges the dumps of a job's ranks into one
//! [`Trace`](lockstep_core::trace::Trace).
//!
//! Versions from torch 2.2 (a bare list) to 2.15 (version 2.10) are read. What a dump does not
//! say is left unknown and never guessed, with two exceptions that gloo makes necessary: the
//! members of its groups are worked out (see `members.rs`), since its dumps do not list them, and
//! a call that ended at an unknown time is taken to have ended when the last member made it.

mod entry;
mod files;
mod from_json;
mod from_pickle;
mod groups;
mod members;
mod merge;
mod names;
mod reader;
mod retired;
mod sets;

mod stale;
mod statuses;
mod write;

pub use entry::{Entry, Site};
pub use files::{Recording, read_files, recording_of};
pub use merge::{merge, trace_of};
pub use names::needs_all;
pub(crate) use names::{public_name, rank_list};
pub use reader::FlightRecorderReader;

pub use write::dumps_of;

use crate::pickle::PickleError;
use crate::problem::{FileProblem, ProblemKind};
use crate::text::{begins_as_json, is_text};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{RankNameError, rank_of_file_name};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A larger file is refused: 2,000 entries with deep stacks take 2 MB.
pub const MAX_DUMP_BYTES: usize = 512 << 20;

/// One rank's dump, read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dump {
    /// The file's name.
    pub file_name: String,
    /// The rank that wrote it.
    pub rank: GlobalRank,
    /// How it is written.
    pub form: Form,
    /// The recorder's version, `2.10`; `None` before torch 2.3.
    pub version: Option<String>,
    /// The process groups that the rank knew of, as listed; gloo's dumps list one of no name.
    pub groups: Vec<GroupConfig>,
    /// Per `pg_id`, how far its collectives have come; empty before torch 2.5.
    pub status: BTreeMap<u64, GroupStatus>,
    /// What entries have in common.
    pub sites: Vec<Site>,
    /// The calls, oldest first.
    pub entries: Vec<Entry>,
    /// The size of the file.
    pub bytes: usize,
}

/// How a dump is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Form {
    /// `_dump_fr_trace()`: everything.
    Pickle,
    /// `_dump_fr_trace_json()`: without stacks.
    Json,
}

/// A process group as a dump's `pg_config` lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupConfig {
    /// Its unique name; empty in gloo's dumps, which then say nothing reliable.
    pub name: String,
    /// Its description.
    pub desc: String,
    /// Its members in group-rank order.
    pub ranks: Vec<GlobalRank>,
}

/// How far the collectives of a group have come on a rank, also where the ring has dropped them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStatus {
    /// The number of the last that was called.
    pub last_enqueued: Option<u64>,
    /// The number of the last that was seen to end.
    pub last_completed: Option<u64>,
}

/// What is wrong with a dump, or with a set of them.
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
        /// What is wrong.
        error: PickleError,
    },
    /// The JSON is cut off, damaged or no dump.
    #[error("{file} is no Flight Recorder JSON: {why}")]
    Json {
        /// The file's name.
        file: String,
        /// What is wrong, with line and column.
        why: String,
    },
    /// The file is a text, as a log is.
    #[error("{file} is no Flight Recorder dump: it is text, neither a pickle nor JSON")]
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
        /// What was found.
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
        /// What is wrong.
        why: String,
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
        /// Their folder, or what their names begin with.
        set: String,
        /// How many they are.
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
        /// How many they are.
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
        /// How many files there were.
        files: usize,
    },
}

impl FlightRecorderError {
    /// The problem of a file.
    fn of_file(self, file_name: String) -> FileProblem {
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

impl Dump {
    /// What an entry shares with others.
    pub fn site(&self, entry: &Entry) -> Option<&Site> {
        self.sites.get(entry.site as usize)
    }

    /// True if the recorder's ring has dropped calls: the first one that is kept was not the rank's first.
    pub fn is_cut(&self) -> bool {
        self.entries.first().is_some_and(|first| first.record_id > Some(0))
    }

    /// Reads one rank's dump, pickle or JSON; the rank is the last number of the file's name.
    ///
    /// # Errors
    /// When the file is no Flight Recorder dump, or is cut off or hostile.
    pub fn read(file_name: &str, bytes: &[u8]) -> Result<Dump, FlightRecorderError> {
        let file = || file_name.to_owned();
        if bytes.is_empty() {
            return Err(FlightRecorderError::Empty { file: file() });
        }
        if bytes.len() > MAX_DUMP_BYTES {
            return Err(FlightRecorderError::TooLarge { file: file(), bytes: bytes.len() });
        }
        // A pickle that begins with `[` or `{` does not exist: those are no opcodes.
        let dump = match begins_as_json(bytes) {
            true => from_json::read(file_name, bytes)?,
            false => from_pickle::read(file_name, bytes).map_err(|error| {
                if is_text(bytes) {
                    FlightRecorderError::Text { file: file() }
                } else if bytes.first() != Some(&PROTO) {
                    FlightRecorderError::Foreign { file: file() }
                } else {
                    error
                }
            })?,
        };
        let rank = rank_of_file_name(file_name)?;
        Ok(Dump { rank, ..dump })
    }

    /// The version as numbers: 2.10 is newer than 2.9.
    fn version_pair(&self) -> Option<(u32, u32)> {
        let (major, minor) = self.version.as_deref()?.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }
}

/// What a pickle of protocol 2 or later begins with: PyTorch writes no other.
const PROTO: u8 = 0x80;

#[cfg(test)]
mod tests;
