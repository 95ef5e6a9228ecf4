//! Processes that are killed, runs that are cancelled, and coordinators that go.

use crate::{backend, is_alive, is_our_child, options};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, Plan, PlanBuilder};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{Event, Outcome, Trace, What};
use lockstep_diagnosis::{Kind, diagnose_trace, diagnose_whole_trace};
use lockstep_gpu_exec::{Backend, HostBackend, RankLauncher, RunError, RunEvent, RunOptions};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Three ranks that reduce until somebody ends them.
pub(crate) fn long_plan() -> Plan {
    let mut plan = PlanBuilder::new("long", 3, BackendName::Host).unwrap();
    let tensor = plan.tensor("t", Dtype::Float32, 1000, Fill::Rank);
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    plan.every_rank(|_, program| {
        for _ in 0..5000 {
            program.collective(GroupId::WORLD, sum, 1000, None, Some(tensor));
            program.compute("work", 5_000_000);
        }
    })
    .unwrap()
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
}

pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(10), "not within 10 s: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Its calls are how its end is understood: all of them are in the trace, whenever it dies.
#[test]
fn a_rank_that_dies_by_itself_leaves_its_calls() {
    let mut plan = PlanBuilder::new("dies", 2, BackendName::Host).unwrap();
    let tensor = plan.tensor("t", Dtype::Float32, 10, Fill::Rank);
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = plan
        .every_rank(|rank, program| {
            for _ in 0..3 {
                program.collective(GroupId::WORLD, sum, 10, None, Some(tensor));
            }
            match rank {
                GlobalRank(1) => program.die("ValueError: no"),
                _ => program.collective(GroupId::WORLD, sum, 10, None, Some(tensor)),
            };
        })
        .unwrap();
    let trace = backend().start(plan, options()).unwrap().into_trace();
    let outcome = trace.end.unwrap().outcome;
    let Outcome::RankDied { rank: GlobalRank(1), how } = outcome else { panic!("{outcome:?}") };
    assert!(how.ends_with("ValueError: no"), "{how}");
    let own = trace.events.iter().filter(|event| event.rank == GlobalRank(1));
    let calls = own.filter(|event| matches!(event.what, What::Completed { .. }));
    assert_eq!(calls.count(), 3);
}

#[test]
fn a_killed_rank_ends_the_run_at_once() {
    let run = backend().start(long_plan(), options()).unwrap();
    let pids = run.pids().to_vec();
    assert_eq!(pids.len(), 3);
    assert!(matches!(run.next_event(Duration::from_secs(10)), Some(RunEvent::Events(_))));
    signal(pids[1], Signal::KILL);
    let started = Instant::now();
    let trace = run.into_trace();
    assert!(started.elapsed() < Duration::from_secs(8), "{:?}", started.elapsed());
    let how = "killed by signal 9 (SIGKILL)".to_owned();
    let outcome = trace.end.unwrap().outcome;
    assert_eq!(outcome, Outcome::RankDied { rank: GlobalRank(1), how: how.clone() });
    let died: Vec<_> =
        trace.events.iter().filter(|e| matches!(e.what, What::Died { .. })).collect();
    assert_eq!(died.len(), 1);
    assert_eq!((died[0].rank, &died[0].what), (GlobalRank(1), &What::Died { how }));
    for pid in pids {
        assert!(!is_our_child(pid), "rank process {pid} is left");
    }
}

#[test]
fn a_stopped_rank_is_killed_after_the_grace() {
    let options = RunOptions { timeout: Some(Duration::from_millis(300)), ..options() };
    let run = backend().start(long_plan(), options).unwrap();
    let pids = run.pids().to_vec();
    signal(pids[2], Signal::STOP);
    let started = Instant::now();
    let end = run.join();
    assert_eq!(end.outcome, Outcome::TimedOut);
    assert!(started.elapsed() < Duration::from_secs(12), "{:?}", started.elapsed());
    assert!(!pids.into_iter().any(is_our_child));
}

/// A run of which two ranks are killed, and the ranks that it reports as killed.
fn two_killed() -> (Trace, Vec<GlobalRank>) {
    let run = backend().start(long_plan(), options()).unwrap();
    let pids = run.pids().to_vec();
    until("calls are made", || run.events().try_recv().is_ok());
    // Whoever sees the first of them end sees the other end, too.
    let mut both =
        Command::new("kill").arg("-9").args(pids[1..].iter().map(u32::to_string)).spawn();
    assert!(both.as_mut().unwrap().wait().unwrap().success());
    let trace = run.into_trace();
    assert!(matches!(trace.end.as_ref().unwrap().outcome, Outcome::RankDied { .. }));
    let how = "killed by signal 9 (SIGKILL)";
    let dead = trace.events.iter().filter(|event| event.what == What::Died { how: how.into() });
    let mut dead: Vec<GlobalRank> = dead.map(|event| event.rank).collect();
    dead.sort_unstable();
    (trace, dead)
}

/// Both are reported, and neither as the other's victim.
#[test]
fn two_ranks_that_are_killed_at_once_have_both_died() {
    // If the machine does something else between the two signals, the first death ends the other rank.
    let (trace, dead) = (0..5)
        .map(|_| two_killed())
        .find(|(_, dead)| dead.len() == 2)
        .expect("two ranks die at once in one run of five");
    assert_eq!(dead, [GlobalRank(1), GlobalRank(2)]);
    let report = diagnose_trace(&trace);
    assert_eq!(report.findings[0].culprits, dead, "{}", report.to_text());
}

/// Rank 1 is at work, and rank 0 waits for it: nothing is wrong.
#[test]
fn a_cancelled_run_of_busy_ranks_accuses_nobody() {
    let mut plan = PlanBuilder::new("busy", 2, BackendName::Host).unwrap();
    let tensor = plan.tensor("t", Dtype::Float32, 1000, Fill::Rank);
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = plan.every_rank(|rank, program| {
        program.collective(GroupId::WORLD, sum, 1000, None, Some(tensor));
        if rank == GlobalRank(1) {
            program.sleep("data loader", 60_000_000_000);
        }
        program.collective(GroupId::WORLD, sum, 1000, None, Some(tensor));
    });
    let run = backend().start(plan.unwrap(), options()).unwrap();
    let mut events = Vec::new();
    let seen = |events: &[Event], rank, what| {
        events.iter().any(|event| event.rank == GlobalRank(rank) && event.what == what)
    };
    until("rank 0 waits", || {
        while let Ok(RunEvent::Events(new)) = run.events().try_recv() {
            events.extend(new);
        }
        seen(&events, 0, What::Started { work: 1 }) && seen(&events, 1, What::OpBegan { op: 1 })
    });
    run.cancel();
    let mut trace = run.into_trace();
    events.append(&mut trace.events);
    let mut trace = Trace { events, ..trace };
    assert_eq!(trace.end.as_ref().unwrap().outcome, Outcome::Cancelled);
    let report = diagnose_trace(&trace);
    assert!(report.findings.is_empty(), "{}", report.to_text());
    assert!(report.unseen[0].contains("rank 1 in data loader"), "{:?}", report.unseen);

    // Nor does a trace that breaks off there, as one does whose coordinator was killed.
    trace.end = None;
    let report = diagnose_whole_trace(&trace);
    let [finding] = &report.findings[..] else { panic!("{}", report.to_text()) };
    assert_eq!((finding.kind, &finding.culprits[..]), (Kind::RunFailed, &[][..]));
    assert!(finding.message.contains("rank 1 in data loader"), "{}", finding.message);
}

#[test]
fn cancelling_ends_the_run_and_dropping_the_handle_does_too() {
    let run = backend().start(long_plan(), options()).unwrap();
    let (pids, control) = (run.pids().to_vec(), run.control());
    std::thread::spawn(move || control.tell(lockstep_gpu_exec::Command::Cancel));
    let trace = run.into_trace();
    assert_eq!(trace.end.unwrap().outcome, Outcome::Cancelled);
    assert!(!pids.into_iter().any(is_our_child));

    let run = backend().start(long_plan(), options()).unwrap();
    let pids = run.pids().to_vec();
    drop(run);
    assert!(!pids.into_iter().any(is_our_child));
}

#[test]
fn programs_that_are_no_ranks_are_refused_in_words() {
    let start = |program: &str, args: &[&str]| {
        let args = args.iter().map(Into::into).collect();
        let backend = HostBackend::new(RankLauncher { program: program.into(), args });
        let join_timeout = Duration::from_millis(400);
        backend.start(long_plan(), RunOptions { join_timeout, ..options() }).unwrap_err()
    };
    let missing = start("/nowhere/lockstep", &[]);
    assert!(matches!(missing, RunError::Spawn { rank: GlobalRank(0), .. }), "{missing}");
    let failing = start("/bin/false", &[]);
    assert!(failing.to_string().contains("exited with status 1"), "{failing}");
    let silent = start("/bin/sleep", &["30"]);
    assert!(silent.to_string().contains("did not within 400ms"), "{silent}");
}

#[test]
fn limits_are_refused_before_anything_starts() {
    let start = |options| backend().start(long_plan(), options).unwrap_err().to_string();
    let ranks = start(RunOptions { max_ranks: 2, ..options() });
    assert!(ranks.contains("3 ranks") && ranks.contains("at most 2"), "{ranks}");
    let memory = start(RunOptions { max_tensor_bytes: Some(47_999), ..options() });
    assert!(memory.contains("48000 bytes"), "{memory}");
    let shared = start(RunOptions { max_shared_bytes: 4096, ..options() });
    assert!(shared.contains("6 message channels"), "{shared}");
}

const CHILD: &str = "LOCKSTEP_TEST_COORDINATOR";

/// Not a test by itself: the process that `ranks_end_when_their_coordinator_is_killed` starts.
#[test]
fn coordinator_to_be_killed() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let run = backend().start(long_plan(), options()).unwrap();
    let pids: Vec<_> = run.pids().iter().map(ToString::to_string).collect();
    println!("\npids {}", pids.join(" "));
    run.join();
}

#[test]
fn ranks_end_when_their_coordinator_is_killed() {
    let mut coordinator = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "deaths::coordinator_to_be_killed", "--nocapture"])
        .env(CHILD, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(coordinator.stdout.take().unwrap()).lines();
    let pids: Vec<u32> = lines
        .map_while(Result::ok)
        .find_map(|line| {
            let pids = line.strip_prefix("pids ")?.to_owned();
            Some(pids.split(' ').map(|pid| pid.parse().unwrap()).collect())
        })
        .unwrap();
    assert_eq!(pids.len(), 3);
    assert!(pids.iter().all(|pid| is_alive(*pid)));
    coordinator.kill().unwrap();
    coordinator.wait().unwrap();
    until("the ranks are gone", || !pids.iter().any(|pid| is_alive(*pid)));
}
