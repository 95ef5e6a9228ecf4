//! The calls of a job, joined from the files of one source.

use lockstep_core::trace::{CallLog, Outcome, Trace, TraceEnd, TraceHeader};

/// The completeness of a source's calls. The first is the fullest: the calls of a job are those of its
/// fullest source, and the others fill in missing values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shows {
    /// The last calls of every rank, with times, ended or not: a rank without any is missing.
    LastCalls,
    /// Calls that ended, with times: a rank without any was not recorded.
    EndedCalls,
    /// The calls that an observer was asked to record, in the order in which they were made and without times: when one
    /// ended is unknown, and a rank without any was not recorded.
    ObservedOrder,
    /// Calls in the order in which they were made, without times: when one ended is unknown. Every rank that the
    /// program has started leaves some.
    CallOrder,
}

impl Shows {
    /// True if the calls carry times.
    pub(crate) fn has_clock(self) -> bool {
        matches!(self, Shows::LastCalls | Shows::EndedCalls)
    }
}

/// The calls of a job, from all files of one source.
#[derive(Clone, Debug, PartialEq)]
pub struct JobCalls {
    /// The completeness of the calls.
    pub shows: Shows,
    /// The calls.
    pub merged: Merged,
    /// Remarks of the source on its files, in sentences.
    pub notes: Vec<String>,
}

/// The calls of a job with the header of their trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Merged {
    /// The header of a trace of these calls.
    pub header: TraceHeader,
    /// The calls of every rank; `None` for a rank without a file.
    pub log: CallLog,
    /// When the last thing happened, in picoseconds after the first.
    pub end_ps: u64,
}

impl Merged {
    /// The calls as the events of a trace.
    pub fn trace(&self) -> Trace {
        Trace {
            header: self.header.clone(),
            events: self.log.logs().flat_map(|(rank, log)| log.events(rank)).collect(),
            end: Some(TraceEnd { time_ps: self.end_ps, outcome: Outcome::Unknown }),
        }
    }
}
