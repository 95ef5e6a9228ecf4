//! The executors, by their names.

use super::{Backend, HostBackend, NcclBackend, NcclOptions, RankLauncher, RunError};
use lockstep_core::group::BackendName;

/// The backend of that name, never another one. A missing backend is an error with the names and folders that
/// were searched.
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
