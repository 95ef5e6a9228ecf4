//! When ranks came to a call: each by itself, what of that was others' doing, and who held others up.

use crate::model::index::{Job, Made, Row};
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallRecord;
use std::collections::BTreeMap;

/// Below this, in picoseconds, lateness on real machines is noise: 20 ms. (Healthy gloo jobs whose
/// ranks share cores are 15 ms apart again and again.)
pub(crate) const NOISE_PS: u64 = 20_000_000_000;

/// Time that ranks were busy by themselves before a call; empty where that is not known.
pub(crate) struct Busy {
    ranks: BTreeMap<GlobalRank, u64>,
    median_ps: u64,
}

impl Busy {
    /// Of a rank's lateness, what it was itself busy for longer than the others.
    pub(crate) fn excess(&self, late_ps: i128, rank: GlobalRank) -> i128 {
        let busy = self.ranks.get(&rank).map(|ps| i128::from(*ps) - i128::from(self.median_ps));
        busy.map_or(late_ps, |busy| busy.min(late_ps))
    }
}

/// When a rank came to a call.
#[derive(Clone, Copy)]
pub(crate) enum Arrival {
    /// When it made the call.
    Process,
    /// When its stream came to it: recorders tell that only as coarsely as the watchdog looks.
    Stream,
}

impl Arrival {
    pub(crate) fn of(job: &Job<'_>, group: GroupId) -> Arrival {
        let nccl = job.group(group).is_some_and(|group| group.backend() == BackendName::Nccl);
        // The host backend carries NCCL's groups out without a stream.
        if nccl && job.log.device_times { Arrival::Stream } else { Arrival::Process }
    }

    pub(crate) fn ps(self, made: &Made<'_>) -> u64 {
        let started = made.record.started_ps.filter(|_| matches!(self, Arrival::Stream));
        started.unwrap_or(made.record.scheduled_ps)
    }

    /// From the first of these calls to the end of the last that ended, in picoseconds.
    pub(crate) fn duration_ps(self, rows: &[&Row<'_>]) -> u64 {
        let first = rows.first().map_or(0, |row| self.median_ps(row));
        let made = rows.iter().flat_map(|row| &row.made);
        let last = made.map(|made| made.record.completed_ps.unwrap_or(self.ps(made))).max();
        last.unwrap_or(first).saturating_sub(first)
    }

    /// Time that each rank was busy by itself before it came to the last of these calls: since its
    /// call before that one completed. In virtual time only, where that is told exactly: a rank
    /// that gets a broadcast last comes last to what follows, and is not slow.
    pub(crate) fn busy(self, rows: &[&Row<'_>]) -> Busy {
        let mut ranks = BTreeMap::new();
        let (Arrival::Stream, Some((row, before))) = (self, rows.split_last()) else {
            return Busy { ranks, median_ps: 0 };
        };
        for made in &row.made {
            let came_ps = self.ps(made);
            let own = before.iter().rev().filter_map(|row| row.of(made.rank));
            let mut ends = own.filter_map(|made| made.record.completed_ps);
            let free_ps = ends.find(|end_ps| *end_ps <= came_ps);
            ranks.insert(made.rank, came_ps - free_ps.unwrap_or(0));
        }
        let mut times: Vec<u64> = ranks.values().copied().collect();
        times.sort_unstable();
        let median_ps = times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or(0);
        Busy { ranks, median_ps }
    }

    /// Time before a call, in picoseconds, that a rank which others held up can have worked by
    /// itself: since the last of them came to its call before that one, in any group. `None` where
    /// nobody did, or that is not known. A recording tells no ends of gloo's calls, and who waited
    /// in one comes late to the next without being slow.
    pub(crate) fn since_released(
        self,
        job: &Job<'_>,
        row: &Row<'_>,
        rank: GlobalRank,
    ) -> Option<i128> {
        if !job.log.recorded || matches!(self, Arrival::Stream) {
            return None;
        }
        let made = row.of(rank)?;
        let calls = &job.rank(rank)?.calls;
        let before = calls.get((made.record.work as usize).checked_sub(1)?)?;
        let seq = before.seq.filter(|_| !before.call.p2p)?;
        let id = before.call.group;
        let rows = job.rows_of(id);
        let before = rows.get(rows.binary_search_by_key(&seq, |row| row.seq).ok()?)?;
        // One of whom nothing was recorded may have held it up there, and not the others of this call: until
        // one that came out of that call with it made its next.
        let lost = |rank: &GlobalRank| job.rank(*rank).is_none();
        let members = job.group(id).map(|group| group.ranks()).unwrap_or_default();
        let unlisted = job.members_are_worked_out(id) && job.log.ranks.iter().any(Option::is_none);
        let own_ps = i128::from(self.ps(&made));
        if id != row.group && (unlisted || members.iter().any(lost)) {
            let next = |other: &Made<'_>| {
                let record = job.rank(other.rank)?.calls.get(other.record.work as usize + 1)?;
                Some(i128::from(self.ps(&Made { rank: other.rank, record })))
            };
            let others = before.made.iter().filter(|other| other.rank != rank);
            let free = others.filter_map(next).min();
            return Some(free.map_or(0, |free| own_ps - free));
        }
        let (last, held_by) = before.made.iter().map(|made| (self.ps(made), made.rank)).max()?;
        (held_by != rank).then(|| own_ps - i128::from(last))
    }

    /// True if a rank was longer on its way to a call than the others, and they as much longer than it to their
    /// next: they waited for it, whatever the clocks say.
    pub(crate) fn held_others(self, job: &Job<'_>, row: &Row<'_>, rank: GlobalRank) -> bool {
        if !job.log.recorded || matches!(self, Arrival::Stream) {
            return false;
        }
        let on_its_way = |made: &Made<'_>| {
            let calls = &job.rank(made.rank)?.calls;
            let at = made.record.work as usize;
            let (before, next) = (calls.get(at.checked_sub(1)?)?, calls.get(at + 1)?);
            let ps = |record: &CallRecord| self.ps(&Made { rank: made.rank, record });
            let here = self.ps(made);
            Some((here.checked_sub(ps(before))?, ps(next).checked_sub(here)?))
        };
        let Some(own) = row.of(rank).and_then(|made| on_its_way(&made)) else { return false };
        let others = row.made.iter().filter(|made| made.rank != rank);
        let held = others.map(|made| {
            on_its_way(made).is_some_and(|(to, from)| {
                let longer = own.0.saturating_sub(to);
                longer > NOISE_PS && from.saturating_sub(own.1) > longer / 2
            })
        });
        let held: Vec<bool> = held.collect();
        held.iter().filter(|held| **held).count() * 2 > held.len()
    }

    pub(crate) fn median_ps(self, row: &Row<'_>) -> u64 {
        let mut times: Vec<u64> = row.made.iter().map(|made| self.ps(made)).collect();
        times.sort_unstable();
        // The lower one of two: the one slow rank of two must not be its own measure.
        times.get((times.len() - 1) / 2).copied().unwrap_or(0)
    }

    pub(crate) fn late(self, row: &Row<'_>) -> BTreeMap<GlobalRank, i128> {
        let median = i128::from(self.median_ps(row));
        row.made.iter().map(|made| (made.rank, i128::from(self.ps(made)) - median)).collect()
    }

    /// The same without what a rank shares with those who come out of another group's call with it: of a
    /// group that has waited for one of its members all are late to the next call of the job.
    pub(crate) fn own_late(self, job: &Job<'_>, row: &Row<'_>) -> BTreeMap<GlobalRank, i128> {
        let mut late = self.late(row);
        if !job.log.recorded || matches!(self, Arrival::Stream) {
            return late;
        }
        let out_of = |made: &Made<'_>| {
            let at = (made.record.work as usize).checked_sub(1)?;
            let before = job.rank(made.rank)?.calls.get(at)?;
            (before.call.group != row.group && !before.call.p2p).then_some(before.call.group)
        };
        let mut together: BTreeMap<GroupId, Vec<i128>> = BTreeMap::new();
        let came: Vec<_> = row.made.iter().map(|made| (made.rank, out_of(made))).collect();
        for (rank, group) in &came {
            let late = late.get(rank).copied().unwrap_or(0);
            together.entry(group.unwrap_or(row.group)).or_default().push(late);
        }
        together.values_mut().for_each(|late| late.sort_unstable());
        for (rank, group) in came {
            let others = group.and_then(|group| together.get(&group)).filter(|late| late.len() > 1);
            let median = others.and_then(|late| late.get((late.len() - 1) / 2));
            if let (Some(late), Some(median)) = (late.get_mut(&rank), median) {
                *late = (*late).min(*late - median);
            }
        }
        late
    }
}
