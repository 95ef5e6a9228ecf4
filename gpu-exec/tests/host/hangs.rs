//! Ranks that disagree hang, and the watchdog ends them.

use crate::{events_of, options, run_with};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::{Fill, Plan, PlanBuilder, ProgramBuilder, TensorId};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{CallLog, CallState, Outcome, RankState, Trace, What};
use lockstep_gpu_exec::{Backend, RunOptions};
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_millis(400);
const SUM: Collective = Collective::AllReduce { op: ReduceOp::Sum };

/// A plan of three ranks with one tensor of eight float32.
fn plan(write: impl Fn(GlobalRank, &mut ProgramBuilder, TensorId)) -> Plan {
    let mut plan = PlanBuilder::new("hang", 3, BackendName::Host).unwrap();
    let tensor = plan.tensor("t", Dtype::Float32, 8, Fill::Rank);
    plan.every_rank(|rank, program| write(rank, program, tensor)).unwrap()
}

/// Runs a plan that must be ended by its watchdog, in time.
fn hang(plan: Plan) -> Trace {
    let options = RunOptions { timeout: Some(TIMEOUT), ..options() };
    let grace = options.grace;
    let trace = run_with(plan, options);
    let end = trace.end.as_ref().unwrap();
    assert_eq!(end.outcome, Outcome::TimedOut);
    // The timeout, the grace, and time for a busy machine to stop processes.
    let took = Duration::from_nanos(end.time_ps / 1000);
    assert!(took >= TIMEOUT && took < TIMEOUT + grace + Duration::from_secs(3), "{took:?}");
    assert!(trace.events.iter().any(|event| matches!(event.what, What::TimedOut { .. })));
    trace
}

#[test]
fn a_rank_that_skips_a_call() {
    let trace = hang(plan(|rank, program, tensor| {
        if rank.0 != 1 {
            program.collective(GroupId::WORLD, SUM, 8, None, Some(tensor));
        }
    }));
    let log = CallLog::of(&trace);
    for rank in [0, 2] {
        let calls = &log.ranks[rank].as_ref().unwrap().calls;
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0].state, CallState::Started);
        assert_eq!(calls[0].seq, Some(1));
        let state = &log.ranks[rank].as_ref().unwrap().state;
        assert!(matches!(state, RankState::AtOp(at) if at.op == 0), "{state:?}");
    }
    assert!(events_of(&trace, 1).any(|event| event.what == What::Finished));
}

#[test]
fn different_calls_at_one_sequence_number() {
    let trace = hang(plan(|rank, program, tensor| {
        if rank.0 == 2 {
            program.barrier(GroupId::WORLD);
        } else {
            program.collective(GroupId::WORLD, SUM, 8, None, Some(tensor));
        }
    }));
    let log = CallLog::of(&trace);
    let pending = |rank: usize| log.ranks[rank].as_ref().unwrap().calls[0].state;
    assert_eq!((0..3).map(pending).collect::<Vec<_>>(), [CallState::Started; 3]);
}

#[test]
fn different_sizes_at_one_sequence_number() {
    let mut plan = PlanBuilder::new("sizes", 2, BackendName::Host).unwrap();
    let short = plan.tensor("short", Dtype::Float32, 8, Fill::Rank);
    let long = plan.tensor("long", Dtype::Float32, 9, Fill::Rank);
    hang(
        plan.every_rank(|rank, program| {
            let (count, tensor) = if rank.0 == 0 { (8, short) } else { (9, long) };
            program.collective(GroupId::WORLD, SUM, count, None, Some(tensor));
        })
        .unwrap(),
    );
}

#[test]
fn two_groups_in_opposite_order() {
    let mut plan = PlanBuilder::new("opposite", 2, BackendName::Host).unwrap();
    let tensor = plan.tensor("t", Dtype::Float32, 8, Fill::Rank);
    let members = || vec![GlobalRank(0), GlobalRank(1)];
    let other = plan.group(ProcessGroup::new("other", BackendName::Host, members()).unwrap());
    hang(
        plan.every_rank(|rank, program| {
            let mut order = [GroupId::WORLD, other];
            if rank.0 == 1 {
                order.reverse();
            }
            for group in order {
                program.collective(group, SUM, 8, None, Some(tensor));
            }
        })
        .unwrap(),
    );
}

#[test]
fn a_rank_stuck_in_its_own_code_is_ended_with_the_others() {
    let trace = hang(plan(|rank, program, tensor| {
        if rank.0 == 0 {
            program.sleep("data loader", 3_600_000_000_000);
        }
        program.collective(GroupId::WORLD, SUM, 8, None, Some(tensor));
    }));
    let log = CallLog::of(&trace);
    let stuck = &log.ranks[0].as_ref().unwrap().state;
    assert!(matches!(stuck, RankState::AtOp(at) if at.name == "data loader"), "{stuck:?}");
}

#[test]
fn a_run_that_nobody_waits_in_is_ended_by_its_limit() {
    let plan = plan(|_, program, _| {
        program.compute("for ever", u64::MAX);
    });
    let options = RunOptions { max_duration: Duration::from_millis(300), ..options() };
    let trace = run_with(plan, options);
    let outcome = &trace.end.as_ref().unwrap().outcome;
    assert!(matches!(outcome, Outcome::Failed { why } if why.contains("limit")), "{outcome:?}");
}

/// Rank 1 is the root for all but rank 2, and only sends: it goes on as in the simulator, although no rank
/// ever takes its message to rank 2, which is too long to be copied.
#[test]
fn a_root_does_not_wait_for_who_has_another() {
    let mut plan = PlanBuilder::new("roots", 4, BackendName::Nccl).unwrap();
    let tensor = plan.tensor("t", Dtype::Float32, 2048, Fill::Rank);
    let plan = plan.every_rank(|rank, program| {
        let root = GroupRank(if rank.0 == 2 { 0 } else { 1 });
        let broadcast = Collective::Broadcast { root };
        program.collective(GroupId::WORLD, broadcast, 2048, None, Some(tensor));
    });
    let trace = hang(plan.unwrap());
    let completed = |rank| events_of(&trace, rank).any(|it| it.what == What::Completed { work: 0 });
    assert_eq!([0, 1, 2, 3].map(completed), [false, true, false, true]);
}

/// Until there is a call that could be late, nobody is kept busy with looking for one.
#[test]
fn a_group_with_hardly_any_time() {
    let mut plan = PlanBuilder::new("hardly any time", 2, BackendName::Host).unwrap();
    plan.timeout_ms(1);
    let tensor = plan.tensor("t", Dtype::Float32, 8, Fill::Rank);
    let plan = plan.every_rank(|rank, program| {
        program.sleep("data loader", 1_700_000_000);
        if rank.0 == 0 {
            program.collective(GroupId::WORLD, SUM, 8, None, Some(tensor));
        }
        program.sleep("data loader", 60_000_000_000);
    });
    let options = RunOptions { timeout: None, ..options() };
    let run = crate::backend().start(plan.unwrap(), options).unwrap();
    // utime and stime of both, in hundredths of a second: some 40 in a second that is spent looking.
    let busy = || -> u64 {
        let of = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
            fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum::<u64>()
        };
        run.pids().iter().map(of).sum()
    };
    std::thread::sleep(Duration::from_millis(300));
    let before = busy();
    std::thread::sleep(Duration::from_millis(1000));
    let ticks = busy() - before;
    assert!(ticks < 15, "{ticks} ticks while they slept");
    let trace = run.into_trace();
    assert_eq!(trace.end.as_ref().unwrap().outcome, Outcome::TimedOut);
}
