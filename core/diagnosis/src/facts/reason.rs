//! The reason that a rank's call differs from the majority's: skipped, extra, swapped, a loop left
//! early, or simply another call.
//!
//! In order of trust: the plan, where there is one; the calls that follow on both sides, which
//! shift against each other; the calls before, which show what follows what; and the lines.

use crate::facts::alternatives::Alternatives;
use crate::facts::call_sites::{began_again, strays};
use crate::facts::ddp_pass::{OnePass, one_pass};
use crate::facts::deed::{Deed, Reason};
use crate::facts::edit_distance::{Alignment, Edit, WINDOW, align};
use crate::facts::history::{
    ahead, calls_before, comes_next, continues, goes_on, made_early, may_follow,
    next_in_progression, next_round,
};
use crate::facts::loops::{left_inner, left_loop, only_here, went_around, whole_rounds};
use crate::facts::plan_diff::{PlanDiff, plan_diff};
use crate::facts::reordering::{reordered, rotated};
use crate::facts::skipped_line::parted;
use crate::model::calls::alike;
use crate::model::ddp_frames::DdpPart;
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
    let Some(sides) = Sides::of(job, group, seq, rank, peer) else { return Reason::Other };
    sides
        .where_lines_part()
        .or_else(|| sides.one_backward_pass())
        .or_else(|| {
            let alignment = align(&sides.own, &sides.theirs);
            sides.other_order(alignment.as_ref()).or_else(|| sides.first_edit(&alignment?))
        })
        .or_else(|| sides.line_of_its_own_before())
        .or_else(|| sides.calls_before(difference))
        .or_else(|| sides.loop_ended())
        .unwrap_or_else(|| sides.two_different_calls(difference))
}

/// The calls of a rank and of one of the majority, from the first in which they differ.
struct Sides<'j, 'a> {
    job: &'j Job<'a>,
    group: GroupId,
    /// The number of the first call that differs.
    seq: u64,
    rank: GlobalRank,
    peer: GlobalRank,
    /// The calls of `rank` from `seq` on.
    own: Vec<&'a CallRecord>,
    /// The calls of `peer` from `seq` on.
    theirs: Vec<&'a CallRecord>,
    own_call: &'a CallRecord,
    their_call: &'a CallRecord,
    /// The calls of both from the first that comes from other lines, if that is before `seq`: calls that
    /// are alike may come from other lines long before two differ.
    from_other_lines: Option<(Vec<&'a CallRecord>, Vec<&'a CallRecord>)>,
}

impl<'j, 'a> Sides<'j, 'a> {
    /// Nothing if one of the two has no call of that number.
    fn of(
        job: &'j Job<'a>,
        group: GroupId,
        seq: u64,
        rank: GlobalRank,
        peer: GlobalRank,
    ) -> Option<Sides<'j, 'a>> {
        let calls = |of| job.calls_from(group, of, seq).take(WINDOW).collect::<Vec<_>>();
        let (own, theirs) = (calls(rank), calls(peer));
        Some(Sides {
            job,
            group,
            seq,
            rank,
            peer,
            own_call: own.first()?,
            their_call: theirs.first()?,
            own,
            theirs,
            from_other_lines: parted(job, group, seq, rank, peer),
        })
    }

    fn deed(&self, first: &CallRecord, of: GlobalRank, count: usize, open: Alternatives) -> Deed {
        Deed { count, alternatives: open, ..Deed::of(self.job, first, of) }
    }

    /// The rank left out `count` of the others' calls, the first of them at `seq`.
    fn skipped(&self, count: usize, open: Alternatives) -> Reason {
        Reason::Skipped(self.deed(self.their_call, self.peer, count, open))
    }

    /// The rank made `count` calls of its own, the first of them at `seq`.
    fn extra(&self, count: usize, open: Alternatives) -> Reason {
        Reason::Extra(self.deed(self.own_call, self.rank, count, open))
    }

    /// The rank made the others' call at `seq` in another order with `other`.
    fn swapped(&self, other: (String, Option<String>), open: Alternatives) -> Reason {
        Reason::Swapped(Deed {
            other: Some(other),
            ..self.deed(self.their_call, self.peer, 1, open)
        })
    }

    /// A call left out or added before `seq`, where the lines of both part although their calls are alike.
    fn where_lines_part(&self) -> Option<Reason> {
        let (own, theirs) = self.from_other_lines.as_ref()?;
        let alignment = align(own, theirs)?;
        let first = alignment.edits.first()?;
        let open = alternatives_of(&alignment);
        let is_before = |call: &&&CallRecord| call.seq.is_some_and(|seq| seq < self.seq);
        match first.edit {
            Edit::Skipped { count } => theirs
                .get(first.theirs)
                .filter(is_before)
                .map(|call| Reason::Skipped(self.deed(call, self.peer, count, open))),
            Edit::Extra { count } => own
                .get(first.own)
                .filter(is_before)
                .map(|call| Reason::Extra(self.deed(call, self.rank, count, open))),
            Edit::Swapped | Edit::Replaced => None,
        }
    }

    /// A backward pass that only one side made. The calls that follow may look like calls on top: a pass
    /// that begins is longer than one that ends.
    fn one_backward_pass(&self) -> Option<Reason> {
        if self.from_other_lines.is_some() {
            return None;
        }
        Some(match one_pass(&self.own, &self.theirs)? {
            OnePass::Theirs(count) => self.skipped(count, Alternatives::LessLikely),
            OnePass::Own(count) => self.extra(count, Alternatives::LessLikely),
        })
    }

    /// The same calls in another order, beyond pairs that are swapped.
    fn other_order(&self, alignment: Option<&Alignment>) -> Option<Reason> {
        let (own, theirs) = (&self.own, &self.theirs);
        let in_pairs = alignment.is_some_and(|found| {
            found.only && found.edits.iter().all(|place| place.edit == Edit::Swapped)
        });
        // In a loop whose last call is followed by its first, a rank that left the first out and is a
        // round ahead made the same calls: but it would not stop where the others do, at the end of a
        // round.
        let rotated = rotated(own, theirs).filter(|found| {
            let last = theirs.get(found.count - 1);
            found.behind > 0
                || (own.len() == found.count && theirs.len() == found.count)
                || last.is_some_and(|last| {
                    !may_follow(self.job, self.group, self.seq, last, self.their_call)
                })
                || calls_before(self.job, self.group, self.seq)
                    .iter()
                    .all(|before| !alike(before, self.their_call))
        });
        let count = rotated.map(|found| found.count).or_else(|| reordered(own, theirs));
        let count = count.filter(|_| !in_pairs)?;
        let orders = in_order(own.get(..count), theirs.get(..count));
        let other = Some((orders, line_of(self.job.log, self.rank, self.own_call)));
        let deed = self.deed(self.their_call, self.peer, count, Alternatives::LessLikely);
        Some(Reason::Swapped(Deed { other, ..deed }))
    }

    /// The first edit that turns the others' calls from `seq` on into the rank's own.
    fn first_edit(&self, alignment: &Alignment) -> Option<Reason> {
        let (job, group, seq) = (self.job, self.group, self.seq);
        match alignment.edits.first()?.edit {
            Edit::Skipped { count } => Some(
                whole_rounds(job, group, seq, self.rank, &self.own, &self.theirs, count)
                    .unwrap_or_else(|| self.skipped(count, alternatives_of(alignment))),
            ),
            Edit::Extra { count } => Some(self.on_top(count, alternatives_of(alignment))),
            Edit::Swapped => {
                let second = self.theirs.get(1).copied().unwrap_or(self.their_call);
                let other = (second.call.op.clone(), line_of(job.log, self.peer, second));
                // With nothing recorded after the two calls, the rank may as well have left the first
                // out, and made it again one iteration later.
                let later = alignment.matched <= 2
                    && may_follow(job, group, seq, self.own_call, self.their_call);
                let open = if later { Alternatives::LessLikely } else { Alternatives::None };
                Some(self.swapped(other, open))
            }
            // The others' calls go on as its own do: this one differs, and nothing else.
            Edit::Replaced if alignment.only && alignment.matched > 1 => Some(Reason::Replaced),
            Edit::Replaced => None,
        }
    }

    /// `count` calls of the rank that none of the others' follow: on top of theirs, or a round later.
    fn on_top(&self, count: usize, open: Alternatives) -> Reason {
        let (job, group, seq) = (self.job, self.group, self.seq);
        if let Some(count) = next_round(job, group, seq, &self.own, &self.theirs, count) {
            return self.skipped(count, Alternatives::LessLikely);
        }
        let round = began_again(job, group, seq, self.own_call, self.their_call);
        // It makes the others' call less than a round later: that call is only late.
        if count > 1 && round.is_some_and(|round| round <= count) {
            return self.skipped(1, Alternatives::LessLikely);
        }
        // A call on no elements ends at once, and lets its rank go on to the next.
        if count == 1 && is_empty_one(self.own_call, self.their_call) {
            return Reason::Other;
        }
        // Without lines a rank that is a round ahead has made the same.
        let is_repeated = || {
            let before = calls_before(job, group, seq);
            before.iter().any(|record| alike(record, self.own_call))
        };
        let ahead = self.own_call.call.stack.is_empty() && is_repeated();
        self.extra(count, if ahead { Alternatives::LessLikely } else { open })
    }

    /// A call on top before `seq` from a line that only this rank has come through.
    fn line_of_its_own_before(&self) -> Option<Reason> {
        let (own, theirs) = self.from_other_lines.as_ref()?;
        let (first, their_first) = (own.first()?, theirs.first()?);
        let before = first.seq.is_some_and(|first| first < self.seq);
        (before && only_here(self.job, self.group, self.rank, first, their_first))
            .then(|| Reason::Extra(self.deed(first, self.rank, 1, Alternatives::LessLikely)))
    }

    /// The reason by the calls before `seq`, which show which call follows which.
    fn calls_before(&self, difference: Difference) -> Option<Reason> {
        let (job, group, seq) = (self.job, self.group, self.seq);
        let (own, theirs) = (self.own_call, self.their_call);
        if goes_on(job, group, seq, theirs, own) {
            // Its call comes next as it always has, and the others' does not: it left nothing out.
            let its_turn = continues(job, group, seq, own)
                && (!continues(job, group, seq, theirs)
                    || comes_next(job, group, seq, own, theirs));
            return Some(match its_turn {
                true => self.extra(1, Alternatives::LessLikely),
                false => self.skipped(1, Alternatives::LessLikely),
            });
        }
        let by_size = (difference == Difference::Size)
            .then(|| next_in_progression(job, group, seq, self.peer, own))
            .flatten();
        if let Some(count) = by_size.or_else(|| ahead(job, group, seq, theirs, own)) {
            return Some(self.skipped(count, Alternatives::LessLikely));
        }
        let last = self.own.len() == 1 && self.theirs.len() == 1 && own.call.op != "barrier";
        (last && difference == Difference::Op && made_early(job, group, seq, own, theirs))
            .then(|| self.swapped_here())
    }

    /// A branch that only this rank took, or a loop that one side has left.
    fn loop_ended(&self) -> Option<Reason> {
        let (job, group, seq) = (self.job, self.group, self.seq);
        let (own, theirs) = (self.own_call, self.their_call);
        if only_here(job, group, self.rank, own, theirs) {
            return Some(self.extra(1, Alternatives::LessLikely));
        }
        let left = left_loop(job, group, seq, self.rank, own, theirs)
            .or_else(|| went_around(job, group, seq, self.rank, own, theirs))
            .or_else(|| left_inner(job, group, seq, own, theirs));
        if left.is_some() {
            return left;
        }
        // The same the other way round: the others have left it.
        let others_left = left_loop(job, group, seq, self.peer, theirs, own)
            .or_else(|| left_inner(job, group, seq, theirs, own));
        if let Some(Reason::LeftLoop { ddp, .. }) = others_left {
            return Some(Reason::StayedInLoop { ddp });
        }
        (!of_one_size(own, theirs) && strays(job, group, self.rank, own, theirs))
            .then(|| self.extra(1, Alternatives::LessLikely))
    }

    /// The reason where only the two calls themselves are left to tell.
    fn two_different_calls(&self, difference: Difference) -> Reason {
        let (job, group, seq) = (self.job, self.group, self.seq);
        let (own, theirs) = (self.own_call, self.their_call);
        if difference != Difference::Op || own.call.payload() == theirs.call.payload() {
            return Reason::Other;
        }
        // Made here for the first time, in place of one that is made again and again: it is this call
        // that is new, and nothing says that the other one comes behind it.
        let known = |record: &CallRecord| {
            let rows = job.rows_of(group);
            let before = rows.get(..rows.partition_point(|row| row.seq < seq)).unwrap_or_default();
            before.iter().flat_map(|row| &row.made).any(|made| alike(made.record, record))
        };
        if known(theirs) && !known(own) {
            return Reason::Other;
        }
        if began_again(job, group, seq, own, theirs).is_some() {
            return self.skipped(1, Alternatives::LessLikely);
        }
        if [own, theirs].iter().any(|record| record.call.op == "barrier") {
            return Reason::Other;
        }
        // Two different calls on two different tensors: both belong to the program, and nobody is
        // known to have got further.
        self.swapped_here()
    }

    /// The rank made its call at `seq` before the others', and they theirs before that.
    fn swapped_here(&self) -> Reason {
        let own = self.own_call;
        let other = (own.call.op.clone(), line_of(self.job.log, self.rank, own));
        self.swapped(other, Alternatives::LessLikely)
    }
}

/// The alternatives that are open against the first edit of an alignment.
fn alternatives_of(alignment: &Alignment) -> Alternatives {
    match alignment.only && alignment.matched > 1 {
        true => Alternatives::None,
        false => Alternatives::LessLikely,
    }
}

/// True if a rank made the others' call from the others' line, but on no elements.
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
    let plan = job.log.plan.as_deref();
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
            Reason::LeftLoop { ddp: place.ddp.is_some(), rounds: None, short_by: Some(place.count) }
        }
        PlanDiff::Skips(place) if place.ddp == Some(DdpPart::Backward) && place.bare => {
            Reason::Unused(deed(place))
        }
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
