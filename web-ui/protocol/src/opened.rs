//! A trace that the engine holds, as the page knows it.

use crate::session_id::SessionId;
use lockstep_core::trace::{Outcome, TraceHeader};
use lockstep_diagnosis::{Report, Wait, WaitGroup};
use serde::{Deserialize, Serialize};

/// A trace as the page knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Opened {
    /// The session.
    pub session: SessionId,
    /// Its header.
    pub header: TraceHeader,
    /// The end of the job; absent while it has not ended.
    pub outcome: Option<Outcome>,
    /// When it ends, in picoseconds.
    pub end_ps: u64,
    /// When something last happened in it.
    pub last_ps: u64,
    /// The stretch that is worth showing first.
    pub fit: (u64, u64),
    /// Rows a rank in the timeline.
    pub lanes: u32,
    /// The number of calls.
    pub calls: u64,
    /// The kinds of calls in it, as the palette numbers them.
    pub kinds: Vec<u8>,
    /// True if messages have rows of their own.
    pub has_messages: bool,
    /// True if a call never ended.
    pub unfinished: bool,
    /// The virtual time of every moment; empty for traces that were not simulated here.
    pub moments: Vec<u64>,
    /// The findings.
    pub report: Report,
    /// Ranks that wait at its end, and the ranks that they wait for.
    pub waits: Vec<Wait>,
    /// The waits by their cause.
    pub causes: Vec<WaitGroup>,
    /// The files that could not be read, in sentences.
    pub problems: Vec<String>,
    /// The answers of works, by time.
    pub answers: Vec<WorkAnswer>,
}

impl Opened {
    /// Differs between two accounts of a trace that grows: its calls and its end.
    pub fn account(&self) -> (u64, u64) {
        (self.calls, self.end_ps)
    }
}

/// The answer of a work when its rank asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkAnswer {
    /// The time, in picoseconds.
    pub time_ps: u64,
    /// The rank.
    pub rank: u32,
    /// `is_completed`.
    pub question: String,
    /// As Python prints it.
    pub answer: String,
}
