//! The kernels and marked steps of a profile, beside calls that a fuller source holds: a Flight Recorder's dumps tell of
//! calls only.
//!
//! A rank's kernels are taken from where the calls that both sources hold begin to where they end. Outside of it the
//! profile saw calls that the dumps have dropped, and its kernels would stand in a time without calls.

use super::clocks::map_times;
use super::fill::Clock;
use crate::job_calls::Merged;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, RankLog, RecordedComputation, RecordedStep};
use std::collections::BTreeMap;

/// Per rank, the first and the last of its calls in a source that the fuller source holds as well, by their indexes.
pub(super) type SharedStretches = BTreeMap<GlobalRank, (usize, usize)>;

/// Adds to `into` the computations and steps that `from` has of ranks of which `into` has none; returns the number of
/// computations.
pub(super) fn take_profiled(
    into: &mut Merged,
    from: &CallLog,
    clock: Clock,
    shared: &SharedStretches,
) -> usize {
    let Clock::LaterBy(later_ps) = clock else { return 0 };
    let profiled = from.logs().filter_map(|(rank, own)| {
        let here = into.log.ranks.get(rank.index())?.as_ref()?;
        let is_new = here.recording.computations.is_empty() && here.recording.steps.is_empty();
        let window = window(own, *shared.get(&rank).filter(|_| is_new)?);
        let is_in = |one: &&RecordedComputation| one.from_ps >= window.0 && one.to_ps <= window.1;
        let computations: Vec<&RecordedComputation> =
            own.recording.computations.iter().filter(is_in).collect();
        // A step of which the calls are not here cannot be told by them.
        let whole = |step: &&RecordedStep| {
            let seen_ps = own.calls.get(..shared.get(&rank)?.0)?.last().map(|it| it.scheduled_ps);
            Some(seen_ps.is_none_or(|seen_ps| seen_ps < step.from_ps))
        };
        let steps = own.recording.steps.iter().filter(|step| whole(step) == Some(true));
        Some((rank, computations, steps.collect::<Vec<&RecordedStep>>()))
    });
    let profiled: Vec<_> = profiled.collect();
    let firsts = profiled.iter().flat_map(|(_, computations, steps)| {
        let computation = computations.first().map(|one| one.from_ps);
        computation.into_iter().chain(steps.first().map(|step| step.from_ps))
    });
    let first_ps = firsts.min().map_or(0, |ps| i128::from(ps) + later_ps);
    let earlier_ps = begin_earlier(into, first_ps);
    let here = Clock::LaterBy(later_ps + i128::from(earlier_ps));
    let mut taken = 0;
    for (rank, computations, steps) in profiled {
        let Some(Some(own)) = into.log.ranks.get_mut(rank.index()) else { continue };
        if computations.is_empty() && steps.is_empty() {
            continue;
        }
        taken += computations.len();
        own.recording.computations.extend(computations.into_iter().map(|one| {
            RecordedComputation {
                from_ps: here.here(one.from_ps),
                to_ps: here.here(one.to_ps),
                name: one.name.clone(),
            }
        }));
        own.recording.steps.extend(steps.into_iter().map(|step| RecordedStep {
            number: step.number,
            from_ps: here.here(step.from_ps),
            to_ps: here.here(step.to_ps),
            on_device: step.on_device.map(|(from, to)| (here.here(from), here.here(to))),
        }));
        let last_ps = own.recording.computations.iter().map(|one| one.to_ps).max().unwrap_or(0);
        into.end_ps = into.end_ps.max(last_ps);
    }
    taken
}

/// The time in which a profile shows no calls of a rank but shared ones: from the end of the call before the first to
/// the begin of the call behind the last.
fn window(own: &RankLog, (first, last): (usize, usize)) -> (u64, u64) {
    let before = own.calls.get(..first).unwrap_or_default().iter();
    let ended = before.map(|call| call.completed_ps.or(call.started_ps).unwrap_or(0)).max();
    let behind = own.calls.get(last + 1);
    let begun = behind.map(|call| call.started_ps.unwrap_or(call.scheduled_ps));
    (ended.unwrap_or(0), begun.unwrap_or(u64::MAX))
}

/// Lets the times of a recording count from something that was `first_ps` after its start, if that is below 0; returns
/// by how much earlier they begin.
fn begin_earlier(merged: &mut Merged, first_ps: i128) -> u64 {
    let earlier_ns = u64::try_from((-first_ps).max(0)).unwrap_or(0).div_ceil(1000);
    let earlier_ns = earlier_ns.min(merged.header.epoch_ns);
    let earlier_ps = earlier_ns.saturating_mul(1000);
    if earlier_ps == 0 {
        return 0;
    }
    merged.header.epoch_ns -= earlier_ns;
    merged.end_ps = merged.end_ps.saturating_add(earlier_ps);
    for own in merged.log.ranks.iter_mut().flatten() {
        map_times(own, |ps| ps.saturating_add(earlier_ps));
    }
    earlier_ps
}
