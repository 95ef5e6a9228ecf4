//! The calls of a job, sorted so that the calls that belong together lie side by side.
//!
//! A *row* is one collective of one group: the calls that its members made under one sequence
//! number. Everything else reads rows, so that the work stays proportionate to the calls.

use crate::model::calls::alike;
use crate::model::roles::{OPENING, Roles};
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, CallRecord, CallState, RankLog};
use lockstep_formats::flight_recorder::needs_all;
use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, BTreeSet};

/// So many findings are held against how all ranks go through the program.
const LOOKS: u32 = 16;

/// A call and who made it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made<'a> {
    pub(crate) rank: GlobalRank,
    pub(crate) record: &'a CallRecord,
}

/// One collective of one group.
#[derive(Clone, Debug)]
pub(crate) struct Row<'a> {
    pub(crate) group: GroupId,
    pub(crate) seq: u64,
    /// The calls, ascending by rank, one a rank.
    pub(crate) made: Vec<Made<'a>>,
    /// Members that have not made the call, ascending. Known for open rows only.
    pub(crate) absent: Vec<GlobalRank>,
    /// Members of whom nothing was recorded, and for whom somebody may wait in it, ascending. Known for open
    /// rows only.
    pub(crate) unrecorded: Vec<GlobalRank>,
}

/// The calls of a job.
pub(crate) struct Job<'a> {
    pub(crate) log: &'a CallLog,
    /// Ascending by group and sequence number.
    pub(crate) rows: Vec<Row<'a>>,
    /// The rows in which somebody waits, by index.
    pub(crate) open: Vec<usize>,
    /// Per rank, its first pending collective that lacks a member.
    first_lacking: Vec<Option<u32>>,
    /// The last sequence number of a rank in a group, also where the ring has dropped the call.
    last: BTreeMap<(GroupId, GlobalRank), u64>,
    /// The ranks that stand by themselves, where dumps are missing: they wait for nobody of whom nothing
    /// was recorded.
    pub(crate) standing: BTreeSet<GlobalRank>,
    /// See [`Job::roles`].
    roles: OnceCell<Roles>,
    /// See [`Job::may_look`].
    looks: Cell<u32>,
    /// See [`Job::last_on_gloo`].
    last_on_gloo: OnceCell<Vec<GlobalRank>>,
}

impl Made<'_> {
    pub(crate) fn pending(&self) -> bool {
        self.record.state != CallState::Completed
    }
}

impl<'a> Row<'a> {
    /// True while somebody waits in it.
    pub(crate) fn open(&self) -> bool {
        self.made.iter().any(Made::pending)
    }

    /// True if all who made the call made the same one.
    fn agrees(&self) -> bool {
        let first = self.made.first();
        self.made.iter().all(|made| first.is_some_and(|it| alike(made.record, it.record)))
    }

    /// True if a member has not come.
    pub(crate) fn lacks_somebody(&self) -> bool {
        !self.absent.is_empty() || !self.unrecorded.is_empty()
    }

    /// True if the rank has not come.
    pub(crate) fn lacks(&self, rank: GlobalRank) -> bool {
        self.absent.binary_search(&rank).is_ok() || self.unrecorded.binary_search(&rank).is_ok()
    }

    /// The ranks that wait in it, ascending.
    pub(crate) fn waiting(&self) -> Vec<GlobalRank> {
        self.made.iter().filter(|made| made.pending()).map(|made| made.rank).collect()
    }

    /// The call of a rank.
    pub(crate) fn of(&self, rank: GlobalRank) -> Option<Made<'a>> {
        let found = self.made.binary_search_by_key(&rank, |made| made.rank).ok()?;
        self.made.get(found).copied()
    }

    /// When it was first called.
    pub(crate) fn first_ps(&self) -> u64 {
        self.made.iter().map(|made| made.record.scheduled_ps).min().unwrap_or(0)
    }
}

impl<'a> Job<'a> {
    pub(crate) fn of(log: &'a CallLog) -> Job<'a> {
        let mut calls = Vec::new();
        let mut last = BTreeMap::new();
        for (rank, ranks_log) in log.logs() {
            // A rank is in a few groups: theirs are kept at hand, and put away once.
            let mut own = ranks_log.recording.enqueued.clone();
            for record in ranks_log.calls.iter().filter(|record| !record.call.p2p) {
                if let Some(seq) = record.seq {
                    let group = record.call.group;
                    let last = own.entry(group).or_insert(seq);
                    *last = seq.max(*last);
                    calls.push((group, seq, Made { rank, record }));
                }
            }
            last.extend(own.into_iter().map(|(group, seq)| ((group, rank), seq)));
        }
        // Stable: the calls of a row stay in the order of the ranks, and of each rank's calls.
        calls.sort_by_key(|(group, seq, _)| (*group, *seq));
        // Coalesced calls share a number: the first stands for them.
        calls.dedup_by_key(|(group, seq, made)| (*group, *seq, made.rank));
        let mut job = Job {
            log,
            rows: Vec::new(),
            open: Vec::new(),
            first_lacking: vec![None; log.ranks.len()],
            last,
            standing: BTreeSet::new(),
            roles: OnceCell::new(),
            looks: Cell::new(LOOKS),
            last_on_gloo: OnceCell::new(),
        };
        for same in
            calls.chunk_by(|(group, seq, _), (other, next, _)| group == other && seq == next)
        {
            let Some((group, seq, _)) = same.first() else { continue };
            job.rows.push(Row {
                group: *group,
                seq: *seq,
                made: same.iter().map(|(_, _, made)| *made).collect(),
                absent: Vec::new(),
                unrecorded: Vec::new(),
            });
        }
        drop(calls);
        job.standing = beside_missing(&job);
        let mut rows = std::mem::take(&mut job.rows);
        for (at, row) in rows.iter_mut().enumerate().filter(|(_, row)| row.open()) {
            job.open.push(at);
            job.find_absent(row);
            // Nobody waits in it for want of them.
            if row.waiting().iter().all(|rank| job.standing.contains(rank)) {
                row.unrecorded.clear();
            }
            if row.lacks_somebody() {
                for made in row.made.iter().filter(|made| made.pending()) {
                    let work = made.record.work;
                    if let Some(first) = job.first_lacking.get_mut(made.rank.index()) {
                        *first = Some(first.map_or(work, |first| first.min(work)));
                    }
                }
            }
        }
        job.rows = rows;
        job
    }

    fn find_absent(&self, row: &mut Row<'_>) {
        let Some(group) = self.group(row.group) else { return };
        let first_ps = row.first_ps();
        for rank in group.ranks() {
            if row.of(*rank).is_some() {
                continue;
            }
            match self.rank(*rank) {
                None => row.unrecorded.push(*rank),
                Some(log) => {
                    let last = self.last.get(&(row.group, *rank));
                    let gone = match last {
                        // The last one that it is known to have made is this one, and the ring has
                        // dropped it.
                        Some(last) => *last >= row.seq,
                        None => window_begins_after(log, first_ps),
                    };
                    if !gone {
                        row.absent.push(*rank);
                    }
                }
            }
        }
        row.absent.sort_unstable();
        row.unrecorded.sort_unstable();
    }

    pub(crate) fn group(&self, id: GroupId) -> Option<&'a ProcessGroup> {
        self.log.groups.get(id.index())
    }

    /// Groups that stand for each other, found at the first request.
    pub(crate) fn roles(&self) -> &Roles {
        // A call on which members disagree shows the fault, not the group's role.
        let opening = |group: GroupId| -> Vec<&CallRecord> {
            let rows = self.rows_of(group).iter().take_while(|row| row.agrees());
            rows.take(OPENING).filter_map(|row| Some(row.made.first()?.record)).collect()
        };
        self.roles.get_or_init(|| Roles::of(&self.log.groups, opening))
    }

    /// True as long as not too many findings have asked: to hold one against all ranks takes long.
    pub(crate) fn may_look(&self) -> bool {
        let left = self.looks.get().checked_sub(1);
        self.looks.set(left.unwrap_or(0));
        left.is_some()
    }

    pub(crate) fn rank(&self, rank: GlobalRank) -> Option<&'a RankLog> {
        self.log.ranks.get(rank.index())?.as_ref()
    }

    /// The rows in which somebody waits, in order.
    pub(crate) fn open_rows(&self) -> impl Iterator<Item = (usize, &Row<'a>)> {
        self.open.iter().filter_map(|at| Some((*at, self.rows.get(*at)?)))
    }

    /// True if a member of the row waits for somebody in an earlier call: its turn has not come.
    pub(crate) fn held_up_before(&self, row: &Row<'_>) -> bool {
        row.made.iter().any(|made| {
            let first = self.first_lacking.get(made.rank.index()).copied().flatten();
            first.is_some_and(|first| first < made.record.work)
        })
    }

    /// The calls of one group by one rank from a sequence number on, in order.
    pub(crate) fn calls_from(
        &self,
        group: GroupId,
        rank: GlobalRank,
        seq: u64,
    ) -> impl Iterator<Item = &'a CallRecord> {
        let from = self.rows.partition_point(|row| (row.group, row.seq) < (group, seq));
        let rows = self.rows.get(from..).unwrap_or_default();
        let rows = rows.iter().take_while(move |row| row.group == group);
        rows.filter_map(move |row| Some(row.of(rank)?.record))
    }

    /// The rows of one group, in order.
    pub(crate) fn rows_of(&self, group: GroupId) -> &[Row<'a>] {
        let from = self.rows.partition_point(|row| row.group < group);
        let to = self.rows.partition_point(|row| row.group <= group);
        self.rows.get(from..to).unwrap_or_default()
    }

    /// The last collective of a rank in a group.
    pub(crate) fn last_call(&self, group: GroupId, rank: GlobalRank) -> Option<&'a CallRecord> {
        let seq = *self.last.get(&(group, rank))?;
        self.calls_from(group, rank, seq).next()
    }

    /// The number of the last collective of a rank in a group, if that is known.
    pub(crate) fn last_number(&self, group: GroupId, rank: GlobalRank) -> Option<u64> {
        self.last.get(&(group, rank)).copied()
    }

    /// True if a rank is known to have made a group's collective of a number.
    pub(crate) fn has_made(&self, group: GroupId, rank: GlobalRank, seq: u64) -> bool {
        self.last.get(&(group, rank)).is_some_and(|last| *last >= seq)
    }

    /// True if the last collective of a rank in a group is known.
    pub(crate) fn knows_last(&self, group: GroupId, rank: GlobalRank) -> bool {
        self.last.contains_key(&(group, rank))
    }

    /// True of a row of a group of which only one rank is seen to have called it, and the members are
    /// not listed: it waits for somebody unseen, since nobody waits for himself.
    pub(crate) fn is_alone(&self, row: &Row<'_>) -> bool {
        let alone = self.group(row.group).is_some_and(|group| group.size() == 1);
        alone && self.members_are_worked_out(row.group) && row.open()
    }

    /// The last calls of ranks that wait for nobody, in gloo's groups of which `missing`, of whom
    /// nothing was recorded, is one, and behind which nobody has gone on: they may have failed.
    pub(crate) fn last_with(&self, missing: GlobalRank) -> Vec<Made<'a>> {
        if self.rank(missing).is_some() {
            return Vec::new();
        }
        let last = self.last_on_gloo().iter().filter_map(|rank| {
            let record = self.rank(*rank)?.calls.last()?;
            let with = self.group(record.call.group)?.group_rank(missing).is_some();
            with.then_some(Made { rank: *rank, record })
        });
        last.collect()
    }

    /// The ranks of those calls, whoever is missing: asked for each of many, looked up once.
    fn last_on_gloo(&self) -> &[GlobalRank] {
        self.last_on_gloo.get_or_init(|| {
            let mut ends: BTreeMap<(GroupId, u64), bool> = BTreeMap::new();
            let last = self.log.logs().filter_map(|(rank, log)| {
                let record = log.calls.last()?;
                let group = record.call.group;
                let idle = self.log.recorded
                    && self.group(group)?.backend() == BackendName::Gloo
                    && log.calls.iter().all(|record| record.state == CallState::Completed);
                if !idle {
                    return None;
                }
                let seq = record.seq?;
                let ends = *ends.entry((group, seq)).or_insert_with(|| self.ends_in(group, seq));
                ends.then_some(rank)
            });
            last.collect()
        })
    }

    /// True of a collective behind which nobody is seen to have gone on.
    pub(crate) fn ends_in(&self, group: GroupId, seq: u64) -> bool {
        let at = self.rows.binary_search_by_key(&(group, seq), |row| (row.group, row.seq));
        let row = at.ok().and_then(|at| self.rows.get(at));
        let went_on = |made: &Made<'_>| {
            let last = self.rank(made.rank).and_then(|log| log.calls.last());
            !made.pending() && last.is_some_and(|last| last.work > made.record.work)
        };
        row.is_some_and(|row| !row.made.iter().any(went_on))
    }

    /// True if the dumps do not list the group's members, so that a member that never called it is
    /// worked out.
    pub(crate) fn members_are_worked_out(&self, group: GroupId) -> bool {
        let gloo = self.group(group).is_some_and(|group| group.backend() == BackendName::Gloo);
        gloo && self.log.recorded && group != GroupId::WORLD
    }
}

/// True if the recorder's ring dropped what the rank did up to a moment.
pub(crate) fn window_begins_after(log: &RankLog, time_ps: u64) -> bool {
    log.is_cut() && log.calls.first().is_some_and(|first| first.scheduled_ps > time_ps)
}

/// The ranks that do, of a job of which dumps are missing: of others the calls of all tell who waits for
/// whom.
pub(crate) fn beside_missing(job: &Job<'_>) -> BTreeSet<GlobalRank> {
    if job.log.ranks.iter().all(Option::is_some) || !job.log.recorded {
        return BTreeSet::new();
    }
    job.log.logs().map(|(rank, _)| rank).filter(|rank| by_itself(job, *rank)).collect()
}

/// True if nothing before holds up its first call that has not ended, and all others of its group are
/// known to have come out of that one, which needs everybody: it is the rank itself that stands, not what
/// it called behind that. Who left no dump was in that call as well, or nobody had come out of it; only if
/// the rank has begun it, it may be in it with one that crashed there.
pub(crate) fn by_itself(job: &Job<'_>, rank: GlobalRank) -> bool {
    let Some(own) = job.rank(rank).filter(|own| own.recording.dropped_ended) else { return false };
    let mut waiting = own.calls.iter().filter(|record| record.state != CallState::Completed);
    let Some(first) = waiting.next().filter(|first| !first.call.p2p && needs_all(&first.call.op))
    else {
        return false;
    };
    let rows = job.rows_of(first.call.group);
    let row =
        first.seq.and_then(|seq| rows.get(rows.binary_search_by_key(&seq, |row| row.seq).ok()?));
    let (Some(row), Some(group)) = (row, job.group(first.call.group)) else { return false };
    let came_out = |other: &GlobalRank| match row.of(*other) {
        Some(made) => !made.pending(),
        // It has made the call, and all that its recorder dropped has ended.
        None => {
            job.has_made(row.group, *other, row.seq)
                && job.rank(*other).is_some_and(|own| own.recording.dropped_ended)
        }
    };
    let others = group.ranks().iter().filter(|other| **other != rank);
    let (recorded, missing): (Vec<GlobalRank>, Vec<GlobalRank>) =
        others.copied().partition(|other| job.rank(*other).is_some());
    let begun = first.state == CallState::Started;
    !recorded.is_empty() && recorded.iter().all(came_out) && (missing.is_empty() || !begun)
}
