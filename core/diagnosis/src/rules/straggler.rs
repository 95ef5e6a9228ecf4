//! Slow, not hung: a rank that comes last again and again.
//!
//! Only the moments of the calls are used: when a rank made the call, or, on a CUDA stream, when
//! the stream came to it, since there the process runs ahead of its device. Wall clocks of
//! different machines differ, so in recordings a rank's lateness counts from where it was least
//! late; what the others waited is that, on top of it. A simulation and a run have one clock.

use crate::claim::{Claim, evidence};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::facts::arrival::{Arrival, NOISE_PS};
use crate::kinds::Kind;
use crate::model::index::{Job, Made, Row};
use crate::words;
use crate::words::ranks;
use lockstep_core::group::{GroupId, ProcessGroup};
use lockstep_core::rank::GlobalRank;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A slow rank, or several that are slow alike, as those of one machine are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Straggler {
    /// Ascending.
    pub(crate) ranks: Vec<GlobalRank>,
    pub(crate) group: GroupId,
    /// The last call that they came late to.
    pub(crate) seq: u64,
    /// Calls that one of them came last to.
    pub(crate) late: usize,
    /// Calls that were looked at.
    pub(crate) calls: usize,
    /// The others' wait for it in the median of those calls, in picoseconds.
    pub(crate) median_ps: u64,
}

/// The smaller threshold where the devices' own times are recorded: 1 ms.
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
pub(crate) fn find(job: &Job<'_>) -> Option<Straggler> {
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
    found.max_by_key(|found| (found.median_ps, found.calls, Reverse(found.ranks.clone())))
}

/// The note of a rank of a recording that came to every call last and by about as much: it is slow, or
/// its clock is ahead, which looks the same.
pub(crate) fn or_clock(job: &Job<'_>) -> Option<String> {
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

/// The number of a group's members with records.
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
    // Start-up is slow for many reasons: the second half counts, and of few calls as many as it takes.
    let from = (full.len() / 2).min(full.len().saturating_sub(4)).max(1);
    let mut counts: BTreeMap<GlobalRank, Vec<u64>> = BTreeMap::new();
    // The same of all that came late, and not the last one only.
    let mut all_late: BTreeMap<GlobalRank, Vec<u64>> = BTreeMap::new();
    // The last call that each came late to.
    let mut last_late: BTreeMap<GlobalRank, u64> = BTreeMap::new();
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
        let mut latest: Vec<(Reverse<i128>, Reverse<GlobalRank>)> =
            late.iter().map(|(rank, late)| (Reverse(*late), Reverse(*rank))).collect();
        latest.sort_unstable();
        let latest: Vec<GlobalRank> =
            latest.iter().take(LATEST).map(|(_, Reverse(rank))| *rank).collect();
        let excess = late.iter().map(|(rank, late)| {
            // Having been early once, at start-up, is no measure.
            let least = least.get(rank).copied().unwrap_or(0).max(0);
            // Clocks of devices are set right before (`recording`): lateness is what it seems.
            let by_clock = job.log.recorded && !job.log.device_times;
            let held = latest.contains(rank) && came.held_others(job, row, *rank);
            let base = if by_clock && !held { least } else { 0 };
            let own = longer.get(at).and_then(|own| own.get(rank)).copied();
            let late = busy.excess(late - base, *rank);
            (own.map_or(late, |own| own.min(late)), *rank)
        });
        let mut excess: Vec<(i128, GlobalRank)> = excess.collect();
        excess.sort_unstable_by_key(|it| std::cmp::Reverse(*it));
        // A rank that was held up before is not late by itself.
        let own = |(late, rank): &(i128, GlobalRank)| {
            let own = came.since_released(job, row, *rank);
            (own.map_or(*late, |own| own.min(*late)), *rank)
        };
        let own: Vec<(i128, GlobalRank)> = excess.iter().take(LATEST).map(own).collect();
        let Some((excess, rank)) = own.iter().copied().max() else { continue };
        let excess = u64::try_from(excess).unwrap_or(0);
        let between = came.median_ps(row).saturating_sub(came.median_ps(before));
        let noise = match came {
            _ if job.log.simulated => 0,
            Arrival::Stream => DEVICE_NOISE_PS,
            Arrival::Process => NOISE_PS,
        };
        let is_late = |excess: u64| excess > noise && excess > between / 4;
        if is_late(excess) {
            counts.entry(rank).or_default().push(excess);
        }
        let late = own.iter().filter_map(|(late, rank)| Some((u64::try_from(*late).ok()?, *rank)));
        for (late, rank) in late.filter(|(late, _)| is_late(*late)) {
            last_late.insert(rank, row.seq);
            all_late.entry(rank).or_default().push(late);
        }
    }
    let duration_ps = came.duration_ps(full.get(from..)?);
    let seen = Seen { simulated: job.log.simulated, calls, size, duration_ps };
    let one = seen.one(counts);
    let mut several = seen.several(all_late);
    if let Some((rank, _)) = one.as_ref()
        && several.iter().all(|(other, _)| other != rank)
    {
        several.clear();
    }
    let late = one.as_ref().map(|(_, late)| late.len());
    let late = late.or(several.iter().map(|(_, late)| late.len()).max())?;
    let slow = if several.is_empty() { one.into_iter().collect() } else { several };
    let last_of = |(rank, _): &Late| last_late.get(rank).copied();
    Some(Straggler {
        group,
        seq: slow.iter().filter_map(last_of).max().or(full.last().map(|row| row.seq))?,
        late,
        calls,
        // The others wait at least as long as the least late of several stragglers takes.
        median_ps: slow.iter().filter_map(|(_, late)| late.get(late.len() / 2)).min().copied()?,
        ranks: slow.into_iter().map(|(rank, _)| rank).collect(),
    })
}

/// A rank, and by how much it was late to each call that it came late to, ascending.
type Late = (GlobalRank, Vec<u64>);

/// The evidence that was looked at.
struct Seen {
    simulated: bool,
    calls: usize,
    /// Ranks of the group.
    size: usize,
    duration_ps: u64,
}

impl Seen {
    /// The rank that came last too often, of those that came last to some call.
    fn one(&self, counts: BTreeMap<GlobalRank, Vec<u64>>) -> Option<Late> {
        let anybody_late = counts.values().map(Vec::len).sum();
        let (rank, mut late) = counts.into_iter().max_by_key(|(_, late)| late.len())?;
        let waited = late.iter().fold(0, |sum: u64, late| sum.saturating_add(*late));
        // Of several calls a step a slow rank comes late to the first: of those that anybody comes late
        // to, then, most must be its own, and the waiting a good part of the time.
        let of = match !self.simulated && waited.saturating_mul(GOOD_PART) >= self.duration_ps {
            true => anybody_late,
            false => self.calls,
        };
        if late.len() < 4 || late.len() * 10 < of * 6 {
            return None;
        }
        late.sort_unstable();
        // Nobody comes last to every call, and by as much, by chance.
        let steady = late.len() == self.calls
            && late.first().zip(late.last()).is_some_and(|(least, most)| most - least <= least / 4);
        if !self.simulated && !steady && by_chance(late.len(), of, self.size) > CHANCE {
            return None;
        }
        // Virtual time has no noise, but a rank that is microseconds late to calls that follow each
        // other at once costs nobody anything.
        if self.simulated && waited.saturating_mul(SHARE) < self.duration_ps {
            return None;
        }
        Some((rank, late))
    }

    /// The ranks that came late to nearly every call, where they are several and not more than half: one or
    /// another of them is the last, and the others wait for all.
    fn several(&self, all_late: BTreeMap<GlobalRank, Vec<u64>>) -> Vec<Late> {
        let nearly_all = |late: &[u64]| late.len() >= 4 && late.len() * 5 >= self.calls * 4;
        let mut several: Vec<Late> =
            all_late.into_iter().filter(|(_, late)| nearly_all(late)).collect();
        several.iter_mut().for_each(|(_, late)| late.sort_unstable());
        let costs = several.iter().all(|(_, late)| {
            let waited = late.iter().fold(0, |sum: u64, late| sum.saturating_add(*late));
            waited.saturating_mul(GOOD_PART) >= self.duration_ps
        });
        // In virtual time ranks that do other work than others may always come later, as planned.
        if self.simulated || !costs || several.len() < 2 || several.len() * 2 > self.size {
            several.clear();
        }
        several
    }
}

/// Probability that some rank of `size` comes last to `late` of `calls`, if each comes last as
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

/// The finding of a slow rank, or of several.
pub(crate) fn claim(facts: &Facts<'_, '_>, slow: &Straggler) -> Claim {
    let log = facts.job.log;
    let group = words::group_label(log, slow.group);
    let made = |rank: &GlobalRank| {
        let rows = facts.job.rows_of(slow.group);
        rows.get(rows.binary_search_by_key(&slow.seq, |row| row.seq).ok()?)?.of(*rank)
    };
    let seen: Vec<Made<'_>> = slow.ranks.iter().filter_map(made).take(LATEST).collect();
    let others = log.groups.get(slow.group.index()).map(|group| group.ranks().to_vec());
    let mut others = others.unwrap_or_default();
    others.retain(|rank| !slow.ranks.contains(rank) && facts.job.rank(*rank).is_some());
    others.sort_unstable();
    let (are, they) = match slow.ranks.len() {
        1 => ("is slow. It", "it"),
        _ => ("are slow. One of them", "them"),
    };
    Claim {
        kind: Kind::Straggler,
        message: format!(
            "Nothing hangs: {} {are} came last to {} of the last {} of {group}, and {} waited for {they}, {} in \
             the median.",
            ranks(&slow.ranks),
            slow.late,
            words::count(slow.calls, "call"),
            ranks(&others),
            words::duration(slow.median_ps),
        ).into(),
        fix: match slow.ranks.len() {
            1 => "Compare this rank's time between the calls with the others': its data loader, its \
                  machine's load, its device's clocks and temperature.",
            _ => "Compare these ranks' time between the calls with the others': the machine that they share, \
                  its load, its file system, its devices' clocks and temperature, their data loaders.",
        }
        .to_owned(),
        also_victims: others,
        group: Some(slow.group),
        seq: Some(slow.seq),
        op: seen.first().map(|made| made.record.call.op.clone()),
        alternatives: Alternatives::LessLikely,
        evidence: seen.into_iter().map(|made| evidence(facts, made, "came late to")).collect(),
        culprits: slow.ranks.clone(),
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
