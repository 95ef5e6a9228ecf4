//! The actions of a rank in a step: the primitives, and the chunks of its memories that they name.

use crate::rank::GroupRank;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;

/// One of the memories that a rank's schedule works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Buffer {
    /// The tensor passed in; never written. Absent for in-place collectives.
    Input,
    /// The tensor the result is in; for in-place collectives also the tensor passed in.
    Output,
    /// The schedule's own memory, empty at the start.
    Scratch,
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Buffer::Input => "input",
            Buffer::Output => "output",
            Buffer::Scratch => "scratch",
        })
    }
}

/// A run of neighbouring chunks of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slice {
    /// The buffer that the chunks are in.
    pub buffer: Buffer,
    /// The first chunk.
    pub chunk: u32,
    /// The number of chunks.
    pub chunks: u32,
}

impl Slice {
    /// One chunk of a buffer.
    pub fn one(buffer: Buffer, chunk: u32) -> Slice {
        Slice { buffer, chunk, chunks: 1 }
    }

    /// Several neighbouring chunks of a buffer.
    pub fn run(buffer: Buffer, chunks: Range<u32>) -> Slice {
        Slice { buffer, chunk: chunks.start, chunks: chunks.end.saturating_sub(chunks.start) }
    }

    /// True when both name a common chunk.
    pub fn overlaps(self, other: Slice) -> bool {
        self.buffer == other.buffer
            && self.chunk < other.chunk + other.chunks
            && other.chunk < self.chunk + self.chunks
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.chunks {
            1 => write!(f, "{}[{}]", self.buffer, self.chunk),
            chunks => {
                let last = u64::from(self.chunk) + u64::from(chunks.saturating_sub(1));
                write!(f, "{}[{}..={last}]", self.buffer, self.chunk)
            }
        }
    }
}

/// One action of a rank in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Copies inside the rank.
    Copy {
        /// The slice that is read.
        from: Slice,
        /// The slice that is written.
        into: Slice,
    },
    /// Combines inside the rank: `into = local op from` (MSCCL's `re`).
    Reduce {
        /// The first operand; may be `into` itself.
        local: Slice,
        /// The second operand; may be `into` itself.
        from: Slice,
        /// The slice that is written.
        into: Slice,
    },
    /// Sends chunks to a peer.
    Send {
        /// The receiver.
        peer: GroupRank,
        /// The slice that is read.
        from: Slice,
    },
    /// Receives chunks from a peer.
    Receive {
        /// The sender.
        peer: GroupRank,
        /// The slice that is written.
        into: Slice,
    },
    /// Receives chunks and combines them with the rank's own: `into = local op incoming`.
    ReceiveReduce {
        /// The sender.
        peer: GroupRank,
        /// The rank's own operand; may be `into` itself.
        local: Slice,
        /// The slice that is written.
        into: Slice,
    },
}

impl Action {
    /// The action on other slices.
    pub(super) fn map(self, mut to: impl FnMut(Slice) -> Slice) -> Action {
        match self {
            Action::Copy { from, into } => Action::Copy { from: to(from), into: to(into) },
            Action::Reduce { local, from, into } => {
                Action::Reduce { local: to(local), from: to(from), into: to(into) }
            }
            Action::Send { peer, from } => Action::Send { peer, from: to(from) },
            Action::Receive { peer, into } => Action::Receive { peer, into: to(into) },
            Action::ReceiveReduce { peer, local, into } => {
                Action::ReceiveReduce { peer, local: to(local), into: to(into) }
            }
        }
    }

    /// The action with another peer, if it has one.
    pub(super) fn with_peer(self, to: impl FnOnce(GroupRank) -> GroupRank) -> Action {
        match self {
            Action::Copy { .. } | Action::Reduce { .. } => self,
            Action::Send { peer, from } => Action::Send { peer: to(peer), from },
            Action::Receive { peer, into } => Action::Receive { peer: to(peer), into },
            Action::ReceiveReduce { peer, local, into } => {
                Action::ReceiveReduce { peer: to(peer), local, into }
            }
        }
    }

    /// The slice written or, by a send, read: all slices of an action are as long.
    #[inline]
    pub(super) fn into_or_from(self) -> Slice {
        match self {
            Action::Send { from, .. } => from,
            Action::Copy { into, .. }
            | Action::Reduce { into, .. }
            | Action::Receive { into, .. }
            | Action::ReceiveReduce { into, .. } => into,
        }
    }

    /// The slices that are read.
    #[inline]
    pub fn reads(self) -> impl Iterator<Item = Slice> {
        let reads = match self {
            Action::Copy { from, .. } | Action::Send { from, .. } => [Some(from), None],
            Action::Reduce { local, from, .. } => [Some(local), Some(from)],
            Action::Receive { .. } => [None, None],
            Action::ReceiveReduce { local, .. } => [Some(local), None],
        };
        reads.into_iter().flatten()
    }

    /// The slice that is written, by all but sends.
    #[inline]
    pub fn writes(self) -> Option<Slice> {
        match self {
            Action::Send { .. } => None,
            Action::Copy { into, .. }
            | Action::Reduce { into, .. }
            | Action::Receive { into, .. }
            | Action::ReceiveReduce { into, .. } => Some(into),
        }
    }

    /// The slices that are read or written.
    #[inline]
    pub fn slices(self) -> impl Iterator<Item = Slice> {
        self.reads().chain(self.writes())
    }
}
