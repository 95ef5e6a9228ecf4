//! What every executor implements, and how one is found by name.

use crate::{HostBackend, NcclBackend, NcclOptions, RankLauncher, RunError, RunHandle, RunOptions};
use lockstep_core::group::BackendName;
use lockstep_core::plan::Plan;
use std::fmt;

/// Runs plans for real.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Which one it is: what traces name.
    fn name(&self) -> BackendName;

    /// Starts the plan's ranks and returns once all have joined. The run then goes on by itself.
    ///
    /// # Errors
    /// When the plan or the machine does not allow it; no process is left behind.
    fn start(&self, plan: Plan, options: RunOptions) -> Result<RunHandle, RunError>;
}

/// The backend of that name. Never another one: what is not there is an error that says what was
/// looked for.
///
/// # Errors
/// When this version or this machine does not have it.
pub fn backend(name: BackendName, launcher: RankLauncher) -> Result<Box<dyn Backend>, RunError> {
    match name {
        BackendName::Host => Ok(Box::new(HostBackend::new(launcher))),
        BackendName::Nccl => Ok(Box::new(NcclBackend::new(launcher, &NcclOptions::default())?)),
        BackendName::Gloo | BackendName::Mpi | BackendName::Unknown => {
            Err(RunError::NoSuchBackend(name))
        }
    }
}
