//! The double binary tree: two trees reduce and broadcast one half of the tensor each, and a rank
//! that is inside one is a leaf of the other, so that nearly all ranks send and receive at full
//! bandwidth in log2 n levels (Sanders, Speck, Träff 2009, "Two-tree algorithms for full bandwidth
//! broadcast, reduction and scan"; NCCL's `ncclGetBtree` and `ncclGetDtree` in
//! `src/graph/trees.cc`, which these trees are).
//!
//! all_reduce goes up and down the trees; broadcast and reduce go one way only, with one root for both
//! trees, whose other places they share out among the other ranks (Sanders et al., section 3). Their
//! colouring of the edges, which would let both trees move in one step, is not here.
//!
//! Here is the way of one segment of both halves. Segments are lanes ([`super::lanes`]), one behind
//! the other by two time slots, because a rank takes its two children in turn. The trees take turns
//! too (a step is a slot of one tree), so that no rank moves data of both in one step.

use super::{Action, Buffer, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;

/// Pieces of the tensor: a half for each tree.
pub(super) const PIECES: u32 = 2;

/// Steps between two segments: a rank takes its two children in turn, and serves them in one slot;
/// and the trees take turns.
pub(super) fn stagger(collective: Collective) -> u32 {
    match collective {
        Collective::Broadcast { .. } => 2,
        _ => 4,
    }
}

pub(super) fn steps(collective: Collective, n: u32) -> u32 {
    // Two slots a level up, one down, of two trees.
    let slots = match collective {
        Collective::Broadcast { .. } => 1,
        Collective::Reduce { .. } => 2,
        _ => 3,
    };
    2 * slots * super::tree::depth(n)
}

pub(super) fn actions(
    collective: Collective,
    n: u32,
    rank: GroupRank,
    step: u32,
    actions: &mut Vec<Action>,
) {
    let (second, slot) = (step % 2 == 1, step / 2);
    let tree = Tree { n, second, root: collective.root().map(|root| root.0) };
    let place = tree.place(rank.0);
    let half = Slice::one(Buffer::Output, u32::from(second));
    let (up, down) = match collective {
        Collective::Broadcast { .. } => (false, true),
        Collective::Reduce { .. } => (true, false),
        _ => (true, true),
    };
    // What comes down does so after everything has gone up.
    let depth = super::tree::depth(n);
    let comes_down = |place: u32| {
        let last = if up { 3 * depth } else { depth };
        down && slot + 1 + place.trailing_zeros() == last
    };
    let goes_up = |place: u32, parent: u32| {
        up && slot == 2 * place.trailing_zeros() + u32::from(place > parent)
    };
    if let Some(parent) = tree.parent(place) {
        let peer = tree.rank(parent);
        if goes_up(place, parent) {
            actions.push(Action::Send { peer, from: half });
        }
        if comes_down(place) {
            actions.push(Action::Receive { peer, into: half });
        }
    }
    for child in tree.children(place).into_iter().flatten() {
        let peer = tree.rank(child);
        if goes_up(child, place) {
            actions.push(Action::ReceiveReduce { peer, local: half, into: half });
        }
        if comes_down(child) {
            actions.push(Action::Send { peer, from: half });
        }
    }
}

/// A binary tree over places 0 to n - 1: a place's height is the number of zeros that its number
/// ends in, and place 0 is the root.
#[derive(Clone, Copy)]
struct Tree {
    n: u32,
    /// The other tree: the ranks mirrored or shifted by one, so that odd places get even.
    second: bool,
    /// Whose place is 0 in both trees; without one, rank 0 begins the first and another the second.
    root: Option<u32>,
}

impl Tree {
    fn place(self, rank: u32) -> u32 {
        let n = self.n;
        let Some(root) = self.root else {
            return match (self.second, n.is_multiple_of(2)) {
                (false, _) => rank,
                (true, true) => n - 1 - rank,
                (true, false) => rank.checked_sub(1).unwrap_or(n - 1),
            };
        };
        let from_root = if rank >= root { rank - root } else { rank + (n - root) };
        match (self.second, n.is_multiple_of(2)) {
            _ if from_root == 0 => 0,
            (false, _) => from_root,
            (true, false) => n - from_root,
            (true, true) => from_root % (n - 1) + 1,
        }
    }

    fn rank(self, place: u32) -> GroupRank {
        let n = self.n;
        let Some(root) = self.root else {
            return GroupRank(match (self.second, n.is_multiple_of(2)) {
                (false, _) => place,
                (true, true) => n - 1 - place,
                (true, false) if place + 1 == n => 0,
                (true, false) => place + 1,
            });
        };
        let from_root = match (self.second, n.is_multiple_of(2)) {
            _ if place == 0 => 0,
            (false, _) => place,
            (true, false) => n - place,
            (true, true) if place == 1 => n - 1,
            (true, true) => place - 1,
        };
        GroupRank(((u64::from(from_root) + u64::from(root)) % u64::from(n)) as u32)
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
}
