//! The k-nomial tree: a binomial tree whose ranks have up to k - 1 children a level, so that it has
//! log_k n levels (UCC's `ucc_tl_ucp_bcast_knomial` and `ucc_tl_ucp_reduce_knomial`, whose radix is
//! 4 unless the job says otherwise; MPICH's `MPII_Treeutil_tree_knomial_1_init`). A rank sends to all
//! of its children of a level at once; a reduction takes them one after the other, so that the order
//! of the additions is fixed. Gather and scatter are [`binomial`]'s, by the same radix.

use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::binomial::{self, depth, distance};
use crate::schedule::explained::{Explain, Explained, Formula, Holds};
use crate::schedule::family::{Call, Family, Step};
use crate::schedule::{Action, Buffer, Slice};

/// A k-nomial tree.
pub(super) struct Knomial;

impl Family for Knomial {
    fn carries_out(&self, collective: Collective) -> bool {
        matches!(
            collective,
            Collective::Broadcast { .. }
                | Collective::Reduce { .. }
                | Collective::Gather { .. }
                | Collective::Scatter { .. }
        )
    }

    fn steps(&self, call: Call) -> u32 {
        let (n, levels) = (call.size, depth(call.size, RADIX));
        match call.collective {
            Collective::Gather { .. } | Collective::Scatter { .. } => binomial::steps(n, RADIX),
            Collective::Reduce { .. } if levels > 0 => {
                let top = u64::from(n - 1) / distance(RADIX, levels - 1);
                (levels - 1) * (RADIX - 1) + (top as u32).min(RADIX - 1)
            }
            _ => levels,
        }
    }

    fn scratch(&self, call: Call, participant: GroupRank) -> u32 {
        match call.collective {
            Collective::Gather { .. } | Collective::Scatter { .. } => {
                binomial::scratch(call.collective, call.size, RADIX, participant)
            }
            _ => 0,
        }
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, list: &mut Vec<Action>) {
        match call.collective {
            Collective::Gather { .. } | Collective::Scatter { .. } => {
                binomial::actions(call.collective, (call.size, RADIX), participant, step, list);
            }
            _ => actions(call, participant, step, list),
        }
    }

    fn step_text(&self, call: Call, step: Step) -> String {
        let text = match call.collective {
            Collective::Scatter { .. } if step.at == 0 => {
                "the root puts the parts in the order of the tree; nothing is sent."
            }
            Collective::Gather { .. } if step.is_last() => {
                "the root puts the parts in order; nothing is sent."
            }
            Collective::Scatter { .. } => {
                "every rank that holds several ranks' parts sends the parts of up to three subtrees."
            }
            Collective::Gather { .. } => {
                "of every four ranks that hold parts, three send theirs to the first."
            }
            Collective::Reduce { .. } => {
                "ranks that still hold sums receive the sum of one of their up to three children \
                 and add it to theirs."
            }
            _ => "every rank that has the data sends it to up to three that have not.",
        };
        text.to_owned()
    }
}

impl Explain for Knomial {
    fn explained(&self, collective: Collective) -> Explained {
        let reduces = collective.reduce_op().is_some();
        match collective {
            Collective::Gather { .. } | Collective::Scatter { .. } => Explained {
                formula: Formula::new("⌈log₄ n⌉", Formula::ALL_BUT_ONE, Holds::AtMost)
                    .in_rounds("⌈log₄ n⌉", Holds::Always),
                idea: "A k-nomial tree by radix 4: a rank hands on, in one message, what its whole \
                    subtree gets or gives, for up to three subtrees in each round.",
                used_by: "UCC's gather and scatter for short messages; MPICH lets one choose it.",
                cost: "Half of the binomial tree's rounds, and the same bytes through the root's \
                    port; parts of subtrees travel several times.",
            },
            _ => Explained {
                formula: Formula::new("⌈log₄ n⌉", "3⌈log₄ n⌉", Holds::AtMost).in_rounds(
                    if reduces { "3⌈log₄ n⌉" } else { "⌈log₄ n⌉" },
                    if reduces { Holds::AtMost } else { Holds::Always },
                ),
                idea: if reduces {
                    "A binomial tree by radix 4: of each four ranks that still hold a sum, three \
                        send theirs to the fourth, which takes them in turn."
                } else {
                    "A binomial tree by radix 4: in each round every rank that has the data sends \
                        it to three that have not."
                },
                used_by: "UCC, whose radix is 4 unless one says otherwise; MPICH and Open MPI on \
                    request.",
                cost: "Half of the binomial tree's latencies, but a port carries three tensors a \
                    level instead of one: for short messages.",
            },
        }
    }
}

/// k: UCC's default.
const RADIX: u32 = 4;

/// A broadcast or a reduction.
fn actions(call: Call, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let Some(root) = call.collective.root() else { return };
    let whole = Slice::one(Buffer::Output, 0);
    let (size, root) = (u64::from(call.size), u64::from(root.0));
    let place = (u64::from(rank.0) + size - root) % size;
    let rank_at = |place: u64| GroupRank(((place + root) % size) as u32);
    if call.collective.reduce_op().is_none() {
        // The farthest first.
        let distance = distance(RADIX, depth(call.size, RADIX) - 1 - step);
        let offset = place % (distance * u64::from(RADIX));
        if offset == 0 {
            let children = (1..u64::from(RADIX)).map(|edge| place + edge * distance);
            let children = children.filter(|child| *child < size);
            actions.extend(children.map(|p| Action::Send { peer: rank_at(p), from: whole }));
        } else if offset.is_multiple_of(distance) {
            actions.push(Action::Receive { peer: rank_at(place - offset), into: whole });
        }
        return;
    }
    // The nearest first, and of a level one child after the other.
    let (level, edge) = (step / (RADIX - 1), u64::from(step % (RADIX - 1)) + 1);
    let distance = distance(RADIX, level);
    let offset = place % (distance * u64::from(RADIX));
    if offset == 0 && place + edge * distance < size {
        let peer = rank_at(place + edge * distance);
        actions.push(Action::ReceiveReduce { peer, local: whole, into: whole });
    } else if offset == edge * distance {
        actions.push(Action::Send { peer: rank_at(place - offset), from: whole });
    }
}
