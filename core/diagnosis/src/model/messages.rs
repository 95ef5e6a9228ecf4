//! Sends and receives: which belong together, and which nobody answers.
//!
//! Between two ranks, the n-th send of a group and tag meets the n-th receive. A ring buffer may
//! have dropped the first ones of either side, so recordings are paired from the calls that are
//! still pending; those are in order as well.

use crate::model::index::{Job, Made};
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::Call;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallRecord, CallState, Called};
use std::collections::{BTreeMap, BTreeSet};

/// A send or receive that has not completed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingP2p<'a> {
    pub(crate) made: Made<'a>,
    pub(crate) peer: GlobalRank,
    /// The call of the peer that it meets, if the peer made it, and its device can come to it.
    pub(crate) partner: Option<Made<'a>>,
    /// True if the peer has made that call, and its device never comes to it: it is in a send or
    /// receive that waits in turn for this one's end.
    pub(crate) queued: bool,
    /// True if the peer's plan has no call left that could meet it.
    pub(crate) never: bool,
}

/// The calls of one direction between two ranks: group, sender, receiver, tag.
type Lane = (GroupId, GlobalRank, GlobalRank, u32);

/// Every send and receive that has not completed, ascending by rank and call.
pub(crate) fn pending<'a>(job: &Job<'a>) -> Vec<PendingP2p<'a>> {
    let mut lanes: BTreeMap<Lane, [Vec<Made<'a>>; 2]> = BTreeMap::new();
    for (rank, log) in job.log.logs() {
        for record in log.calls.iter().filter(|record| record.call.p2p) {
            let call = &record.call;
            let peer = job.group(call.group).and_then(|group| peer(group, record));
            // A receive from any source waits for nobody in particular.
            let Some(peer) = peer.filter(|peer| *peer != rank) else { continue };
            let made = Made { rank, record };
            let sends = call.op.contains("send");
            let (from, to) = if sends { (rank, peer) } else { (peer, rank) };
            let sides = lanes.entry((call.group, from, to, call.tag)).or_default();
            let [send, receive] = sides;
            if sends { send.push(made) } else { receive.push(made) }
        }
    }
    let mut found = Vec::new();
    let planned = planned(job);
    let any = from_any(job);
    for (lane, [mut sends, mut receives]) in lanes {
        let (group, from, to, tag) = lane;
        // Nobody knows which sends a receive from any source took, only that they have ended.
        let taken = any.contains(&(group, to, tag));
        if taken || !(complete(job, from) && complete(job, to)) {
            sends.retain(Made::pending);
            receives.retain(Made::pending);
        }
        // The number of calls that either side makes in its whole program.
        let in_plan = planned.as_ref().map(|lanes| lanes.get(&lane).copied().unwrap_or_default());
        let longest = sends.len().max(receives.len());
        for at in 0..longest {
            let (send, receive) = (sends.get(at).copied(), receives.get(at).copied());
            for (made, partner, peer) in [(send, receive, to), (receive, send, from)] {
                if let Some(made) = made.filter(Made::pending) {
                    let answers =
                        in_plan.map(|[sends, receives]| if peer == to { receives } else { sends });
                    let never =
                        !taken && partner.is_none() && answers.is_some_and(|answers| answers <= at);
                    found.push(PendingP2p { made, peer, partner, queued: false, never });
                }
            }
        }
    }
    meet_from_any(job, &mut found);
    found.sort_by_key(|pending| (pending.made.rank, pending.made.record.work));
    mark_queued(job, &mut found);
    found
}

/// Lets the receives from any source that wait meet the sends to their ranks that nobody else has
/// taken: each rank's first one of a group and tag gets what it has no room for, or was sent first.
fn meet_from_any<'a>(job: &Job<'a>, found: &mut Vec<PendingP2p<'a>>) {
    let mut first: BTreeMap<(GroupId, GlobalRank, u32), Made<'a>> = BTreeMap::new();
    for (rank, log) in job.log.logs() {
        for record in log.calls.iter().filter(|record| from_anyone(job, record)) {
            let made = Made { rank, record };
            if made.pending() {
                first.entry((record.call.group, rank, record.call.tag)).or_insert(made);
            }
        }
    }
    let mut open: BTreeMap<(GroupId, GlobalRank, u32), Vec<usize>> = BTreeMap::new();
    for (at, one) in found.iter().enumerate().filter(|(_, one)| one.partner.is_none()) {
        let call = &one.made.record.call;
        if call.op.contains("send") {
            open.entry((call.group, one.peer, call.tag)).or_default().push(at);
        }
    }
    for (lane, receive) in first {
        // One that fits would have been taken, had this receive not got another.
        let first = |at: &usize| {
            let made = found.get(*at)?.made;
            let fits = fits(&made.record.call, &receive.record.call);
            Some((fits, made.record.scheduled_ps, made.rank))
        };
        let sent = open.get(&lane).and_then(|open| open.iter().copied().min_by_key(first));
        let Some(sent) = sent.and_then(|at| found.get_mut(at)) else { continue };
        (sent.partner, sent.never) = (Some(receive), false);
        let (peer, partner) = (sent.made.rank, Some(sent.made));
        found.push(PendingP2p { made: receive, peer, partner, queued: false, never: false });
    }
}

/// True if a receive expects exactly the elements that are sent, of the same type.
fn fits(sent: &Called, received: &Called) -> bool {
    let dtype = |call: &Called| call.inputs.iter().chain(&call.outputs).map(|it| it.dtype).next();
    (sent.payload(), dtype(sent)) == (received.payload(), dtype(received))
}

/// True of a receive that takes the first message of any sender. NCCL has none: there a receive without a peer
/// is one whose recorder does not name it.
pub(crate) fn from_anyone(job: &Job<'_>, record: &CallRecord) -> bool {
    let nccl = || job.group(record.call.group).is_some_and(|it| it.backend() == BackendName::Nccl);
    record.call.p2p && record.call.peer.is_none() && record.call.op.contains("recv") && !nccl()
}

/// The call that each rank's device is in, as far as that is a send or receive. A recorder without timing
/// does not tell a call that began from one that waits for its turn, so that the first one stands for it
/// there: a process that made it as one call waits with the next for its end.
fn begun(job: &Job<'_>, pending: &[PendingP2p<'_>]) -> BTreeMap<GlobalRank, u32> {
    let mut first: BTreeMap<GlobalRank, u32> = BTreeMap::new();
    for one in pending.iter().filter(|one| one.made.record.state == CallState::Started) {
        first.entry(one.made.rank).or_insert(one.made.record.work);
    }
    for (rank, own) in job.log.logs().filter(|_| job.log.recorded) {
        let waits = |record: &CallRecord| record.state != CallState::Completed;
        let Some(at) = own.calls.iter().position(waits) else { continue };
        let Some(one) = own.calls.get(at).filter(|one| one.call.p2p) else { continue };
        let group = job.group(one.call.group).filter(|it| it.backend() == BackendName::Nccl);
        // The calls of a batch begin together, and share a number.
        let of_batch = |near: Option<&CallRecord>| {
            near.is_some_and(|near| {
                near.call.p2p && (near.call.group, near.seq) == (one.call.group, one.seq)
            })
        };
        let before = at.checked_sub(1).and_then(|at| own.calls.get(at));
        if group.is_some() && !of_batch(before) && !of_batch(own.calls.get(at + 1)) {
            first.entry(rank).or_insert(one.work);
        }
    }
    first
}

/// Marks the calls of circles that close on devices: on NCCL a rank's process goes on behind a send,
/// and has made the receive that the other one waits for; its device begins that after the send, which
/// waits for the other one's.
fn mark_queued(job: &Job<'_>, pending: &mut [PendingP2p<'_>]) {
    let first = begun(job, pending);
    let behind = |one: &PendingP2p<'_>| {
        let partner = one.partner?;
        let held = first.get(&partner.rank).is_some_and(|work| *work < partner.record.work);
        let own = &one.made.record;
        let begun = own.state == CallState::Started || first.get(&one.made.rank) == Some(&own.work);
        let waits = begun && held && partner.record.state == CallState::Scheduled;
        waits.then_some((one.made.rank, partner.rank))
    };
    let mut edges: BTreeSet<(GlobalRank, GlobalRank)> = pending.iter().filter_map(behind).collect();
    // A rank that nobody waits behind, or that waits behind nobody, is in no cycle.
    loop {
        let from: BTreeSet<GlobalRank> = edges.iter().map(|edge| edge.0).collect();
        let to: BTreeSet<GlobalRank> = edges.iter().map(|edge| edge.1).collect();
        let before = edges.len();
        edges.retain(|(a, b)| to.contains(a) && from.contains(b));
        if edges.len() == before {
            break;
        }
    }
    for one in pending {
        if behind(one).is_some_and(|edge| edges.contains(&edge)) {
            (one.partner, one.queued) = (None, true);
        }
    }
}

/// The ranks that have received from any source, in which group and with which tag.
fn from_any(job: &Job<'_>) -> BTreeSet<(GroupId, GlobalRank, u32)> {
    let mut found = BTreeSet::new();
    for (rank, log) in job.log.logs() {
        let ended = |record: &&CallRecord| record.call.p2p && record.state == CallState::Completed;
        let any = log.calls.iter().filter(ended).filter(|record| from_anyone(job, record));
        found.extend(any.map(|record| (record.call.group, rank, record.call.tag)));
    }
    found
}

/// Sends and receives of every lane that the plan has; `None` without a plan, and for ranks that
/// would have gone on had they not died there.
fn planned(job: &Job<'_>) -> Option<BTreeMap<Lane, [usize; 2]>> {
    let plan = job.log.plan.as_deref()?;
    let mut lanes: BTreeMap<Lane, [usize; 2]> = BTreeMap::new();
    for rank in (0..plan.world_size).map(GlobalRank) {
        let ops = plan.program(rank).map(|program| program.ops.as_slice()).unwrap_or_default();
        if ops.iter().any(|op| op.action.ends_by().is_some()) {
            return None;
        }
        for call in ops.iter().flat_map(|op| op.action.calls()) {
            let peer = |group: GroupId, peer| plan.group(group)?.global_rank(peer);
            match call {
                Call::Send { group, peer: to, tag, .. } => {
                    let Some(to) = peer(*group, *to) else { continue };
                    lanes.entry((*group, rank, to, *tag)).or_default()[0] += 1;
                }
                Call::Recv { group, peer: from, tag, .. } => {
                    // Whoever sends first may be anybody.
                    let from = (*from)?;
                    let Some(from) = peer(*group, from) else { continue };
                    lanes.entry((*group, from, rank, *tag)).or_default()[1] += 1;
                }
                Call::Collective { .. } => {}
            }
        }
    }
    Some(lanes)
}

/// Pending calls of one direction between two ranks whose tags differ: the send, and the receive.
pub(crate) fn tags_apart<'s, 'a>(
    pending: &'s [PendingP2p<'a>],
) -> Vec<(&'s PendingP2p<'a>, &'s PendingP2p<'a>)> {
    let open = || pending.iter().filter(|pending| pending.partner.is_none() && !pending.queued);
    let sends = |pending: &PendingP2p<'_>| pending.made.record.call.op.contains("send");
    let mut receives: BTreeMap<(GroupId, GlobalRank, GlobalRank), Vec<&PendingP2p<'_>>> =
        BTreeMap::new();
    for receive in open().filter(|pending| !sends(pending)) {
        let key = (receive.made.record.call.group, receive.peer, receive.made.rank);
        receives.entry(key).or_default().push(receive);
    }
    let mut apart = Vec::new();
    for send in open().filter(|pending| sends(pending)) {
        let key = (send.made.record.call.group, send.made.rank, send.peer);
        if let Some(receive) = receives.get_mut(&key).and_then(|found| found.pop()) {
            apart.push((send, receive));
        }
    }
    apart
}

/// The ranks to blame for calls that nobody will ever answer: of each pair of ranks the one that
/// is at odds with more others, and of two alike the one that does not answer.
pub(crate) fn silent(pending: &[PendingP2p<'_>]) -> BTreeSet<GlobalRank> {
    let pairs: BTreeSet<(GlobalRank, GlobalRank)> = pending
        .iter()
        .filter(|pending| pending.never)
        .map(|pending| (pending.made.rank, pending.peer))
        .collect();
    let mut others: BTreeMap<GlobalRank, BTreeSet<GlobalRank>> = BTreeMap::new();
    for (waits, peer) in &pairs {
        others.entry(*waits).or_default().insert(*peer);
        others.entry(*peer).or_default().insert(*waits);
    }
    let degree = |rank: &GlobalRank| others.get(rank).map_or(0, BTreeSet::len);
    pairs
        .iter()
        .map(|(waits, peer)| if degree(waits) > degree(peer) { *waits } else { *peer })
        .collect()
}

/// True if everything that the rank ever called is in its log.
pub(crate) fn complete(job: &Job<'_>, rank: GlobalRank) -> bool {
    job.rank(rank).is_some_and(|own| !own.calls.is_empty() && !own.is_cut())
}

/// The other side of a point-to-point call.
pub(crate) fn peer(group: &ProcessGroup, record: &CallRecord) -> Option<GlobalRank> {
    group.global_rank(record.call.peer?)
}
