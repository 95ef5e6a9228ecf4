//! The proof that a schedule does what its collective promises.
//!
//! The schedule is executed symbolically: a chunk's value is *which part of the input, reduced
//! over which ranks*. Adding a rank's contribution twice, mixing different parts, reading what was
//! never written, a message nobody receives and two actions of a step that touch the same memory
//! are all errors, so what is left is right for every element count, dtype and operation.
//!
//! [`prove`] does it for a whole world. For worlds that are too large to take through every step,
//! [`prove_steps`] checks the laws for one participant in all of its steps, and [`prove_chunk`] one
//! chunk of one result, by going back to all that it depends on. Both for every rank and chunk are
//! a proof of the world; for some of them they are exact about those.

mod laws;
mod rank_set;
mod sampled;
mod standing;
mod world;

pub use sampled::{prove_chunk, prove_steps};
pub use standing::{Holding, Loss, Standing};

use super::{Action, Buffer, Schedule, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;
use rank_set::{Overlap, RankSet};
use world::World;

/// What a proved schedule costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Messages sent by all ranks together.
    pub messages: u64,
    /// Chunks in those messages.
    pub chunks_moved: u64,
    /// Chunks combined by all ranks together.
    pub chunks_reduced: u64,
}

/// The first place where a schedule breaks its word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// A slice past the end of its buffer.
    #[error("rank {rank}, step {step}: {slice} is outside the rank's buffer of {chunks} chunks")]
    OutOfBounds {
        /// Whose step.
        rank: GroupRank,
        /// Which step.
        step: u32,
        /// The slice.
        slice: Slice,
        /// The chunks that the buffer has.
        chunks: u32,
    },
    /// An action whose slices are of different lengths.
    #[error("rank {rank}, step {step}: an action on {slice} has another slice of another length")]
    Uneven {
        /// Whose step.
        rank: GroupRank,
        /// Which step.
        step: u32,
        /// One of its slices.
        slice: Slice,
    },
    /// Two actions of one step touch the same memory and one writes it.
    #[error("rank {rank}, step {step}: two actions of the step touch {slice} and one writes it")]
    Hazard {
        /// Whose step.
        rank: GroupRank,
        /// Which step.
        step: u32,
        /// The memory.
        slice: Slice,
    },
    /// A chunk is read before anything was put there.
    #[error("rank {rank}, step {step}: reads {slice}, where nothing was written yet")]
    Unwritten {
        /// Whose step.
        rank: GroupRank,
        /// Which step.
        step: u32,
        /// What is read.
        slice: Slice,
    },
    /// A reduction would count a rank twice or mix different parts of the tensor.
    #[error("rank {rank}, step {step}: cannot reduce into {slice}: {why}")]
    BadReduction {
        /// Whose step.
        rank: GroupRank,
        /// Which step.
        step: u32,
        /// The chunk written.
        slice: Slice,
        /// What is wrong with the operands.
        why: &'static str,
    },
    /// A message to oneself, of the wrong length, in the wrong step, or that nobody receives.
    #[error("rank {from} to rank {to}, step {step}: {why}")]
    BadMessage {
        /// The sender.
        from: GroupRank,
        /// The receiver.
        to: GroupRank,
        /// The sender's step.
        step: u32,
        /// What is wrong.
        why: &'static str,
    },
    /// The schedule waits for ever.
    #[error("rank {rank} waits for ever in step {step} for a message from rank {peer}")]
    Stuck {
        /// Who waits.
        rank: GroupRank,
        /// In which step.
        step: u32,
        /// For whom.
        peer: GroupRank,
    },
    /// At the end a chunk is not what the collective promises.
    #[error("rank {rank} ends with {holds} in {buffer}[{chunk}]{}, not {promised}", since(*.step))]
    WrongResult {
        /// Whose result.
        rank: GroupRank,
        /// Which buffer.
        buffer: Buffer,
        /// Which chunk.
        chunk: u32,
        /// The step in which it was written last; `None` if it never was.
        step: Option<u32>,
        /// What it holds, in words.
        holds: String,
        /// What it should hold.
        promised: String,
    },
}

fn since(step: Option<u32>) -> String {
    step.map(|step| format!(" (since step {step})")).unwrap_or_default()
}

impl ProofError {
    /// The participant that goes wrong first: the receiver of a message that is wrong.
    pub fn rank(&self) -> GroupRank {
        match self {
            ProofError::OutOfBounds { rank, .. }
            | ProofError::Uneven { rank, .. }
            | ProofError::Hazard { rank, .. }
            | ProofError::Unwritten { rank, .. }
            | ProofError::BadReduction { rank, .. }
            | ProofError::Stuck { rank, .. }
            | ProofError::WrongResult { rank, .. } => *rank,
            ProofError::BadMessage { to, .. } => *to,
        }
    }

    /// The step in which it goes wrong; for a result, the one in which it was written last, if any.
    pub fn step(&self) -> Option<u32> {
        match self {
            ProofError::OutOfBounds { step, .. }
            | ProofError::Uneven { step, .. }
            | ProofError::Hazard { step, .. }
            | ProofError::Unwritten { step, .. }
            | ProofError::BadReduction { step, .. }
            | ProofError::BadMessage { step, .. }
            | ProofError::Stuck { step, .. } => Some(*step),
            ProofError::WrongResult { step, .. } => *step,
        }
    }

    /// The memory that goes wrong, where the error is about one.
    pub fn slice(&self) -> Option<Slice> {
        match self {
            ProofError::OutOfBounds { slice, .. }
            | ProofError::Uneven { slice, .. }
            | ProofError::Hazard { slice, .. }
            | ProofError::Unwritten { slice, .. }
            | ProofError::BadReduction { slice, .. } => Some(*slice),
            ProofError::WrongResult { buffer, chunk, .. } => Some(Slice::one(*buffer, *chunk)),
            ProofError::BadMessage { .. } | ProofError::Stuck { .. } => None,
        }
    }
}

/// A chunk's symbolic value: a piece of the input, reduced over ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    /// The chunk's number in the input, or in the one tensor of an in-place call.
    part: u32,
    ranks: RankSet,
}

/// What a schedule's collective begins with and promises, chunk by chunk.
struct Promise<'a> {
    schedule: &'a Schedule,
    collective: Collective,
    size: u32,
    per_part: u32,
}

impl<'a> Promise<'a> {
    fn of(schedule: &'a Schedule) -> Promise<'a> {
        let (collective, size) = (schedule.collective(), schedule.size());
        Promise { schedule, collective, size, per_part: schedule.chunks_per_part().max(1) }
    }

    /// What is in a chunk at the start: the tensors that are passed in.
    fn begins_with(&self, participant: GroupRank, buffer: Buffer, chunk: u32) -> Option<Content> {
        let passed = match buffer {
            Buffer::Input => true,
            Buffer::Output => self.collective.in_place(),
            Buffer::Scratch => false,
        };
        let ranks = || RankSet::one(participant.0, self.size);
        (passed && participant.0 < self.size).then(|| Content { part: chunk, ranks: ranks() })
    }

    /// Where a rank's result is; `None` if it is promised none.
    fn result(&self, rank: GroupRank) -> Option<Buffer> {
        match self.collective {
            collective if collective.is_barrier() => Some(Buffer::Scratch),
            collective => collective.promises(rank).then_some(Buffer::Output),
        }
    }

    /// What is promised in `chunk` of the result of `rank`; `None` if anything may be there.
    fn ends_with(&self, rank: GroupRank, chunk: u32) -> Option<Content> {
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
    fn words(&self, content: Option<&Content>) -> String {
        match content {
            None => "nothing".to_owned(),
            Some(Content { part, ranks }) => match ranks.words(self.size) {
                (1, rank) => format!("chunk {part} of rank {rank}"),
                (_, ranks) => format!("the sum of chunk {part} over ranks {ranks}"),
            },
        }
    }

    /// The union; a barrier's "these have come" may overlap, a reduction's operands may not.
    fn sum(&self, a: &Content, b: &Content) -> Result<Content, &'static str> {
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

/// Executes the schedule symbolically for all of its participants.
///
/// # Errors
/// The first step, participant and chunk at which the schedule breaks one of its laws, or the
/// first rank and chunk that does not end as promised.
pub fn prove(schedule: &Schedule) -> Result<Proof, ProofError> {
    prove_actions(schedule, &|rank, step, actions| schedule.actions(rank, step, actions))
}

/// What a participant does in a step: replaces the content of the list.
type Actions<'a> = dyn Fn(GroupRank, u32, &mut Vec<Action>) + 'a;

/// Proves that `actions` carries out what `schedule` promises, on its buffers and in its steps.
fn prove_actions(schedule: &Schedule, actions: &Actions<'_>) -> Result<Proof, ProofError> {
    World::new(schedule, actions).run()
}

#[cfg(test)]
mod closed_forms;
#[cfg(test)]
mod closed_forms_of_machines;
#[cfg(test)]
mod tests;
