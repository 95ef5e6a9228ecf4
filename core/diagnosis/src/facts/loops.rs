//! Loops that ranks go through unequally often: left early by one, or with a round left out. Of rounds
//! that are alike nothing tells the one from the other, and what is said names both.

use crate::facts::deed::Reason;
use crate::facts::edit_distance::WINDOW;
use crate::facts::history::{calls_before, continues};
use crate::model::calls::alike;
use crate::model::ddp_frames::{VERIFY, is_ddp, is_within};
use crate::model::index::{Job, Row};
use crate::words::count;
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallSignature;
use lockstep_core::trace::{CallRecord, Frame};
use std::collections::BTreeMap;

/// Said of a loop that is left early: it mostly goes over data.
const UNEVEN: &str = " Where the loop goes over data, a batch fewer is the likeliest reason.";

/// `Rank 2 left its loop after 5 rounds before the others, or left out a round of it: …`
///
/// `told` says that something else tells which of the two it is.
pub(crate) fn left(
    (who, ranks): (&str, &[GlobalRank]),
    ddp: bool,
    rounds: Option<usize>,
    short_by: Option<usize>,
    told: bool,
) -> String {
    let its = if ranks.len() == 1 { "its" } else { "their" };
    let after = rounds.map(|rounds| format!(" after {}", count(rounds, "round")));
    let after = after.unwrap_or_default();
    let alike = if told { "" } else { ": all rounds are alike, so that nothing tells which" };
    match (ddp, short_by) {
        (true, _) => format!(
            "{who} ran out of batches{after} and left {its} DDP training loop before the others, or left \
             out a step of it (a batch skipped, or run under no_sync){alike}."
        ),
        (false, None) => format!(
            "{who} left {its} loop{after} before the others, or left out a round of it{alike}.{UNEVEN}"
        ),
        (false, Some(calls)) => format!(
            "{who} left {its} loop{after} before the others, {} short, or left out as many of it in \
             between{alike}.{UNEVEN}",
            count(calls, "call")
        ),
    }
}

/// `Rank 2 went on with the loop when the others had left it, or …`
///
/// `told` says that something else tells which of the two it is.
pub(crate) fn stayed(who: &str, ddp: bool, told: bool) -> String {
    let what = if ddp { "DDP training loop" } else { "loop" };
    let or = match (told, ddp) {
        (true, _) => "",
        (false, true) => {
            ", or reduced in a step that they leave out or make under no_sync(): nothing tells which"
        }
        (false, false) => {
            ", or made a round more in between, or left out the call that the others make here: nothing \
             tells which"
        }
    };
    format!("{who} went on with the {what} when the others had left it{or}.")
}

/// The same in a few words, where it is not known how many rounds there were.
pub(crate) fn left_out(short_by: Option<usize>) -> String {
    match short_by {
        Some(calls) => format!(", {} short, or left out as many in between", count(calls, "call")),
        None => ", or left out rounds in between".to_owned(),
    }
}

/// The fix of a loop that ends early on some ranks.
pub(crate) fn fix_loop(ddp: bool) -> &'static str {
    if ddp {
        "Give every rank the same number of batches (DistributedSampler, drop_last=True), or wrap \
         the loop in `with model.join():` so that ranks without input shadow the others' \
         all_reduces. A step that one rank makes under no_sync, or leaves out, looks the same."
    } else {
        "Give every rank the same number of rounds: the same number of batches where the loop goes over data, \
         in an evaluation as in training (DistributedSampler, drop_last=True), a number agreed on before the \
         loop, or a flag that is all_reduced. Look for a `continue` or a caught exception as well: a round \
         that one rank leaves out looks the same."
    }
}

/// A rank that left out whole rounds of a loop, and is behind it while the others are still in it.
pub(crate) fn whole_rounds(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    rank: GlobalRank,
    own: &[&CallRecord],
    theirs: &[&CallRecord],
    count: usize,
) -> Option<Reason> {
    let same = |a: &CallRecord, b: &CallRecord| {
        alike(a, b)
            && (a.call.stack.is_empty() || b.call.stack.is_empty() || a.call.stack == b.call.stack)
    };
    let (behind, first) = (theirs.get(count)?, *theirs.first()?);
    // One call of a loop of one: left out, or left early, is the same.
    if count < 2 || same(behind, first) {
        return None;
    }
    let from = seq.saturating_sub(count as u64);
    let before: Vec<&CallRecord> = job
        .calls_from(group, rank, from)
        .take_while(|record| record.seq.is_some_and(|own| own < seq))
        .collect();
    let rounds = (1..=count).find(|period| {
        let earlier = before.len().checked_sub(*period).and_then(|at| before.get(at..));
        count.is_multiple_of(*period)
            && earlier.is_some_and(|earlier| {
                let run = theirs.iter().take(count).zip(earlier.iter().cycle());
                run.fold(true, |all, (their, own)| all && same(their, own))
            })
    });
    let period = rounds?;
    let ddp = is_ddp(&first.call.stack) && own.first().is_some_and(|own| !is_ddp(&own.call.stack));
    let rows = job.rows_of(group);
    let to = rows.partition_point(|row| row.seq < seq);
    let earlier = rows.get(..to)?.iter().filter_map(|row| row.of(rank));
    let made = earlier.filter(|made| same(made.record, first)).count();
    // A round may make the same call several times.
    let each = theirs.iter().take(period).filter(|record| same(record, first)).count();
    let rounds = made.checked_div(each);
    Some(Reason::LeftLoop { ddp, rounds, short_by: Some(count) })
}

/// True of the first rank of a group in a call from a line that no other rank has called from: what
/// stands behind `if rank == 0:`, such as logging or a checkpoint, is the likeliest reason, and it is
/// seldom the first rank whose data end before the others'. Where lines are not recorded, of a call
/// like which nobody has made one since the others' call was first made.
pub(crate) fn only_here(
    job: &Job<'_>,
    group: GroupId,
    rank: GlobalRank,
    own: &CallRecord,
    theirs: &CallRecord,
) -> bool {
    let first = job.group(group).and_then(|group| group.ranks().iter().min().copied());
    let (stack, other) = (&own.call.stack, &theirs.call.stack);
    if first != Some(rank) {
        return false;
    }
    let Some(seq) = own.seq.filter(|_| without_lines(own, theirs)) else {
        let others = job.rows_of(group).iter().flat_map(|row| &row.made);
        let mut others = others.filter(|made| made.rank != rank);
        return !stack.is_empty()
            && stack != other
            && others.all(|made| made.record.call.stack != *stack);
    };
    let alone =
        |row: &Row<'_>| row.made.iter().all(|made| made.rank == rank || !alike(made.record, own));
    let rows = job.rows_of(group);
    let here = rows.get(rows.partition_point(|row| row.seq < seq));
    let since = since_first(job, group, seq, theirs);
    let mut before = since.iter().flat_map(|row| &row.made);
    others_kind(own, theirs)
        && here.is_some_and(alone)
        && !since.is_empty()
        && before.all(|made| !alike(made.record, own))
}

/// True of calls that are hardly one that went wrong: another collective, on tensors of another size.
fn others_kind(own: &CallRecord, theirs: &CallRecord) -> bool {
    own.call.op != theirs.call.op && own.call.payload() != theirs.call.payload()
}

/// True of calls of which no lines are recorded, as in JSON.
fn without_lines(a: &CallRecord, b: &CallRecord) -> bool {
    a.call.stack.is_empty() && b.call.stack.is_empty()
}

/// The rows before `seq` from the first one on in which a call like this was made.
fn since_first<'s, 'a>(
    job: &'s Job<'a>,
    group: GroupId,
    seq: u64,
    record: &CallRecord,
) -> &'s [Row<'a>] {
    let rows = job.rows_of(group);
    let to = rows.partition_point(|row| row.seq < seq);
    let rows = rows.get(to.saturating_sub(WINDOW)..to).unwrap_or_default();
    let first = rows.iter().position(|row| row.made.iter().any(|made| alike(made.record, record)));
    first.and_then(|first| rows.get(first..)).unwrap_or_default()
}

/// True of a rank that made the others' call before, again and again, and now makes one from a
/// place that nobody has been at before, behind the loop; without lines, a call that is none of the
/// loop's.
pub(crate) fn left_loop(
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
    // Without lines a call before the loop may look like the one behind it.
    let bare = without_lines(own, theirs);
    let seen = if bare { since_first(job, group, seq, theirs) } else { before };
    let been_there = seen.iter().flat_map(|row| &row.made).any(|made| place(made.record, own));
    let made_before = before.iter().filter_map(|row| row.of(rank));
    let made_before: Vec<_> = made_before.filter(|made| place(made.record, theirs)).collect();
    let rounds = made_before.iter().filter(|made| alike(made.record, theirs)).count();
    let ddp = is_ddp(&theirs.call.stack) && !is_ddp(&own.call.stack);
    // DDP's buckets are of other sizes after its first step.
    let often = rounds > 1 || (ddp && made_before.len() > 1);
    if been_there || !often {
        return None;
    }
    let later = match is_later(&own.call.stack, &theirs.call.stack) {
        Some(later) => later,
        None => {
            let loops = || others_kind(own, theirs) && continues(job, group, seq, theirs);
            own.call.op == "barrier" || (bare && loops())
        }
    };
    let first = made_before.first().is_some_and(|made| ddp && !alike(made.record, theirs));
    let rounds = (rounds > 1).then_some(rounds + usize::from(first));
    later.then_some(Reason::LeftLoop { ddp, rounds, short_by: None })
}

/// The number of rounds that a rank has made of a loop in which the others still are, where it has
/// gone on to the calls from before the loop: the next round of one around it, as the first epoch's
/// evaluation ends.
pub(crate) fn went_around(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    rank: GlobalRank,
    own: &CallRecord,
    theirs: &CallRecord,
) -> Option<Reason> {
    if own.call.stack.is_empty() || theirs.call.stack.is_empty() {
        return None;
    }
    let rows = job.rows_of(group);
    let before = rows.get(..rows.partition_point(|row| row.seq < seq))?;
    let from = |record: &CallRecord| {
        let at = |row: &&Row<'_>| {
            row.made.iter().any(|made| made.record.call.stack == record.call.stack)
        };
        before.iter().filter(at).map(|row| row.seq).collect::<Vec<u64>>()
    };
    let (outer, inner) = (from(own), from(theirs));
    // The one loop behind the other, each of several rounds.
    let apart = outer.len() > 1 && inner.len() > 1 && outer.last() < inner.first();
    let in_it = apart && continues(job, group, seq, theirs) && !continues(job, group, seq, own);
    let made = before.iter().filter_map(|row| row.of(rank));
    let rounds = made.filter(|made| made.record.call.stack == theirs.call.stack).count();
    let ddp = is_ddp(&theirs.call.stack) && !is_ddp(&own.call.stack);
    (in_it && rounds > 1).then_some(Reason::LeftLoop { ddp, rounds: Some(rounds), short_by: None })
}

/// The number of rounds that a rank has made of a loop of several calls in which the others still
/// are, where it has gone on to the call that came behind such rounds before: the one at the end of
/// an epoch, as after the epoch before.
pub(crate) fn left_inner(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    own: &CallRecord,
    theirs: &CallRecord,
) -> Option<Reason> {
    /// A longer round is no loop's within another.
    const LONGEST: usize = 256;
    let is = |a: &CallRecord, b: &CallRecord| alike(a, b) && a.call.stack == b.call.stack;
    let before = calls_before(job, group, seq);
    let round_to = |to: usize, length: usize| before.get(to.checked_sub(length)?..to);
    // The round begins with the others' call, behind the one that ends it now.
    let last = *before.last()?;
    let length = (2..=LONGEST).take_while(|length| *length < before.len()).find(|length| {
        let begins = round_to(before.len(), length + 1);
        matches!(begins, Some([end, first, ..]) if is(end, last) && is(first, theirs))
    })?;
    let round = round_to(before.len(), length)?;
    let same = |to: usize| {
        let other = round_to(to, length);
        other.is_some_and(|other| other.iter().zip(round).all(|(a, b)| is(a, b)))
    };
    let left_then =
        (length..before.len()).any(|at| before.get(at).is_some_and(|it| is(it, own)) && same(at));
    if !left_then || round.iter().any(|record| is(record, own)) {
        return None;
    }
    let ends = (0..).map_while(|rounds| before.len().checked_sub(rounds * length));
    let rounds = ends.take_while(|to| same(*to)).count();
    let ddp = is_ddp(&theirs.call.stack) && !is_ddp(&own.call.stack);
    Some(Reason::LeftLoop { ddp, rounds: Some(rounds), short_by: None })
}

/// The first of the calls up to `seq` in which the rank's are all alike, from one line: any of them
/// may be the one that it left out.
pub(crate) fn alike_since(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    rank: GlobalRank,
) -> Option<u64> {
    let rows = job.rows_of(group);
    let to = rows.partition_point(|row| row.seq < seq);
    let next = rows.get(to)?.made.first()?.record;
    let before = rows.get(to.saturating_sub(WINDOW)..to)?.iter().rev();
    let same = |row: &&Row<'_>| {
        row.of(rank)
            .is_some_and(|own| alike(own.record, next) && own.record.call.stack == next.call.stack)
    };
    before.take_while(same).last().map(|row| row.seq)
}

/// True if a rank has gone through a round before it made a call: it made two calls that are alike, in one
/// group and from one line. Until then nothing shows what usually comes next. What sets a job up says
/// nothing of its rounds, however often it is called: broadcasts of what a rank has, barriers whose line
/// nobody knows, and what DDP's constructor compares.
pub(crate) fn has_gone_round(job: &Job<'_>, rank: GlobalRank, made: &CallRecord) -> bool {
    let sets_up = |record: &&CallRecord| {
        let (op, stack) = (record.call.op.as_str(), &record.call.stack);
        op == "broadcast" || (op == "barrier" && stack.is_empty()) || is_within(stack, VERIFY)
    };
    let calls = job.rank(rank).map(|log| log.calls.as_slice()).unwrap_or_default();
    let before = calls.iter().take_while(|record| record.work < made.work);
    let mut seen: BTreeMap<(GroupId, CallSignature<'_>), Vec<&[Frame]>> = BTreeMap::new();
    before.filter(|record| !sets_up(record)).any(|record| {
        let lines = seen.entry((record.call.group, CallSignature::of(&record.call))).or_default();
        let again = lines.contains(&&*record.call.stack);
        lines.push(&record.call.stack);
        again
    })
}

/// True if `a` is called further down than `b` in the function that calls both; `None` if the
/// stacks do not tell.
pub(crate) fn is_later(a: &[Frame], b: &[Frame]) -> Option<bool> {
    let mut outer = a.iter().rev().zip(b.iter().rev());
    let (a, b) = outer.find(|(a, b)| a != b)?;
    (a.file == b.file && a.function == b.function).then_some(a.line > b.line)
}
