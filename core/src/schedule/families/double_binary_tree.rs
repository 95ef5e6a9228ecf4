//! The double binary tree: two trees reduce and broadcast one half of the tensor each, and a rank
//! that is inside one is a leaf of the other, so that nearly all ranks send and receive at full
//! bandwidth in log2 n levels (Sanders, Speck, Träff 2009, "Two-tree algorithms for full bandwidth
//! broadcast, reduction and scan"). The first tree is NCCL's (`ncclGetBtree` in
//! `src/graph/trees.cc`), and the second its mirror image under the same root ([`Tree`]). NCCL's
//! second tree (`ncclGetDtree`) mirrors the root as well, or shifts all ranks by one; with one root,
//! a large all_reduce takes a fifth less here, because no port has less to do than another's.
//!
//! Every edge has one of two colours (their section 4), by which a rank's two parents are told apart,
//! and its children: a step moves the edges of one colour, so that no rank sends two messages in a
//! step or receives two, though both trees move in it. Segments are lanes (`lanes.rs`), one
//! behind the other by two steps, or by four where two go up and two down: each port carries a
//! half's segment in each step once the pipeline is full.

use super::tree;
use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::explained::{Explain, Explained, Formula, Holds};
use crate::schedule::family::{Call, Family, PIPELINE_CHUNK_BYTES, Step};
use crate::schedule::{Action, Buffer, Slice};

/// Two binary trees.
pub(super) struct DoubleBinaryTree;

impl Family for DoubleBinaryTree {
    fn carries_out(&self, collective: Collective) -> bool {
        collective.in_place()
    }

    fn steps(&self, call: Call) -> u32 {
        steps(call.collective, call.size)
    }

    fn chunks_per_part(&self, _call: Call) -> u32 {
        PIECES
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, list: &mut Vec<Action>) {
        actions(call.collective, call.size, participant, step, list);
    }

    fn pipeline_chunk_bytes(&self) -> Option<u64> {
        // A half goes through either tree.
        Some(2 * PIPELINE_CHUNK_BYTES)
    }

    /// Every edge moves one segment in between.
    fn stagger(&self, call: Call) -> u32 {
        Ways::of(call.collective).period()
    }

    fn step_text(&self, call: Call, step: Step) -> String {
        let way = match call.collective {
            Collective::Broadcast { .. } => "down",
            Collective::Reduce { .. } => "up",
            _ if step.at % 4 < 2 => "up",
            _ => "down",
        };
        let colour = if step.at.is_multiple_of(2) { "one" } else { "the other" };
        format!(
            "segments go {way} both trees, each of which has half of the tensor, by the edges of \
             {colour} of two colours: in one step no rank sends twice or receives twice."
        )
    }
}

impl Explain for DoubleBinaryTree {
    fn explained(&self, collective: Collective) -> Explained {
        match collective {
            Collective::Broadcast { .. } => Explained {
                formula: Formula::new(
                    "(⌈log₂ n⌉ + 2k − 1)",
                    "(1 + (⌈log₂ n⌉ − 1)/k)",
                    Holds::About(
                        "how full the last level is, and when a port waits for the other colour",
                    ),
                )
                .in_rounds("2⌈log₂ n⌉ + 2k − 2", Holds::AtMost),
                idea: "Two binary trees with one root, each for half of the data; a rank inside \
                    one tree is a leaf of the other. The edges have two colours that take turns, \
                    so that no rank sends two messages in a step or receives two. Each half moves \
                    in segments of 512 KiB.",
                used_by: "Nobody's default: NCCL broadcasts by a ring of slices. Worth it for long \
                    messages to many ranks, where a chain's latencies are too many.",
                cost: "Latencies grow with log₂ n and bytes do not grow at all: one tensor's time \
                    once the pipeline is full, the least there is.",
            },
            Collective::Reduce { .. } => Explained {
                formula: Formula::new(
                    "(⌈log₂ n⌉ + 2k − 1)",
                    "(1 + (⌈log₂ n⌉ − 1)/k)",
                    Holds::About(
                        "how full the last level is, and when a port waits for the other colour",
                    ),
                )
                .in_rounds("2⌈log₂ n⌉ + 2k − 2", Holds::AtMost),
                idea: "Two binary trees with one root, each for half of the data, from the leaves \
                    to the root; a rank inside one tree is a leaf of the other. The edges have two \
                    colours that take turns, so that no rank sends two messages in a step or \
                    receives two. Each half moves in segments of 512 KiB.",
                used_by: "Nobody's default: NCCL reduces by a ring of slices. Worth it for long \
                    messages from many ranks.",
                cost: "Latencies grow with log₂ n and bytes do not grow at all: one tensor's time \
                    once the pipeline is full, the least there is.",
            },
            _ => Explained {
                formula: Formula::new(
                    "(2⌈log₂ n⌉ + 4k − 2)",
                    "(2 + (2⌈log₂ n⌉ − 1)/k)",
                    Holds::About(
                        "how full the last level is, and when a port waits for the other colour",
                    ),
                )
                .in_rounds("4⌈log₂ n⌉ + 4k − 4", Holds::AtMost),
                idea: "Two binary trees with one root, each for half of the data; a rank inside \
                    one tree is a leaf of the other, so that every port is used. The edges have \
                    two colours that take turns, up and down, so that no rank sends two messages \
                    in a step or receives two. Each half moves in segments of 512 KiB, as NCCL's \
                    chunks are: a tensor of up to 1 MiB is one.",
                used_by: "NCCL's Tree: its choice across nodes for small and middle sizes.",
                cost: "Latencies grow with log₂ n and bytes do not grow at all: two tensors' time \
                    once the pipeline is full, as the ring's. A tensor of few segments mostly \
                    waits for the pipeline to fill.",
            },
        }
    }
}

/// Pieces of the tensor: a half for each tree.
pub(super) const PIECES: u32 = 2;

/// Colours of the edges.
const COLOURS: u32 = 2;

/// The directions of the halves: up to the root, down from it, or both.
#[derive(Clone, Copy)]
struct Ways {
    up: bool,
    down: bool,
}

impl Ways {
    fn of(collective: Collective) -> Ways {
        match collective {
            Collective::Broadcast { .. } => Ways { up: false, down: true },
            Collective::Reduce { .. } => Ways { up: true, down: false },
            _ => Ways { up: true, down: true },
        }
    }

    /// Steps in which every edge moves once each way.
    fn period(self) -> u32 {
        COLOURS * (u32::from(self.up) + u32::from(self.down))
    }

    /// The moves of `step`, in trees of so many levels.
    fn moves(self, step: u32, levels: u32) -> Moves {
        let (period, within) = (step / self.period(), step % self.period());
        let colour = within % COLOURS == 1;
        if self.up && within < COLOURS {
            return Moves { up: true, height: Some(period), colour };
        }
        // The root has all a step after the last has come up; without a way up, at once.
        let before = if self.up { levels - 1 } else { 0 };
        let level = period.checked_sub(before);
        Moves { up: false, height: level.and_then(|level| (levels - 1).checked_sub(level)), colour }
    }
}

/// The moves of a step: the edges of a colour above the places of a height.
#[derive(Clone, Copy)]
struct Moves {
    up: bool,
    /// `None` if nothing moves that is this far.
    height: Option<u32>,
    colour: bool,
}

pub(super) fn steps(collective: Collective, n: u32) -> u32 {
    let (ways, levels) = (Ways::of(collective), tree::depth(n));
    let blocks = match ways.up && ways.down {
        true => (2 * levels).saturating_sub(1),
        false => levels,
    };
    ways.period() * blocks
}

pub(super) fn actions(
    collective: Collective,
    n: u32,
    rank: GroupRank,
    step: u32,
    actions: &mut Vec<Action>,
) {
    let levels = tree::depth(n);
    if levels == 0 {
        return;
    }
    let moves = Ways::of(collective).moves(step, levels);
    let Some(height) = moves.height else { return };
    let root = collective.root().map_or(0, |root| root.0);
    for second in [false, true] {
        let tree = Tree { n, second, root };
        let place = tree.place(rank.0);
        let half = Slice::one(Buffer::Output, u32::from(second));
        let moving =
            |place: u32| place.trailing_zeros() == height && tree.colour(place) == moves.colour;
        if let Some(parent) = tree.parent(place)
            && moving(place)
        {
            let peer = tree.rank(parent);
            actions.push(match moves.up {
                true => Action::Send { peer, from: half },
                false => Action::Receive { peer, into: half },
            });
        }
        let children = tree.children(place).into_iter().flatten();
        for child in children.filter(|child| moving(*child)) {
            let peer = tree.rank(child);
            actions.push(match moves.up {
                true => Action::ReceiveReduce { peer, local: half, into: half },
                false => Action::Send { peer, from: half },
            });
        }
    }
}

/// A binary tree over places 0 to n - 1: a place's height is the number of zeros that its number
/// ends in, and place 0 is the root, with one child.
///
/// The second tree has the places of the first in the opposite order, so that those inside one
/// (even) are leaves of the other (odd). That works for an even number of places; a place more is a
/// leaf of both.
#[derive(Clone, Copy)]
struct Tree {
    n: u32,
    second: bool,
    /// The rank whose place is 0 in both trees.
    root: u32,
}

impl Tree {
    /// The places 1 to so many are mirrored.
    fn mirrored(self) -> u32 {
        (self.n - 1) & !1
    }

    /// The second tree's place of the rank whose place in the first is given, and the other way
    /// around.
    fn mirror(self, place: u32) -> u32 {
        match self.second && (1..=self.mirrored()).contains(&place) {
            true => self.mirrored() + 1 - place,
            false => place,
        }
    }

    fn place(self, rank: u32) -> u32 {
        let Tree { n, root, .. } = self;
        self.mirror(if rank >= root { rank - root } else { rank + (n - root) })
    }

    fn rank(self, place: u32) -> GroupRank {
        let from_root = u64::from(self.mirror(place));
        GroupRank(((from_root + u64::from(self.root)) % u64::from(self.n)) as u32)
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
        let levels = tree::depth(self.n);
        if place == 0 {
            return [None, levels.checked_sub(1).map(|top| 1 << top)];
        }
        let left = left_child(place);
        // The right child is lower where the tree ends.
        let height = place.trailing_zeros();
        let right = (0..height).rev().map(|below| u64::from(place) + (1u64 << below));
        let right =
            right.filter(|child| *child < u64::from(self.n)).map(|child| child as u32).next();
        [left, right]
    }

    /// The colour of the edge above a place.
    fn colour(self, place: u32) -> bool {
        let mirrored = self.mirrored();
        let first = match place > mirrored {
            false => colour(mirrored, place),
            // The one more is the sibling of the last one's left child.
            true => left_child(mirrored).is_none_or(|left| !colour(mirrored, left)),
        };
        first != self.second
    }
}

fn left_child(place: u32) -> Option<u32> {
    let below = place.trailing_zeros().checked_sub(1)?;
    (place > 0).then(|| place - (1 << below))
}

/// The colour of the edge above place `place` of the first tree of `places` that are mirrored, an
/// even number; the second tree's have the other one. Siblings differ, and a place and its mirror
/// image, `places + 1 - place`, have the same: so a rank's two parents differ.
///
/// These rules leave no choice but that of the first colour, and string all places on one line.
/// Along it, odd places are told by their images, and even ones, halved, by a line of half as many:
/// pairs of neighbours (1, 2), (3, 4), … or (2, 3), (4, 5), …, whichever end with the last, differ
/// as siblings of odd places do, and whether the pairs themselves differ is the same question again.
fn colour(places: u32, place: u32) -> bool {
    let place = if place.is_multiple_of(2) { place } else { places + 1 - place };
    let (mut places, mut place) = (places / 2, place / 2);
    let pairs_from_one = places.is_multiple_of(2);
    let mut colour = true;
    while places > 1 {
        let half = places / 2;
        let alone = place == places && !places.is_multiple_of(2);
        match pairs_from_one {
            true if alone && places % 4 == 3 => (places, place) = (half, half),
            // It is the right child of the one before, far above it.
            true if alone => {
                let Some(left) = left_child(places - 1) else { return colour };
                colour = !colour;
                place = left;
            }
            false if place == 1 => (places, place) = (half, 1),
            _ => {
                colour ^= !place.is_multiple_of(2);
                place = if pairs_from_one { place.div_ceil(2) } else { place / 2 };
                places = half;
            }
        }
    }
    colour
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reduce::ReduceOp;
    use crate::schedule::{Algorithm, Schedule};
    use proptest::prelude::*;

    /// Checks the claim about the colours: no rank sends or receives twice in a step, in neither
    /// tree, whatever goes up or down, in one segment or many.
    fn assert_one_a_port(collective: Collective, n: u32, segments: u32) {
        let trees = Schedule::new(collective, Algorithm::DoubleBinaryTree, n).unwrap();
        let trees = trees.with_segments(segments).unwrap();
        let mut actions = Vec::new();
        for step in 0..trees.steps() {
            for rank in (0..n).map(GroupRank) {
                trees.actions(rank, step, &mut actions);
                let sends = actions.iter().filter(|a| matches!(a, Action::Send { .. })).count();
                let what = format!("{trees}, {segments} segments, step {step}, rank {rank}");
                assert!(sends <= 1 && actions.len() - sends <= 1, "{what}: {actions:?}");
            }
        }
    }

    fn calls(root: u32) -> [Collective; 3] {
        let (op, root) = (ReduceOp::Sum, GroupRank(root));
        [
            Collective::AllReduce { op },
            Collective::Broadcast { root },
            Collective::Reduce { op, root },
        ]
    }

    #[test]
    fn no_port_is_used_twice_in_a_step() {
        for n in 1..=66 {
            for collective in calls(n / 3) {
                assert_one_a_port(collective, n, 1);
                assert_one_a_port(collective, n, 5);
            }
        }
    }

    /// The rules of the colours, for every even number of places up to 2,000.
    #[test]
    fn siblings_differ_and_mirror_images_do_not() {
        for places in (2..=2000).step_by(2) {
            let tree = Tree { n: places + 1, second: false, root: 0 };
            for place in 1..=places {
                assert_eq!(colour(places, place), colour(places, places + 1 - place));
                if let [Some(left), Some(right)] = tree.children(place) {
                    assert_ne!(colour(places, left), colour(places, right), "{places}: {place}");
                }
            }
        }
    }

    /// Every rank is inside one tree at most.
    #[test]
    fn inside_one_is_a_leaf_of_the_other() {
        for n in 2..=200 {
            for root in [0, n / 2] {
                let [first, second] = [false, true].map(|second| Tree { n, second, root });
                for rank in 0..n {
                    let children = [first, second].map(|tree| {
                        let place = tree.place(rank);
                        assert_eq!(tree.rank(place), GroupRank(rank));
                        tree.children(place).into_iter().flatten().count()
                    });
                    assert!(children.iter().sum::<usize>() <= 2, "{rank} of {n}: {children:?}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn large_worlds_have_their_colours(places in 1..1u32 << 30, place in 0..u32::MAX) {
            let places = 2 * places;
            let place = place % places + 1;
            prop_assert_eq!(colour(places, place), colour(places, places + 1 - place));
            let tree = Tree { n: places + 1, second: false, root: 0 };
            if let [Some(left), Some(right)] = tree.children(place) {
                prop_assert_ne!(colour(places, left), colour(places, right));
            }
        }
    }
}
