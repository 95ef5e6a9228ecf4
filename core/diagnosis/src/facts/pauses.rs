//! Finds which of several equal calls a rank left out. Their order cannot tell, but their times can: a
//! loop that leaves its call out makes its next one a whole iteration late.

use crate::facts::alternatives::Alternatives;
use crate::facts::deed::{Deed, Pause, Reason};
use crate::facts::edit_distance::WINDOW;
use crate::model::calls::alike;
use crate::model::index::{Job, Row};
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallRecord;
use std::collections::BTreeMap;

/// So many others are asked whether they made a pause as well.
const ASKED: usize = 16;
/// At least so many pauses that are alike show what is usual.
const USUAL: usize = 4;

/// A call left out, as the one of those like it whose pause shows it: `model` made them all, one behind
/// the other, up to number `missed`, which the rank lacks. Whoever seems to have left a loop a round early
/// may have left one out as well.
pub(crate) fn by_times(
    job: &Job<'_>,
    (group, missed): (GroupId, u64),
    rank: GlobalRank,
    model: GlobalRank,
    why: &Reason,
) -> Option<Deed> {
    if job.log.plan.is_some() {
        return None;
    }
    let (seq, alternatives) = match why {
        Reason::Skipped(deed) if deed.count == 1 => (deed.seq, deed.alternatives),
        Reason::LeftLoop { short_by: None | Some(1), .. } => (missed, Alternatives::LessLikely),
        // Calls behind the loop on one rank look like extra ones.
        Reason::Extra(deed)
            if deed.seq == missed && deed.count == 1 && is_last(job, group, rank, missed) =>
        {
            (missed, Alternatives::LessLikely)
        }
        _ => return None,
    };
    let first = unbroken_since(job, group, model, seq)?;
    let pause = pause(job, group, rank, first, seq);
    let call = job.calls_from(group, model, seq).next().filter(|call| call.seq == Some(seq))?;
    let deed =
        Deed { seq: first, last_seq: seq, pause, alternatives, ..Deed::of(job, call, model) };
    (pause.is_some() || matches!(why, Reason::Skipped(_))).then_some(deed)
}

/// True if a rank made no call behind number `seq` of a group, in any group.
fn is_last(job: &Job<'_>, group: GroupId, rank: GlobalRank, seq: u64) -> bool {
    let last = job.rank(rank).and_then(|own| own.calls.last());
    last.is_some_and(|last| last.call.group == group && last.seq == Some(seq))
}

/// Other readings of ranks that never came to the call of a row, and that stand behind calls like it from
/// number `from` on.
pub(crate) fn or_left_out(
    job: &Job<'_>,
    row: &Row<'_>,
    culprits: &[GlobalRank],
    from: u64,
) -> String {
    let (it, is) = if culprits.len() == 1 { ("it", "is") } else { ("they", "are") };
    let pause = match culprits {
        [rank] => pause(job, row.group, *rank, from, row.seq),
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
pub(crate) fn unbroken_since(
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
/// nobody else made, and beside which the loop went round evenly.
pub(crate) fn pause(
    job: &Job<'_>,
    group: GroupId,
    rank: GlobalRank,
    first: u64,
    last: u64,
) -> Option<Pause> {
    // A device comes to its calls later than the process that makes them.
    let created = |record: &CallRecord| Some(record.scheduled_ps);
    let started = |record: &CallRecord| record.started_ps;
    let first = first.max(last.saturating_sub(WINDOW as u64));
    [created as At, started].into_iter().find_map(|at| {
        let of = |rank| Pauses::of(job.calls_from(group, rank, first), last, at);
        let own = of(rank)?;
        let members = job.group(group)?.ranks().iter().filter(|member| **member != rank);
        let others: Vec<Pauses> = members.filter_map(|member| of(*member)).take(ASKED).collect();
        // Whoever waits for one that is slow at a step, or is slow with all, leaves nothing out.
        let nobody_else = |seq: u64| others.iter().all(|other| other.is_even(seq) != Some(false));
        let usual_ps = own.usual_ps;
        let uneven = own.before.iter().filter(|(seq, _)| own.is_even(**seq) == Some(false));
        let evenly = own.before.len() - uneven.clone().count();
        let mut alone = uneven.filter(|(seq, _)| !others.is_empty() && nobody_else(**seq));
        let (Some((seq, pause_ps)), None) = (alone.next(), alone.next()) else { return None };
        let twice = is_near(pause_ps / 2, usual_ps);
        let told = twice && evenly >= USUAL && evenly * 3 >= own.before.len() * 2;
        told.then_some(Pause { seq: *seq, rank, pause_ps: *pause_ps, usual_ps })
    })
}

/// When a call was made, or begun.
type At = fn(&CallRecord) -> Option<u64>;

/// True of lengths that differ by a quarter at most.
fn is_near(pause_ps: u64, usual_ps: u64) -> bool {
    pause_ps.abs_diff(usual_ps) <= usual_ps / 4
}

/// The pauses of a rank: the time between the call before and each call.
struct Pauses {
    /// By the call's number.
    before: BTreeMap<u64, u64>,
    /// The one in the middle.
    usual_ps: u64,
}

impl Pauses {
    /// Those between calls up to before number `last`; `None` where there are none, or no times.
    fn of<'a>(calls: impl Iterator<Item = &'a CallRecord>, last: u64, at: At) -> Option<Pauses> {
        let calls = calls.take_while(|record| record.seq.is_some_and(|seq| seq < last));
        let calls: Vec<&CallRecord> = calls.collect();
        let pairs = calls.windows(2).filter_map(|pair| match pair {
            // A ring may have dropped what is between.
            [a, b] if a.seq?.checked_add(1) == b.seq => {
                Some((b.seq?, at(b)?.saturating_sub(at(a)?)))
            }
            _ => None,
        });
        let before: BTreeMap<u64, u64> = pairs.collect();
        let mut lengths: Vec<u64> = before.values().copied().collect();
        lengths.sort_unstable();
        let usual_ps = *lengths.get(lengths.len() / 2)?;
        (usual_ps > 0).then_some(Pauses { before, usual_ps })
    }

    /// True if the pause before a call was about as long as usual; `None` if the pause is unknown.
    fn is_even(&self, seq: u64) -> Option<bool> {
        self.before.get(&seq).map(|pause_ps| is_near(*pause_ps, self.usual_ps))
    }
}
