//! What else two calls under one number may be than one call that went wrong: where nothing behind them
//! is seen, a call that was left out, or made on top, looks the same.

use super::before::{comes_next, continues};
use super::explain::{Deed, alike};
use super::index::{Job, Made, Row};
use super::report::Certainty;
use super::signature::Difference;

/// Said of calls from different lines.
const LINES: &str = " The calls come from different lines: one of them may have been made on top, or \
                     left out, instead.";
/// Said where no lines were recorded.
const NO_LINES: &str = " Nothing tells from which lines they come: one of them may have been made on top, \
                        or left out, instead.";
/// Said of a line from which nobody has called before.
const FIRST: &str = " Nobody has called from there before: if that line makes several calls, one of them \
                     may have been left out, or made on top, instead.";
/// Said of a line whose calls are not all alike.
const VARIES: &str = " The calls from there are not all alike: one of them may have been left out, or made \
                      on top, instead.";

/// What else may be of two calls of a recording that differ and that nothing was seen to follow; `None`
/// where it can be nothing else: they come from one line, which has always made the others' call.
pub(super) fn doubt(
    job: &Job<'_>,
    row: &Row<'_>,
    own: Made<'_>,
    theirs: Made<'_>,
    difference: Difference,
) -> Option<&'static str> {
    let (stack, other) = (&own.record.call.stack, &theirs.record.call.stack);
    if stack.is_empty() || other.is_empty() {
        return Some(NO_LINES);
    }
    if stack != other {
        return Some(LINES);
    }
    let rows = job.rows_of(row.group).iter().take_while(|before| before.seq < row.seq);
    let made = rows.flat_map(|row| &row.made);
    let mut there = made.filter(|made| made.record.call.stack == *stack).peekable();
    if there.peek().is_none() {
        // Tensors of many elements are hardly as large by chance.
        let same_tensor = difference == Difference::Dtype && own.record.call.payload() > 1;
        return (!same_tensor).then_some(FIRST);
    }
    there.any(|made| !alike(made.record, theirs.record)).then_some(VARIES)
}

/// What else may be where a rank seems to have left a call out, and nothing is seen of it behind the one
/// in which it waits.
pub(super) fn late(job: &Job<'_>, row: &Row<'_>, own: Made<'_>, deed: &Deed) -> &'static str {
    let recorded = job.log.plan.is_none();
    let here = deed.seq == row.seq && deed.count == 1;
    let last = job.calls_from(row.group, own.rank, row.seq).nth(1).is_none();
    match recorded && here && last && deed.certainty != Certainty::Certain {
        true => {
            " Or it makes that call later, in another order, or made its own on top: nothing is seen of \
             what follows."
        }
        false => "",
    }
}

/// True of a recording in which the call that a rank left out is the same as the one before: which of
/// them it was, or whether it left their loop early, nothing tells.
pub(super) fn one_of_many(job: &Job<'_>, row: &Row<'_>, theirs: Made<'_>, deed: &Deed) -> bool {
    let same = |made: &&Made<'_>| {
        alike(made.record, theirs.record) && made.record.call.stack == theirs.record.call.stack
    };
    let rows = job.rows_of(row.group).iter().take_while(|before| before.seq < row.seq);
    let last = rows.last().and_then(|row| row.made.first());
    job.log.plan.is_none() && deed.seq == row.seq && last.as_ref().is_some_and(same)
}

/// What else may be where a rank seems to have made a call on top that comes next as it always has, while
/// the others' call does not.
pub(super) fn theirs_to_blame(
    job: &Job<'_>,
    row: &Row<'_>,
    own: Made<'_>,
    theirs: Made<'_>,
) -> bool {
    let next = |made: Made<'_>| continues(job, row.group, row.seq, made.record);
    let first = || comes_next(job, row.group, row.seq, own.record, theirs.record);
    next(own) && (!next(theirs) || first())
}
