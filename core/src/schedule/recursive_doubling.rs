//! Recursive doubling: in round k, places at distance 2^k exchange all they have (Thakur,
//! Rabenseifner, Gropp 2005, section 4, on all_gather and on all_reduce). Sizes that are no powers
//! of two are folded ([`Fold`]); MPICH's all_gather takes Bruck's algorithm there.

use super::fold::{Fold, Phase, Role};
use super::{Action, Buffer, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;

pub(super) fn steps(collective: Collective, n: u32) -> u32 {
    let fold = Fold::new(n);
    let rounds = fold.rounds();
    match collective {
        // Without folding, an odd number of rounds leaves the result to be copied.
        Collective::AllReduce { .. } if !fold.folds() => rounds + rounds % 2,
        _ => fold.steps(rounds).max(u32::from(!collective.in_place())),
    }
}

/// Scratch chunks: all_reduce needs a second place for the whole tensor, because it may not be
/// written while it is still being sent.
pub(super) fn scratch(collective: Collective, n: u32) -> u32 {
    u32::from(collective.in_place() && n > 1)
}

pub(super) fn actions(
    collective: Collective,
    n: u32,
    rank: GroupRank,
    step: u32,
    actions: &mut Vec<Action>,
) {
    match collective {
        Collective::AllReduce { .. } => all_reduce(n, rank, step, actions),
        Collective::AllGather => all_gather(n, rank, step, actions),
        _ => {}
    }
}

/// The sum so far alternates between output and scratch.
fn all_reduce(n: u32, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let fold = Fold::new(n);
    let output = Slice::one(Buffer::Output, 0);
    let sum_before = |round: u32| match round % 2 {
        0 => output,
        _ => Slice::one(Buffer::Scratch, 0),
    };
    match (fold.role(rank), fold.phase(step, fold.rounds())) {
        (Role::Folded { to }, Phase::Before) => {
            actions.push(Action::Send { peer: to, from: output });
        }
        (Role::Folded { to }, Phase::After) => {
            actions.push(Action::Receive { peer: to, into: output });
        }
        (Role::Core { also_for: Some(peer), .. }, Phase::Before) => {
            actions.push(Action::ReceiveReduce { peer, local: output, into: output });
        }
        (Role::Core { place, .. }, Phase::Round(round)) => {
            let peer = fold.rank_at(place ^ (1 << round));
            let local = sum_before(round);
            actions.push(Action::Send { peer, from: local });
            actions.push(Action::ReceiveReduce { peer, local, into: sum_before(round + 1) });
        }
        (Role::Core { also_for, .. }, Phase::After) => {
            let from = sum_before(fold.rounds());
            actions.extend(also_for.map(|peer| Action::Send { peer, from }));
            if from != output {
                actions.push(Action::Copy { from, into: output });
            }
        }
        (Role::Folded { .. }, Phase::Round(_)) | (Role::Core { .. }, Phase::Before) => {}
    }
}

/// After round k a place holds the parts of 2^(k+1) places.
fn all_gather(n: u32, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let fold = Fold::new(n);
    let own = Slice::one(Buffer::Input, 0);
    let parts = |place, count| Slice::run(Buffer::Output, fold.ranks(place, count));
    let everything = Slice::run(Buffer::Output, 0..n);
    let role = fold.role(rank);
    if step == 0 && matches!(role, Role::Core { .. }) {
        actions.push(Action::Copy { from: own, into: Slice::one(Buffer::Output, rank.0) });
    }
    match (role, fold.phase(step, fold.rounds())) {
        (Role::Folded { to }, Phase::Before) => actions.push(Action::Send { peer: to, from: own }),
        (Role::Folded { to }, Phase::After) => {
            actions.push(Action::Receive { peer: to, into: everything });
        }
        (Role::Core { also_for: Some(peer), .. }, Phase::Before) => {
            actions.push(Action::Receive { peer, into: Slice::one(Buffer::Output, peer.0) });
        }
        (Role::Core { place, .. }, Phase::Round(round)) => {
            let distance = 1 << round;
            let block = place & !(distance - 1);
            let from = if step == 0 { own } else { parts(block, distance) };
            let peer = fold.rank_at(place ^ distance);
            actions.push(Action::Send { peer, from });
            actions.push(Action::Receive { peer, into: parts(block ^ distance, distance) });
        }
        (Role::Core { also_for: Some(peer), .. }, Phase::After) => {
            actions.push(Action::Send { peer, from: everything });
        }
        (Role::Folded { .. }, Phase::Round(_)) | (Role::Core { .. }, _) => {}
    }
}
