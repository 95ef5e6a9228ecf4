//! The native executor: runs plans for real and records what happens.
//!
//! A [`Backend`] turns a plan into a [`RunHandle`]: a run in progress whose events arrive while it
//! runs. The `host` backend starts one process per rank on this machine and carries out the same
//! schedules as the simulator through shared memory; `nccl` says what it looked for and where. With
//! the feature `mpi`, processes that mpirun started run plans through MPI.
//!
//! Invariants: nothing waits for ever (every wait has a timeout that ends in a [`TraceEnd`] or a
//! [`RunError`]); a run that ends, however it ends, leaves no process, socket, file or
//! shared-memory segment behind; `unsafe` lives only in the modules that say why.
//!
//! [`TraceEnd`]: lockstep_core::trace::TraceEnd

mod backend;
mod backends;
mod clock;
mod error;
mod memory_group;
mod options;
mod run;
mod shm;

pub mod host;
#[cfg(feature = "mpi")]
pub mod mpi;
pub mod nccl;
pub mod store;

pub use backend::Backend;
pub use backend::run_to_trace;
pub use backends::backend;
pub use error::RunError;
pub use host::launcher::RankLauncher;
pub use host::{HostBackend, rank_main};
pub use memory_group::MemoryGroup;
pub use nccl::{Collectives, NcclBackend, NcclOptions, Sharing};
pub use options::{RunOptions, SharingStrategy, Transport};
pub use run::{Command, RankDump, RunControl, RunEvent, RunHandle};
