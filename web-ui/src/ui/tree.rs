//! Schedules whose messages go along a tree, and the places of its ranks in a drawing.

use lockstep_core::rank::GroupRank;
use lockstep_core::schedule::{Action, Schedule};

/// Larger worlds are not drawn as trees.
const MAX_RANKS: u32 = 16;

/// The parent of each rank in a tree; the root has none.
pub(crate) type Parents = Vec<Option<u32>>;

/// Pairs of ranks, the lower one first; each once.
type Edges = Vec<(u32, u32)>;

fn add(edges: &mut Edges, edge: (u32, u32)) {
    if !edges.contains(&edge) {
        edges.push(edge);
    }
}

/// The trees along which all messages of a schedule go: one, or two of which each carries a part of the chunks.
pub(crate) fn trees_of(schedule: &Schedule) -> Option<Vec<Parents>> {
    let ranks = schedule.size();
    if !(3..=MAX_RANKS).contains(&ranks) || schedule.participants() != ranks {
        return None;
    }
    let (mut all, mut of_chunk) = (Edges::new(), Vec::<Edges>::new());
    // The last to receive a sum is the root of what is reduced; the first to send, of what is not.
    let (mut summed, mut first) = (None::<(u32, u32)>, None::<(u32, u32)>);
    let mut actions = Vec::new();
    for rank in 0..ranks {
        for step in 0..schedule.steps() {
            schedule.actions(GroupRank(rank), step, &mut actions);
            for action in &actions {
                match *action {
                    Action::Send { peer, from } => {
                        let edge = (rank.min(peer.0), rank.max(peer.0));
                        let chunk = from.chunk as usize;
                        of_chunk.resize(of_chunk.len().max(chunk + 1), Edges::new());
                        add(&mut of_chunk[chunk], edge);
                        add(&mut all, edge);
                        first = first.min(Some((step, rank))).or(Some((step, rank)));
                    }
                    Action::ReceiveReduce { .. } => summed = summed.max(Some((step, rank))),
                    _ => {}
                }
            }
        }
    }
    let root = summed.or(first)?.1;
    if let Some(tree) = rooted(&all, ranks, root) {
        return Some(vec![tree]);
    }
    let mut trees: Vec<Parents> = Vec::new();
    for edges in of_chunk.iter().filter(|edges| !edges.is_empty()) {
        let tree = rooted(edges, ranks, root)?;
        if !trees.contains(&tree) {
            trees.push(tree);
        }
    }
    (trees.len() == 2).then_some(trees)
}

/// The tree of these edges under a root; `None` if they are no tree of all ranks.
fn rooted(edges: &Edges, ranks: u32, root: u32) -> Option<Parents> {
    let beside = |rank: u32| {
        let of = edges.iter().filter(move |(a, b)| *a == rank || *b == rank);
        of.map(move |(a, b)| a + b - rank)
    };
    let mut parents = vec![None; ranks as usize];
    let mut seen = vec![root];
    let mut ahead = vec![root];
    while let Some(rank) = ahead.pop() {
        for child in beside(rank) {
            if !seen.contains(&child) {
                seen.push(child);
                parents[child as usize] = Some(rank);
                ahead.push(child);
            }
        }
    }
    let is_tree = edges.len() + 1 == ranks as usize && seen.len() == ranks as usize;
    is_tree.then_some(parents)
}

/// More ranks of a chain than this are drawn in several rows.
const MAX_ROW: usize = 8;

/// The distance of two rows, in heights of the drawing: [`MAX_RANKS`] ranks have two.
const ROW_GAP: f64 = 0.4;

/// The ranks of a chain from one end to the other; `None` if the tree has branches.
fn chain(parents: &[Option<u32>]) -> Option<Vec<u32>> {
    let children = |rank: u32| (0..).zip(parents).filter(move |(_, parent)| **parent == Some(rank));
    let root = parents.iter().position(Option::is_none)? as u32;
    let mut arms: Vec<Vec<u32>> = Vec::new();
    for (child, _) in children(root) {
        let mut arm = vec![child];
        while let Some((next, _)) = children(*arm.last()?).next() {
            if children(*arm.last()?).count() > 1 {
                return None;
            }
            arm.push(next);
        }
        arms.push(arm);
    }
    let mut arms = arms.into_iter();
    let (right, left) = (arms.next().unwrap_or_default(), arms.next().unwrap_or_default());
    let whole = left.into_iter().rev().chain([root]).chain(right);
    arms.next().is_none().then(|| whole.collect())
}

/// The places of a chain's ranks: in rows, each the way back of the one above.
fn chained(chain: &[u32]) -> Vec<(f64, f64)> {
    let rows = chain.len().div_ceil(MAX_ROW);
    let long = chain.len().div_ceil(rows.max(1)).max(1);
    let mut places = vec![(0.0, 0.0); chain.len()];
    for (at, rank) in chain.iter().enumerate() {
        let (row, along) = (at / long, at % long);
        let across = if row.is_multiple_of(2) { along } else { long - 1 - along };
        // Rows are close together: the order along the chain matters.
        let down = 0.5 + ROW_GAP * (row as f64 - (rows - 1) as f64 / 2.0);
        places[*rank as usize] = ((across as f64 + 0.5) / long as f64, down);
    }
    places
}

/// The places of the ranks of a tree, in shares of the drawing: the root at the top, each rank over the
/// middle of its children. A chain lies in rows.
pub(crate) fn places(parents: &[Option<u32>]) -> Vec<(f64, f64)> {
    if let Some(chain) = chain(parents) {
        return chained(&chain);
    }
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

    fn trees(algorithm: &str, collective: Collective) -> Option<Vec<Parents>> {
        let lab = CollectiveLab::new(collective, 8, 64);
        let algorithm = Algorithm::ALL.into_iter().find(|each| each.name() == algorithm).unwrap();
        trees_of(&CollectiveLab { algorithm, ..lab }.schedule(0).unwrap())
    }

    #[test]
    fn a_tree_is_one_a_double_tree_is_two_and_a_ring_is_none() {
        let sum = Collective::AllReduce { op: ReduceOp::Sum };
        assert_eq!(trees("ring", sum), None);
        let root = GroupRank(3);
        let broadcast = trees("tree", Collective::Broadcast { root }).unwrap();
        assert_eq!((broadcast.len(), broadcast[0][3]), (1, None));
        for (algorithm, count) in [("tree", 1), ("chain", 1), ("double_binary_tree", 2)] {
            let trees = trees(algorithm, sum).unwrap();
            assert_eq!(trees.len(), count, "{algorithm}");
            for tree in trees {
                assert_eq!(tree.iter().filter(|parent| parent.is_none()).count(), 1, "{algorithm}");
            }
        }
    }

    #[test]
    fn a_chain_lies_in_rows_with_its_neighbours_side_by_side() {
        let ends_in_two = [Some(1), None, Some(1), Some(2)];
        assert_eq!(chain(&ends_in_two), Some(vec![3, 2, 1, 0]));
        assert_eq!(chain(&[None, Some(0), Some(1), Some(1)]), None);
        let long: Parents = (0..16u32).map(|rank| rank.checked_sub(1)).collect();
        let places = places(&long);
        for pair in places.windows(2) {
            let (dx, dy) = (pair[1].0 - pair[0].0, pair[1].1 - pair[0].1);
            assert!(
                (dx.abs() - 1.0 / 8.0).abs() < 1e-9 && dy == 0.0
                    || dx == 0.0 && (dy - ROW_GAP).abs() < 1e-9
            );
        }
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
