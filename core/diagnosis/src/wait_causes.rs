//! Waits by their cause: the ranks that hold up the job, those that wait for them, and those that queue
//! behind these. Ranks that wait alike are one group, so that 512 ranks are a handful of groups.

use crate::report::Wait;
use crate::words;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallLog;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Ranks that wait alike, or that are waited for and do not wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitGroup {
    /// Its ranks, ascending.
    pub ranks: Vec<GlobalRank>,
    /// The group that it waits for, by its place in the list; `None` for a root.
    pub cause: Option<usize>,
    /// Waits between it and its root: 1 waits for the root itself, 2 and more queue behind others.
    pub depth: u32,
    /// True if findings blame its ranks.
    pub culprits: bool,
    /// True if its ranks wait for each other in a cycle, alone or with others.
    pub in_circle: bool,
    /// The call in which its ranks wait; `None` for ranks that do not wait.
    pub call: Option<WaitedCall>,
    /// The last call of ranks that do not wait, where they share it: `all_reduce #6 of dp (train.py:67)`.
    pub last: Option<String>,
}

/// A call in which ranks wait, in one process group or in several alike ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitedCall {
    /// `all_reduce`.
    pub op: String,
    /// Its number, where all process groups are at the same.
    pub seq: Option<u64>,
    /// The name of the process group, or of the first of several.
    pub group: String,
    /// The number of process groups.
    pub groups: u32,
    /// The line of the user's code, `train.py:88`.
    pub line: Option<String>,
    /// True if every member has made the call and it does not complete.
    pub all_came: bool,
}

/// Groups waits by their cause. Each group stands behind its cause, and groups of one cause stand
/// together, the largest first.
pub fn wait_causes(log: &CallLog, waits: &[Wait], culprits: &[GlobalRank]) -> Vec<WaitGroup> {
    let graph = Graph::of(waits);
    let in_circle = graph.in_circle();
    let depths = graph.depths(culprits, &in_circle);
    let mut by_depth: BTreeMap<u32, Vec<GlobalRank>> = BTreeMap::new();
    for (rank, depth) in &depths {
        by_depth.entry(*depth).or_default().push(*rank);
    }
    let mut groups: Vec<WaitGroup> = Vec::new();
    let mut group_of: BTreeMap<GlobalRank, usize> = BTreeMap::new();
    for (depth, ranks) in by_depth {
        let mut alike: BTreeMap<Alike, Vec<(GlobalRank, Option<&Wait>)>> = BTreeMap::new();
        for rank in ranks {
            let nearer = |target: &GlobalRank| depths.get(target).is_some_and(|at| at + 1 == depth);
            let own = graph.waits.get(&rank).map(Vec::as_slice).unwrap_or_default();
            let wait = own.iter().find(|wait| wait.waits_for.iter().any(nearer)).or(own.first());
            let targets = wait.iter().flat_map(|wait| &wait.waits_for).filter(|to| nearer(to));
            let cause = targets.filter_map(|to| group_of.get(to).copied()).min();
            let key = Alike {
                cause,
                culprits: culprits.contains(&rank),
                in_circle: in_circle.contains(&rank),
                call: wait.map(|wait| CallKind::of(wait)),
                last: wait.is_none().then(|| last_call(log, rank)).flatten(),
            };
            alike.entry(key).or_default().push((rank, wait.copied()));
        }
        for (key, members) in alike {
            for (rank, _) in &members {
                group_of.insert(*rank, groups.len());
            }
            let Alike { cause, culprits, in_circle, last, .. } = key;
            let call = waited_call(members.iter().filter_map(|(_, wait)| *wait));
            let ranks = members.into_iter().map(|(rank, _)| rank).collect();
            groups.push(WaitGroup { ranks, cause, depth, culprits, in_circle, call, last });
        }
    }
    in_order(groups)
}

/// The values that ranks of a group share.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    cause: Option<usize>,
    culprits: bool,
    in_circle: bool,
    call: Option<CallKind>,
    last: Option<String>,
}

/// A call as process groups of one kind share it: `dp_3` and `dp_4` are alike if they are of one size.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct CallKind {
    op: String,
    line: Option<String>,
    group: String,
    size: usize,
    all_came: bool,
}

impl CallKind {
    fn of(wait: &Wait) -> CallKind {
        CallKind {
            op: wait.op.clone(),
            line: wait.line.clone(),
            group: label(wait).replace(|letter: char| letter.is_ascii_digit(), ""),
            size: wait.group.ranks.len(),
            all_came: wait.waits_for.is_empty(),
        }
    }
}

fn label(wait: &Wait) -> &str {
    if wait.group.desc.is_empty() { &wait.group.name } else { &wait.group.desc }
}

/// The call of waits that are alike.
fn waited_call<'w>(waits: impl Iterator<Item = &'w Wait>) -> Option<WaitedCall> {
    let waits: Vec<&Wait> = waits.collect();
    let first = waits.first()?;
    let names: BTreeSet<&str> = waits.iter().map(|wait| wait.group.name.as_str()).collect();
    Some(WaitedCall {
        op: first.op.clone(),
        seq: first.seq.filter(|_| waits.iter().all(|wait| wait.seq == first.seq)),
        group: label(first).to_owned(),
        groups: names.len() as u32,
        line: first.line.clone(),
        all_came: first.waits_for.is_empty(),
    })
}

fn last_call(log: &CallLog, rank: GlobalRank) -> Option<String> {
    let calls = &log.ranks.get(rank.0 as usize)?.as_ref()?.calls;
    let record = calls.last()?;
    let seq = record.seq.map(|seq| format!(" #{seq}")).unwrap_or_default();
    let group = log.groups.get(record.call.group.index());
    let group = group.map(|group| format!(" of {}", group.label())).unwrap_or_default();
    let line = words::line_of(log, rank, record);
    let line = line.map(|line| format!(" ({line})")).unwrap_or_default();
    Some(format!("{}{seq}{group}{line}", record.call.op))
}

/// Ranks, and the ranks that each waits for.
struct Graph<'w> {
    waits: BTreeMap<GlobalRank, Vec<&'w Wait>>,
    ahead: BTreeMap<GlobalRank, BTreeSet<GlobalRank>>,
    behind: BTreeMap<GlobalRank, BTreeSet<GlobalRank>>,
}

impl<'w> Graph<'w> {
    fn of(waits: &'w [Wait]) -> Graph<'w> {
        let mut graph =
            Graph { waits: BTreeMap::new(), ahead: BTreeMap::new(), behind: BTreeMap::new() };
        for wait in waits {
            graph.waits.entry(wait.rank).or_default().push(wait);
            graph.ahead.entry(wait.rank).or_default();
            graph.behind.entry(wait.rank).or_default();
            for to in wait.waits_for.iter().filter(|to| **to != wait.rank) {
                graph.ahead.entry(wait.rank).or_default().insert(*to);
                graph.ahead.entry(*to).or_default();
                graph.behind.entry(*to).or_default().insert(wait.rank);
            }
        }
        graph
    }

    /// The waits between each rank and the nearest root. Roots are the culprits; for ranks that lead to
    /// none, ranks that wait for nobody; for the others, ranks that wait for each other in a circle.
    fn depths(
        &self,
        culprits: &[GlobalRank],
        in_circle: &BTreeSet<GlobalRank>,
    ) -> BTreeMap<GlobalRank, u32> {
        let mut depths = BTreeMap::new();
        let blamed = |rank: GlobalRank| culprits.contains(&rank);
        let free = |rank: GlobalRank| self.ahead.get(&rank).is_none_or(BTreeSet::is_empty);
        let circle = |rank: GlobalRank| in_circle.contains(&rank);
        let kinds: [&dyn Fn(GlobalRank) -> bool; 3] = [&blamed, &free, &circle];
        for is_root in kinds {
            let left = self.ahead.keys().copied().filter(|rank| !depths.contains_key(rank));
            let mut level: Vec<GlobalRank> = left.filter(|rank| is_root(*rank)).collect();
            let mut depth = 0;
            while !level.is_empty() {
                level.retain(|rank| depths.insert(*rank, depth).is_none());
                let next: BTreeSet<GlobalRank> = level
                    .iter()
                    .filter_map(|rank| self.behind.get(rank))
                    .flatten()
                    .copied()
                    .collect();
                level = next.into_iter().filter(|rank| !depths.contains_key(rank)).collect();
                depth += 1;
            }
        }
        depths
    }

    /// The ranks from which a way through waits leads back to themselves (Kosaraju's components of more
    /// than one rank).
    fn in_circle(&self) -> BTreeSet<GlobalRank> {
        let mut ended = Vec::new();
        let mut seen = BTreeSet::new();
        for start in self.ahead.keys() {
            walk(&self.ahead, *start, &mut seen, &mut ended);
        }
        let mut found = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for start in ended.into_iter().rev() {
            let mut component = Vec::new();
            walk(&self.behind, start, &mut seen, &mut component);
            if component.len() > 1 {
                found.extend(component);
            }
        }
        found
    }
}

/// Visits all that `start` leads to and that is not in `seen`; `ended` gets them in the order in which
/// their visits end.
fn walk(
    edges: &BTreeMap<GlobalRank, BTreeSet<GlobalRank>>,
    start: GlobalRank,
    seen: &mut BTreeSet<GlobalRank>,
    ended: &mut Vec<GlobalRank>,
) {
    if !seen.insert(start) {
        return;
    }
    let next = |rank: GlobalRank| edges.get(&rank).into_iter().flatten();
    let mut path = vec![(start, next(start))];
    while let Some((rank, others)) = path.last_mut() {
        match others.find(|other| !seen.contains(*other)) {
            Some(other) => {
                seen.insert(*other);
                path.push((*other, next(*other)));
            }
            None => {
                ended.push(*rank);
                path.pop();
            }
        }
    }
}

/// The groups, each behind its cause; the largest of a cause first, and culprits before all.
fn in_order(groups: Vec<WaitGroup>) -> Vec<WaitGroup> {
    let mut behind: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (at, group) in groups.iter().enumerate() {
        behind.entry(group.cause).or_default().push(at);
    }
    for those in behind.values_mut() {
        those.sort_by_key(|at| {
            let group = &groups[*at];
            (!group.culprits, std::cmp::Reverse(group.ranks.len()), *at)
        });
    }
    let mut ahead: Vec<(usize, Option<usize>)> = Vec::new();
    let push = |ahead: &mut Vec<_>, cause: Option<usize>, place: Option<usize>| {
        let those = behind.get(&cause).map(Vec::as_slice).unwrap_or_default();
        ahead.extend(those.iter().rev().map(|at| (*at, place)));
    };
    push(&mut ahead, None, None);
    let mut ordered: Vec<WaitGroup> = Vec::new();
    while let Some((at, cause)) = ahead.pop() {
        push(&mut ahead, Some(at), Some(ordered.len()));
        ordered.push(WaitGroup { cause, ..groups[at].clone() });
    }
    ordered
}
