//! Calls of a trace, as they are found, marked and explained beside its timeline.

use lockstep_diagnosis::StackPart;
use serde::{Deserialize, Serialize};

/// Names a call of a trace: its rank, and its number on that rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CallId {
    /// The rank.
    pub rank: u32,
    /// The number of its work on that rank.
    pub work: u32,
}

/// A call where it is listed, or marked in the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallMark {
    /// Its rank and number.
    pub id: CallId,
    /// `all_reduce #7`.
    pub title: String,
    /// The group's label.
    pub group: String,
    /// When it began, in picoseconds.
    pub from_ps: u64,
    /// `None` when it never ended.
    pub to_ps: Option<u64>,
    /// Its row in the timeline, among those of its rank.
    pub lane: Option<u32>,
}

/// Calls that a query finds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundCalls {
    /// The number of all that are found.
    pub total: u64,
    /// The first of them by time, as many as are listed.
    pub calls: Vec<CallMark>,
}

/// Names a call of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Which {
    /// By the number of its work on its rank.
    Work(u32),
    /// By its number in the recorder that wrote it, else its number on its rank.
    Entry(u64),
    /// By its name and its number in its group; where a rank never made it, the call in which the
    /// rank is: the first that never ended, else the last.
    Numbered {
        /// The unique name of the group, if it is known.
        group: Option<String>,
        /// The name of the collective.
        op: Option<String>,
        /// Its number in its group.
        seq: Option<u64>,
    },
    /// The first that never ended, else the last.
    Last,
    /// The nearest to a time.
    At(u64),
}

/// All that is known of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallDetails {
    /// The call itself.
    pub mark: CallMark,
    /// Names and values.
    pub facts: Vec<(String, String)>,
    /// Its stack, innermost first.
    pub stack: Vec<StackPart>,
    /// False where the recorder does not tell when a call ended, as gloo's Flight Recorder.
    pub knows_end: bool,
    /// The ranks that it waits for at the end of the trace; empty if it does not wait.
    pub waits_for: Vec<u32>,
    /// The call on each member of its group.
    pub members: Vec<Member>,
    /// The calls of its rank before it and after it.
    pub previous: Option<CallMark>,
    /// The call of its rank after it.
    pub next: Option<CallMark>,
}

/// A call on one member of its group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The rank.
    pub rank: u32,
    /// Absent when the member did not make it, as far as was recorded.
    pub call: Option<CallMark>,
    /// False when nothing was recorded of the member.
    pub recorded: bool,
    /// True when its call differs in name or sizes.
    pub differs: bool,
    /// True when other lines of the program led to its call: where ranks have parted, one number is of several calls.
    pub elsewhere: bool,
}
