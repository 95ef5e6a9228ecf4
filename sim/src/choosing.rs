//! An engine that takes the choices of an order.

use super::record::Recorder;
use super::state::{Doing, Engine, Woken};
use super::transfer::Pair;
use super::{Choice, Devices};
use lockstep_core::rank::GlobalRank;

impl Engine {
    /// True if the collectives of a channel begin only when they are chosen.
    pub(crate) fn is_chosen(&self, channel: u32) -> bool {
        let Some(choosing) = &self.choosing else { return false };
        let channel = &self.channels[channel as usize];
        choosing.devices == Devices::OneAtATime
            && !channel.is_switch
            && self.prepared.is_nccl(channel.group)
    }

    /// True if nothing more happens before a watchdog fires.
    pub(crate) fn is_settled(&mut self) -> bool {
        match (self.queue.next_time(), self.next_deadline()) {
            (None, _) => true,
            (Some(due), Some(deadline)) => due > deadline,
            (Some(_), None) => false,
        }
    }

    /// The choices that can be made now, in a fixed order.
    pub(crate) fn choices(&self) -> Vec<Choice> {
        let Some(choosing) = &self.choosing else { return Vec::new() };
        let mut choices = Vec::new();
        for (index, channel) in (0..).zip(&self.channels) {
            let waits = self.is_chosen(index) && !channel.is_busy() && channel.queued() > 0;
            let idle = || !choosing.busy[channel.rank.index()] && !self.is_dead(channel.rank);
            if waits && idle() {
                choices.push(Choice::Start { rank: channel.rank, group: channel.group });
            }
        }
        choices.sort_unstable();
        choices.extend(self.takes());
        let holding = (0..).map(GlobalRank).zip(&self.ranks);
        let holding = holding.filter(|(_, state)| state.doing == Doing::Holding);
        choices.extend(holding.map(|(rank, _)| Choice::Post { rank }));
        choices
    }

    /// The starts of one rank whose other calls cannot move before one of them has been made: actions of
    /// other ranks in between make no difference to it, so that only these need to be tried.
    pub(crate) fn enough(&self, choices: &[Choice]) -> Option<Vec<Choice>> {
        let of_rank = |wanted: GlobalRank| {
            choices.iter().copied().filter(
                move |choice| matches!(choice, Choice::Start { rank, .. } if *rank == wanted),
            )
        };
        let ranks = choices.iter().filter_map(|choice| match choice {
            Choice::Start { rank, .. } => Some(*rank),
            Choice::Take { .. } | Choice::Post { .. } => None,
        });
        let held = |rank: &GlobalRank| {
            let state = &self.ranks[rank.index()];
            let queued: usize = (0..)
                .zip(&self.channels)
                .filter(|(index, channel)| channel.rank == *rank && self.is_chosen(*index))
                .map(|(_, channel)| channel.queued())
                .sum();
            !matches!(state.doing, Doing::Busy | Doing::Stopped)
                && state.in_flight as usize == queued
        };
        ranks.into_iter().find(held).map(|rank| of_rank(rank).collect())
    }

    /// Makes the next planned choice, or the first that can be made; false if there is none.
    pub(crate) fn choose_next(&mut self, recorder: &mut Recorder) -> bool {
        let choices = self.choices();
        let planned = self.choosing.as_mut().and_then(|choosing| choosing.planned.pop_front());
        let planned = planned.filter(|planned| choices.contains(planned));
        let Some(choice) = planned.or(choices.first().copied()) else { return false };
        self.make(choice, recorder);
        true
    }

    /// Makes a choice that can be made.
    pub(crate) fn make(&mut self, choice: Choice, recorder: &mut Recorder) {
        match choice {
            Choice::Take { group, to, tag, from } => {
                self.take(Pair { group, from, to, tag }, recorder);
                // It may be the last that its next receive was held up by.
                if self.ranks[to.index()].doing == Doing::Holding {
                    self.ranks[to.index()].doing = Doing::Ready;
                    self.woken.push_back(Woken::Rank(to));
                }
            }
            Choice::Post { rank } => {
                self.ranks[rank.index()].doing = Doing::Posting;
                self.woken.push_back(Woken::Rank(rank));
            }
            Choice::Start { rank, group } => {
                let member = self.plan.group(group).and_then(|group| group.group_rank(rank));
                let Some(member) = member else { return };
                let index = self.prepared.channel(group, member);
                if let Some(choosing) = &mut self.choosing {
                    choosing.busy[rank.index()] = true;
                }
                self.start_queued(index, recorder);
                self.woken.push_back(Woken::Channel(index));
            }
        }
        self.work_off(recorder);
    }
}
