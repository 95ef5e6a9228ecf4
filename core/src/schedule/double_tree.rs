//! The double binary tree: two trees reduce and broadcast one half of the tensor each, and a rank
//! that is inside one is a leaf of the other, so that nearly all ranks send and receive at full
//! bandwidth in log2 n levels (Sanders, Speck, Träff 2009, "Two-tree algorithms for full bandwidth
//! broadcast, reduction and scan"; NCCL's `ncclGetBtree` and `ncclGetDtree` in
//! `src/graph/trees.cc`, which these trees are).
//!
//! Here is the way of one segment of both halves. Segments are lanes ([`super::lanes`]), one behind
//! the other by two time slots, because a rank takes its two children in turn. The trees take turns
//! too (a step is a slot of one tree), so that no rank moves data of both in one step.

use super::{Action, Buffer, Slice};
use crate::rank::GroupRank;

/// Pieces of the tensor: a half for each tree.
pub(super) const PIECES: u32 = 2;

/// Steps between two segments.
pub(super) const STAGGER: u32 = 4;

pub(super) fn steps(n: u32) -> u32 {
    // Two slots a level up, one down, of two trees.
    2 * 3 * super::tree::depth(n)
}

pub(super) fn actions(n: u32, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let (second, slot) = (step % 2 == 1, step / 2);
    let tree = Tree { n, second };
    let place = tree.place(rank.0);
    let half = Slice::one(Buffer::Output, u32::from(second));
    if let Some(parent) = tree.parent(place) {
        let peer = tree.rank(parent);
        if slot == tree.goes_up(place, parent) {
            actions.push(Action::Send { peer, from: half });
        }
        if slot == tree.comes_down(place) {
            actions.push(Action::Receive { peer, into: half });
        }
    }
    for child in tree.children(place).into_iter().flatten() {
        let peer = tree.rank(child);
        if slot == tree.goes_up(child, place) {
            actions.push(Action::ReceiveReduce { peer, local: half, into: half });
        }
        if slot == tree.comes_down(child) {
            actions.push(Action::Send { peer, from: half });
        }
    }
}

/// A binary tree over places 0 to n - 1: a place's height is the number of zeros that its number
/// ends in, and place 0 is the root.
#[derive(Clone, Copy)]
struct Tree {
    n: u32,
    /// The other tree: the ranks mirrored or, if they are odd in number, shifted by one.
    second: bool,
}

impl Tree {
    fn place(self, rank: u32) -> u32 {
        let n = self.n;
        match (self.second, n.is_multiple_of(2)) {
            (false, _) => rank,
            (true, true) => n - 1 - rank,
            (true, false) => rank.checked_sub(1).unwrap_or(n - 1),
        }
    }

    fn rank(self, place: u32) -> GroupRank {
        let n = self.n;
        GroupRank(match (self.second, n.is_multiple_of(2)) {
            (false, _) => place,
            (true, true) => n - 1 - place,
            (true, false) if place + 1 == n => 0,
            (true, false) => place + 1,
        })
    }

    fn parent(self, place: u32) -> Option<u32> {
        if place == 0 {
            return None;
        }
        let bit = 1 << place.trailing_zeros();
        let without = place ^ bit;
        let parent = u64::from(without) | u64::from(bit) << 1;
        Some(if parent < u64::from(self.n) { parent as u32 } else { without })
    }

    fn children(self, place: u32) -> [Option<u32>; 2] {
        let levels = super::tree::depth(self.n);
        if place == 0 {
            return [None, levels.checked_sub(1).map(|top| 1 << top)];
        }
        let height = place.trailing_zeros();
        let left = height.checked_sub(1).map(|below| place - (1 << below));
        // The right child is lower where the tree ends.
        let right = (0..height).rev().map(|below| u64::from(place) + (1u64 << below));
        let right =
            right.filter(|child| *child < u64::from(self.n)).map(|child| child as u32).next();
        [left, right]
    }

    /// The slot in which a place sends its sum to its parent.
    fn goes_up(self, place: u32, parent: u32) -> u32 {
        2 * place.trailing_zeros() + u32::from(place > parent)
    }

    /// The slot in which a place gets the result from its parent: after the root
    /// has all of it, and after every place above.
    fn comes_down(self, place: u32) -> u32 {
        3 * super::tree::depth(self.n) - 1 - place.trailing_zeros()
    }
}
