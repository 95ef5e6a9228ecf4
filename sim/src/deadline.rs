//! Watchdogs: the next call to time out, and the consequences.

use super::record::Recorder;
use super::state::{Deadlines, Doing, Engine, Rank};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Outcome, What};
use std::collections::VecDeque;

/// True if a call can still time out: it has not completed, and its rank is alive to watch it.
fn counts(rank: &Rank, work: u32) -> bool {
    !rank.works[work as usize].completed && rank.doing != Doing::Died
}

impl Engine {
    pub(crate) fn set_deadline(&mut self, rank: GlobalRank, work: u32, timeout_ms: u64) {
        let timeout_ps = timeout_ms.saturating_mul(1_000_000_000);
        let deadline = (self.now.saturating_add(timeout_ps), rank, work);
        match self.deadlines.iter_mut().find(|known| known.timeout_ps == timeout_ps) {
            Some(known) => known.calls.push_back(deadline),
            None => {
                self.deadlines.push(Deadlines { timeout_ps, calls: VecDeque::from([deadline]) });
            }
        }
    }

    pub(crate) fn next_deadline(&mut self) -> Option<u64> {
        let ranks = &self.ranks;
        let firsts = self.deadlines.iter_mut().filter_map(|deadlines| {
            while let Some(&(deadline, rank, work)) = deadlines.calls.front() {
                if counts(&ranks[rank.index()], work) {
                    return Some(deadline);
                }
                deadlines.calls.pop_front();
            }
            None
        });
        firsts.min()
    }

    /// The watchdogs fire: every call whose time is up, and with it the run, ends.
    pub(crate) fn time_out(&mut self, deadline: u64, recorder: &mut Recorder) {
        self.now = deadline;
        let mut late: Vec<_> = self
            .deadlines
            .iter()
            .flat_map(|deadlines| deadlines.calls.iter())
            .filter(|(due, rank, work)| {
                *due == deadline && counts(&self.ranks[rank.index()], *work)
            })
            .map(|(_, rank, work)| (*rank, *work))
            .collect();
        late.sort_unstable();
        late.dedup();
        for (rank, work) in late {
            recorder.record(deadline, rank, || What::TimedOut { work });
        }
        self.find_stopped(recorder);
        self.outcome = Some(self.ended_as(Outcome::TimedOut));
    }
}
