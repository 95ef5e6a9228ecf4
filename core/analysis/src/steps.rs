//! The training steps of a job: what its ranks do repeats itself, and each repetition is a step.
//!
//! A step of a known program repeats its computations and its calls; a step of a recording repeats its calls.
//! Calls that repeat may still be a part of a step, such as eight buckets of one size. The times at which they were made
//! decide: a step begins with the call before which most time goes by, in nearly every step and on every rank. Where
//! they do not decide, no steps are found: an unknown number is better than a wrong one.
//!
//! Steps that the program marked for its profiler are taken as they are (`marked_steps`).
//!
//! Ranks agree on the steps. Those of the program that most ranks share are the job's; ranks with other calls are cut
//! where the collectives that they share with it are.

use crate::activity::{Activity, RankActivity, TimedCall};
use crate::marked_steps::{MarkedStep, marked_steps};
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::Called;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Longer loops are not looked for: a step of a large pipeline has a few thousand calls.
const LONGEST_PERIOD: usize = 4096;

/// The most calls of a rank that are compared, from its end.
const COMPARED: usize = 1 << 16;

/// A step is at most so many repetitions of equal calls.
const MOST_REPETITIONS: usize = 64;

/// The time before a step's first call is at least so many times that before any other of its calls, in the median.
const PAUSE_FACTOR: f64 = 1.4;

/// Of so many steps in a hundred the first call has the longest time before it.
const SURE_PERCENT: usize = 90;

/// The times of so many ranks with equal calls are looked at.
const TIMED_RANKS: usize = 8;

/// The steps of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Steps {
    /// By rank and step; empty of ranks without steps.
    pub(crate) of_rank: Vec<Vec<RankStep>>,
    /// The number of steps.
    pub(crate) count: usize,
}

/// A step of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RankStep {
    /// Its calls, by their indexes among the rank's calls.
    pub calls: Range<usize>,
    /// When it began, in picoseconds after the start.
    pub from_ps: u64,
    /// Its end.
    pub to_ps: u64,
}

/// The operations of a plan that are a job's steps, by rank and step. A recording, its replay, and the replay with a
/// change have the same steps, even where the change moves the times by which steps are found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepOps {
    /// By rank and step, from the operation of the step's first call to behind that of its last; all ranks with steps
    /// have as many.
    pub of_rank: Vec<Vec<Range<u32>>>,
}

impl StepOps {
    /// The steps that are found in an activity. `op_of` is the operation that made a rank's call, by the call's index.
    /// Steps of which a rank has no such call are left out, on all ranks.
    pub fn of(activity: &Activity, op_of: impl Fn(GlobalRank, usize) -> Option<u32>) -> StepOps {
        let steps = Steps::of(activity);
        let of_rank = (0..).map(GlobalRank).zip(&steps.of_rank).map(|(rank, own)| {
            let ops = own.iter().map(|step| {
                let ops = || step.calls.clone().filter_map(|at| op_of(rank, at));
                Some(ops().min()?..ops().max()? + 1)
            });
            ops.collect()
        });
        let of_rank: Vec<Vec<Option<Range<u32>>>> = of_rank.collect();
        let has_all = |number: &usize| {
            of_rank
                .iter()
                .all(|own| own.is_empty() || own.get(*number).is_some_and(Option::is_some))
        };
        let kept: Vec<usize> = (0..steps.count).filter(has_all).collect();
        let of_kept = |own: &Vec<Option<Range<u32>>>| {
            kept.iter().filter_map(|number| own.get(*number).cloned().flatten()).collect()
        };
        StepOps { of_rank: of_rank.iter().map(of_kept).collect() }
    }

    /// True if the job has no steps.
    pub fn is_empty(&self) -> bool {
        self.of_rank.iter().all(Vec::is_empty)
    }

    /// The calls of these operations in a trace of the plan, by rank and step.
    fn calls(&self, activity: &Activity) -> Vec<Vec<Range<usize>>> {
        let of_rank = self.of_rank.iter().zip(&activity.ranks).map(|(steps, own)| {
            // A program makes its calls in order.
            let first = |op: u32| own.calls.partition_point(|call| call.plan_op < Some(op));
            steps.iter().map(|ops| first(ops.start)..first(ops.end)).collect()
        });
        of_rank.collect()
    }
}

/// A part of a sequence that repeats: it begins at `start`, `period` values are one repetition, and there are `count`.
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

/// The identity of something that a rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Done<'a> {
    Call(&'a Called),
    Computation(&'a str),
}

/// Numbers for what the ranks do, equal for what is alike.
#[derive(Default)]
struct Known<'a>(BTreeMap<Done<'a>, u32>);

impl<'a> Known<'a> {
    fn number(&mut self, done: Done<'a>) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(done).or_insert(next)
    }
}

/// A rank's actions in order: a number for each call, and for each computation of a known program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sequence {
    values: Vec<u32>,
    is_call: Vec<bool>,
    /// The calls in front of the first value.
    skipped: usize,
}

impl Sequence {
    fn of_calls<'a>(own: &'a RankActivity, known: &mut Known<'a>) -> Sequence {
        let skipped = own.calls.len().saturating_sub(COMPARED);
        let calls = own.calls.iter().skip(skipped);
        let values: Vec<u32> = calls.map(|call| known.number(Done::Call(&call.called))).collect();
        Sequence { is_call: vec![true; values.len()], values, skipped }
    }

    /// The program's computations and calls; `None` where they are not known, or too many to compare.
    fn of_program<'a>(own: &'a RankActivity, known: &mut Known<'a>) -> Option<Sequence> {
        let mut done: Vec<(u32, u32, bool)> = Vec::new();
        for call in &own.calls {
            done.push((call.plan_op?, known.number(Done::Call(&call.called)), true));
        }
        let calls = done.len();
        for one in &own.computations {
            done.push((one.op?, known.number(Done::Computation(&one.name)), false));
        }
        if done.len() == calls || done.len() > COMPARED {
            return None;
        }
        done.sort_by_key(|(op, _, _)| *op);
        let (values, is_call) = done.into_iter().map(|(_, value, call)| (value, call)).unzip();
        Some(Sequence { values, is_call, skipped: 0 })
    }

    /// The loop of a sequence, counted in calls; `None` where none is made in it. Also true if a repetition has
    /// computations of several names, and so cannot be a part of a step that makes the same calls several times.
    fn repetition(&self) -> Option<(Repetition, bool)> {
        let it = repetition(&self.values)?;
        let calls = |range: Range<usize>| {
            self.is_call.get(range).unwrap_or_default().iter().filter(|call| **call).count()
        };
        let body = it.start..it.start + it.period;
        let period = calls(body.clone());
        let start = self.skipped + calls(0..it.start);
        let own = self.values.get(body.clone()).into_iter().flatten();
        let own = own.zip(self.is_call.get(body).into_iter().flatten());
        let names: BTreeSet<u32> =
            own.filter(|(_, is_call)| !**is_call).map(|(value, _)| *value).collect();
        let found = Repetition { start, period, count: it.count };
        (period > 0).then_some((found, names.len() > 1))
    }
}

impl Repetition {
    fn calls(self) -> Range<usize> {
        self.start..self.start + self.period * self.count
    }

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

    /// The steps of which these repetitions are parts, or are; `None` where nothing tells which. `ranks` make the same
    /// calls.
    fn steps(
        self,
        ranks: &[&RankActivity],
        is_whole: bool,
        has_program: bool,
    ) -> Option<Repetition> {
        if is_whole {
            return Some(self);
        }
        let timed: Vec<Vec<u64>> =
            ranks.iter().take(TIMED_RANKS).map(|own| times_before(own, self.calls())).collect();
        let most = MOST_REPETITIONS.min(self.count / 2);
        let several = (2..=most).find_map(|times| {
            let period = times * self.period;
            Some((period, first_of_steps(&timed, period)?))
        });
        let is_step = first_of_steps(&timed, self.period).is_some();
        match (is_step, several) {
            (true, Some(_)) => None,
            (true, None) => Some(self),
            (false, Some((period, place))) => {
                let all = self.period * self.count;
                // A loop of whole steps is not cut in the middle of one.
                let place = if all.is_multiple_of(period) { 0 } else { place };
                let count = all.saturating_sub(place) / period;
                Some(Repetition { start: self.start + place, period, count })
            }
            (false, None) => {
                let is_clear = has_program || self.has_several_kinds(ranks) || self.is_even(ranks);
                is_clear.then_some(self)
            }
        }
    }

    /// True if the calls of a repetition are of several operations, groups or lines: different sizes alone may be the
    /// buckets of a step's layers, each in several.
    fn has_several_kinds(self, ranks: &[&RankActivity]) -> bool {
        let calls =
            ranks.first().and_then(|own| own.calls.get(self.start..self.start + self.period));
        let kinds = calls.into_iter().flatten().map(|call| {
            (
                &call.called.op,
                call.called.group,
                call.called.p2p,
                call.called.peer,
                &call.called.stack,
            )
        });
        kinds.collect::<BTreeSet<_>>().len() > 1
    }

    /// True of a loop that takes half of the time from the first call on, or is nine of ten calls: a set-up has even calls
    /// as well.
    fn is_nearly_all(self, own: &RankActivity) -> bool {
        let made = |at: usize| own.calls.get(at).map_or(0, |call| call.made_ps);
        let calls = self.calls();
        let loop_ps = made(calls.end.saturating_sub(1)).saturating_sub(made(calls.start));
        let all_ps = made(own.calls.len().saturating_sub(1)).saturating_sub(made(0));
        calls.len() * 100 >= own.calls.len() * SURE_PERCENT || loop_ps >= all_ps / 2
    }

    /// True of single calls that follow each other at even times, each made when the one before had ended: such as a
    /// loop around one call. Buckets of one backward pass overlap.
    fn is_even(self, ranks: &[&RankActivity]) -> bool {
        self.period == 1
            && ranks.iter().take(TIMED_RANKS).all(|own| {
                let calls = own.calls.get(self.calls()).unwrap_or_default();
                let follows = |pair: &[TimedCall]| match pair {
                    [before, next] => before.ended_ps.is_some_and(|ended| ended <= next.made_ps),
                    _ => false,
                };
                let mut times = times_before(own, self.calls()).split_off(1);
                times.sort_unstable();
                let median = times.get(times.len() / 2).copied().unwrap_or(0) as f64;
                // A single pause may stand between two steps.
                let has_pause = times.last().is_some_and(|it| *it as f64 > median * PAUSE_FACTOR);
                let even = times.iter().filter(|time| **time as f64 * PAUSE_FACTOR >= median);
                let follow = calls.windows(2).filter(|pair| follows(pair));
                let sure = (times.len() * SURE_PERCENT).div_ceil(100);
                !has_pause
                    && self.is_nearly_all(own)
                    && even.count() >= sure
                    && follow.count() >= sure
            })
    }
}

/// The time from when the call before was made to when each of these calls was; 0 of the first of all.
fn times_before(own: &RankActivity, calls: Range<usize>) -> Vec<u64> {
    let made = |at: usize| own.calls.get(at).map_or(0, |call| call.made_ps);
    let before =
        |at: usize| at.checked_sub(1).map_or(0, |before| made(at).saturating_sub(made(before)));
    calls.map(before).collect()
}

/// The place, among the first `period` calls, of the one that steps of so many calls begin with: nearly always most
/// time goes by before it, of all calls of its step. `None` if there is none. `timed` is the time before each call, by
/// rank.
fn first_of_steps(timed: &[Vec<u64>], period: usize) -> Option<usize> {
    if period < 2 {
        return None;
    }
    // Calls before the first call of the loop belong to no step.
    let median = |place: usize| {
        let own = |times: &Vec<u64>| -> Vec<u64> {
            times
                .iter()
                .enumerate()
                .skip(place)
                .step_by(period)
                .skip(usize::from(place == 0))
                .map(|(_, it)| *it)
                .collect()
        };
        let mut times: Vec<u64> = timed.iter().flat_map(own).collect();
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    };
    let mut medians: Vec<(u64, usize)> =
        (0..period).filter_map(|place| Some((median(place)?, place))).collect();
    medians.sort_unstable_by(|a, b| b.cmp(a));
    let [(longest, place), (next, _), ..] = medians.as_slice() else { return None };
    if (*longest as f64) < *next as f64 * PAUSE_FACTOR || *longest == 0 {
        return None;
    }
    let (mut steps, mut sure, mut least) = (0, 0, usize::MAX);
    for times in timed {
        let from = if *place == 0 { period } else { *place };
        let own = times.get(from..).unwrap_or_default().chunks_exact(period);
        least = least.min(own.len());
        for step in own {
            steps += 1;
            let others = step.get(1..).unwrap_or_default().iter().max();
            sure += usize::from(step.first() > others);
        }
    }
    (least >= 2 && sure * 100 >= steps * SURE_PERCENT).then_some(*place)
}

/// The calls of a rank's steps; `first` is the number of the first one in the job.
struct Numbered {
    first: i64,
    calls: Vec<Range<usize>>,
}

impl Steps {
    /// The steps of a job; none where none are clear.
    pub(crate) fn of(activity: &Activity) -> Steps {
        Steps::marked(activity).unwrap_or_else(|| Steps::of_calls(activity, &found_calls(activity)))
    }

    /// The steps that the ranks' programs marked; `None` if they marked none.
    fn marked(activity: &Activity) -> Option<Steps> {
        let marked = marked_steps(activity)?;
        let reference = marked.iter().zip(&activity.ranks);
        let (steps, own) =
            reference.filter_map(|(steps, own)| Some((steps.as_ref()?, own))).next()?;
        let count = steps.len();
        let calls: Vec<Range<usize>> = steps.iter().map(|step| step.calls.clone()).collect();
        let numbers = numbers_of_rows(own, &calls);
        let of_rank = marked.into_iter().zip(&activity.ranks).map(|(steps, own)| match steps {
            Some(steps) => with_marked_times(activity, own, steps),
            // A rank that marked nothing is cut where the collectives that it shares are.
            None => match numbered(own, None, &numbers) {
                Some(Numbered { first: 0, calls }) => timed_steps(activity, own, &calls),
                _ => Vec::new(),
            },
        });
        let mut of_rank: Vec<Vec<RankStep>> = of_rank.collect();
        of_rank.iter_mut().filter(|own| own.len() != count).for_each(Vec::clear);
        of_rank.iter().any(|own| !own.is_empty()).then_some(Steps { of_rank, count })
    }

    /// The steps with these operations in a trace of the plan that they are of.
    pub(crate) fn of_ops(activity: &Activity, ops: &StepOps) -> Steps {
        Steps::of_calls(activity, &ops.calls(activity))
    }

    /// The steps with these calls, up to the first that a rank did not end.
    fn of_calls(activity: &Activity, calls: &[Vec<Range<usize>>]) -> Steps {
        let of_rank = calls.iter().zip(&activity.ranks);
        let mut of_rank: Vec<Vec<RankStep>> =
            of_rank.map(|(calls, own)| timed_steps(activity, own, calls)).collect();
        let with_steps = calls.iter().zip(&of_rank).filter(|(calls, _)| !calls.is_empty());
        let count = with_steps.map(|(_, steps)| steps.len()).min().unwrap_or(0);
        of_rank.iter_mut().for_each(|steps| steps.truncate(count));
        Steps { of_rank, count }
    }
}

/// The calls of the steps of every rank.
fn found_calls(activity: &Activity) -> Vec<Vec<Range<usize>>> {
    let found = loops(activity);
    // The program that most ranks share tells the steps.
    let mut shared: BTreeMap<(usize, usize, usize), (usize, usize)> = BTreeMap::new();
    for (rank, it) in found.iter().enumerate() {
        if let Some(it) = it {
            shared.entry((it.count, it.start, it.period)).or_insert((0, rank)).0 += 1;
        }
    }
    let most = shared
        .iter()
        .max_by_key(|((count, ..), (ranks, first))| (*ranks, *count, usize::MAX - *first));
    let Some((_, (_, reference))) = most else { return Vec::new() };
    let Some((own, it)) =
        activity.ranks.get(*reference).zip(found.get(*reference).copied().flatten())
    else {
        return Vec::new();
    };
    let numbers = numbers_of_rows(own, &cut(it));
    let ranks = activity.ranks.iter().zip(&found);
    common(ranks.map(|(own, it)| numbered(own, it.map(cut), &numbers)).collect())
}

fn cut(it: Repetition) -> Vec<Range<usize>> {
    let start = |number: usize| it.start + number * it.period;
    (0..it.count).map(|number| start(number)..start(number + 1)).collect()
}

/// The loop of every rank that is its steps.
fn loops(activity: &Activity) -> Vec<Option<Repetition>> {
    let mut found: Vec<Option<Repetition>> = vec![None; activity.ranks.len()];
    let mut known = Known::default();
    // Ranks that do the same, by what they do; most do as the one before.
    let mut alike: Vec<(Sequence, Option<Sequence>, Vec<usize>)> = Vec::new();
    for (rank, own) in activity.ranks.iter().enumerate() {
        let (calls, program) =
            (Sequence::of_calls(own, &mut known), Sequence::of_program(own, &mut known));
        match alike.iter_mut().rev().find(|(c, p, _)| *c == calls && *p == program) {
            Some((_, _, ranks)) => ranks.push(rank),
            None => alike.push((calls, program, vec![rank])),
        }
    }
    for (calls, program, ranks) in &alike {
        let own: Vec<&RankActivity> =
            ranks.iter().filter_map(|rank| activity.ranks.get(*rank)).collect();
        let Some(first) = own.first() else { continue };
        let is_most = |(it, _): &(Repetition, bool)| it.is_most_of(first, activity.start_ps);
        let of_program = program.as_ref().and_then(Sequence::repetition).filter(is_most);
        let has_program = of_program.is_some();
        let it = of_program.or_else(|| calls.repetition().filter(is_most));
        let steps = it.and_then(|(it, is_whole)| it.steps(&own, is_whole, has_program));
        for rank in ranks {
            if let Some(slot) = found.get_mut(*rank) {
                *slot = steps;
            }
        }
    }
    found
}

/// The step in which a rank made each of its collectives.
fn numbers_of_rows(own: &RankActivity, steps: &[Range<usize>]) -> BTreeMap<(GroupId, u64), i64> {
    let numbered = steps.iter().zip(0i64..).flat_map(|(calls, number)| {
        let calls = own.calls.get(calls.clone()).unwrap_or_default().iter();
        calls.filter_map(move |call| Some((call.row()?, number)))
    });
    numbered.collect()
}

/// A rank's own steps, if they are those of the collectives that it shares with the job's; else its calls are cut behind
/// the last collective of each of the job's steps.
fn numbered(
    own: &RankActivity,
    steps: Option<Vec<Range<usize>>>,
    numbers: &BTreeMap<(GroupId, u64), i64>,
) -> Option<Numbered> {
    if let Some(calls) = steps {
        let rows = numbers_of_rows(own, &calls);
        let mut apart = rows.iter().filter_map(|(row, own)| Some(numbers.get(row)? - own));
        match apart.next() {
            None => return Some(Numbered { first: 0, calls }),
            Some(first) if apart.all(|other| other == first) => {
                return Some(Numbered { first, calls });
            }
            Some(_) => {}
        }
    }
    let shared = own
        .calls
        .iter()
        .enumerate()
        .filter_map(|(at, call)| Some((*numbers.get(&call.row()?)?, at)));
    let shared: Vec<(i64, usize)> = shared.collect();
    let (first, mut start) = shared.first().copied()?;
    let mut calls: Vec<Range<usize>> = Vec::new();
    for of_step in shared.chunk_by(|a, b| a.0 == b.0) {
        let (number, last) = of_step.last().copied()?;
        // Calls of a step that come before one of an earlier step belong to no one step.
        if number != first + calls.len() as i64 {
            return None;
        }
        calls.push(start..last + 1);
        start = last + 1;
    }
    Some(Numbered { first, calls })
}

/// The steps that all ranks with steps have.
fn common(ranks: Vec<Option<Numbered>>) -> Vec<Vec<Range<usize>>> {
    let with_steps = || ranks.iter().flatten();
    let first = with_steps().map(|it| it.first).max().unwrap_or(0);
    let last = with_steps().map(|it| it.first.saturating_add(it.calls.len() as i64)).min();
    let count = usize::try_from(last.unwrap_or(first).saturating_sub(first)).unwrap_or(0);
    let of_rank = ranks.into_iter().map(|it| {
        let Some(it) = it else { return Vec::new() };
        let skipped = usize::try_from(first.saturating_sub(it.first)).unwrap_or(0);
        it.calls.into_iter().skip(skipped).take(count).collect()
    });
    of_rank.collect()
}

/// The steps of a rank with their times: each goes from the end of the step before to the end of its own last call, so
/// that the computation in front of its calls belongs to it.
fn timed_steps(activity: &Activity, own: &RankActivity, calls: &[Range<usize>]) -> Vec<RankStep> {
    let start = calls.first().map_or(0, |calls| calls.start);
    let mut before_ps = match start.checked_sub(1) {
        Some(before) => own.calls.get(before).and_then(|call| call.ended_ps),
        None => Some(activity.start_ps),
    };
    let mut steps = Vec::with_capacity(calls.len());
    for calls in calls {
        let block = own.calls.get(calls.clone()).unwrap_or_default();
        let ends = block.iter().map(|call| call.ended_ps);
        let ended_ps = ends.collect::<Option<Vec<u64>>>().and_then(|ends| ends.into_iter().max());
        let Some((from_ps, to_ps)) = before_ps.zip(ended_ps) else { break };
        steps.push(RankStep { calls: calls.clone(), from_ps: from_ps.min(to_ps), to_ps });
        before_ps = Some(to_ps);
    }
    steps
}

/// The marked steps of a rank with the times of their marks, else with those of their calls.
fn with_marked_times(
    activity: &Activity,
    own: &RankActivity,
    steps: Vec<MarkedStep>,
) -> Vec<RankStep> {
    let by_marks = steps.iter().map(|MarkedStep { calls, times }| {
        let (from_ps, to_ps) = (*times)?;
        Some(RankStep { calls: calls.clone(), from_ps, to_ps })
    });
    by_marks.collect::<Option<Vec<RankStep>>>().unwrap_or_else(|| {
        let calls: Vec<Range<usize>> = steps.into_iter().map(|step| step.calls).collect();
        timed_steps(activity, own, &calls)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_is_found_between_what_comes_before_and_behind() {
        let found = |values: &[u32]| repetition(values).map(|it| (it.start, it.period, it.count));
        assert_eq!(found(&[9, 8, 1, 2, 2, 1, 2, 2, 1, 2, 2, 7]), Some((2, 3, 3)));
        assert_eq!(found(&[5, 5, 5, 5]), Some((0, 1, 4)));
        assert_eq!(found(&[1, 2, 3, 4]), None);
        assert_eq!(found(&[]), None);
    }
}
