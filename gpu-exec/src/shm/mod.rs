//! Memory that all ranks of a run share: the ranks' tensors, channels for messages about them, doorbells for
//! waiting ranks.
//!
//! One `memfd` a run, made by the coordinator and handed to its ranks. It has no name in `/dev/shm`, so the
//! kernel frees it when the last process is gone, however it went.

mod channel;
mod doorbell;
pub(crate) mod home;
mod segment;

pub(crate) use channel::{Channel, Header, INLINE, Payload, Receiver, Sender};
pub(crate) use doorbell::{Doorbell, Patience};
pub(crate) use segment::Segment;

/// The distance between values that two processes write, in bytes (a cache line, and its neighbour
/// that the hardware fetches with it).
pub(crate) const APART: usize = 128;
