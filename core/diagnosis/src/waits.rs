//! The waits at the end of a trace: each rank, its call, and the ranks it waits for.

use crate::model::index::{Job, Made, Row};
use crate::model::messages;
use crate::report::Wait;
use crate::words;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallSignature;
use lockstep_core::trace::{CallLog, CallState};
use std::collections::BTreeSet;

/// The first call of every rank in every group that has not completed, ascending by rank and call:
/// in which call the rank waits, and for whom. Later calls of the group queue behind it.
pub fn who_waits(log: &CallLog) -> Vec<Wait> {
    let job = Job::of(log);
    let mut waits = Vec::new();
    let mut queued = BTreeSet::new();
    for (_, row) in job.open_rows() {
        let sides = sides(row);
        for made in row.made.iter().filter(|made| made.pending()) {
            if !queued.insert((made.rank, row.group)) {
                continue;
            }
            let others = sides.iter().filter(|side| !side.contains(&made.rank)).flatten();
            let mut waits_for: Vec<_> =
                others.chain(&row.absent).chain(&row.unrecorded).copied().collect();
            if waits_for.is_empty() {
                waits_for = not_begun(row, made);
            }
            waits_for.sort_unstable();
            waits.push(Wait {
                rank: made.rank,
                group: words::group_ref(log, row.group),
                seq: Some(row.seq),
                op: made.record.call.op.clone(),
                line: words::line_of(log, made.rank, made.record),
                work: made.record.work,
                waits_for,
            });
        }
    }
    for pending in messages::pending(&job) {
        let made = pending.made;
        waits.push(Wait {
            rank: made.rank,
            group: words::group_ref(log, made.record.call.group),
            seq: made.record.seq,
            op: made.record.call.op.clone(),
            line: words::line_of(log, made.rank, made.record),
            work: made.record.work,
            waits_for: match pending.partner {
                Some(partner) if !behind(&made, &partner) => Vec::new(),
                _ => vec![pending.peer],
            },
        });
    }
    waits.sort_by_key(|wait| (wait.rank, wait.work));
    waits
}

/// True if the one has begun its call and the other has not: that one's device is held up in an
/// earlier call.
fn behind(own: &Made<'_>, other: &Made<'_>) -> bool {
    own.record.state == CallState::Started && other.record.state == CallState::Scheduled
}

/// Of a call that everybody has made, and this rank has begun: the members that have not begun it.
fn not_begun(row: &Row<'_>, own: &Made<'_>) -> Vec<GlobalRank> {
    row.made.iter().filter(|made| behind(own, made)).map(|made| made.rank).collect()
}

/// The members that came, by what they called: each side waits for the others to make its call.
fn sides(row: &Row<'_>) -> Vec<BTreeSet<GlobalRank>> {
    let mut sides: Vec<(CallSignature<'_>, BTreeSet<GlobalRank>)> = Vec::new();
    for made in &row.made {
        let signature = CallSignature::of(&made.record.call);
        let known = sides.iter_mut().find(|(of, _)| of.difference(&signature).is_none());
        match known {
            Some((_, side)) => {
                side.insert(made.rank);
            }
            None => sides.push((signature, BTreeSet::from([made.rank]))),
        }
    }
    sides.into_iter().map(|(_, side)| side).collect()
}
