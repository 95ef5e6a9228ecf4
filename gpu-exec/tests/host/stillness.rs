//! Ranks that are stopped: runs that would never end, and the reasons that are found for their end.

use crate::deaths::until;
use crate::{backend, events_of, options};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Action, Fill, Plan, PlanBuilder, STOPPED, SignalKind};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{Event, Outcome, Trace, What};
use lockstep_diagnosis::{Certainty, Kind, diagnose_trace};
use lockstep_gpu_exec::{Backend, RunEvent, RunHandle, RunOptions};
use rustix::process::{Pid, Signal, kill_process};
use std::time::Duration;

/// Three ranks that reduce once, and rank 1 then does one thing more.
fn last(action: &Action) -> Plan {
    let mut plan = PlanBuilder::new("last", 3, BackendName::Host).unwrap();
    let tensor = plan.tensor("t", Dtype::Float32, 8, Fill::Rank);
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = plan.every_rank(|rank, program| {
        program.collective(GroupId::WORLD, sum, 8, None, Some(tensor));
        if rank == GlobalRank(1) {
            program.push(action.clone());
        }
    });
    plan.unwrap()
}

fn start(plan: Plan, faults: &[&str]) -> RunHandle {
    start_within(400, plan, faults)
}

fn start_within(timeout_ms: u64, plan: Plan, faults: &[&str]) -> RunHandle {
    let options = RunOptions {
        faults: faults.iter().map(|text| text.parse().unwrap()).collect(),
        timeout: Some(Duration::from_millis(timeout_ms)),
        grace: Duration::from_millis(200),
        ..options()
    };
    backend().start(plan, options).unwrap()
}

fn signal(run: &RunHandle, signal: Signal) {
    kill_process(Pid::from_raw(run.pids()[1] as i32).unwrap(), signal).unwrap();
}

/// Rank 1 idles for so long behind the call, and is stopped there; returns the events until then, too.
fn stopped_behind_the_call(ms: u64) -> (RunHandle, Vec<Event>) {
    let idle = Action::Sleep { name: "idle".into(), duration_ns: ms * 1_000_000 };
    let run = start(last(&idle), &[]);
    let mut heard = Vec::new();
    let idles =
        |event: &Event| event.rank == GlobalRank(1) && event.what == What::OpBegan { op: 1 };
    while !heard.iter().any(idles) {
        match run.next_event(Duration::from_secs(20)) {
            Some(RunEvent::Events(mut events)) => heard.append(&mut events),
            other => panic!("{other:?} after {heard:?}"),
        }
    }
    signal(&run, Signal::STOP);
    (run, heard)
}

/// The whole trace of a run of which some was heard before.
fn whole(run: RunHandle, mut heard: Vec<Event>) -> Trace {
    let mut trace = run.into_trace();
    heard.append(&mut trace.events);
    Trace { events: heard, ..trace }
}

/// Rank 1 alone is to blame, for standing where it does.
fn blamed(trace: &Trace, kind: Kind) {
    let found = events_of(trace, 1)
        .any(|event| matches!(&event.what, What::Unresponsive { how } if how == STOPPED));
    assert!(found, "{trace:?}");
    let report = diagnose_trace(trace);
    let [finding] = &report.findings[..] else { panic!("{}", report.to_text()) };
    assert_eq!((finding.kind, finding.certainty), (kind, Certainty::Certain));
    assert_eq!(finding.culprits, [GlobalRank(1)]);
    assert!(finding.message.contains("SIGSTOP"), "{}", finding.message);
}

#[test]
fn a_stop_that_nobody_waits_for_ends_the_run() {
    let trace = start(last(&Action::Signal(SignalKind::Stop { for_ms: None })), &[]).into_trace();
    let how = STOPPED.to_owned();
    assert_eq!(
        trace.end.as_ref().unwrap().outcome,
        Outcome::RankStopped { rank: GlobalRank(1), how }
    );
    blamed(&trace, Kind::RankUnresponsive);

    // By the clock, and by anybody.
    let sleep = Action::Sleep { name: "idle".into(), duration_ns: 30_000_000_000 };
    let outcomes = [start(last(&sleep), &["stop:rank=1,after_ms=100"]).into_trace(), {
        let (run, heard) = stopped_behind_the_call(30_000);
        whole(run, heard)
    }];
    for trace in outcomes {
        let outcome = &trace.end.as_ref().unwrap().outcome;
        assert!(matches!(outcome, Outcome::RankStopped { rank: GlobalRank(1), .. }), "{outcome:?}");
        blamed(&trace, Kind::RankUnresponsive);
    }
}

/// A stop that ends, and one that somebody else ends, is none.
#[test]
fn a_stop_that_ends_is_waited_for() {
    let stop = Action::Signal(SignalKind::Stop { for_ms: Some(1500) });
    let trace = start(last(&stop), &[]).into_trace();
    assert_eq!(trace.end.as_ref().unwrap().outcome, Outcome::Completed);

    let (run, _) = stopped_behind_the_call(900);
    std::thread::sleep(Duration::from_millis(250));
    signal(&run, Signal::CONT);
    assert_eq!(run.into_trace().end.unwrap().outcome, Outcome::Completed);
}

/// Its peers' calls time out: that it stands stopped is why, whether it was in the call or not.
#[test]
fn who_is_stopped_in_a_call_is_why_it_does_not_complete() {
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let stop = Action::Signal(SignalKind::Stop { for_ms: None });
    // Before it, and behind one that is under way.
    for (under_way, kind) in [(false, Kind::RankNeverJoined), (true, Kind::RankUnresponsive)] {
        let mut plan = PlanBuilder::new("in a call", 3, BackendName::Host).unwrap();
        let tensor = plan.tensor("t", Dtype::Float32, 1 << 20, Fill::Rank);
        let plan = plan.every_rank(|rank, program| {
            let stops = rank == GlobalRank(1);
            if stops && !under_way {
                program.push(stop.clone());
            }
            // The others come when it stands, which takes milliseconds.
            if !stops {
                program.push(Action::Sleep { name: "late".into(), duration_ns: 1_000_000_000 });
            }
            let op =
                program.async_op().collective(GroupId::WORLD, sum, 1 << 20, None, Some(tensor));
            if stops && under_way {
                program.push(stop.clone());
            }
            program.push(Action::Wait { op, timeout_ms: None });
        });
        let trace = start_within(2000, plan.unwrap(), &[]).into_trace();
        assert_eq!(trace.end.as_ref().unwrap().outcome, Outcome::TimedOut, "{under_way}");
        blamed(&trace, kind);
    }
}

#[test]
fn a_cancelled_run_tells_who_stood() {
    let (run, heard) = stopped_behind_the_call(30_000);
    // It stands from the moment that the kernel says so.
    until("rank 1 is stopped", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", run.pids()[1])).unwrap();
        stat.contains(") T ")
    });
    run.cancel();
    let trace = whole(run, heard);
    assert_eq!(trace.end.as_ref().unwrap().outcome, Outcome::Cancelled);
    blamed(&trace, Kind::RankUnresponsive);
}
