//! Hierarchical gather and scatter: each node's leader collects or hands out the parts of its
//! neighbours, and exchanges all of them with the root in one message (Zhu et al. 2009). The network
//! carries m - 1 messages instead of n - k; the root speaks for its own node.

use super::member::Member;
use crate::rank::GroupRank;
use crate::schedule::nodes::Nodes;
use crate::schedule::{Action, Buffer, Slice};

/// Inside the nodes, and across them if there are several.
pub(super) fn steps(nodes: Nodes) -> u32 {
    if nodes.count() > 1 { 2 } else { 1 }
}

/// Scratch chunks: a leader's node, if it is another than the root's and has neighbours.
pub(super) fn scratch(nodes: Nodes, root: GroupRank, rank: GroupRank) -> u32 {
    let me = Member::of(nodes, rank.0);
    let collects = me.local == 0 && me.node != nodes.node(root.0) && me.neighbours() > 1;
    if collects { me.neighbours() } else { 0 }
}

pub(super) fn gather(me: Member, root: u32, step: u32, actions: &mut Vec<Action>) {
    let nodes = me.nodes;
    let own = Slice::one(Buffer::Input, 0);
    let of_root = nodes.node(root);
    let leader = if me.node == of_root { root } else { nodes.first(me.node) };
    let neighbours = || nodes.ranks(me.node).filter(|rank| *rank != leader);
    let receive = |from: u32, into| Action::Receive { peer: GroupRank(from), into };
    if step == 0 {
        if me.rank() == root {
            actions.push(Action::Copy { from: own, into: Slice::one(Buffer::Output, root) });
            let part = |rank| Slice::one(Buffer::Output, rank);
            actions.extend(neighbours().map(|rank| receive(rank, part(rank))));
        } else if me.rank() != leader {
            actions.push(Action::Send { peer: GroupRank(leader), from: own });
        } else if me.neighbours() > 1 {
            let place = |rank: u32| Slice::one(Buffer::Scratch, nodes.local(rank));
            actions.push(Action::Copy { from: own, into: place(leader) });
            actions.extend(neighbours().map(|rank| receive(rank, place(rank))));
        }
    } else if me.rank() == root {
        let others = (0..nodes.count()).filter(|node| *node != of_root);
        let block = |node| Slice::run(Buffer::Output, nodes.ranks(node));
        actions.extend(others.map(|node| receive(nodes.first(node), block(node))));
    } else if me.rank() == leader && me.node != of_root {
        let from = match me.neighbours() {
            1 => own,
            ranks => Slice::run(Buffer::Scratch, 0..ranks),
        };
        actions.push(Action::Send { peer: GroupRank(root), from });
    }
}

pub(super) fn scatter(me: Member, root: u32, step: u32, actions: &mut Vec<Action>) {
    let nodes = me.nodes;
    let result = Slice::one(Buffer::Output, 0);
    let of_root = nodes.node(root);
    let leader = if me.node == of_root { root } else { nodes.first(me.node) };
    let neighbours = || nodes.ranks(me.node).filter(|rank| *rank != leader);
    let send = |to: u32, from| Action::Send { peer: GroupRank(to), from };
    let receive = |from: u32, into| Action::Receive { peer: GroupRank(from), into };
    // Across first, so that the leaders can begin.
    let last = steps(nodes) - 1;
    if step < last {
        if me.rank() == root {
            let others = (0..nodes.count()).filter(|node| *node != of_root);
            let block = |node| Slice::run(Buffer::Input, nodes.ranks(node));
            actions.extend(others.map(|node| send(nodes.first(node), block(node))));
        } else if me.rank() == leader && me.node != of_root {
            let into = match me.neighbours() {
                1 => result,
                ranks => Slice::run(Buffer::Scratch, 0..ranks),
            };
            actions.push(receive(root, into));
        }
    } else if me.rank() == root {
        let part = |rank| Slice::one(Buffer::Input, rank);
        actions.push(Action::Copy { from: part(root), into: result });
        actions.extend(neighbours().map(|rank| send(rank, part(rank))));
    } else if me.rank() != leader {
        actions.push(receive(leader, result));
    } else if me.neighbours() > 1 {
        let place = |rank: u32| Slice::one(Buffer::Scratch, nodes.local(rank));
        actions.push(Action::Copy { from: place(leader), into: result });
        actions.extend(neighbours().map(|rank| send(rank, place(rank))));
    }
}
