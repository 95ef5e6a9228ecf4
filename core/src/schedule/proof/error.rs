//! The first place where a schedule fails to carry out its collective.

use crate::rank::GroupRank;
use crate::schedule::{Buffer, Slice};

/// The first place where a schedule breaks its word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// A slice past the end of its buffer.
    #[error("rank {rank}, step {step}: {slice} is outside the rank's buffer of {chunks} chunks")]
    OutOfBounds {
        /// The rank of the step.
        rank: GroupRank,
        /// The step of the slice.
        step: u32,
        /// The slice.
        slice: Slice,
        /// The chunks that the buffer has.
        chunks: u32,
    },
    /// An action whose slices are of different lengths.
    #[error("rank {rank}, step {step}: an action on {slice} has another slice of another length")]
    Uneven {
        /// The rank of the step.
        rank: GroupRank,
        /// The step of the action.
        step: u32,
        /// One of its slices.
        slice: Slice,
    },
    /// Two actions of one step touch the same memory and one writes it.
    #[error("rank {rank}, step {step}: two actions of the step touch {slice} and one writes it")]
    Hazard {
        /// The rank of the step.
        rank: GroupRank,
        /// The step of the two actions.
        step: u32,
        /// The memory.
        slice: Slice,
    },
    /// A chunk is read before anything was put there.
    #[error("rank {rank}, step {step}: reads {slice}, where nothing was written yet")]
    Unwritten {
        /// The rank of the step.
        rank: GroupRank,
        /// The step of the read.
        step: u32,
        /// The slice that is read.
        slice: Slice,
    },
    /// A reduction would count a rank twice or mix different parts of the tensor.
    #[error("rank {rank}, step {step}: cannot reduce into {slice}: {why}")]
    BadReduction {
        /// The rank of the step.
        rank: GroupRank,
        /// The step of the reduction.
        step: u32,
        /// The chunk written.
        slice: Slice,
        /// The problem with the operands.
        why: &'static str,
    },
    /// A message to the sender itself, of the wrong length, in the wrong step, or without a receiver.
    #[error("rank {from} to rank {to}, step {step}: {why}")]
    BadMessage {
        /// The sender.
        from: GroupRank,
        /// The receiver.
        to: GroupRank,
        /// The sender's step.
        step: u32,
        /// The problem, in words.
        why: &'static str,
    },
    /// The schedule waits for ever.
    #[error("rank {rank} waits for ever in step {step} for a message from rank {peer}")]
    Stuck {
        /// The rank that waits.
        rank: GroupRank,
        /// The step of the message.
        step: u32,
        /// The other end of the message.
        peer: GroupRank,
    },
    /// At the end a chunk does not have the value that the collective promises.
    #[error("rank {rank} ends with {holds} in {buffer}[{chunk}]{}, not {promised}", since(*.step))]
    WrongResult {
        /// The rank of the result.
        rank: GroupRank,
        /// The buffer of the wrong chunk.
        buffer: Buffer,
        /// The index of the wrong chunk.
        chunk: u32,
        /// The step in which it was written last; `None` if it never was.
        step: Option<u32>,
        /// The contents, in words.
        holds: String,
        /// The promised contents, in words.
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
