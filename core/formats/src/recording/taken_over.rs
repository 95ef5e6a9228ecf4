//! Ranks that left no dump and whose calls NCCL's log tells: a rank that ended by itself dumps nothing, its log is
//! there.
//!
//! The numbers of calls are those of the dumps only where a rank that is in both sources shows that the two count
//! alike; a rank with a call in another group, or with one that NCCL carries out as several, is left alone.

use super::same_call::{agree, is_visible};
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, CallRecord, CallState, Called, RankLog};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The groups of a log without times in which its calls bear the numbers of the dumps, as `fill` found.
#[derive(Debug, Default)]
pub(super) struct CountedAlike {
    /// The dumps' group by the log's; `None` where ranks contradict each other.
    groups: BTreeMap<GroupId, Option<GroupId>>,
}

impl CountedAlike {
    /// Notes a call that is in both sources.
    pub(super) fn note(&mut self, own: &CallRecord, other: &CallRecord) {
        let same = (own.seq.is_some() && own.seq == other.seq).then_some(own.call.group);
        let known = self.groups.entry(other.call.group).or_insert(same);
        if *known != same {
            *known = None;
        }
    }

    /// Adds to the dumps' calls those of ranks that have none there; returns the ranks.
    pub(super) fn take_over(&self, into: &mut CallLog, from: &CallLog) -> Vec<GlobalRank> {
        let without = |rank: GlobalRank| into.ranks.get(rank.index()).is_some_and(Option::is_none);
        let missing: Vec<_> = from.logs().filter(|(rank, _)| without(*rank)).collect();
        if missing.is_empty() || self.groups.is_empty() {
            return Vec::new();
        }
        let rows = rows(into);
        let taken = missing.into_iter();
        let taken = taken.filter_map(|(rank, log)| Some((rank, self.rank_log(log, &rows)?)));
        let taken: Vec<(GlobalRank, RankLog)> = taken.collect();
        let mut ranks = Vec::new();
        for (rank, log) in taken {
            if let Some(slot) = into.ranks.get_mut(rank.index()) {
                *slot = Some(log);
                ranks.push(rank);
            }
        }
        ranks
    }

    fn rank_log(&self, log: &RankLog, rows: &Rows<'_>) -> Option<RankLog> {
        let mut taken = RankLog::default();
        let mut now_ps = 0;
        for record in &log.calls {
            let group = self.groups.get(&record.call.group).copied().flatten()?;
            let seq = record.seq.filter(|_| is_visible(record))?;
            let row = rows.get(&(group, seq));
            now_ps = row.map_or(now_ps, |row| row.scheduled_ps.max(now_ps));
            let completed_ps = row.and_then(|row| row.completed_ps).map(|ps| ps.max(now_ps));
            let same = row.map(|row| row.call).filter(|call| agree(call, record));
            let op = same.map_or(&record.call.op, |call| &call.call.op).clone();
            taken.recording.enqueued.insert(group, seq);
            taken.calls.push(CallRecord {
                state: completed_ps.map_or(CallState::Scheduled, |_| CallState::Completed),
                scheduled_ps: now_ps,
                completed_ps,
                call: Arc::new(Called { group, op, ..Called::clone(&record.call) }),
                ..record.clone()
            });
        }
        (!taken.calls.is_empty()).then_some(taken)
    }
}

/// The calls of the dumps with one number in one group.
struct Row<'a> {
    call: &'a CallRecord,
    scheduled_ps: u64,
    /// `None` if it did not complete on some rank.
    completed_ps: Option<u64>,
}

type Rows<'a> = BTreeMap<(GroupId, u64), Row<'a>>;

fn rows(log: &CallLog) -> Rows<'_> {
    let mut rows = Rows::new();
    for call in log.logs().flat_map(|(_, log)| &log.calls).filter(|call| is_visible(call)) {
        let Some(seq) = call.seq else { continue };
        let (scheduled_ps, completed_ps) = (call.scheduled_ps, call.completed_ps);
        let first = || Row { call, scheduled_ps, completed_ps };
        let row = rows.entry((call.call.group, seq)).or_insert_with(first);
        row.scheduled_ps = row.scheduled_ps.min(scheduled_ps);
        row.completed_ps = row.completed_ps.zip(completed_ps).map(|(a, b)| a.max(b));
    }
    rows
}
