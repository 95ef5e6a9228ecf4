//! The `mpi` backend: a plan's calls through MPI, in processes that `mpirun` or `srun` started, for clusters
//! without GPUs. Behind the feature `mpi`, since it links the MPI that `mpicc` names.
//!
//! A process is a rank of `MPI_COMM_WORLD`. Its first thread is the only one that calls MPI ([`engine`]): it
//! starts nonblocking calls and asks them whether they are done, so no call can block it, and it can abort
//! the job at any moment. The program runs on a thread of its own ([`program`]). `lower` chooses the MPI call
//! for each call of the plan, and refuses some, in PyTorch's words if PyTorch refuses them
//! (`ProcessGroupMPI.cpp`); `agreement` finds the calls that MPI is never given, because their ranks
//! disagree; `call` makes the calls.
//!
//! Events, timeouts, dumps and the end of a run are the host executor's: every rank is connected to rank 0's
//! process, whose coordinator runs on a thread beside its rank. A run that does not complete ends by
//! `MPI_Abort`, after rank 0 has reported it.
//!
//! Differences from `ProcessGroupMPI`: calls of different groups do not wait for each other (its worker
//! threads share one lock), `int8` is `MPI_INT8_T` (its `MPI_CHAR` is no number to MPICH), and a send is
//! `MPI_Issend`, which completes when its receiver has it, as the plan's rules and the other executors have
//! it; an `MPI_Isend` of few bytes completes at once, and hides a receive that never comes.
//!
//! MPI itself decides the order in which floats are added, the contents of tensors of ranks that a reduction
//! promises nothing, and sums of 8-bit and 16-bit integers that pass their range (Open MPI saturates some of
//! them, `tests/mpi/values.rs`).

mod agreement;
pub(crate) mod call;
mod engine;
mod job;
pub(crate) mod lower;
mod program;
mod tensors;

pub use job::Job;
pub use lower::Unsupported;
