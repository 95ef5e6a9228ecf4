//! The times of a rank whose file has none, beside files that have: those of the same calls on the other ranks.

use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, CallRecord, RankLog};
use std::collections::{BTreeMap, BTreeSet};

/// When the members of a group with times made a call first, and came out of it last.
#[derive(Clone, Copy)]
struct RowTimes {
    made_ps: u64,
    ended_ps: Option<u64>,
}

/// Gives the calls of `ranks` the times that the same calls have on the other ranks, as far as their own order allows.
/// A call that is on no other rank takes no time.
pub(crate) fn take_times_of_others(log: &mut CallLog, ranks: &BTreeSet<GlobalRank>) {
    if ranks.is_empty() || log.logs().all(|(rank, _)| ranks.contains(&rank)) {
        return;
    }
    let mut rows: BTreeMap<(GroupId, u64), RowTimes> = BTreeMap::new();
    let timed = log.logs().filter(|(rank, _)| !ranks.contains(rank));
    for record in timed.flat_map(|(_, own)| &own.calls) {
        let Some(key) = row_of(record) else { continue };
        let (made_ps, ended_ps) = (record.scheduled_ps, record.completed_ps);
        let row = rows.entry(key).or_insert(RowTimes { made_ps, ended_ps });
        row.made_ps = row.made_ps.min(made_ps);
        row.ended_ps = row.ended_ps.max(ended_ps);
    }
    for rank in ranks {
        if let Some(Some(own)) = log.ranks.get_mut(rank.index()) {
            set_times(own, &rows);
        }
    }
}

fn row_of(record: &CallRecord) -> Option<(GroupId, u64)> {
    record.seq.filter(|_| !record.call.p2p).map(|seq| (record.call.group, seq))
}

fn set_times(own: &mut RankLog, rows: &BTreeMap<(GroupId, u64), RowTimes>) {
    let row = |record: &CallRecord| row_of(record).and_then(|key| rows.get(&key)).copied();
    // Calls in front of the first that others made too are made when that one is.
    let mut now_ps = own.calls.iter().find_map(row).map_or(0, |row| row.made_ps);
    for record in &mut own.calls {
        let row = row_of(record).and_then(|key| rows.get(&key)).copied();
        let made_ps = row.map_or(now_ps, |row| row.made_ps.max(now_ps));
        let ended_ps = row.and_then(|row| row.ended_ps).unwrap_or(made_ps).max(made_ps);
        record.scheduled_ps = made_ps;
        record.started_ps = record.started_ps.map(|_| made_ps);
        record.completed_ps = record.completed_ps.map(|_| ended_ps);
        now_ps = made_ps;
    }
}
