//! From which lines ranks call: what only one side calls from somewhere is told as that, and nothing
//! is that the others call from as well.

use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::facts::deed::Deed;
use crate::facts::loops::left_loop;
use crate::facts::other_readings::theirs_to_blame;
use crate::model::calls::alike;
use crate::model::index::{Job, Made, Row};
use crate::words;
use crate::words::line_of;
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallRecord, Called};
use std::collections::BTreeSet;

/// True if ranks other than `who` call something of the group from this line: in their programs, where
/// there is a plan, else as far as was recorded.
pub(crate) fn others_call_from(
    job: &Job<'_>,
    group: GroupId,
    who: &[GlobalRank],
    line: &str,
) -> bool {
    let members = job.group(group).map(|group| group.ranks()).unwrap_or_default();
    let others = || members.iter().copied().filter(|rank| !who.contains(rank));
    if let Some(plan) = &job.log.plan {
        let programs: BTreeSet<u32> =
            others().filter_map(|rank| plan.program_of.get(rank.index()).copied()).collect();
        let programs = programs.iter().filter_map(|program| plan.programs.get(*program as usize));
        let ops = programs.flat_map(|program| &program.ops);
        let of_group = ops.filter(|op| op.action.calls().iter().any(|call| call.group() == group));
        // Calls of a loop stand behind each other: their line is put into words once.
        let mut last = None;
        for at in of_group.filter_map(|op| op.at) {
            if last.replace(at) != Some(at) && plan.describe_line(at) == line {
                return true;
            }
        }
        return false;
    }
    // Recordings share what calls have in common.
    let mut seen: BTreeSet<*const Called> = BTreeSet::new();
    job.rows_of(group).iter().flat_map(|row| &row.made).any(|made| {
        !who.contains(&made.rank)
            && seen.insert(std::sync::Arc::as_ptr(&made.record.call))
            && line_of(job.log, made.rank, made.record).as_deref() == Some(line)
    })
}

/// Another reading of a call that seems to be extra.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherReading {
    /// In the rounds before, it came next on all ranks.
    OthersLeftItOut,
    /// It comes behind a loop in which the others still are.
    LeftLoop,
    /// All ranks make it, later.
    TooEarly,
    /// It stands for the others' call, in a branch of its own.
    InPlace,
}

impl OtherReading {
    /// It in a sentence, with a space before it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::OthersLeftItOut => {
                " In the rounds before it came next for all of them: it may be the others that left it out."
            }
            Self::LeftLoop => {
                " Or it left a loop that the others are still in, or left out a round of it, and that call comes \
                 behind it."
            }
            Self::TooEarly => {
                " Or it is a call that all of them make, made too early: before another, or without it."
            }
            Self::InPlace => {
                " Or it is made in place of the others' call, in a branch that they do not take."
            }
        }
    }
}

/// Other readings of a call that seems to be extra, where a recording does not tell.
pub(crate) fn or_else(
    facts: &Facts<'_, '_>,
    row: &Row<'_>,
    own: Made<'_>,
    theirs: Made<'_>,
    deed: &Deed,
) -> Option<OtherReading> {
    let job = facts.job;
    if job.log.plan.is_some() || deed.alternatives == Alternatives::None || deed.seq != row.seq {
        return None;
    }
    if theirs_to_blame(job, row, own, theirs) {
        return Some(OtherReading::OthersLeftItOut);
    }
    if left_loop(job, row.group, row.seq, own.rank, own.record, theirs.record).is_some() {
        return Some(OtherReading::LeftLoop);
    }
    let rows = job.rows_of(row.group).iter().take_while(|before| before.seq < row.seq);
    let known = |made: &Made<'_>| alike(made.record, own.record);
    match rows.flat_map(|row| &row.made).any(known) {
        true => Some(OtherReading::TooEarly),
        false => (own.record.call.op == theirs.record.call.op).then_some(OtherReading::InPlace),
    }
}

/// ` No other rank of dp calls from there.`, where that is so.
pub(crate) fn nobody_else(
    facts: &Facts<'_, '_>,
    row: &Row<'_>,
    who: &[GlobalRank],
    line: Option<&str>,
) -> String {
    let alone = line.is_some_and(|line| !others_call_from(facts.job, row.group, who, line));
    match alone {
        true => {
            let group = words::group_label(facts.job.log, row.group);
            let calls = if facts.job.log.recorded { "is seen to call" } else { "calls" };
            format!(" No other rank of {group} {calls} from there.")
        }
        false => String::new(),
    }
}

/// As [`nobody_else`], of a recorded call: one through a line that others call from as well, as a
/// helper's, counts where nobody else came to that line the same way.
pub(crate) fn nobody_else_through(
    facts: &Facts<'_, '_>,
    row: &Row<'_>,
    who: &[GlobalRank],
    own: Made<'_>,
) -> String {
    let line = line_of(facts.job.log, own.rank, own.record);
    let only = nobody_else(facts, row, who, line.as_deref());
    let stack = &own.record.call.stack;
    if !only.is_empty() || stack.is_empty() {
        return only;
    }
    let mut made = facts.job.rows_of(row.group).iter().flat_map(|row| &row.made);
    if made.any(|made| !who.contains(&made.rank) && made.record.call.stack == *stack) {
        return only;
    }
    let group = words::group_label(facts.job.log, row.group);
    format!(" No other rank of {group} is seen to come to that line this way.")
}

/// True of a call from a place that no other rank of the group has called from, but those that make
/// it together with this one, while the rank has made the others' call from their place before: it is
/// in the same part of the program, and made a call there that the others do not make.
pub(crate) fn strays(
    job: &Job<'_>,
    group: GroupId,
    rank: GlobalRank,
    own: &CallRecord,
    theirs: &CallRecord,
) -> bool {
    let (stack, usual) = (&own.call.stack, &theirs.call.stack);
    // A barrier stands behind a loop more often than in one.
    if stack.is_empty() || usual.is_empty() || stack == usual || own.call.op == "barrier" {
        return false;
    }
    let all = || job.rows_of(group).iter().flat_map(|row| &row.made);
    let before = |record: &CallRecord| record.seq < own.seq;
    all().all(|made| {
        made.rank == rank || made.record.seq == own.seq || made.record.call.stack != *stack
    }) && all()
        .any(|made| made.rank == rank && before(made.record) && made.record.call.stack == *usual)
}

/// True if two calls come through one statement of a loop's body, in which they take different branches:
/// neither rank has left the loop. The rank has come to that statement before, and to others since.
pub(crate) fn in_one_statement(
    job: &Job<'_>,
    group: GroupId,
    own: &CallRecord,
    theirs: &CallRecord,
    rank: GlobalRank,
) -> bool {
    /// So many of the rank's calls are looked at.
    const LOOKED_AT: usize = 256;
    let (stack, other) = (&own.call.stack, &theirs.call.stack);
    let alike = stack.iter().rev().zip(other.iter().rev()).take_while(|(a, b)| a == b).count();
    let Some(statement) = stack.len().checked_sub(alike).filter(|at| *at > 0) else { return false };
    let Some(through) = stack.get(statement..).filter(|through| !through.is_empty()) else {
        return false;
    };
    let own_before = job.rows_of(group).iter().rev().filter(|row| Some(row.seq) < own.seq);
    let own_before = own_before.filter_map(|row| row.of(rank)).take(LOOKED_AT);
    let came = own_before.map(|made| made.record.call.stack.ends_with(through));
    let since: Vec<bool> = came.collect();
    let elsewhere = since.iter().position(|came| !came);
    elsewhere.is_some_and(|at| since.iter().skip(at).any(|came| *came))
}

/// Of a rank that makes a call which all have made before, where the others make one that nobody has:
/// it may be in the next round of a loop, whose first one the others have not ended. How often the
/// call was made in that.
pub(crate) fn began_again(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    own: &CallRecord,
    theirs: &CallRecord,
) -> Option<usize> {
    let rows = job.rows_of(group);
    let before = rows.get(..rows.partition_point(|row| row.seq < seq)).unwrap_or_default();
    let from = |record: &CallRecord, made: &Made<'_>| {
        made.record.call.stack == record.call.stack && alike(made.record, record)
    };
    let made = |record: &CallRecord| {
        before.iter().flat_map(|row| &row.made).filter(|made| from(record, made)).count()
    };
    let known = !own.call.stack.is_empty() && !theirs.call.stack.is_empty();
    if !known || made(theirs) > 0 || made(own) < 2 {
        return None;
    }
    Some(before.iter().filter(|row| row.made.iter().any(|made| from(own, made))).count())
}
