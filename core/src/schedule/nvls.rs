//! In-switch reduction inside an NVLink domain (NVLS, NVLink SHARP): one switch, participant n, that
//! reads what it adds up from the ranks and writes results to all of them at once (NCCL's
//! `src/device/all_reduce.h`, `RunWorkColl<…, NCCL_ALGO_NVLS, …>`, with `multimem.ld_reduce` and
//! `multimem.st`; NVIDIA 2022, "The NVLink-network switch"). Each rank is in charge of one chunk of
//! n: it gets its sum from the switch and has the switch write it to everybody. A rank's link
//! carries n + 1 chunks of n each way, where a ring's carries 2 (n - 1).
//!
//! What the switch reads is a message from each rank here, and a multicast one message to each. It
//! adds in pairs, as a tree, so that the order of the additions is fixed; the hardware's is not
//! known.

use super::{Action, Buffer, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;

/// The switch, if there is anybody to switch between.
pub(super) fn switches(n: u32) -> u32 {
    u32::from(n > 1)
}

pub(super) fn steps(collective: Collective, n: u32) -> u32 {
    let sums = super::tree::depth(n);
    match collective {
        Collective::AllReduce { .. } if n > 1 => sums + 4,
        Collective::Broadcast { .. } if n > 1 => 2,
        Collective::AllReduce { .. } | Collective::Broadcast { .. } => 0,
        _ if n == 1 => 1,
        Collective::ReduceScatter { .. } => sums + 2,
        _ => 2,
    }
}

/// Scratch chunks of a participant: the switch keeps what came from each rank.
pub(super) fn scratch(collective: Collective, n: u32, participant: GroupRank) -> u32 {
    match collective {
        _ if n == 1 || participant.0 != n => 0,
        Collective::Broadcast { .. } => 1,
        Collective::AllGather => n,
        Collective::ReduceScatter { .. } => n * n,
        // And, apart, what the ranks want multicast.
        _ => n * n + n,
    }
}

pub(super) fn actions(
    collective: Collective,
    n: u32,
    participant: GroupRank,
    step: u32,
    actions: &mut Vec<Action>,
) {
    let me = participant;
    if n == 1 {
        let (from, into) = (Slice::one(Buffer::Input, 0), Slice::one(Buffer::Output, 0));
        actions.push(Action::Copy { from, into });
    } else if me.0 == n {
        switch(collective, n, step, actions);
    } else {
        rank(collective, n, me, step, actions);
    }
}

fn rank(collective: Collective, n: u32, me: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let (peer, sums) = (GroupRank(n), super::tree::depth(n));
    let whole = |buffer| Slice::run(buffer, 0..n);
    let one = |buffer, chunk| Slice::one(buffer, chunk);
    match (collective, step) {
        (Collective::Broadcast { root }, 0) if me == root => {
            actions.push(Action::Send { peer, from: one(Buffer::Output, 0) });
        }
        (Collective::Broadcast { root }, 1) if me != root => {
            actions.push(Action::Receive { peer, into: one(Buffer::Output, 0) });
        }
        (Collective::Broadcast { .. }, _) => {}
        (Collective::AllGather, 0) => {
            actions.push(Action::Send { peer, from: one(Buffer::Input, 0) });
        }
        (Collective::AllGather, _) => {
            actions.push(Action::Receive { peer, into: whole(Buffer::Output) });
        }
        (Collective::ReduceScatter { .. }, 0) => {
            actions.push(Action::Send { peer, from: whole(Buffer::Input) });
        }
        (Collective::ReduceScatter { .. }, step) if step == sums + 1 => {
            actions.push(Action::Receive { peer, into: one(Buffer::Output, 0) });
        }
        (Collective::AllReduce { .. }, 0) => {
            actions.push(Action::Send { peer, from: whole(Buffer::Output) });
        }
        (Collective::AllReduce { .. }, step) if step == sums + 1 => {
            actions.push(Action::Receive { peer, into: one(Buffer::Output, me.0) });
        }
        (Collective::AllReduce { .. }, step) if step == sums + 2 => {
            actions.push(Action::Send { peer, from: one(Buffer::Output, me.0) });
        }
        (Collective::AllReduce { .. }, step) if step == sums + 3 => {
            actions.push(Action::Receive { peer, into: whole(Buffer::Output) });
        }
        _ => {}
    }
}

fn switch(collective: Collective, n: u32, step: u32, actions: &mut Vec<Action>) {
    let sums = super::tree::depth(n);
    let ranks = || (0..n).map(GroupRank);
    let all_of = |rank: u32| Slice::run(Buffer::Scratch, rank * n..rank * n + n);
    let chunk = |rank: u32| Slice::one(Buffer::Scratch, rank);
    let to_multicast = n * n;
    match (collective, step) {
        (Collective::Broadcast { root }, 0) => {
            actions.push(Action::Receive { peer: root, into: chunk(0) });
        }
        (Collective::Broadcast { root }, _) => {
            let others = ranks().filter(|rank| *rank != root);
            actions.extend(others.map(|peer| Action::Send { peer, from: chunk(0) }));
        }
        (Collective::AllGather, 0) => {
            actions.extend(ranks().map(|peer| Action::Receive { peer, into: chunk(peer.0) }));
        }
        (Collective::AllGather, _) => {
            actions.extend(ranks().map(|peer| Action::Send { peer, from: all_of(0) }));
        }
        (_, 0) => {
            actions.extend(ranks().map(|peer| Action::Receive { peer, into: all_of(peer.0) }));
        }
        (_, step) if step <= sums => {
            for (local, from) in pairs(n, step - 1) {
                let (local, from) = (all_of(local), all_of(from));
                actions.push(Action::Reduce { local, from, into: local });
            }
        }
        (_, step) if step == sums + 1 => {
            actions.extend(ranks().map(|peer| Action::Send { peer, from: chunk(peer.0) }));
        }
        (_, step) if step == sums + 2 => {
            let place = |rank: GroupRank| chunk(to_multicast + rank.0);
            actions.extend(ranks().map(|peer| Action::Receive { peer, into: place(peer) }));
        }
        _ => actions.extend(ranks().map(|peer| Action::Send { peer, from: all_of(n) })),
    }
}

/// Which of `n` operands are added to which at a level of a tree of additions.
pub(super) fn pairs(n: u32, level: u32) -> impl Iterator<Item = (u32, u32)> {
    let apart = 1u32 << level;
    let last = n.saturating_sub(apart);
    (0..last).step_by(2 * apart as usize).map(move |local| (local, local + apart))
}
