//! The names in a dump: `nccl:send 0->1`, `[0, 1]`.

use lockstep_core::group::BackendName;
use lockstep_core::rank::{GlobalRank, GroupRank};

/// A `profiling_name`, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallName<'a> {
    /// The backend of the call.
    pub(super) backend: BackendName,
    /// PyTorch's public name of the call.
    pub(super) op: &'a str,
    /// True for send and recv.
    pub(super) p2p: bool,
    /// The caller of a point-to-point call.
    pub(super) own: Option<GroupRank>,
    /// Its other side.
    pub(super) peer: Option<GroupRank>,
    /// True if the backend need not report the end of a call: torch retires its calls when they are issued.
    pub(super) ends_unseen: bool,
}

/// The backend of a profiling name, and whether it need not report the end of a call.
///
/// torch 2.15 records every backend through one hook, by the backend's own name. It follows the works of gloo
/// and of its own NCCL backends; of others it retires a call as soon as that is issued
/// (`FlightRecorderHook.cpp`, `tracksWorkCompletion`). Backends that are made like NCCL's put calls on streams
/// as it does.
fn backend(name: &str) -> (BackendName, bool) {
    match name {
        "nccl" | "nccl2" | "nccl-lazy" => (BackendName::Nccl, false),
        "ncclx" | "rccl" | "rcclx" | "hccl" | "xccl" => (BackendName::Nccl, true),
        "gloo" => (BackendName::Gloo, false),
        "mpi" => (BackendName::Mpi, true),
        _ => (BackendName::Unknown, false),
    }
}

/// Takes `nccl:all_reduce`, `nccl2:send`, `nccl:send 1->2` or `gloo:recv 3<-?` apart.
pub(super) fn call_name(name: &str) -> CallName<'_> {
    let (said, call) = name.split_once(':').unwrap_or(("", name));
    let (backend, ends_unseen) = backend(said);
    let (op, ranks) = call.split_once(' ').unwrap_or((call, ""));
    let p2p = matches!(op, "send" | "recv" | "isend" | "irecv" | "recvAnySource" | "recv_any");
    let sides = ranks.split_once("->").or_else(|| ranks.split_once("<-"));
    let rank = |text: &str| text.trim().parse().ok().map(GroupRank);
    CallName {
        backend,
        op: public_name(op),
        p2p,
        own: sides.filter(|_| p2p).and_then(|(own, _)| rank(own)),
        peer: sides.filter(|_| p2p).and_then(|(_, peer)| rank(peer)),
        ends_unseen,
    }
}

/// The name under which users know a call that the backends record by an internal one.
pub(crate) fn public_name(op: &str) -> &str {
    match op {
        "allreduce" | "ALLREDUCE" => "all_reduce",
        "all_reduce_barrier" => "barrier",
        "_all_gather_base" | "_allgather_base" | "all_gather_into_tensor" | "allgather" => {
            "all_gather"
        }
        "_reduce_scatter_base" | "reduce_scatter_tensor" => "reduce_scatter",
        "_broadcast_oop" => "broadcast",
        "_reduce_oop" => "reduce",
        "all_to_all_single" | "alltoall" | "alltoall_base" | "all_to_allv" => "all_to_all",
        "isend" => "send",
        "irecv" | "recvAnySource" | "recv_any" => "recv",
        other => other,
    }
}

/// True if no rank can come out of a collective, by its public name, before every rank has come into it.
pub fn needs_all(op: &str) -> bool {
    let op = op.strip_suffix("_coalesced").unwrap_or(op);
    matches!(op, "all_reduce" | "all_gather" | "reduce_scatter" | "all_to_all" | "barrier")
}

/// Reads `[0, 1]`, the way `pg_config` writes ranks; `None` if it is anything else.
pub(crate) fn rank_list(text: &str) -> Option<Vec<GlobalRank>> {
    let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?.trim();
    if inner.is_empty() {
        return Some(Vec::new());
    }
    inner.split(',').map(|rank| rank.trim().parse().ok().map(GlobalRank)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let name = call_name("nccl:recv 3<-10");
        assert_eq!((name.backend, name.op, name.p2p), (BackendName::Nccl, "recv", true));
        assert_eq!((name.own, name.peer), (Some(GroupRank(3)), Some(GroupRank(10))));
        assert_eq!(call_name("gloo:recv 3<-?").peer, None);
        for (name, ends_unseen) in [("nccl2", false), ("nccl-lazy", false), ("rccl", true)] {
            let send = format!("{name}:send");
            let send = call_name(&send);
            assert_eq!((send.backend, send.p2p, send.peer), (BackendName::Nccl, true, None));
            assert_eq!(send.ends_unseen, ends_unseen, "{name}");
        }
        for name in ["ncclx", "rcclx", "hccl", "xccl"] {
            let name = format!("{name}:all_reduce");
            let call = call_name(&name);
            assert_eq!((call.backend, call.op), (BackendName::Nccl, "all_reduce"));
            assert!(call.ends_unseen, "{name}");
        }
        assert_eq!(call_name("nccl:_all_gather_base").op, "all_gather");
        assert_eq!(call_name("weird").op, "weird");
        assert_eq!(call_name("").op, "");
    }

    #[test]
    fn rank_lists() {
        assert_eq!(rank_list("[0, 12]"), Some(vec![GlobalRank(0), GlobalRank(12)]));
        assert_eq!(rank_list("[]"), Some(vec![]));
        assert_eq!(rank_list("[0, -1]"), None);
        assert_eq!(rank_list("0, 1"), None);
    }
}
