//! Runs in which nothing will happen again: every rank that is not done is stopped, and nothing waits for it,
//! so that no timeout passes.

use super::state::{Alarm, Coordinator, Phase};
use crate::{RunEvent, clock};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Event, Outcome, What};
use std::time::Duration;

/// Interval between looks for it, in nanoseconds.
const LOOK_NS: u64 = 200_000_000;

impl Coordinator {
    /// When it is to be looked for next.
    pub(super) fn next_look_ns(&self) -> Option<u64> {
        matches!(self.phase, Phase::Running { .. }).then_some(self.stillness.look_ns)
    }

    /// Ends a run in which nothing has gone on for as long as a call may take.
    pub(super) fn look_for_stillness(&mut self) {
        let now = clock::now_ns();
        if now < self.stillness.look_ns || !matches!(self.phase, Phase::Running { .. }) {
            return;
        }
        self.stillness.look_ns = now.saturating_add(LOOK_NS);
        let goes_on =
            |rank: GlobalRank| self.alarms.iter().any(|(_, alarm)| *alarm == Alarm::Continue(rank));
        let mut open = self.ranks.iter().filter(|rank| !rank.done).peekable();
        let first = open.peek().map(|rank| (rank.rank, rank.how_it_stands()));
        let still = open.all(|rank| rank.how_it_stands().is_some() && !goes_on(rank.rank));
        let Some((rank, Some(how))) = first.filter(|_| still) else {
            self.stillness.since_ns = None;
            return;
        };
        let since_ns = *self.stillness.since_ns.get_or_insert(now);
        if now.saturating_sub(since_ns) >= clock::nanoseconds(self.patience()) {
            self.end(Outcome::RankStopped { rank, how: how.to_owned() });
        }
    }

    /// As long as a call may take: a run in which a rank waits would end by then.
    fn patience(&self) -> Duration {
        let planned = self.checked.plan.groups.iter().map(|group| group.timeout_ms()).max();
        let planned = Duration::from_millis(planned.unwrap_or_default());
        self.checked.options.timeout.unwrap_or(planned)
    }

    /// Ends the ranks that are stopped, and at `last` those that are out of reach: they hear nothing. Another
    /// machine's may only be slow until then.
    pub(super) fn kill_unresponsive(&mut self, last: bool) {
        for index in 0..self.ranks.len() {
            let rank = &self.ranks[index];
            let how = if last { rank.how_it_is_found() } else { rank.how_it_stands() };
            let Some(how) = how.filter(|_| rank.ended.is_none()) else { continue };
            if !rank.done {
                self.tell_unresponsive(rank.rank, how);
            }
            self.ranks[index].kill();
        }
    }

    /// Records how a rank is found that does not answer: at the end of the run, behind all of its own events.
    pub(super) fn tell_unresponsive(&self, rank: GlobalRank, how: &str) {
        let time_ps = clock::picoseconds_between(self.start_ns, clock::now_ns());
        let what = What::Unresponsive { how: how.to_owned() };
        let _ = self.events.send(RunEvent::Events(vec![Event { time_ps, rank, what }]));
    }
}
