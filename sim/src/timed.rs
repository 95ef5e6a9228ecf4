//! Collectives whose time is known as a whole ([`CallTimes`](lockstep_core::plan::CallTimes)).
//!
//! Their messages carry the values and decide which ranks wait for which, take no time, and are not recorded:
//! a rank is done so long after its last step could be done. For whoever looks, the steps are laid over that time
//! ([`super::laid`]). If values are not needed and every rank waits
//! for every other, no messages are made either: the last rank to begin determines when all are done.
//!
//! Calls of different groups that are in flight together share their links ([`super::sharing`]): then they
//! take longer than the table says.
//!
//! A rank whose process ends in the middle of such a call leaves it unfinished for the others.

use super::call_time::{Timed, is_mutual};
use super::state::{Due, Engine};
use lockstep_core::group::GroupId;
use lockstep_core::plan::Call;
use lockstep_core::rank::{GlobalRank, GroupRank};
use std::sync::Arc;

impl Engine {
    /// The time of a call as a whole; `None` where its messages determine it.
    pub(crate) fn time_of(&self, call: &Call) -> Option<Timed> {
        let times = self.call_times.as_ref()?;
        times.collective(&self.plan.timed_call(call)?).map(Timed::Takes)
    }

    /// The time that one collective has on a rank, by its sequence number in the group; `None` if it takes that of its
    /// kind.
    pub(crate) fn single_time_of(&self, call: (GlobalRank, GroupId, u64)) -> Option<Timed> {
        self.call_times.as_ref()?.single(call).map(Timed::Takes)
    }

    /// A computation on a rank that takes `usual` picoseconds elsewhere.
    pub(crate) fn computing_ps(&self, rank: GlobalRank, usual: u64) -> u64 {
        let times = self.call_times.as_deref();
        times.map_or(usual, |times| times.computing(rank, usual))
    }

    /// Leaves a call that a channel has begun to this file, if it needs no messages.
    pub(crate) fn begin_timed(&mut self, index: u32) -> bool {
        let Some(meetings) = &mut self.meetings else { return false };
        let channel = &mut self.channels[index as usize];
        let (group, me) = (channel.group, channel.me);
        let Some(active) = channel.active.as_mut() else { return false };
        let schedule = &active.signature.schedule;
        if active.timed.is_none() || active.uneven || !is_mutual(schedule.collective()) {
            return false;
        }
        let size = schedule.size();
        active.whole = true;
        let key = (group, active.seq, active.signature_number);
        let begun = meetings.begun.entry(key).or_default();
        *begun += 1;
        if *begun < size {
            return true;
        }
        meetings.begun.remove(&key);
        let first = index - me.0;
        for index in first..first + size {
            self.finish_whole(index);
            self.wait_for_time(index);
        }
        true
    }

    /// True if a channel's call, which has made its last step, still takes time.
    pub(crate) fn wait_for_time(&mut self, index: u32) -> bool {
        let Some(active) = self.channels[index as usize].active.as_mut() else { return false };
        match active.timed {
            None => false,
            Some(Timed::Never) => true,
            Some(Timed::Until(done)) => done > self.now,
            Some(Timed::Takes(takes)) => {
                let reached = active.laid().map(|laid| laid.reached);
                let done = match reached {
                    Some(reached) => reached.saturating_add(takes).max(self.now),
                    None => self.share_links(index, takes),
                };
                if let Some(active) = self.channels[index as usize].active.as_mut() {
                    active.timed = Some(Timed::Until(done));
                }
                self.queue.push(done, Due::Timed(index));
                true
            }
        }
    }

    /// The time of a channel's call is over, unless one of its ranks has ended meanwhile.
    pub(crate) fn end_time(&mut self, index: u32) {
        self.free_links(index);
        if !self.prepared.half_done {
            return;
        }
        let Some(call) = self.call_of(index) else { return };
        let channel = &self.channels[index as usize];
        let until = channel.active.as_ref().and_then(|active| active.timed);
        if !channel.is_busy() || until != Some(Timed::Until(self.now)) {
            return;
        }
        let first = index - channel.me.0;
        let size = self.plan.group(channel.group).map_or(0, |group| group.size());
        let mut others = first..first + size;
        let left = others.any(|other| {
            let unfinished = self.channels[other as usize].is_busy();
            unfinished && self.call_of(other) == Some(call) && self.stands_still(other)
        });
        if left && let Some(active) = self.channels[index as usize].active.as_mut() {
            active.timed = Some(Timed::Never);
        }
    }

    /// True if the ranks know the time that a call of a group takes; asked for a switch of its schedule.
    pub(crate) fn is_timed(&self, group: GroupId, seq: u64, signature: u32) -> bool {
        let Some(members) = self.plan.group(group).filter(|_| self.call_times.is_some()) else {
            return false;
        };
        let first = self.prepared.channel(group, GroupRank(0));
        let mut channels = first..first + members.size();
        channels.any(|index| {
            let active = self.channels[index as usize].active.as_ref();
            let timed = active.is_some_and(|active| active.timed.is_some());
            timed && self.call_of(index) == Some((seq, signature))
        })
    }

    /// The ends of the steps that a call's ranks lay over its time; asked for a switch of its schedule.
    pub(crate) fn laid_by(&self, group: GroupId, seq: u64, signature: u32) -> Option<Arc<[u64]>> {
        let begun = self.last_begun.get(group.index())?.as_ref()?;
        let is_begun = begun.signature_number == signature && self.is_timed(group, seq, signature);
        begun.laid.as_ref().filter(|_| is_begun).map(Arc::clone)
    }

    /// Sequence number and signature of a channel's call.
    fn call_of(&self, index: u32) -> Option<(u64, u32)> {
        let active = self.channels[index as usize].active.as_ref()?;
        Some((active.seq, active.signature_number))
    }
}
