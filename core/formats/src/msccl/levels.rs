//! Step numbers: from the order of actions to a step of its own for every action, the same on both ends of a
//! message.
//!
//! Lockstep's schedules have steps: a message is received in the receiver's step of the same number as the
//! sender's. So a message is one node of a graph, and its step the longest way to it. A program may have an
//! order that no numbering allows: a thread block that sends and then receives, on all ranks of a ring, goes
//! round in a circle when both ends of a message count as one. The tie between the two ends is loosened where
//! that is so, until there is a numbering:
//! - the order that the program states where the memory does not need it becomes "not before";
//! - an action whose memory is needed earlier or later than its message goes is *staged*: through a copy in
//!   scratch, which is what NCCL's connection buffers are.
//!
//! Programs that could run at all always get there, because without the shared numbers their order has no
//! circle.

use super::MscclError;
use super::order::{Edge, Order, Why};
use super::program::Program;
use lockstep_core::rank::GroupRank;
use lockstep_core::schedule::{Action, Slice, Table, TableBuilder};

/// Rounds of loosening after which everything that is left is staged.
const ROUNDS: u32 = 32;

/// The table of an ordered program.
pub(super) fn table(program: &Program, order: Order) -> Result<Table, MscclError> {
    let mut levels = Levels::new(order);
    let steps = levels.number()?;
    levels.table(program, &steps)
}

struct Levels {
    order: Order,
    /// Stated orders that are only "not before" by now.
    loose: Vec<bool>,
    /// Stated orders that had to go.
    dropped: Vec<bool>,
    /// Per action: where its message's content waits in scratch.
    staged: Vec<Option<Slice>>,
}

/// An edge between graph nodes: `to` is at least `weight` steps after `from`.
#[derive(Clone, Copy)]
struct Arc {
    from: u32,
    to: u32,
    weight: u32,
    /// The edge of the order; none between a staged action and its message.
    edge: Option<u32>,
}

impl Levels {
    fn new(order: Order) -> Levels {
        let loose = order.edges.iter().map(|edge| edge.why == Why::Hinted).collect();
        let dropped = vec![false; order.edges.len()];
        let staged = vec![None; order.nodes.len()];
        Levels { order, loose, dropped, staged }
    }

    /// The graph node of an action: its message, unless it is staged or has none.
    fn node(&self, action: u32) -> u32 {
        match (self.order.nodes[action as usize].message, self.staged[action as usize]) {
            (Some(message), None) => message,
            _ => self.order.messages.len() as u32 + action,
        }
    }

    fn nodes(&self) -> usize {
        self.order.messages.len() + self.order.nodes.len()
    }

    fn arcs(&self) -> Vec<Arc> {
        let edges = self.order.edges.iter().zip(0u32..);
        let kept = edges.filter(|(_, number)| !self.dropped[*number as usize]);
        let mut arcs: Vec<Arc> = kept
            .map(|(&Edge { from, to, .. }, number)| Arc {
                from: self.node(from),
                to: self.node(to),
                weight: u32::from(!self.loose[number as usize]),
                edge: Some(number),
            })
            .collect();
        for (&(send, receive), message) in self.order.messages.iter().zip(0u32..) {
            let arc = |from, to| Arc { from, to, weight: 1, edge: None };
            if self.staged[send as usize].is_some() {
                arcs.push(arc(self.node(send), message));
            }
            if self.staged[receive as usize].is_some() {
                arcs.push(arc(message, self.node(receive)));
            }
        }
        arcs
    }

    /// A step for every graph node.
    fn number(&mut self) -> Result<Vec<u32>, MscclError> {
        for round in 0.. {
            let arcs = self.arcs();
            let graph = Graph::of(self.nodes(), &arcs);
            let circles = graph.circles();
            let tight: Vec<Arc> = arcs
                .iter()
                .filter(|arc| arc.weight > 0 && circles.of(arc.from) == circles.of(arc.to))
                .copied()
                .collect();
            if tight.is_empty() {
                return Ok(circles.longest_ways(&arcs));
            }
            let inside: Vec<u32> = arcs
                .iter()
                .filter(|arc| circles.of(arc.from) == circles.of(arc.to))
                .filter_map(|arc| arc.edge)
                .collect();
            if !self.loosen(&tight, &inside, round > ROUNDS) {
                break;
            }
        }
        // Unreachable for what `order` let through; an error all the same.
        Err(MscclError::NoOrder)
    }

    /// Loosens an arc of a circle; false when there is nothing left to loosen.
    fn loosen(&mut self, tight: &[Arc], inside: &[u32], all: bool) -> bool {
        let stated = |order: &Order, edge: u32| order.edges[edge as usize].why != Why::Memory;
        let mut loosened = false;
        for edge in tight.iter().filter_map(|arc| arc.edge) {
            if stated(&self.order, edge) {
                self.loose[edge as usize] = true;
                loosened = true;
            }
        }
        if loosened && !all {
            return true;
        }
        for edge in tight.iter().filter_map(|arc| arc.edge) {
            let Edge { from, to, .. } = self.order.edges[edge as usize];
            loosened |= self.stage(from, true) || self.stage(to, false);
        }
        if loosened && !all {
            return true;
        }
        for &edge in inside {
            if stated(&self.order, edge) && !self.dropped[edge as usize] {
                self.dropped[edge as usize] = true;
                loosened = true;
            }
        }
        loosened
    }

    /// Stages a send or a receive; false when the action is neither, or is staged already.
    fn stage(&mut self, action: u32, send: bool) -> bool {
        let node = &self.order.nodes[action as usize];
        let slice = match node.action {
            Action::Send { from, .. } if send => from,
            Action::Receive { into, .. } | Action::ReceiveReduce { into, .. } if !send => into,
            _ => return false,
        };
        let staged = &mut self.staged[action as usize];
        if staged.is_some() {
            return false;
        }
        *staged = Some(self.order.memory.take(slice.chunks));
        true
    }

    /// The table, given a step for every graph node.
    fn table(&self, program: &Program, steps: &[u32]) -> Result<Table, MscclError> {
        let mut table = TableBuilder::new(
            program.name.clone(),
            program.collective,
            program.size(),
            program.cut,
            self.order.memory.scratch(),
        )?;
        let step = |node: u32| steps[node as usize];
        // In the order of messages, so that both sides list those of a step alike.
        for (&(send, receive), message) in self.order.messages.iter().zip(0u32..) {
            for action in [send, receive] {
                let node = &self.order.nodes[action as usize];
                let action = match self.staged[action as usize] {
                    None => node.action,
                    Some(staged) => through(node.action, staged),
                };
                table.push(GroupRank(node.gpu), step(message), action);
            }
        }
        for (node, number) in self.order.nodes.iter().zip(0u32..) {
            let action = match (node.message, self.staged[number as usize]) {
                (Some(_), None) => continue,
                (Some(_), Some(staged)) => beside(node.action, staged),
                (None, _) => node.action,
            };
            table.push(GroupRank(node.gpu), step(self.node(number)), action);
        }
        Ok(table.finish()?)
    }
}

/// The message's side of a staged action.
fn through(action: Action, staged: Slice) -> Action {
    match action {
        Action::Send { peer, .. } => Action::Send { peer, from: staged },
        Action::Receive { peer, .. } | Action::ReceiveReduce { peer, .. } => {
            Action::Receive { peer, into: staged }
        }
        local => local,
    }
}

/// The memory's side of a staged action.
fn beside(action: Action, staged: Slice) -> Action {
    match action {
        Action::Send { from, .. } => Action::Copy { from, into: staged },
        Action::Receive { into, .. } => Action::Copy { from: staged, into },
        Action::ReceiveReduce { local, into, .. } => Action::Reduce { local, from: staged, into },
        local => local,
    }
}

/// Arcs by the node they start from.
struct Graph {
    first: Vec<u32>,
    to: Vec<u32>,
}

/// The strongly connected components of a graph.
struct Circles {
    /// By node: its component. Components are numbered against the arcs: an arc between two goes
    /// to the one with the smaller number.
    of: Vec<u32>,
    count: u32,
}

impl Graph {
    fn of(nodes: usize, arcs: &[Arc]) -> Graph {
        let mut first = vec![0u32; nodes + 1];
        for arc in arcs {
            first[arc.from as usize + 1] += 1;
        }
        for node in 0..nodes {
            first[node + 1] += first[node];
        }
        let mut next = first.clone();
        let mut to = vec![0; arcs.len()];
        for arc in arcs {
            let place = &mut next[arc.from as usize];
            to[*place as usize] = arc.to;
            *place += 1;
        }
        Graph { first, to }
    }

    /// Tarjan's algorithm (1972), with a stack of its own: programs are deeper than ours.
    fn circles(&self) -> Circles {
        const NEW: u32 = u32::MAX;
        let nodes = self.first.len() - 1;
        let mut index = vec![NEW; nodes];
        let mut low = vec![0u32; nodes];
        let mut of = vec![NEW; nodes];
        let mut next_arc = self.first.clone();
        let (mut open, mut path): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        let (mut seen, mut count) = (0u32, 0u32);
        for root in 0..nodes as u32 {
            if index[root as usize] != NEW {
                continue;
            }
            path.push(root);
            while let Some(&node) = path.last() {
                let at = node as usize;
                if index[at] == NEW {
                    (index[at], low[at]) = (seen, seen);
                    seen += 1;
                    open.push(node);
                }
                if next_arc[at] < self.first[at + 1] {
                    let to = self.to[next_arc[at] as usize];
                    next_arc[at] += 1;
                    if index[to as usize] == NEW {
                        path.push(to);
                    } else if of[to as usize] == NEW {
                        low[at] = low[at].min(index[to as usize]);
                    }
                    continue;
                }
                path.pop();
                if let Some(&parent) = path.last() {
                    low[parent as usize] = low[parent as usize].min(low[at]);
                }
                if low[at] == index[at] {
                    while let Some(member) = open.pop() {
                        of[member as usize] = count;
                        if member == node {
                            break;
                        }
                    }
                    count += 1;
                }
            }
        }
        Circles { of, count }
    }
}

impl Circles {
    fn of(&self, node: u32) -> u32 {
        self.of[node as usize]
    }

    /// Per node the longest way to it; all nodes of a circle have one.
    fn longest_ways(&self, arcs: &[Arc]) -> Vec<u32> {
        let mut ways = vec![0u32; self.count as usize];
        // From the components that nothing comes before: those with the largest numbers.
        let mut arcs: Vec<&Arc> = arcs.iter().collect();
        arcs.sort_by_key(|arc| std::cmp::Reverse(self.of(arc.from)));
        for arc in arcs {
            let (from, to) = (self.of(arc.from) as usize, self.of(arc.to) as usize);
            if from != to {
                ways[to] = ways[to].max(ways[from] + arc.weight);
            }
        }
        self.of.iter().map(|circle| ways[*circle as usize]).collect()
    }
}
