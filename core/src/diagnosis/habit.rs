//! Who of a circle takes its groups otherwise than it always has.
//!
//! Of two ranks that wait for each other in two groups' calls no majority decides. But each has been
//! through the loop before: the one whose calls of the two groups have never stood so is the one
//! that goes another way this time.

use super::explain::alike;
use super::graph::Sink;
use super::in_step::last;
use super::index::Job;
use super::words;
use crate::group::GroupId;
use crate::rank::GlobalRank;
use crate::trace::CallRecord;

/// A rank that took two groups in another order than before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) rank: GlobalRank,
    /// What is told of it.
    pub(super) said: String,
}

/// The one rank of a circle in two groups that goes another way than it has, if all others of the
/// circle go theirs.
pub(super) fn broken(job: &Job<'_>, circle: &Sink) -> Option<Broken> {
    let rows: Vec<_> = circle.rows.iter().filter_map(|at| job.rows.get(*at)).collect();
    let [one, two] = rows.as_slice() else { return None };
    if job.log.plan.is_some() || one.group == two.group {
        return None;
    }
    let mut odd = None;
    for rank in &circle.ranks {
        let waits = |row: &super::index::Row<'_>| row.of(*rank).is_some_and(|made| made.pending());
        let (own, due) = match (waits(one), waits(two)) {
            (true, false) => (one.group, two.group),
            (false, true) => (two.group, one.group),
            _ => return None,
        };
        let Some(calls) = too_many(&last(job, *rank), own, due)? else { continue };
        if odd.replace((*rank, own, due, calls)).is_some() {
            return None;
        }
    }
    let (rank, own, due, calls) = odd?;
    let (own, due) = (words::group_label(job.log, own), words::group_label(job.log, due));
    let calls = words::count(calls, "call");
    let said = format!(
        " Rank {rank} has never before made {calls} of {own} without one of {due} between them; the \
         others go their usual way."
    );
    Some(Broken { rank, said })
}

/// How many calls of `own` a rank that stands in one has made since its last one of `due`, if it has
/// never made so many before. `None` where its calls do not tell.
fn too_many(calls: &[&CallRecord], own: GroupId, due: GroupId) -> Option<Option<usize>> {
    let (stands, before) = calls.split_last()?;
    let of = |group: GroupId| before.iter().filter(move |call| call.call.group == group);
    if stands.call.group != own || of(own).next().is_none() || of(due).next().is_none() {
        return None;
    }
    let (mut since, mut most) = (0usize, 0usize);
    for call in before {
        match call.call.group {
            group if group == own => since += 1,
            group if group == due => since = 0,
            _ => {}
        }
        most = most.max(since);
    }
    if since < most {
        return Some(None);
    }
    // Behind a loop comes a call of whatever group the loop ends with: that the rank has left its
    // loop, or the others are a round too far, looks the same, unless it is one of the loop's own
    // calls, or its like is never the last one of a round.
    let ends_rounds = before.windows(2).any(|pair| match pair {
        [a, b] => a.call.group == own && alike(a, stands) && b.call.group == due,
        _ => false,
    });
    let known = of(own).any(|call| {
        alike(call, stands) && !call.call.stack.is_empty() && call.call.stack == stands.call.stack
    });
    let like = of(own).any(|call| alike(call, stands));
    (known || (like && !ends_rounds)).then_some(Some(since + 1))
}
