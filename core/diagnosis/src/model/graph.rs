//! The wait-for graph: ranks, and the collectives they wait in, as a directed graph.
//!
//! A rank points at each open row that it waits in, a row at each member that has not come. Rows
//! are nodes of their own so that a row of 1,000 ranks that wait for 1,000 others is 2,000 edges,
//! not a million. What waits for nothing else is where the search for a cause ends: a strongly
//! connected component without a way out, which is one rank or a circle of ranks.

use crate::model::index::{Job, Made};
use crate::model::messages::PendingP2p;
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallState;
use std::collections::{BTreeMap, BTreeSet};

/// Orders a rank's calls by which of them its device executes: started calls first, then by the order
/// in which they were made.
type CallOrder = (bool, u32);

/// The wait-for graph. Nodes are the ranks, then the rows.
pub(crate) struct Graph {
    ranks: usize,
    /// The targets of each node, ascending.
    next: Vec<Vec<u32>>,
    /// The nodes that point at each node.
    back: Vec<Vec<u32>>,
}

/// A part of the graph that waits for nothing outside itself, and that somebody waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sink {
    /// Its ranks, ascending: one, or a circle.
    pub(crate) ranks: Vec<GlobalRank>,
    /// Its rows, by index in [`Job::rows`]; rows belong to circles only.
    pub(crate) rows: Vec<usize>,
}

impl Graph {
    /// The graph of a job. `blamed` holds, per row, the ranks that called something else there:
    /// they are what the row waits for, and wait for nobody themselves; nor do `culprits`, which
    /// are known otherwise. `dead` is the rank that died: whoever shares a call with it that has
    /// not completed waits for it.
    pub(crate) fn of(
        job: &Job<'_>,
        p2p: &[PendingP2p<'_>],
        blamed: &BTreeSet<(usize, GlobalRank)>,
        culprits: &BTreeSet<GlobalRank>,
        dead: Option<GlobalRank>,
    ) -> Graph {
        let ranks = job.log.ranks.len();
        let mut graph = Graph::empty(ranks, ranks + job.rows.len());
        let mut claims: BTreeSet<GlobalRank> = blamed.iter().map(|(_, rank)| *rank).collect();
        claims.extend(culprits);
        // Since when a rank is out of step in a group.
        let mut astray: BTreeMap<(GroupId, GlobalRank), u64> = BTreeMap::new();
        for (at, rank) in blamed {
            graph.point(ranks + at, rank.index());
            if let Some(row) = job.rows.get(*at).filter(|row| row.open()) {
                let since = astray.entry((row.group, *rank)).or_insert(row.seq);
                *since = row.seq.min(*since);
            }
        }
        for (at, row) in job.open_rows() {
            let differs = blamed.range((at, GlobalRank(0))..).next();
            let differs = differs.is_some_and(|(row, _)| *row == at);
            // A rank without a recording may have made the call, if others are known not to have.
            let unknown = match row.absent.is_empty() && !differs {
                true => row.unrecorded.as_slice(),
                false => &[],
            };
            // A rank that waits behind its own mismatched call is not held up by others.
            let behind_own = |made: &Made<'_>| {
                astray.get(&(row.group, made.rank)).is_some_and(|since| *since < row.seq)
            };
            if row.made.iter().filter(|made| made.pending()).all(behind_own) {
                continue;
            }
            for rank in row.absent.iter().chain(unknown) {
                graph.point(ranks + at, rank.index());
            }
            if let Some(dead) = dead.filter(|dead| row.of(*dead).is_some()) {
                graph.point(ranks + at, dead.index());
            }
            // A row that lacks nobody is no reason to wait.
            if graph.next.get(ranks + at).is_some_and(|next| !next.is_empty()) {
                for rank in row.waiting().into_iter().filter(|rank| !claims.contains(rank)) {
                    graph.point(rank.index(), ranks + at);
                }
            }
        }
        for missing in (0..).map(GlobalRank).zip(&job.log.ranks).filter(|(_, log)| log.is_none()) {
            for made in job.last_with(missing.0) {
                graph.point(made.rank.index(), missing.0.index());
            }
        }
        for pending in p2p {
            if pending.partner.is_none() && !claims.contains(&pending.made.rank) {
                graph.point(pending.made.rank.index(), pending.peer.index());
            }
        }
        graph.queue_behind(job, p2p, &claims);
        graph
    }

    /// Adds the calls that wait for their turn. Everybody has made them, but a device carries out its
    /// calls one behind the other: of a member that is held up in an earlier one, the call has not
    /// begun, and the others wait for that member. A rank that stands in `synchronize` or `wait` with
    /// such a call waits, too, and is not stuck in code of its own.
    fn queue_behind(
        &mut self,
        job: &Job<'_>,
        p2p: &[PendingP2p<'_>],
        claims: &BTreeSet<GlobalRank>,
    ) {
        let ranks = self.ranks;
        let lacking = |graph: &Graph, at: usize| {
            graph.next.get(ranks + at).is_some_and(|next| !next.is_empty())
        };
        // Per rank its pending collectives, in the order in which it made them.
        let mut queues: Vec<Vec<(u32, usize)>> = vec![Vec::new(); ranks];
        let mut held: Vec<(usize, u32)> = Vec::new();
        for (at, row) in job.open_rows() {
            for made in row.made.iter().filter(|made| made.pending()) {
                if let Some(queue) = queues.get_mut(made.rank.index()) {
                    queue.push((made.record.work, at));
                }
                if lacking(self, at) {
                    held.push((made.rank.index(), made.record.work));
                }
            }
        }
        queues.iter_mut().for_each(|queue| queue.sort_unstable());
        let unanswered = p2p.iter().filter(|pending| pending.partner.is_none());
        held.extend(
            unanswered.map(|pending| (pending.made.rank.index(), pending.made.record.work)),
        );
        // Sends and receives that have met wait for each other's turn as well.
        let mut met: BTreeMap<usize, Vec<(u32, usize, u32)>> = BTreeMap::new();
        for pending in p2p {
            let Some(partner) = pending.partner else { continue };
            let own = (pending.made.rank.index(), pending.made.record.work);
            met.entry(partner.rank.index()).or_default().push((partner.record.work, own.0, own.1));
        }
        // The first call that each rank is held up in; what it has made behind that waits for it.
        let mut first: Vec<Option<u32>> = vec![None; ranks];
        let mut behind: BTreeSet<usize> = BTreeSet::new();
        let mut waits: BTreeSet<(usize, usize)> = BTreeSet::new();
        while let Some((rank, work)) = held.pop() {
            let (Some(queue), Some(first)) = (queues.get(rank), first.get_mut(rank)) else {
                continue;
            };
            if first.is_some_and(|first| first <= work) {
                continue;
            }
            let known = first.replace(work);
            let later = |later: u32| later > work && known.is_none_or(|known| later <= known);
            for (_, at) in queue.iter().filter(|(work, _)| later(*work)) {
                let Some(row) = job.rows.get(*at).filter(|_| !lacking(self, *at)) else { continue };
                if behind.insert(*at) {
                    let waiting = row.made.iter().filter(|made| made.pending());
                    held.extend(waiting.map(|made| (made.rank.index(), made.record.work)));
                }
            }
            for (_, peer, own) in met.get(&rank).into_iter().flatten().filter(|met| later(met.0)) {
                held.push((*peer, *own));
                waits.insert((*peer, rank));
            }
        }
        for (rank, peer) in waits {
            if !claims.contains(&GlobalRank(rank as u32)) {
                self.point(rank, peer);
            }
        }
        for at in behind {
            let Some(row) = job.rows.get(at) else { continue };
            for made in row.made.iter().filter(|made| made.pending()) {
                let (rank, work) = (made.rank.index(), made.record.work);
                if first.get(rank).copied().flatten().is_some_and(|first| first < work) {
                    self.point(ranks + at, rank);
                } else if !claims.contains(&made.rank) {
                    self.point(rank, ranks + at);
                }
            }
        }
    }

    /// The ranks that a row waits for, ascending.
    pub(crate) fn awaited_in(&self, row: usize) -> Vec<GlobalRank> {
        let next = self.next.get(self.ranks + row).map(Vec::as_slice).unwrap_or_default();
        let mut awaited: Vec<GlobalRank> = next.iter().map(|rank| GlobalRank(*rank)).collect();
        awaited.sort_unstable();
        awaited
    }

    /// The circle without those who only wait for it: the ranks of its shortest circles, where there
    /// is none without them.
    pub(crate) fn tightest(&self, sink: &Sink) -> Sink {
        /// Each rank's way back is looked for.
        const RANKS: usize = 64;
        const ROWS: usize = 4096;
        let row_nodes = sink.rows.iter().map(|row| (self.ranks + row) as u32);
        let inside: BTreeSet<u32> = sink.ranks.iter().map(|rank| rank.0).chain(row_nodes).collect();
        let next = |node: u32| {
            let next = self.next.get(node as usize).map(Vec::as_slice).unwrap_or_default();
            next.iter().copied().filter(|node| inside.contains(node))
        };
        let is_rank = |node: u32| (node as usize) < self.ranks;
        let meets = |rank: &GlobalRank| next(rank.0).any(is_rank);
        if sink.ranks.len() > RANKS || sink.rows.len() > ROWS || sink.ranks.iter().any(meets) {
            return sink.clone();
        }
        let around = |rank: &GlobalRank| {
            let mut seen: BTreeSet<u32> = BTreeSet::new();
            let mut reached: Vec<u32> = vec![rank.0];
            let mut steps = 0usize;
            while !reached.is_empty() && !seen.contains(&rank.0) {
                reached = reached.iter().flat_map(|node| next(*node)).collect();
                reached.retain(|node| seen.insert(*node));
                steps += 1;
            }
            steps
        };
        let lengths: Vec<usize> = sink.ranks.iter().map(around).collect();
        let shortest = lengths.iter().min().copied().unwrap_or(0);
        let kept: BTreeSet<u32> = sink
            .ranks
            .iter()
            .zip(&lengths)
            .filter(|(_, length)| **length == shortest)
            .map(|(rank, _)| rank.0)
            .collect();
        // Ends of chains are removed one after the other; a cycle has no end and stays.
        let mut rest: BTreeSet<u32> = inside.difference(&kept).copied().collect();
        loop {
            let ends: Vec<u32> = rest
                .iter()
                .copied()
                .filter(|node| !next(*node).any(|to| rest.contains(&to)))
                .collect();
            if ends.is_empty() {
                break;
            }
            rest.retain(|node| !ends.contains(node));
        }
        if !rest.is_empty() {
            return sink.clone();
        }
        let ranks: Vec<GlobalRank> = kept.iter().map(|rank| GlobalRank(*rank)).collect();
        let between = |row: &usize| {
            let node = (self.ranks + row) as u32;
            let waits = kept.iter().any(|rank| next(*rank).any(|to| to == node));
            waits && next(node).any(|rank| kept.contains(&rank))
        };
        Sink { ranks, rows: sink.rows.iter().copied().filter(between).collect() }
    }

    /// The graph of ranks that have made all of their calls: each waits in the call that its device
    /// is in, and the others that it has made queue behind that one. The device is in the call that
    /// it has started; where none is known to have started, in the first that it was given.
    pub(crate) fn queued(job: &Job<'_>) -> Graph {
        let ranks = job.log.ranks.len();
        let mut graph = Graph::empty(ranks, ranks + job.rows.len());
        let mut first: Vec<Option<(CallOrder, usize)>> = vec![None; ranks];
        for (at, row) in job.open_rows() {
            for made in row.made.iter().filter(|made| made.pending()) {
                if let Some(first) = first.get_mut(made.rank.index()) {
                    let waits_its_turn = made.record.state == CallState::Scheduled;
                    let this = ((waits_its_turn, made.record.work), at);
                    *first = Some(first.map_or(this, |first| first.min(this)));
                }
            }
        }
        for (rank, first) in first.iter().enumerate() {
            if let Some((_, at)) = first {
                graph.point(rank, ranks + at);
            }
        }
        for (at, row) in job.open_rows() {
            for made in row.made.iter().filter(|made| made.pending()) {
                let elsewhere = graph.waits_in(made.rank) != Some(at);
                // A recorder looks for the start of a call only where it is asked to time them.
                let queued = job.log.recorded || made.record.state == CallState::Scheduled;
                if elsewhere && queued {
                    graph.point(ranks + at, made.rank.index());
                }
            }
        }
        graph
    }

    /// The row that a rank points at, if it points at one.
    pub(crate) fn waits_in(&self, rank: GlobalRank) -> Option<usize> {
        let first = *self.next.get(rank.index())?.first()?;
        (first as usize).checked_sub(self.ranks)
    }

    fn empty(ranks: usize, nodes: usize) -> Graph {
        Graph { ranks, next: vec![Vec::new(); nodes], back: vec![Vec::new(); nodes] }
    }

    fn point(&mut self, from: usize, to: usize) {
        if let (Some(next), Some(back)) = (self.next.get_mut(from), self.back.get_mut(to)) {
            next.push(to as u32);
            back.push(from as u32);
        }
    }

    /// Every part of the graph where waiting ends, ascending by first rank.
    pub(crate) fn sinks(&self) -> Vec<Sink> {
        let component_of = self.components();
        let count = component_of.iter().max().map_or(0, |max| *max as usize + 1);
        let mut leaves = vec![false; count];
        let mut wanted = vec![false; count];
        let component = |node: usize| component_of.get(node).map_or(0, |c| *c as usize);
        for (from, next) in self.next.iter().enumerate() {
            for to in next {
                let (from, to) = (component(from), component(*to as usize));
                if let (true, Some(leaves)) = (from != to, leaves.get_mut(from)) {
                    *leaves = true;
                }
                if let Some(wanted) = wanted.get_mut(to) {
                    *wanted = true;
                }
            }
        }
        let mut sinks: Vec<Sink> = vec![Sink { ranks: Vec::new(), rows: Vec::new() }; count];
        for node in 0..self.next.len() {
            let Some(sink) = sinks.get_mut(component(node)) else { continue };
            match node.checked_sub(self.ranks) {
                None => sink.ranks.push(GlobalRank(node as u32)),
                Some(row) => sink.rows.push(row),
            }
        }
        let ends = leaves.iter().zip(&wanted).map(|(leaves, wanted)| !leaves && *wanted);
        let sinks =
            sinks.into_iter().zip(ends).filter(|(sink, end)| *end && !sink.ranks.is_empty());
        let mut sinks: Vec<Sink> = sinks.map(|(sink, _)| sink).collect();
        sinks.sort_by(|a, b| a.ranks.cmp(&b.ranks));
        sinks
    }

    /// The ranks that wait for any of `culprits`, directly or through others, ascending.
    /// `culprits` are ascending.
    pub(crate) fn waiting_for(&self, culprits: &[GlobalRank]) -> Vec<GlobalRank> {
        let mut seen = vec![false; self.next.len()];
        let mut open: Vec<usize> = culprits.iter().map(|rank| rank.index()).collect();
        while let Some(node) = open.pop() {
            match seen.get_mut(node) {
                Some(seen) if !*seen => *seen = true,
                _ => continue,
            }
            let next = self.back.get(node).map(Vec::as_slice).unwrap_or_default();
            open.extend(next.iter().map(|node| *node as usize));
        }
        let ranks = seen.iter().take(self.ranks).zip(0..);
        let reached = ranks.filter(|(seen, _)| **seen).map(|(_, rank)| GlobalRank(rank));
        reached.filter(|rank| culprits.binary_search(rank).is_err()).collect()
    }

    /// Tarjan's strongly connected components, without recursion: the component of every node.
    fn components(&self) -> Vec<u32> {
        const NONE: u32 = u32::MAX;
        let nodes = self.next.len();
        let (mut index, mut low) = (vec![NONE; nodes], vec![NONE; nodes]);
        let (mut component, mut components) = (vec![NONE; nodes], 0);
        let (mut stack, mut counter) = (Vec::new(), 0);
        let mut work: Vec<(usize, usize)> = Vec::new();
        for root in 0..nodes {
            if index.get(root) != Some(&NONE) {
                continue;
            }
            work.push((root, 0));
            while let Some((node, edge)) = work.pop() {
                if edge == 0 {
                    set(&mut index, node, counter);
                    set(&mut low, node, counter);
                    counter += 1;
                    stack.push(node);
                }
                let next = self.next.get(node).and_then(|next| next.get(edge));
                if let Some(to) = next.map(|to| *to as usize) {
                    work.push((node, edge + 1));
                    if get(&index, to) == NONE {
                        work.push((to, 0));
                    } else if get(&component, to) == NONE {
                        let lower = get(&low, node).min(get(&index, to));
                        set(&mut low, node, lower);
                    }
                    continue;
                }
                if get(&low, node) == get(&index, node) {
                    while let Some(member) = stack.pop() {
                        set(&mut component, member, components);
                        if member == node {
                            break;
                        }
                    }
                    components += 1;
                }
                if let Some((parent, _)) = work.last() {
                    let lower = get(&low, *parent).min(get(&low, node));
                    set(&mut low, *parent, lower);
                }
            }
        }
        component
    }
}

fn get(table: &[u32], at: usize) -> u32 {
    table.get(at).copied().unwrap_or(u32::MAX)
}

fn set(table: &mut [u32], at: usize, value: u32) {
    if let Some(slot) = table.get_mut(at) {
        *slot = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(ranks: usize, edges: &[(u32, u32)]) -> Graph {
        let mut graph = Graph::empty(ranks, ranks);
        for (from, to) in edges {
            graph.point(*from as usize, *to as usize);
        }
        graph
    }

    fn sinks(ranks: usize, edges: &[(u32, u32)]) -> Vec<Vec<u32>> {
        let sinks = graph(ranks, edges).sinks();
        sinks.iter().map(|sink| sink.ranks.iter().map(|rank| rank.0).collect()).collect()
    }

    #[test]
    fn waiting_ends_at_one_rank_or_in_a_circle() {
        assert_eq!(sinks(4, &[(0, 1), (1, 2), (3, 2)]), [[2]]);
        assert_eq!(sinks(4, &[(0, 1), (1, 2), (2, 1), (3, 2)]), [[1, 2]]);
        // The circle itself waits for rank 3.
        assert_eq!(sinks(4, &[(0, 1), (1, 0), (1, 3)]), [[3]]);
        assert_eq!(sinks(4, &[]), Vec::<Vec<u32>>::new());
    }

    #[test]
    fn a_circle_is_told_without_those_who_only_wait_for_it() {
        // Ranks 0 to 3, rows 4 to 6: 1 waits in 4 for 2, and 2 in 5 for 3; 3 waits in 6 for 1 and 2.
        let mut graph = Graph::empty(4, 8);
        for (from, to) in [(0, 6), (1, 4), (4, 2), (2, 5), (5, 3), (3, 6), (6, 1), (6, 2)] {
            graph.point(from, to);
        }
        let [sink] = graph.sinks().try_into().unwrap();
        let numbers = |ranks: &[GlobalRank]| ranks.iter().map(|rank| rank.0).collect::<Vec<_>>();
        assert_eq!((numbers(&sink.ranks), &sink.rows), (vec![1, 2, 3], &vec![0, 1, 2]));
        let tight = graph.tightest(&sink);
        assert_eq!((numbers(&tight.ranks), tight.rows), (vec![2, 3], vec![1, 2]));
        // Two circles that share nobody: neither explains the other.
        let mut graph = Graph::empty(6, 12);
        for (from, to) in [
            (0, 6),
            (6, 1),
            (1, 7),
            (7, 0),
            (2, 8),
            (8, 3),
            (3, 9),
            (9, 4),
            (4, 10),
            (10, 2),
            (7, 2),
            (10, 0),
        ] {
            graph.point(from, to);
        }
        let [sink] = graph.sinks().try_into().unwrap();
        assert_eq!(numbers(&graph.tightest(&sink).ranks), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn who_waits_for_a_rank() {
        let graph = graph(5, &[(0, 1), (1, 2), (3, 2)]);
        let ranks: Vec<u32> = graph.waiting_for(&[GlobalRank(2)]).iter().map(|r| r.0).collect();
        assert_eq!(ranks, [0, 1, 3]);
    }

    #[test]
    fn long_chains_do_not_recurse() {
        let edges: Vec<(u32, u32)> = (0..199_999).map(|n| (n, n + 1)).collect();
        assert_eq!(sinks(200_000, &edges), [[199_999]]);
    }
}
