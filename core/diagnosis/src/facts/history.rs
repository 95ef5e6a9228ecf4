//! Evidence from a group's calls before a difference: what follows what, how far ahead a call is,
//! how sizes go on.

use crate::facts::edit_distance::WINDOW;
use crate::model::calls::alike;
use crate::model::index::Job;
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallRecord;

/// True if `second` has followed `first` before in the group, on any rank.
pub(crate) fn follows(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    first: &CallRecord,
    second: &CallRecord,
) -> bool {
    let rows = job.rows_of(group);
    let to = rows.partition_point(|row| row.seq < seq);
    let rows = rows.get(to.saturating_sub(WINDOW)..to).unwrap_or_default();
    let is = |a: &CallRecord, b: &CallRecord| {
        alike(a, b)
            && (a.call.stack.is_empty() || b.call.stack.is_empty() || a.call.stack == b.call.stack)
    };
    rows.windows(2).any(|pair| match pair {
        [a, b] => match (a.made.first(), b.made.first()) {
            (Some(a), Some(b)) => is(a.record, first) && is(b.record, second),
            _ => false,
        },
        _ => false,
    })
}

/// True if `second` may come behind `first`: it has before, or nothing shows what does.
pub(crate) fn may_follow(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    first: &CallRecord,
    second: &CallRecord,
) -> bool {
    let before = calls_before(job, group, seq);
    let behind = before.windows(2).filter_map(|pair| match pair {
        [a, b] if alike(a, first) => Some(alike(b, second)),
        _ => None,
    });
    let behind: Vec<bool> = behind.collect();
    behind.is_empty() || behind.contains(&true)
}

/// True if a call follows the last one before a number as it has before.
pub(crate) fn continues(job: &Job<'_>, group: GroupId, seq: u64, record: &CallRecord) -> bool {
    let last = calls_before(job, group, seq).pop();
    last.is_some_and(|last| follows(job, group, seq, last, record))
}

/// True if of two calls that have both followed the last one before a number `one` comes next, as more of
/// the calls before show: a run of calls that are alike ends after as many as in the rounds before.
pub(crate) fn comes_next(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    one: &CallRecord,
    other: &CallRecord,
) -> bool {
    let before = calls_before(job, group, seq);
    let is = |a: &CallRecord, b: &CallRecord| alike(a, b) && a.call.stack == b.call.stack;
    // The number of last calls that also came right before an earlier call of this kind.
    let led = |record: &CallRecord| {
        let there = (0..before.len()).filter(|at| before.get(*at).is_some_and(|it| is(it, record)));
        let same = |at: usize| {
            let then = before.get(..at).unwrap_or_default().iter().rev();
            then.zip(before.iter().rev()).take_while(|(a, b)| is(a, b)).count()
        };
        there.map(same).max()
    };
    led(one).is_some_and(|one| led(other).is_some_and(|other| one > other))
}

/// True if `own` is what has followed `theirs` each time before, from a line that nobody has called it
/// from: a branch that makes the two in the other order. One that left `theirs` out would come to the
/// usual line.
pub(crate) fn made_early(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    own: &CallRecord,
    theirs: &CallRecord,
) -> bool {
    /// Fewer times are no habit.
    const LEAST: usize = 2;
    let before = calls_before(job, group, seq);
    let stack = &own.call.stack;
    let is_new = !stack.is_empty() && before.iter().all(|record| record.call.stack != *stack);
    let is_theirs =
        |record: &CallRecord| alike(record, theirs) && record.call.stack == theirs.call.stack;
    let behind: Vec<bool> = before
        .windows(2)
        .filter_map(|pair| match pair {
            [a, b] if is_theirs(a) => Some(alike(b, own)),
            _ => None,
        })
        .collect();
    is_new && behind.len() >= LEAST && behind.iter().all(|same| *same)
}

/// True if `second`, or a call of other sizes that stands for it, has followed `first` before: a line
/// that has never made two calls alike makes another one each time.
pub(crate) fn goes_on(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    first: &CallRecord,
    second: &CallRecord,
) -> bool {
    if follows(job, group, seq, first, second) {
        return true;
    }
    let (call, before) = (&second.call, calls_before(job, group, seq));
    let from_there =
        |record: &&CallRecord| record.call.op == call.op && record.call.stack == call.stack;
    let known: Vec<&CallRecord> = before.iter().copied().filter(from_there).collect();
    let differ = known.windows(2).all(|pair| match pair {
        [a, b] => !alike(a, b),
        _ => true,
    });
    let is_first = |record: &CallRecord| {
        alike(record, first) && record.call.stack == first.call.stack && !from_there(&record)
    };
    known.len() > 1
        && differ
        && before.windows(2).any(|pair| match pair {
            [a, b] => is_first(a) && from_there(b),
            _ => false,
        })
}

/// The number of calls by which a rank is ahead, where the round before went from the others' call
/// to its own after so many: an exception that is caught leaves out what is left of a block.
pub(crate) fn ahead(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    theirs: &CallRecord,
    own: &CallRecord,
) -> Option<usize> {
    /// A rank that far ahead has left out more than a block.
    const MOST: usize = 64;
    let is = |a: &CallRecord, b: &CallRecord| alike(a, b) && a.call.stack == b.call.stack;
    let before = calls_before(job, group, seq);
    let here = before.iter().rposition(|record| is(record, theirs))?;
    // The call before it must be the same then as now.
    if here > 0 && !is(before.get(here - 1)?, before.last()?) {
        return None;
    }
    let count = before.get(here..)?.iter().position(|record| is(record, own))?;
    (2..=MOST).contains(&count).then_some(count)
}

/// The last calls of a group before a number, each by who made it first.
pub(crate) fn calls_before<'a>(job: &Job<'a>, group: GroupId, seq: u64) -> Vec<&'a CallRecord> {
    let rows = job.rows_of(group);
    let to = rows.partition_point(|row| row.seq < seq);
    let rows = rows.get(to.saturating_sub(WINDOW)..to).unwrap_or_default();
    rows.iter().filter_map(|row| Some(row.made.first()?.record)).collect()
}

/// The number of the others' calls that a rank has left out, where its own go on as the round
/// before did behind them: at most `most`. Calls that seem to be made on top, because the others
/// stop in front of the next round, are that round.
pub(crate) fn next_round(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    own: &[&CallRecord],
    theirs: &[&CallRecord],
    most: usize,
) -> Option<usize> {
    let is = |a: &CallRecord, b: &CallRecord| {
        alike(a, b)
            && (a.call.stack.is_empty() || b.call.stack.is_empty() || a.call.stack == b.call.stack)
    };
    let before = calls_before(job, group, seq);
    (1..=most.min(theirs.len())).find(|count| {
        let Some(left_out) = theirs.get(..*count) else { return false };
        // The calls left out, in the round before; what came behind them is what is made now.
        let same = |at: &usize| {
            let then = before.get(*at..).unwrap_or_default();
            then.len() > left_out.len() && left_out.iter().zip(then).all(|(a, b)| is(a, b))
        };
        let Some(at) = (0..before.len()).rev().find(same) else { return false };
        let behind = before.iter().skip(at + count).chain(left_out);
        own.iter().zip(behind).all(|(a, b)| is(a, b))
    })
}

/// The number of steps by which a size is ahead of the majority, where the sizes of the calls
/// before it grow or shrink evenly, as those of layers do.
pub(crate) fn next_in_progression(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    peer: GlobalRank,
    own: &CallRecord,
) -> Option<usize> {
    let rows = job.rows_of(group);
    let to = rows.partition_point(|row| row.seq <= seq);
    let same_op = |record: &&CallRecord| record.call.op == own.call.op;
    let back = rows.get(..to)?.iter().rev().take(3).filter_map(|row| Some(row.of(peer)?.record));
    let sizes: Vec<u64> = back.filter(same_op).map(|record| record.call.payload()).collect();
    let [now, before, first] = sizes.as_slice() else { return None };
    let ahead = own.call.payload();
    let step = i128::from(*now) - i128::from(*before);
    if step != 0 && step == i128::from(*before) - i128::from(*first) {
        let steps = i128::from(ahead) - i128::from(*now);
        let count = usize::try_from(steps / step).ok()?;
        return (steps % step == 0 && (1..=4).contains(&count)).then_some(count);
    }
    // Sizes that double or halve.
    let product = |a: u64, b: u64| u128::from(a) * u128::from(b);
    let even = product(*before, *before) == product(*first, *now) && before != now;
    (even && product(*now, *now) == product(*before, ahead)).then_some(1)
}
