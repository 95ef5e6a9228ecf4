//! The reasons that a text is no MSCCL program that could run.

use lockstep_core::schedule::TableError;
use std::fmt;

/// A step of an MSCCL program, as its file numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct At {
    /// The `gpu`: our rank.
    pub gpu: u32,
    /// The thread block, `tb`.
    pub tb: u32,
    /// The step `s` of the block.
    pub step: u32,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gpu {}, tb {}, step {}", self.gpu, self.tb, self.step)
    }
}

/// The reason that a text is no MSCCL program that could run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MscclError {
    /// More text than is read.
    #[error("the file has {bytes} bytes; MSCCL programs of up to 32 MiB are read")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Not XML, or not an MSCCL program's elements and attributes.
    #[error("line {line}: {why}")]
    Line {
        /// The line, counted from 1.
        line: usize,
        /// The problem there.
        why: String,
    },
    /// A GPU as a whole.
    #[error("gpu {gpu}: {why}")]
    Gpu {
        /// Which one.
        gpu: u32,
        /// The problem with it.
        why: String,
    },
    /// A step that could not run.
    #[error("{at}: {why}")]
    Step {
        /// The place.
        at: At,
        /// The problem with it.
        why: String,
    },
    /// Two steps of a GPU use the same memory, one writes it, and nothing orders them.
    #[error(
        "{at} and tb {}, step {} both touch {what} and one writes it, but nothing says which comes \
         first: add a dependency (depid, deps)", .other.tb, .other.step
    )]
    Race {
        /// The one step.
        at: At,
        /// The other, of the same GPU.
        other: At,
        /// The memory, in the file's words: `i[3]`.
        what: String,
    },
    /// Steps that wait for each other.
    #[error("{at} waits for itself: {circle}")]
    Cycle {
        /// The first step of the circle.
        at: At,
        /// The circle of waits, in words.
        circle: String,
    },
    /// More than a schedule from a file may hold.
    #[error(transparent)]
    Table(#[from] TableError),
}

impl MscclError {
    /// An error of one step.
    pub(super) fn step(at: At, why: impl Into<String>) -> MscclError {
        MscclError::Step { at, why: why.into() }
    }
}
