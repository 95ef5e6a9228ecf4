//! The reason that a rank's call differs from the majority's: skipped, extra, swapped, a loop left
//! early, or simply another call.
//!
//! In order of trust: the plan, where there is one; the calls that follow on both sides, which
//! shift against each other; the calls before, which show what follows what; and the lines.

use crate::facts::alternatives::Alternatives;
use crate::facts::call_sites::{began_again, strays};
use crate::facts::ddp_pass::{OnePass, one_pass};
use crate::facts::deed::{Deed, Reason};
use crate::facts::edit_distance::{Edit, WINDOW, align};
use crate::facts::history::{
    ahead, calls_before, comes_next, continues, goes_on, made_early, may_follow,
    next_in_progression, next_round,
};
use crate::facts::loops::{left_inner, left_loop, only_here, went_around, whole_rounds};
use crate::facts::plan_diff::{PlanDiff, plan_diff};
use crate::facts::reordering::{reordered, rotated};
use crate::facts::skipped_line::parted;
use crate::model::calls::alike;
use crate::model::index::Job;
use crate::words::{at_line, in_order, line_of};
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::Difference;
use lockstep_core::trace::{CallRecord, TensorShape};

/// The reason that `rank` called something else than `peer`, one of the majority, at `seq` of `group`.
pub(crate) fn reason(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    rank: GlobalRank,
    peer: GlobalRank,
    difference: Difference,
) -> Reason {
    if let Some(plan) = &job.log.plan {
        return plan_diff(plan, job.roles(), group, rank, peer).map_or(Reason::Other, from_plan);
    }
    let own: Vec<_> = job.calls_from(group, rank, seq).take(WINDOW).collect();
    let theirs: Vec<_> = job.calls_from(group, peer, seq).take(WINDOW).collect();
    let (Some(own_call), Some(their_call)) = (own.first(), theirs.first()) else {
        return Reason::Other;
    };
    let deed = |calls: &[&CallRecord], of: GlobalRank, count: usize, alternatives: Alternatives| {
        let first = calls.first().copied().unwrap_or(their_call);
        Deed { count, alternatives, ..Deed::of(job, first, of) }
    };
    // Calls that are alike may come from other lines long before two differ.
    let parted = parted(job, group, seq, rank, peer);
    if let Some((own, theirs)) = &parted
        && let Some(found) = align(own, theirs)
        && let Some(first) = found.edits.first().copied()
    {
        let (own, theirs) = (own.get(first.own..), theirs.get(first.theirs..));
        let (own, theirs) = (own.unwrap_or_default(), theirs.unwrap_or_default());
        let alternatives = match found.only && found.matched > 1 {
            true => Alternatives::None,
            false => Alternatives::LessLikely,
        };
        let earlier = |calls: &[&CallRecord]| {
            calls.first().and_then(|record| record.seq).is_some_and(|own| own < seq)
        };
        match first.edit {
            Edit::Skipped { count } if earlier(theirs) => {
                return Reason::Skipped(deed(theirs, peer, count, alternatives));
            }
            Edit::Extra { count } if earlier(own) => {
                return Reason::Extra(deed(own, rank, count, alternatives));
            }
            _ => {}
        }
    }
    // What follows may look like calls on top: a pass that begins is longer than one that ends.
    match one_pass(&own, &theirs).filter(|_| parted.is_none()) {
        Some(OnePass::Theirs(count)) => {
            return Reason::Skipped(deed(&theirs, peer, count, Alternatives::LessLikely));
        }
        Some(OnePass::Own(count)) => {
            return Reason::Extra(deed(&own, rank, count, Alternatives::LessLikely));
        }
        None => {}
    }
    let found = align(&own, &theirs);
    let in_pairs = found.as_ref().is_some_and(|found| {
        found.only && found.edits.iter().all(|place| place.edit == Edit::Swapped)
    });
    // In a loop that goes on from the last of them with the first, one that left the first out and is a
    // round ahead made the same: but it would not stop where the others do, at the end of a round.
    let moved = rotated(&own, &theirs).filter(|found| {
        let last = theirs.get(found.count - 1);
        found.behind > 0
            || (own.len() == found.count && theirs.len() == found.count)
            || last.is_some_and(|last| !may_follow(job, group, seq, last, their_call))
            || calls_before(job, group, seq).iter().all(|it| !alike(it, their_call))
    });
    let moved = moved.map(|found| found.count).or_else(|| reordered(&own, &theirs));
    if let Some(count) = moved.filter(|_| !in_pairs) {
        let orders = in_order(own.get(..count), theirs.get(..count));
        let other = Some((orders, line_of(job.log, rank, own_call)));
        return Reason::Swapped(Deed {
            other,
            ..deed(&theirs, peer, count, Alternatives::LessLikely)
        });
    }
    if let Some(found) = found
        && let Some(first) = found.edits.first().copied()
    {
        let alternatives = match found.only && found.matched > 1 {
            true => Alternatives::None,
            false => Alternatives::LessLikely,
        };
        match first.edit {
            Edit::Skipped { count } => {
                if let Some(reason) = whole_rounds(job, group, seq, rank, &own, &theirs, count) {
                    return reason;
                }
                return Reason::Skipped(deed(&theirs, peer, count, alternatives));
            }
            Edit::Extra { count } => {
                if let Some(count) = next_round(job, group, seq, &own, &theirs, count) {
                    return Reason::Skipped(deed(&theirs, peer, count, Alternatives::LessLikely));
                }
                let round = began_again(job, group, seq, own_call, their_call);
                // It makes the others' call behind less than a round: that call is only late.
                if count > 1 && round.is_some_and(|round| round <= count) {
                    return Reason::Skipped(deed(&theirs, peer, 1, Alternatives::LessLikely));
                }
                // One of nothing ends at once, and lets its rank go on to the next.
                if count == 1 && is_empty_one(own_call, their_call) {
                    return Reason::Other;
                }
                // Without lines a rank that is a round ahead has made the same.
                let before = || calls_before(job, group, seq);
                let ahead = own_call.call.stack.is_empty()
                    && before().iter().any(|record| alike(record, own_call));
                let alternatives = if ahead { Alternatives::LessLikely } else { alternatives };
                return Reason::Extra(deed(&own, rank, count, alternatives));
            }
            Edit::Swapped => {
                let second = theirs.get(1).copied().unwrap_or(their_call);
                let other = (second.call.op.clone(), line_of(job.log, peer, second));
                // Where nothing is seen behind them, it may have left the first out, and made it again a
                // round later.
                let later = found.matched <= 2 && may_follow(job, group, seq, own_call, their_call);
                let alternatives =
                    if later { Alternatives::LessLikely } else { Alternatives::None };
                return Reason::Swapped(Deed {
                    other: Some(other),
                    ..deed(&theirs, peer, 1, alternatives)
                });
            }
            // The others' calls go on as its own do: this one differs, and nothing else.
            Edit::Replaced if found.only && found.matched > 1 => return Reason::Replaced,
            Edit::Replaced => {}
        }
    }
    if let Some((own, theirs)) = &parted
        && let (Some(first), Some(their_first)) = (own.first(), theirs.first())
        && first.seq.is_some_and(|first| first < seq)
        && only_here(job, group, rank, first, their_first)
    {
        return Reason::Extra(deed(own, rank, 1, Alternatives::LessLikely));
    }
    if goes_on(job, group, seq, their_call, own_call) {
        // Its call comes next as it always has, and the others' does not: it left nothing out.
        if continues(job, group, seq, own_call)
            && (!continues(job, group, seq, their_call)
                || comes_next(job, group, seq, own_call, their_call))
        {
            return Reason::Extra(deed(&own, rank, 1, Alternatives::LessLikely));
        }
        return Reason::Skipped(deed(&theirs, peer, 1, Alternatives::LessLikely));
    }
    if difference == Difference::Size
        && let Some(count) = next_in_progression(job, group, seq, peer, own_call)
    {
        return Reason::Skipped(deed(&theirs, peer, count, Alternatives::LessLikely));
    }
    if let Some(count) = ahead(job, group, seq, their_call, own_call) {
        return Reason::Skipped(deed(&theirs, peer, count, Alternatives::LessLikely));
    }
    let swapped = || {
        let other = Some((own_call.call.op.clone(), line_of(job.log, rank, own_call)));
        Reason::Swapped(Deed { other, ..deed(&theirs, peer, 1, Alternatives::LessLikely) })
    };
    let last = own.len() == 1 && theirs.len() == 1 && own_call.call.op != "barrier";
    if last && difference == Difference::Op && made_early(job, group, seq, own_call, their_call) {
        return swapped();
    }
    if only_here(job, group, rank, own_call, their_call) {
        return Reason::Extra(deed(&own, rank, 1, Alternatives::LessLikely));
    }
    if let Some(reason) = left_loop(job, group, seq, rank, own_call, their_call) {
        return reason;
    }
    let left = went_around(job, group, seq, rank, own_call, their_call)
        .or_else(|| left_inner(job, group, seq, own_call, their_call));
    if let Some(reason) = left {
        return reason;
    }
    // The same the other way round: the others have left it.
    if let Some(Reason::LeftLoop { ddp, .. }) =
        left_loop(job, group, seq, peer, their_call, own_call)
            .or_else(|| left_inner(job, group, seq, their_call, own_call))
    {
        return Reason::StayedInLoop { ddp };
    }
    if !of_one_size(own_call, their_call) && strays(job, group, rank, own_call, their_call) {
        return Reason::Extra(deed(&own, rank, 1, Alternatives::LessLikely));
    }
    if difference != Difference::Op || own_call.call.payload() == their_call.call.payload() {
        return Reason::Other;
    }
    // Made here for the first time, in place of one that is made again and again: it is this call
    // that is new, and nothing says that the other one comes behind it.
    let known = |record: &CallRecord| {
        let rows = job.rows_of(group);
        let before = rows.get(..rows.partition_point(|row| row.seq < seq)).unwrap_or_default();
        before.iter().flat_map(|row| &row.made).any(|made| alike(made.record, record))
    };
    if known(their_call) && !known(own_call) {
        return Reason::Other;
    }
    if began_again(job, group, seq, own_call, their_call).is_some() {
        return Reason::Skipped(deed(&theirs, peer, 1, Alternatives::LessLikely));
    }
    if [own_call, their_call].iter().any(|record| record.call.op == "barrier") {
        return Reason::Other;
    }
    // Two different calls on two different tensors: both belong to the program, and nobody is
    // known to have got further.
    swapped()
}

/// True of the others' call from the others' line, but on no elements.
fn is_empty_one(own: &CallRecord, theirs: &CallRecord) -> bool {
    let (a, b) = (&own.call, &theirs.call);
    let same = a.op == b.op && a.stack == b.stack && a.op != "barrier";
    same && a.payload() == 0 && b.payload() > 0
}

/// The deviation in the plan of a rank that never came to a call in which `peer` waits.
pub(crate) fn from_plan_of(
    job: &Job<'_>,
    group: GroupId,
    rank: GlobalRank,
    peer: GlobalRank,
) -> Reason {
    let plan = job.log.plan.as_ref();
    let diff = plan.and_then(|plan| plan_diff(plan, job.roles(), group, rank, peer));
    diff.map_or(Reason::Other, from_plan)
}

fn from_plan(diff: PlanDiff) -> Reason {
    let deed = |place: crate::facts::plan_diff::Place| Deed {
        op: place.op,
        part_of: place.part_of,
        seq: place.seq,
        last_seq: place.last_seq,
        pause: None,
        count: place.count,
        line: place.line,
        other: place.other,
        ddp: place.ddp,
        alternatives: Alternatives::None,
        planned: true,
    };
    match diff {
        PlanDiff::Skips(place) if place.rounds => {
            Reason::LeftLoop { ddp: place.ddp, rounds: None, short_by: Some(place.count) }
        }
        PlanDiff::Skips(place) if place.ddp && place.bare => Reason::Unused(deed(place)),
        PlanDiff::Skips(place) => Reason::Skipped(deed(place)),
        PlanDiff::Adds(place) => Reason::Extra(deed(place)),
        PlanDiff::Swaps(place) => Reason::Swapped(deed(place)),
    }
}

/// True of calls on as many elements, such as an all_gather to as many as an all_reduce has.
fn of_one_size(a: &CallRecord, b: &CallRecord) -> bool {
    let elements = |record: &CallRecord| {
        let sum = |tensors: &[TensorShape]| tensors.iter().map(TensorShape::numel).sum::<u64>();
        sum(&record.call.inputs).max(sum(&record.call.outputs))
    };
    a.call.payload() == b.call.payload() || elements(a) == elements(b)
}

/// The deviation of a rank after the first difference, in words: `left out all_reduce #12
/// (train.py:5)`.
pub(crate) fn further(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    rank: GlobalRank,
    peer: GlobalRank,
) -> Vec<String> {
    /// More than this is no help.
    const SHOWN: usize = 4;
    if job.log.plan.is_some() {
        return Vec::new();
    }
    let own: Vec<_> = job.calls_from(group, rank, seq).take(WINDOW).collect();
    let theirs: Vec<_> = job.calls_from(group, peer, seq).take(WINDOW).collect();
    let edits = align(&own, &theirs).map(|found| found.edits).unwrap_or_default();
    let named = |calls: &[&CallRecord], at: usize, of: GlobalRank| {
        let record = calls.get(at).copied();
        let made = record.map(|record| {
            let number = record.seq.map(|seq| format!(" #{seq}")).unwrap_or_default();
            format!("{}{number}{}", record.call.op, at_line(line_of(job.log, of, record)))
        });
        made.unwrap_or_default()
    };
    let more = |count: usize| match count {
        0 | 1 => String::new(),
        _ => format!(" and {} more", count - 1),
    };
    let words = edits.iter().skip(1).take(SHOWN).map(|place| match place.edit {
        Edit::Skipped { count } => {
            format!("left out {}{}", named(&theirs, place.theirs, peer), more(count))
        }
        Edit::Extra { count } => {
            format!("made {}{} on top", named(&own, place.own, rank), more(count))
        }
        Edit::Swapped => format!(
            "made {} before {}",
            named(&own, place.own, rank),
            named(&own, place.own + 1, rank)
        ),
        Edit::Replaced => format!(
            "made {} where the others make {}",
            named(&own, place.own, rank),
            named(&theirs, place.theirs, peer)
        ),
    });
    words.collect()
}
