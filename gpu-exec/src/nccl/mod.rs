//! The `nccl` backend: plans on GPUs, a process a rank, through NVIDIA's libraries, which are looked for when
//! a run starts.
//!
//! `probe` finds the libraries, `table` their functions; `device`, `compiler` and `communicator` wrap them
//! for a rank. `lower` turns a plan into steps on streams, which is where NCCL's own collectives and the
//! plan's schedules differ; `rank` carries the steps out. The host executor starts, watches and ends ranks.
//!
//! Only the types and signatures of cudarc are used; see `table`.

mod backend;
mod communicator;
mod compiler;
mod device;
pub(crate) mod error;
mod kernels;
pub(crate) mod lower;
pub(crate) mod options;
mod probe;
pub(crate) mod rank;
mod table;

pub use backend::NcclBackend;
pub use options::{Collectives, NcclOptions, Sharing};
pub use probe::{LibraryProbe, NcclProbe, probe, refusal};
