//! MSCCL's names of collectives.

use lockstep_core::collective::Collective;
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;

/// MSCCL's name of a collective and, for those that our names have, ours with a sum and this root.
pub(super) fn names(root: u32) -> [(&'static str, Collective); 8] {
    let (op, root) = (ReduceOp::Sum, GroupRank(root));
    [
        ("allreduce", Collective::AllReduce { op }),
        ("allgather", Collective::AllGather),
        ("reducescatter", Collective::ReduceScatter { op }),
        ("alltoall", Collective::AllToAll),
        ("broadcast", Collective::Broadcast { root }),
        ("reduce", Collective::Reduce { op, root }),
        ("gather", Collective::Gather { root }),
        ("scatter", Collective::Scatter { root }),
    ]
}
