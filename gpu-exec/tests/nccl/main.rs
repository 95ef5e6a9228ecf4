//! Runs of the nccl backend against a stand-in for CUDA, NVRTC and NCCL that the tests build: everything
//! around a GPU, without one.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "../host/cases.rs"]
mod cases;
mod failures;
mod orders;
#[path = "../host/reference.rs"]
#[allow(dead_code, reason = "not all of the host's tests' reference is asked for here")]
mod reference;
mod refusals;
mod streams;
mod values;

use lockstep_core::plan::{Plan, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Outcome, TensorValue, Trace, What};
use lockstep_gpu_exec::{
    Collectives, NcclBackend, NcclOptions, RankLauncher, RunOptions, Sharing, run_to_trace,
};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// The stand-in, as cargo has built it beside this test.
fn stand_in() -> PathBuf {
    let path = std::env::current_exe().unwrap().with_file_name("libnccl_stand_in.so");
    assert!(path.exists(), "{} is not there", path.display());
    path
}

/// A folder in which a library has these names.
fn named(library: &Path, names: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        symlink(library, folder.path().join(name)).unwrap();
    }
    folder
}

/// A machine with the stand-in in place of NVIDIA's libraries.
struct Machine {
    folder: TempDir,
    environment: Vec<String>,
    options: NcclOptions,
}

impl Machine {
    fn new() -> Machine {
        Machine::with(named(&stand_in(), &["libcuda.so.1", "libnvrtc.so.12", "libnccl.so.2"]))
    }

    fn with(folder: TempDir) -> Machine {
        let libraries = vec![folder.path().to_owned()];
        let options = NcclOptions { libraries, only_there: true, ..NcclOptions::default() };
        Machine { folder, environment: Vec::new(), options }
    }

    /// With `NAME=value` in the ranks' environment.
    fn set(mut self, variable: &str) -> Machine {
        self.environment.push(variable.to_owned());
        self
    }

    fn sharing(mut self, sharing: Sharing) -> Machine {
        self.options.sharing = sharing;
        self
    }

    fn by_schedules(mut self) -> Machine {
        self.options.collectives = Collectives::Schedules;
        self
    }

    fn backend(&self) -> NcclBackend {
        let rank = env!("CARGO_BIN_EXE_lockstep-rank");
        let mut args: Vec<_> = self.environment.iter().map(Into::into).collect();
        args.push(rank.into());
        let launcher = RankLauncher { program: "/usr/bin/env".into(), args };
        assert!(self.folder.path().exists());
        NcclBackend::new(launcher, &self.options).unwrap()
    }

    /// A machine whose stand-in leaves files there, under this name of its environment.
    fn leaving(self, variable: &str, folder: &TempDir) -> Machine {
        self.set(&format!("{variable}={}", folder.path().display()))
    }

    fn run(&self, plan: Plan) -> Trace {
        run_to_trace(&self.backend(), plan, options()).unwrap()
    }

    /// The reason that the plan is not run.
    fn refusal(&self, plan: Plan) -> String {
        run_to_trace(&self.backend(), plan, options()).unwrap_err().to_string()
    }
}

/// Options that end a test that hangs long before anybody would.
fn options() -> RunOptions {
    RunOptions {
        timeout: Some(Duration::from_secs(60)),
        max_duration: Duration::from_secs(90),
        grace: Duration::from_secs(3),
        ..RunOptions::default()
    }
}

fn assert_completed(trace: &Trace) {
    let end = trace.end.as_ref().unwrap();
    assert_eq!(end.outcome, Outcome::Completed);
}

fn result(trace: &Trace, rank: u32, wanted: TensorId) -> &TensorValue {
    trace
        .events
        .iter()
        .find_map(|event| match &event.what {
            What::Result { tensor, value }
                if *tensor == wanted && event.rank == GlobalRank(rank) =>
            {
                Some(value)
            }
            _ => None,
        })
        .unwrap_or_else(|| panic!("rank {rank} reported no tensor {}", wanted.0))
}
