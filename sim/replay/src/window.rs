//! Finds the recorded calls of each rank that are replayed: those that all members of a group recorded.
//!
//! A recorder keeps a rank's last calls. Where rings have dropped different numbers of them, the calls of a group
//! begin with the first that no member has dropped.

use crate::assumption::Assumption;
use lockstep_core::group::GroupId;
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::trace::{CallLog, CallRecord, CallState};
use std::collections::{BTreeMap, BTreeSet};

/// The first calls that are replayed.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// Per group, the first sequence number.
    first: BTreeMap<GroupId, u64>,
    /// Per rank and lane of messages, how many of its first calls are left out.
    left_out: BTreeMap<(GlobalRank, Lane), usize>,
    /// Of a job that went on, per group, the last number that all members have come out of; `None` of one that
    /// hung.
    last: Option<BTreeMap<GroupId, u64>>,
}

/// One direction between two members of a group, under a tag: group, sender, receiver, tag.
type Lane = (GroupId, GlobalRank, GlobalRank, u32);

impl Window {
    /// The window of a job that hung where its recording ends, or `went_on`: of that the calls that all members
    /// came out of are replayed.
    pub(crate) fn of(log: &CallLog, went_on: bool, assumed: &mut BTreeSet<Assumption>) -> Window {
        let mut window = Window::default();
        let mut least: BTreeMap<GroupId, u64> = BTreeMap::new();
        for (_, own) in log.logs() {
            let mut first: BTreeMap<GroupId, u64> = BTreeMap::new();
            for record in own.calls.iter().filter(|record| !record.call.p2p) {
                if let Some(seq) = record.seq {
                    let known = first.entry(record.call.group).or_insert(seq);
                    *known = seq.min(*known);
                }
            }
            for (group, seq) in first {
                let most = window.first.entry(group).or_insert(seq);
                *most = seq.max(*most);
                let known = least.entry(group).or_insert(seq);
                *known = seq.min(*known);
            }
        }
        for (group, first) in &window.first {
            let before = first - least.get(group).copied().unwrap_or(*first);
            if before > 0 {
                let label = log.groups.get(group.index()).map_or("?", |group| group.label());
                assumed.insert(Assumption::Dropped { group: label.to_owned(), calls: before });
            }
        }
        let one_sided = window.align_messages(log, went_on);
        if one_sided > 0 {
            assumed.insert(Assumption::OneSided { calls: one_sided });
        }
        window.last = went_on.then(|| last_of_all(log));
        window
    }

    /// Pairs the ended calls of both sides of a lane from their ends, if any recorder's ring was cut, or the job went on:
    /// all messages have arrived then. Returns how many calls have no other side that was recorded, for another reason
    /// than a cut ring.
    fn align_messages(&mut self, log: &CallLog, went_on: bool) -> u64 {
        let is_cut = log.logs().any(|(_, own)| own.is_cut());
        if !is_cut && !went_on {
            return 0;
        }
        let recorded = |rank: GlobalRank| log.ranks.get(rank.index()).is_some_and(Option::is_some);
        let mut one_sided = 0;
        let mut ended: BTreeMap<Lane, [(GlobalRank, usize); 2]> = BTreeMap::new();
        for (rank, own) in log.logs() {
            let over = own.calls.iter().filter(|record| record.state == CallState::Completed);
            for record in over {
                let Some((lane, sends)) = lane(log, rank, record) else { continue };
                let sides = ended.entry(lane).or_insert([(lane.1, 0), (lane.2, 0)]);
                let [send, receive] = sides;
                if sends { send.1 += 1 } else { receive.1 += 1 }
            }
        }
        for (lane, [(sender, sends), (receiver, receives)]) in ended {
            // A rank of which nothing was recorded is assumed to have made the other side.
            if !recorded(sender) || !recorded(receiver) {
                continue;
            }
            one_sided += sends.abs_diff(receives) as u64;
            if let Some(more) = sends.checked_sub(receives).filter(|more| *more > 0) {
                self.left_out.insert((sender, lane), more);
            } else if let Some(more) = receives.checked_sub(sends).filter(|more| *more > 0) {
                self.left_out.insert((receiver, lane), more);
            }
        }
        if is_cut { 0 } else { one_sided }
    }

    /// True of a call, in a job that went on, that not all members had come out of.
    pub(crate) fn is_left_out(&self, record: &CallRecord) -> bool {
        let Some(last) = &self.last else { return false };
        let behind = |seq: u64| last.get(&record.call.group).is_none_or(|last| seq > *last);
        record.state != CallState::Completed || (!record.call.p2p && record.seq.is_some_and(behind))
    }

    /// The calls of a rank that are replayed, by index, in their order.
    pub(crate) fn calls(
        &self,
        log: &CallLog,
        rank: GlobalRank,
        calls: &[CallRecord],
    ) -> Vec<usize> {
        let mut seen: BTreeMap<Lane, usize> = BTreeMap::new();
        let own = log.ranks.get(rank.index()).and_then(Option::as_ref);
        let groups_assumed = own.is_some_and(|own| own.recording.groups_assumed);
        let kept = calls.iter().enumerate().filter(|(_, record)| {
            if self.is_left_out(record) || (groups_assumed && is_groupless(record)) {
                return false;
            }
            if let Some((lane, _)) = lane(log, rank, record) {
                let seen = seen.entry(lane).or_default();
                *seen += 1;
                return *seen > self.left_out.get(&(rank, lane)).copied().unwrap_or(0);
            }
            let Some(seq) = record.seq.filter(|_| !record.call.p2p) else { return true };
            let group = &record.call.group;
            self.first.get(group).is_none_or(|first| seq >= *first)
        });
        kept.map(|(at, _)| at).collect()
    }
}

/// Per group, the last number that all members of which something was recorded have come out of.
fn last_of_all(log: &CallLog) -> BTreeMap<GroupId, u64> {
    let mut last: BTreeMap<GroupId, BTreeMap<GlobalRank, u64>> = BTreeMap::new();
    for (rank, own) in log.logs() {
        let ended = own
            .calls
            .iter()
            .filter(|record| !record.call.p2p && record.state == CallState::Completed);
        for record in ended {
            let Some(seq) = record.seq else { continue };
            let known = last.entry(record.call.group).or_default().entry(rank).or_default();
            *known = seq.max(*known);
        }
    }
    let least = |(group, of): (GroupId, BTreeMap<GlobalRank, u64>)| {
        let members = log.groups.get(group.index()).map(|it| it.ranks()).unwrap_or_default();
        let recorded =
            |rank: &&GlobalRank| log.ranks.get(rank.index()).is_some_and(Option::is_some);
        let all = members.iter().filter(recorded).map(|rank| of.get(rank).copied().unwrap_or(0));
        (group, all.min().unwrap_or(0))
    };
    last.into_iter().map(least).collect()
}

/// The lane of a message whose sides are known, and whether the rank sends.
fn lane(log: &CallLog, rank: GlobalRank, record: &CallRecord) -> Option<(Lane, bool)> {
    let call = &record.call;
    let peer: GroupRank = call.peer.filter(|_| call.p2p)?;
    let peer = log.groups.get(call.group.index())?.global_rank(peer)?;
    let sends = call.op.contains("send");
    let (from, to) = if sends { (rank, peer) } else { (peer, rank) };
    Some(((call.group, from, to, call.tag), sends))
}

/// True of a collective whose group a recording with assumed groups does not tell.
pub(crate) fn is_groupless(record: &CallRecord) -> bool {
    record.seq.is_none() && !record.call.p2p
}
