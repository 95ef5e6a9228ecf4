//! The k-ary tree: place p has the children kp + 1 to kp + k (MPICH's
//! `MPII_Treeutil_tree_kary_init`). A rank sends to all of its children at once, so the tree is
//! flatter than the binomial one, but a parent's link carries k messages; a reduction takes the
//! children one after the other, so that the order of the additions is fixed.

use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::explained::{Explain, Explained, Formula, Holds};
use crate::schedule::family::{Call, Family, Step};
use crate::schedule::{Action, Buffer, Slice};

/// A k-ary tree.
pub(super) struct KaryTree;

impl Family for KaryTree {
    fn carries_out(&self, collective: Collective) -> bool {
        collective.in_place()
    }

    fn steps(&self, call: Call) -> u32 {
        match call.there_and_back() {
            Some([there, back]) => steps(there) + steps(back),
            None => steps(call),
        }
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, list: &mut Vec<Action>) {
        let (half, step) = call.half_at(step, |call| self.steps(call));
        actions(half, participant, step, list);
    }

    fn step_text(&self, call: Call, step: Step) -> String {
        let (half, _) = call.half_at(step.at, |call| self.steps(call));
        let text = match half.collective.reduce_op().is_some() {
            true => {
                "parents of a level receive the sum of one of their up to 4 children and add it to \
                 theirs."
            }
            false => "the ranks of a level send the data to all of their up to 4 children.",
        };
        text.to_owned()
    }
}

impl Explain for KaryTree {
    fn explained(&self, collective: Collective) -> Explained {
        let reduces = collective.reduce_op().is_some();
        match collective {
            Collective::AllReduce { .. } => Explained {
                formula: Formula::new(
                    "2(⌈log₄(3n + 1)⌉ − 1)",
                    "8(⌈log₄(3n + 1)⌉ − 1)",
                    Holds::AtMost,
                )
                .in_rounds("5(⌈log₄(3n + 1)⌉ − 1)", Holds::AtMost),
                idea: "Up a tree in which every parent has up to four children, and down again.",
                used_by: "Where latency is what counts and a port can take several messages at \
                    once.",
                cost: "Half the levels of a binomial tree, but a parent's port carries up to four \
                    tensors in each of them.",
            },
            _ => Explained {
                formula: Formula::new(
                    "(⌈log₄(3n + 1)⌉ − 1)",
                    "4(⌈log₄(3n + 1)⌉ − 1)",
                    Holds::AtMost,
                )
                .in_rounds(
                    if reduces {
                        "4(⌈log₄(3n + 1)⌉ − 1)"
                    } else {
                        "⌈log₄(3n + 1)⌉ − 1"
                    },
                    if reduces { Holds::AtMost } else { Holds::Always },
                ),
                idea: "A tree in which every parent has up to four children.",
                used_by: "Where latency is what counts and a port can take several messages at \
                    once: stores, control messages.",
                cost: "Half the levels of a binomial tree, but a parent's port sends up to four \
                    tensors in each of them.",
            },
        }
    }
}

/// Children a rank.
const K: u64 = 4;

/// Levels below the root, and how many places the deepest one has.
fn shape(n: u32) -> (u32, u64) {
    let (mut levels, mut width, mut left) = (0, 1, u64::from(n));
    while left > width {
        left -= width;
        width *= K;
        levels += 1;
    }
    (levels, left)
}

/// The level of a place; the root's is 0.
fn level(place: u64) -> u32 {
    let (mut level, mut place) = (0, place);
    while place > 0 {
        place = (place - 1) / K;
        level += 1;
    }
    level
}

/// Steps of a reduction or a broadcast.
fn steps(call: Call) -> u32 {
    let (levels, deepest) = shape(call.size);
    match call.collective {
        Collective::Reduce { .. } if levels > 0 => (levels - 1) * K as u32 + deepest.min(K) as u32,
        _ => levels,
    }
}

fn actions(call: Call, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let Some(root) = call.collective.root() else { return };
    let whole = Slice::one(Buffer::Output, 0);
    let (size, root) = (u64::from(call.size), u64::from(root.0));
    let place = (u64::from(rank.0) + size - root) % size;
    let rank_at = |place: u64| GroupRank(((place + root) % size) as u32);
    let children = || (K * place + 1..=K * place + K).filter(|child| *child < size);
    if call.collective.reduce_op().is_none() {
        if level(place) == step {
            actions.extend(children().map(|p| Action::Send { peer: rank_at(p), from: whole }));
        } else if level(place) == step + 1 {
            let peer = rank_at((place - 1) / K);
            actions.push(Action::Receive { peer, into: whole });
        }
        return;
    }
    // The deepest level first, and one child after the other. Above the deepest, which may need
    // fewer, every level takes K steps.
    let (levels, _) = shape(call.size);
    let turn = |child: u64| match level(child) {
        deepest if deepest == levels => sibling(child),
        above => steps(call) - K as u32 * above + sibling(child),
    };
    if place > 0 && turn(place) == step {
        actions.push(Action::Send { peer: rank_at((place - 1) / K), from: whole });
    }
    for child in children().filter(|child| turn(*child) == step) {
        let peer = rank_at(child);
        actions.push(Action::ReceiveReduce { peer, local: whole, into: whole });
    }
}

/// The index of a place among its parent's children, from 0.
fn sibling(place: u64) -> u32 {
    ((place - 1) % K) as u32
}
