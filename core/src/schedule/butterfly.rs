//! Butterflies in place: in each round two places each give away half of the chunks that they still sum and
//! reduce the other half, until every place has finished one chunk; then the same way back, on which each
//! pair exchanges its finished chunks. With a root, only chunks that go towards the root are sent on the way
//! back.
//!
//! The family chooses the partners ([`Butterfly`]). Chunks are numbered such that the chunks that a place
//! still sums are a run. Sizes that are no powers of two are folded ([`Fold`]).

use super::family::Call;
use super::fold::{Fold, Phase, Role};
use super::{Action, Buffer, Slice};
use crate::rank::GroupRank;

/// The functions in which families of this kind differ. Levels count from 0, the first round of the halving.
pub(super) struct Butterfly {
    /// The partner of a place at a level. With a root, the place with bit `level` flipped.
    pub(super) partner: fn(Fold, u32, u32) -> u32,
    /// The chunk that a place finishes. Up to a level, partners' numbers have the same upper bits,
    /// and at that level they differ in the next one.
    pub(super) finishes: fn(Fold, u32) -> u32,
    /// The distance of partners at a level, for the texts.
    pub(super) distance: fn(u32) -> u64,
}

impl Butterfly {
    pub(super) fn steps(&self, call: Call) -> u32 {
        let fold = Fold::new(call.size);
        match call.collective.root() {
            None => fold.steps(2 * fold.rounds()),
            // Only a root that was folded waits for the result.
            Some(root) => {
                let after = matches!(fold.role(root), Role::Folded { .. });
                u32::from(fold.folds()) + 2 * fold.rounds() + u32::from(after)
            }
        }
    }

    /// See [`Family::ranks_are_alike`](super::family::Family::ranks_are_alike).
    pub(super) fn ranks_are_alike(&self, call: Call) -> bool {
        !Fold::new(call.size).folds() && call.collective.root().is_none()
    }

    /// A chunk for each place.
    pub(super) fn chunks_per_part(&self, call: Call) -> u32 {
        Fold::new(call.size).places
    }

    pub(super) fn actions(
        &self,
        call: Call,
        rank: GroupRank,
        step: u32,
        actions: &mut Vec<Action>,
    ) {
        let (fold, root) = (Fold::new(call.size), call.collective.root());
        let rounds = fold.rounds();
        let is_for = |rank: GroupRank| root.is_none_or(|root| root == rank);
        let whole = Slice::run(Buffer::Output, 0..fold.places);
        match (fold.role(rank), fold.phase(step, 2 * rounds)) {
            (Role::Folded { to }, Phase::Before) => {
                actions.push(Action::Send { peer: to, from: whole });
            }
            (Role::Folded { to }, Phase::After) if is_for(rank) => {
                actions.push(Action::Receive { peer: to, into: whole });
            }
            (Role::Core { also_for: Some(peer), .. }, Phase::Before) => {
                actions.push(Action::ReceiveReduce { peer, local: whole, into: whole });
            }
            (Role::Core { also_for: Some(peer), .. }, Phase::After) if is_for(peer) => {
                actions.push(Action::Send { peer, from: whole });
            }
            (Role::Core { place, .. }, Phase::Round(round)) => {
                self.exchange(fold, root, place, round, actions);
            }
            (Role::Folded { .. }, _) | (Role::Core { .. }, _) => {}
        }
    }

    /// A place's part in a round.
    fn exchange(
        &self,
        fold: Fold,
        root: Option<GroupRank>,
        place: u32,
        round: u32,
        actions: &mut Vec<Action>,
    ) {
        let level = level(fold, round);
        let peer = fold.rank_at((self.partner)(fold, place, level));
        let width = fold.places >> (level + 1);
        let block = (self.finishes)(fold, place) & !(width - 1);
        let mine = Slice::run(Buffer::Output, block..block + width);
        let other = block ^ width;
        let theirs = Slice::run(Buffer::Output, other..other + width);
        if round < fold.rounds() {
            actions.push(Action::Send { peer, from: theirs });
            actions.push(Action::ReceiveReduce { peer, local: mine, into: mine });
            return;
        }
        // A place that has not handed its part on yet agrees with the root's place above this level.
        let apart = root.map(|root| (fold.place_of(root) ^ place) >> level);
        if matches!(apart, None | Some(1)) {
            actions.push(Action::Send { peer, from: mine });
        }
        if matches!(apart, None | Some(0)) {
            actions.push(Action::Receive { peer, into: theirs });
        }
    }

    /// The purpose of a step; those after the last are later segments' last.
    fn at(&self, call: Call, step: u32) -> (Fold, Phase) {
        let fold = Fold::new(call.size);
        let last = self.steps(call).saturating_sub(1);
        (fold, fold.phase(step.min(last), 2 * fold.rounds()))
    }

    pub(super) fn phase(&self, call: Call, step: u32) -> &'static str {
        let (fold, phase) = self.at(call, step);
        match phase {
            Phase::Round(round) if round < fold.rounds() => ", reduce-scatter phase",
            Phase::Round(_) if call.collective.root().is_some() => ", gather phase",
            Phase::Round(_) => ", all-gather phase",
            _ => fold.phase_name(phase),
        }
    }

    pub(super) fn step_text(&self, call: Call, step: u32) -> String {
        let (fold, phase) = self.at(call, step);
        let Phase::Round(round) = phase else {
            return fold.step_text(phase).unwrap_or_default();
        };
        let distance = (self.distance)(level(fold, round));
        match call.collective.root() {
            _ if round < fold.rounds() => format!(
                "ranks {distance} apart each give away half of what they still sum, and combine \
                 the other half."
            ),
            Some(_) => format!(
                "ranks {distance} apart: the one farther from the root hands on all it has \
                 finished."
            ),
            None => {
                format!("ranks {distance} apart exchange all they have finished, and so double it.")
            }
        }
    }
}

/// The level of a round: the second half of the rounds goes back the way the first half came.
fn level(fold: Fold, round: u32) -> u32 {
    if round < fold.rounds() { round } else { 2 * fold.rounds() - 1 - round }
}
