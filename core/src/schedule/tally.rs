//! The traffic of a schedule: counted from its own actions, for a given element count.
//!
//! The counts are those of the alpha-beta model (Thakur, Rabenseifner, Gropp 2005, section 3):
//! how many messages, and how many elements pass through the busiest rank's port.

use super::{Action, Layout, Schedule, Slice};
use crate::rank::GroupRank;
use serde::{Deserialize, Serialize};

/// The actions of one rank in a whole schedule, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankTally {
    /// Messages that it sends.
    pub sends: u64,
    /// Messages that it receives.
    pub receives: u64,
    /// Elements of all messages that it sends.
    pub sent_elements: u64,
    /// Elements of all messages that it receives.
    pub received_elements: u64,
    /// Elements that it combines with others, received or its own.
    pub reduced_elements: u64,
}

/// The actions of all ranks in a whole schedule, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Messages of all ranks.
    pub messages: u64,
    /// Elements in all messages.
    pub moved_elements: u64,
    /// The most elements that one rank sends.
    pub most_sent: u64,
    /// The most elements that one rank receives.
    pub most_received: u64,
    /// The most elements that one rank combines.
    pub most_reduced: u64,
}

impl Tally {
    /// Counts one more participant; each is counted once. Only ranks have one port that could be
    /// the busiest: a switch has one for each of its neighbours.
    pub fn add(&mut self, counted: &RankTally, is_switch: bool) {
        self.messages += counted.sends;
        self.moved_elements = self.moved_elements.saturating_add(counted.sent_elements);
        if is_switch {
            return;
        }
        self.most_sent = self.most_sent.max(counted.sent_elements);
        self.most_received = self.most_received.max(counted.received_elements);
        self.most_reduced = self.most_reduced.max(counted.reduced_elements);
    }
}

/// The rounds of a schedule, as the literature counts them: its steps in which messages move. In
/// the others, ranks copy and add by themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rounds {
    moves: Vec<bool>,
    /// Per step, true if any rank acts in it.
    acts: Vec<bool>,
}

impl Rounds {
    /// The rounds of a schedule: a walk over every action.
    pub fn of(schedule: &Schedule) -> Rounds {
        let mut rounds = Rounds::default();
        for participant in (0..schedule.participants()).map(GroupRank) {
            rounds.add(schedule, participant);
        }
        rounds
    }

    /// Counts one more participant's steps.
    pub fn add(&mut self, schedule: &Schedule, participant: GroupRank) {
        self.moves.resize(schedule.steps() as usize, false);
        self.acts.resize(schedule.steps() as usize, false);
        let mut actions = Vec::new();
        for ((moves, acts), step) in self.moves.iter_mut().zip(&mut self.acts).zip(0..) {
            if !*moves {
                schedule.actions(participant, step, &mut actions);
                *moves = actions.iter().any(|action| matches!(action, Action::Send { .. }));
                *acts |= !actions.is_empty();
            }
        }
    }

    /// The rounds of the first `steps` steps.
    #[must_use]
    pub fn until(mut self, steps: u32) -> Rounds {
        self.moves.truncate(steps as usize);
        self.acts.truncate(steps as usize);
        self
    }

    /// The number of rounds.
    pub fn count(&self) -> u32 {
        self.steps().count() as u32
    }

    /// The place of a step of the schedule among the rounds: the one notion of a step that a reader
    /// sees, whatever ranks and switches copy and add in between.
    pub fn place(&self, step: u32) -> RoundPlace {
        let step = step as usize;
        let before = self.moves.iter().take(step).filter(|moves| **moves).count() as u32;
        match self.moves.get(step) {
            Some(true) => RoundPlace::In(before),
            Some(false) => RoundPlace::After(before),
            None => RoundPlace::Over,
        }
    }

    /// Steps in which ranks or switches only copy and add inside themselves.
    pub fn inside(&self) -> u32 {
        self.moves.iter().zip(&self.acts).filter(|(moves, acts)| **acts && !**moves).count() as u32
    }

    /// The schedule's steps that they are, in order.
    pub fn steps(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.moves).filter(|(_, moves)| **moves).map(|(step, _)| step)
    }
}

/// The place of a schedule's step among its [`Rounds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum RoundPlace {
    /// It is this round, from 0.
    In(u32),
    /// Nothing is sent in it; so many rounds come before it.
    After(u32),
    /// Past the last step.
    Over,
}

impl RoundPlace {
    /// The number of all `rounds` that are over.
    pub fn passed(self, rounds: u32) -> u32 {
        match self {
            RoundPlace::In(passed) | RoundPlace::After(passed) => passed,
            RoundPlace::Over => rounds,
        }
    }
}

impl Layout {
    /// The counted actions of `rank` from the first step to the last.
    pub fn tally_of(&self, rank: GroupRank) -> RankTally {
        let (mut counted, mut actions) = (RankTally::default(), Vec::new());
        let size = |slice: Slice| self.elements(rank, slice);
        for step in 0..self.schedule().steps() {
            self.schedule().actions(rank, step, &mut actions);
            for action in &actions {
                match *action {
                    Action::Copy { .. } => {}
                    Action::Reduce { into, .. } => counted.reduced_elements += size(into),
                    Action::Send { from, .. } => {
                        counted.sends += 1;
                        counted.sent_elements = counted.sent_elements.saturating_add(size(from));
                    }
                    Action::Receive { into, .. } => {
                        counted.receives += 1;
                        counted.received_elements += size(into);
                    }
                    Action::ReceiveReduce { into, .. } => {
                        counted.receives += 1;
                        counted.received_elements += size(into);
                        counted.reduced_elements += size(into);
                    }
                }
            }
        }
        counted
    }

    /// The counted actions of all ranks together: a walk over every action of the schedule.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for participant in (0..self.schedule().participants()).map(GroupRank) {
            let is_switch = participant.0 >= self.schedule().size();
            tally.add(&self.tally_of(participant), is_switch);
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Collective;
    use crate::reduce::ReduceOp;
    use crate::schedule::{Algorithm, prove};

    const SUM: ReduceOp = ReduceOp::Sum;

    fn tally(collective: Collective, algorithm: Algorithm, n: u32, count: u64) -> Tally {
        Layout::new(Schedule::new(collective, algorithm, n).unwrap(), count, 4).tally()
    }

    /// Patarasuk, Yuan 2009: no all_reduce sends less than 2 (n - 1) / n of its tensor, and the
    /// ring sends just that; a binomial tree's root sends it whole, log2 n times.
    #[test]
    fn counts_are_the_literatures() {
        let all_reduce = Collective::AllReduce { op: SUM };
        for n in [2u32, 4, 7, 8, 16] {
            let (size, count) = (u64::from(n), 1000 * u64::from(n));
            let ring = tally(all_reduce, Algorithm::Ring, n, count);
            assert_eq!(ring.messages, 2 * size * (size - 1));
            assert_eq!(ring.most_sent, 2 * (size - 1) * 1000);
            assert_eq!(ring.moved_elements, size * ring.most_sent);
            assert_eq!(ring.most_reduced, (size - 1) * 1000);
        }
        let broadcast = Collective::Broadcast { root: GroupRank(3) };
        let tree = tally(broadcast, Algorithm::Tree, 16, 10);
        assert_eq!((tree.most_sent, tree.most_received), (40, 10));
    }

    /// Counting and proving walk the same actions, and all sent elements are received.
    #[test]
    fn the_proof_counts_the_same() {
        for collective in [
            Collective::AllReduce { op: SUM },
            Collective::AllGather,
            Collective::ReduceScatter { op: SUM },
            Collective::AllToAll,
            Collective::Broadcast { root: GroupRank(0) },
            Collective::Reduce { op: SUM, root: GroupRank(0) },
            Collective::Barrier,
            Collective::MonitoredBarrier { wait_all_ranks: false },
        ] {
            for algorithm in Algorithm::of(collective) {
                for n in [1, 2, 5, 8, 13] {
                    let schedule = Schedule::new(collective, *algorithm, n).unwrap();
                    let proof = prove(&schedule).unwrap();
                    let layout = Layout::new(schedule, 840, 4);
                    let all = 0..layout.schedule().participants();
                    let ranks = all.map(|rank| layout.tally_of(GroupRank(rank)));
                    let (mut sent, mut received) = ((0, 0), (0, 0));
                    for rank in ranks {
                        sent = (sent.0 + rank.sends, sent.1 + rank.sent_elements);
                        received =
                            (received.0 + rank.receives, received.1 + rank.received_elements);
                    }
                    assert_eq!(sent, received, "{algorithm} {collective} of {n}");
                    assert_eq!(layout.tally().messages, proof.messages);
                    assert_eq!(layout.tally().moved_elements, sent.1);
                }
            }
        }
    }
}
