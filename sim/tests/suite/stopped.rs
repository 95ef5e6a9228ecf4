//! Ranks whose processes are stopped by a signal.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Action, Fill, PlanBuilder, STOPPED, SignalKind};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{Outcome, Trace, What};
use lockstep_diagnosis::{Kind, diagnose_trace};
use lockstep_sim::{SimConfig, simulate};

/// A process that stands stopped for ever ends no simulation by a timeout unless somebody waits for it.
#[test]
fn a_rank_that_is_stopped_for_ever_is_found_so() {
    let stopped = |waits: bool| {
        let mut plan = PlanBuilder::new("stopped", 3, BackendName::Host).unwrap();
        plan.timeout_ms(1000);
        let plan = plan.every_rank(|rank, program| {
            if rank == GlobalRank(1) {
                program.push(Action::Signal(SignalKind::Stop { for_ms: None }));
            }
            if waits {
                program.barrier(GroupId::WORLD);
            }
        });
        simulate(&plan.unwrap(), &SimConfig::default()).unwrap()
    };
    let found = |trace: &Trace| {
        let quiet = |what: &What| matches!(what, What::Unresponsive { how } if how == STOPPED);
        let found = trace.events.iter().filter(|event| quiet(&event.what));
        found.map(|event| event.rank.0).collect::<Vec<_>>()
    };
    let trace = stopped(false);
    let how = STOPPED.to_owned();
    assert_eq!(
        trace.end.as_ref().unwrap().outcome,
        Outcome::RankStopped { rank: GlobalRank(1), how }
    );
    assert_eq!(found(&trace), [1]);
    let [finding] = &diagnose_trace(&trace).findings[..] else { panic!("one finding") };
    assert_eq!(
        (finding.kind, &finding.culprits[..]),
        (Kind::RankUnresponsive, &[GlobalRank(1)][..])
    );

    let trace = stopped(true);
    assert_eq!(trace.end.as_ref().unwrap().outcome, Outcome::TimedOut);
    assert_eq!(found(&trace), [1]);
    let [finding] = &diagnose_trace(&trace).findings[..] else { panic!("one finding") };
    assert_eq!(
        (finding.kind, &finding.culprits[..]),
        (Kind::RankNeverJoined, &[GlobalRank(1)][..])
    );
}

/// The calls of a stopped process stand still if its own threads carry them out, and finish if a device does.
#[test]
fn a_stopped_process_takes_its_calls_along_and_a_device_does_not() {
    let completed = |backend: BackendName| {
        let mut plan = PlanBuilder::new("stopped", 3, backend).unwrap();
        plan.timeout_ms(1000);
        let tensor = plan.tensor("t", Dtype::Float32, 8, Fill::Rank);
        let sum = Collective::AllReduce { op: ReduceOp::Sum };
        let plan = plan.every_rank(|rank, program| {
            program.async_op().collective(GroupId::WORLD, sum, 8, None, Some(tensor));
            if rank == GlobalRank(1) {
                program.push(Action::Signal(SignalKind::Stop { for_ms: None }));
            }
        });
        let trace = simulate(&plan.unwrap(), &SimConfig::default()).unwrap();
        trace.events.iter().filter(|event| matches!(event.what, What::Completed { .. })).count()
    };
    assert_eq!((completed(BackendName::Gloo), completed(BackendName::Nccl)), (0, 3));
}
