//! The collectives of torch.distributed, with the arguments that all ranks must agree on.

use crate::rank::GroupRank;
use crate::reduce::ReduceOp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One collective call's kind and arguments. Roots are *group* ranks
/// (`group_src` / `group_dst` in PyTorch's newer signatures).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collective {
    /// `dist.broadcast`: the root's tensor to every rank, in place.
    Broadcast {
        /// The rank whose tensor is sent.
        root: GroupRank,
    },
    /// `dist.all_reduce`: the reduction of all tensors to every rank, in place.
    AllReduce {
        /// The operation that combines elements.
        op: ReduceOp,
    },
    /// `dist.reduce`: the reduction of all tensors to the root. The others' tensors may be left
    /// with partial results, as gloo leaves them.
    Reduce {
        /// The operation that combines elements.
        op: ReduceOp,
        /// The rank that gets the result.
        root: GroupRank,
    },
    /// `dist.all_gather_into_tensor`: every rank's tensor, one after the other, on every rank.
    AllGather,
    /// `dist.gather`: every rank's tensor, one after the other, on the root.
    Gather {
        /// The rank that gets the result.
        root: GroupRank,
    },
    /// `dist.scatter`: part i of the root's tensor to rank i.
    Scatter {
        /// The rank whose tensor is cut up.
        root: GroupRank,
    },
    /// `dist.reduce_scatter_tensor`: part i of the reduction to rank i.
    ReduceScatter {
        /// The operation that combines elements.
        op: ReduceOp,
    },
    /// `dist.all_to_all_single` with equal splits: part i of every rank's tensor to rank i.
    AllToAll,
    /// `dist.barrier`: no rank leaves before every rank has come.
    Barrier,
    /// `dist.monitored_barrier` (gloo): every rank reports to rank 0, which answers when all have; on a
    /// timeout rank 0 names the missing ranks.
    MonitoredBarrier {
        /// True if rank 0 names every missing rank, false if only the first that it waits for.
        wait_all_ranks: bool,
    },
}

impl Collective {
    /// Every collective but `monitored_barrier`, with that reduction and root.
    pub fn every(op: ReduceOp, root: GroupRank) -> [Collective; 9] {
        [
            Collective::Broadcast { root },
            Collective::AllReduce { op },
            Collective::Reduce { op, root },
            Collective::AllGather,
            Collective::Gather { root },
            Collective::Scatter { root },
            Collective::ReduceScatter { op },
            Collective::AllToAll,
            Collective::Barrier,
        ]
    }

    /// PyTorch's name of the call.
    pub fn name(self) -> &'static str {
        match self {
            Collective::Broadcast { .. } => "broadcast",
            Collective::AllReduce { .. } => "all_reduce",
            Collective::Reduce { .. } => "reduce",
            Collective::AllGather => "all_gather",
            Collective::Gather { .. } => "gather",
            Collective::Scatter { .. } => "scatter",
            Collective::ReduceScatter { .. } => "reduce_scatter",
            Collective::AllToAll => "all_to_all",
            Collective::Barrier => "barrier",
            Collective::MonitoredBarrier { .. } => "monitored_barrier",
        }
    }

    /// The root, if the call has one.
    pub fn root(self) -> Option<GroupRank> {
        match self {
            Collective::Broadcast { root }
            | Collective::Reduce { root, .. }
            | Collective::Gather { root }
            | Collective::Scatter { root } => Some(root),
            _ => None,
        }
    }

    /// The reduction, if the call makes one.
    pub fn reduce_op(self) -> Option<ReduceOp> {
        match self {
            Collective::AllReduce { op }
            | Collective::Reduce { op, .. }
            | Collective::ReduceScatter { op } => Some(op),
            _ => None,
        }
    }

    /// True when input and output are the same tensor (`broadcast`, `all_reduce`, `reduce`).
    pub fn in_place(self) -> bool {
        matches!(
            self,
            Collective::Broadcast { .. } | Collective::AllReduce { .. } | Collective::Reduce { .. }
        )
    }

    /// True for the calls that carry no elements.
    pub fn is_barrier(self) -> bool {
        matches!(self, Collective::Barrier | Collective::MonitoredBarrier { .. })
    }

    /// Elements of the tensor that `rank` passes in, for `count` elements a rank in a group of
    /// `size`; `None` when the rank passes none (a barrier, a scatter's non-roots, and the
    /// in-place calls, whose one tensor is the output).
    pub fn input_elements(self, size: u32, rank: GroupRank, count: u64) -> Option<u64> {
        match self {
            Collective::AllGather | Collective::Gather { .. } => Some(count),
            Collective::ReduceScatter { .. } | Collective::AllToAll => {
                Some(count.saturating_mul(u64::from(size)))
            }
            Collective::Scatter { root } => {
                (rank == root).then(|| count.saturating_mul(u64::from(size)))
            }
            _ => None,
        }
    }

    /// Elements of the tensor that `rank` gets the result in, or `None` if it gets none.
    pub fn output_elements(self, size: u32, rank: GroupRank, count: u64) -> Option<u64> {
        match self {
            Collective::Barrier | Collective::MonitoredBarrier { .. } => None,
            Collective::AllGather | Collective::AllToAll => {
                Some(count.saturating_mul(u64::from(size)))
            }
            Collective::Gather { root } => {
                (rank == root).then(|| count.saturating_mul(u64::from(size)))
            }
            _ => Some(count),
        }
    }

    /// True when the collective promises `rank` something in its output: all ranks, except for
    /// `reduce` and `gather`, which promise only the root.
    pub fn promises(self, rank: GroupRank) -> bool {
        match self {
            Collective::Reduce { root, .. } | Collective::Gather { root } => rank == root,
            _ => !self.is_barrier(),
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The parts of an uneven `all_to_all_single`, in elements by group rank, as one rank passes them
/// (`input_split_sizes`, `output_split_sizes`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Splits {
    /// The elements that go to each rank.
    pub input: Vec<u64>,
    /// The elements that come from each rank.
    pub output: Vec<u64>,
}
