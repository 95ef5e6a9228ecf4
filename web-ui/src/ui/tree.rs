//! Schedules whose messages go along a tree, and the places of its ranks in a drawing.

use lockstep_core::rank::GroupRank;
use lockstep_core::schedule::{Action, Schedule};
use std::collections::BTreeSet;

/// Larger worlds are not drawn as trees.
const MAX_RANKS: u32 = 16;

/// The parent of each rank, if all messages of the schedule go along the edges of one tree that is no
/// chain; the root has none.
pub(crate) fn parents_of(schedule: &Schedule) -> Option<Vec<Option<u32>>> {
    let ranks = schedule.size();
    if !(3..=MAX_RANKS).contains(&ranks) || schedule.participants() != ranks {
        return None;
    }
    let mut edges: BTreeSet<(u32, u32)> = BTreeSet::new();
    // The last to receive a sum is the root of what is reduced; the first to send, of what is not.
    let (mut summed, mut first) = (None::<(u32, u32)>, None::<(u32, u32)>);
    let mut actions = Vec::new();
    for rank in 0..ranks {
        for step in 0..schedule.steps() {
            schedule.actions(GroupRank(rank), step, &mut actions);
            for action in &actions {
                match *action {
                    Action::Send { peer, .. } => {
                        edges.insert((rank.min(peer.0), rank.max(peer.0)));
                        first = first.min(Some((step, rank))).or(Some((step, rank)));
                    }
                    Action::ReceiveReduce { .. } => summed = summed.max(Some((step, rank))),
                    _ => {}
                }
            }
            if edges.len() >= ranks as usize {
                return None;
            }
        }
    }
    let root = summed.or(first)?.1;
    let beside = |rank: u32| {
        let of = edges.iter().filter(move |(a, b)| *a == rank || *b == rank);
        of.map(move |(a, b)| a + b - rank)
    };
    let is_chain = (0..ranks).all(|rank| beside(rank).count() <= 2);
    let mut parents = vec![None; ranks as usize];
    let mut seen = BTreeSet::from([root]);
    let mut ahead = vec![root];
    while let Some(rank) = ahead.pop() {
        for child in beside(rank) {
            if seen.insert(child) {
                parents[child as usize] = Some(rank);
                ahead.push(child);
            }
        }
    }
    let is_tree = edges.len() + 1 == ranks as usize && seen.len() == ranks as usize;
    (is_tree && !is_chain).then_some(parents)
}

/// The places of the ranks of a tree, in shares of the drawing: the root at the top, each rank over the
/// middle of its children.
pub(crate) fn places(parents: &[Option<u32>]) -> Vec<(f64, f64)> {
    let children = |rank: Option<u32>| -> Vec<u32> {
        (0..).zip(parents).filter(|(_, parent)| **parent == rank).map(|(child, _)| child).collect()
    };
    let mut across = vec![0.0; parents.len()];
    let mut depths = vec![0u32; parents.len()];
    let mut leaves = 0.0;
    // Each rank twice: on the way down, and when its children have their places.
    let mut ahead: Vec<(u32, bool)> =
        children(None).into_iter().map(|root| (root, false)).collect();
    while let Some((rank, placed)) = ahead.pop() {
        let own = children(Some(rank));
        match (placed, own.first(), own.last()) {
            (_, None, _) | (_, _, None) => {
                across[rank as usize] = leaves + 0.5;
                leaves += 1.0;
            }
            (true, Some(first), Some(last)) => {
                across[rank as usize] = (across[*first as usize] + across[*last as usize]) / 2.0;
            }
            (false, ..) => {
                ahead.push((rank, true));
                for child in own.into_iter().rev() {
                    depths[child as usize] = depths[rank as usize] + 1;
                    ahead.push((child, false));
                }
            }
        }
    }
    let deep = f64::from(depths.iter().copied().max().unwrap_or(0).max(1));
    let shares = across.into_iter().zip(depths);
    shares.map(|(x, depth)| (x / f64::max(leaves, 1.0), f64::from(depth) / deep)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::collective::Collective;
    use lockstep_core::plan::CollectiveLab;
    use lockstep_core::reduce::ReduceOp;
    use lockstep_core::schedule::Algorithm;

    fn parents(algorithm: &str, collective: Collective) -> Option<Vec<Option<u32>>> {
        let lab = CollectiveLab::new(collective, 8, 64);
        let algorithm = Algorithm::ALL.into_iter().find(|each| each.name() == algorithm).unwrap();
        parents_of(&CollectiveLab { algorithm, ..lab }.schedule(0).unwrap())
    }

    #[test]
    fn a_tree_is_one_and_a_ring_is_none() {
        assert_eq!(parents("ring", Collective::AllReduce { op: ReduceOp::Sum }), None);
        let root = GroupRank(3);
        let broadcast = parents("tree", Collective::Broadcast { root }).unwrap();
        assert_eq!(broadcast[3], None);
        assert_eq!(broadcast.iter().filter(|parent| parent.is_none()).count(), 1);
        let tree = parents("tree", Collective::AllReduce { op: ReduceOp::Sum });
        assert!(tree.is_none_or(|tree| tree.iter().filter(|parent| parent.is_none()).count() == 1));
    }

    #[test]
    fn no_two_ranks_of_a_tree_have_one_place() {
        let places = places(&[None, Some(0), Some(0), Some(1), Some(1)]);
        assert_eq!(places[0].1, 0.0);
        assert_eq!((places[1].1, places[3].1), (0.5, 1.0));
        assert_eq!(places[1].0, (places[3].0 + places[4].0) / 2.0);
        for (at, place) in places.iter().enumerate() {
            assert!(places[at + 1..].iter().all(|other| other != place));
            assert!((0.0..=1.0).contains(&place.0) && (0.0..=1.0).contains(&place.1));
        }
    }
}
