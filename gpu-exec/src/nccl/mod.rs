//! The `nccl` backend: plans on GPUs, a process a rank, through NVIDIA's libraries, which are looked for when
//! a run starts.
//!
//! `probe` finds the libraries, `table` their functions; `device`, `compiler` and `communicator` wrap them
//! for a rank. `lower` turns a plan into steps on streams, which is where NCCL's own collectives and the
//! plan's schedules differ; `rank` carries the steps out. The host executor starts, watches and ends ranks.
//!
//! Only the types and signatures of cudarc are used; see `table`.

mod communicator;
mod compiler;
mod device;
pub(crate) mod error;
mod kernels;
pub(crate) mod lower;
pub(crate) mod options;
mod probe;
mod rank;
mod table;

pub use options::{Collectives, NcclOptions, Sharing};
pub use probe::{LibraryProbe, NcclProbe, probe, refusal};
pub(crate) use rank::run_rank;

use options::DeviceSetup;

use super::host::carrier::Carrier;
use super::host::launcher::RankLauncher;
use super::{Backend, RunError, RunHandle, RunOptions, host};
use lockstep_core::group::BackendName;
use lockstep_core::plan::Plan;

/// Runs plans on GPUs.
#[derive(Clone, Debug)]
pub struct NcclBackend {
    launcher: RankLauncher,
    setup: DeviceSetup,
}

impl NcclBackend {
    /// A backend with the libraries that this machine has.
    ///
    /// # Errors
    /// A library is missing: the names and folders that were searched.
    pub fn new(launcher: RankLauncher, options: &NcclOptions) -> Result<NcclBackend, RunError> {
        let probe = probe(options);
        if let Some(refused) = refusal(&probe, options) {
            return Err(refused);
        }
        // The refusals above leave only libraries that were found.
        let setup = DeviceSetup {
            cuda: probe.cuda.found.unwrap_or_default(),
            nvrtc: probe.nvrtc.found.unwrap_or_default(),
            nccl: probe.nccl.found,
            collectives: options.collectives,
            sharing: options.sharing,
        };
        Ok(NcclBackend { launcher, setup })
    }
}

impl Backend for NcclBackend {
    fn name(&self) -> BackendName {
        BackendName::Nccl
    }

    fn start(&self, plan: Plan, options: RunOptions) -> Result<RunHandle, RunError> {
        let carrier = Carrier::Device(self.setup.clone());
        host::start(self.launcher.clone(), plan, options, carrier)
    }
}
