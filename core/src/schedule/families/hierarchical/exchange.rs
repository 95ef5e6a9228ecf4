//! Hierarchical all_to_all in two hops: inside the node a rank hands each part to the neighbour that
//! speaks to the part's receiver, and each neighbour then sends a receiver the parts of the whole
//! node in one message (Tutel's 2DH all-to-all, Hwang et al. 2023, "Tutel: adaptive
//! mixture-of-experts at scale"; NCCL's PXN does the same rail by rail). A rank sends
//! k + m - 2 messages instead of n - 1.
//!
//! Rank l of a node of k ranks speaks to the ranks l, l + k, … of every node: of nodes as large as
//! its own to one, its opposite; where the last node is smaller, its ranks speak to several.

use super::member::Member;
use crate::rank::GroupRank;
use crate::schedule::nodes::Nodes;
use crate::schedule::{Action, Buffer, Slice};

/// Pack the parts for each neighbour; exchange; pack the parts for each receiver; exchange.
pub(super) const STEPS: u32 = 4;

/// The receivers that rank `local` of a node of `k` speaks to, in order.
fn receivers(nodes: Nodes, k: u32, local: u32) -> impl Iterator<Item = u32> {
    (0..nodes.count()).flat_map(move |node| {
        let first = nodes.first(node);
        (local..nodes.len(node)).step_by(k as usize).map(move |place| first + place)
    })
}

/// The number of those ranks.
fn count(nodes: Nodes, k: u32, local: u32) -> u32 {
    let of = |ranks: u32| (ranks + k - 1).saturating_sub(local) / k;
    let last = nodes.count() - 1;
    last * of(nodes.per_node) + of(nodes.len(last))
}

/// Scratch chunks: those sent in either exchange, and those received in the first.
pub(super) fn scratch(nodes: Nodes, rank: GroupRank) -> u32 {
    let came = came(Member::of(nodes, rank.0));
    lined_up(nodes, came) + came
}

fn came(me: Member) -> u32 {
    me.neighbours() * count(me.nodes, me.neighbours(), me.local)
}

fn lined_up(nodes: Nodes, came: u32) -> u32 {
    came.max(nodes.size)
}

pub(super) fn actions(me: Member, step: u32, actions: &mut Vec<Action>) {
    let nodes = me.nodes;
    let (k, rank, first) = (me.neighbours(), me.rank(), nodes.first(me.node));
    let mine = count(nodes, k, me.local);
    let came_at = lined_up(nodes, came(me));
    let input = |part| Slice::one(Buffer::Input, part);
    let scratch = |place| Slice::one(Buffer::Scratch, place);
    let run = |start, length| Slice::run(Buffer::Scratch, start..start + length);
    // The start of the parts that neighbour l gets.
    let begin_of = |local: u32| (0..local).map(|before| count(nodes, k, before)).sum::<u32>();
    // Everybody begins with the next one, so that not all send to the same.
    let neighbours = || (1..k).map(|ahead| (me.local + ahead) % k);
    match step {
        0 => {
            let mut place = 0;
            for local in 0..k {
                for receiver in receivers(nodes, k, local) {
                    // Its own go straight to where what comes is.
                    let into = match local == me.local {
                        true => came_at + me.local * mine + place - begin_of(local),
                        false => place,
                    };
                    actions.push(Action::Copy { from: input(receiver), into: scratch(into) });
                    place += 1;
                }
            }
        }
        1 => {
            for local in neighbours() {
                let peer = GroupRank(first + local);
                let from = run(begin_of(local), count(nodes, k, local));
                actions.push(Action::Send { peer, from });
                let into = run(came_at + local * mine, mine);
                actions.push(Action::Receive { peer, into });
            }
        }
        2 => {
            for (index, receiver) in (0..).zip(receivers(nodes, k, me.local)) {
                for sender in 0..k {
                    let from = scratch(came_at + sender * mine + index);
                    let into = match receiver == rank {
                        true => Slice::one(Buffer::Output, first + sender),
                        false => scratch(index * k + sender),
                    };
                    actions.push(Action::Copy { from, into });
                }
            }
        }
        _ => {
            let numbered = || (0..).zip(receivers(nodes, k, me.local));
            let after = numbered().filter(|(_, receiver)| *receiver > rank);
            let before = numbered().filter(|(_, receiver)| *receiver < rank);
            actions.extend(after.chain(before).map(|(index, receiver)| Action::Send {
                peer: GroupRank(receiver),
                from: run(index * k, k),
            }));
            for node in (0..nodes.count()).filter(|node| *node != me.node) {
                let speaker = nodes.first(node) + me.local % nodes.len(node);
                let into = Slice::run(Buffer::Output, nodes.ranks(node));
                actions.push(Action::Receive { peer: GroupRank(speaker), into });
            }
        }
    }
}
