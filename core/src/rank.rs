//! Ranks, in the two numberings that torch.distributed uses and that must never be mixed.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The most ranks that a plan, a trace or a dump can have: it keeps a stranger's file bounded.
pub const MAX_WORLD_SIZE: u32 = 1 << 20;

/// A rank of the job: `dist.get_rank()` with no group. Counted from 0 to world size - 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GlobalRank(pub u32);

/// A rank inside one process group: `dist.get_group_rank(group, global_rank)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupRank(pub u32);

impl GlobalRank {
    /// The rank as an index into per-rank tables.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl GroupRank {
    /// The rank as an index into per-member tables.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for GlobalRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for GroupRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
