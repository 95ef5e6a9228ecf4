//! The calls that belong together, and the peer that each of them waited for.
//!
//! Calls of one group under one sequence number are one collective; the n-th send of a rank to another under a tag
//! belongs to the n-th receive. A call can begin to move data when the peers that it needs are ready: all members of
//! an all_reduce, the root of a broadcast, both sides of a message.

use crate::activity::{Activity, TimedCall};
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;

/// A call by its rank and its index among the rank's calls.
pub(crate) type CallAt = (GlobalRank, usize);

/// The last peer that a call needed, the call itself included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Last {
    /// When that peer was ready.
    pub(crate) ready_ps: u64,
    /// Its call.
    pub(crate) call: CallAt,
}

/// The time in which a call moved data, from when its last peer was ready to when its last member was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The member that was ready last; of a message, its sender or receiver.
    pub rank: GlobalRank,
    /// The call's index among that rank's calls.
    pub call: usize,
    /// In picoseconds.
    pub time_ps: u64,
}

/// The transfers of all collectives and messages whose peers' calls are known and which ended.
pub fn transfers(activity: &Activity) -> Vec<Transfer> {
    let meetings = Meetings::of(activity);
    let mut transfers = Vec::new();
    for collective in &meetings.collectives {
        let Some((ready_ps, (rank, call))) = collective.calls.last().copied() else { continue };
        let ends = collective.calls.iter().map(|(_, at)| activity.call(*at)?.ended_ps);
        if let Some(end_ps) = ends.collect::<Option<Vec<u64>>>().and_then(|it| it.into_iter().max())
        {
            transfers.push(Transfer { rank, call, time_ps: end_ps.saturating_sub(ready_ps) });
        }
    }
    for (rank, own) in (0..).map(GlobalRank).zip(&activity.ranks) {
        // A message counts once, by its receiver.
        let receives = |call: &TimedCall| call.called.p2p && call.called.op.contains("recv");
        for (at, call) in own.calls.iter().enumerate().filter(|(_, call)| receives(call)) {
            let last = meetings.last((rank, at)).zip(call.ended_ps);
            if let Some((last, end_ps)) = last {
                let time_ps = end_ps.saturating_sub(last.ready_ps);
                transfers.push(Transfer { rank, call: at, time_ps });
            }
        }
    }
    transfers
}

/// The time that each member's call of a collective moved data: from when the last peer that it needed was ready to its
/// own end. Of collectives whose members' calls are all known.
pub fn member_times(activity: &Activity) -> Vec<Transfer> {
    let meetings = Meetings::of(activity);
    let calls = meetings.collectives.iter().flat_map(|collective| &collective.calls);
    let times = calls.filter_map(|(_, (rank, at))| {
        let ended_ps = activity.call((*rank, *at))?.ended_ps?;
        let last = meetings.last((*rank, *at))?;
        let time_ps = ended_ps.saturating_sub(last.ready_ps);
        Some(Transfer { rank: *rank, call: *at, time_ps })
    });
    times.collect()
}

/// False for a recording whose recorder shows when calls were issued and not when they ended, as gloo's
/// Flight Recorder does: then a call counts as ended when its last member has issued it, and no transfer
/// takes any time.
pub fn knows_ends(activity: &Activity) -> bool {
    if !activity.is_recorded {
        return true;
    }
    let transfers = transfers(activity);
    if !transfers.is_empty() {
        return transfers.iter().any(|transfer| transfer.time_ps > 0);
    }
    let mut ended =
        activity.ranks.iter().flat_map(|own| &own.calls).filter(|call| call.ended_ps.is_some());
    let takes_time = |call: &TimedCall| call.ended_ps > Some(call.ready_ps);
    ended.clone().next().is_none() || ended.any(takes_time)
}

/// A collective of which the calls of all members that left a recording are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collective {
    /// The members' calls, by when they were ready.
    pub(crate) calls: Vec<(u64, CallAt)>,
}

/// All meetings of a job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meetings {
    /// By rank and call: the last peer it needed; `None` where the peers' calls are not known.
    last: Vec<Vec<Option<Last>>>,
    /// The collectives, by group and number.
    pub(crate) collectives: Vec<Collective>,
}

impl Meetings {
    pub(crate) fn of(activity: &Activity) -> Meetings {
        let last = activity.ranks.iter().map(|own| vec![None; own.calls.len()]).collect();
        let mut meetings = Meetings { last, collectives: Vec::new() };
        meetings.add_collectives(activity);
        meetings.add_messages(activity);
        meetings
    }

    /// The last peer that a call needed.
    pub(crate) fn last(&self, (rank, at): CallAt) -> Option<Last> {
        *self.last.get(rank.index())?.get(at)?
    }

    fn set(&mut self, (rank, at): CallAt, last: Last) {
        if let Some(slot) = self.last.get_mut(rank.index()).and_then(|own| own.get_mut(at)) {
            *slot = Some(last);
        }
    }

    fn add_collectives(&mut self, activity: &Activity) {
        // Sorted instead of a map: recordings have millions of calls.
        let mut calls: Vec<(GroupId, u64, u64, CallAt)> = Vec::new();
        for (rank, own) in (0..).map(GlobalRank).zip(&activity.ranks) {
            for (at, call) in own.calls.iter().enumerate() {
                if let Some(seq) = call.seq.filter(|_| !call.called.p2p) {
                    calls.push((call.called.group, seq, call.ready_ps, (rank, at)));
                }
            }
        }
        calls.sort_unstable();
        // The arrival of a rank without a recording is unknown: the others are compared with each other.
        let is_recorded =
            |rank: &&GlobalRank| activity.ranks.get(rank.index()).is_some_and(|own| own.recorded);
        let recorded = |group: &ProcessGroup| group.ranks().iter().filter(is_recorded).count();
        let members: Vec<usize> = activity.groups.iter().map(recorded).collect();
        for row in calls.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let Some(first) = row.first() else { continue };
            if members.get(first.0.index()).is_none_or(|members| row.len() < *members) {
                // A member's call is missing: who came last is not known.
                continue;
            }
            let calls: Vec<(u64, CallAt)> = row.iter().map(|call| (call.2, call.3)).collect();
            self.add_collective(activity, &calls);
            self.collectives.push(Collective { calls });
        }
    }

    fn add_collective(&mut self, activity: &Activity, calls: &[(u64, CallAt)]) {
        let Some((ready_ps, call)) = calls.last().copied() else { return };
        let last = Last { ready_ps, call };
        let called = activity.call(call).map(|call| &call.called);
        let (op, root) = called.map_or(("", None), |called| (called.op.as_str(), called.root));
        let group = called.and_then(|called| activity.groups.get(called.group.index()));
        let root = root.and_then(|root| group?.global_rank(root));
        let of_root = calls.iter().find(|(_, (rank, _))| Some(*rank) == root);
        for (own_ps, call) in calls {
            let own = Last { ready_ps: *own_ps, call: *call };
            let needed = match (op, of_root) {
                ("broadcast" | "scatter", Some((root_ps, root))) => {
                    let root = Last { ready_ps: *root_ps, call: *root };
                    if root.ready_ps > own.ready_ps { root } else { own }
                }
                ("reduce" | "gather", Some((_, root))) if root != call => own,
                _ => last,
            };
            self.set(*call, needed);
        }
    }

    fn add_messages(&mut self, activity: &Activity) {
        type Lane = (GroupId, GlobalRank, GlobalRank, u32);
        let mut lanes: BTreeMap<Lane, [Vec<CallAt>; 2]> = BTreeMap::new();
        for (rank, own) in (0..).map(GlobalRank).zip(&activity.ranks) {
            for (at, call) in own.calls.iter().enumerate().filter(|(_, call)| call.called.p2p) {
                let called = &call.called;
                let group = activity.groups.get(called.group.index());
                let peer = called.peer.and_then(|peer| group?.global_rank(peer));
                let Some(peer) = peer else { continue };
                // NCCL does not look at tags.
                let nccl = group.is_some_and(|group| group.backend() == BackendName::Nccl);
                let tag = if nccl { 0 } else { called.tag };
                let sends = called.op.contains("send");
                let (from, to) = if sends { (rank, peer) } else { (peer, rank) };
                let [sent, received] = lanes.entry((called.group, from, to, tag)).or_default();
                if sends { sent } else { received }.push((rank, at));
            }
        }
        for [sent, received] in lanes.values() {
            for (send, receive) in sent.iter().zip(received) {
                let times = [send, receive].map(|call| (activity.call(*call), *call));
                let [(Some(sent), send), (Some(received), receive)] = times else { continue };
                let last = match sent.ready_ps > received.ready_ps {
                    true => Last { ready_ps: sent.ready_ps, call: send },
                    false => Last { ready_ps: received.ready_ps, call: receive },
                };
                self.set(send, last);
                self.set(receive, last);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::activity::RankActivity;
    use lockstep_core::rank::GroupRank;
    use lockstep_core::trace::Called;
    use std::sync::Arc;

    /// A call of the world that is ready and ends at these times.
    pub(crate) fn call(op: &str, root: Option<u32>, ready_ps: u64, ended_ps: u64) -> TimedCall {
        let called = Called {
            op: op.to_owned(),
            group: GroupId::WORLD,
            p2p: false,
            peer: None,
            tag: 0,
            inputs: Vec::new(),
            outputs: Vec::new(),
            reduce_op: None,
            root: root.map(GroupRank),
            stack: Arc::default(),
        };
        let called = Arc::new(called);
        TimedCall {
            work: 0,
            plan_op: None,
            seq: Some(1),
            made_ps: ready_ps,
            ready_ps,
            on_device: false,
            ended_ps: Some(ended_ps),
            called,
        }
    }

    fn needed(op: &str, root: Option<u32>, ready: [u64; 3]) -> Vec<u64> {
        let rank = |ready_ps| RankActivity {
            recorded: true,
            calls: vec![call(op, root, ready_ps, 100)],
            ..RankActivity::default()
        };
        let activity = Activity {
            ranks: ready.into_iter().map(rank).collect(),
            groups: vec![ProcessGroup::world(3, BackendName::Host).unwrap()],
            start_ps: 0,
            end_ps: 100,
            knows_computations: false,
            is_recorded: false,
            has_device_times: false,
        };
        let meetings = Meetings::of(&activity);
        (0..3).map(|rank| meetings.last((GlobalRank(rank), 0)).unwrap().ready_ps).collect()
    }

    #[test]
    fn a_call_needs_the_peers_whose_data_it_gets() {
        assert_eq!(needed("all_reduce", None, [5, 9, 7]), [9, 9, 9]);
        assert_eq!(needed("broadcast", Some(2), [5, 9, 7]), [7, 9, 7]);
        assert_eq!(needed("reduce", Some(0), [5, 9, 7]), [9, 9, 7]);
    }
}
