//! The description that a family of schedules gives of itself. Each family is a unit struct in its own file
//! under `families/`; the table in `families/mod.rs` names them all.
//!
//! Most families agree on most answers, so these have defaults: a family overrides its special ones.

use super::nodes::Nodes;
use super::{Action, Buffer};
use crate::collective::Collective;
use crate::rank::{GroupRank, MAX_WORLD_SIZE};

/// The bytes that a pipeline moves at once: 512 KiB, a slot of NCCL's buffers (`NCCL_BUFFSIZE` of 4
/// MiB in `NCCL_STEPS`, 8), which is the chunk of its trees and of the ring of its broadcast
/// (`src/enqueue.cc`, `calcCollChunking`: `stepSize * chunkSteps`).
pub(super) const PIPELINE_CHUNK_BYTES: u64 = 512 << 10;

/// The most segments that a size alone asks for: more make a pipeline hardly faster.
const MAX_PIPELINE_SEGMENTS: u64 = 256;

/// A collective among so many ranks: the subject of a family's methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Call {
    pub(super) collective: Collective,
    pub(super) size: u32,
    pub(super) ranks_per_node: u32,
}

impl Call {
    /// The spread of the ranks over nodes.
    pub(super) fn nodes(self) -> Nodes {
        Nodes { size: self.size, per_node: self.ranks_per_node.clamp(1, self.size) }
    }

    /// An all_reduce as a reduction to rank 0 and a broadcast from it; `None` for other calls.
    pub(super) fn there_and_back(self) -> Option<[Call; 2]> {
        let Collective::AllReduce { op } = self.collective else { return None };
        let root = GroupRank(0);
        let halves = [Collective::Reduce { op, root }, Collective::Broadcast { root }];
        Some(halves.map(|collective| Call { collective, ..self }))
    }

    /// The call that a step belongs to, with the step's index in it: an all_reduce there and back is two calls, any
    /// other is itself. `steps` counts the steps of a call.
    pub(super) fn half_at(self, step: u32, steps: impl Fn(Call) -> u32) -> (Call, u32) {
        let Some([there, back]) = self.there_and_back() else { return (self, step) };
        match step.checked_sub(steps(there)) {
            None => (there, step),
            Some(step) => (back, step),
        }
    }
}

/// A step of a schedule, for its texts.
#[derive(Clone, Copy)]
pub(super) struct Step {
    /// The index of the step, from 0.
    pub(super) at: u32,
    /// The number of steps: with segments, more than [`Family::steps`].
    pub(super) of: u32,
}

impl Step {
    /// True in the first half of the steps.
    pub(super) fn is_in_first_half(self) -> bool {
        self.at < self.of / 2
    }

    /// True for the last step.
    pub(super) fn is_last(self) -> bool {
        self.at + 1 == self.of
    }
}

/// A family of schedules: how it carries out a call, and the memory that takes.
///
/// The other methods are only asked about collectives that the family carries out.
pub(super) trait Family: Sync {
    /// True if the family can carry out the collective, for every group size.
    fn carries_out(&self, collective: Collective) -> bool;

    /// The number of steps, the same for every participant.
    fn steps(&self, call: Call) -> u32;

    /// Adds the actions of `participant` in `step`, which is one of [`Family::steps`].
    fn actions(&self, call: Call, participant: GroupRank, step: u32, actions: &mut Vec<Action>);

    /// A sentence about the ranks' actions in a step: "every rank sends …".
    fn step_text(&self, call: Call, step: Step) -> String;

    /// The name of a step's phase, to go after "Step 3 of 6": ", all-gather phase".
    fn phase(&self, _call: Call, _step: Step) -> &'static str {
        ""
    }

    /// True if every rank is busy in every step; the number of ranks that are ahead of the slowest is then
    /// worth showing.
    fn keeps_all_ranks_busy(&self) -> bool {
        false
    }

    /// True if all ranks act alike in every step: each sends one message and receives one, all of as many
    /// chunks, or none does. Then ranks that begin together on equal links stay in lock step, and a simulator
    /// computes one of them.
    fn ranks_are_alike(&self, _call: Call) -> bool {
        false
    }

    /// True for a rotation: in each step rank r sends the messages of rank 0, each to a rank r places further on,
    /// with as many chunks of the same buffer, in the same order. It receives as many messages.
    fn is_rotation(&self, _call: Call) -> bool {
        false
    }

    /// The number of chunks that a part is cut into: the one tensor of an in-place call, or a
    /// rank's part of the others' tensors.
    fn chunks_per_part(&self, _call: Call) -> u32 {
        1
    }

    /// Scratch chunks of a participant.
    fn scratch(&self, _call: Call, _participant: GroupRank) -> u32 {
        0
    }

    /// Participants beyond the ranks: switches, numbered from the call's size on.
    fn switches(&self, _call: Call) -> u32 {
        0
    }

    /// Scratch chunks of all switches together.
    fn switch_scratch(&self, _call: Call) -> u32 {
        0
    }

    /// True if a switch is inside a node, so that messages through it stay in the node.
    fn has_switches_inside_nodes(&self) -> bool {
        false
    }

    /// True if the family can carry out the call among its nodes.
    fn takes_nodes(&self, _call: Call) -> bool {
        true
    }

    /// The most ranks that the family can number the chunks of.
    fn most_ranks(&self) -> u32 {
        MAX_WORLD_SIZE
    }

    /// True if the tensors can be cut into channels and segments; never asked for barriers, which carry
    /// nothing.
    fn can_be_sliced(&self) -> bool {
        true
    }

    /// Elements of every chunk but the last ones; `None` for even chunks.
    fn chunk_elements(&self, _call: Call, _count: u64, _element_bytes: u64) -> Option<u64> {
        None
    }

    /// The bytes that a pipeline moves at once, for the families that are one.
    fn pipeline_chunk_bytes(&self) -> Option<u64> {
        None
    }

    /// The number of steps by which a segment is behind the one before it.
    fn stagger(&self, _call: Call) -> u32 {
        1
    }
}

/// The functions that follow from a family's answers.
impl dyn Family {
    /// Chunks of `buffer` on `participant`.
    pub(super) fn chunks(&self, call: Call, participant: GroupRank, buffer: Buffer) -> u32 {
        match buffer {
            Buffer::Scratch if participant.0 >= call.size.saturating_add(self.switches(call)) => 0,
            Buffer::Scratch => self.scratch(call, participant),
            _ => tensor_parts(call, participant, buffer).saturating_mul(self.chunks_per_part(call)),
        }
    }

    /// The largest scratch of a rank, in chunks: that of the root, or of the first rank of the
    /// first, largest node or of the last, smallest one.
    pub(super) fn most_rank_scratch(&self, call: Call) -> u32 {
        let root = call.collective.root().unwrap_or(GroupRank(0));
        let nodes = call.nodes();
        let of_last_node = GroupRank(nodes.first(nodes.count() - 1));
        let scratch =
            [root, GroupRank(0), of_last_node].map(|rank| self.chunks(call, rank, Buffer::Scratch));
        scratch.into_iter().max().unwrap_or(0)
    }

    /// The number of segments that follow each other through the family's steps unless the caller
    /// chooses, for so many bytes in a channel: pipelines cut them into chunks of NCCL's size.
    pub(super) fn segments_for(&self, bytes: u64) -> u32 {
        match self.pipeline_chunk_bytes() {
            Some(each) => bytes.div_ceil(each).clamp(1, MAX_PIPELINE_SEGMENTS) as u32,
            None => 1,
        }
    }
}

/// The number of parts that the tensor in `buffer` has on a participant: one for every rank, one, or none.
fn tensor_parts(call: Call, participant: GroupRank, buffer: Buffer) -> u32 {
    let Call { collective, size, .. } = call;
    if participant.0 >= size {
        return 0;
    }
    match (buffer, collective) {
        (Buffer::Output, collective) if collective.in_place() => 1,
        (Buffer::Input, collective) if collective.in_place() => 0,
        (Buffer::Input, collective) if collective.is_barrier() => 1,
        (Buffer::Output, collective) if collective.is_barrier() => 0,
        (Buffer::Input, Collective::Scatter { root })
        | (Buffer::Output, Collective::Gather { root }) => {
            if participant == root {
                size
            } else {
                0
            }
        }
        (Buffer::Input, Collective::AllGather | Collective::Gather { .. }) => 1,
        (Buffer::Output, Collective::Scatter { .. } | Collective::ReduceScatter { .. }) => 1,
        (_, _) => size,
    }
}
