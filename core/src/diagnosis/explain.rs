//! Why a rank's call differs from the majority's: skipped, extra, swapped, a loop left early, or
//! simply another call.
//!
//! In order of trust: the plan, where there is one; the calls that follow on both sides, which
//! shift against each other; the calls before, which show what follows what; and the lines.

use super::index::Job;
use super::plan_diff::{PlanDiff, plan_diff};
use super::report::Certainty;
use super::signature::{Difference, Signature, payload};
use super::words::line_of;
use crate::group::GroupId;
use crate::rank::GlobalRank;
use crate::trace::{CallRecord, Frame};

/// At most this many calls are looked at on either side of a difference.
const WINDOW: usize = 256;

/// What a rank did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// It left out `count` calls.
    Skipped(Deed),
    /// Its DDP model's backward pass ran, and did not reduce all of its gradients.
    Unused(Deed),
    /// It made `count` calls of its own.
    Extra(Deed),
    /// It made two calls in the other order.
    Swapped(Deed),
    /// It left a loop that the others are still in.
    LeftLoop {
        /// True if the loop is one of DDP's training steps.
        ddp: bool,
        /// How often it made the call in which the others wait, if that is known.
        rounds: Option<usize>,
        /// How many calls of the loop it left out, if that is known.
        short_by: Option<usize>,
    },
    /// It called something else.
    Other,
}

/// Calls left out, added or swapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Deed {
    /// The first of them.
    pub(super) op: String,
    /// Its number in the group.
    pub(super) seq: u64,
    /// The last number that it could have as well.
    pub(super) last_seq: u64,
    /// How many.
    pub(super) count: usize,
    /// Its line.
    pub(super) line: Option<String>,
    /// For swaps, the second call.
    pub(super) other: Option<(String, Option<String>)>,
    /// True if DDP makes the calls by itself.
    pub(super) ddp: bool,
    /// How sure.
    pub(super) certainty: Certainty,
}

/// Why `rank` called something else than `peer`, one of the majority, at `seq` of `group`.
pub(super) fn reason(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    rank: GlobalRank,
    peer: GlobalRank,
    difference: Difference,
) -> Reason {
    if let Some(plan) = &job.log.plan {
        return plan_diff(plan, group, rank, peer).map_or(Reason::Other, from_plan);
    }
    let own: Vec<_> = job.calls_from(group, rank, seq).take(WINDOW).collect();
    let theirs: Vec<_> = job.calls_from(group, peer, seq).take(WINDOW).collect();
    let (Some(own_call), Some(their_call)) = (own.first(), theirs.first()) else {
        return Reason::Other;
    };
    let deed = |calls: &[&CallRecord], of: GlobalRank, count: usize, certainty: Certainty| {
        let first = calls.first();
        Deed {
            op: first.map(|record| record.call.op.clone()).unwrap_or_default(),
            seq,
            last_seq: seq,
            count,
            line: first.and_then(|record| line_of(job.log, of, record)),
            other: None,
            ddp: first.is_some_and(|record| is_ddp(&record.call.stack)),
            certainty,
        }
    };
    if let ([own_1, own_2, ..], [their_1, their_2, ..]) = (own.as_slice(), theirs.as_slice())
        && alike(own_1, their_2)
        && alike(own_2, their_1)
    {
        let other = (their_2.call.op.clone(), line_of(job.log, peer, their_2));
        return Reason::Swapped(Deed {
            other: Some(other),
            ..deed(&theirs, peer, 1, Certainty::Certain)
        });
    }
    if let Some((count, matched)) = shift(&own, &theirs) {
        return Reason::Skipped(deed(&theirs, peer, count, sure(matched)));
    }
    if let Some((count, matched)) = shift(&theirs, &own) {
        return Reason::Extra(deed(&own, rank, count, sure(matched)));
    }
    if follows(job, group, seq, their_call, own_call) {
        return Reason::Skipped(deed(&theirs, peer, 1, Certainty::Likely));
    }
    if difference == Difference::Size
        && let Some(count) = next_in_progression(job, group, seq, peer, own_call)
    {
        return Reason::Skipped(deed(&theirs, peer, count, Certainty::Likely));
    }
    if only_here(job, group, rank, own_call, their_call) {
        return Reason::Extra(deed(&own, rank, 1, Certainty::Likely));
    }
    if let Some(reason) = left_loop(job, group, seq, rank, own_call, their_call) {
        return reason;
    }
    if difference != Difference::Op || payload(&own_call.call) == payload(&their_call.call) {
        return Reason::Other;
    }
    if [own_call, their_call].iter().any(|record| record.call.op == "barrier") {
        return Reason::Other;
    }
    // Two different calls on two different tensors: both belong to the program, and nobody is
    // known to have got further.
    let other = Some((own_call.call.op.clone(), line_of(job.log, rank, own_call)));
    Reason::Swapped(Deed { other, ..deed(&theirs, peer, 1, Certainty::Likely) })
}

/// What the plan says of a rank that never came to a call in which `peer` waits.
pub(super) fn from_plan_of(
    job: &Job<'_>,
    group: GroupId,
    rank: GlobalRank,
    peer: GlobalRank,
) -> Reason {
    let plan = job.log.plan.as_ref();
    let diff = plan.and_then(|plan| plan_diff(plan, group, rank, peer));
    diff.map_or(Reason::Other, from_plan)
}

/// Where the lines of a rank that never came to a call show that it left out an earlier one of the
/// same size; the calls of `rank` fall short of those of `peer` by one at `seq`.
pub(super) fn skipped_by_lines(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    rank: GlobalRank,
    peer: GlobalRank,
) -> Reason {
    let rows = job.rows_of(group);
    let to = rows.partition_point(|row| row.seq < seq);
    let rows = rows.get(to.saturating_sub(WINDOW)..to).unwrap_or_default();
    let both =
        rows.iter().filter_map(|row| Some((row.of(rank)?.record, row.of(peer)?.record, row.seq)));
    let both: Vec<_> = both.collect();
    let differs = both.iter().position(|(own, their, _)| {
        !own.call.stack.is_empty()
            && !their.call.stack.is_empty()
            && own.call.stack != their.call.stack
    });
    let Some(rest) = differs.and_then(|at| both.get(at..)) else { return Reason::Other };
    let (own, mut theirs): (Vec<_>, Vec<_>) =
        rest.iter().map(|(own, their, _)| (*own, *their)).unzip();
    theirs.extend(job.calls_from(group, peer, seq).take(WINDOW));
    let same_line = |a: &&CallRecord, b: &&CallRecord| a.call.stack == b.call.stack;
    for count in 1..=8usize {
        let Some(shifted) = theirs.get(count..) else { break };
        let matched = own.iter().zip(shifted).filter(|(a, b)| same_line(a, b)).count();
        if matched == own.len() && matched > 0 {
            let Some((_, their, seq)) = rest.first() else { break };
            let deed = Deed {
                op: their.call.op.clone(),
                seq: *seq,
                last_seq: *seq,
                count,
                line: line_of(job.log, peer, their),
                other: None,
                ddp: is_ddp(&their.call.stack),
                certainty: sure(matched),
            };
            return Reason::Skipped(deed);
        }
    }
    Reason::Other
}

fn from_plan(diff: PlanDiff) -> Reason {
    let deed = |place: super::plan_diff::Place| Deed {
        op: place.op,
        seq: place.seq,
        last_seq: place.last_seq,
        count: place.count,
        line: place.line,
        other: place.other,
        ddp: place.ddp,
        certainty: Certainty::Certain,
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

fn sure(matched: usize) -> Certainty {
    if matched > 1 { Certainty::Certain } else { Certainty::Likely }
}

fn alike(a: &CallRecord, b: &CallRecord) -> bool {
    Signature::of(&a.call).difference(&Signature::of(&b.call)).is_none()
}

/// The smallest number of calls that, left out of `longer`, make `shorter` match it as far as both
/// go; and how many calls then match.
fn shift(shorter: &[&CallRecord], longer: &[&CallRecord]) -> Option<(usize, usize)> {
    (1..longer.len().min(9)).find_map(|count| {
        let rest = longer.get(count..)?;
        let matched = shorter.iter().zip(rest).take_while(|(a, b)| alike(a, b)).count();
        (matched > 0 && matched == shorter.len().min(rest.len())).then_some((count, matched))
    })
}

/// True if `second` has followed `first` before in the group, on any rank.
fn follows(
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

/// How many steps ahead of the majority a size is, where the sizes of the calls before it grow or
/// shrink evenly, as those of layers do.
fn next_in_progression(
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
    let sizes: Vec<u64> = back.filter(same_op).map(|record| payload(&record.call)).collect();
    let [now, before, first] = sizes.as_slice() else { return None };
    let ahead = payload(&own.call);
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

/// True of the first rank of a group in a call from a line that no other rank has called from: what
/// stands behind `if rank == 0:`, such as logging or a checkpoint, is the likeliest reason. (DDP's
/// loop is left for other reasons as well.)
fn only_here(
    job: &Job<'_>,
    group: GroupId,
    rank: GlobalRank,
    own: &CallRecord,
    theirs: &CallRecord,
) -> bool {
    let first = job.group(group).and_then(|group| group.ranks().iter().min().copied());
    let (own, theirs) = (&own.call.stack, &theirs.call.stack);
    if first != Some(rank) || own.is_empty() || own == theirs {
        return false;
    }
    let others = job.rows_of(group).iter().flat_map(|row| &row.made);
    let mut others = others.filter(|made| made.rank != rank);
    (is_ddp(own) || !is_ddp(theirs)) && others.all(|made| made.record.call.stack != *own)
}

/// True of a rank that made the others' call before, again and again, and now makes one from a
/// place that nobody has been at before, behind the loop.
fn left_loop(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    rank: GlobalRank,
    own: &CallRecord,
    theirs: &CallRecord,
) -> Option<Reason> {
    let place = |a: &CallRecord, b: &CallRecord| {
        if a.call.stack.is_empty() || b.call.stack.is_empty() {
            alike(a, b)
        } else {
            a.call.stack == b.call.stack
        }
    };
    let rows = job.rows_of(group);
    let to = rows.partition_point(|row| row.seq < seq);
    let before = rows.get(..to).unwrap_or_default();
    let been_there = before.iter().flat_map(|row| &row.made).any(|made| place(made.record, own));
    let made_before = before.iter().filter_map(|row| row.of(rank));
    let rounds =
        made_before.filter(|made| place(made.record, theirs) && alike(made.record, theirs)).count();
    if been_there || rounds < 2 {
        return None;
    }
    let ddp = is_ddp(&theirs.call.stack) && !is_ddp(&own.call.stack);
    let later = match is_later(&own.call.stack, &theirs.call.stack) {
        Some(later) => later,
        None => own.call.op == "barrier",
    };
    later.then_some(Reason::LeftLoop { ddp, rounds: Some(rounds), short_by: None })
}

/// The first of the calls up to `seq` in which the rank's are all alike, from one line: any of them
/// may be the one that it left out.
pub(super) fn alike_since(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    rank: GlobalRank,
) -> Option<u64> {
    let rows = job.rows_of(group);
    let to = rows.partition_point(|row| row.seq < seq);
    let next = rows.get(to)?.made.first()?.record;
    let before = rows.get(to.saturating_sub(WINDOW)..to)?.iter().rev();
    let same = |row: &&super::index::Row<'_>| {
        row.of(rank)
            .is_some_and(|own| alike(own.record, next) && own.record.call.stack == next.call.stack)
    };
    before.take_while(same).last().map(|row| row.seq)
}

/// True if a call comes straight from DDP's reducer, in a backward pass.
pub(super) fn is_ddp_bucket(stack: &[Frame]) -> bool {
    stack.first().is_some_and(|frame| frame.function == "_engine_run_backward")
}

/// True if one of the functions that made the call has this name.
pub(super) fn is_within(stack: &[Frame], function: &str) -> bool {
    stack.iter().any(|frame| frame.function == function)
}

/// True if the stack is one of DDP's: its forward, or the backward that reduces its buckets.
pub(super) fn is_ddp(stack: &[Frame]) -> bool {
    let in_file = |frame: &Frame, file: &str| frame.file.replace('\\', "/").ends_with(file);
    stack.iter().any(|frame| {
        in_file(frame, "torch/nn/parallel/distributed.py")
            || (frame.function == "_engine_run_backward"
                && in_file(frame, "torch/autograd/graph.py"))
    })
}

/// Whether `a` is called further down than `b` in the function that both are called from; `None`
/// if the stacks do not tell.
fn is_later(a: &[Frame], b: &[Frame]) -> Option<bool> {
    let mut outer = a.iter().rev().zip(b.iter().rev());
    let (a, b) = outer.find(|(a, b)| a != b)?;
    (a.file == b.file && a.function == b.function).then_some(a.line > b.line)
}
