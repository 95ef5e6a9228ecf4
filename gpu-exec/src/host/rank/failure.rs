//! The reasons that a rank ends before its program has. The coordinator gets them as sentences, through a socket.

use crate::store::StoreError;
use lockstep_core::plan::PlanError;
use lockstep_core::rank::GlobalRank;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// The reason that a rank ends: its plan, its machine, its device, or the other ranks.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RankFailure {
    /// The operating system refused something.
    #[error("{attempt}: {cause}")]
    System {
        /// Such as "cannot start a thread".
        attempt: &'static str,
        /// The system's reason.
        cause: io::Error,
    },
    /// The store in which the ranks meet.
    #[error("cannot meet the other ranks: {0}")]
    Store(#[from] StoreError),
    /// The store holds something else than the ranks put there.
    #[error("cannot meet the other ranks: their store holds no {0} where one should be")]
    NotInStore(&'static str),
    /// Another rank was not there in time.
    #[error("the other ranks did not {what} within {} s", within.as_secs_f64())]
    Late {
        /// Such as "join".
        what: &'static str,
        /// The limit.
        within: Duration,
    },
    /// Connections that others were to make.
    #[error(
        "{missing} connections of other ranks did not come within {} s", within.as_secs_f64()
    )]
    NotConnected {
        /// The number of connections that did not come.
        missing: usize,
        /// The limit.
        within: Duration,
    },
    /// A peer that this rank was to connect to.
    #[error("cannot reach rank {peer} at {address}: {cause}")]
    Unreachable {
        /// The rank that cannot be reached.
        peer: GlobalRank,
        /// Its address.
        address: SocketAddr,
        /// The system's reason.
        cause: io::Error,
    },
    /// Rank 0 went before the run began.
    #[error("rank 0 ended before the run began; if it could, it has said why")]
    RankZeroGone,
    /// The process was not started by a coordinator.
    #[error("standard input is not the socket of a coordinator")]
    NoCoordinator,
    /// The plan that was handed over.
    #[error("the plan: {0}")]
    Plan(#[from] PlanError),
    /// The plan says that the rank's process ends here.
    #[error("{how}")]
    Died {
        /// In the plan's words.
        how: String,
    },
    /// A device.
    #[error(transparent)]
    Device(#[from] crate::nccl::error::DeviceError),
    /// Something that NCCL, or this executor on devices, cannot do.
    #[error(transparent)]
    NotOnDevices(#[from] crate::nccl::lower::Unsupported),
    /// The GPU is too small.
    #[error(
        "the rank's tensors and scratch take {bytes} bytes, but its GPU has {free} left; use smaller tensors"
    )]
    DeviceMemory {
        /// The bytes they take.
        bytes: u64,
        /// The bytes that are free.
        free: u64,
    },
    /// One GPU does not carry out so many logical ranks side by side.
    #[error(
        "{ranks} logical ranks with their groups need {streams} streams of one GPU, which has connections for \
         {limit}; use fewer ranks or groups"
    )]
    Streams {
        /// Ranks of the plan.
        ranks: u32,
        /// Streams that they need.
        streams: usize,
        /// The limit.
        limit: usize,
    },
    /// Something that MPI, or this executor through it, cannot do.
    #[cfg(feature = "mpi")]
    #[error(transparent)]
    NotByMpi(#[from] crate::mpi::lower::Unsupported),
    /// A call of MPI.
    #[cfg(feature = "mpi")]
    #[error(transparent)]
    Mpi(#[from] crate::mpi::call::MpiError),
    /// Bytes outside of a tensor or a scratch buffer.
    #[error(
        "bytes {start} to {end} of a memory of {bytes}, which no plan that was checked comes to; please report \
         the plan"
    )]
    Outside {
        /// The first byte.
        start: u64,
        /// One past the last.
        end: u64,
        /// The bytes there are.
        bytes: u64,
    },
    /// Setup and plan do not fit together.
    #[error("{0}, which no plan that was checked comes to; please report the plan")]
    Unchecked(&'static str),
}

/// For `map_err`: an attempt, and the system's answer that ends the rank.
pub(crate) fn cannot<E: Into<io::Error>>(attempt: &'static str) -> impl Fn(E) -> RankFailure {
    move |cause| RankFailure::System { attempt, cause: cause.into() }
}
