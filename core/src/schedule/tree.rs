//! Binomial trees: in step s of a broadcast, the 2^s ranks that have the data each send it to one
//! that has not; a reduction runs the same tree backwards (Thakur, Rabenseifner, Gropp 2005,
//! "Optimization of collective communication operations in MPICH", section 4).
//!
//! A barrier gathers "these have come" up the tree and releases the ranks down it (Mellor-Crummey,
//! Scott 1991, "Algorithms for scalable synchronization on shared-memory multiprocessors",
//! section 3.5, on a binomial tree).

use super::{Action, Buffer, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;

/// Levels of the tree over `n` ranks: ceil(log2 n).
pub(super) fn depth(n: u32) -> u32 {
    n.max(1).next_power_of_two().trailing_zeros()
}

pub(super) fn actions(
    collective: Collective,
    n: u32,
    rank: GroupRank,
    step: u32,
    actions: &mut Vec<Action>,
) {
    let depth = depth(n);
    match collective {
        Collective::Broadcast { root } => broadcast(n, root.0, rank.0, step, actions),
        Collective::Reduce { root, .. } => reduce(n, root.0, rank.0, depth - 1 - step, actions),
        Collective::AllReduce { .. } if step < depth => {
            reduce(n, 0, rank.0, depth - 1 - step, actions);
        }
        Collective::AllReduce { .. } => broadcast(n, 0, rank.0, step - depth, actions),
        Collective::Barrier => barrier(n, rank.0, step, actions),
        _ => {}
    }
}

/// The rank's place counted from the root, and the way back from a place to a rank.
fn relative(n: u32, root: u32, rank: u32) -> (u32, impl Fn(u32) -> GroupRank) {
    let place = (u64::from(rank) + u64::from(n) - u64::from(root)) % u64::from(n);
    let rank_at =
        move |place: u32| GroupRank(((u64::from(place) + u64::from(root)) % u64::from(n)) as u32);
    (place as u32, rank_at)
}

/// The place at the other end of the rank's edge at `level`, if it has one there.
fn partner(n: u32, place: u32, level: u32) -> Option<Edge> {
    let span = 1u64 << level;
    let place = u64::from(place);
    if place < span {
        let child = place + span;
        (child < u64::from(n)).then_some(Edge::Child(child as u32))
    } else if place < 2 * span {
        Some(Edge::Parent((place - span) as u32))
    } else {
        None
    }
}

enum Edge {
    Parent(u32),
    Child(u32),
}

/// One level of a broadcast of chunk 0; the levels go from 0 up.
pub(super) fn broadcast(n: u32, root: u32, rank: u32, level: u32, actions: &mut Vec<Action>) {
    let whole = Slice::one(Buffer::Output, 0);
    let (place, rank_at) = relative(n, root, rank);
    match partner(n, place, level) {
        Some(Edge::Child(place)) => {
            actions.push(Action::Send { peer: rank_at(place), from: whole });
        }
        Some(Edge::Parent(place)) => {
            actions.push(Action::Receive { peer: rank_at(place), into: whole });
        }
        None => {}
    }
}

/// One level of a reduction of chunk 0; the levels go down to 0.
pub(super) fn reduce(n: u32, root: u32, rank: u32, level: u32, actions: &mut Vec<Action>) {
    let whole = Slice::one(Buffer::Output, 0);
    let (place, rank_at) = relative(n, root, rank);
    match partner(n, place, level) {
        Some(Edge::Child(place)) => {
            let peer = rank_at(place);
            actions.push(Action::ReceiveReduce { peer, local: whole, into: whole });
        }
        Some(Edge::Parent(place)) => {
            actions.push(Action::Send { peer: rank_at(place), from: whole });
        }
        None => {}
    }
}

/// Steps of a barrier: up and down; one for a single rank, so that it too has a chunk to prove.
pub(super) fn barrier_steps(n: u32) -> u32 {
    (2 * depth(n)).max(1)
}

/// The scratch chunks of a barrier: who has come below, and the release.
pub(super) const BARRIER_SIGNALS: u32 = 2;

fn barrier(n: u32, rank: u32, step: u32, actions: &mut Vec<Action>) {
    let arrived = Slice::one(Buffer::Input, 0);
    let below = Slice::one(Buffer::Scratch, 0);
    let release = Slice::one(Buffer::Scratch, 1);
    let depth = depth(n);
    if n == 1 {
        actions.push(Action::Copy { from: arrived, into: release });
    } else if step < depth {
        let level = depth - 1 - step;
        // A place without a child a level further down has heard from nobody yet.
        let is_first = u64::from(rank) + (2u64 << level) >= u64::from(n);
        let heard = if is_first { arrived } else { below };
        match partner(n, rank, level) {
            Some(Edge::Child(child)) => {
                let into = if level == 0 { release } else { below };
                let peer = GroupRank(child);
                actions.push(Action::ReceiveReduce { peer, local: heard, into });
            }
            Some(Edge::Parent(parent)) => {
                actions.push(Action::Send { peer: GroupRank(parent), from: heard });
            }
            None => {}
        }
    } else {
        match partner(n, rank, step - depth) {
            Some(Edge::Child(child)) => {
                actions.push(Action::Send { peer: GroupRank(child), from: release });
            }
            Some(Edge::Parent(parent)) => {
                actions.push(Action::Receive { peer: GroupRank(parent), into: release });
            }
            None => {}
        }
    }
}
