//! Hierarchical all_gather and reduce_scatter, whose tensors have a part for each rank.
//!
//! Sharded: rank l of each node goes through the parts of the ranks l of all nodes, across the
//! nodes first for all_gather and last for reduce_scatter, so that what a node has to know crosses
//! the network once. By leaders: everything goes through the first rank of each node.

use super::member::Member;
use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::reduce::ReduceOp;
use crate::schedule::families::{ring, tree};
use crate::schedule::nodes::Nodes;
use crate::schedule::{Action, Buffer, Slice};

const REDUCE_SCATTER: Collective = Collective::ReduceScatter { op: ReduceOp::Sum };

/// Steps of a ring of `n` of these calls.
fn ring_steps(n: u32) -> u32 {
    (n - 1).max(1)
}

/// The parts of the ranks of a node.
fn block(nodes: Nodes, buffer: Buffer, node: u32) -> Slice {
    Slice::run(buffer, nodes.ranks(node))
}

/// `(a - b) mod n` for `a < n`, `b <= n`.
fn minus_mod(a: u32, b: u32, n: u32) -> u32 {
    (a + n - b % n) % n
}

pub(super) fn all_gather_steps(nodes: Nodes) -> u32 {
    match nodes.are_equal() {
        true => ring_steps(nodes.count()) + nodes.per_node - 1,
        false => 1 + (nodes.count() - 1) + tree::depth(nodes.per_node),
    }
}

pub(super) fn all_gather(me: Member, step: u32, actions: &mut Vec<Action>) {
    let nodes = me.nodes;
    let (k, m) = (nodes.per_node, nodes.count());
    let begin = actions.len();
    if nodes.are_equal() {
        let Some(step) = step.checked_sub(ring_steps(m)) else {
            ring::actions(Collective::AllGather, m, GroupRank(me.node), step, actions);
            let parts = |slice: Slice| match slice.buffer {
                Buffer::Output => Slice { chunk: nodes.first(slice.chunk) + me.local, ..slice },
                _ => slice,
            };
            Member::across(begin, actions, parts, |node| nodes.first(node) + me.local);
            return;
        };
        // A ring in the node: the m parts of one rank l after those of the other.
        let peer = |local| GroupRank(nodes.first(me.node) + local);
        let part = |node: u32, local| Slice::one(Buffer::Output, nodes.first(node) + local);
        let (sent, gets) = (minus_mod(me.local, step, k), minus_mod(me.local, step + 1, k));
        let (next, previous) = (peer((me.local + 1) % k), peer(minus_mod(me.local, 1, k)));
        actions.extend((0..m).map(|node| Action::Send { peer: next, from: part(node, sent) }));
        let receive = |node| Action::Receive { peer: previous, into: part(node, gets) };
        actions.extend((0..m).map(receive));
        return;
    }
    let own = Slice::one(Buffer::Input, 0);
    let part = |rank| Slice::one(Buffer::Output, rank);
    if step == 0 {
        if me.local > 0 {
            actions.push(Action::Send { peer: GroupRank(nodes.first(me.node)), from: own });
            return;
        }
        actions.push(Action::Copy { from: own, into: part(me.rank()) });
        let others = nodes.ranks(me.node).skip(1);
        let receive = |rank| Action::Receive { peer: GroupRank(rank), into: part(rank) };
        actions.extend(others.map(receive));
    } else if step < m {
        if me.local == 0 {
            let (sent, gets) = (minus_mod(me.node, step - 1, m), minus_mod(me.node, step, m));
            let leader = |node| GroupRank(nodes.first(node));
            let from = block(nodes, Buffer::Output, sent);
            actions.push(Action::Send { peer: leader((me.node + 1) % m), from });
            let into = block(nodes, Buffer::Output, gets);
            actions.push(Action::Receive { peer: leader(minus_mod(me.node, 1, m)), into });
        }
    } else {
        tree::broadcast(me.neighbours(), 0, me.local, step - m, actions);
        me.inside(begin, actions, |slice| Slice::run(slice.buffer, 0..nodes.size));
    }
}

pub(super) fn reduce_scatter_steps(nodes: Nodes) -> u32 {
    match nodes.are_equal() {
        true => ring_steps(nodes.per_node) + ring_steps(nodes.count()),
        false => 1 + tree::depth(nodes.per_node) + (nodes.count() - 1) + 1,
    }
}

/// Scratch chunks. Sharded: two sets of a part for each node that take turns in the ring of the
/// node, one set for its result, and two parts that take turns across. By leaders: all parts.
pub(super) fn reduce_scatter_scratch(nodes: Nodes) -> u32 {
    if nodes.are_equal() { 3 * nodes.count() + 2 } else { nodes.size }
}

pub(super) fn reduce_scatter(me: Member, step: u32, actions: &mut Vec<Action>) {
    let nodes = me.nodes;
    let (k, m) = (nodes.per_node, nodes.count());
    if !nodes.are_equal() {
        return through_leaders(me, step, actions);
    }
    let sum_of_node = 2 * m;
    let Some(step) = step.checked_sub(ring_steps(k)) else {
        for node in 0..m {
            let begin = actions.len();
            ring::actions(REDUCE_SCATTER, k, GroupRank(me.local), step, actions);
            me.inside(begin, actions, |slice| match slice.buffer {
                Buffer::Input => Slice { chunk: nodes.first(node) + slice.chunk, ..slice },
                Buffer::Scratch => Slice { chunk: slice.chunk * m + node, ..slice },
                Buffer::Output => Slice::one(Buffer::Scratch, sum_of_node + node),
            });
        }
        return;
    };
    let begin = actions.len();
    ring::actions(REDUCE_SCATTER, m, GroupRank(me.node), step, actions);
    let parts = |slice: Slice| match slice.buffer {
        Buffer::Input => Slice::one(Buffer::Scratch, sum_of_node + slice.chunk),
        Buffer::Scratch => Slice { chunk: 3 * m + slice.chunk, ..slice },
        Buffer::Output => slice,
    };
    Member::across(begin, actions, parts, |node| nodes.first(node) + me.local);
}

fn through_leaders(me: Member, step: u32, actions: &mut Vec<Action>) {
    let nodes = me.nodes;
    let m = nodes.count();
    let begin = actions.len();
    let up = tree::depth(nodes.per_node);
    let all = |buffer| Slice::run(buffer, 0..nodes.size);
    let sum = |rank| Slice::one(Buffer::Scratch, rank);
    let result = Slice::one(Buffer::Output, 0);
    if step == 0 {
        // The input is never written.
        actions.push(Action::Copy { from: all(Buffer::Input), into: all(Buffer::Scratch) });
    } else if step <= up {
        tree::reduce(me.neighbours(), 0, me.local, up - step, actions);
        me.inside(begin, actions, |_| all(Buffer::Scratch));
    } else if step < up + m {
        if me.local == 0 {
            // After step s of this ring the leader of node j has s + 2 nodes' sum of a block; the
            // last is its own.
            let step = step - up - 1;
            let leader = |node| GroupRank(nodes.first(node));
            let block = |node| block(nodes, Buffer::Scratch, node);
            let from = block(minus_mod(me.node, step + 1, m));
            let into = block(minus_mod(minus_mod(me.node, 1, m), step + 1, m));
            actions.push(Action::Send { peer: leader((me.node + 1) % m), from });
            let peer = leader(minus_mod(me.node, 1, m));
            actions.push(Action::ReceiveReduce { peer, local: into, into });
        }
    } else if me.local == 0 {
        actions.push(Action::Copy { from: sum(me.rank()), into: result });
        let others = nodes.ranks(me.node).skip(1);
        let send = |rank| Action::Send { peer: GroupRank(rank), from: sum(rank) };
        actions.extend(others.map(send));
    } else {
        actions.push(Action::Receive { peer: GroupRank(nodes.first(me.node)), into: result });
    }
}
