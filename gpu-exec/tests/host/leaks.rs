//! Runs leave nothing behind.

use crate::left_behind::names_of;
use crate::{HostBackend, backend, is_our_child, options};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, PlanBuilder};
use lockstep_core::reduce::ReduceOp;
use lockstep_gpu_exec::Backend;
use rustix::process::{Pid, Signal, kill_process};
use std::process::Command;
use std::time::Duration;

const CHILD: &str = "LOCKSTEP_TEST_LEAKS";

fn names_in(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn a_few_runs(backend: &HostBackend, rounds: u64) {
    for round in 0..rounds {
        let mut plan = PlanBuilder::new("leaks", 3, BackendName::Host).unwrap();
        let tensor = plan.tensor("t", Dtype::Float32, 1000, Fill::Rank);
        let sum = Collective::AllReduce { op: ReduceOp::Sum };
        let plan = plan
            .every_rank(|_, program| {
                program.collective(GroupId::WORLD, sum, 1000, None, Some(tensor));
                program.sleep("a while", 20_000_000);
                program.collective(GroupId::WORLD, sum, 1000, None, Some(tensor));
            })
            .unwrap();
        let run = backend.start(plan, options()).unwrap();
        let pids = run.pids().to_vec();
        match round % 3 {
            0 => {}
            1 => run.cancel(),
            _ => {
                std::thread::sleep(Duration::from_millis(round % 7));
                let pid = Pid::from_raw(pids[round as usize % 3] as i32).unwrap();
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        run.join();
        assert!(!pids.into_iter().any(is_our_child));
    }
}

/// Counts descriptors and threads, so it needs a process of its own.
#[test]
fn in_a_process_of_its_own() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let backend = backend();
    a_few_runs(&backend, 3);
    let before = (names_in("/proc/self/fd").len(), names_in("/proc/self/task").len());
    a_few_runs(&backend, 12);
    let after = (names_in("/proc/self/fd").len(), names_in("/proc/self/task").len());
    assert_eq!(before, after, "(descriptors, threads)");
    // Only its own: other tests share memory by name at the same time.
    assert_eq!(names_of(std::process::id()), Vec::<String>::new());
}

#[test]
fn runs_leave_no_process_descriptor_thread_or_shared_memory() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "leaks::in_a_process_of_its_own", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
