//! Training steps that the ranks' programs marked for their profilers: `ProfilerStep#5`, from one `prof.step()` to the
//! next.
//!
//! Ranks agree on steps by their numbers. A call belongs to the step in which the process made it; the device may carry
//! it out later. Marks that contradict each other are not used: a collective that two ranks made in different steps
//! shows that their numbers do not mean the same.

use crate::activity::{Activity, RankActivity, TimedCall};
use lockstep_core::group::GroupId;
use lockstep_core::trace::RecordedStep;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A step of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MarkedStep {
    /// Its calls, by their indexes among the rank's calls; a step may have none.
    pub(crate) calls: Range<usize>,
    /// From the end of the step before to its own end, in picoseconds; `None` where the calls were timed on a device and
    /// the marks were not.
    pub(crate) times: Option<(u64, u64)>,
}

/// The steps that all ranks with marks have, by rank; `None` in place of ranks without marks, and if the job has no
/// marks that could be used.
pub(crate) fn marked_steps(activity: &Activity) -> Option<Vec<Option<Vec<MarkedStep>>>> {
    let marked = || activity.ranks.iter().filter(|own| !own.marked_steps.is_empty());
    let of_rank = |own: &RankActivity| -> BTreeSet<u64> {
        own.marked_steps.iter().map(|step| step.number).collect()
    };
    let common = marked().map(of_rank).reduce(|all, own| &all & &own)?;
    if common.is_empty() {
        return None;
    }
    let kept = |own: &RankActivity| -> Vec<RecordedStep> {
        let steps = own.marked_steps.iter().copied();
        steps.filter(|step| common.contains(&step.number)).collect()
    };
    let on_device =
        activity.has_device_times || marked().all(|own| are_on_device(calls_of(own, &kept(own))));
    let time = |step: &RecordedStep| match on_device {
        true => step.on_device,
        false => Some((step.from_ps, step.to_ps)),
    };
    let is_timed = marked().all(|own| kept(own).iter().all(|step| time(step).is_some()));
    let mut rows: BTreeMap<(GroupId, u64), u64> = BTreeMap::new();
    let mut of_rank: Vec<Option<Vec<MarkedStep>>> = Vec::with_capacity(activity.ranks.len());
    for own in &activity.ranks {
        if own.marked_steps.is_empty() {
            of_rank.push(None);
            continue;
        }
        let mut steps: Vec<MarkedStep> = Vec::with_capacity(common.len());
        let mut before: Option<(u64, u64)> = None;
        for step in kept(own) {
            let calls = made_in(own, step.from_ps, step.to_ps);
            let in_step = own.calls.get(calls.clone()).unwrap_or_default();
            for row in in_step.iter().filter_map(|call| call.row()) {
                if *rows.entry(row).or_insert(step.number) != step.number {
                    return None;
                }
            }
            let times = time(&step).filter(|_| is_timed).map(|(from_ps, to_ps)| {
                let follows = before.filter(|(number, _)| number + 1 == step.number);
                let from_ps = follows.map_or(from_ps, |(_, ended_ps)| ended_ps);
                (from_ps.min(to_ps), to_ps)
            });
            before = times.map(|(_, to_ps)| (step.number, to_ps));
            if calls.is_empty() && times.is_none() {
                return None;
            }
            steps.push(MarkedStep { calls, times });
        }
        of_rank.push(Some(steps));
    }
    Some(of_rank)
}

/// The calls that a rank's process made between two times, by their indexes.
fn made_in(own: &RankActivity, from_ps: u64, to_ps: u64) -> Range<usize> {
    let first = |ps: u64| own.calls.partition_point(|call| call.made_ps < ps);
    first(from_ps)..first(to_ps.max(from_ps))
}

/// The calls of a rank from its first step to its last.
fn calls_of<'a>(own: &'a RankActivity, steps: &[RecordedStep]) -> &'a [TimedCall] {
    let ends = steps.first().zip(steps.last());
    let calls = ends.map(|(first, last)| made_in(own, first.from_ps, last.to_ps));
    calls.and_then(|calls| own.calls.get(calls)).unwrap_or_default()
}

/// True of calls of which a device's clock has timed all that ended.
fn are_on_device(calls: &[TimedCall]) -> bool {
    let mut ended = calls.iter().filter(|call| call.ended_ps.is_some()).peekable();
    ended.peek().is_some() && ended.all(|call| call.on_device)
}
