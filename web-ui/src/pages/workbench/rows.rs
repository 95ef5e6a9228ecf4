//! The rows of the timeline. Pinned ranks come first. Ranks that wait alike, that are one node, or that are one group
//! can share a row.

use crate::sets::set;
use crate::ui::{Choice, Order, Shown};
use lockstep_core::trace::TraceHeader;
use lockstep_diagnosis::Wait;
use std::collections::{BTreeMap, BTreeSet};

/// The key that ranks share if they wait alike: call, number, group, line, whom they wait for.
type Alike<'w> = (&'w str, Option<u64>, &'w str, Option<&'w str>, Vec<u32>);

fn alike(wait: &Wait) -> Alike<'_> {
    let whom = wait.waits_for.iter().map(|rank| rank.0).collect();
    (&wait.op, wait.seq, &wait.group.name, wait.line.as_deref(), whom)
}

/// The words of the address: for ranks that wait alike, for those of a node, and before the label of groups.
const WAITS: &str = "waits";
const NODE: &str = "node";
const GROUP: &str = "group:";

/// The choices of ranks that share a row, with their words in the address. The first is a row for each rank.
pub(super) fn choices(header: &TraceHeader, waits: &[Wait]) -> Vec<Choice> {
    let mut choices = vec![Choice::new("", "a rank")];
    if can_group(waits) {
        choices.push(Choice::new(WAITS, "ranks that wait alike"));
    }
    if per_node(header) > 1 {
        choices.push(Choice::new(NODE, "a node"));
    }
    let smaller = |size: u32| size > 1 && size < header.world_size;
    let groups = header.groups.iter().filter(|group| smaller(group.size()));
    let labels = set(groups.map(|group| group.label()));
    choices.extend(labels.into_iter().map(|label| Choice::new(&format!("{GROUP}{label}"), label)));
    choices
}

fn per_node(header: &TraceHeader) -> u32 {
    header.plan.as_ref().map_or(0, |plan| plan.ranks_per_node)
}

/// Pairs of a rank and the number of its row.
fn sharing(by: &str, header: &TraceHeader, waits: &[Wait]) -> Vec<(u32, u32)> {
    match by {
        "" => Vec::new(),
        WAITS => {
            let mut first: BTreeMap<Alike<'_>, u32> = BTreeMap::new();
            let rows = waits
                .iter()
                .map(|wait| (wait.rank.0, *first.entry(alike(wait)).or_insert(wait.rank.0)));
            rows.collect()
        }
        NODE => (0..header.world_size).map(|rank| (rank, rank / per_node(header).max(1))).collect(),
        other => {
            let label = other.strip_prefix(GROUP).unwrap_or_default();
            let groups =
                (0..).zip(header.groups.iter()).filter(|(_, group)| group.label() == label);
            groups.flat_map(|(at, group)| group.ranks().iter().map(move |r| (r.0, at))).collect()
        }
    }
}

/// True if some ranks wait in the same call for the same ranks.
fn can_group(waits: &[Wait]) -> bool {
    let mut seen = BTreeSet::new();
    !waits.iter().all(|wait| seen.insert(alike(wait)))
}

/// The rows: `None` for a row a rank, in their order. Ranks that wait in several calls, or are in several groups, are
/// taken by the first.
pub(super) fn order(
    header: &TraceHeader,
    pins: &BTreeSet<u32>,
    by: &str,
    waits: &[Wait],
) -> Option<Order> {
    let world_size = header.world_size;
    if pins.is_empty() && by.is_empty() {
        return None;
    }
    let mut stands_for: BTreeMap<u32, u32> = BTreeMap::new();
    let mut first: BTreeMap<u32, u32> = BTreeMap::new();
    for (rank, shared) in sharing(by, header, waits) {
        if !pins.contains(&rank) {
            stands_for.entry(rank).or_insert_with(|| *first.entry(shared).or_insert(rank));
        }
    }
    let mut others: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (rank, representative) in &stands_for {
        if rank != representative {
            others.entry(*representative).or_default().push(*rank);
        }
    }
    let row = |rank: u32, pinned: bool| {
        let others = others.get(&rank).cloned().unwrap_or_default();
        Shown { rank, others, pinned }
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
    use lockstep_core::group::{BackendName, ProcessGroup};
    use lockstep_core::rank::GlobalRank;
    use lockstep_core::trace::Origin;
    use lockstep_diagnosis::GroupRef;

    fn header(world_size: u32) -> TraceHeader {
        let pair = |first| {
            let ranks = vec![GlobalRank(first), GlobalRank(first + 2)];
            ProcessGroup::new(format!("{first}"), BackendName::Nccl, ranks).unwrap().with_desc("tp")
        };
        let world = ProcessGroup::world(world_size, BackendName::Nccl).unwrap();
        TraceHeader {
            origin: Origin::Recorded { by: String::new(), files: Vec::new() },
            world_size,
            groups: vec![world, pair(0), pair(1)],
            plan: None,
            epoch_ns: 0,
        }
    }

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
            .map(|row| {
                let more = match row.others.len() {
                    0 => String::new(),
                    count => format!("+{count}"),
                };
                format!("{}{}{more}", if row.pinned { "*" } else { "" }, row.rank)
            })
            .collect()
    }

    #[test]
    fn pinned_ranks_come_first_and_those_that_wait_alike_share_a_row() {
        let waits: Vec<Wait> =
            [0, 1, 3, 4].into_iter().map(|rank| wait(rank, 2)).chain([wait(2, 5)]).collect();
        let none = BTreeSet::new();
        let (six, four) = (header(6), header(4));
        assert!(order(&six, &none, "", &waits).is_none());
        assert_eq!(names(order(&six, &none, WAITS, &waits)), ["0+3", "2", "5"]);
        assert_eq!(
            names(order(&six, &BTreeSet::from([4]), WAITS, &waits)),
            ["*4", "0+2", "2", "5"]
        );
        assert_eq!(names(order(&four, &BTreeSet::from([2, 9]), "", &waits)), ["*2", "0", "1", "3"]);
        assert_eq!(names(order(&four, &none, "group:tp", &waits)), ["0+1", "1+1"]);
        assert_eq!(
            names(order(&four, &BTreeSet::from([0]), "group:tp", &waits)),
            ["*0", "1+1", "2"]
        );
        let words: Vec<String> =
            choices(&six, &waits).into_iter().map(|choice| choice.value).collect();
        assert_eq!(words, ["", WAITS, "group:tp"]);
        assert!(can_group(&waits) && !can_group(&waits[..1]));
    }
}
