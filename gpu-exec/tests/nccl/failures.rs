//! Ranks that hang, fail and die: always ended, with the finding that the host executor's run has,
//! and with no process left.

use crate::{Machine, options};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, Plan, PlanBuilder, ProgramBuilder, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{Outcome, Trace, What};
use lockstep_diagnosis::diagnose_trace;
use lockstep_gpu_exec::{
    Backend, HostBackend, RankLauncher, RunEvent, RunOptions, Sharing, run_to_trace,
};
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

const SUM: Collective = Collective::AllReduce { op: ReduceOp::Sum };

fn plan(write: impl Fn(GlobalRank, &mut ProgramBuilder, TensorId)) -> Plan {
    let mut plan = PlanBuilder::new("hang", 3, BackendName::Nccl).unwrap();
    let source = plan.source("train.py", "");
    let tensor = plan.tensor("t", Dtype::Float32, 8, Fill::Rank);
    plan.every_rank(|rank, program| {
        program.line(source, 7);
        write(rank, program, tensor);
    })
    .unwrap()
}

fn hangs(backend: &dyn Backend, plan: Plan) -> Trace {
    // Long enough for a busy machine to have every call made, short enough for a test.
    let options = RunOptions { timeout: Some(Duration::from_secs(3)), ..options() };
    let trace = run_to_trace(backend, plan, options).unwrap();
    assert_eq!(trace.end.as_ref().unwrap().outcome, Outcome::TimedOut);
    assert!(trace.events.iter().any(|event| matches!(event.what, What::TimedOut { .. })));
    for rank in 0..3 {
        let times = trace.events.iter().filter(|event| event.rank == GlobalRank(rank));
        assert!(times.map(|event| event.time_ps).is_sorted());
    }
    trace
}

fn host() -> HostBackend {
    let program = env!("CARGO_BIN_EXE_lockstep-rank").into();
    HostBackend::new(RankLauncher { program, args: Vec::new() })
}

/// The findings of the diagnosis for a run, whoever carried it out.
fn findings(trace: &Trace) -> Vec<String> {
    let report = diagnose_trace(trace);
    let said = report.findings.iter().map(|finding| {
        let (kind, seq, op) = (finding.kind, finding.seq, &finding.op);
        format!("{kind:?} by {:?} for {:?} at {seq:?} {op:?}", finding.culprits, finding.victims)
    });
    said.collect()
}

fn same_finding_everywhere(plan: &Plan) {
    let on_host = findings(&hangs(&host(), plan.clone()));
    assert!(!on_host.is_empty());
    for machine in
        [Machine::new(), Machine::new().by_schedules(), Machine::new().sharing(Sharing::OneProcess)]
    {
        assert_eq!(findings(&hangs(&machine.backend(), plan.clone())), on_host);
    }
}

#[test]
fn a_rank_that_skips_a_call() {
    same_finding_everywhere(&plan(|rank, program, tensor| {
        program.collective(GroupId::WORLD, SUM, 8, None, Some(tensor));
        if rank.0 != 1 {
            program.collective(GroupId::WORLD, SUM, 8, None, Some(tensor));
        }
    }));
}

#[test]
fn different_calls_at_one_sequence_number() {
    let plan = plan(|rank, program, tensor| {
        let root = lockstep_core::rank::GroupRank(0);
        let call = if rank.0 == 2 { Collective::Broadcast { root } } else { SUM };
        program.collective(GroupId::WORLD, call, 8, None, Some(tensor));
    });
    let on_host = findings(&hangs(&host(), plan.clone()));
    assert_eq!(findings(&hangs(&Machine::new().backend(), plan)), on_host);
}

#[test]
fn a_communicator_that_fails_by_itself() {
    let machine = Machine::new().set("STAND_IN_FAILS=1:2");
    let three_calls = plan(|_, program, tensor| {
        for _ in 0..3 {
            program.collective(GroupId::WORLD, SUM, 8, None, Some(tensor));
        }
    });
    let options = RunOptions { dump_at_end: true, ..options() };
    let run = machine.backend().start(three_calls, options).unwrap();
    let (trace, dumps) = run.into_trace_and_dumps();
    // Its dump keeps its calls, as c10d's does.
    assert!(dumps.iter().any(|dump| dump.rank == GlobalRank(1)));
    let Outcome::RankDied { rank, how } = trace.end.unwrap().outcome else { panic!("no death") };
    assert_eq!(rank, GlobalRank(1));
    assert!(how.contains("a collective in flight failed: remote process exited"), "{how}");
    assert!(how.contains("NCCL says: the stand-in was told to fail here"), "{how}");
}

/// True while a process of that number is there and no zombie.
fn is_alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

#[test]
fn a_killed_rank_ends_the_run_and_leaves_nobody() {
    let plan = plan(|_, program, tensor| {
        for _ in 0..2000 {
            program.collective(GroupId::WORLD, SUM, 8, None, Some(tensor));
            program.compute("work", 20_000_000);
        }
    });
    for machine in [Machine::new(), Machine::new().sharing(Sharing::OneProcess)] {
        let run = machine.backend().start(plan.clone(), options()).unwrap();
        let pids = run.pids().to_vec();
        assert_eq!(pids.len(), 3);
        assert!(matches!(run.next_event(Duration::from_secs(20)), Some(RunEvent::Events(_))));
        kill_process(Pid::from_raw(pids[1] as i32).unwrap(), Signal::KILL).unwrap();
        let outcome = run.into_trace().end.unwrap().outcome;
        let how = "killed by signal 9 (SIGKILL)";
        assert!(matches!(&outcome, Outcome::RankDied { how: h, .. } if h == how), "{outcome:?}");
        assert!(pids.iter().all(|pid| !is_alive(*pid)));
    }
}

#[test]
fn a_cancelled_run_leaves_nobody() {
    let plan = plan(|rank, program, tensor| {
        if rank.0 != 1 {
            program.collective(GroupId::WORLD, SUM, 8, None, Some(tensor));
        }
        program.sleep("data loader", 3_600_000_000_000);
    });
    let run = Machine::new().backend().start(plan, options()).unwrap();
    let pids = run.pids().to_vec();
    assert!(matches!(run.next_event(Duration::from_secs(20)), Some(RunEvent::Events(_))));
    run.cancel();
    assert_eq!(run.into_trace().end.unwrap().outcome, Outcome::Cancelled);
    assert!(pids.iter().all(|pid| !is_alive(*pid)));
}
