//! An entry of a dump: its own values, and those that it shares with others of the same line.

use lockstep_core::trace::{Frame, TensorShape};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One call as its rank recorded it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The call and its place: an index of [`Dump::sites`](super::Dump::sites).
    pub site: u32,
    /// True if the state says that it runs, or ran.
    pub started: bool,
    /// True if the state says so, or the recorder retired the call and does not show that it failed.
    pub completed: bool,
    /// The call's number in the recorder since the rank started.
    pub record_id: Option<u64>,
    /// The number of the collective in its group.
    pub collective_seq: Option<u64>,
    /// The number of the point-to-point call in its group.
    pub p2p_seq: Option<u64>,
    /// When the call was made, in nanoseconds since 1970.
    pub created_ns: u64,
    /// When it was first seen running, if that was recorded.
    pub started_ns: Option<u64>,
    /// When it was first seen done, if that was recorded.
    pub completed_ns: Option<u64>,
}

impl Entry {
    /// True if all that says that the call ended is that the recorder retired it.
    pub(super) fn is_only_retired(&self) -> bool {
        self.completed && !self.started && self.completed_ns.is_none()
    }
}

/// The common part of the calls of one line: a dump has thousands of entries and few of these.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Site {
    /// The call: `nccl:all_reduce`, `nccl:send 0->1`.
    pub profiling_name: Arc<str>,
    /// The group's number on this rank only: the n-th group that it is a member of.
    pub pg_id: u64,
    /// The group's unique name; the same on all ranks. `None` before torch 2.4.
    pub group: Option<Arc<str>>,
    /// The group's description.
    pub group_desc: Arc<str>,
    /// True for send and recv.
    pub p2p: bool,
    /// Tensors passed in.
    pub inputs: Vec<TensorShape>,
    /// Tensors for the result.
    pub outputs: Vec<TensorShape>,
    /// The group's timeout in milliseconds.
    pub timeout_ms: Option<u64>,
    /// The Python stack, innermost frame first.
    pub stack: Arc<[Frame]>,
}

/// The numbers that a file gives of an entry.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbers<'a> {
    pub(super) record_id: Option<u64>,
    pub(super) collective_seq: Option<u64>,
    pub(super) p2p_seq: Option<u64>,
    pub(super) created_ns: Option<u64>,
    pub(super) started_ns: Option<u64>,
    pub(super) completed_ns: Option<u64>,
    pub(super) state: &'a str,
    pub(super) retired: bool,
}

impl Numbers<'_> {
    /// The entry of a site.
    pub(super) fn entry(self, site: u32) -> Entry {
        // JSON writes 0 where the pickle writes None.
        let time = |ns: Option<u64>| ns.filter(|ns| *ns > 0);
        let completed_ns = time(self.completed_ns);
        Entry {
            site,
            started: matches!(self.state, "started" | "completed"),
            // A watchdog retires a call that it gave up, too: that one began, and its end was not seen.
            completed: self.state == "completed"
                || completed_ns.is_some()
                || (self.retired && self.state != "started"),
            record_id: self.record_id,
            collective_seq: self.collective_seq,
            p2p_seq: self.p2p_seq,
            created_ns: self.created_ns.unwrap_or(0),
            started_ns: time(self.started_ns),
            completed_ns,
        }
    }
}
