//! The `host` backend: one process per rank on this machine, data through shared memory.

use crate::{Backend, RunError, RunHandle, RunOptions};
use lockstep_core::group::BackendName;
use lockstep_core::plan::Plan;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// What is executed for each rank: a program that calls [`rank_main`] when started so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankLauncher {
    /// The program: usually `std::env::current_exe()`.
    pub program: PathBuf,
    /// Its arguments: for `lockstep`, the hidden subcommand.
    pub args: Vec<OsString>,
}

/// Runs plans as processes on this machine.
#[derive(Clone, Debug)]
pub struct HostBackend {
    #[allow(dead_code, reason = "the coordinator is about to use it")]
    launcher: RankLauncher,
}

impl HostBackend {
    /// A backend that starts its ranks so.
    pub fn new(launcher: RankLauncher) -> HostBackend {
        HostBackend { launcher }
    }
}

impl Backend for HostBackend {
    fn name(&self) -> BackendName {
        BackendName::Host
    }

    fn start(&self, plan: Plan, _options: RunOptions) -> Result<RunHandle, RunError> {
        plan.check()?;
        Err(RunError::Unavailable {
            backend: BackendName::Host,
            why: "it is being built".to_owned(),
        })
    }
}

/// What a rank's process does: everything, from joining to exiting. Its orders come through
/// standard input, a socket that the coordinator made; a program calls this from `main` and
/// returns what it returns.
pub fn rank_main() -> ExitCode {
    ExitCode::FAILURE
}
