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

mod error;
mod laws;
mod promise;
mod rank_set;
mod sampled;
mod standing;
mod world;

pub use error::ProofError;
pub use sampled::{prove_chunk, prove_steps};
pub use standing::{Holding, Loss, Standing};
pub use world::prove;

use super::Action;
use crate::rank::GroupRank;

/// The cost of a proved schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Messages sent by all ranks together.
    pub messages: u64,
    /// Chunks in those messages.
    pub chunks_moved: u64,
    /// Chunks combined by all ranks together.
    pub chunks_reduced: u64,
}

/// The actions of a participant in a step: replaces the content of the list.
type Actions<'a> = dyn Fn(GroupRank, u32, &mut Vec<Action>) + 'a;

#[cfg(test)]
mod tests;
