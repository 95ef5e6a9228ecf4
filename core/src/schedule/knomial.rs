//! The k-nomial tree: a binomial tree whose ranks have up to k - 1 children a level, so that it has
//! log_k n levels (UCC's `ucc_tl_ucp_bcast_knomial` and `ucc_tl_ucp_reduce_knomial`, whose radix is
//! 4 unless the job says otherwise; MPICH's `MPII_Treeutil_tree_knomial_1_init`). A rank sends to all
//! of its children of a level at once; a reduction takes them one after the other, so that the order
//! of the additions is fixed. Gather and scatter are [`super::binomial`]'s, by the same radix.

use super::binomial::{depth, distance};
use super::{Action, Buffer, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;

/// k: UCC's default.
pub(super) const RADIX: u32 = 4;

pub(super) fn steps(collective: Collective, n: u32) -> u32 {
    let levels = depth(n, RADIX);
    match collective {
        Collective::Reduce { .. } if levels > 0 => {
            let top = u64::from(n - 1) / distance(RADIX, levels - 1);
            (levels - 1) * (RADIX - 1) + (top as u32).min(RADIX - 1)
        }
        _ => levels,
    }
}

pub(super) fn actions(
    collective: Collective,
    n: u32,
    rank: GroupRank,
    step: u32,
    actions: &mut Vec<Action>,
) {
    let Some(root) = collective.root() else { return };
    let whole = Slice::one(Buffer::Output, 0);
    let (size, root) = (u64::from(n), u64::from(root.0));
    let place = (u64::from(rank.0) + size - root) % size;
    let rank_at = |place: u64| GroupRank(((place + root) % size) as u32);
    if collective.reduce_op().is_none() {
        // The farthest first.
        let distance = distance(RADIX, depth(n, RADIX) - 1 - step);
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
