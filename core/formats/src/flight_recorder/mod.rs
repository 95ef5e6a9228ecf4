//! PyTorch's Flight Recorder: the dump that every rank writes when a collective hangs.
//!
//! A dump is a pickle (or JSON) of the last calls of one rank: see PyTorch's
//! `torch/csrc/distributed/c10d/FlightRecorder.hpp`. [`Dump::read`] reads one file, [`read_files`] a set of
//! them, and [`trace_of`] merges the dumps of a job's ranks into one [`Trace`](lockstep_core::trace::Trace).
//!
//! Versions from torch 2.2 (a bare list) to 2.15 (version 2.10) are read. Values that a dump does not have
//! are left unknown and never guessed, with two exceptions that gloo makes necessary: the members of its
//! groups are worked out (see `members.rs`), since its dumps do not list them, and a call that ended at an
//! unknown time is taken to have ended when the last member made it.

mod dump;
mod entry;
mod error;
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

pub use dump::{Dump, Form, GroupConfig, GroupStatus, MAX_DUMP_BYTES};
pub use entry::{Entry, Site};
pub use error::{EntryError, FlightRecorderError};
pub use files::{Recording, read_files, recording_of};
pub use merge::{merge, trace_of};
pub use names::needs_all;
pub(crate) use names::{public_name, rank_list};
pub(crate) use reader::FlightRecorderReader;

pub use write::{dumps_of, is_written_by_lockstep};

use crate::rank_calls::{Backwards, ends_before_it_begins};
use crate::text::{begins_as_json, is_text};
use lockstep_core::trace::rank_of_file_name;

impl Dump {
    /// The part that an entry shares with others.
    pub fn site(&self, entry: &Entry) -> Option<&Site> {
        self.sites.get(entry.site as usize)
    }

    /// The calls that were made before the one in front of them, or ended before they were made, by more than
    /// [`CLOCK_STEP_NS`].
    pub(crate) fn backwards(&self) -> Backwards {
        let mut backwards = Backwards::default();
        let mut entries: Vec<&Entry> = self.entries.iter().collect();
        if entries.iter().all(|entry| entry.record_id.is_some()) {
            entries.sort_by_key(|entry| entry.record_id);
        }
        let mut before_ns: u64 = 0;
        for entry in entries.into_iter().filter(|entry| entry.created_ns > 0) {
            let name = || {
                let number = entry.collective_seq.or(entry.p2p_seq);
                let number = number.map(|seq| format!(" #{seq}")).unwrap_or_default();
                let op = self
                    .site(entry)
                    .map_or("a call", |site| names::call_name(&site.profiling_name).op);
                format!("{op}{number}")
            };
            let by_ns = before_ns.saturating_sub(entry.created_ns);
            let ended_ns = entry.completed_ns.into_iter().chain(entry.started_ns).min();
            let early_ns = entry.created_ns.saturating_sub(ended_ns.unwrap_or(u64::MAX));
            if by_ns > CLOCK_STEP_NS {
                let ms = by_ns as f64 / 1e6;
                backwards.add(|| {
                    format!("{} was made {ms:.3} ms before the call in front of it", name())
                });
            } else if early_ns > CLOCK_STEP_NS {
                backwards.add(|| ends_before_it_begins(&name(), early_ns as f64));
            }
            before_ns = entry.created_ns;
        }
        backwards
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
        let mut dump = match begins_as_json(bytes) {
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
        dump.take_back_failed();
        Ok(Dump { rank, ..dump })
    }

    /// The version as numbers: 2.10 is newer than 2.9.
    fn version_pair(&self) -> Option<(u32, u32)> {
        let (major, minor) = self.version.as_deref()?.split_once('.')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    }
}

/// Less than a millisecond is no clock that was set: two threads look at it at nearly the same time.
const CLOCK_STEP_NS: u64 = 1_000_000;

/// The first byte of a pickle of protocol 2 or later: PyTorch writes no other.
const PROTO: u8 = 0x80;

#[cfg(test)]
mod tests;
