//! The rows of a timeline, in their order.

use std::collections::BTreeMap;
use std::rc::Rc;

/// A row of a timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) rank: u32,
    /// The other ranks that the row stands for.
    pub(crate) others: Vec<u32>,
    /// Kept at the top.
    pub(crate) pinned: bool,
}

/// The rows of a timeline, top down.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Order {
    /// Every rank of so many.
    All(u32),
    /// Some ranks, or all in another order.
    Chosen { rows: Rc<Vec<Shown>>, places: Rc<BTreeMap<u32, u32>> },
}

impl Order {
    /// Rows in the order given.
    pub(crate) fn of(rows: Vec<Shown>) -> Order {
        let mut places = BTreeMap::new();
        places.extend(rows.iter().zip(0..).map(|(row, place)| (row.rank, place)));
        Order::Chosen { rows: Rc::new(rows), places: Rc::new(places) }
    }

    /// The number of rows.
    pub(super) fn len(&self) -> u32 {
        match self {
            Order::All(world_size) => *world_size,
            Order::Chosen { rows, .. } => rows.len() as u32,
        }
    }

    /// True if some row stands for more than its own rank.
    pub(super) fn stands_for_several(&self) -> bool {
        match self {
            Order::All(_) => false,
            Order::Chosen { rows, .. } => rows.iter().any(|row| !row.others.is_empty()),
        }
    }

    /// The rank of a row.
    pub(super) fn rank_at(&self, row: u32) -> Option<u32> {
        match self {
            Order::All(world_size) => (row < *world_size).then_some(row),
            Order::Chosen { rows, .. } => Some(rows.get(row as usize)?.rank),
        }
    }

    /// All ranks that a row stands for.
    pub(super) fn ranks_at(&self, row: u32) -> Vec<u32> {
        let others = match self {
            Order::All(_) => &[][..],
            Order::Chosen { rows, .. } => rows.get(row as usize).map_or(&[][..], |row| &row.others),
        };
        self.rank_at(row).into_iter().chain(others.iter().copied()).collect()
    }

    /// The row of a rank, if it is shown.
    pub(super) fn row_of(&self, rank: u32) -> Option<u32> {
        match self {
            Order::All(world_size) => (rank < *world_size).then_some(rank),
            Order::Chosen { places, .. } => places.get(&rank).copied(),
        }
    }

    /// The name of a row, and whether it is pinned.
    pub(super) fn name_at(&self, row: u32) -> Option<(String, bool)> {
        match self {
            Order::All(_) => Some((format!("r{}", self.rank_at(row)?), false)),
            Order::Chosen { rows, .. } => {
                let Shown { rank, others, pinned } = rows.get(row as usize)?;
                let more = match others.len() {
                    0 => String::new(),
                    count => format!(" +{count}"),
                };
                Some((format!("r{rank}{more}"), *pinned))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_rank_is_found_where_it_stands(ranks in prop::collection::btree_set(0u32..500, 0..60)) {
            let mut ranks: Vec<u32> = ranks.into_iter().collect();
            ranks.reverse();
            let shown = |rank: &u32| Shown { rank: *rank, others: vec![1000 + rank], pinned: false };
            let order = Order::of(ranks.iter().map(shown).collect());
            for row in 0..order.len() {
                let rank = order.rank_at(row).unwrap();
                prop_assert_eq!(order.row_of(rank), Some(row));
                prop_assert_eq!(order.name_at(row), Some((format!("r{rank} +1"), false)));
                prop_assert_eq!(order.ranks_at(row), vec![rank, 1000 + rank]);
            }
            prop_assert_eq!(order.row_of(500), None);
            prop_assert_eq!(order.rank_at(order.len()), None);
        }
    }
}
