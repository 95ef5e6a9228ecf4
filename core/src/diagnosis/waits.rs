//! Who waits at the end of a trace, in which call, and for whom.

use super::index::Job;
use super::p2p;
use super::report::Wait;
use super::words;
use crate::trace::CallLog;
use std::collections::BTreeSet;

/// The first call of every rank in every group that has not completed, ascending by rank and call:
/// in which call the rank waits, and for whom. Later calls of the group queue behind it.
pub fn who_waits(log: &CallLog) -> Vec<Wait> {
    let job = Job::of(log);
    let mut waits = Vec::new();
    let mut queued = BTreeSet::new();
    for (_, row) in job.open_rows() {
        let mut waits_for = row.absent.clone();
        waits_for.extend(&row.unrecorded);
        waits_for.sort_unstable();
        for made in row.made.iter().filter(|made| made.pending()) {
            if !queued.insert((made.rank, row.group)) {
                continue;
            }
            waits.push(Wait {
                rank: made.rank,
                group: words::group_ref(log, row.group),
                seq: Some(row.seq),
                op: made.record.call.op.clone(),
                line: words::line_of(log, made.rank, made.record),
                work: made.record.work,
                waits_for: waits_for.clone(),
            });
        }
    }
    for pending in p2p::pending(&job) {
        let made = pending.made;
        waits.push(Wait {
            rank: made.rank,
            group: words::group_ref(log, made.record.call.group),
            seq: made.record.call.seq,
            op: made.record.call.op.clone(),
            line: words::line_of(log, made.rank, made.record),
            work: made.record.work,
            waits_for: if pending.partner.is_none() { vec![pending.peer] } else { Vec::new() },
        });
    }
    waits.sort_by_key(|wait| (wait.rank, wait.work));
    waits
}
