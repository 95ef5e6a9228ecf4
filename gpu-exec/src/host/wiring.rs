//! The channels that a plan needs, and the positions of each of them and of each rank's arena in the shared
//! memory.
//!
//! Only channels that the plan's calls can use are connected, found from their schedules before anything
//! runs: a ring of 64 ranks needs 64 channels, not 4,032, and each can be larger.

use super::arena::Arena;
use crate::RunError;
use crate::shm::{APART, Channel as Wire};
use lockstep_core::group::GroupId;
use lockstep_core::plan::{Call, Plan};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::schedule::{self, Schedule};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Bounce buffers are at most this large: some messages of those that are small enough to be
/// copied; they lie in a second level cache with the sender's and the receiver's memory.
const LARGEST_BOUNCE: usize = 64 << 10;

/// Below this, messages that are small enough to be copied would often wait for room.
const SMALLEST_BOUNCE: usize = 4 << 10;

/// Bounce buffers get smaller before all channels take more than this.
const COMFORTABLE_BYTES: u64 = 256 << 20;

/// Every arena begins on a page of its own.
const PAGE: usize = 4096;

/// The purpose of a channel. The members' order is that of the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ChannelKey {
    /// The group.
    pub(crate) group: GroupId,
    /// The writer.
    pub(crate) from: GroupRank,
    /// The reader.
    pub(crate) to: GroupRank,
    /// The tag of point-to-point calls; `None` for the group's collectives.
    pub(crate) tag: Option<u32>,
}

/// A channel and where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Channel {
    /// The purpose of the channel.
    pub(crate) key: ChannelKey,
    /// Bytes from the start of the segment.
    pub(crate) offset: usize,
}

/// The layout of a run's shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wiring {
    channels: Vec<Channel>,
    /// Per group, where its first member's doorbell lies.
    bells: Vec<usize>,
    /// The offset of rank 0's doorbell for point-to-point calls.
    p2p_bells: usize,
    bounce_bytes: usize,
    /// The offset of each rank's arena.
    arenas: Vec<usize>,
    segment_bytes: usize,
}

/// The part of the wiring that one rank needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RankWiring {
    /// The channels that the rank writes or reads.
    pub(crate) channels: Vec<Channel>,
    /// Per group, where its first member's doorbell lies.
    pub(crate) bells: Vec<usize>,
    /// The offset of rank 0's doorbell for point-to-point calls.
    pub(crate) p2p_bells: usize,
    /// The bounce buffer of every channel.
    pub(crate) bounce_bytes: usize,
    /// The offset of the rank's arena: its tensors, as [`Arena`] says.
    pub(crate) arena: usize,
    /// The size of the shared memory.
    pub(crate) segment_bytes: usize,
}

/// The offset of a member's doorbell, given the first one's.
pub(crate) fn bell_offset(first: usize, member: u32) -> usize {
    first + member as usize * APART
}

impl Wiring {
    /// The layout for a plan that was checked.
    ///
    /// # Errors
    /// When the channels would take more than `max_bytes` even with the smallest bounce buffers.
    pub(crate) fn of(plan: &Plan, max_bytes: u64) -> Result<Wiring, RunError> {
        let keys = channels_of(plan);
        let mut at = 0usize;
        let mut bells = Vec::with_capacity(plan.groups.len());
        for group in &plan.groups {
            bells.push(at);
            at = bell_offset(at, group.size());
        }
        let p2p_bells = at;
        at = bell_offset(at, plan.world_size);
        let total = |bounce: usize| (at + keys.len() * Wire::footprint(bounce)) as u64;
        let mut bounce_bytes = LARGEST_BOUNCE;
        while bounce_bytes > SMALLEST_BOUNCE
            && total(bounce_bytes) > COMFORTABLE_BYTES.min(max_bytes)
        {
            bounce_bytes /= 2;
        }
        let bytes = total(bounce_bytes);
        if bytes > max_bytes {
            let channels = keys.len() as u64;
            return Err(RunError::TooManyChannels { channels, bytes, limit: max_bytes });
        }
        let place =
            |(index, key)| Channel { key, offset: at + index * Wire::footprint(bounce_bytes) };
        let channels = keys.into_iter().enumerate().map(place).collect();
        let mut end = bytes as usize;
        let mut arenas = Vec::with_capacity(plan.world_size as usize);
        for rank in (0..plan.world_size).map(GlobalRank) {
            let start = end.next_multiple_of(PAGE);
            arenas.push(start);
            end = start.saturating_add(Arena::of(plan, rank).bytes());
        }
        let segment_bytes = end;
        Ok(Wiring { channels, bells, p2p_bells, bounce_bytes, arenas, segment_bytes })
    }

    /// The wiring of ranks which share no memory: one page, since a mapping cannot be empty.
    pub(crate) fn none() -> Wiring {
        Wiring {
            channels: Vec::new(),
            bells: Vec::new(),
            p2p_bells: 0,
            bounce_bytes: SMALLEST_BOUNCE,
            arenas: Vec::new(),
            segment_bytes: PAGE,
        }
    }

    /// The size of the shared memory, in bytes.
    pub(crate) fn segment_bytes(&self) -> usize {
        self.segment_bytes
    }

    /// The part of the wiring that `rank` needs.
    pub(crate) fn of_rank(&self, plan: &Plan, rank: GlobalRank) -> RankWiring {
        let takes_part = |channel: &&Channel| {
            let member = plan.group(channel.key.group).and_then(|group| group.group_rank(rank));
            member.is_some_and(|me| me == channel.key.from || me == channel.key.to)
        };
        RankWiring {
            channels: self.channels.iter().filter(takes_part).copied().collect(),
            bells: self.bells.clone(),
            p2p_bells: self.p2p_bells,
            bounce_bytes: self.bounce_bytes,
            arena: self.arenas.get(rank.index()).copied().unwrap_or(self.segment_bytes),
            segment_bytes: self.segment_bytes,
        }
    }
}

/// Every channel that a rank's calls can use, in order.
fn channels_of(plan: &Plan) -> BTreeSet<ChannelKey> {
    let mut keys = BTreeSet::new();
    for (rank, program) in plan.program_of.iter().enumerate() {
        let ops = plan.programs.get(*program as usize).map_or(&[][..], |program| &program.ops);
        for call in ops.iter().flat_map(|op| op.action.calls()) {
            let members = plan.group(call.group());
            let me = members.and_then(|m| m.group_rank(GlobalRank(rank as u32)));
            let Some(me) = me else { continue };
            let (group, from, to, tag) = match *call {
                Call::Send { group, peer, tag, .. } => (group, me, peer, tag),
                Call::Recv { group, peer: Some(peer), tag, .. } => (group, peer, me, tag),
                // Whoever sends to it names the channel.
                Call::Recv { peer: None, .. } | Call::Collective { .. } => continue,
            };
            keys.insert(ChannelKey { group, from, to, tag: Some(tag) });
        }
    }
    // The schedules that a group's calls follow: few, however long the programs are.
    let mut schedules: BTreeMap<GroupId, BTreeSet<Schedule>> = BTreeMap::new();
    let ops = plan.programs.iter().flat_map(|program| &program.ops);
    for call in ops.flat_map(|op| op.action.calls()) {
        if let Some(Ok(schedule)) = plan.schedule(call) {
            schedules.entry(call.group()).or_default().insert(schedule);
        }
    }
    let mut actions = Vec::new();
    for (group, schedules) in schedules {
        for schedule in schedules {
            for from in (0..schedule.size()).map(GroupRank) {
                for step in 0..schedule.steps() {
                    schedule.actions(from, step, &mut actions);
                    keys.extend(actions.iter().filter_map(|action| match action {
                        schedule::Action::Send { peer, .. } => {
                            Some(ChannelKey { group, from, to: *peer, tag: None })
                        }
                        _ => None,
                    }));
                }
            }
        }
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::collective::Collective;
    use lockstep_core::dtype::Dtype;
    use lockstep_core::group::BackendName;
    use lockstep_core::plan::{Fill, PlanBuilder};
    use lockstep_core::reduce::ReduceOp;

    fn ring(ranks: u32) -> Plan {
        let mut plan = PlanBuilder::new("ring", ranks, BackendName::Host).unwrap();
        let tensor = plan.tensor("t", Dtype::Float32, 4, Fill::Zeros);
        let sum = Collective::AllReduce { op: ReduceOp::Sum };
        plan.every_rank(|rank, program| {
            program.collective(GroupId::WORLD, sum, 4, None, Some(tensor));
            if rank.0 == 0 {
                program.send(GroupId::WORLD, GroupRank(1), tensor);
            }
        })
        .unwrap()
    }

    #[test]
    fn a_ring_needs_one_channel_a_rank() {
        let plan = ring(64);
        let wiring = Wiring::of(&plan, 1 << 30).unwrap();
        assert_eq!(wiring.channels.len(), 65);
        let mine = wiring.of_rank(&plan, GlobalRank(7)).channels;
        assert_eq!(mine.len(), 2);
        let mut ends: Vec<usize> = wiring.channels.iter().map(|channel| channel.offset).collect();
        ends.push(wiring.arenas[0]);
        let footprint = Wire::footprint(wiring.bounce_bytes);
        assert!(ends.windows(2).all(|pair| pair[0] + footprint <= pair[1]));
    }

    #[test]
    fn every_rank_has_an_arena_of_its_own() {
        let plan = ring(5);
        let wiring = Wiring::of(&plan, 1 << 30).unwrap();
        let mut ends = wiring.arenas.clone();
        ends.push(wiring.segment_bytes);
        for (rank, pair) in (0..).zip(ends.windows(2)) {
            assert!(pair[0] + Arena::of(&plan, GlobalRank(rank)).bytes() <= pair[1]);
            assert_eq!(wiring.of_rank(&plan, GlobalRank(rank)).arena, pair[0]);
        }
    }

    #[test]
    fn bounce_buffers_shrink_to_the_limit_and_then_refuse() {
        let plan = ring(64);
        let wiring = Wiring::of(&plan, 2 << 20).unwrap();
        assert!(wiring.bounce_bytes < LARGEST_BOUNCE && wiring.arenas[0] <= 2 << 20);
        let error = Wiring::of(&plan, 1 << 16).unwrap_err();
        assert!(error.to_string().contains("65 message channels"), "{error}");
    }
}
