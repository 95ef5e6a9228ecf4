//! The promise of a collective: each chunk's symbolic value at the start and at the end.

use super::rank_set::{Overlap, RankSet};
use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::{Buffer, Schedule};

/// A chunk's symbolic value: a piece of the input, reduced over ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    /// The chunk's number in the input, or in the one tensor of an in-place call.
    pub(super) part: u32,
    pub(super) ranks: RankSet,
}

/// The start and the promise of a schedule's collective, chunk by chunk.
pub(super) struct Promise<'a> {
    schedule: &'a Schedule,
    collective: Collective,
    size: u32,
    per_part: u32,
}

impl<'a> Promise<'a> {
    pub(super) fn of(schedule: &'a Schedule) -> Promise<'a> {
        let (collective, size) = (schedule.collective(), schedule.size());
        Promise { schedule, collective, size, per_part: schedule.chunks_per_part().max(1) }
    }

    /// The contents of a chunk at the start: the tensors that are passed in.
    pub(super) fn begins_with(
        &self,
        participant: GroupRank,
        buffer: Buffer,
        chunk: u32,
    ) -> Option<Content> {
        let passed = match buffer {
            Buffer::Input => true,
            Buffer::Output => self.collective.in_place(),
            Buffer::Scratch => false,
        };
        let ranks = || RankSet::one(participant.0, self.size);
        (passed && participant.0 < self.size).then(|| Content { part: chunk, ranks: ranks() })
    }

    /// The buffer of a rank's result; `None` if it is promised none.
    pub(super) fn result(&self, rank: GroupRank) -> Option<Buffer> {
        match self.collective {
            collective if collective.is_barrier() => Some(Buffer::Scratch),
            collective => collective.promises(rank).then_some(Buffer::Output),
        }
    }

    /// The promised contents of `chunk` of the result of `rank`; `None` if anything may be there.
    pub(super) fn ends_with(&self, rank: GroupRank, chunk: u32) -> Option<Content> {
        // Chunk p * per_part + i is chunk i of part p.
        let (part, piece) = (chunk / self.per_part, chunk % self.per_part);
        let own = rank.0.saturating_mul(self.per_part).saturating_add(piece);
        let one = |part, from| Some(Content { part, ranks: RankSet::one(from, self.size) });
        let all = |part| Some(Content { part, ranks: RankSet::all(self.size) });
        match self.collective {
            Collective::AllReduce { .. } | Collective::Reduce { .. } => all(chunk),
            Collective::Broadcast { root } => one(chunk, root.0),
            Collective::AllGather | Collective::Gather { .. } => one(piece, part),
            Collective::Scatter { root } => one(own, root.0),
            Collective::ReduceScatter { .. } => all(own),
            Collective::AllToAll => one(own, part),
            // Only the last signal says that everybody has come.
            Collective::Barrier | Collective::MonitoredBarrier { .. } => {
                let signals = self.schedule.chunks(rank, Buffer::Scratch);
                (chunk + 1 == signals).then(|| all(0)).flatten()
            }
        }
    }

    /// A chunk's content in words: `chunk 3 of rank 2`, `the sum of chunk 3 over ranks 0-5`.
    pub(super) fn words(&self, content: Option<&Content>) -> String {
        match content {
            None => "nothing".to_owned(),
            Some(Content { part, ranks }) => match ranks.words(self.size) {
                (1, rank) => format!("chunk {part} of rank {rank}"),
                (_, ranks) => format!("the sum of chunk {part} over ranks {ranks}"),
            },
        }
    }

    /// The union; a barrier's "these have come" may overlap, a reduction's operands may not.
    pub(super) fn sum(&self, a: &Content, b: &Content) -> Result<Content, &'static str> {
        if a.part != b.part {
            return Err("the operands are different parts of the tensor");
        }
        let may_overlap = self.collective.is_barrier();
        match a.ranks.union(&b.ranks, self.size, may_overlap) {
            Ok(ranks) => Ok(Content { part: a.part, ranks }),
            Err(Overlap) => Err("a rank's contribution would be counted twice"),
        }
    }
}
