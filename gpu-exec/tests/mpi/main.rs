//! Runs of plans through MPI, started by `mpirun`: that of the MPI which this test was built with
//! (`cargo xtask test --only mpi` builds it with each that is installed).
//!
//! Every run of a program of ranks takes a second or so to start, so one plan holds many calls.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../host/cases.rs"]
#[allow(dead_code, reason = "not all of the host's cases are asked for here")]
mod cases;
mod ends;
#[path = "../host/reference.rs"]
mod reference;
mod values;
mod works;

use lockstep_core::plan::{Plan, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Outcome, TensorValue, Trace, What};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time that a test waits for a job before it takes it for stuck.
const STUCK: Duration = Duration::from_secs(120);

/// The launcher of the MPI that this test is linked with.
fn launcher() -> Command {
    let library = mpi::environment::library_version().unwrap();
    let open = library.contains("Open MPI");
    let own = if open { "mpirun.openmpi" } else { "mpirun.mpich" };
    let there = Command::new(own).arg("--version").stdout(Stdio::null()).status().is_ok();
    let mut command = Command::new(if there { own } else { "mpirun" });
    if open {
        command.args(["--oversubscribe", "--allow-run-as-root"]);
    }
    command
}

/// The result of a job.
struct Ran {
    output: Output,
    folder: tempfile::TempDir,
}

impl Ran {
    fn trace(&self) -> Trace {
        let bytes = std::fs::read(self.folder.path().join("trace"));
        let bytes = bytes.unwrap_or_else(|error| panic!("no trace ({error}): {}", self.text()));
        Trace::read(&bytes).unwrap()
    }

    /// The output of all ranks and the launcher.
    fn text(&self) -> String {
        let said = [&self.output.stdout[..], &self.output.stderr[..]].concat();
        String::from_utf8_lossy(&said).into_owned()
    }
}

/// Runs a plan as `ranks` processes; panics if they do not end.
fn launch(plan: &Plan, ranks: u32) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("plan"), plan.to_bytes()).unwrap();
    let mut command = launcher();
    command.args(["-n", &ranks.to_string(), env!("CARGO_BIN_EXE_lockstep-rank"), "--mpi"]);
    command.args([folder.path().join("plan"), folder.path().join("trace")]);
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut job = piped.spawn().unwrap();
    let began = Instant::now();
    while job.try_wait().unwrap().is_none() {
        if began.elapsed() > STUCK {
            job.kill().unwrap();
            panic!("stuck: {:?}", job.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ran { output: job.wait_with_output().unwrap(), folder }
}

/// Runs a plan that completes.
fn run(plan: &Plan) -> Trace {
    let ran = launch(plan, plan.world_size);
    assert!(ran.output.status.success(), "{}", ran.text());
    let trace = ran.trace();
    assert_completed(&trace);
    trace
}

fn assert_completed(trace: &Trace) {
    assert_eq!(trace.end.as_ref().unwrap().outcome, Outcome::Completed);
}

fn result(trace: &Trace, rank: u32, wanted: TensorId) -> &TensorValue {
    let found = trace.events.iter().find_map(|event| match &event.what {
        What::Result { tensor, value } if *tensor == wanted && event.rank == GlobalRank(rank) => {
            Some(value)
        }
        _ => None,
    });
    found.unwrap_or_else(|| panic!("rank {rank} reported no tensor {}", wanted.0))
}
