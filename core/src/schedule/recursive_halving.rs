//! Recursive halving: in each round two places each give away half of what they still hold and
//! reduce the other half.
//!
//! - reduce_scatter: Thakur, Rabenseifner, Gropp 2005, section 4, on reduce-scatter.
//! - all_reduce: Rabenseifner 2004, "Optimization of collective reduction operations":
//!   reduce-scatter by vector halving and distance doubling, then the same backwards as an
//!   all-gather. The largest messages go to the nearest ranks.
//! - reduce: the same reduce-scatter, then only what goes towards the root of the way back: a
//!   binomial gather (Rabenseifner 2004; Thakur, Rabenseifner, Gropp 2005, section 4, on reduce).
//!
//! Sizes that are no powers of two are folded ([`Fold`]).

use super::fold::{Fold, Phase, Role};
use super::{Action, Buffer, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;

pub(super) fn steps(collective: Collective, n: u32) -> u32 {
    let fold = Fold::new(n);
    match collective {
        Collective::AllReduce { .. } => fold.steps(2 * fold.rounds()),
        Collective::Reduce { root, .. } => {
            let (before, after) = (fold.folds(), matches!(fold.role(root), Role::Folded { .. }));
            u32::from(before) + 2 * fold.rounds() + u32::from(after)
        }
        _ => fold.steps(fold.rounds()).max(1),
    }
}

/// Scratch chunks: reduce_scatter keeps the sum so far of part i in chunk i, since its input is
/// never written; two ranks go from input to output at once.
pub(super) fn scratch(collective: Collective, n: u32) -> u32 {
    if collective.in_place() || n <= 2 { 0 } else { n }
}

pub(super) fn actions(
    collective: Collective,
    n: u32,
    rank: GroupRank,
    step: u32,
    actions: &mut Vec<Action>,
) {
    match collective {
        Collective::AllReduce { .. } => all_reduce(n, rank, None, step, actions),
        Collective::Reduce { root, .. } => all_reduce(n, rank, Some(root), step, actions),
        Collective::ReduceScatter { .. } => reduce_scatter(n, rank, step, actions),
        _ => {}
    }
}

/// In place, over as many chunks as there are places; a place finishes the chunk whose number is
/// its own, bits reversed. With a root, the way back is only that to its place.
fn all_reduce(
    n: u32,
    rank: GroupRank,
    root: Option<GroupRank>,
    step: u32,
    actions: &mut Vec<Action>,
) {
    let fold = Fold::new(n);
    let rounds = fold.rounds();
    let roots_place = root.map(|root| fold.place_of(root));
    let is_for = |rank: GroupRank| root.is_none_or(|root| root == rank);
    let whole = Slice::run(Buffer::Output, 0..fold.places);
    match (fold.role(rank), fold.phase(step, 2 * rounds)) {
        (Role::Folded { to }, Phase::Before) => {
            actions.push(Action::Send { peer: to, from: whole });
        }
        (Role::Folded { to }, Phase::After) if is_for(rank) => {
            actions.push(Action::Receive { peer: to, into: whole });
        }
        (Role::Core { also_for: Some(peer), .. }, Phase::Before) => {
            actions.push(Action::ReceiveReduce { peer, local: whole, into: whole });
        }
        (Role::Core { also_for: Some(peer), .. }, Phase::After) if is_for(peer) => {
            actions.push(Action::Send { peer, from: whole });
        }
        (Role::Core { place, .. }, Phase::Round(round)) => {
            // The second half of the rounds goes back the way the first half came.
            let halving = round < rounds;
            let level = if halving { round } else { 2 * rounds - 1 - round };
            let peer = fold.rank_at(place ^ (1 << level));
            let width = fold.places >> (level + 1);
            let finishes = place.reverse_bits() >> (u32::BITS - rounds);
            let block = finishes & !(width - 1);
            let mine = Slice::run(Buffer::Output, block..block + width);
            let other = block ^ width;
            let theirs = Slice::run(Buffer::Output, other..other + width);
            if halving {
                actions.push(Action::Send { peer, from: theirs });
                actions.push(Action::ReceiveReduce { peer, local: mine, into: mine });
                return;
            }
            // Who has not handed its part on yet agrees with the root's place above this level.
            let apart = roots_place.map(|root| (root ^ place) >> level);
            if matches!(apart, None | Some(1)) {
                actions.push(Action::Send { peer, from: mine });
            }
            if matches!(apart, None | Some(0)) {
                actions.push(Action::Receive { peer, into: theirs });
            }
        }
        (Role::Folded { .. }, _) | (Role::Core { .. }, _) => {}
    }
}

/// Distances halve too, so that place i is left with the parts of the ranks it stands for.
fn reduce_scatter(n: u32, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let fold = Fold::new(n);
    let result = Slice::one(Buffer::Output, 0);
    if n == 1 {
        actions.push(Action::Copy { from: Slice::one(Buffer::Input, 0), into: result });
        return;
    }
    let whole = Slice::run(Buffer::Input, 0..n);
    match (fold.role(rank), fold.phase(step, fold.rounds())) {
        (Role::Folded { to }, Phase::Before) => {
            actions.push(Action::Send { peer: to, from: whole });
        }
        (Role::Folded { to }, Phase::After) => {
            actions.push(Action::Receive { peer: to, into: result });
        }
        (Role::Core { also_for: Some(peer), .. }, Phase::Before) => {
            let into = Slice::run(Buffer::Scratch, 0..n);
            actions.push(Action::ReceiveReduce { peer, local: whole, into });
        }
        (Role::Core { also_for: Some(peer), .. }, Phase::After) => {
            actions.push(Action::Send { peer, from: Slice::one(Buffer::Scratch, peer.0) });
            let from = Slice::one(Buffer::Scratch, rank.0);
            actions.push(Action::Copy { from, into: result });
        }
        (Role::Core { place, also_for }, Phase::Round(round)) => {
            let distance = fold.places >> (round + 1);
            let block = place & !(distance - 1);
            let summed =
                if round == 0 && also_for.is_none() { Buffer::Input } else { Buffer::Scratch };
            let peer = fold.rank_at(place ^ distance);
            let (mine, theirs) =
                (fold.ranks(block, distance), fold.ranks(block ^ distance, distance));
            let into = if distance == 1 && also_for.is_none() {
                result
            } else {
                Slice::run(Buffer::Scratch, mine.clone())
            };
            actions.push(Action::Send { peer, from: Slice::run(summed, theirs) });
            let local = Slice::run(summed, mine);
            actions.push(Action::ReceiveReduce { peer, local, into });
        }
        (Role::Folded { .. }, Phase::Round(_)) | (Role::Core { .. }, _) => {}
    }
}
