//! The training steps of a job: the calls of a rank repeat themselves, and each repetition is a step.
//!
//! A step of a rank goes from the end of the last call of the repetition before to the end of its own last call, so
//! that the computation in front of its calls belongs to it. Where a step is several equal calls, such as buckets of one
//! size, it begins with the call before which regularly most time goes by. Steps of ranks are aligned by the collectives
//! that the ranks made together.

use crate::activity::{Activity, RankActivity};
use lockstep_core::group::GroupId;
use lockstep_core::trace::Called;
use std::collections::BTreeMap;
use std::ops::Range;

/// Longer loops are not looked for: a step of a large pipeline has a few thousand calls.
const LONGEST_PERIOD: usize = 4096;

/// The most calls of a rank that are compared, from its end.
const COMPARED: usize = 1 << 16;

/// A step is at most so many repetitions of equal calls.
const MOST_REPETITIONS: usize = 64;

/// The time before a step's first call is at least so many times that before any other of its calls.
const PAUSE_FACTOR: f64 = 1.4;

/// The steps of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    /// By rank and step; empty of ranks whose calls do not repeat.
    pub(crate) of_rank: Vec<Vec<RankStep>>,
    /// The number of steps.
    pub(crate) count: usize,
}

/// A step of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankStep {
    /// Its calls, by their indexes among the rank's calls.
    pub calls: Range<usize>,
    /// When it began, in picoseconds after the start.
    pub from_ps: u64,
    /// Its end.
    pub to_ps: u64,
}

/// The steps of every rank, by rank and step; empty of ranks whose calls do not repeat. All others have as many.
pub fn rank_steps(activity: &Activity) -> Vec<Vec<RankStep>> {
    Steps::of(activity).of_rank
}

/// Calls that repeat: they begin at `start`, `period` calls are one repetition, and there are `count`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Repetition {
    start: usize,
    period: usize,
    count: usize,
}

/// The loop that covers most of a sequence, the shortest of equally good ones.
fn repetition(values: &[u32]) -> Option<Repetition> {
    let mut best: Option<(usize, Repetition)> = None;
    for period in 1..=(values.len() / 2).min(LONGEST_PERIOD) {
        let (mut run, mut longest, mut until) = (0, 0, 0);
        for (at, (one, next)) in values.iter().zip(values.get(period..)?).enumerate() {
            run = if one == next { run + 1 } else { 0 };
            if run > longest {
                (longest, until) = (run, at + 1);
            }
        }
        let covered = longest + period;
        if longest >= period && best.is_none_or(|(most, _)| covered > most) {
            let found = Repetition { start: until - longest, period, count: covered / period };
            best = Some((covered, found));
        }
        if covered * 10 >= values.len() * 9 {
            break;
        }
    }
    best.map(|(_, found)| found)
}

impl Repetition {
    /// True of a loop that is most of what a rank does: it covers half of the calls, or it goes on to the last call and
    /// takes half of the time. A short job makes more calls before its loop than in it.
    fn is_most_of(self, own: &RankActivity, start_ps: u64) -> bool {
        let covered = self.period * self.count;
        let left = own.calls.len().saturating_sub(self.start + covered);
        if covered * 2 >= own.calls.len().min(COMPARED) {
            return true;
        }
        let ended = |at: usize| own.calls.get(at).and_then(|call| call.ended_ps);
        let before_ps = self.start.checked_sub(1).map_or(Some(start_ps), ended);
        let after_ps = ended((self.start + covered).saturating_sub(1));
        let Some((before_ps, after_ps)) = before_ps.zip(after_ps) else { return false };
        let all_ps = after_ps.saturating_sub(start_ps);
        left < self.period && after_ps.saturating_sub(before_ps) >= all_ps / 2
    }

    /// The steps that consist of several repetitions: they begin where most time goes by before a call. The
    /// repetitions themselves if no call is clearly later than the others.
    fn with_pauses(self, own: &RankActivity) -> Repetition {
        let calls = own.calls.get(self.start..).unwrap_or_default();
        let ready: Vec<u64> =
            calls.iter().take(self.period * self.count).map(|call| call.ready_ps).collect();
        let before: Vec<u64> = ready
            .windows(2)
            .map(|pair| pair.last().unwrap_or(&0).saturating_sub(*pair.first().unwrap_or(&0)))
            .collect();
        let most = MOST_REPETITIONS.min(self.count / 3);
        let steps = (1..=most).filter_map(|times| {
            let period = times * self.period;
            let (place, factor) = longest_pause(&before, period)?;
            Some((factor, times, place))
        });
        let steps = steps.filter(|(factor, _, _)| *factor >= PAUSE_FACTOR);
        let Some((_, times, place)) = steps.max_by(|a, b| a.0.total_cmp(&b.0)) else { return self };
        let period = times * self.period;
        let count = (self.period * self.count).saturating_sub(place) / period;
        Repetition { start: self.start + place, period, count }
    }
}

/// Before which of the calls of a step of `period` calls most time goes by in the median, and how many times as much as
/// before the next one; `before` is the time before each call but the first.
fn longest_pause(before: &[u64], period: usize) -> Option<(usize, f64)> {
    if period < 2 {
        return None;
    }
    let mut medians: Vec<(u64, usize)> = (0..period)
        .filter_map(|place| {
            // The first time is the one before the second call.
            let first = (place + period - 1) % period;
            let mut times: Vec<u64> = before.iter().skip(first).step_by(period).copied().collect();
            times.sort_unstable();
            Some((*times.get(times.len() / 2)?, place))
        })
        .collect();
    medians.sort_unstable_by(|a, b| b.cmp(a));
    let [(longest, place), (next, _), ..] = medians.as_slice() else { return None };
    Some((*place, *longest as f64 / (*next).max(1) as f64))
}

/// The steps of a rank; `first` is the number of the first one in the job.
struct RankSteps {
    first: i64,
    steps: Vec<RankStep>,
}

impl Steps {
    /// The steps of a job; none where calls do not repeat.
    pub(crate) fn of(activity: &Activity) -> Steps {
        let mut known: BTreeMap<&Called, u32> = BTreeMap::new();
        let mut found: Vec<Option<Repetition>> = Vec::with_capacity(activity.ranks.len());
        let mut before: Option<(Vec<u32>, Option<Repetition>)> = None;
        for own in &activity.ranks {
            let skipped = own.calls.len().saturating_sub(COMPARED);
            let values = own.calls.iter().skip(skipped).map(|call| {
                let next = known.len() as u32;
                *known.entry(call.called.as_ref()).or_insert(next)
            });
            let values: Vec<u32> = values.collect();
            let loop_of = match &before {
                // Most ranks call as the one before does.
                Some((same, loop_of)) if *same == values => *loop_of,
                _ => repetition(&values),
            };
            let of_rank = loop_of.map(|it| Repetition { start: it.start + skipped, ..it });
            found.push(of_rank.filter(|it| it.is_most_of(own, activity.start_ps)));
            before = Some((values, loop_of));
        }
        let most =
            found.iter().enumerate().filter_map(|(rank, it)| Some((it.as_ref()?.count, rank)));
        let Some((_, reference)) = most.max_by_key(|(count, rank)| (*count, usize::MAX - rank))
        else {
            return Steps::default();
        };
        let base = found.get(reference).copied().flatten();
        let refined = base.zip(activity.ranks.get(reference)).map(|(it, own)| it.with_pauses(own));
        for (it, own) in found.iter_mut().zip(&activity.ranks) {
            *it = match (*it, base) {
                (Some(it), Some(same)) if it == same => refined,
                (Some(it), _) => Some(it.with_pauses(own)),
                (None, _) => None,
            };
        }
        let numbers = match (activity.ranks.get(reference), refined) {
            (Some(own), Some(it)) => numbers_of_rows(own, it),
            _ => return Steps::default(),
        };
        let ranks: Vec<Option<RankSteps>> = activity
            .ranks
            .iter()
            .zip(&found)
            .map(|(own, it)| it.map(|it| steps_of_rank(activity, own, it, &numbers)))
            .collect();
        Steps::common(ranks)
    }

    /// The steps that all ranks with steps have.
    fn common(ranks: Vec<Option<RankSteps>>) -> Steps {
        let with_steps = || ranks.iter().flatten();
        let first = with_steps().map(|it| it.first).max().unwrap_or(0);
        let last = with_steps().map(|it| it.first.saturating_add(it.steps.len() as i64)).min();
        let count = usize::try_from(last.unwrap_or(first).saturating_sub(first)).unwrap_or(0);
        let of_rank = ranks.into_iter().map(|it| {
            let Some(it) = it else { return Vec::new() };
            let skipped = usize::try_from(first.saturating_sub(it.first)).unwrap_or(0);
            it.steps.into_iter().skip(skipped).take(count).collect()
        });
        let of_rank: Vec<Vec<RankStep>> = of_rank.collect();
        Steps { of_rank, count }
    }
}

/// The repetition in which a rank made each of its collectives.
fn numbers_of_rows(own: &RankActivity, it: Repetition) -> BTreeMap<(GroupId, u64), i64> {
    let calls = own.calls.iter().skip(it.start).take(it.period * it.count).enumerate();
    let numbered = calls.filter_map(|(at, call)| {
        let seq = call.seq.filter(|_| !call.called.p2p)?;
        Some(((call.called.group, seq), (at / it.period) as i64))
    });
    numbered.collect()
}

fn steps_of_rank(
    activity: &Activity,
    own: &RankActivity,
    it: Repetition,
    numbers: &BTreeMap<(GroupId, u64), i64>,
) -> RankSteps {
    let shared = numbers_of_rows(own, it);
    let shared = shared.iter().find_map(|(row, own)| Some(numbers.get(row)? - own));
    let mut before_ps = match it.start.checked_sub(1) {
        Some(before) => own.calls.get(before).and_then(|call| call.ended_ps),
        None => Some(activity.start_ps),
    };
    let mut steps = Vec::with_capacity(it.count);
    let blocks = own.calls.get(it.start..).unwrap_or_default().chunks_exact(it.period);
    for (number, block) in blocks.take(it.count).enumerate() {
        let ends = block.iter().map(|call| call.ended_ps);
        let ended_ps = ends.collect::<Option<Vec<u64>>>().and_then(|ends| ends.into_iter().max());
        let Some((from_ps, to_ps)) = before_ps.zip(ended_ps) else { break };
        let start = it.start + number * it.period;
        let calls = start..start + it.period;
        steps.push(RankStep { calls, from_ps: from_ps.min(to_ps), to_ps });
        before_ps = Some(to_ps);
    }
    RankSteps { first: shared.unwrap_or(0), steps }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meetings::tests::call;
    use proptest::prelude::*;

    #[test]
    fn a_loop_is_found_between_what_comes_before_and_behind() {
        let found = |values: &[u32]| repetition(values).map(|it| (it.start, it.period, it.count));
        assert_eq!(found(&[9, 8, 1, 2, 2, 1, 2, 2, 1, 2, 2, 7]), Some((2, 3, 3)));
        assert_eq!(found(&[5, 5, 5, 5]), Some((0, 1, 4)));
        assert_eq!(found(&[1, 2, 3, 4]), None);
        assert_eq!(found(&[]), None);
    }

    /// Calls that end at these times, in µs.
    fn calls(ends: &[u64]) -> RankActivity {
        let call = |ended: &u64| call("all_reduce", None, 0, *ended * 1_000_000);
        RankActivity { calls: ends.iter().map(call).collect(), ..RankActivity::default() }
    }

    #[test]
    fn a_loop_after_many_quick_calls_is_one_if_it_takes_most_of_the_time() {
        let it = Repetition { start: 5, period: 2, count: 2 };
        let quick_setup = calls(&[1, 2, 3, 4, 5, 100, 110, 200, 210]);
        assert!(it.is_most_of(&quick_setup, 0));
        let slow_setup = calls(&[100, 200, 300, 400, 500, 510, 511, 520, 521]);
        assert!(!it.is_most_of(&slow_setup, 0));
        // Two equal calls far apart, with others behind them, are no loop.
        let goes_on = calls(&[1, 2, 3, 4, 5, 100, 110, 200, 210, 211, 212]);
        assert!(!it.is_most_of(&goes_on, 0));
    }

    #[test]
    fn a_step_of_equal_calls_begins_after_the_longest_pause() {
        let intervals = [900, 1000, 100, 120, 1100, 110, 90, 1050, 100, 110, 1000, 100, 100, 980];
        let mut now = 0;
        let ready = intervals.map(|interval| {
            now += interval;
            now
        });
        let before: Vec<u64> = ready.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let (place, factor) = longest_pause(&before, 3).unwrap();
        assert_eq!(place, 1);
        assert!(factor > 5.0);
        assert!(longest_pause(&before, 2).unwrap().1 < PAUSE_FACTOR);
        assert!(longest_pause(&before, 6).unwrap().1 < PAUSE_FACTOR);
    }

    proptest! {
        /// A body that no shorter loop explains is found, however often it is repeated.
        #[test]
        fn every_loop_is_found(body in 2usize..9, count in 3usize..20, before in 0usize..5) {
            let body: Vec<u32> = (0..body as u32).collect();
            let mut values: Vec<u32> = (0..before as u32).map(|at| 100 + at).collect();
            values.extend((0..count).flat_map(|_| body.clone()));
            prop_assume!(count * body.len() >= before);
            let found = repetition(&values).unwrap();
            prop_assert_eq!((found.start, found.period, found.count), (before, body.len(), count));
        }
    }
}
