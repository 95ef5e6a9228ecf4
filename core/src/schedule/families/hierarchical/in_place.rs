//! Hierarchical all_reduce, broadcast and reduce.
//!
//! Sharded all_reduce: a ring reduce-scatter in the node, a ring all_reduce of each shard across the
//! nodes, a ring all-gather in the node. By leaders: a tree to the leader, a ring of the leaders, a
//! tree from the leader. Broadcast and reduce take a tree across the nodes.

use super::member::Member;
use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::reduce::ReduceOp;
use crate::schedule::families::{ring, tree};
use crate::schedule::nodes::Nodes;
use crate::schedule::{Action, Buffer, Slice};

/// The collective that the ring is given; it does not look at the operation.
const RING: Collective = Collective::AllReduce { op: ReduceOp::Sum };

/// Steps inside the nodes, each time.
fn inside_steps(nodes: Nodes) -> u32 {
    if nodes.are_equal() { nodes.per_node - 1 } else { tree::depth(nodes.per_node) }
}

pub(super) fn all_reduce_steps(nodes: Nodes) -> u32 {
    2 * inside_steps(nodes) + 2 * (nodes.count() - 1)
}

pub(super) fn rooted_steps(nodes: Nodes) -> u32 {
    let shards = u32::from(nodes.are_equal() && nodes.per_node > 1);
    shards + tree::depth(nodes.count()) + inside_steps(nodes)
}

fn whole(chunks: u32) -> impl Fn(Slice) -> Slice {
    move |slice| Slice::run(slice.buffer, 0..chunks)
}

pub(super) fn all_reduce(me: Member, step: u32, actions: &mut Vec<Action>) {
    let nodes = me.nodes;
    let (k, m) = (nodes.per_node, nodes.count());
    let (inside, across) = (inside_steps(nodes), 2 * (m - 1));
    let begin = actions.len();
    if step >= inside && step < inside + across {
        let ring_step = step - inside;
        if nodes.are_equal() {
            // After the first phase rank l of a node holds its sum of shard l + 1.
            let shard = (me.local + 1) % k;
            let slices = |slice: Slice| Slice { chunk: shard * m + slice.chunk, ..slice };
            ring::actions(RING, m, GroupRank(me.node), ring_step, actions);
            Member::across(begin, actions, slices, |node| nodes.first(node) + me.local);
        } else if me.local == 0 {
            ring::actions(RING, m, GroupRank(me.node), ring_step, actions);
            Member::across(begin, actions, |slice| slice, |node| nodes.first(node));
        }
        return;
    }
    let (before, step) = if step < inside { (true, step) } else { (false, step - inside - across) };
    if nodes.are_equal() {
        let ring_step = if before { step } else { inside + step };
        let slices = |slice: Slice| Slice { chunk: slice.chunk * m, chunks: m, ..slice };
        ring::actions(RING, k, GroupRank(me.local), ring_step, actions);
        me.inside(begin, actions, slices);
        return;
    }
    if before {
        tree::reduce(me.neighbours(), 0, me.local, inside - 1 - step, actions);
    } else {
        tree::broadcast(me.neighbours(), 0, me.local, step, actions);
    }
    me.inside(begin, actions, whole(m));
}

/// The rank that speaks for a node where the root speaks for its own.
fn leader(nodes: Nodes, root: u32, node: u32) -> u32 {
    if node == nodes.node(root) { root } else { nodes.first(node) }
}

/// The ring's chunks renamed, so that rank l begins its second half, and ends its first, with l.
fn shard(k: u32) -> impl Fn(Slice) -> Slice {
    move |slice| Slice { chunk: (slice.chunk + k - 1) % k, ..slice }
}

/// Sharded: the root scatters in its node, each shard goes down a tree of the nodes, and a ring
/// gathers in each node.
pub(super) fn broadcast(me: Member, root: u32, step: u32, actions: &mut Vec<Action>) {
    let nodes = me.nodes;
    let (k, m) = (nodes.per_node, nodes.count());
    let begin = actions.len();
    let scatter = u32::from(nodes.are_equal() && k > 1);
    let across = tree::depth(m);
    if step < scatter {
        in_the_roots_node(me, root, false, actions);
    } else if step < scatter + across {
        let level = step - scatter;
        across_nodes(me, root, actions, |node, root, actions| {
            tree::broadcast(m, root, node, level, actions);
        });
    } else if nodes.are_equal() {
        ring::actions(RING, k, GroupRank(me.local), step - scatter - across + k - 1, actions);
        me.inside(begin, actions, shard(k));
    } else {
        let leader = nodes.local(leader(nodes, root, me.node));
        tree::broadcast(me.neighbours(), leader, me.local, step - across, actions);
        me.inside(begin, actions, |slice| slice);
    }
}

/// The steps backwards: a ring reduce-scatter in each node, each shard up a tree of the nodes, and the shards
/// of the root's node to the root.
pub(super) fn reduce(me: Member, root: u32, step: u32, actions: &mut Vec<Action>) {
    let nodes = me.nodes;
    let (k, m) = (nodes.per_node, nodes.count());
    let begin = actions.len();
    let (inside, across) = (inside_steps(nodes), tree::depth(m));
    if step < inside && nodes.are_equal() {
        ring::actions(RING, k, GroupRank(me.local), step, actions);
        me.inside(begin, actions, shard(k));
    } else if step < inside {
        let leader = nodes.local(leader(nodes, root, me.node));
        tree::reduce(me.neighbours(), leader, me.local, inside - 1 - step, actions);
        me.inside(begin, actions, |slice| slice);
    } else if step < inside + across {
        let level = inside + across - 1 - step;
        across_nodes(me, root, actions, |node, root, actions| {
            tree::reduce(m, root, node, level, actions);
        });
    } else {
        in_the_roots_node(me, root, true, actions);
    }
}

/// A tree of the nodes: of each shard, or of the leaders.
fn across_nodes(
    me: Member,
    root: u32,
    actions: &mut Vec<Action>,
    tree: impl Fn(u32, u32, &mut Vec<Action>),
) {
    let nodes = me.nodes;
    let begin = actions.len();
    if nodes.are_equal() {
        tree(me.node, nodes.node(root), actions);
        let slices = |slice: Slice| Slice { chunk: me.local, ..slice };
        Member::across(begin, actions, slices, |node| nodes.first(node) + me.local);
    } else if me.rank() == leader(nodes, root, me.node) {
        tree(me.node, nodes.node(root), actions);
        Member::across(begin, actions, |slice| slice, |node| leader(nodes, root, node));
    }
}

/// Shard l between the root and rank l of its node.
fn in_the_roots_node(me: Member, root: u32, to_root: bool, actions: &mut Vec<Action>) {
    let nodes = me.nodes;
    if me.node != nodes.node(root) {
        return;
    }
    let shard = |rank: u32| Slice::one(Buffer::Output, nodes.local(rank));
    let exchange = |peer: u32, of: u32, sends: bool| {
        let (peer, slice) = (GroupRank(peer), shard(of));
        match sends {
            true => Action::Send { peer, from: slice },
            false => Action::Receive { peer, into: slice },
        }
    };
    if me.rank() == root {
        let others = nodes.ranks(me.node).filter(|rank| *rank != root);
        actions.extend(others.map(|rank| exchange(rank, rank, !to_root)));
    } else {
        actions.push(exchange(root, me.rank(), to_root));
    }
}
