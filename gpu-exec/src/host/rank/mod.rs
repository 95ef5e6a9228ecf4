//! A rank's process: takes its orders from standard input, joins, runs its program, reports.

mod act;
mod alone;
mod call;
pub(crate) mod clerk;
mod collective;
mod combine;
pub(crate) mod desk;
pub(crate) mod failure;
pub(crate) mod gate;
mod held;
mod in_place;
mod life;
pub(crate) mod made;
pub(crate) mod note;
pub(crate) mod operations;
mod p2p;
mod peers;
mod pending;
mod program;
mod recent;
pub(crate) mod recorder;
mod silence;
pub(crate) mod start;
mod stream;
mod transfer;
pub(crate) mod works;

pub(super) use alone::Alone;
pub use alone::KeepDump;
pub use life::rank_main;
#[cfg(feature = "mpi")]
pub(crate) use life::serve_carried;
pub(super) use life::serve_joined;
