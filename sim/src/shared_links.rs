//! Collectives and transfers of the engine that share links: when they are over depends on what else is in
//! flight.

use super::call_time::Timed;
use super::calls_in_flight::CallInFlight;
use super::sharing::{FlowId, NewEnds};
use super::state::{Due, Engine};
use super::transfer::Way;
use lockstep_core::group::GroupId;
use lockstep_core::plan::{TimedCall, TimedTransfer, TransferTime};

impl Engine {
    /// When the call of a channel is over that takes so long alone, and begins now. Ranks that begin
    /// it together share one flow; one that comes to it later, as to a broadcast, takes its time.
    pub(crate) fn share_links(&mut self, index: u32, takes: u64) -> u64 {
        let alone = self.now.saturating_add(takes);
        let Some((timed, key)) = self.flow_of(index) else { return alone };
        let Some(times) = self.call_times.clone() else { return alone };
        let loads = times.loads(&timed);
        let Some(in_flight) = self.in_flight.as_mut().filter(|_| !loads.is_empty()) else {
            return alone;
        };
        if let Some(call) = in_flight.flows.get(&key).and_then(|id| in_flight.calls.get_mut(id)) {
            if call.began != self.now {
                return alone;
            }
            call.channels.push(index);
            return call.ends;
        }
        let (id, ends, changed) = in_flight.sharing.begin(self.now, takes, loads);
        in_flight.flows.insert(key, id);
        let call = CallInFlight { key, began: self.now, ends, channels: vec![index] };
        in_flight.calls.insert(id, call);
        self.end_at(changed);
        ends
    }

    /// The call of a channel is over, and no longer loads its links.
    pub(crate) fn free_links(&mut self, index: u32) {
        let Some((_, key)) = self.flow_of(index) else { return };
        let Some(in_flight) = &mut self.in_flight else { return };
        let Some(&id) = in_flight.flows.get(&key) else { return };
        if in_flight.calls.get(&id).is_none_or(|call| call.ends != self.now) {
            return;
        }
        in_flight.flows.remove(&key);
        in_flight.calls.remove(&id);
        let changed = in_flight.sharing.end(self.now, id);
        self.end_at(changed);
    }

    /// The way of a transfer that begins now and shares its links; `None` if it loads none that others use.
    pub(crate) fn share_links_of_transfer(
        &mut self,
        number: u32,
        transfer: &TimedTransfer,
        takes: TransferTime,
    ) -> Option<Way> {
        let times = self.call_times.clone()?;
        let loads = times.transfer_loads(transfer);
        let in_flight = self.in_flight.as_mut().filter(|_| !loads.is_empty())?;
        let (flow, ends, changed) = in_flight.sharing.begin(self.now, takes.transmit_ps, loads);
        in_flight.transfers.insert(flow, number);
        self.end_at(changed);
        Some(Way::Leaving { flow, ends, latency_ps: takes.latency_ps })
    }

    /// The bytes of a transfer have left, and load its links no longer.
    pub(crate) fn free_links_of_transfer(&mut self, flow: FlowId) {
        let Some(in_flight) = &mut self.in_flight else { return };
        in_flight.transfers.remove(&flow);
        let changed = in_flight.sharing.end(self.now, flow);
        self.end_at(changed);
    }

    /// Lets calls and transfers end at other times than was thought.
    fn end_at(&mut self, changed: NewEnds) {
        for (id, ends) in changed {
            let Some(in_flight) = &mut self.in_flight else { return };
            if let Some(&number) = in_flight.transfers.get(&id)
                && let Some(transfer) = self.transfers.get_mut(number as usize)
                && let Way::Leaving { ends: until, .. } = &mut transfer.way
            {
                *until = ends;
                self.queue.push(ends, Due::Transfer(number));
                continue;
            }
            let Some(call) = in_flight.calls.get_mut(&id) else { continue };
            call.ends = ends;
            for &index in &call.channels {
                let active = self.channels[index as usize].active.as_mut();
                let same = |seq, signature| (seq, signature) == (call.key.1, call.key.2);
                if let Some(active) = active
                    && !active.done
                    && same(active.seq, active.signature_number)
                    && matches!(active.timed, Some(Timed::Until(_)))
                {
                    active.timed = Some(Timed::Until(ends));
                    self.queue.push(ends, Due::Timed(index));
                }
            }
        }
    }

    /// The call of a channel as its time and links depend on it, and what names it.
    fn flow_of(&self, index: u32) -> Option<(TimedCall, (GroupId, u64, u32))> {
        self.in_flight.as_ref()?;
        let channel = &self.channels[index as usize];
        let active = channel.active.as_ref()?;
        let work = self.ranks.get(channel.rank.index())?.works.get(active.work as usize)?;
        let op = self.plan.program(channel.rank)?.ops.get(work.op as usize)?;
        let call = op.action.calls().get(work.part as usize)?;
        let key = (channel.group, active.seq, active.signature_number);
        Some((self.plan.timed_call(call)?, key))
    }
}
