//! A rank's part of the shared memory, and the places in it: its tensors, and for each of its groups the
//! schedule's scratch and a place for an input that is scaled before it is sent.
//!
//! Peers never ask for positions: the memory that they may read or write comes with a message.

use crate::host::rank::failure::RankFailure;
use lockstep_core::group::GroupId;
use lockstep_core::plan::{Call, Plan, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce;
use lockstep_core::schedule::{Buffer, Layout};
use std::collections::BTreeMap;

/// The alignment of memories: a multiple of a processor's loads, of every element, and of pages for large
/// ones.
const fn aligned(bytes: usize) -> usize {
    if bytes >= 1 << 16 { 4096 } else { 128 }
}

/// A part of the shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    /// From the start of the segment; in an [`Arena`], from the start of that.
    pub(crate) offset: usize,
    /// Its length.
    pub(crate) bytes: usize,
}

impl Memory {
    /// No bytes: the memory of a barrier's messages.
    pub(crate) const EMPTY: Memory = Memory { offset: 0, bytes: 0 };

    /// The bytes from `start` to `end`.
    ///
    /// # Errors
    /// When they are not all inside: a plan that was checked has none such.
    pub(crate) fn part(self, start: u64, end: u64) -> Result<Memory, RankFailure> {
        if start > end || end > self.bytes as u64 {
            let bytes = self.bytes as u64;
            return Err(RankFailure::Outside { start, end, bytes });
        }
        Ok(Memory { offset: self.offset + start as usize, bytes: (end - start) as usize })
    }

    /// True when both have bytes in common.
    pub(crate) fn overlaps(self, other: Memory) -> bool {
        self.offset < other.offset + other.bytes && other.offset < self.offset + self.bytes
    }
}

/// A rank's memories, from the start of its arena.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arena {
    /// Those that its program uses.
    pub(crate) tensors: BTreeMap<TensorId, Memory>,
    /// Per group, for its hungriest call.
    pub(crate) scratch: BTreeMap<GroupId, Memory>,
    /// Per group, for the largest input that a call scales.
    pub(crate) scaled: BTreeMap<GroupId, Memory>,
    bytes: usize,
}

impl Arena {
    /// The arena of `rank` in a plan that was checked.
    pub(crate) fn of(plan: &Plan, rank: GlobalRank) -> Arena {
        let mut arena = Arena::default();
        let Some(program) = plan.program(rank) else { return arena };
        for id in program.tensors() {
            let bytes = plan.tensor(id).map_or(0, |tensor| tensor.bytes()) as usize;
            let memory = arena.place(bytes);
            arena.tensors.insert(id, memory);
        }
        let mut most: BTreeMap<GroupId, [usize; 2]> = BTreeMap::new();
        let mut before = None;
        for call in program.ops.iter().flat_map(|op| op.action.calls()) {
            // Programs repeat themselves.
            if before.replace(call) != Some(call) {
                let needs = needs(plan, rank, call);
                let most = most.entry(call.group()).or_default();
                *most = [most[0].max(needs[0]), most[1].max(needs[1])];
            }
        }
        for (group, [scratch, scaled]) in most {
            let memory = arena.place(scratch);
            arena.scratch.insert(group, memory);
            let memory = arena.place(scaled);
            arena.scaled.insert(group, memory);
        }
        arena
    }

    /// The arena when it begins at `start` of the segment.
    pub(crate) fn moved_to(mut self, start: usize) -> Arena {
        let groups = self.scratch.values_mut().chain(self.scaled.values_mut());
        for memory in self.tensors.values_mut().chain(groups) {
            memory.offset += start;
        }
        self
    }

    /// The bytes of all of it.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn place(&mut self, bytes: usize) -> Memory {
        let offset = self.bytes.checked_next_multiple_of(aligned(bytes)).unwrap_or(usize::MAX);
        self.bytes = offset.saturating_add(bytes);
        Memory { offset, bytes }
    }
}

/// Bytes of scratch, and of the input if it is scaled in a copy, that a call of `rank` needs.
fn needs(plan: &Plan, rank: GlobalRank, call: &Call) -> [usize; 2] {
    let Call::Collective { input, .. } = call else { return [0; 2] };
    let me = plan.group(call.group()).and_then(|group| group.group_rank(rank));
    let (Some(me), Some(signature)) = (me, plan.signature(rank, call)) else { return [0; 2] };
    let (schedule, dtype) = (signature.schedule, signature.dtype);
    let (collective, size) = (schedule.collective(), schedule.size());
    let layout = Layout::new(schedule, signature.count, dtype.size_bytes());
    let elements = layout.grid(me, Buffer::Scratch).elements;
    let scratch = elements.saturating_mul(dtype.size_bytes()) as usize;
    let factor = collective.reduce_op().and_then(|op| reduce::premultiplier(op, dtype, size));
    let scaled = match (factor, input.and_then(|id| plan.tensor(id))) {
        (Some(_), Some(input)) if !collective.in_place() => input.bytes() as usize,
        _ => 0,
    };
    [scratch, scaled]
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::collective::Collective;
    use lockstep_core::dtype::Dtype;
    use lockstep_core::group::BackendName;
    use lockstep_core::plan::{Fill, PlanBuilder};
    use lockstep_core::reduce::ReduceOp;
    use lockstep_core::schedule::Algorithm;

    #[test]
    fn a_part_outside_is_refused() {
        let memory = Memory { offset: 100, bytes: 4 };
        assert!(memory.part(2, 5).is_err());
        assert!(memory.part(3, 2).is_err());
        assert_eq!(memory.part(4, 4).unwrap(), Memory { offset: 104, bytes: 0 });
        let [first, last] = [memory.part(0, 2), memory.part(2, 4)].map(Result::unwrap);
        assert!(first.overlaps(memory) && memory.overlaps(last) && !first.overlaps(last));
    }

    #[test]
    fn memories_lie_apart_and_scratch_is_that_of_the_hungriest_call() {
        let mut plan = PlanBuilder::new("arena", 4, BackendName::Host).unwrap();
        let small = plan.tensor("small", Dtype::Uint8, 3, Fill::Zeros);
        let large = plan.tensor("large", Dtype::Float32, 100_000, Fill::Zeros);
        let part = plan.tensor("part", Dtype::Float32, 25_000, Fill::Zeros);
        let sum = Collective::AllReduce { op: ReduceOp::Sum };
        let average = Collective::ReduceScatter { op: ReduceOp::Avg };
        let plan = plan
            .every_rank(|_, program| {
                let world = GroupId::WORLD;
                program.collective(world, sum, 3, None, Some(small));
                let one_shot = Some(Algorithm::OneShot);
                program.collective_by(world, sum, 100_000, None, Some(large), one_shot);
                program.collective(world, average, 25_000, Some(large), Some(part));
            })
            .unwrap();
        let arena = Arena::of(&plan, GlobalRank(1));
        assert_eq!(arena.scratch[&GroupId::WORLD].bytes, 4 * 400_000);
        assert_eq!(arena.scaled[&GroupId::WORLD].bytes, 400_000);
        let mut memories: Vec<Memory> = arena.tensors.values().copied().collect();
        memories.extend([arena.scratch[&GroupId::WORLD], arena.scaled[&GroupId::WORLD]]);
        memories.push(Memory { offset: arena.bytes(), bytes: 0 });
        assert_eq!(memories.iter().map(|memory| memory.bytes).sum::<usize>(), 2_500_003);
        assert!(memories.windows(2).all(|pair| pair[0].offset + pair[0].bytes <= pair[1].offset));
    }
}
