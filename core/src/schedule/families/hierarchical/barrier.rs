//! The hierarchical barrier: up a tree in each node, a dissemination among the nodes' first ranks,
//! and down the trees again (Zhu et al. 2009, on barriers).

use super::member::Member;
use crate::rank::GroupRank;
use crate::schedule::families::{dissemination, tree};
use crate::schedule::nodes::Nodes;
use crate::schedule::{Action, Buffer, Slice};

pub(super) fn steps(nodes: Nodes) -> u32 {
    2 * tree::depth(nodes.per_node) + dissemination::rounds(nodes.count())
}

/// Scratch chunks: the arrivals in the node, and one a round among the nodes, the last of which is the
/// release.
pub(super) fn scratch(nodes: Nodes) -> u32 {
    1 + dissemination::rounds(nodes.count())
}

pub(super) fn actions(me: Member, step: u32, actions: &mut Vec<Action>) {
    let nodes = me.nodes;
    let (up, rounds) = (tree::depth(nodes.per_node), dissemination::rounds(nodes.count()));
    let arrived = Slice::one(Buffer::Input, 0);
    let below = Slice::one(Buffer::Scratch, 0);
    let release = Slice::one(Buffer::Scratch, rounds);
    let begin = actions.len();
    if step < up {
        let level = up - 1 - step;
        tree::reduce(me.neighbours(), 0, me.local, level, actions);
        // A place without a child further down has heard from nobody yet.
        let is_first = u64::from(me.local) + (2u64 << level) >= u64::from(me.neighbours());
        let heard = if is_first { arrived } else { below };
        me.inside(begin, actions, |slice| slice);
        for action in &mut actions[begin..] {
            *action = match *action {
                Action::Send { peer, .. } => Action::Send { peer, from: heard },
                Action::ReceiveReduce { peer, .. } => {
                    Action::ReceiveReduce { peer, local: heard, into: below }
                }
                other => other,
            };
        }
    } else if step < up + rounds {
        if me.local == 0 {
            dissemination::actions(nodes.count(), GroupRank(me.node), step - up, actions);
            let node_has_come = if me.neighbours() == 1 { arrived } else { below };
            let signal = |slice: Slice| match slice.buffer {
                Buffer::Scratch => Slice { chunk: slice.chunk + 1, ..slice },
                _ => node_has_come,
            };
            Member::across(begin, actions, signal, |node| nodes.first(node));
        }
    } else {
        tree::broadcast(me.neighbours(), 0, me.local, step - up - rounds, actions);
        me.inside(begin, actions, |_| release);
    }
}
