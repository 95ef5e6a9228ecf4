//! Calls of a trace, as they are found, marked and explained beside its timeline.

use serde::{Deserialize, Serialize};

/// Names a call of a trace: its rank, and its number on that rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct CallId {
    pub(crate) rank: u32,
    pub(crate) work: u32,
}

/// A call where it is listed, or marked in the timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallMark {
    pub(crate) id: CallId,
    /// `all_reduce #7`.
    pub(crate) title: String,
    /// The group's label.
    pub(crate) group: String,
    pub(crate) from_ps: u64,
    /// `None` when it never ended.
    pub(crate) to_ps: Option<u64>,
    /// Its row in the timeline, among those of its rank.
    pub(crate) lane: Option<u32>,
}

/// Calls that a query finds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FoundCalls {
    pub(crate) total: u64,
    /// The first of them by time, as many as are listed.
    pub(crate) calls: Vec<CallMark>,
}

/// Names a call of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Which {
    /// By its number in the recorder that wrote it, else its number on its rank.
    Entry(u64),
    /// By its name and its number in its group; where a rank has none such, the last before.
    Numbered { op: Option<String>, seq: Option<u64> },
    /// The first that never ended, else the last.
    Last,
    /// The nearest to a time.
    At(u64),
}

/// All that is known of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallDetails {
    pub(crate) mark: CallMark,
    /// Names and values.
    pub(crate) facts: Vec<(String, String)>,
    /// Its stack, innermost frame first.
    pub(crate) stack: Vec<String>,
    /// The ranks that it waits for at the end of the trace; empty if it does not wait.
    pub(crate) waits_for: Vec<u32>,
    /// The same call on the members of its group.
    pub(crate) members: Vec<Member>,
    /// The calls of its rank before it and after it.
    pub(crate) previous: Option<CallMark>,
    pub(crate) next: Option<CallMark>,
}

/// A call on one member of its group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) rank: u32,
    /// Absent when the member did not make it, as far as was recorded.
    pub(crate) call: Option<CallMark>,
    /// False when nothing was recorded of the member.
    pub(crate) recorded: bool,
    /// True when its call differs in name or sizes.
    pub(crate) differs: bool,
}
