//! NCCL's streams of sends and receives.
//!
//! Calls between two ranks that are not batched share one communicator and one stream, in both directions
//! (`ProcessGroupNCCL::pointToPoint`: its key is the pair, `getKeySendRecv`): a receive holds up a send behind
//! it, and two ranks that both receive first hang. Batched calls are put on the group's own stream, and those
//! of one batch run together. So do the unbatched calls of a group whose processes are bound to devices
//! (`eagerInit`), of which a plan makes batches of one call.

use super::p2p_queue::{Batch, Key};
use super::record::Recorder;
use super::state::Engine;
use lockstep_core::plan::{Action, Call};
use lockstep_core::rank::GlobalRank;

/// The stream of a call.
fn key(rank: GlobalRank, action: &Action, call: &Call) -> Key {
    let peer = match call {
        Call::Send { peer, .. } => Some(*peer),
        Call::Recv { peer, .. } => *peer,
        Call::Collective { .. } => None,
    };
    let batched = matches!(action, Action::Coalesced { .. });
    (rank, call.group(), peer.filter(|_| !batched))
}

impl Engine {
    /// Puts a send or receive of NCCL's on its stream, and begins it if nothing is before it.
    pub(crate) fn put_on_p2p_stream(
        &mut self,
        rank: GlobalRank,
        work: u32,
        (op, action): (u32, &Action),
        call: &Call,
        recorder: &mut Recorder,
    ) {
        let stream = self.p2p_streams.entry(key(rank, action, call)).or_default();
        match stream.back_mut() {
            Some(last) if last.op == op => last.works.push(work),
            _ => stream.push_back(Batch { op, works: vec![work] }),
        }
        if stream.len() == 1 {
            self.post(rank, work, call, recorder);
        }
    }

    /// Removes a call that has ended from its stream, and begins the next one on it.
    pub(crate) fn end_on_p2p_stream(
        &mut self,
        rank: GlobalRank,
        work: u32,
        recorder: &mut Recorder,
    ) {
        let plan = std::sync::Arc::clone(&self.plan);
        let call_of = |engine: &Engine, work: u32| {
            let work = engine.ranks[rank.index()].works.get(work as usize)?;
            let action = &plan.program(rank)?.ops.get(work.op as usize)?.action;
            Some((action, action.calls().get(work.part as usize)?))
        };
        let Some((action, call)) = call_of(self, work) else { return };
        if !call.is_p2p() || !self.prepared.is_nccl(call.group()) {
            return;
        }
        let Some(stream) = self.p2p_streams.get_mut(&key(rank, action, call)) else { return };
        if let Some(first) = stream.front_mut() {
            first.works.retain(|own| *own != work);
            if !first.works.is_empty() {
                return;
            }
        }
        stream.pop_front();
        let next = stream.front().map(|next| next.works.clone()).unwrap_or_default();
        for work in next {
            if let Some((_, call)) = call_of(self, work) {
                self.post(rank, work, call, recorder);
            }
        }
    }
}
