//! Slow, not hung: a rank that comes last again and again.
//!
//! Only the moments of the calls are used: when a rank made the call, or, on a CUDA stream, when
//! the stream came to it, since there the process runs ahead of its device. Wall clocks of
//! different machines differ, so in recordings a rank's lateness counts from where it was least
//! late; what the others waited is that, on top of it. A simulation and a run have one clock.

use super::causes::{Cause, Scene, evidence};
use super::index::{Job, Made, Row};
use super::report::{Certainty, Kind};
use super::words::{self, ranks};
use crate::group::{BackendName, GroupId, ProcessGroup};
use crate::rank::GlobalRank;
use crate::trace::CallRecord;
use std::collections::BTreeMap;

/// A slow rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Straggler {
    pub(super) rank: GlobalRank,
    pub(super) group: GroupId,
    /// The last call that it came late to.
    pub(super) seq: u64,
    /// Calls that it came last to.
    pub(super) late: usize,
    /// Calls that were looked at.
    pub(super) calls: usize,
    /// What the others waited for it in the median of those calls, in picoseconds.
    pub(super) median_ps: u64,
}

/// Below this, in picoseconds, lateness on real machines is noise: 20 ms. (Healthy gloo jobs whose
/// ranks share cores are 15 ms apart again and again.)
const NOISE_PS: u64 = 20_000_000_000;
/// Where the devices' own times are recorded, it is less: 1 ms.
const DEVICE_NOISE_PS: u64 = 1_000_000_000;
/// A rank is slow if it comes last more often than by chance in one of so many jobs.
const CHANCE: f64 = 0.02;
/// In virtual time, waiting for it counts from this part of the time that was looked at: a fiftieth.
const SHARE: u64 = 50;
/// On real machines, a good part of the time is a fifth.
const GOOD_PART: u64 = 5;
/// Of so many that come last it is looked up who held them up.
const LATEST: usize = 16;
/// At most this many of a group's last calls are looked at.
const WINDOW: usize = 64;

/// The slowest rank of any group, if one comes last by a good part of the time between calls, in
/// most calls.
pub(super) fn find(job: &Job<'_>) -> Option<Straggler> {
    let groups = || (0..).map(GroupId).zip(&job.log.groups);
    // A clock is off by the same in every group: where a rank was least late, in any of them, is
    // the measure, or one that is slow from a group's first call on would set its own.
    let mut least: BTreeMap<GlobalRank, i128> = BTreeMap::new();
    for (id, group) in groups() {
        let came = Arrival::of(job, id);
        for row in full_rows(job, id, recorded(job, group)) {
            for (rank, late) in came.own_late(job, row) {
                let least = least.entry(rank).or_insert(late);
                *least = (*least).min(late);
            }
        }
    }
    let found = groups().filter_map(|(id, group)| of_group(job, id, recorded(job, group), &least));
    found.max_by_key(|found| (found.median_ps, found.calls, std::cmp::Reverse(found.rank)))
}

/// The note of a rank of a recording that came to every call last and by about as much: it is slow, or
/// its clock is ahead, which looks the same.
pub(super) fn or_clock(job: &Job<'_>) -> Option<String> {
    /// Fewer calls are no habit.
    const CALLS: usize = 4;
    if !job.log.recorded || job.log.device_times {
        return None;
    }
    let groups = (0..).map(GroupId).zip(&job.log.groups);
    let always = groups.filter_map(|(id, group)| {
        let came = Arrival::of(job, id);
        let full = full_rows(job, id, recorded(job, group));
        // Start-up is slow for many reasons.
        let rows = full.get(full.len() / 2..).filter(|rows| rows.len() >= CALLS)?;
        let mut least: BTreeMap<GlobalRank, i128> = BTreeMap::new();
        for (rank, late) in rows.iter().flat_map(|row| came.late(row)) {
            let least = least.entry(rank).or_insert(late);
            *least = late.min(*least);
        }
        let (rank, late) = least.into_iter().max_by_key(|(_, late)| *late)?;
        let between = came.duration_ps(rows) / (rows.len() as u64);
        let late = u64::try_from(late).ok()?;
        (late > NOISE_PS && late > between / 4).then_some((late, rank, id, rows.len()))
    });
    let (late, rank, group, calls) = always.max()?;
    Some(format!(
        "Rank {rank} came last to each of the last {calls} calls of {}, by {} or more. If its clock is \
         not ahead of the others' by as much, it is slow, and all wait for it: the calls themselves \
         do not tell the two apart.",
        words::group_label(job.log, group),
        words::duration(late),
    ))
}

/// How many members of a group something was recorded of.
fn recorded(job: &Job<'_>, group: &ProcessGroup) -> usize {
    group.ranks().iter().filter(|rank| job.rank(**rank).is_some()).count()
}

/// The last calls of a group that all recorded members are known to have made.
fn full_rows<'j, 'a>(job: &'j Job<'a>, group: GroupId, size: usize) -> Vec<&'j Row<'a>> {
    let rows = job.rows_of(group).iter().rev();
    let full = rows.filter(|row| row.made.len() == size && size > 1).take(WINDOW);
    let mut full: Vec<_> = full.collect();
    full.reverse();
    full
}

fn of_group(
    job: &Job<'_>,
    group: GroupId,
    size: usize,
    least: &BTreeMap<GlobalRank, i128>,
) -> Option<Straggler> {
    let full = full_rows(job, group, size);
    let came = Arrival::of(job, group);
    let lateness: Vec<BTreeMap<GlobalRank, i128>> =
        full.iter().map(|row| came.own_late(job, row)).collect();
    // Start-up is slow for many reasons: the second half counts.
    let from = full.len() / 2;
    let mut counts: BTreeMap<GlobalRank, Vec<u64>> = BTreeMap::new();
    let mut calls = 0;
    let longer = own_longer(job, came, &full);
    for at in from.max(1)..full.len() {
        let (Some(row), Some(before), Some(late)) =
            (full.get(at), full.get(at - 1), lateness.get(at))
        else {
            continue;
        };
        calls += 1;
        let busy = came.busy(full.get(..=at).unwrap_or_default());
        let last = late.iter().max_by_key(|(rank, late)| (**late, **rank)).map(|(rank, _)| *rank);
        let excess = late.iter().map(|(rank, late)| {
            // Having been early once, at start-up, is no measure.
            let least = least.get(rank).copied().unwrap_or(0).max(0);
            // Clocks of devices are set right before (`recording`): lateness is what it seems.
            let by_clock = job.log.recorded && !job.log.device_times;
            let held = Some(*rank) == last && came.held_others(job, row, *rank);
            let base = if by_clock && !held { least } else { 0 };
            let own = longer.get(at).and_then(|own| own.get(rank)).copied();
            let late = busy.excess(late - base, *rank);
            (own.map_or(late, |own| own.min(late)), *rank)
        });
        let mut excess: Vec<(i128, GlobalRank)> = excess.collect();
        excess.sort_unstable_by_key(|it| std::cmp::Reverse(*it));
        // Who was held up before is not late by itself.
        let own = |(late, rank): &(i128, GlobalRank)| {
            let own = came.since_released(job, row, *rank);
            (own.map_or(*late, |own| own.min(*late)), *rank)
        };
        let mut latest: Option<(i128, GlobalRank)> = None;
        for known in excess.iter().take(LATEST) {
            if latest.is_some_and(|latest| latest >= *known) {
                break;
            }
            latest = latest.max(Some(own(known)));
        }
        let Some((excess, rank)) = latest else { continue };
        let excess = u64::try_from(excess).unwrap_or(0);
        let between = came.median_ps(row).saturating_sub(came.median_ps(before));
        let noise = match came {
            _ if job.log.simulated => 0,
            Arrival::Stream => DEVICE_NOISE_PS,
            Arrival::Process => NOISE_PS,
        };
        if excess > noise && excess > between / 4 {
            counts.entry(rank).or_default().push(excess);
        }
    }
    let anybody_late = counts.values().map(Vec::len).sum();
    let (rank, mut late) = counts.into_iter().max_by_key(|(_, late)| late.len())?;
    let waited = late.iter().fold(0, |sum: u64, late| sum.saturating_add(*late));
    let duration_ps = came.duration_ps(full.get(from..)?);
    // Of several calls a step a slow rank comes late to the first: of those that anybody comes late
    // to, then, most must be its own, and the waiting a good part of the time.
    let of = match !job.log.simulated && waited.saturating_mul(GOOD_PART) >= duration_ps {
        true => anybody_late,
        false => calls,
    };
    if late.len() < 4 || late.len() * 10 < of * 6 {
        return None;
    }
    late.sort_unstable();
    // Nobody comes last to every call, and by as much, by chance.
    let steady = late.len() == calls
        && late.first().zip(late.last()).is_some_and(|(least, most)| most - least <= least / 4);
    if !job.log.simulated && !steady && by_chance(late.len(), of, size) > CHANCE {
        return None;
    }
    // Virtual time has no noise, but a rank that is microseconds late to calls that follow each
    // other at once costs nobody anything.
    if job.log.simulated && waited.saturating_mul(SHARE) < duration_ps {
        return None;
    }
    let seq = full.last()?.seq;
    let median_ps = late.get(late.len() / 2).copied()?;
    Some(Straggler { rank, group, seq, late: late.len(), calls, median_ps })
}

/// How likely it is that some rank of `size` comes last to `late` of `calls`, if each comes last as
/// often as the others: at most `size` times the binomial distribution's tail.
fn by_chance(late: usize, calls: usize, size: usize) -> f64 {
    let last = 1.0 / size.max(2) as f64;
    // The chance of 0, then of each number more.
    let mut exactly = (0..calls).fold(1.0, |chance, _| chance * (1.0 - last));
    let mut tail = 0.0;
    for times in 0..=calls {
        if times >= late {
            tail += exactly;
        }
        exactly *= (calls - times) as f64 / (times + 1) as f64 * last / (1.0 - last);
    }
    tail * size as f64
}

/// Per call, how much longer than the others each rank has been at work by itself, for as long as
/// it has been so before every call: a rank that is a little slower is later at each of several
/// calls that nobody waits for. Empty where that is not known exactly, or streams come to calls.
fn own_longer(job: &Job<'_>, came: Arrival, rows: &[&Row<'_>]) -> Vec<BTreeMap<GlobalRank, i128>> {
    let own_ps = |made: &Made<'_>| {
        let log = job.rank(made.rank)?;
        Some((made.rank, *log.own_ps.get(made.record.work as usize)?))
    };
    let known = rows.iter().map(|row| row.made.iter().map(own_ps).collect::<Option<_>>());
    let known: Option<Vec<BTreeMap<GlobalRank, u64>>> = known.collect();
    let (Arrival::Process, Some(known)) = (came, known) else { return Vec::new() };
    let mut longer: BTreeMap<GlobalRank, i128> = BTreeMap::new();
    let mut all = vec![BTreeMap::new()];
    for (before, now) in known.iter().zip(known.iter().skip(1)) {
        let since = |(rank, ps): (&GlobalRank, &u64)| {
            (*rank, ps.saturating_sub(before.get(rank).copied().unwrap_or(0)))
        };
        let own: BTreeMap<GlobalRank, u64> = now.iter().map(since).collect();
        let mut times: Vec<u64> = own.values().copied().collect();
        times.sort_unstable();
        let median = times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or(0);
        for (rank, ps) in own {
            let sum = longer.entry(rank).or_insert(0);
            let by = i128::from(ps) - i128::from(median);
            *sum = if by > 0 { *sum + by } else { 0 };
        }
        all.push(longer.clone());
    }
    all
}

/// How long ranks were busy by themselves before a call; empty where that is not known.
struct Busy {
    ranks: BTreeMap<GlobalRank, u64>,
    median_ps: u64,
}

impl Busy {
    /// Of a rank's lateness, what it was itself busy for longer than the others.
    fn excess(&self, late_ps: i128, rank: GlobalRank) -> i128 {
        let busy = self.ranks.get(&rank).map(|ps| i128::from(*ps) - i128::from(self.median_ps));
        busy.map_or(late_ps, |busy| busy.min(late_ps))
    }
}

/// When a rank came to a call.
#[derive(Clone, Copy)]
enum Arrival {
    /// When it made the call.
    Process,
    /// When its stream came to it: recorders tell that only as coarsely as the watchdog looks.
    Stream,
}

impl Arrival {
    fn of(job: &Job<'_>, group: GroupId) -> Arrival {
        let nccl = job.group(group).is_some_and(|group| group.backend() == BackendName::Nccl);
        // The host backend carries NCCL's groups out without a stream.
        if nccl && job.log.device_times { Arrival::Stream } else { Arrival::Process }
    }

    fn ps(self, made: &Made<'_>) -> u64 {
        let started = made.record.started_ps.filter(|_| matches!(self, Arrival::Stream));
        started.unwrap_or(made.record.scheduled_ps)
    }

    /// From the first of these calls to the end of the last that ended, in picoseconds.
    fn duration_ps(self, rows: &[&Row<'_>]) -> u64 {
        let first = rows.first().map_or(0, |row| self.median_ps(row));
        let made = rows.iter().flat_map(|row| &row.made);
        let last = made.map(|made| made.record.completed_ps.unwrap_or(self.ps(made))).max();
        last.unwrap_or(first).saturating_sub(first)
    }

    /// How long each rank was busy by itself before it came to the last of these calls: since its
    /// call before that one completed. In virtual time only, where that is told exactly: a rank
    /// that gets a broadcast last comes last to what follows, and is not slow.
    fn busy(self, rows: &[&Row<'_>]) -> Busy {
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

    /// How long before a call a rank that others held up can have been at work by itself: since the last of
    /// them came to its call before that one, in any group. `None` where nobody did, or that is not known. A
    /// recording tells no ends of gloo's calls, and who waited in one comes late to the next without being
    /// slow.
    fn since_released(self, job: &Job<'_>, row: &Row<'_>, rank: GlobalRank) -> Option<i128> {
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
    fn held_others(self, job: &Job<'_>, row: &Row<'_>, rank: GlobalRank) -> bool {
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

    fn median_ps(self, row: &Row<'_>) -> u64 {
        let mut times: Vec<u64> = row.made.iter().map(|made| self.ps(made)).collect();
        times.sort_unstable();
        // The lower one of two: the one slow rank of two must not be its own measure.
        times.get((times.len() - 1) / 2).copied().unwrap_or(0)
    }

    fn late(self, row: &Row<'_>) -> BTreeMap<GlobalRank, i128> {
        let median = i128::from(self.median_ps(row));
        row.made.iter().map(|made| (made.rank, i128::from(self.ps(made)) - median)).collect()
    }

    /// The same without what a rank shares with those who come out of another group's call with it: of a
    /// group that has waited for one of its members all are late to the next call of the job.
    fn own_late(self, job: &Job<'_>, row: &Row<'_>) -> BTreeMap<GlobalRank, i128> {
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

/// The finding of a slow rank.
pub(super) fn cause(scene: &Scene<'_, '_>, slow: &Straggler) -> Cause {
    let log = scene.job.log;
    let group = words::group_label(log, slow.group);
    let last = scene.job.last_call(slow.group, slow.rank);
    let others = log.groups.get(slow.group.index()).map(|group| group.ranks().to_vec());
    let mut others = others.unwrap_or_default();
    others.retain(|rank| *rank != slow.rank && scene.job.rank(*rank).is_some());
    others.sort_unstable();
    let seen = last.map(|record| Made { rank: slow.rank, record });
    Cause {
        kind: Kind::Straggler,
        culprits: vec![slow.rank],
        message: format!(
            "Nothing hangs: rank {} is slow. It came last to {} of the last {} of {group}, and {} \
             waited for it, {} in the median.",
            slow.rank,
            slow.late,
            words::count(slow.calls, "call"),
            ranks(&others),
            words::duration(slow.median_ps),
        ),
        fix: "Compare this rank's time between the calls with the others': its data loader, its \
              machine's load, its device's clocks and temperature."
            .to_owned(),
        also_victims: others,
        group: Some(slow.group),
        seq: Some(slow.seq),
        op: last.map(|record| record.call.op.clone()),
        certainty: Certainty::Likely,
        evidence: seen.map(|made| evidence(scene, made, "came late to")).into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the sum over all outcomes, counted one by one.
    #[test]
    fn chance_is_the_binomial_tail() {
        for (size, calls) in [(2usize, 8usize), (3, 6), (4, 5)] {
            let outcomes = size.pow(calls as u32);
            for late in 0..=calls {
                let last_to = |outcome: usize| {
                    let nth = |at: usize| outcome / size.pow(at as u32) % size;
                    (0..calls).filter(|at| nth(*at) == 0).count()
                };
                let many = (0..outcomes).filter(|outcome| last_to(*outcome) >= late).count();
                let expected = (many * size) as f64 / outcomes as f64;
                let found = by_chance(late, calls, size);
                assert!(
                    (found - expected).abs() < 1e-9,
                    "{size} {calls} {late}: {found} {expected}"
                );
            }
        }
    }
}
