//! Memory that all ranks of a run share: rings for messages, doorbells for those who wait.
//!
//! One `memfd` a run, made by the coordinator and handed to its ranks. It has no name in
//! `/dev/shm`, so the kernel frees it when the last process is gone, however it went.

mod doorbell;
mod ring;
mod segment;

pub(crate) use doorbell::{Doorbell, Patience};
pub(crate) use ring::{Receiver, Ring, Sender};
pub(crate) use segment::Segment;

/// Positions in rings are multiples of this: a message header, and every element type's size
/// divides it, so that neither is ever split.
pub(crate) const GRAIN: usize = 32;

/// What two processes write is kept this far apart (a cache line, and its neighbour that the
/// hardware fetches with it).
pub(crate) const APART: usize = 128;
