//! Autograd's graph, as far as it says which parameters get gradients and in which order.
//!
//! PyTorch numbers the nodes of its graph as they are made (`Node::sequence_nr`), and a backward pass runs the
//! node with the highest number first whose users have all run (`engine.cpp`, `CompareNodeTaskTime`). A node is
//! made after those that it depends on, so the nodes that a root reaches run in descending order. A parameter's
//! gradient is complete with the last node that uses it, and is accumulated at once: `AccumulateGrad` has the
//! highest number of all. Several of one node have the same priority, and leave the engine's heap in the order
//! that libstdc++'s `pop_heap` gives them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A step of a forward pass that a backward pass goes through: one operation, or a chain of operations without
/// parameters behind it.
#[derive(Debug)]
pub struct Node {
    sequence: u64,
    parameters: Vec<u32>,
    inputs: Vec<Arc<Node>>,
    backward_ns: u64,
    checkpoint: Option<Checkpoint>,
    call: Option<u32>,
}

/// A checkpointed part of a forward pass (`torch.utils.checkpoint`), by its number, whose forward pass runs again when
/// the backward pass comes to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checkpoint {
    /// `use_reentrant=False`: the graph is that of the first time; only what it saved is computed again.
    Recomputes(u32),
    /// `use_reentrant=True`: the graph is made then, and a backward pass of its own goes through it.
    Reenters(u32),
}

/// Nodes are the same if they were made at the same place of one process.
impl PartialEq for Node {
    fn eq(&self, other: &Node) -> bool {
        self.sequence == other.sequence
    }
}

impl Node {
    /// A node that uses these parameters, by their numbers, and depends on these nodes. Its `sequence` is higher
    /// than theirs, and no other node's. `parameters` stand in the order of the operation's arguments as autograd
    /// meets them: the bias of a linear layer before its weight.
    pub fn new(sequence: u64, parameters: Vec<u32>, inputs: Vec<Arc<Node>>) -> Node {
        Node { sequence, parameters, inputs, backward_ns: 0, checkpoint: None, call: None }
    }

    /// The same node, whose backward pass makes a call of torch.distributed before its gradients are ready: the
    /// caller's call of that number, as `SyncBatchNorm` has one.
    #[must_use]
    pub fn calling(mut self, call: u32) -> Node {
        self.call = Some(call);
        self
    }

    /// The same node, whose backward pass takes so many nanoseconds.
    #[must_use]
    pub fn taking(mut self, backward_ns: u64) -> Node {
        self.backward_ns = backward_ns;
        self
    }

    /// The same node as the end of a checkpointed part.
    #[must_use]
    pub fn ending(mut self, part: Checkpoint) -> Node {
        self.checkpoint = Some(part);
        self
    }

    /// The nodes that a backward pass from here runs, the latest first.
    fn reached(&self) -> BTreeMap<u64, &Node> {
        let mut reached = BTreeMap::from([(self.sequence, self)]);
        let mut open = vec![self];
        while let Some(node) = open.pop() {
            for input in &node.inputs {
                if reached.insert(input.sequence, input).is_none() {
                    open.push(input);
                }
            }
        }
        reached
    }

    /// The parameters that a backward pass from here gives gradients.
    pub fn parameters(&self) -> BTreeSet<u32> {
        let nodes = self.reached();
        nodes.values().flat_map(|node| node.parameters.iter().copied()).collect()
    }

    /// The backward pass from here, in its order.
    pub fn backward(&self) -> Vec<Step> {
        let nodes = self.reached();
        let mut last_use: BTreeMap<u32, u64> = BTreeMap::new();
        for node in nodes.values().rev() {
            last_use.extend(node.parameters.iter().map(|parameter| (*parameter, node.sequence)));
        }
        let steps = nodes.values().rev().map(|node| {
            let mut ready: Vec<u32> = Vec::new();
            for parameter in &node.parameters {
                if last_use.get(parameter) == Some(&node.sequence) && !ready.contains(parameter) {
                    ready.push(*parameter);
                }
            }
            let ready = out_of_heap(ready, !node.inputs.is_empty());
            let (backward_ns, checkpoint, call) = (node.backward_ns, node.checkpoint, node.call);
            Step { sequence: node.sequence, backward_ns, ready, checkpoint, call }
        });
        steps.collect()
    }
}

/// The order in which gradients that are put into the engine's heap one after the other leave it, all of the same
/// priority. `others` says that a node of a lower priority is in the heap already.
fn out_of_heap(gradients: Vec<u32>, others: bool) -> Vec<u32> {
    // Up to three keep their order.
    if gradients.len() <= 3 {
        return gradients;
    }
    // `None`, the other node, is less than every gradient.
    let less = |a: Option<u32>, b: Option<u32>| a.is_none() && b.is_some();
    let rise = |heap: &mut Vec<Option<u32>>, mut hole: usize| {
        while hole > 0 && less(heap[(hole - 1) / 2], heap[hole]) {
            heap.swap(hole, (hole - 1) / 2);
            hole = (hole - 1) / 2;
        }
    };
    let mut heap: Vec<Option<u32>> = Vec::with_capacity(gradients.len() + 1);
    for entry in others.then_some(None).into_iter().chain(gradients.iter().copied().map(Some)) {
        heap.push(entry);
        let last = heap.len() - 1;
        rise(&mut heap, last);
    }
    let mut left = Vec::with_capacity(gradients.len());
    while let Some(last) = heap.pop() {
        let Some(first) = heap.first().copied() else {
            left.extend(last);
            break;
        };
        left.extend(first);
        // `__adjust_heap`: the hole sinks to a leaf, the right child first, and the last entry rises from there.
        let mut hole = 0;
        while 2 * hole + 1 < heap.len() {
            let (one, other) = (2 * hole + 1, 2 * hole + 2);
            let child = match heap.get(other) {
                Some(right) if !less(*right, heap[one]) => other,
                _ => one,
            };
            heap[hole] = heap[child];
            hole = child;
        }
        heap[hole] = last;
        rise(&mut heap, hole);
    }
    left
}

/// A graph as deep as a program is long is taken apart without a call for each node.
impl Drop for Node {
    fn drop(&mut self) {
        let mut open = std::mem::take(&mut self.inputs);
        while let Some(node) = open.pop() {
            if let Some(mut node) = Arc::into_inner(node) {
                open.append(&mut node.inputs);
            }
        }
    }
}

/// A step of a backward pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The number of its node.
    pub sequence: u64,
    /// The time that it takes, in nanoseconds.
    pub backward_ns: u64,
    /// The parameters whose gradients are complete after it.
    pub ready: Vec<u32>,
    /// The checkpointed part that runs again before it.
    pub checkpoint: Option<Checkpoint>,
    /// The call that it makes before its gradients are ready, by the number that the node was given.
    pub call: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::Node;
    use std::sync::Arc;

    fn ready(root: &Node) -> Vec<u32> {
        root.backward().into_iter().flat_map(|step| step.ready).collect()
    }

    /// `y = first(x); y = y + second(x) + first(y)`: the layer that was used again is ready last.
    #[test]
    fn a_parameter_is_ready_with_its_first_use() {
        let first = Arc::new(Node::new(1, vec![1, 0], vec![]));
        let second = Arc::new(Node::new(2, vec![3, 2], vec![]));
        let again = Arc::new(Node::new(3, vec![1, 0], vec![first.clone()]));
        let sum = Node::new(4, vec![], vec![first, second, again]);
        assert_eq!(ready(&sum), [3, 2, 1, 0]);
        assert_eq!(sum.parameters().into_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_node_that_the_root_does_not_reach_is_left_out() {
        let used = Arc::new(Node::new(1, vec![0], vec![]));
        let _unused = Node::new(2, vec![1], vec![used.clone()]);
        assert_eq!(ready(&Node::new(3, vec![], vec![used])), [0]);
    }

    /// oneDNN's LSTM is one operation of four parameters (torch 2.15 on the CPU: weight_ih, weight_hh, bias_ih,
    /// bias_hh): without an input that is trained they are ready in another order than with one.
    #[test]
    fn gradients_of_one_operation_leave_the_engines_heap() {
        assert_eq!(ready(&Node::new(1, vec![0, 1, 2, 3], vec![])), [0, 2, 1, 3]);
        let before = Arc::new(Node::new(0, vec![], vec![]));
        assert_eq!(ready(&Node::new(1, vec![0, 1, 2, 3], vec![before.clone()])), [0, 1, 3, 2]);
        // A function of torch.autograd with 16 parameters, as torch 2.15 makes them ready.
        let many: Vec<u32> = (0..16).collect();
        let alone = [0, 2, 6, 14, 13, 15, 12, 11, 10, 9, 8, 5, 7, 4, 1, 3];
        assert_eq!(ready(&Node::new(1, many.clone(), vec![])), alone);
        let behind = [0, 1, 5, 13, 15, 12, 4, 10, 11, 9, 8, 7, 14, 2, 6, 3];
        assert_eq!(ready(&Node::new(1, many, vec![before])), behind);
    }

    #[test]
    fn a_deep_graph_is_dropped() {
        let mut node = Arc::new(Node::new(0, vec![0], vec![]));
        for sequence in 1..1_000_000 {
            node = Arc::new(Node::new(sequence, vec![], vec![node]));
        }
        assert_eq!(ready(&node), [0]);
    }
}
