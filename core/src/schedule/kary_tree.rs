//! The k-ary tree: place p has the children kp + 1 to kp + k (MPICH's
//! `MPII_Treeutil_tree_kary_init`). A rank sends to all of its children at once, so the tree is
//! flatter than the binomial one, but a parent's link carries k messages; a reduction takes the
//! children one after the other, so that the order of the additions is fixed.

use super::{Action, Buffer, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;

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

pub(super) fn steps(collective: Collective, n: u32) -> u32 {
    let (levels, deepest) = shape(n);
    match collective {
        Collective::Reduce { .. } if levels > 0 => (levels - 1) * K as u32 + deepest.min(K) as u32,
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
    let children = || (K * place + 1..=K * place + K).filter(|child| *child < size);
    if collective.reduce_op().is_none() {
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
    let (levels, _) = shape(n);
    let turn = |child: u64| match level(child) {
        deepest if deepest == levels => sibling(child),
        above => steps(collective, n) - K as u32 * above + sibling(child),
    };
    if place > 0 && turn(place) == step {
        actions.push(Action::Send { peer: rank_at((place - 1) / K), from: whole });
    }
    for child in children().filter(|child| turn(*child) == step) {
        let peer = rank_at(child);
        actions.push(Action::ReceiveReduce { peer, local: whole, into: whole });
    }
}

/// Which of its parent's children a place is, from 0.
fn sibling(place: u64) -> u32 {
    ((place - 1) % K) as u32
}
