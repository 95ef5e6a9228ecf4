//! The contents of every chunk at a step, in words: a page shows with them where a schedule goes wrong.

use crate::rank::GroupRank;
use crate::schedule::Buffer;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The contents of every rank's buffers before a step of a schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The step that comes next; the number of steps at the end, or the one that cannot be taken.
    pub step: u32,
    /// By participant, then buffer in the order of [`Standing::BUFFERS`], then chunk.
    pub participants: Vec<[Vec<Holding>; 3]>,
}

/// The contents of a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// `chunk 3 of rank 2`, `the sum of chunk 3 over ranks 0-5`, `nothing`.
    pub words: String,
    /// The number of ranks whose data is in it.
    pub contributors: u32,
}

/// The place where a part of a result was lost: the first write over data that the result lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The writer.
    pub rank: GroupRank,
    /// The step of the write.
    pub step: u32,
    /// The buffer that is written.
    pub buffer: Buffer,
    /// The index of the chunk.
    pub chunk: u32,
    /// The contents before, in words.
    pub held: String,
    /// The contents after, in words.
    pub wrote: String,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Loss { rank, step, buffer, chunk, held, wrote } = self;
        write!(
            f,
            "in step {step} rank {rank} writes {wrote} over {held} in {buffer}[{chunk}], and the \
             result lacks what was there"
        )
    }
}

impl Standing {
    /// The order of a participant's buffers.
    pub const BUFFERS: [Buffer; 3] = [Buffer::Input, Buffer::Output, Buffer::Scratch];
}
