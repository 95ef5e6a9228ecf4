//! The ranks of each node: neighbours, the same number in each but perhaps the last.

use std::ops::Range;

/// A group's ranks in nodes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nodes {
    /// Ranks in all; at least one.
    pub(super) size: u32,
    /// Ranks of every node but perhaps the last; from 1 to `size`.
    pub(super) per_node: u32,
}

impl Nodes {
    /// Nodes.
    pub(super) fn count(self) -> u32 {
        self.size.div_ceil(self.per_node)
    }

    /// True when all nodes have as many ranks.
    pub(super) fn are_equal(self) -> bool {
        self.size.is_multiple_of(self.per_node)
    }

    /// The node of a rank.
    pub(super) fn node(self, rank: u32) -> u32 {
        rank / self.per_node
    }

    /// The place of a rank in its node, from 0.
    pub(super) fn local(self, rank: u32) -> u32 {
        rank % self.per_node
    }

    /// The first rank of a node.
    pub(super) fn first(self, node: u32) -> u32 {
        node * self.per_node
    }

    /// The ranks of a node.
    pub(super) fn ranks(self, node: u32) -> Range<u32> {
        let first = self.first(node);
        first..first + self.len(node)
    }

    /// The number of ranks of a node.
    pub(super) fn len(self, node: u32) -> u32 {
        (self.size - self.first(node)).min(self.per_node)
    }
}
