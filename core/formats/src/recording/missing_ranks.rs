//! Ranks that left nothing in the fullest source and whose calls another source holds: dumps of some ranks, profiles of
//! the others.
//!
//! Their calls get the numbers of the recorded ranks: the calls of a rank in a group are laid over those of another
//! member. Only a job in which all recorded calls have ended is completed so: of one that hung, the last calls of a
//! missing rank matter, and a profile does not hold them.

use super::fill::{Clock, is_within, members, overlay};
use super::same_call::is_visible;
use crate::rank_calls::take_times_of_others;
use lockstep_core::group::{GroupId, ProcessGroup};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::trace::{CallLog, CallRecord, CallState, Called, RankLog, RecordedComputation};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Adds to `into` the calls of ranks that it lacks and that `from` holds; returns the ranks.
pub(super) fn take_missing_ranks(
    into: &mut CallLog,
    from: &CallLog,
    clock: Clock,
) -> Vec<GlobalRank> {
    let all_ended = into
        .logs()
        .flat_map(|(_, own)| &own.calls)
        .all(|record| record.state == CallState::Completed);
    if !all_ended {
        return Vec::new();
    }
    let lacks = |rank: GlobalRank| into.ranks.get(rank.index()).is_some_and(Option::is_none);
    let missing = from.logs().filter(|(rank, _)| lacks(*rank));
    let taken = missing.filter_map(|(rank, own)| Some((rank, renumbered(into, from, own, clock)?)));
    let taken: Vec<(GlobalRank, RankLog)> = taken.collect();
    let mut ranks = Vec::new();
    for (rank, own) in taken {
        if let Some(slot) = into.ranks.get_mut(rank.index()) {
            *slot = Some(own);
            ranks.push(rank);
        }
    }
    if clock == Clock::None {
        take_times_of_others(into, &ranks.iter().copied().collect());
    }
    ranks
}

/// The group of the fullest source that one of the other is, and by how much its numbers are higher.
#[derive(Clone, Copy)]
struct Renumbering {
    group: GroupId,
    higher_by: i64,
}

/// A rank's calls in the groups and numbers of `into`; `None` if they do not fit.
fn renumbered(into: &CallLog, from: &CallLog, own: &RankLog, clock: Clock) -> Option<RankLog> {
    let mut known: BTreeMap<GroupId, Renumbering> = BTreeMap::new();
    let mut by_group: BTreeMap<GroupId, Vec<&CallRecord>> = BTreeMap::new();
    for record in own.calls.iter().filter(|record| is_visible(record) && record.seq.is_some()) {
        by_group.entry(record.call.group).or_default().push(record);
    }
    for (group, calls) in by_group {
        known.insert(group, renumbering(into, from, group, &calls)?);
    }
    let mut shared: BTreeMap<usize, Arc<Called>> = BTreeMap::new();
    let mut taken = RankLog::default();
    taken.recording.groups_assumed = own.recording.groups_assumed;
    let computations = own.recording.computations.iter().map(|one| RecordedComputation {
        from_ps: clock.here(one.from_ps),
        to_ps: clock.here(one.to_ps),
        name: Arc::clone(&one.name),
    });
    taken.recording.computations.extend(computations);
    for record in &own.calls {
        let of = known.get(&record.call.group).copied();
        // A group in which only messages are sent has no numbers to be laid over each other.
        let of = of.or_else(|| {
            let group = same_group(into, from, record.call.group).filter(|_| record.call.p2p)?;
            Some(Renumbering { group, higher_by: 0 })
        })?;
        let peer =
            record.call.peer.map(|peer| moved(into, from, (of.group, record.call.group), peer));
        let called = shared.entry(Arc::as_ptr(&record.call).addr()).or_insert_with(|| {
            let peer = peer.flatten();
            Arc::new(Called { group: of.group, peer, ..Called::clone(&record.call) })
        });
        let seq = match (record.seq, record.call.p2p) {
            (Some(seq), false) => {
                Some(seq.checked_add_signed(of.higher_by).filter(|seq| *seq > 0)?)
            }
            (seq, _) => seq,
        };
        taken.calls.push(CallRecord {
            seq,
            scheduled_ps: clock.here(record.scheduled_ps),
            started_ps: record.started_ps.map(|ps| clock.here(ps)),
            completed_ps: record.completed_ps.map(|ps| clock.here(ps)),
            call: Arc::clone(called),
            ..record.clone()
        });
    }
    if from.device_times {
        let works: Vec<u32> = taken.calls.iter().map(|record| record.work).collect();
        taken.recording.device_timed.extend(works);
    }
    (!taken.calls.is_empty()).then_some(taken)
}

/// The group of `into` that one of `from` is: by its name, else by its members, as far as they are listed. gloo's dumps
/// list no members.
fn same_group(into: &CallLog, from: &CallLog, group: GroupId) -> Option<GroupId> {
    let name = from.groups.get(group.index())?.name();
    if let Some(at) = into.groups.iter().position(|own| own.name() == name) {
        return Some(GroupId(at as u32));
    }
    let (_, ranks) = members(from).into_iter().find(|(id, _)| *id == group)?;
    let mut candidates = members(into);
    candidates.retain(|(_, own)| is_within(&ranks, own));
    candidates.into_iter().min_by_key(|(id, own)| (own.len(), *id)).map(|(id, _)| id)
}

/// The numbering of a group of `into` that fits a rank's calls in a group of `from`: they have to reach the group's last
/// recorded call, since the rank would else seem to have stopped.
fn renumbering(
    into: &CallLog,
    from: &CallLog,
    group: GroupId,
    calls: &[&CallRecord],
) -> Option<Renumbering> {
    let same = same_group(into, from, group)?;
    let recorded = into.logs().filter_map(|(_, own)| {
        let of_group = own.calls.iter().filter(|record| {
            record.call.group == same && is_visible(record) && record.seq.is_some()
        });
        let of_group: Vec<&CallRecord> = of_group.collect();
        (!of_group.is_empty()).then_some(of_group)
    });
    let longest = recorded.max_by_key(Vec::len);
    let Some(longest) = longest else {
        // Nobody who was recorded calls in it: its numbers are its own.
        return Some(Renumbering { group: same, higher_by: 0 });
    };
    let (offset, _) = overlay(calls, &longest)?;
    let at = usize::try_from(-offset).unwrap_or(0);
    let there = usize::try_from(at as i64 + offset).ok().and_then(|there| longest.get(there))?;
    let own = calls.get(at).and_then(|call| call.seq)?;
    let higher_by = i64::try_from(there.seq?).ok()?.checked_sub(i64::try_from(own).ok()?)?;
    let last = calls.last().and_then(|call| call.seq)?.checked_add_signed(higher_by)?;
    (Some(last) >= longest.last().and_then(|call| call.seq))
        .then_some(Renumbering { group: same, higher_by })
}

/// The place that a member of one group has in another.
fn moved(
    into: &CallLog,
    from: &CallLog,
    (own, other): (GroupId, GroupId),
    peer: GroupRank,
) -> Option<GroupRank> {
    let rank = from.groups.get(other.index()).and_then(|group| group.global_rank(peer))?;
    into.groups.get(own.index()).and_then(|group: &ProcessGroup| group.group_rank(rank))
}
