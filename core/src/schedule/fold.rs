//! Folding: a way to use an algorithm for powers of two with any group size (Thakur, Rabenseifner, Gropp
//! 2005, on all_reduce; MPICH's `newrank` in `allreduce_intra_recursive_doubling.c`).
//!
//! Of n = p + x ranks, p the largest power of two, each even rank below 2x hands its data to the odd rank
//! after it and waits for the result; the p ranks that stay take places 0 to p - 1. Places stand for ranks in
//! order, so a run of places is a run of ranks: slices stay contiguous.

use crate::rank::GroupRank;
use std::ops::Range;

/// The places that `n` ranks take.
#[derive(Clone, Copy)]
pub(super) struct Fold {
    /// Places: the largest power of two that is at most `n`.
    pub(super) places: u32,
    /// Ranks that hand their data to their neighbour.
    extra: u32,
}

/// The role of a rank in a folded schedule.
pub(super) enum Role {
    /// Hands its data to `to` and gets the result from it.
    Folded { to: GroupRank },
    /// Takes a place, perhaps for another rank too.
    Core { place: u32, also_for: Option<GroupRank> },
}

/// The purpose of a step of a folded schedule.
#[derive(Clone, Copy)]
pub(super) enum Phase {
    /// The extra ranks hand over their data.
    Before,
    /// A round among the places.
    Round(u32),
    /// The extra ranks get their results; local clean-up.
    After,
}

impl Fold {
    pub(super) fn new(n: u32) -> Fold {
        let places = 1 << n.max(1).ilog2();
        Fold { places, extra: n.max(1) - places }
    }

    /// log2 of the places.
    pub(super) fn rounds(self) -> u32 {
        self.places.trailing_zeros()
    }

    /// True when some ranks have to hand over their data.
    pub(super) fn folds(self) -> bool {
        self.extra > 0
    }

    /// The number of steps of `rounds` rounds, with the steps before and after them.
    pub(super) fn steps(self, rounds: u32) -> u32 {
        if self.folds() { rounds + 2 } else { rounds }
    }

    /// The phase of `step` in a schedule of `rounds` rounds.
    pub(super) fn phase(self, step: u32, rounds: u32) -> Phase {
        let before = u32::from(self.folds());
        match step.checked_sub(before) {
            None => Phase::Before,
            Some(round) if round < rounds => Phase::Round(round),
            Some(_) => Phase::After,
        }
    }

    pub(super) fn role(self, rank: GroupRank) -> Role {
        let rank = rank.0;
        if rank / 2 >= self.extra {
            Role::Core { place: rank - self.extra, also_for: None }
        } else if rank.is_multiple_of(2) {
            Role::Folded { to: GroupRank(rank + 1) }
        } else {
            Role::Core { place: rank / 2, also_for: Some(GroupRank(rank - 1)) }
        }
    }

    /// The place of a rank, or of the one that it hands its data to.
    pub(super) fn place_of(self, rank: GroupRank) -> u32 {
        match self.role(rank) {
            Role::Core { place, .. } => place,
            Role::Folded { to } => to.0 / 2,
        }
    }

    /// The rank that takes `place`.
    pub(super) fn rank_at(self, place: u32) -> GroupRank {
        let after = self.first_rank(place + 1);
        GroupRank(after - 1)
    }

    /// The ranks of `count` places from `place` on.
    pub(super) fn ranks(self, place: u32, count: u32) -> Range<u32> {
        self.first_rank(place)..self.first_rank(place + count)
    }

    fn first_rank(self, place: u32) -> u32 {
        place + place.min(self.extra)
    }

    /// The name of the phases before and after the rounds, to go after "Step 1 of 6".
    pub(super) fn phase_name(self, phase: Phase) -> &'static str {
        match phase {
            Phase::Before => ", folding",
            Phase::After if self.folds() => ", unfolding",
            Phase::After | Phase::Round(_) => "",
        }
    }

    /// A sentence about the actions of the extra ranks before and after the rounds.
    pub(super) fn step_text(self, phase: Phase) -> Option<String> {
        let Fold { places, extra } = self;
        match phase {
            Phase::Before => Some(format!(
                "{} is no power of two, so {extra} ranks hand their data to the neighbour and wait \
                 for the result; {places} go on.",
                places + extra
            )),
            Phase::After if self.folds() => {
                Some(format!("the {extra} ranks that waited get their result."))
            }
            Phase::After | Phase::Round(_) => None,
        }
    }
}
