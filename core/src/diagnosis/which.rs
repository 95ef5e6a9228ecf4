//! Which of several calls that are all alike a rank left out. Where nothing lies between them their order
//! cannot tell; times can: a loop that goes round without its call comes to the next one a round late.

use super::explain::{Deed, Reason, alike};
use super::index::{Job, Made, Row};
use super::report::Certainty;
use super::words::{duration, ranks};
use crate::group::GroupId;
use crate::rank::GlobalRank;
use crate::trace::CallRecord;

/// At least so many pauses that are alike show what is usual.
const USUAL: usize = 4;

/// The pause in which a rank left its call out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    /// The number that the call would have had, which its next one has.
    pub(super) seq: u64,
    rank: GlobalRank,
    pause_ps: u64,
    usual_ps: u64,
}

impl Pause {
    /// `2.00 ms passed on rank 2 before its own #6, where 1.00 ms is usual`.
    pub(super) fn said(&self) -> String {
        format!(
            "{} passed on {} before its own #{}, where {} is usual",
            duration(self.pause_ps),
            ranks(&[self.rank]),
            self.seq,
            duration(self.usual_ps)
        )
    }
}

/// A call left out, as the one of those like it whose pause shows it: `model` made them all, one behind the
/// other, and is missed by the others at number `missed`. Whoever seems to have left their loop a round early may have left one out as well.
pub(super) fn by_times(
    job: &Job<'_>,
    (group, missed): (GroupId, u64),
    rank: GlobalRank,
    model: GlobalRank,
    why: &Reason,
) -> Option<Deed> {
    if job.log.plan.is_some() {
        return None;
    }
    let (seq, certainty) = match why {
        Reason::Skipped(deed) if deed.count == 1 => (deed.seq, deed.certainty),
        Reason::LeftLoop { short_by: None | Some(1), .. } => (missed, Certainty::Likely),
        // What is behind the loop on one rank looks as if it were on top.
        Reason::Extra(deed)
            if deed.seq == missed && deed.count == 1 && is_last(job, group, rank, missed) =>
        {
            (missed, Certainty::Likely)
        }
        _ => return None,
    };
    let first = unbroken_since(job, group, model, seq)?;
    let pause = pause(job, group, rank, model, first, seq);
    let call = job.calls_from(group, model, seq).next().filter(|call| call.seq == Some(seq))?;
    let deed = Deed { seq: first, last_seq: seq, pause, certainty, ..Deed::of(job, call, model) };
    (pause.is_some() || matches!(why, Reason::Skipped(_))).then_some(deed)
}

/// True if a rank made no call behind number `seq` of a group, in any group.
fn is_last(job: &Job<'_>, group: GroupId, rank: GlobalRank, seq: u64) -> bool {
    let last = job.rank(rank).and_then(|own| own.calls.last());
    last.is_some_and(|last| last.call.group == group && last.seq == Some(seq))
}

/// What else may be of ranks that never came to the call of a row, which `made` made, and that stand behind
/// calls like it from number `from` on.
pub(super) fn or_left_out(
    job: &Job<'_>,
    row: &Row<'_>,
    culprits: &[GlobalRank],
    made: Made<'_>,
    from: u64,
) -> String {
    let (it, is) = if culprits.len() == 1 { ("it", "is") } else { ("they", "are") };
    let pause = match culprits {
        [rank] => pause(job, row.group, *rank, made.rank, from, row.seq),
        _ => None,
    };
    let tells = match pause {
        Some(pause) => format!("its times speak for #{}, left out: {}", pause.seq, pause.said()),
        None => "the recording cannot tell".to_owned(),
    };
    format!(
        " Or {it} left out one of #{from} to #{}, which are all alike, or had a batch fewer, and {is} past \
         the loop: {tells}.",
        row.seq
    )
}

/// The first of the calls that a rank made one behind the other, all alike, up to number `seq`.
pub(super) fn unbroken_since(
    job: &Job<'_>,
    group: GroupId,
    model: GlobalRank,
    seq: u64,
) -> Option<u64> {
    let calls = &job.rank(model)?.calls;
    let at = calls.iter().rposition(|it| it.call.group == group && it.seq == Some(seq))?;
    let last = calls.get(at)?;
    let before = calls.get(..=at)?.iter().rev();
    before
        .take_while(|it| {
            it.call.group == group && it.call.stack == last.call.stack && alike(it, last)
        })
        .last()?
        .seq
}

/// The one pause among a rank's calls from number `first` up to before `last` that is as long as two, that
/// `model` did not make, and beside which the loop went round evenly.
pub(super) fn pause(
    job: &Job<'_>,
    group: GroupId,
    rank: GlobalRank,
    model: GlobalRank,
    first: u64,
    last: u64,
) -> Option<Pause> {
    // A device comes to its calls later than the process that makes them.
    let created = |record: &CallRecord| Some(record.scheduled_ps);
    let started = |record: &CallRecord| record.started_ps;
    [created as At, started].into_iter().find_map(|at| {
        let of = |rank| pauses(job.calls_from(group, rank, first), last, at);
        let (own, theirs) = (of(rank), of(model));
        let (usual_ps, their_usual_ps) = (median(&own)?, median(&theirs)?);
        let even = |pause_ps: u64, usual_ps: u64| pause_ps.abs_diff(usual_ps) <= usual_ps / 4;
        // At a step that is slow on all nobody leaves a call out.
        let theirs_too = |seq: u64| {
            let at = theirs.iter().find(|(number, _)| *number == seq);
            at.is_none_or(|(_, pause_ps)| !even(*pause_ps, their_usual_ps))
        };
        let uneven = own.iter().filter(|(_, pause_ps)| !even(*pause_ps, usual_ps));
        let evenly = own.len() - uneven.clone().count();
        let mut alone = uneven.filter(|(seq, _)| !theirs_too(*seq));
        let (Some((seq, pause_ps)), None) = (alone.next(), alone.next()) else { return None };
        let told = evenly >= USUAL && evenly * 3 >= own.len() * 2 && even(pause_ps / 2, usual_ps);
        told.then_some(Pause { seq: *seq, rank, pause_ps: *pause_ps, usual_ps })
    })
}

/// When a call was made, or begun.
type At = fn(&CallRecord) -> Option<u64>;

/// How long after the call before each call came, by its number.
fn pauses<'a>(calls: impl Iterator<Item = &'a CallRecord>, last: u64, at: At) -> Vec<(u64, u64)> {
    let before = calls.take_while(|record| record.seq.is_some_and(|seq| seq < last));
    let calls: Vec<&CallRecord> = before.collect();
    let pairs = calls.windows(2).filter_map(|pair| match pair {
        [a, b] => Some((b.seq?, at(b)?.saturating_sub(at(a)?))),
        _ => None,
    });
    pairs.collect()
}

/// The pause in the middle; `None` of none, or where calls have no times.
fn median(pauses: &[(u64, u64)]) -> Option<u64> {
    let mut lengths: Vec<u64> = pauses.iter().map(|(_, pause_ps)| *pause_ps).collect();
    lengths.sort_unstable();
    let usual_ps = *lengths.get(lengths.len() / 2)?;
    (usual_ps > 0).then_some(usual_ps)
}
