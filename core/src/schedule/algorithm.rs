//! The families that can carry out a collective, the default among them, and their notable properties.

use super::{Algorithm, Explained};
use crate::collective::Collective;
use crate::group::BackendName;
use crate::rank::GroupRank;
use crate::reduce::ReduceOp;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

/// The families that can carry out a collective, by its name: for [`Algorithm::of`].
static BY_COLLECTIVE: LazyLock<BTreeMap<&'static str, Vec<Algorithm>>> = LazyLock::new(|| {
    let every = Collective::every(ReduceOp::Sum, GroupRank(0));
    let every = every.into_iter().chain([Collective::MonitoredBarrier { wait_all_ranks: false }]);
    let families = |collective: Collective| {
        let carries_out = |algorithm: &Algorithm| algorithm.carries_out(collective);
        let mut families: Vec<_> = Algorithm::ALL.into_iter().filter(carries_out).collect();
        families.sort_by_key(|algorithm| *algorithm != Algorithm::usual(collective));
        families
    };
    every.map(|collective| (collective.name(), families(collective))).collect()
});

impl Algorithm {
    /// True if the family can carry out `collective`, for every group size.
    pub fn carries_out(self, collective: Collective) -> bool {
        self.family().carries_out(collective)
    }

    /// The families that can carry out `collective`, for every group size: first the default of
    /// most backends ([`Algorithm::default_of`]), then the others in the table's order.
    pub fn of(collective: Collective) -> &'static [Algorithm] {
        BY_COLLECTIVE.get(collective.name()).map_or(&[], Vec::as_slice)
    }

    /// An explanation of the family for a `collective` that it can carry out: how it works, the libraries
    /// that use it, and its cost.
    pub fn explained(self, collective: Collective) -> Explained {
        self.explanation().explained(collective)
    }

    /// True if the family's switches are inside the nodes, as NVLink's are, so that messages through them do
    /// not cross the network between nodes.
    pub fn has_switches_inside_nodes(self) -> bool {
        self.family().has_switches_inside_nodes()
    }

    /// The default of most backends.
    fn usual(collective: Collective) -> Algorithm {
        match collective {
            Collective::AllReduce { .. }
            | Collective::AllGather
            | Collective::ReduceScatter { .. } => Algorithm::Ring,
            Collective::Broadcast { .. } | Collective::Reduce { .. } => Algorithm::Tree,
            Collective::AllToAll
            | Collective::Gather { .. }
            | Collective::Scatter { .. }
            | Collective::MonitoredBarrier { .. } => Algorithm::Direct,
            Collective::Barrier => Algorithm::Dissemination,
        }
    }

    /// The algorithm of a group on `backend` for `collective` where a plan names none: the first of
    /// [`Algorithm::of`], but for NCCL's barrier. That is an all_reduce of one element
    /// (`ProcessGroupNCCL::barrier`): up a tree and down again, where gloo's and MPI's disseminates
    /// (gloo's `barrier.cc`).
    pub fn default_of(collective: Collective, backend: BackendName) -> Algorithm {
        match (collective, backend) {
            (Collective::Barrier, BackendName::Nccl) => Algorithm::Tree,
            _ => Algorithm::usual(collective),
        }
    }

    /// The algorithm of `size` ranks that share their memory for `collective` with `bytes` a rank
    /// where a plan names none, if not by [`Algorithm::default_of`].
    ///
    /// Each rank reads its peers' tensors where they are, so that a direct exchange moves no byte
    /// more than a ring or a tree: an all_reduce in two shots adds all ranks' parts in one pass
    /// through memory, where a ring takes one a step. And where ranks share cores a step costs a
    /// switch between processes, so few steps win however small the messages. Measured with
    /// `bench_collectives` (`docs/benchmarks.md`). Channels grow with the square of the ranks,
    /// hence not beyond [`Algorithm::MOST_IN_SHARED_MEMORY`].
    pub(crate) fn in_shared_memory(
        collective: Collective,
        size: u32,
        bytes: u64,
    ) -> Option<Algorithm> {
        if size > Algorithm::MOST_IN_SHARED_MEMORY {
            return None;
        }
        match collective {
            Collective::AllReduce { .. } if bytes <= Algorithm::MOST_IN_ONE_SHOT => {
                Some(Algorithm::OneShot)
            }
            Collective::AllReduce { .. } => Some(Algorithm::TwoShot),
            Collective::AllGather
            | Collective::ReduceScatter { .. }
            | Collective::Broadcast { .. }
            | Collective::Reduce { .. } => Some(Algorithm::Direct),
            // Two steps however many, and whoever is first out is the one that others hear from.
            Collective::Barrier if size > 2 => Some(Algorithm::Direct),
            _ => None,
        }
    }

    /// Ranks up to which [`Algorithm::in_shared_memory`] has direct exchanges.
    pub(crate) const MOST_IN_SHARED_MEMORY: u32 = 16;

    /// Bytes up to which an all_reduce in shared memory takes one shot.
    pub(crate) const MOST_IN_ONE_SHOT: u64 = 8 << 10;

    /// Bytes up to which the sender of a message in shared memory copies it, so that it need not wait
    /// until its receiver has read it; larger ones are read where they are. Measured as the above.
    pub const MOST_COPIED_IN_SHARED_MEMORY: u64 = 4 << 10;
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
