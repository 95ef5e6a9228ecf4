//! The backend by itself: libraries that were found, and a run that is started with them.

use super::options::{DeviceSetup, NcclOptions};
use super::probe::{probe, refusal};
use crate::host::carrier::Carrier;
use crate::host::launcher::RankLauncher;
use crate::host::start::start;
use crate::{Backend, RunError, RunHandle, RunOptions};
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
        start(self.launcher.clone(), plan, options, carrier)
    }
}
