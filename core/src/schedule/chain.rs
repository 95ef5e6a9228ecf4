//! The pipelined chain: the root passes the tensor on segment by segment, and every rank passes a
//! segment on while it receives the next; a reduction runs the chain backwards (Pješivac-Grbović,
//! Angskun, Bosilca, Fagg, Gabriel, Dongarra 2007, "Performance analysis of MPI collective
//! operations"; Open MPI's `ompi_coll_base_bcast_intra_pipeline`). With k segments it takes
//! n + k - 2 steps of 1/k of the tensor each. This is what NCCL calls the ring of its broadcast and
//! reduce (`src/device/broadcast.h`, `reduce.h`): nothing ever crosses the ring's last edge.
//!
//! Here is one segment's way; the segments are lanes ([`super::lanes`]). Their best number grows
//! with the square root of the tensor's bytes; ours is NCCL's: one for every 512 KiB
//! ([`super::Schedule::sized`]).

use super::{Action, Buffer, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;

pub(super) fn steps(n: u32) -> u32 {
    n - 1
}

pub(super) fn actions(
    collective: Collective,
    n: u32,
    rank: GroupRank,
    step: u32,
    actions: &mut Vec<Action>,
) {
    let Some(root) = collective.root() else { return };
    let (n, root, rank) = (u64::from(n), u64::from(root.0), u64::from(rank.0));
    let place = (rank + n - root) % n;
    let rank_at = |place: u64| GroupRank(((place + root) % n) as u32);
    let step = u64::from(step);
    let whole = Slice::one(Buffer::Output, 0);
    if collective.reduce_op().is_none() {
        if place == step {
            actions.push(Action::Send { peer: rank_at(place + 1), from: whole });
        } else if place == step + 1 {
            actions.push(Action::Receive { peer: rank_at(step), into: whole });
        }
        return;
    }
    // A reduction begins at the far end.
    let sender = n - 1 - step;
    if place == sender {
        actions.push(Action::Send { peer: rank_at(sender - 1), from: whole });
    } else if place + 1 == sender {
        let peer = rank_at(sender);
        actions.push(Action::ReceiveReduce { peer, local: whole, into: whole });
    }
}
