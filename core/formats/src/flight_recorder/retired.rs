//! Contradictions between the ranks' dumps about each other's calls.
//!
//! gloo's recorder retires a call that failed as it does one that succeeded
//! (`ProcessGroupGloo::AsyncWork::execute`, `Work::finish`): a job that ended in its timeout looks
//! as if all was well. But a collective whose result is made of everybody's data cannot have
//! succeeded without a member. Where a member's dump ends before such a call that others have
//! behind them, either it failed on them, and they stopped there; or they went on, and the member's
//! dump is older than theirs.

use super::names::needs_all;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, CallRecord, CallState, MaybeEarly, RankLog};
use std::collections::{BTreeMap, BTreeSet};

/// Takes back the ends of calls that cannot have ended well, and marks ranks whose dumps are older than the
/// others' calls with them. `ends_unseen` are groups whose calls are retired when they are issued: a rank's
/// later calls do not show that such a call ended.
pub(super) fn compare(log: &mut CallLog, ends_unseen: &BTreeSet<GroupId>) {
    mark_outrun_on_nccl(log, ends_unseen);
    let groups = log.groups.iter().zip(0..).map(|(group, id)| (group, GroupId(id)));
    let retired_early = groups.filter(|(group, id)| {
        let unreliable = group.backend() == BackendName::Gloo || ends_unseen.contains(id);
        unreliable && group.size() > 1
    });
    let ids: Vec<GroupId> = retired_early.map(|(_, id)| id).collect();
    for id in ids {
        let Some(group) = log.groups.get(id.index()) else { continue };
        let issued_only = ends_unseen.contains(&id);
        let members: Vec<GlobalRank> = group.ranks().to_vec();
        // Gloo does not list the members of its groups: who never called one may be none.
        let last = |rank: &GlobalRank| {
            let last = last_in(log, *rank, id)?;
            (id == GroupId::WORLD || last > 0).then_some((*rank, last))
        };
        let last: Vec<(GlobalRank, u64)> = members.iter().filter_map(last).collect();
        let mut failed: BTreeSet<(GlobalRank, u32)> = BTreeSet::new();
        let mut early: Vec<GlobalRank> = Vec::new();
        let mut maybe: Vec<GlobalRank> = Vec::new();
        let mut by_some: Vec<GlobalRank> = Vec::new();
        // Many ranks stand in few places.
        let mut seen: BTreeMap<u64, (Outrun, bool)> = BTreeMap::new();
        for (rank, seq) in &last {
            let (outrun, some) = *seen.entry(*seq).or_insert_with(|| {
                let beyond = beyond(log, id, &last, *seq);
                let some = stands_in_what_ended(log, id, &beyond);
                let outrun = beyond.iter().map(|(_, calls)| went_on(calls)).max();
                let outrun = outrun.filter(|_| !issued_only).unwrap_or(Outrun::No);
                if outrun != Outrun::Yes {
                    let ended = |(other, calls): &(GlobalRank, Beyond<'_>)| {
                        let other = *other;
                        let works = calls.ended.iter().map(move |record| (other, record.work));
                        works.collect::<Vec<_>>()
                    };
                    failed.extend(beyond.iter().flat_map(ended));
                }
                (outrun, some)
            });
            let is_late = || !issued_only && is_late_in_one(log, id, *rank, &last);
            if outrun == Outrun::Yes || is_late() {
                early.push(*rank);
            } else if outrun == Outrun::Maybe {
                maybe.push(*rank);
            } else if some && !issued_only {
                by_some.push(*rank);
            }
        }
        for rank in maybe {
            if let Some(own) = log_mut(log, rank) {
                own.recording.maybe_early = MaybeEarly::Outrun;
            }
        }
        for rank in by_some {
            if let Some(own) = log_mut(log, rank) {
                own.recording.maybe_early = MaybeEarly::OutrunBySome;
            }
        }
        for rank in early {
            if let Some(own) = log_mut(log, rank) {
                own.recording.dumped_early = true;
            }
        }
        for (rank, work) in failed {
            let record = log_mut(log, rank).and_then(|own| own.calls.get_mut(work as usize));
            if let Some(record) = record {
                pending_again(record);
            }
        }
    }
}

/// Takes back the end of a rank's last call that its dump retires and does not count as ended, where a member
/// of the group left no dump and others went on to a call that the rank never made: for want of that member
/// the call failed on this rank. `uncounted` are such calls by rank, group and number.
pub(super) fn take_back_without_dump(log: &mut CallLog, uncounted: &[(GlobalRank, GroupId, u64)]) {
    for (rank, group, seq) in uncounted {
        let members = log.groups.get(group.index()).map(|it| it.ranks()).unwrap_or_default();
        let of = |rank: &GlobalRank| log.ranks.get(rank.index()).and_then(Option::as_ref);
        let is_missing = members.iter().any(|member| of(member).is_none());
        let went_on = members.iter().filter(|member| *member != rank).any(|member| {
            of(member).is_some_and(|own| {
                own.calls.last().is_some_and(|last| is_of(last, *group) && last.seq > Some(*seq))
            })
        });
        let last = log_mut(log, *rank).filter(|_| is_missing && went_on);
        let last = last.and_then(|own| own.calls.last_mut());
        if let Some(record) = last.filter(|it| is_of(it, *group) && it.seq == Some(*seq)) {
            pending_again(record);
        }
    }
}

/// Makes a call one that has not ended.
fn pending_again(record: &mut CallRecord) {
    record.completed_ps = None;
    record.state = match record.started_ps {
        Some(_) => CallState::Started,
        None => CallState::Scheduled,
    };
}

/// Marks ranks on NCCL whose dumps lack a collective that needs all members and that other ranks have left:
/// the rank's dump is older, or the others' communicator was aborted under the call, which ends it as well.
fn mark_outrun_on_nccl(log: &mut CallLog, ends_unseen: &BTreeSet<GroupId>) {
    let nccl = |id: GroupId| {
        let group = Some(id).filter(|id| !ends_unseen.contains(id));
        let group = group.and_then(|id| log.groups.get(id.index()));
        group.is_some_and(|group| group.backend() == BackendName::Nccl && group.size() > 1)
    };
    let mut ended: BTreeMap<GroupId, u64> = BTreeMap::new();
    for record in log.logs().flat_map(|(_, own)| &own.calls) {
        let group = record.call.group;
        let (Some(seq), false) = (record.seq, record.call.p2p) else { continue };
        let known = ended.get(&group).copied();
        if known.is_none_or(|known| known < seq)
            && record.state == CallState::Completed
            && needs_all(&record.call.op)
            && nccl(group)
        {
            ended.insert(group, seq);
        }
    }
    let mut outrun = outrun_by_peers(log, ends_unseen);
    for (rank, own) in log.logs() {
        let mut last: BTreeMap<GroupId, u64> = own.recording.enqueued.clone();
        for record in own.calls.iter().filter(|record| !record.call.p2p) {
            let seq = record.seq.unwrap_or(0);
            let last = last.entry(record.call.group).or_insert(seq);
            *last = seq.max(*last);
        }
        let from_the_start = is_whole(own);
        let is_member = |id: GroupId| {
            log.groups.get(id.index()).is_some_and(|group| group.group_rank(rank).is_some())
        };
        let behind = |(id, ended): (&GroupId, &u64)| {
            let last = last.get(id).copied().or(from_the_start.then_some(0));
            last.is_some_and(|last| last < *ended) && is_member(*id)
        };
        if ended.iter().any(behind) {
            outrun.push(rank);
        }
    }
    for rank in outrun {
        if let Some(own) = log_mut(log, rank) {
            own.recording.maybe_early = MaybeEarly::Outrun;
        }
    }
}

/// The ranks on NCCL that made fewer sends than a peer has received of them, where the recorder has
/// dropped none of either. A send may end before its receive is called.
fn outrun_by_peers(log: &CallLog, ends_unseen: &BTreeSet<GroupId>) -> Vec<GlobalRank> {
    // Per direction: how many sends were called, and how many receives have ended.
    let mut lanes: BTreeMap<(GroupId, GlobalRank, GlobalRank), (usize, usize)> = BTreeMap::new();
    for (rank, own) in log.logs().filter(|(_, own)| is_whole(own)) {
        let messages = own.calls.iter().filter(|record| record.call.p2p);
        for record in messages.filter(|record| !ends_unseen.contains(&record.call.group)) {
            let (group, op) = (record.call.group, record.call.op.as_str());
            let known =
                log.groups.get(group.index()).filter(|it| it.backend() == BackendName::Nccl);
            let peer = known.zip(record.call.peer).and_then(|(it, peer)| it.global_rank(peer));
            let Some(peer) = peer else { continue };
            if op.contains("send") {
                lanes.entry((group, rank, peer)).or_default().0 += 1;
            } else if op.contains("recv") && record.state == CallState::Completed {
                lanes.entry((group, peer, rank)).or_default().1 += 1;
            }
        }
    }
    let known = |rank: &GlobalRank| {
        log.ranks.get(rank.index()).is_some_and(|own| own.as_ref().is_some_and(is_whole))
    };
    let behind = lanes.into_iter().filter(|(_, (sent, received))| sent < received);
    behind.map(|((_, from, _), _)| from).filter(known).collect()
}

/// True if the recorder has certainly dropped none of a rank's calls: a dump without their numbers does not
/// say.
fn is_whole(own: &RankLog) -> bool {
    own.calls.first().is_none_or(|first| first.record_id == Some(0))
}

fn log_mut(log: &mut CallLog, rank: GlobalRank) -> Option<&mut RankLog> {
    log.ranks.get_mut(rank.index())?.as_mut()
}

/// The number of the last collective of a rank in a group, 0 if there was none; `None` where that
/// is not known: nothing was recorded of it, or not from its beginning.
fn last_in(log: &CallLog, rank: GlobalRank, group: GroupId) -> Option<u64> {
    let own = log.ranks.get(rank.index())?.as_ref()?;
    let called = own.calls.iter().rev().find(|record| is_of(record, group));
    let called = called.and_then(|record| record.seq);
    let enqueued = own.recording.enqueued.get(&group).copied();
    called.max(enqueued).or(is_whole(own).then_some(0))
}

fn is_of(record: &CallRecord, group: GroupId) -> bool {
    record.call.group == group && !record.call.p2p
}

/// The answer to whether other ranks went on without this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outrun {
    No,
    /// The ring holds too few calls to decide.
    Maybe,
    Yes,
}

/// The calls of a rank in a group after the last call of a member.
struct Beyond<'a> {
    /// Calls that need all members and are said to have ended.
    ended: Vec<&'a CallRecord>,
    /// The rank's calls after the first of those, in any group.
    later: Vec<&'a CallRecord>,
    /// The number of DDP buckets that the rank reduces in a step; `None` if the ring has dropped the calls
    /// that show it.
    buckets: Option<usize>,
}

/// The calls of the other members after `seq`, as far as they cannot be without everybody.
fn beyond<'a>(
    log: &'a CallLog,
    group: GroupId,
    members: &[(GlobalRank, u64)],
    seq: u64,
) -> Vec<(GlobalRank, Beyond<'a>)> {
    let further = members.iter().filter(|(_, last)| *last > seq);
    let found = further.filter_map(|(rank, _)| {
        let own = log.ranks.get(rank.index())?.as_ref()?;
        let calls = own.calls.as_slice();
        let is_known =
            |record: &CallRecord| is_of(record, group) && record.seq.is_some_and(|own| own <= seq);
        let known = calls.iter().rposition(is_known);
        let rest = calls.get(known.map_or(0, |at| at + 1)..)?;
        let ended = rest.iter().filter(|record| {
            is_of(record, group)
                && needs_all(&record.call.op)
                && record.state == CallState::Completed
        });
        let ended: Vec<&CallRecord> = ended.collect();
        let first = ended.first()?;
        let later = rest.iter().filter(|record| record.work > first.work).collect();
        let buckets = buckets_a_step(own, first);
        Some((*rank, Beyond { ended, later, buckets }))
    });
    found.collect()
}

/// True if a rank still waits in the first of the calls that others are said to have come out of.
fn stands_in_what_ended(
    log: &CallLog,
    group: GroupId,
    beyond: &[(GlobalRank, Beyond<'_>)],
) -> bool {
    let ended = beyond.iter().filter_map(|(_, calls)| calls.ended.first()?.seq).min();
    let in_it =
        |record: &CallRecord| is_of(record, group) && ended.is_some() && record.seq == ended;
    // A rank that waits in it made no later call of the group.
    let last = log.logs().filter_map(|(_, own)| own.calls.iter().rev().find(|it| is_of(it, group)));
    let mut last = last.filter(|record| in_it(record));
    last.any(|record| record.state != CallState::Completed)
}

/// True if the rank called something that it would not have called had the first of the calls
/// failed. DDP has the buckets of a step reduced before it looks at one of them.
fn went_on(beyond: &Beyond<'_>) -> Outrun {
    let of_ddp = beyond.ended.first().is_some_and(|first| first.call.is_ddp_bucket());
    let yes = |is: bool| if is { Outrun::Yes } else { Outrun::No };
    match beyond.later.iter().all(|record| of_ddp && record.call.is_ddp_bucket()) {
        true if beyond.later.is_empty() => Outrun::No,
        true => beyond.buckets.map_or(Outrun::Maybe, |step| yes(beyond.later.len() >= step.max(1))),
        false => Outrun::Yes,
    }
}

/// True of a rank whose last call runs, while another member has come out of it and gone on: it will
/// come out of it too, since everybody has come and called the same.
fn is_late_in_one(
    log: &CallLog,
    group: GroupId,
    rank: GlobalRank,
    members: &[(GlobalRank, u64)],
) -> bool {
    let of = |rank: GlobalRank| log.ranks.get(rank.index())?.as_ref();
    let Some(last) = of(rank).and_then(|own| own.calls.last()) else { return false };
    let all = log.groups.get(group.index()).map_or(0, |group| group.size() as usize);
    if !is_of(last, group)
        || !needs_all(&last.call.op)
        // Each of its ranks is through when its own parts have come, as the others' need not.
        || last.call.op.starts_with("all_to_all")
        || last.state == CallState::Completed
        || members.len() < all
    {
        return false;
    }
    let others = members.iter().filter(|(other, _)| *other != rank);
    let mut gone_on = false;
    for (other, _) in others {
        let calls = of(*other).map(|own| own.calls.as_slice()).unwrap_or_default();
        let mut back = calls.iter().rev();
        let same = back.find(|record| is_of(record, group) && record.seq == last.seq);
        let Some(same) = same.filter(|same| {
            same.call.op == last.call.op
                && same.call.inputs == last.call.inputs
                && same.call.outputs == last.call.outputs
        }) else {
            return false;
        };
        // DDP has the other buckets of a step reduced before it looks at this one.
        let of_step =
            |record: &CallRecord| same.call.is_ddp_bucket() && record.call.is_ddp_bucket();
        let mut later = calls.iter().rev().take_while(|record| record.work > same.work);
        gone_on |= same.state == CallState::Completed && later.any(|record| !of_step(record));
    }
    gone_on
}

/// The number of buckets that DDP reduces in a step, as the calls before `first` show; 0 if the call is not
/// DDP's, or they do not show it, and `None` if it is unknown because the ring has dropped calls.
fn buckets_a_step(own: &RankLog, first: &CallRecord) -> Option<usize> {
    if !first.call.is_ddp_bucket() {
        return Some(0);
    }
    let before = own.calls.iter().filter(|record| {
        record.work < first.work
            && record.call.group == first.call.group
            && record.call.is_ddp_bucket()
    });
    let before: Vec<u64> = before.map(|record| record.call.payload()).collect();
    lockstep_core::trace::period(&before).or((!own.is_cut()).then_some(before.len()))
}
