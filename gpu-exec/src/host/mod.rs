//! The `host` backend: one process per rank on this machine, data through shared memory.
//!
//! The coordinator is a thread of the program that starts the run; each rank is that program
//! again, started so that it calls [`rank_main`]. They talk over a socket pair (orders and
//! reports), a store on 127.0.0.1 (joining) and one shared memory (data). None of these has a
//! name in the file system, so nothing can be left behind, unless the run asks for a named shared
//! memory: `sharing` then sees to it.

pub(crate) mod arena;
mod bridge;
pub(crate) mod carrier;
pub(crate) mod control;
mod coordinator;
mod greeters;
mod joining;
mod landings;
pub mod launched;
pub(crate) mod launcher;
pub(crate) mod limits;
mod process;
pub(crate) mod rank;
mod sharing;
mod standing;
pub(crate) mod start;
mod wiring;

pub use joining::{join, lead};
pub use rank::{KeepDump, rank_main};
pub use start::HostBackend;
