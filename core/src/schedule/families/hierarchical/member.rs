//! A rank's place in its node, and the translation of actions from a node's ranks, or from nodes, to the
//! participants.

use crate::rank::GroupRank;
use crate::schedule::nodes::Nodes;
use crate::schedule::{Action, Slice};

/// A rank and where it is.
#[derive(Clone, Copy)]
pub(super) struct Member {
    pub(super) nodes: Nodes,
    pub(super) node: u32,
    pub(super) local: u32,
}

impl Member {
    pub(super) fn of(nodes: Nodes, rank: u32) -> Member {
        Member { nodes, node: nodes.node(rank), local: nodes.local(rank) }
    }

    pub(super) fn rank(self) -> u32 {
        self.nodes.first(self.node) + self.local
    }

    /// Ranks of its node.
    pub(super) fn neighbours(self) -> u32 {
        self.nodes.len(self.node)
    }

    /// Moves the actions from `begin` on, which are among the ranks of a node by their places in
    /// it, to the ranks of this one's.
    pub(super) fn inside(
        self,
        begin: usize,
        actions: &mut [Action],
        slices: impl Fn(Slice) -> Slice,
    ) {
        let first = self.nodes.first(self.node);
        for action in &mut actions[begin..] {
            *action = action.map(&slices).with_peer(|peer| GroupRank(first + peer.0));
        }
    }

    /// Moves the actions from `begin` on, which are among the nodes, to the ranks that speak for
    /// them.
    pub(super) fn across(
        begin: usize,
        actions: &mut [Action],
        slices: impl Fn(Slice) -> Slice,
        speaks_for: impl Fn(u32) -> u32,
    ) {
        for action in &mut actions[begin..] {
            *action = action.map(&slices).with_peer(|node| GroupRank(speaks_for(node.0)));
        }
    }
}
