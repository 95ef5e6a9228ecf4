//! torch.multiprocessing's two sharing strategies, and a named shared memory when processes are killed:
//! nothing of it is left.

use crate::left_behind::names_of;
use crate::{assert_completed, backend, is_alive, options, result, run_with};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, Plan, PlanBuilder};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::Outcome;
use lockstep_gpu_exec::{Backend, RunOptions, SharingStrategy};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const CHILD: &str = "LOCKSTEP_TEST_NAMED";

fn named() -> RunOptions {
    RunOptions { sharing: SharingStrategy::FileSystem, ..options() }
}

/// Reduces, sleeps, and reduces again. Tensors of `numel` floats take a while to fill.
fn plan(numel: u64, sleep_ms: u64) -> Plan {
    let mut plan = PlanBuilder::new("named", 3, BackendName::Host).unwrap();
    let tensor = plan.tensor("t", Dtype::Float32, numel, Fill::Seeded { seed: 1 });
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    plan.every_rank(|_, program| {
        program.collective(GroupId::WORLD, sum, numel, None, Some(tensor));
        program.sleep("a while", sleep_ms * 1_000_000);
        program.collective(GroupId::WORLD, sum, numel, None, Some(tensor));
    })
    .unwrap()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(20), "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn both_strategies_give_the_same_bits_and_leave_no_name() {
    let traces = [options(), named()].map(|options| run_with(plan(40_001, 0), options));
    traces.iter().for_each(assert_completed);
    let tensor = lockstep_core::plan::TensorId(0);
    for rank in 0..3 {
        assert_eq!(result(&traces[0], rank, tensor), result(&traces[1], rank, tensor));
    }
    // Only this process's: others of the same tests are named after themselves.
    let mine = std::process::id();
    until("the name is gone", || names_of(mine).is_empty());
}

#[test]
fn a_name_is_gone_once_all_have_joined_and_a_killed_rank_leaves_none() {
    let run = backend().start(plan(100, 20_000), named()).unwrap();
    assert_eq!(names_of(std::process::id()), Vec::<String>::new());
    let killed = Pid::from_raw(run.pids()[1] as i32).unwrap();
    kill_process(killed, Signal::KILL).unwrap();
    let outcome = run.join().outcome;
    assert!(matches!(outcome, Outcome::RankDied { rank: GlobalRank(1), .. }), "{outcome:?}");
}

/// Not a test by itself: the process that `a_killed_coordinator_leaves_no_name` starts.
#[test]
fn coordinator_to_be_killed() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    // Ranks that are busy filling their tensors have not joined: the name is still needed.
    let _ = backend().start(plan(20_000_000, 0), named());
}

fn children_of(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children =
        tasks.map(|t| std::fs::read_to_string(t.path().join("children")).unwrap_or_default());
    children.flat_map(|c| c.split_whitespace().flat_map(str::parse).collect::<Vec<_>>()).collect()
}

fn coordinator() -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sharing::coordinator_to_be_killed", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_killed_coordinator_leaves_no_name() {
    let mut coordinator = coordinator();
    let pid = coordinator.id();
    until("there is a name", || !names_of(pid).is_empty());
    // The keeper and the ranks.
    until("the ranks are there", || children_of(pid).len() == 4);
    let processes = children_of(pid);
    assert_eq!(names_of(pid).len(), 1);
    coordinator.kill().unwrap();
    coordinator.wait().unwrap();
    until("the name is gone", || names_of(pid).is_empty());
    until("all processes are gone", || !processes.iter().any(|pid| is_alive(*pid)));
}

/// One that dies while the others join: the run is refused, and the name is gone with it.
#[test]
fn a_rank_that_is_killed_before_it_joins_leaves_no_name() {
    let mut coordinator = coordinator();
    let pid = coordinator.id();
    until("the ranks are there", || children_of(pid).len() == 4);
    // Any but the keeper, which is the first.
    let rank = children_of(pid).into_iter().max().unwrap();
    kill_process(Pid::from_raw(rank as i32).unwrap(), Signal::KILL).unwrap();
    coordinator.wait().unwrap();
    assert_eq!(names_of(pid), Vec::<String>::new());
}
