//! In-network reduction by a tree of switches (Graham et al. 2016, "Scalable hierarchical
//! aggregation protocol (SHArP): a hardware architecture for efficient data reduction"; NCCL's
//! CollNet, `src/graph/tuning.cc`): every rank sends to its node's leaf switch, the leaves add up
//! and send to the spine, which adds up and sends the result back down. A rank's link carries the
//! tensor once each way, whatever the number of ranks.
//!
//! The leaves are the participants n, n + 1, …, one a node, and the spine, if there are several
//! leaves, is the last. A switch adds in pairs, as a tree, so that the order of the additions is
//! fixed.

use super::nvls::pairs;
use super::tree;
use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::explained::{Explain, Explained, Formula, Holds};
use crate::schedule::family::{Call, Family, Step};
use crate::schedule::nodes::Nodes;
use crate::schedule::{Action, Buffer, Slice};

/// A tree of switches.
pub(super) struct Sharp;

impl Family for Sharp {
    fn carries_out(&self, collective: Collective) -> bool {
        matches!(collective, Collective::AllReduce { .. } | Collective::Barrier)
    }

    fn steps(&self, call: Call) -> u32 {
        match call.collective {
            _ if call.size > 1 => Times::of(call.nodes()).last() + 1,
            Collective::Barrier => 1,
            _ => 0,
        }
    }

    /// Switches keep the chunks that came from each participant below them.
    fn scratch(&self, call: Call, participant: GroupRank) -> u32 {
        let nodes = call.nodes();
        match participant.0.checked_sub(nodes.size) {
            None => u32::from(call.collective == Collective::Barrier),
            Some(leaf) if leaf < nodes.count() => nodes.len(leaf),
            Some(_) => nodes.count(),
        }
    }

    /// Leaves and, above several, a spine.
    fn switches(&self, call: Call) -> u32 {
        match call.nodes().count() {
            _ if call.size == 1 => 0,
            1 => 1,
            leaves => leaves + 1,
        }
    }

    fn switch_scratch(&self, call: Call) -> u32 {
        match call.nodes().count() {
            _ if call.size == 1 => 0,
            1 => call.size,
            leaves => call.size.saturating_add(leaves),
        }
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, list: &mut Vec<Action>) {
        actions(call.collective, call.nodes(), participant, step, list);
    }

    fn step_text(&self, call: Call, step: Step) -> String {
        step_text(call, step).to_owned()
    }
}

impl Explain for Sharp {
    fn explained(&self, collective: Collective) -> Explained {
        match collective {
            Collective::Barrier => Explained {
                formula: Formula::new("1", "0", Holds::Always).in_rounds("2", Holds::Always),
                idea: "Switches count who has come, a leaf for each node and, above several, a \
                    spine, and release all.",
                used_by: "MPI libraries on InfiniBand with SHARP.",
                cost: "One way up and one down, whatever n is. With several leaves, two hops more \
                    by the spine.",
            },
            _ => Explained {
                formula: Formula::new("1", "2", Holds::Always).in_rounds("2", Holds::Always),
                idea: "Switches add up: a leaf for each node and, above several leaves, a spine \
                    that sends the result back down.",
                used_by: "NCCL's CollNet on InfiniBand with SHARP.",
                cost: "A rank's port carries the tensor once each way, half of the ring's bytes; \
                    the formula has both ways one after the other, because here switches take \
                    whole messages before they send. With several leaves two hops more go by the \
                    spine.",
            },
        }
    }
}

fn step_text(call: Call, step: Step) -> &'static str {
    let (nodes, barrier) = (call.nodes(), call.collective.is_barrier());
    let (added, last) = (1 + tree::depth(nodes.per_node), step.of.saturating_sub(1));
    let several = nodes.count() > 1;
    match step.at {
        _ if call.size <= 1 => "the only rank has all there is.",
        0 if barrier => "every rank signals its node's leaf switch that it has come.",
        0 if several => "every rank sends its tensor to its node's leaf switch.",
        0 => "every rank sends its tensor to the node's switch.",
        step if step == last && barrier => "the switches of the nodes release all their ranks.",
        step if step == last && several => "each leaf switch sends the result to all of its ranks.",
        step if step == last => "the switch sends the result to all ranks.",
        step if step < added && barrier => {
            "the switches of the nodes count who has come; nothing is sent."
        }
        step if step < added && several => {
            "each leaf switch adds up what its ranks sent; nothing is sent."
        }
        step if step < added => "the switch adds up what the ranks sent; nothing is sent.",
        step if step == added && barrier => {
            "each leaf switch signals the spine that its node has come."
        }
        step if step == added => "each leaf switch sends its node's sum to the spine.",
        step if step + 1 == last && barrier => "the spine releases the leaf switches.",
        step if step + 1 == last => "the spine sends the result to the leaf switches.",
        _ if barrier => "the spine counts the nodes that have come; nothing is sent.",
        _ => "the spine adds up the sums of the nodes; nothing is sent.",
    }
}

/// The steps of each phase.
struct Times {
    leaf_sums: u32,
    spine_sums: Option<u32>,
}

impl Times {
    fn of(nodes: Nodes) -> Times {
        let several = nodes.count() > 1;
        Times {
            leaf_sums: tree::depth(nodes.per_node),
            spine_sums: several.then(|| tree::depth(nodes.count())),
        }
    }

    /// The last step, in which the leaves send to the ranks.
    fn last(&self) -> u32 {
        self.leaf_sums + 1 + self.spine_sums.map_or(0, |sums| sums + 2)
    }
}

fn actions(
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
