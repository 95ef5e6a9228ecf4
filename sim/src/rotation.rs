//! Steps of schedules in which every rank sends as rank 0 does, counted from its own place
//! ([`Schedule::is_rotation`](lockstep_core::schedule::Schedule::is_rotation)), in equal chunks. What a step sends is
//! worked out once, and holds for the ranks that begin it next.

use super::active::Active;
use super::network::Passage;
use super::state::Engine;
use super::step::{await_messages, count_arrival};
use lockstep_core::rank::GroupRank;
use lockstep_core::schedule::{Action, Grid};
use std::sync::Arc;

/// What every rank sends in one step of a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepSends {
    /// The step, its signature and the cuts of the call's buffers; `None` before the first step.
    of: Option<(u32, u32, Arc<[Grid; 3]>)>,
    /// The messages: to how many places further on, and of how many bytes.
    sends: Vec<(u32, u64)>,
    /// The number of messages that are received.
    receives: u32,
    actions: Vec<Action>,
}

impl StepSends {
    /// Makes it that of the call's present step.
    #[inline]
    fn become_that_of(&mut self, active: &Active, me: GroupRank) {
        let is_of = |(step, signature, grids): &(u32, u32, Arc<[Grid; 3]>)| {
            (*step, *signature) == (active.step, active.signature_number)
                && Arc::ptr_eq(grids, &active.grids)
        };
        if !self.of.as_ref().is_some_and(is_of) {
            self.work_out(active, me);
        }
    }

    #[cold]
    fn work_out(&mut self, active: &Active, me: GroupRank) {
        let schedule = &active.signature.schedule;
        schedule.actions(me, active.step, &mut self.actions);
        self.sends.clear();
        self.receives = 0;
        for action in &self.actions {
            match action {
                Action::Send { peer, from } => {
                    let further_on = match peer.0.checked_sub(me.0) {
                        Some(places) => places,
                        None => schedule.size() - (me.0 - peer.0),
                    };
                    let range = active.byte_range(*from);
                    self.sends.push((further_on, range.end - range.start));
                }
                Action::Receive { .. } | Action::ReceiveReduce { .. } => self.receives += 1,
                Action::Copy { .. } | Action::Reduce { .. } => {}
            }
        }
        self.of = Some((active.step, active.signature_number, Arc::clone(&active.grids)));
    }
}

impl Engine {
    /// Begins a step of such a call, if its receives are only counted, and those of all others; false if it is
    /// another one.
    pub(super) fn begin_rotated_step(&mut self, index: u32) -> bool {
        let Some(counted) = self.counted.as_mut().filter(|counted| counted.looks_at_none()) else {
            return false;
        };
        let channel = &mut self.channels[index as usize];
        let (me, rank, group) = (channel.me, channel.rank, channel.group);
        let Some(active) = channel.active.as_mut().filter(|active| active.is_rotation) else {
            return false;
        };
        let Some(members) = self.plan.group(group) else { return false };
        self.step_sends.become_that_of(active, me);
        let now = self.now;
        let of_step = (active.seq, active.step, active.signature_number);
        active.left = now;
        let size = members.size();
        let first = index - me.0;
        for &(further_on, bytes) in &self.step_sends.sends {
            let peer = me.0 + further_on;
            let peer = if peer < size { peer } else { peer - size };
            let Some(to) = members.global_rank(GroupRank(peer)) else { continue };
            let passage = match active.timed {
                Some(_) => Passage::at_once(now),
                None => self.network.send(now, rank, to, bytes),
            };
            active.left = active.left.max(passage.left);
            count_arrival(counted, &mut self.queue, first + peer, of_step, passage.arrives);
        }
        let receives = self.step_sends.receives;
        await_messages(counted, &mut self.queue, (index, now), of_step, receives);
        true
    }
}
