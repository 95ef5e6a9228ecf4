//! In-switch reduction inside an NVLink domain (NVLS, NVLink SHARP): a node's switch reads its operands from
//! the node's ranks and writes results to all of them at once (NCCL's `src/device/all_reduce.h`,
//! `RunWorkColl<…, NCCL_ALGO_NVLS, …>`, with `multimem.ld_reduce` and `multimem.st`; NVIDIA 2022, "The
//! NVLink-network switch"). Each rank is the *head* of one chunk: it gets that chunk's sum from the switch
//! and has the switch write it to everybody. In one node of n ranks, a rank's link carries n + 1 chunks of n
//! each way, where a ring's carries 2 (n - 1).
//!
//! The switch ends where the node ends. Across nodes all_reduce is NCCL's NVLSTree (`NCCL_ALGO_NVLS_TREE`;
//! `ncclNvlsTreeConnect` in `src/transport/nvls.cc`): the heads of a chunk, one a node, reduce and broadcast
//! it by a double binary tree before the switches write it. There are as many heads as the smallest node has
//! ranks. all_gather, reduce_scatter and broadcast have no such form: NCCL's NVLS crosses nodes only where
//! the network reduces too (CollNet), so [`Family::takes_nodes`] refuses them.
//!
//! A switch's read is a message from each rank here, and a multicast one message to each. The switch adds in
//! pairs, as a tree, so that the order of the additions is fixed; the hardware's order is not known.

use super::{double_binary_tree, tree};
use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::reduce::ReduceOp;
use crate::schedule::explained::{Explain, Explained, Formula, Holds};
use crate::schedule::family::{Call, Family, Step};
use crate::schedule::nodes::Nodes;
use crate::schedule::{Action, Buffer, Slice};

/// An NVLink switch a node.
pub(super) struct Nvls;

impl Family for Nvls {
    fn carries_out(&self, collective: Collective) -> bool {
        matches!(
            collective,
            Collective::AllReduce { .. }
                | Collective::AllGather
                | Collective::ReduceScatter { .. }
                | Collective::Broadcast { .. }
        )
    }

    fn steps(&self, call: Call) -> u32 {
        steps(call.collective, call.nodes())
    }

    fn chunks_per_part(&self, call: Call) -> u32 {
        match call.collective {
            Collective::AllReduce { .. } => pieces(call.nodes()),
            _ => 1,
        }
    }

    fn scratch(&self, call: Call, participant: GroupRank) -> u32 {
        scratch(call.collective, call.nodes(), participant)
    }

    fn switches(&self, call: Call) -> u32 {
        switches(call.nodes())
    }

    fn switch_scratch(&self, call: Call) -> u32 {
        let nodes = call.nodes();
        let of = |node: u32| scratch(call.collective, nodes, GroupRank(nodes.size + node));
        match switches(nodes) {
            0 => 0,
            switches => (switches - 1).saturating_mul(of(0)).saturating_add(of(switches - 1)),
        }
    }

    fn has_switches_inside_nodes(&self) -> bool {
        true
    }

    fn takes_nodes(&self, call: Call) -> bool {
        call.nodes().count() == 1 || matches!(call.collective, Collective::AllReduce { .. })
    }

    /// The switch keeps a chunk for each rank of each rank's message.
    fn most_ranks(&self) -> u32 {
        1 << 15
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, list: &mut Vec<Action>) {
        actions(call.collective, call.nodes(), participant, step, list);
    }

    fn step_text(&self, call: Call, step: Step) -> String {
        step_text(call, step).to_owned()
    }
}

impl Explain for Nvls {
    fn explained(&self, collective: Collective) -> Explained {
        match collective {
            Collective::AllReduce { .. } => Explained {
                formula: Formula::new("2", "2(n + 1)/n", Holds::Always)
                    .in_rounds("4", Holds::Always),
                idea: "The node's NVLink switch adds up what it reads from the ranks; each rank \
                    gets one chunk of the sum and has the switch write it to everybody. In several \
                    nodes each has a switch of its own, and a double binary tree of the nodes sums \
                    each chunk before it is written: NCCL's NVLSTree.",
                used_by: "NCCL on Hopper and newer with NVSwitch, for most sizes.",
                cost: "Every port carries n + 1 chunks of S/n each way instead of the ring's \
                    2(n − 1), and in one node the latency does not grow with n. The formula has \
                    twice those bytes, because here the switch takes a whole message before it \
                    sends; the hardware does not wait. In several nodes each level of the trees \
                    across costs two latencies of the network.",
            },
            Collective::Broadcast { .. } => Explained {
                formula: Formula::new("1", "2", Holds::Always).in_rounds("2", Holds::Always),
                idea: "The root writes to the NVLink switch, which writes to everybody.",
                used_by: "Nobody's default: NCCL uses the switch for reductions and gathers.",
                cost: "One tensor through each port; the switch ends with the node, so that all \
                    ranks must be in one. Here the switch takes the whole message before it sends; \
                    the hardware does not wait.",
            },
            _ => Explained {
                formula: Formula::new("1", "(n + 1)", Holds::Always).in_rounds("2", Holds::Always),
                idea: "The NVLink switch adds up, or hands to everybody, what the ranks write.",
                used_by: "NCCL on Hopper and newer with NVSwitch, for ranks of one node; across \
                    nodes only where the network's switches add up too (CollNet).",
                cost: "A rank's port carries n parts one way and one part the other, n + 1 in a \
                    row in the formula: here the switch takes whole messages before it sends; the \
                    hardware does not wait.",
            },
        }
    }
}

/// The text for a step of the switches; across nodes, NVLSTree.
fn step_text(call: Call, step: Step) -> &'static str {
    let (n, k) = (call.size, call.nodes().per_node);
    let up = if k > 1 { tree::depth(k) + 2 } else { 0 };
    let after = if k > 1 { step.of.saturating_sub(2) } else { step.of };
    match (call.collective, step.at) {
        (Collective::AllReduce { .. }, step) if (up..after).contains(&step) => {
            "the ranks in charge of a chunk, one a node, sum it up two trees of the nodes and pass \
             the result back down."
        }
        (Collective::AllReduce { .. }, step) if step == after => {
            "each rank sends the chunk that it is in charge of to its node's switch."
        }
        (Collective::AllReduce { .. }, step) if step > after => {
            "the switch writes the result to all of its ranks."
        }
        (Collective::AllReduce { .. } | Collective::ReduceScatter { .. }, 0) if n > 1 => {
            "every rank sends its tensor to its node's NVLink switch."
        }
        (Collective::AllReduce { .. } | Collective::ReduceScatter { .. }, step)
            if step + 1 < up =>
        {
            "the switch adds up what came; nothing is sent."
        }
        (Collective::AllReduce { .. } | Collective::ReduceScatter { .. }, _) if n > 1 => {
            "the switch sends each rank the sum of the chunk that it is in charge of."
        }
        (Collective::AllGather, 0) if n > 1 => "every rank sends its part to the NVLink switch.",
        (Collective::AllGather, 1) => "the switch writes all parts to every rank.",
        (Collective::Broadcast { .. }, 0) => "the root sends its tensor to the NVLink switch.",
        (Collective::Broadcast { .. }, _) => "the switch writes it to every other rank.",
        _ => "the rank copies its part.",
    }
}

/// The collective that the trees across nodes are given; they do not look at the operation.
const SUM: Collective = Collective::AllReduce { op: ReduceOp::Sum };

/// One switch for each node of several ranks; only the last node may have just one.
fn switches(nodes: Nodes) -> u32 {
    let last = nodes.count() - 1;
    last * u32::from(nodes.per_node > 1) + u32::from(nodes.len(last) > 1)
}

/// Ranks of each node that are in charge of a chunk.
fn heads(nodes: Nodes) -> u32 {
    nodes.len(nodes.count() - 1)
}

/// Chunks that a head is in charge of: one, or a half for each of the two trees across.
fn chunks_a_head(nodes: Nodes) -> u32 {
    if nodes.count() > 1 { double_binary_tree::PIECES } else { 1 }
}

/// Chunks of the tensor of all_reduce.
fn pieces(nodes: Nodes) -> u32 {
    heads(nodes) * chunks_a_head(nodes)
}

/// Steps in which the switches add up: levels of a tree over the ranks of a node.
fn sums(nodes: Nodes) -> u32 {
    tree::depth(nodes.per_node)
}

fn steps(collective: Collective, nodes: Nodes) -> u32 {
    let n = nodes.size;
    match collective {
        Collective::AllReduce { .. } if n > 1 => AllReduce::of(nodes).steps(),
        Collective::Broadcast { .. } if n > 1 => 2,
        Collective::AllReduce { .. } | Collective::Broadcast { .. } => 0,
        _ if n == 1 => 1,
        Collective::ReduceScatter { .. } => sums(nodes) + 2,
        _ => 2,
    }
}

/// Scratch chunks of a participant: a switch keeps the chunks that came from each rank.
fn scratch(collective: Collective, nodes: Nodes, participant: GroupRank) -> u32 {
    let n = nodes.size;
    let Some(node) = participant.0.checked_sub(n) else { return 0 };
    match collective {
        _ if node >= switches(nodes) => 0,
        Collective::Broadcast { .. } => 1,
        Collective::AllGather => n,
        Collective::ReduceScatter { .. } => n * n,
        // And, apart, what the heads want multicast.
        _ => (nodes.len(node) + 1) * pieces(nodes),
    }
}

fn actions(
    collective: Collective,
    nodes: Nodes,
    participant: GroupRank,
    step: u32,
    actions: &mut Vec<Action>,
) {
    let (me, n) = (participant, nodes.size);
    if n == 1 {
        let (from, into) = (Slice::one(Buffer::Input, 0), Slice::one(Buffer::Output, 0));
        actions.push(Action::Copy { from, into });
    } else if let Collective::AllReduce { .. } = collective {
        let all_reduce = AllReduce::of(nodes);
        match me.0.checked_sub(n) {
            None => all_reduce.rank(me, step, actions),
            Some(node) => all_reduce.switch(node, step, actions),
        }
    } else if me.0 == n {
        switch(collective, n, step, actions);
    } else {
        rank(collective, n, me, step, actions);
    }
}

/// An all_reduce: up to the switches, across the nodes, and down from the switches.
#[derive(Clone, Copy)]
struct AllReduce {
    nodes: Nodes,
    /// Steps in which the ranks send, the switches add and the heads get sums.
    up: u32,
    /// Steps of the trees across the nodes.
    across: u32,
}

impl AllReduce {
    fn of(nodes: Nodes) -> AllReduce {
        let up = if nodes.per_node > 1 { sums(nodes) + 2 } else { 0 };
        let across =
            if nodes.count() > 1 { double_binary_tree::steps(SUM, nodes.count()) } else { 0 };
        AllReduce { nodes, up, across }
    }

    fn steps(self) -> u32 {
        // The heads send, and the switches write to all.
        self.up + self.across + if self.up > 0 { 2 } else { 0 }
    }

    /// The chunks of head `local`, of a buffer that has them all from `first` on.
    fn of_head(self, buffer: Buffer, first: u32, local: u32) -> Slice {
        let each = chunks_a_head(self.nodes);
        let first = first + local * each;
        Slice::run(buffer, first..first + each)
    }

    fn rank(self, me: GroupRank, step: u32, actions: &mut Vec<Action>) {
        let nodes = self.nodes;
        let (node, local) = (nodes.node(me.0), nodes.local(me.0));
        let peer = GroupRank(nodes.size + node);
        let whole = Slice::run(Buffer::Output, 0..pieces(nodes));
        let own = self.of_head(Buffer::Output, 0, local);
        let (is_head, has_switch) = (local < heads(nodes), nodes.len(node) > 1);
        let after = self.up + self.across;
        if (self.up..after).contains(&step) {
            if is_head {
                let begin = actions.len();
                let nth = GroupRank(node);
                double_binary_tree::actions(SUM, nodes.count(), nth, step - self.up, actions);
                for action in &mut actions[begin..] {
                    let to_rank = |node: GroupRank| GroupRank(nodes.first(node.0) + local);
                    let to_own = |slice: Slice| Slice { chunk: own.chunk + slice.chunk, ..slice };
                    *action = action.map(to_own).with_peer(to_rank);
                }
            }
        } else if !has_switch {
            // A rank that is alone has its node's sum.
        } else if step == 0 {
            actions.push(Action::Send { peer, from: whole });
        } else if step + 1 == self.up && is_head {
            actions.push(Action::Receive { peer, into: own });
        } else if step == after && is_head {
            actions.push(Action::Send { peer, from: own });
        } else if step == after + 1 {
            actions.push(Action::Receive { peer, into: whole });
        }
    }

    fn switch(self, node: u32, step: u32, actions: &mut Vec<Action>) {
        let nodes = self.nodes;
        let (ranks, pieces) = (nodes.len(node), pieces(nodes));
        let peer = |local: u32| GroupRank(nodes.first(node) + local);
        let all_of = |local: u32| Slice::run(Buffer::Scratch, local * pieces..(local + 1) * pieces);
        let to_multicast = ranks * pieces;
        let after = self.up + self.across;
        if step == 0 {
            let receive = |local| Action::Receive { peer: peer(local), into: all_of(local) };
            actions.extend((0..ranks).map(receive));
        } else if step + 1 < self.up {
            for (local, from) in pairs(ranks, step - 1) {
                let (local, from) = (all_of(local), all_of(from));
                actions.push(Action::Reduce { local, from, into: local });
            }
        } else if step + 1 == self.up {
            let sum = |local| self.of_head(Buffer::Scratch, 0, local);
            let send = |local| Action::Send { peer: peer(local), from: sum(local) };
            actions.extend((0..heads(nodes)).map(send));
        } else if step == after {
            let place = |local| self.of_head(Buffer::Scratch, to_multicast, local);
            let receive = |local| Action::Receive { peer: peer(local), into: place(local) };
            actions.extend((0..heads(nodes)).map(receive));
        } else if step == after + 1 {
            let send = |local| Action::Send { peer: peer(local), from: all_of(ranks) };
            actions.extend((0..ranks).map(send));
        }
    }
}

fn rank(collective: Collective, n: u32, me: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let (peer, sums) = (GroupRank(n), tree::depth(n));
    let whole = |buffer| Slice::run(buffer, 0..n);
    let one = |buffer, chunk| Slice::one(buffer, chunk);
    match (collective, step) {
        (Collective::Broadcast { root }, 0) if me == root => {
            actions.push(Action::Send { peer, from: one(Buffer::Output, 0) });
        }
        (Collective::Broadcast { root }, 1) if me != root => {
            actions.push(Action::Receive { peer, into: one(Buffer::Output, 0) });
        }
        (Collective::Broadcast { .. }, _) => {}
        (Collective::AllGather, 0) => {
            actions.push(Action::Send { peer, from: one(Buffer::Input, 0) });
        }
        (Collective::AllGather, _) => {
            actions.push(Action::Receive { peer, into: whole(Buffer::Output) });
        }
        (Collective::ReduceScatter { .. }, 0) => {
            actions.push(Action::Send { peer, from: whole(Buffer::Input) });
        }
        (Collective::ReduceScatter { .. }, step) if step == sums + 1 => {
            actions.push(Action::Receive { peer, into: one(Buffer::Output, 0) });
        }
        _ => {}
    }
}

fn switch(collective: Collective, n: u32, step: u32, actions: &mut Vec<Action>) {
    let sums = tree::depth(n);
    let ranks = || (0..n).map(GroupRank);
    let all_of = |rank: u32| Slice::run(Buffer::Scratch, rank * n..rank * n + n);
    let chunk = |rank: u32| Slice::one(Buffer::Scratch, rank);
    match (collective, step) {
        (Collective::Broadcast { root }, 0) => {
            actions.push(Action::Receive { peer: root, into: chunk(0) });
        }
        (Collective::Broadcast { root }, _) => {
            let others = ranks().filter(|rank| *rank != root);
            actions.extend(others.map(|peer| Action::Send { peer, from: chunk(0) }));
        }
        (Collective::AllGather, 0) => {
            actions.extend(ranks().map(|peer| Action::Receive { peer, into: chunk(peer.0) }));
        }
        (Collective::AllGather, _) => {
            actions.extend(ranks().map(|peer| Action::Send { peer, from: all_of(0) }));
        }
        (_, 0) => {
            actions.extend(ranks().map(|peer| Action::Receive { peer, into: all_of(peer.0) }));
        }
        (_, step) if step <= sums => {
            for (local, from) in pairs(n, step - 1) {
                let (local, from) = (all_of(local), all_of(from));
                actions.push(Action::Reduce { local, from, into: local });
            }
        }
        _ => actions.extend(ranks().map(|peer| Action::Send { peer, from: chunk(peer.0) })),
    }
}

/// The pairs of `n` operands that are added at a level of a tree of additions.
pub(super) fn pairs(n: u32, level: u32) -> impl Iterator<Item = (u32, u32)> {
    let apart = 1u32 << level;
    let last = n.saturating_sub(apart);
    (0..last).step_by(2 * apart as usize).map(move |local| (local, local + apart))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Algorithm, Schedule};

    /// In nodes of four, sums go up to the switches, across, and down; the texts of the steps in which
    /// nothing is sent say so.
    #[test]
    fn texts_tell_switches_from_trees() {
        let schedule = Schedule::new(SUM, Algorithm::Nvls, 8).unwrap();
        let schedule = schedule.with_ranks_per_node(4).unwrap();
        let mut actions = Vec::new();
        for step in 0..schedule.steps() {
            let mut sent = (false, false);
            for rank in (0..schedule.participants()).map(GroupRank) {
                schedule.actions(rank, step, &mut actions);
                for action in &actions {
                    if let Action::Send { peer, .. } = action {
                        let by_switch = rank.0.max(peer.0) >= 8;
                        sent = (sent.0 || by_switch, sent.1 || !by_switch);
                    }
                }
            }
            let text = schedule.step_text(step);
            match sent {
                (true, _) => assert!(text.contains("switch"), "{step}: {text}"),
                (_, true) => assert!(text.contains("trees"), "{step}: {text}"),
                _ => assert!(text.contains("nothing is sent") || text.contains("trees"), "{text}"),
            }
        }
    }
}
