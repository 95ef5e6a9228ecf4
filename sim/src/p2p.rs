//! Point-to-point calls: a send and a receive of the same group, peers and tag are matched in the
//! order in which they were called; the transfer begins when both are there, and completes both.
//! A receive from any source takes the send that was posted first. Of receives that could take a
//! send, the one posted first has it (MPI's matching order), but on gloo: there a receive that names
//! its source has the next send of it that comes, and one from any source, however long it has
//! waited, only what nobody has asked for by name (`Pair::recv` expects the peer's notification, and
//! `handleRemotePendingSend` looks for a receive from any source where none was expected).
//!
//! A send thus never completes before its receive is called, as NCCL's do not: the MPI standard
//! calls a program that needs more "unsafe".

use super::choice::Choice;
use super::network::Passage;
use super::record::Recorder;
use super::state::{Due, Engine};
use super::transfer::{Pair, Side, Transfer, Way};
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Call, Plan, TimedTransfer};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::What;
use lockstep_torch::c10d::STORE_TENSOR;
use std::collections::BTreeMap;

impl Engine {
    /// Posts a send or receive; starts the transfer if its other side is there.
    pub(crate) fn post(
        &mut self,
        rank: GlobalRank,
        work: u32,
        call: &Call,
        recorder: &mut Recorder,
    ) {
        let (group, peer, tensor, tag, sends) = match call {
            Call::Send { group, peer, tensor, tag } => (*group, Some(*peer), *tensor, *tag, true),
            Call::Recv { group, peer, tensor, tag } => (*group, *peer, *tensor, *tag, false),
            Call::Collective { .. } => return,
        };
        recorder.record(self.now, rank, || What::Started { work });
        self.posts += 1;
        let side = Side { work, tensor, order: self.posts };
        let global = |peer| self.plan.group(group).and_then(|group| group.global_rank(peer));
        let pair = match (peer, sends) {
            (None, _) => {
                self.from_any.entry((group, rank, tag)).or_default().push_back(side);
                if self.choosing.is_some() {
                    return;
                }
                match self.earliest_sender(group, rank, tag) {
                    Some(from) => Pair { group, from, to: rank, tag },
                    None => return,
                }
            }
            (Some(peer), sends) => {
                let Some(peer) = global(peer) else { return };
                let (from, to) = if sends { (rank, peer) } else { (peer, rank) };
                let pair = Pair { group, from, to, tag };
                let posted = self.posted.entry(pair).or_default();
                let side_of = if sends { &mut posted.sends } else { &mut posted.receives };
                side_of.push_back(side);
                pair
            }
        };
        self.match_up(pair, recorder);
    }

    /// True if a receive that names its source gets a send before one from any source that was posted
    /// earlier.
    pub(crate) fn named_first(&self, group: GroupId) -> bool {
        self.plan.group(group).is_some_and(|group| group.backend() == BackendName::Gloo)
    }

    /// True if a receive of an operation takes sends from one of the rank's receives from any source,
    /// depending on which comes first: the send or this receive.
    pub(crate) fn races_with_any(&self, rank: GlobalRank, calls: &[Call]) -> bool {
        calls.iter().any(|call| match call {
            Call::Recv { group, peer: Some(_), tag, .. } if self.named_first(*group) => {
                let waiting = self.from_any.get(&(*group, rank, *tag));
                waiting.is_some_and(|waiting| !waiting.is_empty())
            }
            _ => false,
        })
    }

    /// The sends that the first receives from any source could take.
    pub(crate) fn takes(&self) -> Vec<Choice> {
        let mut takes = Vec::new();
        for (&(group, to, tag), waiting) in &self.from_any {
            let (Some(any), Some(members)) = (waiting.front(), self.plan.group(group)) else {
                continue;
            };
            for &from in members.ranks() {
                let posted = self.posted.get(&Pair { group, from, to, tag });
                let send = posted.and_then(|posted| posted.sends.front());
                // A named receive that was posted before has the send; on gloo any has.
                let named = posted.and_then(|posted| posted.receives.front());
                let first = self.named_first(group);
                let free = named.is_none_or(|named| !first && named.order > any.order);
                if free && send.is_some() && !self.is_dead(to) {
                    takes.push(Choice::Take { group, to, tag, from });
                }
            }
        }
        takes
    }

    /// Lets the first receive from any source take the first send of a pair.
    pub(crate) fn take(&mut self, pair: Pair, recorder: &mut Recorder) {
        self.match_or_leave(pair, false, recorder);
        // The next ones may have waited behind it, and so may named receives of what others send.
        let Pair { group, to, tag, .. } = pair;
        let members = self.plan.group(group).map(|group| group.ranks().to_vec());
        for from in members.unwrap_or_default() {
            self.match_up(Pair { group, from, to, tag }, recorder);
        }
    }

    /// Writes down which calls wait for their other side, and which receive comes first.
    pub(crate) fn digest_p2p(&self, digest: &mut Vec<u64>) {
        let mut receives: BTreeMap<GlobalRank, Vec<(u64, u64)>> = BTreeMap::new();
        for (pair, posted) in &self.posted {
            if posted.sends.is_empty() && posted.receives.is_empty() {
                continue;
            }
            let Pair { group, from, to, tag } = pair;
            digest.extend([group.0, from.0, to.0, *tag].map(u64::from));
            digest.extend(posted.sends.iter().map(|side| u64::from(side.work) + 1));
            digest.push(0);
            let orders = posted.receives.iter().map(|side| (side.order, u64::from(side.work)));
            receives.entry(*to).or_default().extend(orders);
        }
        for (&(_, to, _), waiting) in &self.from_any {
            let orders = waiting.iter().map(|side| (side.order, u64::from(side.work)));
            receives.entry(to).or_default().extend(orders);
        }
        for (to, mut waiting) in receives {
            waiting.sort_unstable();
            digest.push(u64::from(to.0));
            digest.extend(waiting.into_iter().map(|(_, work)| work + 1));
            digest.push(0);
        }
    }

    /// The rank whose unmatched send to `to` was posted first.
    fn earliest_sender(&self, group: GroupId, to: GlobalRank, tag: u32) -> Option<GlobalRank> {
        let members = self.plan.group(group)?.ranks();
        let sends = members.iter().filter_map(|&from| {
            let posted = self.posted.get(&Pair { group, from, to, tag })?;
            // A receive by name that was posted before waits for a send that fits it.
            posted.receives.is_empty().then_some(())?;
            Some((posted.sends.front()?.order, from))
        });
        sends.min().map(|(_, from)| from)
    }

    /// Starts the transfer of a pair's first send if there is a receive for it.
    fn match_up(&mut self, pair: Pair, recorder: &mut Recorder) {
        let chooses = self.choosing.is_some();
        self.match_or_leave(pair, chooses, recorder);
    }

    /// The same; a receive from any source is left alone if it `chooses`.
    fn match_or_leave(&mut self, pair: Pair, chooses: bool, recorder: &mut Recorder) {
        let Pair { group, from, to, tag } = pair;
        let named_first = self.named_first(group);
        let posted = self.posted.entry(pair).or_default();
        let Some(&send) = posted.sends.front() else { return };
        let any = self.from_any.get_mut(&(group, to, tag));
        let first_any = any.as_ref().and_then(|any| any.front()).copied();
        let any_first = |any: Side, named: Side| !named_first && any.order < named.order;
        let (receive, from_any) = match (posted.receives.front().copied(), first_any) {
            // The send that it takes is chosen later.
            (Some(named), Some(any)) if any_first(any, named) && chooses => return,
            (None, Some(_)) if chooses => return,
            (Some(named), Some(any)) if any_first(any, named) => (any, true),
            (Some(named), _) => (named, false),
            (None, Some(any)) => (any, true),
            (None, None) => return,
        };
        if !alike(&self.plan, send, receive) {
            // NCCL hangs or corrupts here; we hang, and everything behind them on the pair. One
            // from any source has met its message all the same, and takes no other.
            if let Some(any) = any.filter(|_| from_any) {
                any.pop_front();
                posted.receives.push_front(receive);
            }
            return;
        }
        posted.sends.pop_front();
        match any.filter(|_| from_any) {
            Some(any) => any.pop_front(),
            None => posted.receives.pop_front(),
        };
        let bytes = self.plan.tensor(send.tensor).map_or(0, |tensor| tensor.bytes());
        let transfer = TimedTransfer { group, from, to, bytes };
        let takes = self.call_times.as_ref().and_then(|times| times.transfer(&transfer));
        let number = self.transfers.len() as u32;
        let shared = takes.and_then(|takes| self.share_links_of_transfer(number, &transfer, takes));
        let arriving = |passage: Passage| (passage.departs, Way::Arriving { at: passage.arrives });
        let (departs, way) = match (shared, takes) {
            (Some(way), _) => (self.now, way),
            (None, Some(takes)) => arriving(self.network.send_timed(self.now, from, to, takes)),
            (None, None) => arriving(self.network.send_tensor(self.now, from, to, bytes)),
        };
        let transfer = Transfer { pair, send, receive, bytes, departs, way };
        self.queue.push(transfer.due().unwrap_or(self.now), Due::Transfer(number));
        self.transfers.push(transfer);
        recorder.message(self.now, from, || What::Sent {
            work: send.work,
            step: 0,
            peer: to,
            slice: None,
            bytes,
        });
    }

    /// The last bytes of a transfer have left, or it has arrived.
    pub(crate) fn go_on_with_transfer(&mut self, number: u32, recorder: &mut Recorder) {
        let transfer = &mut self.transfers[number as usize];
        if transfer.due() != Some(self.now) {
            return;
        }
        if let Way::Leaving { flow, latency_ps, .. } = transfer.way {
            let at = self.now.saturating_add(latency_ps);
            transfer.way = Way::Arriving { at };
            self.queue.push(at, Due::Transfer(number));
            self.free_links_of_transfer(flow);
            return;
        }
        transfer.way = Way::Arrived;
        self.finish_transfer(number, recorder);
    }

    /// The tensor has arrived: both sides complete.
    fn finish_transfer(&mut self, transfer: u32, recorder: &mut Recorder) {
        let Transfer { pair, send, receive, bytes, .. } = self.transfers[transfer as usize];
        let left_behind = self.is_dead(pair.from);
        if self.is_dead(pair.to) || (left_behind && !is_stored(&self.plan, send)) {
            return;
        }
        let sent = self.ranks[pair.from.index()].memory.get(send.tensor).map(<[u8]>::to_vec);
        let place = self.ranks[pair.to.index()].memory.get_mut(receive.tensor);
        if let (Some(sent), Some(place)) = (sent, place) {
            place.copy_from_slice(&sent);
        }
        recorder.message(self.now, pair.to, || What::Received {
            work: receive.work,
            step: 0,
            peer: pair.from,
            slice: None,
            bytes,
            reduced: false,
        });
        if !left_behind {
            self.complete(pair.from, send.work, recorder);
        }
        self.complete(pair.to, receive.work, recorder);
        if !left_behind {
            self.end_on_p2p_stream(pair.from, send.work, recorder);
        }
        self.end_on_p2p_stream(pair.to, receive.work, recorder);
    }
}

/// True if a send represents an answer of a store: the value is in the store, even if the rank that set it
/// dies.
fn is_stored(plan: &Plan, send: Side) -> bool {
    plan.tensor(send.tensor).is_some_and(|tensor| tensor.name == STORE_TENSOR)
}

/// True if two sides are of the same size and type.
fn alike(plan: &Plan, a: Side, b: Side) -> bool {
    let shape_of = |side: Side| plan.tensor(side.tensor).map(|t| (t.dtype, t.numel));
    shape_of(a) == shape_of(b)
}
