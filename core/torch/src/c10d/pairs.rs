//! NCCL's communicators of two ranks: a send or receive that is not batched gets one of its own for each pair
//! of ranks, made at the pair's first call (`getKeySendRecv` in `ProcessGroupNCCL.cpp`). Making it blocks
//! each process until the other one has come, even for `isend`. So ranks that begin with different peers can
//! wait for each other in a circle before anything was sent.
//!
//! If the orders fit together, nothing of this shows in the plan. If they do not, the ranks of the circle
//! wait in a barrier of the pair.

use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A pair of ranks of a group, ascending: PyTorch's key `0:1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pair {
    pub(super) group: GroupId,
    pub(super) low: GlobalRank,
    pub(super) high: GlobalRank,
}

impl Pair {
    pub(super) fn new(group: GroupId, one: GlobalRank, other: GlobalRank) -> Pair {
        Pair { group, low: one.min(other), high: one.max(other) }
    }
}

/// The pairs that are never made, from the order in which each rank comes to its own: a pair is
/// made once it is the next one of both.
pub(super) fn never_made(mut orders: Vec<VecDeque<Pair>>) -> BTreeSet<Pair> {
    let mut sides: BTreeMap<Pair, usize> = BTreeMap::new();
    for pair in orders.iter().flatten() {
        *sides.entry(*pair).or_default() += 1;
    }
    // A peer that never makes the call is a mistake of its own, and shows as one.
    for order in &mut orders {
        order.retain(|pair| sides.get(pair) == Some(&2));
    }
    let mut open: Vec<usize> = (0..orders.len()).collect();
    while let Some(rank) = open.pop() {
        let next = |rank: usize| orders.get(rank).and_then(|order| order.front()).copied();
        let Some(pair) = next(rank) else { continue };
        let other = if pair.low.index() == rank { pair.high.index() } else { pair.low.index() };
        if next(other) == Some(pair) {
            for rank in [rank, other] {
                orders.get_mut(rank).map(VecDeque::pop_front);
                open.push(rank);
            }
        }
    }
    orders.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(orders: &[&[(u32, u32)]]) -> Vec<VecDeque<Pair>> {
        let pair = |(a, b): &(u32, u32)| Pair::new(GroupId::WORLD, GlobalRank(*a), GlobalRank(*b));
        orders.iter().map(|order| order.iter().map(pair).collect()).collect()
    }

    #[test]
    fn a_ring_that_begins_with_the_next_rank_is_never_made() {
        let ring = orders(&[&[(0, 1), (0, 2)], &[(1, 2), (0, 1)], &[(0, 2), (1, 2)]]);
        assert_eq!(never_made(ring).len(), 3);
    }

    #[test]
    fn a_pipeline_and_even_before_odd_are_made() {
        let pipeline = orders(&[&[(0, 1)], &[(0, 1), (1, 2)], &[(1, 2)]]);
        assert!(never_made(pipeline).is_empty());
        let even =
            orders(&[&[(0, 1), (0, 3)], &[(0, 1), (1, 2)], &[(2, 3), (1, 2)], &[(2, 3), (0, 3)]]);
        assert!(never_made(even).is_empty());
    }

    #[test]
    fn a_peer_that_never_comes_is_not_of_the_circle() {
        assert!(never_made(orders(&[&[(0, 1), (0, 2)], &[], &[(0, 2)]])).is_empty());
    }
}
