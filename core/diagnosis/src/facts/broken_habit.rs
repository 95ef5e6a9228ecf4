//! Finds the rank of a deadlock cycle whose group order differs from its own earlier iterations.
//!
//! Of two ranks that wait for each other in two groups' calls no majority decides. But each has been
//! through the loop before: the one whose calls of the two groups have never stood so is the one
//! that goes another way this time.

use crate::facts::program_order::last;
use crate::model::calls::alike;
use crate::model::graph::Sink;
use crate::model::index::Job;
use crate::words;
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallRecord, CallState};
use std::collections::BTreeSet;

/// A rank that took two groups in another order than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) rank: GlobalRank,
    /// The group that it has not come to this time.
    pub(crate) due: GroupId,
    /// The sentence about it.
    pub(crate) said: String,
}

/// The one rank of a circle in two groups that goes another way than it has, if all others of the
/// circle go theirs.
pub(crate) fn broken(job: &Job<'_>, circle: &Sink) -> Option<Broken> {
    let rows: Vec<_> = circle.rows.iter().filter_map(|at| job.rows.get(*at)).collect();
    let groups: BTreeSet<GroupId> = rows.iter().map(|row| row.group).collect();
    let (Some(one), Some(two), 2) = (groups.first(), groups.last(), groups.len()) else {
        return None;
    };
    let of = |group: GroupId| rows.iter().filter(move |row| row.group == group);
    let lacks = |group: &GroupId| of(*group).any(|row| !row.absent.is_empty());
    let mut odd = None;
    for rank in &circle.ranks {
        let waits = |group: &GroupId| {
            of(*group).any(|row| row.of(*rank).is_some_and(|made| made.pending()))
        };
        // On NCCL the calls of one queue behind those of the other: who waits in both is held up in
        // the one that lacks somebody.
        let (own, due) = match (waits(one), waits(two)) {
            (true, false) => (*one, *two),
            (false, true) => (*two, *one),
            (true, true) if lacks(one) && !lacks(two) => (*one, *two),
            (true, true) if lacks(two) && !lacks(one) => (*two, *one),
            _ => return None,
        };
        let calls = last(job, *rank);
        let habit = match too_many(&calls, own, due)? {
            Some(calls) => Habit::TooMany(calls),
            None => match too_few(&calls, own, due) {
                Some((made, usual)) => Habit::TooFew { made, usual },
                None => continue,
            },
        };
        if odd.replace((*rank, own, due, habit)).is_some() {
            return None;
        }
    }
    let (rank, own, due, habit) = odd?;
    let calls = match habit {
        Habit::TooMany(calls) => calls,
        Habit::TooFew { made, usual } => {
            let (own, label) = (words::group_label(job.log, own), words::group_label(job.log, due));
            let said = format!(
                " Rank {rank} made {} of {label} before that call of {own}, where it had made at least {usual} \
                 before each one until then; the others go their usual way. It left the others out, or makes \
                 them later.",
                words::count(made, "call"),
            );
            return Some(Broken { rank, due, said });
        }
    };
    let said = format!(
        " Rank {rank} has never before made {} of {} without one of {} between them; the others go their \
         usual way. It left that one out, or makes the two in the other order.",
        words::count(calls, "call"),
        words::group_label(job.log, own),
        words::group_label(job.log, due),
    );
    Some(Broken { rank, due, said })
}

/// The way in which a rank takes two groups as it never has.
enum Habit {
    /// So many calls of the one without one of the other.
    TooMany(usize),
    /// Fewer calls of the other than ever before a call of the one.
    TooFew { made: usize, usual: usize },
}

/// The number of calls of `due` that a rank has made before the call of `own` in which it waits,
/// and the fewest that it made before each of that line until then, where those are more. One or
/// none are told by [`too_many`].
fn too_few(calls: &[&CallRecord], own: GroupId, due: GroupId) -> Option<(usize, usize)> {
    /// Fewer rounds are no habit.
    const ROUNDS: usize = 2;
    let from = calls.iter().position(|call| call.state != CallState::Completed)?;
    let (before, waits) = calls.split_at(from);
    let stands =
        waits.first().filter(|call| call.call.group == own && !call.call.stack.is_empty())?;
    let mut since = 0;
    let mut from_its_start =
        before.first().is_none_or(|first| matches!(first.record_id, None | Some(0)));
    let mut rounds = Vec::new();
    for call in before {
        if call.call.group == due {
            since += 1;
        } else if alike(call, stands) && call.call.stack == stands.call.stack {
            rounds.extend(from_its_start.then_some(since));
            (since, from_its_start) = (0, true);
        }
    }
    let usual = rounds.iter().copied().min().filter(|_| rounds.len() >= ROUNDS)?;
    (0 < since && since < usual).then_some((since, usual))
}

/// The number of calls of `own` that a rank has made since its last one of `due`, if it has never
/// made so many before those in which it waits. `None` where its calls do not tell.
fn too_many(calls: &[&CallRecord], own: GroupId, due: GroupId) -> Option<Option<usize>> {
    let from = calls.iter().position(|call| call.state != CallState::Completed)?;
    let (before, waits) = calls.split_at(from);
    let of = |group: GroupId| before.iter().filter(move |call| call.call.group == group);
    let stands = waits.iter().find(|call| call.call.group == own);
    // A job's setup makes more calls of one group in a row than its loop does.
    let is_its = |call: &CallRecord| {
        stands.is_some_and(|stands| alike(call, stands) && call.call.stack == stands.call.stack)
    };
    let has_line = stands.is_some_and(|stands| !stands.call.stack.is_empty());
    let by_line = has_line && of(own).any(|call| is_its(call));
    let counts = |call: &CallRecord| call.call.group == own && (!by_line || is_its(call));
    if stands.is_none() || of(own).next().is_none() || of(due).next().is_none() {
        return None;
    }
    // The length of each run of calls. It is unknown for a run whose front is cut off, or which
    // still goes on.
    let (mut since, mut most) = (0usize, None);
    let mut from_its_start =
        before.first().is_none_or(|first| matches!(first.record_id, None | Some(0)));
    for call in before {
        match call.call.group {
            _ if counts(call) => since += 1,
            group if group == due => {
                let round = (since > 0 && from_its_start).then_some(since);
                (most, since, from_its_start) = (most.max(round), 0, true);
            }
            _ => {}
        }
    }
    let most = most?;
    // Behind a loop comes a call of whatever group the loop ends with: that the rank has left its
    // loop, or the others are a round too far, looks the same, unless it is one of the loop's own
    // calls, or its like is never the last one of a round.
    let ends_rounds = |stands: &CallRecord| {
        before.windows(2).any(|pair| match pair {
            [a, b] => a.call.group == own && alike(a, stands) && b.call.group == due,
            _ => false,
        })
    };
    let known = |stands: &CallRecord| {
        let line = !stands.call.stack.is_empty();
        of(own).any(|call| alike(call, stands) && line && call.call.stack == stands.call.stack)
    };
    for call in waits {
        match call.call.group {
            _ if counts(call) => since += 1,
            group if group == due => since = 0,
            _ => {}
        }
        if since > most {
            let like = of(own).any(|known| alike(known, call));
            return (known(call) || (like && !ends_rounds(call))).then_some(Some(since));
        }
    }
    Some(None)
}
