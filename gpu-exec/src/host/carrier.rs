//! The carrier of a plan's calls, and a plan that was checked for it.

use crate::RunOptions;
use crate::nccl::options::DeviceSetup;
use crate::shm::Patience;
use lockstep_core::group::BackendName;
use lockstep_core::plan::{Plan, Signal};
use std::sync::Arc;

/// The carrier of a plan's calls.
#[derive(Clone, Debug)]
pub(crate) enum Carrier {
    /// The ranks themselves, by the plan's schedules.
    Host,
    /// Devices.
    Device(DeviceSetup),
    /// MPI, which has started the ranks: all of them come to a meeting.
    #[cfg(feature = "mpi")]
    Mpi,
}

impl Carrier {
    /// The backend's name in traces.
    pub(super) fn backend(&self) -> BackendName {
        match self {
            Carrier::Host => BackendName::Host,
            Carrier::Device(_) => BackendName::Nccl,
            #[cfg(feature = "mpi")]
            Carrier::Mpi => BackendName::Mpi,
        }
    }

    /// For ranks on devices.
    pub(super) fn device(&self) -> Option<&DeviceSetup> {
        match self {
            Carrier::Device(device) => Some(device),
            _ => None,
        }
    }

    /// True if ranks exchange their messages themselves.
    pub(super) fn is_host(&self) -> bool {
        matches!(self, Carrier::Host)
    }
}

/// A plan that was checked against this machine's limits.
pub(super) struct Checked {
    pub(super) plan: Plan,
    pub(super) options: RunOptions,
    pub(super) patience: Patience,
    pub(super) carrier: Carrier,
    /// The signals that processes are sent by the clock.
    pub(super) signals: Vec<Signal>,
    /// The plan's binary form as all ranks are sent it.
    pub(super) plan_frame: Arc<[u8]>,
}
