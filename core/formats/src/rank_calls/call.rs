//! The calls and groups of one rank.

use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{CallState, Frame, TensorShape};
use std::sync::Arc;

/// More calls of one rank are left out.
pub(crate) const MAX_CALLS: usize = 1 << 22;

/// More computations of a rank, and of all ranks together, are left out.
pub(crate) const MAX_COMPUTED: usize = 1 << 22;

/// A process group that a file names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) desc: String,
    /// In group-rank order; empty where they are not listed in full.
    pub(crate) ranks: Vec<GlobalRank>,
}

/// A kernel, or a copy by the device.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Computed {
    /// Nanoseconds since 1970.
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    pub(crate) name: Arc<str>,
}

/// A training step that the program marked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct MarkedStep {
    pub(crate) number: u64,
    /// Of the process, in nanoseconds since 1970, from and to.
    pub(crate) in_process: (u64, u64),
    /// Of the device, if that was recorded.
    pub(crate) on_device: Option<(u64, u64)>,
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) op: String,
    /// The name of its group; `None` where that is not recorded.
    pub(crate) group: Option<String>,
    pub(crate) seq: Option<u64>,
    pub(crate) peer: Option<GroupRank>,
    pub(crate) tag: u32,
    pub(crate) inputs: Vec<TensorShape>,
    pub(crate) outputs: Vec<TensorShape>,
    pub(crate) reduce_op: Option<ReduceOp>,
    pub(crate) root: Option<GroupRank>,
    /// Nanoseconds since 1970.
    pub(crate) made_ns: u64,
    /// When it was carried out, from and to; on CUDA that is its kernel's time.
    pub(crate) ran_ns: Option<(u64, u64)>,
    /// The state of a call that the file says had not ended.
    pub(crate) unfinished: Option<CallState>,
    /// The Python stack, innermost frame first; empty where the file has none.
    pub(crate) stack: Arc<[Frame]>,
}

/// True of the name of a call between two ranks.
pub(super) fn is_p2p(op: &str) -> bool {
    matches!(op, "send" | "recv")
}
