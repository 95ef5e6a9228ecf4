//! Data races: finds actions that use the same memory and that the program does not order.
//!
//! Two accesses of a memory of which one writes must be ordered by the program (blocks run in order,
//! dependencies, messages), not by luck: every action has a vector clock (Fidge 1988, Mattern 1989), and per
//! chunk the last write and the reads since are compared with it, as race detectors do (Flanagan and Freund
//! 2009, "FastTrack").

use super::MscclError;
use super::order::{Edge, Node, Order, Why};
use super::program::Program;
use lockstep_core::schedule::{Buffer, Slice};
use std::collections::BTreeMap;

/// Clock entries that are kept at once.
const MAX_CLOCKS: u64 = 1 << 25;

impl Order {
    /// Adds the order that memory imposes, and refuses accesses that nothing orders.
    pub(super) fn add_memory(
        &mut self,
        program: &Program,
        waits: &[Vec<u32>],
        sequence: &[u32],
    ) -> Result<(), MscclError> {
        let blocks: usize = program.gpus.iter().map(|gpu| gpu.blocks.len()).sum();
        let crossing = waits.iter().filter(|waits| !waits.is_empty()).count();
        if (blocks + crossing) as u64 * blocks as u64 > MAX_CLOCKS {
            return Err(MscclError::TooManyWaits { waits: crossing, blocks });
        }
        let mut awaited = vec![0u32; self.nodes.len()];
        for from in waits.iter().flatten() {
            awaited[*from as usize] += 1;
        }
        let mut walk = Walk {
            chunks: vec![BTreeMap::new(); program.gpus.len()],
            clocks: vec![vec![0; blocks]; blocks],
            kept: BTreeMap::new(),
            edges: Vec::new(),
        };
        for id in 0..program.size() {
            if let Some(action) = self.memory.before(id) {
                self.nodes.push(Node {
                    gpu: id,
                    action,
                    at: None,
                    message: None,
                    block: 0,
                    place: 0,
                });
                walk.access(self, self.nodes.len() as u32 - 1)?;
            }
        }
        for &node in sequence {
            let Node { block, place, .. } = self.nodes[node as usize];
            for from in &waits[node as usize] {
                walk.meet(block as usize, *from, &mut awaited[*from as usize]);
            }
            walk.access(self, node)?;
            let clock = &mut walk.clocks[block as usize];
            clock[block as usize] = place;
            if awaited[node as usize] > 0 {
                let clock = clock.clone();
                walk.kept.insert(node, clock);
            }
        }
        for id in 0..program.size() {
            if let Some(action) = self.memory.after(id) {
                let node = Node { gpu: id, action, at: None, message: None, block: 0, place: 0 };
                self.nodes.push(node);
                walk.access(self, self.nodes.len() as u32 - 1)?;
            }
        }
        walk.edges.sort_unstable();
        walk.edges.dedup();
        let why = Why::Memory;
        self.edges.extend(walk.edges.into_iter().map(|(from, to)| Edge { from, to, why }));
        Ok(())
    }
}

/// The uses of one chunk.
#[derive(Clone, Debug, Default)]
struct Used {
    written: Option<u32>,
    read: Vec<u32>,
}

/// A walk through the actions in order, with the accesses of every chunk.
struct Walk {
    /// By GPU: its chunks that were used.
    chunks: Vec<BTreeMap<(Buffer, u32), Used>>,
    /// By block: how far it knows every block to be.
    clocks: Vec<Vec<u32>>,
    /// The clocks of actions that others wait for.
    kept: BTreeMap<u32, Vec<u32>>,
    edges: Vec<(u32, u32)>,
}

impl Walk {
    /// The block has waited for `from`: it is now ordered after everything that `from` is.
    fn meet(&mut self, block: usize, from: u32, left: &mut u32) {
        if let Some(known) = self.kept.get(&from) {
            for (own, known) in self.clocks[block].iter_mut().zip(known) {
                *own = (*own).max(*known);
            }
        }
        *left -= 1;
        if *left == 0 {
            self.kept.remove(&from);
        }
    }

    /// True if the program orders `before` ahead of the start of `node`. Our own copies come before and after
    /// everything.
    fn ordered(&self, order: &Order, before: u32, node: u32) -> bool {
        let (before, node) = (&order.nodes[before as usize], &order.nodes[node as usize]);
        before.place == 0
            || node.place == 0
            || before.block == node.block
            || self.clocks[node.block as usize][before.block as usize] >= before.place
    }

    /// Takes the memory that an action reads and writes into account.
    fn access(&mut self, order: &Order, number: u32) -> Result<(), MscclError> {
        let node = order.nodes[number as usize];
        let ours = node.at.is_none();
        for slice in node.action.reads() {
            let filled = order.memory.filled(slice.buffer);
            for chunk in chunks_of(slice) {
                let used = self.chunks[node.gpu as usize].entry((slice.buffer, chunk)).or_default();
                let written = used.written;
                used.read.push(number);
                match (written, node.at) {
                    (Some(written), _) => {
                        self.after(order, written, number, slice.buffer, chunk)?
                    }
                    // The proof finds every other read of what was never written: there, our
                    // output holds the input at first.
                    (None, Some(at)) if !ours && !filled && order.memory.hides(slice.buffer) => {
                        let what = order.memory.name(node.gpu, Slice::one(slice.buffer, chunk));
                        let why = format!("reads {what}, where nothing was written yet");
                        return Err(MscclError::step(at, why));
                    }
                    (None, _) => {}
                }
            }
        }
        let Some(slice) = node.action.writes() else { return Ok(()) };
        for chunk in chunks_of(slice) {
            let used = self.chunks[node.gpu as usize].entry((slice.buffer, chunk)).or_default();
            let before = std::mem::replace(used, Used { written: Some(number), read: Vec::new() });
            for other in before.read.into_iter().chain(before.written) {
                if other != number {
                    self.after(order, other, number, slice.buffer, chunk)?;
                }
            }
        }
        Ok(())
    }

    fn after(
        &mut self,
        order: &Order,
        before: u32,
        node: u32,
        buffer: Buffer,
        chunk: u32,
    ) -> Result<(), MscclError> {
        let at = |node: u32| order.nodes[node as usize].at;
        if !self.ordered(order, before, node)
            && let (Some(one), Some(other)) = (at(before), at(node))
        {
            let what = order.memory.name(one.gpu, Slice::one(buffer, chunk));
            return Err(MscclError::Race { at: one.min(other), other: one.max(other), what });
        }
        // Long slices make the same pair again and again.
        if self.edges.last() != Some(&(before, node)) {
            self.edges.push((before, node));
        }
        Ok(())
    }
}

fn chunks_of(slice: Slice) -> std::ops::Range<u32> {
    slice.chunk..slice.chunk.saturating_add(slice.chunks)
}
