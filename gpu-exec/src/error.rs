//! The reasons that a run could not be started.

use lockstep_core::collective::Collective;
use lockstep_core::group::BackendName;
use lockstep_core::plan::{FaultError, PlanError};
use lockstep_core::rank::GlobalRank;
use lockstep_core::schedule::Algorithm;
use std::path::PathBuf;

/// The reason that a run could not be started. Failures after the start are in the trace's end.
///
/// Each says its cause itself: none is a `source`, since printing a chain would repeat it.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The plan cannot be run by anybody.
    #[error("the plan cannot be run: {0}")]
    Plan(#[from] PlanError),
    /// A fault that cannot be injected.
    #[error(transparent)]
    Fault(#[from] FaultError),
    /// Faults that a backend cannot inject.
    #[error(
        "the {backend} backend sends no signals to its ranks; use faults that are in the plan \
         (delay, drop, resize), or the host backend"
    )]
    NoSignals {
        /// The backend that the plan was to run on.
        backend: BackendName,
    },
    /// A backend that plans can name but this executor does not have.
    #[error(
        "there is no {0} backend in this version; choose host, which runs on any Linux machine"
    )]
    NoSuchBackend(BackendName),
    /// A schedule of the plan has switches that reduce, which the backend does not have.
    #[error(
        "{algorithm} {collective} needs a switch that reduces what passes through it, which the \
         {backend} backend does not have; choose another algorithm, or simulate the plan"
    )]
    NeedsSwitch {
        /// The backend without such a switch.
        backend: BackendName,
        /// The call.
        collective: Collective,
        /// The algorithm that was asked for.
        algorithm: Algorithm,
    },
    /// The backend needs something that this machine does not have.
    #[error("the {backend} backend cannot run here: {why}")]
    Unavailable {
        /// The backend that cannot run.
        backend: BackendName,
        /// The library that was looked for, the places, and the result.
        why: String,
    },
    /// A launcher started another number of processes than the plan has ranks.
    #[error(
        "the launcher started {launched} processes, and the plan has {planned} ranks; start as \
         many, or take a plan for {launched}: lockstep plan NAME --world-size {launched} -o plan.json"
    )]
    WrongWorld {
        /// Processes that were started.
        launched: u32,
        /// Ranks of the plan.
        planned: u32,
    },
    /// The machine of rank 0 has no such name.
    #[error("MASTER_ADDR {address:?} cannot be looked up: {cause}")]
    Unresolved {
        /// The name.
        address: String,
        /// The system's reason.
        cause: std::io::Error,
    },
    /// The file in which ranks are to meet is another run's, which goes on.
    #[error(
        "{path:?} is where the ranks of another run meet, which still goes on (process {pid}); give each run a \
         file of its own, or end that one first"
    )]
    MeetingInUse {
        /// The file.
        path: PathBuf,
        /// That run's rank 0.
        pid: u32,
    },
    /// Another rank 0 meets its ranks in this store.
    #[error(
        "another rank 0 (process {pid}) meets its ranks at {address}:{port}, and is still there; give each run \
         a MASTER_PORT of its own and each process a RANK of its own, or end that one first"
    )]
    RankZeroTwice {
        /// The store's address.
        address: String,
        /// The store's port.
        port: u16,
        /// That rank 0.
        pid: u32,
    },
    /// The store in which ranks find each other.
    #[error("the ranks' store: {cause}")]
    Store {
        /// c10d's message.
        cause: crate::store::StoreError,
    },
    /// More processes than the limit.
    #[error(
        "the plan has {ranks} ranks, but a host run may start at most {limit} processes; \
         simulate it, or run it with fewer ranks"
    )]
    TooManyRanks {
        /// Ranks of the plan.
        ranks: u32,
        /// The limit.
        limit: u32,
    },
    /// More shared memory for messages than the limit, even with the smallest buffers.
    #[error(
        "the plan needs {channels} message channels between its ranks, which take {bytes} bytes \
         of shared memory; the limit is {limit}. Use fewer ranks, tags or all-to-all patterns"
    )]
    TooManyChannels {
        /// Distinct (group, sender, receiver, tag) tuples.
        channels: u64,
        /// The bytes they take at the least.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// The tensors would not fit.
    #[error(
        "the tensors of all ranks, with scratch, scaled copies and messages that land, take \
         {bytes} bytes together; the limit on this machine is {limit}. Use smaller tensors or \
         fewer ranks"
    )]
    TooMuchMemory {
        /// The bytes they take.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// Every rank would have to read more than it may.
    #[error(
        "the plan takes {bytes} bytes in its binary form, which every rank of a run reads, and \
         the limit is {limit}; simulate it, or run fewer of its iterations"
    )]
    PlanTooLong {
        /// The bytes it takes.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A signal that does not reach a process which others have started.
    #[error(
        "rank {rank} was started by a launcher, and cannot be stopped by the clock from rank 0's \
         process; stop it at a call (stop:rank={rank},call=1), or kill it"
    )]
    CannotStop {
        /// The rank that cannot be stopped.
        rank: GlobalRank,
    },
    /// A rank's process could not be started.
    #[error("rank {rank}: cannot start {program:?}: {cause}")]
    Spawn {
        /// The rank that was to be started.
        rank: GlobalRank,
        /// The program that was to be executed.
        program: PathBuf,
        /// The system's reason.
        cause: std::io::Error,
    },
    /// A rank ended, failed or took too long before it joined.
    #[error("rank {rank} did not join the run: {why}")]
    DidNotJoin {
        /// The rank that did not join.
        rank: GlobalRank,
        /// The reason, in words.
        why: String,
    },
    /// The operating system refused something.
    #[error("cannot {doing}: {cause}")]
    System {
        /// The attempt, in words.
        doing: &'static str,
        /// The system's reason.
        cause: std::io::Error,
    },
}

impl RunError {
    /// For `map_err`: the attempted action, and the system's answer.
    pub(crate) fn system<E: Into<std::io::Error>>(doing: &'static str) -> impl Fn(E) -> RunError {
        move |cause| RunError::System { doing, cause: cause.into() }
    }
}
