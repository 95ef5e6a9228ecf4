//! The gaps of one source, filled in from another: the reductions and roots of NCCL's log, the
//! times of a profile.
//!
//! Sources count differently: a recorder's ring has dropped its first calls, a profile begins in the
//! middle, a log has all. The calls of one rank in one group are one sequence, of which each source
//! shows a stretch; the stretches are laid over each other where the most calls agree.

use super::same_call::{agree, is_visible};
use super::taken_over::CountedAlike;
use super::watchdog_ends::bound_by_profile;
use crate::reader::Filled;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{CallLog, CallRecord, CallState, Called, RankLog};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The clock of the source that is filled in, relative to that of the source it is filled into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// It has none.
    None,
    /// Its times count from so many picoseconds later.
    LaterBy(i128),
}

impl Clock {
    /// A time of the other source in the times of the one that is filled; the same where there is no clock.
    pub(super) fn here(self, ps: u64) -> u64 {
        match self {
            Clock::None => ps,
            Clock::LaterBy(later_ps) => {
                u64::try_from((i128::from(ps) + later_ps).max(0)).unwrap_or(u64::MAX)
            }
        }
    }
}

/// Offsets that are tried around those that fit by number.
const TRIED: i64 = 64;

/// The calls that are in both sources.
#[derive(Debug, Default)]
pub(super) struct InBoth {
    /// The values that were filled in.
    pub(super) filled: Filled,
    /// The groups that count their calls alike in both.
    pub(super) alike: CountedAlike,
    /// Per rank, the first and the last of its calls in the other source that are in both, by their indexes.
    pub(super) calls: BTreeMap<GlobalRank, (usize, usize)>,
}

/// The calls of each rank that two sources hold, by their indexes in the one and in the other.
pub(super) type SharedCalls = BTreeMap<GlobalRank, Vec<(usize, usize)>>;

/// Lays the calls of `from` over those of `into`, and returns those that agree. `has_all` is true of a source that writes
/// all calls as the program made them.
pub(super) fn shared_calls(into: &CallLog, from: &CallLog, has_all: bool) -> SharedCalls {
    let (groups, others) = (members(into), members(from));
    let mut shared = SharedCalls::new();
    for (rank, own) in into.logs() {
        let Some(Some(other)) = from.ranks.get(rank.index()) else { continue };
        let calls = shared_of_rank((own, &groups), (other, &others), has_all);
        if !calls.is_empty() {
            shared.insert(rank, calls);
        }
    }
    shared
}

/// The groups of a source with their members.
type Groups = [(GroupId, Vec<GlobalRank>)];

/// The same of one rank, group by group.
fn shared_of_rank(
    (own, groups): (&RankLog, &Groups),
    (other, others): (&RankLog, &Groups),
    has_all: bool,
) -> Vec<(usize, usize)> {
    // Messages are numbered on their own.
    let by_group = |log: &RankLog| {
        let mut places: BTreeMap<(GroupId, bool), Vec<usize>> = BTreeMap::new();
        for (at, record) in log.calls.iter().enumerate() {
            if has_all || is_visible(record) {
                places.entry((record.call.group, record.call.p2p)).or_default().push(at);
            }
        }
        places
    };
    let mut theirs = by_group(other);
    let mut shared = Vec::new();
    for ((group, p2p), places) in by_group(own) {
        let Some((_, ranks)) = groups.iter().find(|(id, _)| *id == group) else { continue };
        let of_places = records(own, &places);
        // The same ranks may be one group here and two there: the one that fits best is meant.
        let same = others.iter().filter(|(_, other)| is_within(other, ranks));
        let fits = same.filter_map(|(id, _)| {
            let list = records(other, theirs.get(&(*id, p2p))?);
            let (offset, agree) = overlay(&of_places, &list)?;
            Some((agree, *id, offset))
        });
        let Some((_, id, offset)) =
            fits.max_by_key(|(agree, id, _)| (*agree, std::cmp::Reverse(*id)))
        else {
            continue;
        };
        let Some(list) = theirs.remove(&(id, p2p)) else { continue };
        for (number, at) in places.iter().enumerate() {
            let there = usize::try_from(number as i64 + offset).ok();
            let Some(there) = there.and_then(|there| list.get(there)) else { continue };
            let both = own.calls.get(*at).zip(other.calls.get(*there));
            if both.is_some_and(|(own, other)| agree(own, other)) {
                shared.push((*at, *there));
            }
        }
    }
    shared
}

/// The calls at some indexes.
fn records<'a>(log: &'a RankLog, places: &[usize]) -> Vec<&'a CallRecord> {
    places.iter().filter_map(|at| log.calls.get(*at)).collect()
}

/// Fills values of `from` into the same calls of `into`, which are `shared`.
pub(super) fn fill(
    into: &mut CallLog,
    from: &CallLog,
    clock: Clock,
    shared: &SharedCalls,
) -> InBoth {
    let mut both = InBoth::default();
    let filled = &mut both.filled;
    filled.of_calls = from.logs().map(|(_, log)| log.calls.len()).sum();
    let mut parts = BTreeMap::new();
    let (mut ended, mut timed) = (0, 0);
    let backends: Vec<BackendName> = into.groups.iter().map(ProcessGroup::backend).collect();
    for (rank, own) in (0..).map(GlobalRank).zip(&mut into.ranks) {
        let Some(own) = own else { continue };
        ended += own.calls.iter().filter(|it| it.state == CallState::Completed).count();
        let Some(Some(other)) = from.ranks.get(rank.index()) else { continue };
        let Some(calls) = shared.get(&rank) else { continue };
        let mut timed_calls = BTreeSet::new();
        for (at, there) in calls {
            let Some((record, there)) = own.calls.get_mut(*at).zip(other.calls.get(*there)) else {
                continue;
            };
            filled.calls += 1;
            both.alike.note(record, there);
            if complete(record, there, (clock, from.device_times), &mut parts, filled) {
                timed_calls.insert(*at);
            }
        }
        timed += timed_calls.len();
        if from.device_times
            && !timed_calls.is_empty()
            && let Some(profile_ps) = first_of_device(other)
        {
            let is_nccl = |group: GroupId| backends.get(group.index()) == Some(&BackendName::Nccl);
            let is_timed = |at: usize| timed_calls.contains(&at);
            bound_by_profile(&mut own.calls, is_timed, is_nccl, clock.here(profile_ps));
            let timed = timed_calls.iter().filter_map(|at| own.calls.get(*at));
            let timed: Vec<u32> = timed.map(|record| record.work).collect();
            own.recording.device_timed.extend(timed);
        }
        filled.ranks += 1;
        let there = || calls.iter().map(|(_, there)| *there);
        both.calls.extend(there().min().zip(there().max()).map(|calls| (rank, calls)));
    }
    // A device's clock has timed all that ended.
    into.device_times |= from.device_times && timed == ended && timed > 0;
    both
}

/// The first time of a rank's device in a profile; `None` if it has none.
fn first_of_device(own: &RankLog) -> Option<u64> {
    let computed = own.recording.computations.iter().map(|one| one.from_ps);
    computed.chain(own.calls.iter().filter_map(|call| call.started_ps)).min()
}

pub(super) fn members(log: &CallLog) -> Vec<(GroupId, Vec<GlobalRank>)> {
    let sorted = |ranks: &[GlobalRank]| {
        let mut ranks = ranks.to_vec();
        ranks.sort_unstable();
        ranks
    };
    (0..).map(GroupId).zip(log.groups.iter().map(|group| sorted(group.ranks()))).collect()
}

/// True if `ranks` holds all of `other`: where logs are missing, so are members.
pub(super) fn is_within(other: &[GlobalRank], ranks: &[GlobalRank]) -> bool {
    other.iter().all(|rank| ranks.binary_search(rank).is_ok())
}

/// By how many places `list` has to be moved to lie under `calls`, and how many calls then agree;
/// `None` where less than nine of ten do.
pub(super) fn overlay(calls: &[&CallRecord], list: &[&CallRecord]) -> Option<(i64, usize)> {
    let by_seq = calls.first().and_then(|call| {
        let seq = call.seq?;
        Some(list.iter().position(|other| other.seq == Some(seq))? as i64)
    });
    let by_end = list.len() as i64 - calls.len() as i64;
    let mut tried: Vec<i64> = by_seq.into_iter().chain([by_end]).collect();
    let around = |middle: i64| (1..=TRIED).flat_map(move |by| [middle - by, middle + by]);
    let near: Vec<i64> = tried.iter().copied().flat_map(around).collect();
    tried.extend(near);
    let mut best: Option<(i64, usize)> = None;
    for offset in tried {
        let skipped = usize::try_from(-offset).unwrap_or(0);
        let from = usize::try_from(offset).unwrap_or(0);
        let (Some(own), Some(other)) = (calls.get(skipped..), list.get(from..)) else { continue };
        let compared = own.len().min(other.len());
        let agreed = own.iter().zip(other).filter(|(a, b)| agree(a, b)).count();
        // A stretch that ends on one side only may be cut; two calls that differ may be the fault.
        if agreed == 0 || agreed * 10 < compared * 9 {
            continue;
        }
        if best.is_none_or(|(_, most)| agreed > most) {
            best = Some((offset, agreed));
        }
        if agreed == calls.len().min(list.len()) {
            break;
        }
    }
    best
}

/// The part that calls share once something is filled in, by the address of the part they shared
/// before, which is kept so that no other takes its place.
type Shared = BTreeMap<(usize, Option<ReduceOp>, Option<GroupRank>), [Arc<Called>; 2]>;

/// Completes a call by what another source says of it; true if it has the times of that source now. `exact` are those
/// of a device's clock, which are better than a recorder's own.
fn complete(
    record: &mut CallRecord,
    there: &CallRecord,
    (clock, exact): (Clock, bool),
    shared: &mut Shared,
    filled: &mut Filled,
) -> bool {
    let (own, other) = (&record.call, &there.call);
    let reduce_op = own.reduce_op.or(other.reduce_op.filter(|_| own.op != "barrier"));
    let root = own.root.or(other.root);
    if (reduce_op, root) != (own.reduce_op, own.root) {
        filled.reductions += usize::from(reduce_op != own.reduce_op);
        filled.roots += usize::from(root != own.root);
        let key = (Arc::as_ptr(own).addr(), reduce_op, root);
        let [_, called] = shared.entry(key).or_insert_with(|| {
            [Arc::clone(own), Arc::new(Called { reduce_op, root, ..Called::clone(own) })]
        });
        record.call = Arc::clone(called);
    }
    if clock == Clock::None {
        return false;
    }
    let here = |ps: u64| clock.here(ps);
    // A recorder that was not asked to time calls has them start when they are made.
    let untimed = record.started_ps.is_none_or(|started_ps| started_ps == record.scheduled_ps);
    let both_ended = (there.state, record.state) == (CallState::Completed, CallState::Completed);
    if let (true, Some(started_ps)) = ((untimed || exact) && both_ended, there.started_ps) {
        let started_ps = here(started_ps).max(record.scheduled_ps);
        record.started_ps = Some(started_ps);
        // A recorder's watchdog sees an end only when it looks.
        if let (Some(seen_ps), Some(ended_ps)) = (record.completed_ps, there.completed_ps) {
            record.completed_ps = Some(here(ended_ps).min(seen_ps).max(started_ps));
        }
        filled.times += 1;
        return true;
    }
    false
}
