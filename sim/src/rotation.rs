//! The begin of a step of a rotation, whose messages are counted and the same for each rank: see
//! [`super::step_sends`].

use super::state::Engine;
use super::step::{await_messages, count_arrival};
use lockstep_core::rank::GroupRank;

impl Engine {
    /// Begins a step of a rotation, if all messages are counted. False if the call is no rotation, or a rank's messages
    /// are recorded.
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
        let messages = self.step_sends.sends.iter().filter_map(|&(further_on, bytes)| {
            let peer = me.0 + further_on;
            let peer = if peer < size { peer } else { peer - size };
            Some((first + peer, members.global_rank(GroupRank(peer))?, bytes))
        });
        let queue = &mut self.queue;
        let mut count = |to, arrives| count_arrival(counted, queue, to, of_step, arrives);
        match active.timed {
            // They take no time.
            Some(_) => messages.for_each(|(to, ..)| count(to, now)),
            None => active.left = self.network.send_all(now, rank, messages, count),
        }
        let receives = self.step_sends.receives;
        await_messages(counted, &mut self.queue, (index, now), of_step, receives);
        true
    }
}
