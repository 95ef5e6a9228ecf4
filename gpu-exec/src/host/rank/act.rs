//! The acts of a collective's step, with the places of their bytes.

use crate::host::arena::Memory;
use lockstep_core::schedule;

/// A chunk of the schedule and where it lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) named: schedule::Slice,
    pub(super) memory: Memory,
}

/// An action, see [`schedule::Action`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Copy { from: Memory, into: Memory },
    Reduce { local: Memory, from: Memory, into: Memory },
    Send { peer: usize, from: Place },
    Receive { peer: usize, into: Place },
    ReceiveReduce { peer: usize, local: Memory, into: Place },
}

impl Act {
    /// The bytes of memory that it touches.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Act::Copy { into, .. } | Act::Reduce { into, .. } => into.bytes,
            Act::Send { from: place, .. }
            | Act::Receive { into: place, .. }
            | Act::ReceiveReduce { into: place, .. } => place.memory.bytes,
        }
    }

    /// The memory that is written.
    pub(super) fn writes(&self) -> Option<Memory> {
        match self {
            Act::Send { .. } => None,
            Act::Copy { into, .. } | Act::Reduce { into, .. } => Some(*into),
            Act::Receive { into, .. } | Act::ReceiveReduce { into, .. } => Some(into.memory),
        }
    }
}
