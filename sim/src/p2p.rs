//! Point-to-point calls: a send and a receive of the same group, peers and tag are matched in the
//! order in which they were called; the transfer begins when both are there, and completes both.
//!
//! A send thus never completes before its receive is called, as NCCL's do not: the MPI standard
//! calls a program that needs more "unsafe".

use crate::engine::{Due, Engine};
use crate::record::Recorder;
use lockstep_core::group::GroupId;
use lockstep_core::plan::{Action, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::What;
use std::collections::VecDeque;

/// What must be equal for a send and a receive to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pair {
    pub(crate) group: GroupId,
    pub(crate) from: GlobalRank,
    pub(crate) to: GlobalRank,
    pub(crate) tag: u32,
}

/// Calls of a pair whose other side has not come yet; only one side can be non-empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Posted {
    pub(crate) sends: VecDeque<Side>,
    pub(crate) receives: VecDeque<Side>,
}

/// One side of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) work: u32,
    pub(crate) tensor: TensorId,
}

/// A matched pair on its way.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) pair: Pair,
    pub(crate) send: Side,
    pub(crate) receive: Side,
    pub(crate) bytes: u64,
    pub(crate) departs: u64,
}

impl Engine {
    /// Posts a send or receive; starts the transfer if its other side is there.
    pub(crate) fn post(
        &mut self,
        rank: GlobalRank,
        work: u32,
        action: &Action,
        recorder: &mut Recorder,
    ) {
        let (group, peer, tensor, tag, sends) = match action {
            Action::Send { group, peer, tensor, tag, .. } => (*group, *peer, *tensor, *tag, true),
            Action::Recv { group, peer, tensor, tag, .. } => (*group, *peer, *tensor, *tag, false),
            _ => return,
        };
        let Some(peer) = self.plan.group(group).and_then(|group| group.global_rank(peer)) else {
            return;
        };
        let (from, to) = if sends { (rank, peer) } else { (peer, rank) };
        let pair = Pair { group, from, to, tag };
        let posted = self.posted.entry(pair).or_default();
        let side = Side { work, tensor };
        if sends {
            posted.sends.push_back(side);
        } else {
            posted.receives.push_back(side);
        }
        recorder.record(self.now, rank, || What::Started { work });
        let (Some(&send), Some(&receive)) = (posted.sends.front(), posted.receives.front()) else {
            return;
        };
        let bytes_of = |side: Side| self.plan.tensor(side.tensor).map(|t| (t.dtype, t.numel));
        if bytes_of(send) != bytes_of(receive) {
            // NCCL hangs or corrupts here; we hang, and everything behind them on the pair.
            return;
        }
        posted.sends.pop_front();
        posted.receives.pop_front();
        let bytes = self.plan.tensor(send.tensor).map_or(0, |tensor| tensor.bytes());
        let passage = self.network.send(self.now, from, to, bytes);
        let departs = passage.departs;
        self.transfers.push(Transfer { pair, send, receive, bytes, departs });
        self.queue.push(passage.arrives, Due::Transfer(self.transfers.len() as u32 - 1));
        recorder.message(self.now, from, || What::Sent {
            work: send.work,
            step: 0,
            peer: to,
            slice: None,
            bytes,
        });
    }

    /// The tensor has arrived: both sides complete.
    pub(crate) fn finish_transfer(&mut self, transfer: u32, recorder: &mut Recorder) {
        let Transfer { pair, send, receive, bytes, .. } = self.transfers[transfer as usize];
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
        self.complete(pair.from, send.work, recorder);
        self.complete(pair.to, receive.work, recorder);
    }
}
