//! The calls and groups of one profile.

use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::trace::TensorShape;

/// More calls of one rank are left out.
pub(super) const MAX_CALLS: usize = 1 << 22;

/// A process group that a profile names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) desc: String,
    /// In group-rank order; empty where they are not listed in full.
    pub(super) ranks: Vec<GlobalRank>,
}

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) op: String,
    /// The name of its group; `None` where that is not recorded.
    pub(super) group: Option<String>,
    pub(super) seq: Option<u64>,
    pub(super) peer: Option<GroupRank>,
    pub(super) tag: u32,
    pub(super) inputs: Vec<TensorShape>,
    pub(super) outputs: Vec<TensorShape>,
    pub(super) root: Option<GroupRank>,
    /// Nanoseconds since 1970.
    pub(super) made_ns: u64,
    /// When it was carried out, from and to; on CUDA that is its kernel's time.
    pub(super) ran_ns: Option<(u64, u64)>,
}
