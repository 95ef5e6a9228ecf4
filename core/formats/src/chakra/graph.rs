//! The dependencies of a file's nodes: that they are whole, and when they let each node begin.

use super::error::ChakraError;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// The most nodes of a circle that are named.
const NAMED: usize = 8;

/// A node, as far as its place in time depends on it.
#[derive(Clone, Debug)]
pub(super) struct GraphNode {
    pub(super) id: u64,
    /// The range of its dependencies in [`Graph::needs`].
    pub(super) needs: std::ops::Range<usize>,
    /// The resource that it occupies while it lasts.
    pub(super) uses: Resource,
    pub(super) duration_ns: u64,
}

/// A resource that a node occupies: computations on one of these follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    Nothing,
    Processor,
    Device,
}

/// The nodes of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<GraphNode>,
    /// Ids of nodes that others depend on.
    pub(super) needs: Vec<u64>,
    /// Callers: nodes and the nodes that control has come from. As in Chakra's feeder they are no dependencies, since
    /// converters put the order of execution into the others; they are followed where there are no others.
    pub(super) callers: Vec<(u64, u64)>,
    /// True if the file breaks behind these nodes: what is missing may stand there.
    pub(super) broken: bool,
}

/// The beginning and end of a node, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) from_ns: u64,
    pub(super) to_ns: u64,
}

impl Graph {
    /// The time of every node, in the order of the nodes: each runs as soon as its dependencies have ended
    /// and the resource that it occupies is free. A node that takes no time ends when the first node that
    /// depends on it begins.
    ///
    /// # Errors
    /// When dependencies are not in the file, or go in a circle. `name` names a node.
    pub(super) fn layout(
        &self,
        file: &str,
        name: impl Fn(usize) -> String,
    ) -> Result<Vec<Slot>, ChakraError> {
        let file = || file.to_owned();
        let mut at_of: BTreeMap<u64, usize> = BTreeMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            if at_of.insert(node.id, at).is_some() {
                return Err(ChakraError::SameId { file: file(), id: node.id });
            }
        }
        let mut edges: Vec<(usize, usize)> = Vec::with_capacity(self.needs.len());
        for (at, node) in self.nodes.iter().enumerate() {
            for on in self.needs.get(node.needs.clone()).unwrap_or_default() {
                let Some(on_at) = at_of.get(on) else {
                    if self.broken {
                        continue;
                    }
                    let (id, name) = (node.id, name(at));
                    return Err(ChakraError::Dangling { file: file(), id, name, on: *on });
                };
                edges.push((*on_at, at));
            }
        }
        let callers = if self.needs.is_empty() { self.callers.as_slice() } else { &[] };
        for (id, on) in callers {
            edges.extend(at_of.get(on).copied().zip(at_of.get(id).copied()));
        }
        edges.sort_unstable();
        edges.dedup();
        let first = |at: usize| edges.partition_point(|(from, _)| *from < at);
        let mut open = vec![0u32; self.nodes.len()];
        for (_, to) in &edges {
            if let Some(open) = open.get_mut(*to) {
                *open += 1;
            }
        }
        let mut slots = vec![Slot::default(); self.nodes.len()];
        let mut ready: BinaryHeap<Reverse<(u64, u64, usize)>> = BinaryHeap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            if open.get(at) == Some(&0) {
                ready.push(Reverse((0, node.id, at)));
            }
        }
        // When the processor and the device are free.
        let mut free_ns = [0u64; 2];
        let mut done = 0;
        while let Some(Reverse((ready_ns, _, at))) = ready.pop() {
            let Some((node, slot)) = self.nodes.get(at).zip(slots.get(at).copied()) else { break };
            done += 1;
            let occupied = match node.uses {
                Resource::Nothing => None,
                Resource::Processor => Some(0),
                Resource::Device => Some(1),
            };
            let free = occupied.and_then(|at| free_ns.get(at).copied()).unwrap_or(0);
            let from_ns = ready_ns.max(free).max(slot.from_ns);
            let to_ns = from_ns.saturating_add(node.duration_ns);
            if let Some(free) = occupied.and_then(|at| free_ns.get_mut(at)) {
                *free = to_ns;
            }
            if let Some(slot) = slots.get_mut(at) {
                *slot = Slot { from_ns, to_ns };
            }
            for (_, next) in edges.get(first(at)..first(at + 1)).unwrap_or_default() {
                let Some((slot, open)) = slots.get_mut(*next).zip(open.get_mut(*next)) else {
                    continue;
                };
                slot.from_ns = slot.from_ns.max(to_ns);
                *open -= 1;
                if *open == 0 {
                    let id = self.nodes.get(*next).map_or(0, |node| node.id);
                    ready.push(Reverse((slot.from_ns, id, *next)));
                }
            }
        }
        if done < self.nodes.len() {
            return Err(ChakraError::Circle { file: file(), circle: self.circle(&edges, &open) });
        }
        // Whoever needs a call says when it has ended at the latest.
        for (at, node) in self.nodes.iter().enumerate() {
            if node.duration_ns > 0 || node.uses != Resource::Nothing {
                continue;
            }
            let needed = edges.get(first(at)..first(at + 1)).unwrap_or_default();
            let begins = needed.iter().filter_map(|(_, next)| Some(slots.get(*next)?.from_ns));
            let earliest = begins.min();
            if let Some((slot, earliest)) = slots.get_mut(at).zip(earliest) {
                slot.to_ns = earliest.max(slot.from_ns);
            }
        }
        Ok(slots)
    }

    /// A circle among the nodes that still wait.
    fn circle(&self, edges: &[(usize, usize)], open: &[u32]) -> Vec<u64> {
        let waits = |at: usize| open.get(at).is_some_and(|open| *open > 0);
        let mut before: BTreeMap<usize, usize> = BTreeMap::new();
        for (from, to) in edges {
            if waits(*from) && waits(*to) {
                before.entry(*to).or_insert(*from);
            }
        }
        // Back from any of them: each that waits has one before it that waits, so a node comes twice.
        let mut at = before.keys().next().copied().unwrap_or(0);
        let mut seen = BTreeSet::new();
        while seen.insert(at) {
            at = before.get(&at).copied().unwrap_or(at);
        }
        let (begin, mut circle) = (at, Vec::new());
        loop {
            circle.extend(self.nodes.get(at).map(|node| node.id));
            at = before.get(&at).copied().unwrap_or(begin);
            if at == begin || circle.len() >= NAMED {
                break;
            }
        }
        circle
    }
}
