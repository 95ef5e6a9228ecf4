//! In-network reduction by a tree of switches (Graham et al. 2016, "Scalable hierarchical
//! aggregation protocol (SHArP): a hardware architecture for efficient data reduction"; NCCL's
//! CollNet, `src/graph/tuning.cc`): every rank sends to its node's leaf switch, the leaves add up
//! and send to the spine, which adds up and sends the result back down. A rank's link carries the
//! tensor once each way, whatever the number of ranks.
//!
//! The leaves are the participants n, n + 1, …, one a node, and the spine, if there are several
//! leaves, is the last. A switch adds in pairs, as a tree, so that the order of the additions is
//! fixed.

use super::nodes::Nodes;
use super::nvls::pairs;
use super::{Action, Buffer, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;

/// Leaves and, above several, a spine.
pub(super) fn switches(nodes: Nodes) -> u32 {
    match nodes.count() {
        _ if nodes.size == 1 => 0,
        1 => 1,
        leaves => leaves + 1,
    }
}

/// When what happens.
struct Times {
    leaf_sums: u32,
    spine_sums: Option<u32>,
}

impl Times {
    fn of(nodes: Nodes) -> Times {
        let several = nodes.count() > 1;
        Times {
            leaf_sums: super::tree::depth(nodes.per_node),
            spine_sums: several.then(|| super::tree::depth(nodes.count())),
        }
    }

    /// The last step, in which the leaves send to the ranks.
    fn last(&self) -> u32 {
        self.leaf_sums + 1 + self.spine_sums.map_or(0, |sums| sums + 2)
    }
}

pub(super) fn steps(collective: Collective, nodes: Nodes) -> u32 {
    match collective {
        _ if nodes.size > 1 => Times::of(nodes).last() + 1,
        Collective::Barrier => 1,
        _ => 0,
    }
}

/// Scratch chunks of a participant: switches keep what came from each below them.
pub(super) fn scratch(collective: Collective, nodes: Nodes, participant: GroupRank) -> u32 {
    match participant.0.checked_sub(nodes.size) {
        None => u32::from(collective == Collective::Barrier),
        Some(leaf) if leaf < nodes.count() => nodes.len(leaf),
        Some(_) => nodes.count(),
    }
}

/// Scratch chunks of all switches.
pub(super) fn all_scratch(nodes: Nodes) -> u32 {
    match nodes.count() {
        _ if nodes.size == 1 => 0,
        1 => nodes.size,
        leaves => nodes.size.saturating_add(leaves),
    }
}

pub(super) fn actions(
    collective: Collective,
    nodes: Nodes,
    me: GroupRank,
    step: u32,
    actions: &mut Vec<Action>,
) {
    let times = Times::of(nodes);
    let (passed, result) = match collective {
        Collective::Barrier => (Slice::one(Buffer::Input, 0), Slice::one(Buffer::Scratch, 0)),
        _ => (Slice::one(Buffer::Output, 0), Slice::one(Buffer::Output, 0)),
    };
    let kept = |chunk| Slice::one(Buffer::Scratch, chunk);
    let leaf_of = |node: u32| GroupRank(nodes.size + node);
    let spine = GroupRank(nodes.size + nodes.count());
    let mut add = |among: u32, level: u32| {
        actions.extend(pairs(among, level).map(|(local, from)| Action::Reduce {
            local: kept(local),
            from: kept(from),
            into: kept(local),
        }));
    };
    if nodes.size == 1 {
        actions.push(Action::Copy { from: passed, into: result });
    } else if me.0 < nodes.size {
        let peer = leaf_of(nodes.node(me.0));
        if step == 0 {
            actions.push(Action::Send { peer, from: passed });
        } else if step == times.last() {
            actions.push(Action::Receive { peer, into: result });
        }
    } else if me == spine {
        let Some(sums) = times.spine_sums else { return };
        let Some(step) = step.checked_sub(times.leaf_sums + 1) else { return };
        let leaves = || 0..nodes.count();
        if step == 0 {
            let receive = |leaf| Action::Receive { peer: leaf_of(leaf), into: kept(leaf) };
            actions.extend(leaves().map(receive));
        } else if step <= sums {
            add(nodes.count(), step - 1);
        } else if step == sums + 1 {
            let send = |leaf| Action::Send { peer: leaf_of(leaf), from: kept(0) };
            actions.extend(leaves().map(send));
        }
    } else {
        let node = me.0 - nodes.size;
        let ranks = || (0..nodes.len(node)).zip(nodes.ranks(node)).map(|(i, r)| (i, GroupRank(r)));
        if step == 0 {
            actions.extend(ranks().map(|(i, peer)| Action::Receive { peer, into: kept(i) }));
        } else if step <= times.leaf_sums {
            add(nodes.len(node), step - 1);
        } else if step == times.last() {
            actions.extend(ranks().map(|(_, peer)| Action::Send { peer, from: kept(0) }));
        } else if step == times.leaf_sums + 1 {
            actions.push(Action::Send { peer: spine, from: kept(0) });
        } else if step + 1 == times.last() {
            actions.push(Action::Receive { peer: spine, into: kept(0) });
        }
    }
}
