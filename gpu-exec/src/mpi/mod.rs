//! The `mpi` backend: a plan's calls through MPI, in processes that `mpirun` or `srun` started, for
//! clusters without GPUs. Behind the feature `mpi`, since it links the MPI that `mpicc` names.
//!
//! A process is a rank of `MPI_COMM_WORLD`. Its first thread is the only one that calls MPI
//! ([`engine`]): it starts nonblocking calls and asks them whether they are done, so no call can
//! hold it, and it can abort the job at any moment. The program runs on a thread of its own
//! ([`program`]). `lower` says which of MPI's calls a call of the plan is and what is refused, in
//! PyTorch's words where PyTorch refuses it (`ProcessGroupMPI.cpp`); `agreement` which calls MPI is
//! never given, because their ranks disagree; `call` is the calls themselves.
//!
//! Events, timeouts, dumps and the end of a run are the host executor's: every rank is connected to
//! rank 0's process, whose coordinator runs on a thread beside its rank. A run that does not
//! complete ends by `MPI_Abort`, after rank 0 has told its story.
//!
//! What differs from `ProcessGroupMPI`: calls of different groups do not wait for each other (its
//! worker threads share one lock), `int8` is `MPI_INT8_T` (its `MPI_CHAR` is no number to MPICH),
//! and a send is `MPI_Issend`, which completes when its receiver has it, as the plan's rules and
//! the other executors have it; an `MPI_Isend` of few bytes completes at once, and hides a receive
//! that never comes.
//!
//! What is MPI's own: the order in which floats are added, what is left in the tensors of ranks
//! that a reduction promises nothing, and sums of 8-bit and 16-bit integers that pass their range
//! (Open MPI saturates some of them, `tests/mpi/values.rs`).

mod agreement;
pub(crate) mod call;
mod engine;
mod job;
pub(crate) mod lower;
mod program;
mod tensors;

pub use job::Job;
pub use lower::Unsupported;
