//! The collectives that a form offers, by name.

use lockstep_core::collective::Collective;
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;

/// The names of the collectives, in the order of the list.
pub(super) const COLLECTIVES: [&str; 10] = [
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
    "barrier",
    "monitored_barrier",
];

/// The collective of that name; `all_reduce` for a name that is none.
pub(super) fn collective(name: &str, op: ReduceOp, root: GroupRank) -> Collective {
    match name {
        "broadcast" => Collective::Broadcast { root },
        "reduce" => Collective::Reduce { op, root },
        "all_gather" => Collective::AllGather,
        "gather" => Collective::Gather { root },
        "scatter" => Collective::Scatter { root },
        "reduce_scatter" => Collective::ReduceScatter { op },
        "all_to_all" => Collective::AllToAll,
        "barrier" => Collective::Barrier,
        "monitored_barrier" => Collective::MonitoredBarrier { wait_all_ranks: false },
        _ => Collective::AllReduce { op },
    }
}
