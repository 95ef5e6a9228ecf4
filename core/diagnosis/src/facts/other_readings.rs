//! Other readings of two calls under one number than one call that went wrong: where nothing behind them
//! is seen, a call that was left out, or made on top, looks the same.

use crate::facts::alternatives::Alternatives;
use crate::facts::deed::Deed;
use crate::facts::history::{comes_next, continues, next_in_progression};
use crate::model::calls::alike;
use crate::model::index::{Job, Made, Row};
use crate::words;
use crate::words::ranks;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::Difference;

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

/// Said of a line whose calls have all been alike so far.
const SO_FAR: &str = " Or a call was left out before, and this is one that all make later: nothing is seen of \
                      what follows.";

/// Other readings of two calls of a recording that differ and that nothing was seen to follow; `None`
/// where it can hardly be anything else.
pub(crate) fn doubt(
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
    Some(match there.any(|made| !alike(made.record, theirs.record)) {
        true => VARIES,
        false => SO_FAR,
    })
}

/// Other readings of two sides of a tie that call the same with other sizes: from other lines, or from one
/// whose calls before were not all alike; with the ranks that may have left calls out, where sizes go on
/// evenly.
pub(crate) fn tied_sizes(
    job: &Job<'_>,
    row: &Row<'_>,
    one: &[GlobalRank],
    other: &[GlobalRank],
) -> Option<String> {
    let made = |side: &[GlobalRank]| row.of(*side.first()?);
    let (first, second) = (made(one)?, made(other)?);
    let (stack, theirs) = (&first.record.call.stack, &second.record.call.stack);
    if job.log.plan.is_some() {
        return None;
    }
    if stack != theirs {
        let known = !stack.is_empty() && !theirs.is_empty();
        return known.then(|| LINES.to_owned());
    }
    let ahead = |peer: Made<'_>, own: Made<'_>| {
        next_in_progression(job, row.group, row.seq, peer.rank, own.record)
    };
    let step = match (ahead(first, second), ahead(second, first)) {
        (Some(count), None) => Some((one, other, count)),
        (None, Some(count)) => Some((other, one, count)),
        _ => None,
    };
    if let Some((behind, ahead, count)) = step {
        return Some(format!(
            " The sizes before go on evenly to that of {}, and that of {} comes {} later: so {} may as well \
             have left {} out here or before.",
            ranks(behind),
            ranks(ahead),
            words::count(count, "call"),
            ranks(ahead),
            if count == 1 { "a call".to_owned() } else { format!("{count} calls") },
        ));
    }
    let rows = job.rows_of(row.group).iter().take_while(|before| before.seq < row.seq);
    let mut there = rows.flat_map(|row| &row.made).filter(|made| made.record.call.stack == *stack);
    let known = there.next()?;
    let varies = !stack.is_empty() && there.any(|made| !alike(made.record, known.record));
    varies.then(|| VARIES.to_owned())
}

/// Other readings where a rank seems to have left a call out, and nothing is seen of it behind the one
/// in which it waits.
pub(crate) fn late(job: &Job<'_>, row: &Row<'_>, own: Made<'_>, deed: &Deed) -> &'static str {
    let recorded = job.log.plan.is_none();
    let here = deed.seq == row.seq && deed.count == 1;
    let last = job.calls_from(row.group, own.rank, row.seq).nth(1).is_none();
    match recorded && here && last && deed.alternatives != Alternatives::None {
        true => {
            " Or it makes that call later, in another order, or made its own on top: nothing is seen of \
             what follows."
        }
        false => "",
    }
}

/// True of a recording in which the call that a rank left out is the same as the one before: which of
/// them it was, or whether it left their loop early, nothing tells.
pub(crate) fn one_of_many(job: &Job<'_>, row: &Row<'_>, theirs: Made<'_>, deed: &Deed) -> bool {
    let same = |made: &&Made<'_>| {
        alike(made.record, theirs.record) && made.record.call.stack == theirs.record.call.stack
    };
    let rows = job.rows_of(row.group).iter().take_while(|before| before.seq < row.seq);
    let last = rows.last().and_then(|row| row.made.first());
    job.log.plan.is_none() && deed.seq == row.seq && last.as_ref().is_some_and(same)
}

/// Other readings where a rank seems to have made a call on top that comes next as it always has, while
/// the others' call does not.
pub(crate) fn theirs_to_blame(
    job: &Job<'_>,
    row: &Row<'_>,
    own: Made<'_>,
    theirs: Made<'_>,
) -> bool {
    let next = |made: Made<'_>| continues(job, row.group, row.seq, made.record);
    let first = || comes_next(job, row.group, row.seq, own.record, theirs.record);
    next(own) && (!next(theirs) || first())
}
