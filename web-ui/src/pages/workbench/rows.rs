//! The rows of the timeline: those ranks that are pinned first, and ranks that wait alike as one.

use crate::ui::{Order, Shown};
use lockstep_diagnosis::Wait;
use std::collections::{BTreeMap, BTreeSet};

/// The key that ranks share if they wait alike: call, number, group, line, whom they wait for.
type Alike<'w> = (&'w str, Option<u64>, &'w str, Option<&'w str>, Vec<u32>);

fn alike(wait: &Wait) -> Alike<'_> {
    let whom = wait.waits_for.iter().map(|rank| rank.0).collect();
    (&wait.op, wait.seq, &wait.group.name, wait.line.as_deref(), whom)
}

/// Whether some ranks wait in the same call for the same ranks.
pub(super) fn can_group(waits: &[Wait]) -> bool {
    let mut seen = BTreeSet::new();
    !waits.iter().all(|wait| seen.insert(alike(wait)))
}

/// The rows: `None` for a row a rank, in their order. Ranks that wait in several calls are taken by the first.
pub(super) fn order(
    world_size: u32,
    pins: &BTreeSet<u32>,
    together: bool,
    waits: &[Wait],
) -> Option<Order> {
    if pins.is_empty() && !together {
        return None;
    }
    let mut stands_for: BTreeMap<u32, u32> = BTreeMap::new();
    if together {
        let mut first: BTreeMap<Alike<'_>, u32> = BTreeMap::new();
        for wait in waits.iter().filter(|wait| !pins.contains(&wait.rank.0)) {
            stands_for
                .entry(wait.rank.0)
                .or_insert_with(|| *first.entry(alike(wait)).or_insert(wait.rank.0));
        }
    }
    let mut others: BTreeMap<u32, u32> = BTreeMap::new();
    for (rank, representative) in &stands_for {
        if rank != representative {
            *others.entry(*representative).or_default() += 1;
        }
    }
    let row = |rank: u32, pinned: bool| {
        let more = others.get(&rank).map(|count| format!("+{count}")).unwrap_or_default();
        Shown { rank, more, pinned }
    };
    let pinned = pins.iter().filter(|rank| **rank < world_size).map(|rank| row(*rank, true));
    let own_row =
        |rank: &u32| stands_for.get(rank).is_none_or(|representative| representative == rank);
    let rest = (0..world_size).filter(|rank| !pins.contains(rank)).filter(own_row);
    Some(Order::of(pinned.chain(rest.map(|rank| row(rank, false))).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::rank::GlobalRank;
    use lockstep_diagnosis::GroupRef;

    fn wait(rank: u32, for_whom: u32) -> Wait {
        Wait {
            rank: GlobalRank(rank),
            group: GroupRef { name: "0".to_owned(), desc: String::new(), ranks: Vec::new() },
            seq: Some(7),
            op: "all_reduce".to_owned(),
            line: None,
            work: 3,
            waits_for: vec![GlobalRank(for_whom)],
        }
    }

    fn names(order: Option<Order>) -> Vec<String> {
        let Some(Order::Chosen { rows, .. }) = order else { return Vec::new() };
        rows.iter()
            .map(|row| format!("{}{}{}", if row.pinned { "*" } else { "" }, row.rank, row.more))
            .collect()
    }

    #[test]
    fn pinned_ranks_come_first_and_those_that_wait_alike_share_a_row() {
        let waits: Vec<Wait> =
            [0, 1, 3, 4].into_iter().map(|rank| wait(rank, 2)).chain([wait(2, 5)]).collect();
        let none = BTreeSet::new();
        assert!(order(6, &none, false, &waits).is_none());
        assert_eq!(names(order(6, &none, true, &waits)), ["0+3", "2", "5"]);
        assert_eq!(names(order(6, &BTreeSet::from([4]), true, &waits)), ["*4", "0+2", "2", "5"]);
        assert_eq!(names(order(4, &BTreeSet::from([2, 9]), false, &waits)), ["*2", "0", "1", "3"]);
        assert!(can_group(&waits) && !can_group(&waits[..1]));
    }
}
