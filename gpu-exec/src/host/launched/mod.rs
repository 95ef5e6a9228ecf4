//! Ranks that others start: torchrun, mpirun, srun, Kubernetes. No scheduler of our own.
//!
//! Every process learns its rank from its environment ([`Launch`]) and finds the others through c10d's
//! TCPStore, in PyTorch's protocol: one that a torchrun agent or a PyTorch process serves, or one that rank 0
//! serves when nobody does; or through a file that all of them see. Rank 0's process is the run's
//! coordinator, with its rank in a child process; it gathers the events and reports how the run ended. The
//! other processes are ranks, connected to it over TCP; one that loses rank 0 ends by itself, and keeps its
//! own recorder's dump.

mod environment;
mod farewell;
mod greeting;
mod meeting;
mod meeting_file;
pub(super) mod rendezvous;

pub use environment::{Launch, LaunchError};
pub use farewell::Farewell;
pub(super) use farewell::stay;
pub use rendezvous::{Rendezvous, RendezvousError};

pub(super) use greeting::Guest;
pub(crate) use meeting::Meeting;
#[cfg(feature = "mpi")]
pub(crate) use meeting::accept;
pub(super) use meeting::{attend, memory_path, random_token};
