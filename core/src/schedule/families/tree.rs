//! Binomial trees: in step s of a broadcast, the 2^s ranks that have the data each send it to one
//! that has not; a reduction runs the same tree backwards (Thakur, Rabenseifner, Gropp 2005,
//! "Optimization of collective communication operations in MPICH", section 4).
//!
//! A barrier gathers "these have come" up the tree and releases the ranks down it (Mellor-Crummey,
//! Scott 1991, "Algorithms for scalable synchronization on shared-memory multiprocessors",
//! section 3.5, on a binomial tree).
//!
//! Gather and scatter are [`binomial`]'s.

use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::binomial;
use crate::schedule::explained::{Explain, Explained, Formula, Holds};
use crate::schedule::family::{Call, Family, Step};
use crate::schedule::{Action, Buffer, Slice};

/// A binomial tree.
pub(super) struct Tree;

impl Family for Tree {
    fn carries_out(&self, collective: Collective) -> bool {
        matches!(
            collective,
            Collective::AllReduce { .. }
                | Collective::Broadcast { .. }
                | Collective::Reduce { .. }
                | Collective::Gather { .. }
                | Collective::Scatter { .. }
                | Collective::Barrier
        )
    }

    fn steps(&self, call: Call) -> u32 {
        let depth = depth(call.size);
        match call.collective {
            Collective::AllReduce { .. } => 2 * depth,
            // Up and down; one for a single rank, so that it too has a chunk to prove.
            Collective::Barrier => (2 * depth).max(1),
            Collective::Gather { .. } | Collective::Scatter { .. } => {
                binomial::steps(call.size, RADIX)
            }
            _ => depth,
        }
    }

    fn scratch(&self, call: Call, participant: GroupRank) -> u32 {
        match call.collective {
            Collective::Gather { .. } | Collective::Scatter { .. } => {
                binomial::scratch(call.collective, call.size, RADIX, participant)
            }
            Collective::Barrier => BARRIER_SIGNALS,
            _ => 0,
        }
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, actions: &mut Vec<Action>) {
        let (n, rank, depth) = (call.size, participant.0, depth(call.size));
        match call.collective {
            Collective::Broadcast { root } => broadcast(n, root.0, rank, step, actions),
            Collective::Reduce { root, .. } => reduce(n, root.0, rank, depth - 1 - step, actions),
            Collective::AllReduce { .. } if step < depth => {
                reduce(n, 0, rank, depth - 1 - step, actions);
            }
            Collective::AllReduce { .. } => broadcast(n, 0, rank, step - depth, actions),
            Collective::Gather { .. } | Collective::Scatter { .. } => {
                binomial::actions(call.collective, (n, RADIX), participant, step, actions);
            }
            Collective::Barrier => barrier(n, rank, step, actions),
            _ => {}
        }
    }

    fn phase(&self, call: Call, step: Step) -> &'static str {
        match (call.collective, step.is_in_first_half()) {
            (Collective::AllReduce { .. }, true) => ", reduce phase",
            (Collective::AllReduce { .. }, false) => ", broadcast phase",
            (Collective::Barrier, true) => ", gather phase",
            (Collective::Barrier, false) => ", release phase",
            _ => "",
        }
    }

    fn step_text(&self, call: Call, step: Step) -> String {
        let (n, half) = (call.size, step.of / 2);
        match (call.collective, step.is_in_first_half()) {
            (Collective::AllReduce { .. }, true) => to_the_root(n, half, step.at),
            (Collective::Reduce { .. }, _) => to_the_root(n, step.of, step.at),
            (Collective::AllReduce { .. }, false) => from_the_root(n, step.at - half),
            (Collective::Barrier, true) => {
                "ranks that have heard from all below them signal their parent that they have come."
                    .to_owned()
            }
            (Collective::Barrier, false) => {
                "ranks that know that all have come release those below them.".to_owned()
            }
            _ => from_the_root(n, step.at),
        }
    }
}

impl Explain for Tree {
    fn explained(&self, collective: Collective) -> Explained {
        let reduces = collective.reduce_op().is_some();
        match collective {
            Collective::Gather { .. } | Collective::Scatter { .. } => Explained {
                formula: Formula::new(Formula::LOG, Formula::ALL_BUT_ONE, Holds::PowersOfTwo),
                idea: "A binomial tree: a rank hands on, in one message, what its whole subtree \
                    gets or gives.",
                used_by: "MPICH's gather and scatter for short messages.",
                cost: "The root sends log₂ n messages instead of n − 1, but as many bytes, and \
                    others carry parts that are not theirs.",
            },
            Collective::AllReduce { .. } => Explained {
                formula: Formula::new("2log₂(n)", "2log₂(n)", Holds::PowersOfTwo),
                idea: "Sums go up a binomial tree to one root, which halves the ranks that still \
                    hold one in each step; the result goes down the same way.",
                used_by: "For small tensors on many ranks. NCCL's Tree is the double binary tree: \
                    this one leaves half of the ranks idle in each step.",
                cost: "Few latencies, 2 log₂ n, but the whole tensor on every edge: log₂ n times \
                    as many bytes in a row as the ring.",
            },
            Collective::Barrier => Explained {
                formula: Formula::new("2log₂(n)", "0", Holds::PowersOfTwo),
                idea: "Signals go up a binomial tree; when the root has heard from all, the \
                    release goes down.",
                used_by: "MPI's choice where one process coordinates. PyTorch's NCCL barrier, an \
                    all_reduce of one element, goes up and down such a tree.",
                cost: "Twice the latencies of the dissemination barrier, with 2(n − 1) messages \
                    instead of n log₂ n.",
            },
            _ => Explained {
                formula: Formula::new(Formula::LOG, Formula::LOG, Holds::PowersOfTwo),
                idea: if reduces {
                    "In each step half of the ranks that still hold a sum send it to another and \
                        are done."
                } else {
                    "In each step every rank that has the data sends it to one that has not: 1, 2, \
                        4, … ranks."
                },
                used_by: if reduces {
                    "MPICH's reduce for short messages. NCCL reduces by a ring of slices instead; \
                        gloo by a ring reduce-scatter and a gather."
                } else {
                    "gloo's broadcast, and MPICH's for short messages. NCCL broadcasts by a ring \
                        of slices instead."
                },
                cost: "The fewest latencies without sending to many at once, but the whole tensor \
                    in each of the log₂ n steps: for long messages a pipeline is faster.",
            },
        }
    }
}

/// Children of a level and one: of a binomial tree.
const RADIX: u32 = 2;

fn to_the_root(n: u32, depth: u32, step: u32) -> String {
    let (before, after) = (holders(n, depth - step), holders(n, depth - step - 1));
    format!(
        "{} of the {before} ranks that still hold sums each send theirs up the tree and are out; \
         {after} remain.",
        before - after
    )
}

fn from_the_root(n: u32, step: u32) -> String {
    let (before, after) = (holders(n, step), holders(n, step + 1));
    match before {
        1 => "the root sends its data to the first of the others.".to_owned(),
        _ => format!(
            "{} of the {before} ranks that have the data each send it to one that has not.",
            after - before
        ),
    }
}

/// Ranks of `n` that a binomial tree has reached after `level` steps.
fn holders(n: u32, level: u32) -> u32 {
    1u32.checked_shl(level).map_or(n, |reached| reached.min(n))
}

/// Levels of the tree over `n` ranks: ceil(log2 n).
pub(super) fn depth(n: u32) -> u32 {
    n.max(1).next_power_of_two().trailing_zeros()
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

/// The chunks of scratch for signals: the arrivals below, and the release.
const BARRIER_SIGNALS: u32 = 2;

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
