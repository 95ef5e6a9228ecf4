//! Hierarchical schedules: inside the nodes, then across them, then inside again, so that what
//! crosses the slow network between nodes is as little as can be (Zhu et al. 2009, "Hierarchical
//! collectives in MPICH2"; Jia et al. 2018, "Highly scalable deep learning training system with
//! mixed-precision", on hierarchical all-reduce; Horovod's `NCCLHierarchicalAllreduce`).
//!
//! - Nodes of equal size are *sharded*: rank l of every node takes shard l across the nodes, so that
//!   all of a node's network cards carry the same.
//! - If the last node has fewer ranks, each node has a *leader* that speaks for it.
//!
//! all_to_all needs no leader: see [`exchange`]; gather and scatter always have one: [`rooted`].

mod barrier;
mod exchange;
mod in_place;
mod parts;
mod rooted;

use super::nodes::Nodes;
use super::{Action, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;

pub(super) fn steps(collective: Collective, nodes: Nodes) -> u32 {
    match collective {
        Collective::AllReduce { .. } => in_place::all_reduce_steps(nodes),
        Collective::Broadcast { .. } | Collective::Reduce { .. } => in_place::rooted_steps(nodes),
        Collective::AllGather => parts::all_gather_steps(nodes),
        Collective::ReduceScatter { .. } => parts::reduce_scatter_steps(nodes),
        Collective::AllToAll => exchange::STEPS,
        Collective::Barrier => barrier::steps(nodes),
        Collective::Gather { .. } | Collective::Scatter { .. } => rooted::steps(nodes),
        _ => 0,
    }
}

/// Chunks of the tensor of an in-place call.
pub(super) fn pieces(collective: Collective, nodes: Nodes) -> u32 {
    match (collective, nodes.are_equal()) {
        (Collective::AllReduce { .. }, true) => nodes.size,
        (Collective::AllReduce { .. }, false) => nodes.count(),
        (_, true) => nodes.per_node,
        (_, false) => 1,
    }
}

/// Scratch chunks of a rank.
pub(super) fn scratch(collective: Collective, nodes: Nodes, rank: GroupRank) -> u32 {
    match collective {
        Collective::ReduceScatter { .. } => parts::reduce_scatter_scratch(nodes),
        Collective::AllToAll => exchange::scratch(nodes, rank),
        Collective::Barrier => barrier::scratch(nodes),
        Collective::Gather { root } | Collective::Scatter { root } => {
            rooted::scratch(nodes, root, rank)
        }
        _ => 0,
    }
}

pub(super) fn actions(
    collective: Collective,
    nodes: Nodes,
    rank: GroupRank,
    step: u32,
    actions: &mut Vec<Action>,
) {
    let me = Member::of(nodes, rank.0);
    match collective {
        Collective::AllReduce { .. } => in_place::all_reduce(me, step, actions),
        Collective::Broadcast { root } => in_place::broadcast(me, root.0, step, actions),
        Collective::Reduce { root, .. } => in_place::reduce(me, root.0, step, actions),
        Collective::AllGather => parts::all_gather(me, step, actions),
        Collective::ReduceScatter { .. } => parts::reduce_scatter(me, step, actions),
        Collective::AllToAll => exchange::actions(me, step, actions),
        Collective::Barrier => barrier::actions(me, step, actions),
        Collective::Gather { root } => rooted::gather(me, root.0, step, actions),
        Collective::Scatter { root } => rooted::scatter(me, root.0, step, actions),
        _ => {}
    }
}

/// A rank and where it is.
#[derive(Clone, Copy)]
struct Member {
    nodes: Nodes,
    node: u32,
    local: u32,
}

impl Member {
    fn of(nodes: Nodes, rank: u32) -> Member {
        Member { nodes, node: nodes.node(rank), local: nodes.local(rank) }
    }

    fn rank(self) -> u32 {
        self.nodes.first(self.node) + self.local
    }

    /// Ranks of its node.
    fn neighbours(self) -> u32 {
        self.nodes.len(self.node)
    }

    /// Moves the actions from `begin` on, which are among the ranks of a node by their places in
    /// it, to the ranks of this one's.
    fn inside(self, begin: usize, actions: &mut [Action], slices: impl Fn(Slice) -> Slice) {
        let first = self.nodes.first(self.node);
        for action in &mut actions[begin..] {
            *action = action.map(&slices).with_peer(|peer| GroupRank(first + peer.0));
        }
    }

    /// Moves the actions from `begin` on, which are among the nodes, to the ranks that speak for
    /// them.
    fn across(
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
