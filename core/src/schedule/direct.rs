//! Direct schedules: partners talk without relays, as NCCL's grouped send/recv does for gather,
//! scatter and all_to_all (`src/enqueue.cc`, `ncclFuncAlltoAll`).
//!
//! all_reduce in two shots: a direct reduce_scatter, then a direct all_gather, as in the kernels
//! for fully connected nodes (TensorRT-LLM's `customAllReduceKernels.cu`, `twoShotAllReduceKernel`).

use super::{Action, Buffer, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;

/// One step, except where a rank must add up what several send: then one sender a step, so that
/// the order of the additions is fixed.
pub(super) fn steps(collective: Collective, n: u32) -> u32 {
    match collective {
        Collective::Reduce { .. } => n - 1,
        Collective::ReduceScatter { .. } => (n - 1).max(1),
        Collective::Broadcast { .. } => u32::from(n > 1),
        // Rank 0 hears from one rank after the other, then answers all.
        Collective::Barrier | Collective::MonitoredBarrier { .. } => n,
        _ => 1,
    }
}

pub(super) fn actions(
    collective: Collective,
    n: u32,
    rank: GroupRank,
    step: u32,
    actions: &mut Vec<Action>,
) {
    let input = |chunk| Slice::one(Buffer::Input, chunk);
    let output = |chunk| Slice::one(Buffer::Output, chunk);
    let others = || (1..n).map(|i| GroupRank(ahead(rank.0, i, n)));
    match collective {
        Collective::Broadcast { root } if rank == root => {
            actions.extend(others().map(|peer| Action::Send { peer, from: output(0) }));
        }
        Collective::Broadcast { root } => {
            actions.push(Action::Receive { peer: root, into: output(0) });
        }
        Collective::Reduce { root, .. } => {
            let peer = GroupRank(ahead(root.0, step + 1, n));
            let whole = output(0);
            if rank == root {
                actions.push(Action::ReceiveReduce { peer, local: whole, into: whole });
            } else if rank == peer {
                actions.push(Action::Send { peer: root, from: whole });
            }
        }
        Collective::Gather { root } if rank == root => {
            actions.push(Action::Copy { from: input(0), into: output(rank.0) });
            actions.extend(others().map(|peer| Action::Receive { peer, into: output(peer.0) }));
        }
        Collective::Gather { root } => {
            actions.push(Action::Send { peer: root, from: input(0) });
        }
        Collective::Scatter { root } if rank == root => {
            actions.push(Action::Copy { from: input(rank.0), into: output(0) });
            actions.extend(others().map(|peer| Action::Send { peer, from: input(peer.0) }));
        }
        Collective::Scatter { root } => {
            actions.push(Action::Receive { peer: root, into: output(0) });
        }
        Collective::AllToAll => {
            actions.push(Action::Copy { from: input(rank.0), into: output(rank.0) });
            actions.extend(others().map(|peer| Action::Send { peer, from: input(peer.0) }));
            actions.extend(others().map(|peer| Action::Receive { peer, into: output(peer.0) }));
        }
        Collective::AllGather => {
            actions.push(Action::Copy { from: input(0), into: output(rank.0) });
            actions.extend(others().map(|peer| Action::Send { peer, from: input(0) }));
            actions.extend(others().map(|peer| Action::Receive { peer, into: output(peer.0) }));
        }
        Collective::ReduceScatter { .. } if n == 1 => {
            actions.push(Action::Copy { from: input(0), into: output(0) });
        }
        Collective::ReduceScatter { .. } => {
            let to = GroupRank(ahead(rank.0, step + 1, n));
            let peer = GroupRank(ahead(rank.0, n - step - 1, n));
            let local = if step == 0 { input(rank.0) } else { output(0) };
            actions.push(Action::Send { peer: to, from: input(to.0) });
            actions.push(Action::ReceiveReduce { peer, local, into: output(0) });
        }
        Collective::Barrier | Collective::MonitoredBarrier { .. } => {
            monitored_barrier(n, rank, step, actions);
        }
        Collective::AllReduce { .. } => {}
    }
}

/// Rank 0 hears from one rank after the other, then answers all of them
/// (`ProcessGroupGloo::monitoredBarrier`, which receives in rank order too).
fn monitored_barrier(n: u32, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let (own, heard) = (Slice::one(Buffer::Input, 0), Slice::one(Buffer::Scratch, 0));
    let first = GroupRank(0);
    match (rank == first, step + 1 < n) {
        (true, true) => {
            let local = if step == 0 { own } else { heard };
            actions.push(Action::ReceiveReduce { peer: GroupRank(step + 1), local, into: heard });
        }
        (true, false) if n == 1 => actions.push(Action::Copy { from: own, into: heard }),
        (true, false) => {
            let others = (1..n).map(|peer| Action::Send { peer: GroupRank(peer), from: heard });
            actions.extend(others);
        }
        (false, true) if rank.0 == step + 1 => {
            actions.push(Action::Send { peer: first, from: own });
        }
        (false, true) => {}
        (false, false) => actions.push(Action::Receive { peer: first, into: heard }),
    }
}

/// Steps of the two shots: one sender a step for the first, one step for the second.
pub(super) fn two_shot_steps(n: u32) -> u32 {
    if n == 1 { 0 } else { n }
}

/// all_reduce in place, over n chunks; rank r finishes chunk r, so all ranks get the same bits.
pub(super) fn two_shot(n: u32, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let chunk = |of: GroupRank| Slice::one(Buffer::Output, of.0);
    let own = chunk(rank);
    if step + 1 < n {
        let to = GroupRank(ahead(rank.0, step + 1, n));
        let peer = GroupRank(ahead(rank.0, n - step - 1, n));
        actions.push(Action::Send { peer: to, from: chunk(to) });
        actions.push(Action::ReceiveReduce { peer, local: own, into: own });
        return;
    }
    let others = || (1..n).map(|i| GroupRank(ahead(rank.0, i, n)));
    actions.extend(others().map(|peer| Action::Send { peer, from: own }));
    actions.extend(others().map(|peer| Action::Receive { peer, into: chunk(peer) }));
}

/// `(rank + by) mod n`.
fn ahead(rank: u32, by: u32, n: u32) -> u32 {
    ((u64::from(rank) + u64::from(by)) % u64::from(n)) as u32
}
