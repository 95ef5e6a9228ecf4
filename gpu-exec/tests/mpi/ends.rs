//! Runs that do not complete: every one ends by itself, with a reason.

use crate::{Ran, launch};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, Plan, PlanBuilder, ProgramBuilder, TensorId};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::Outcome;
use lockstep_diagnosis::diagnose_trace;

const WORLD: GroupId = GroupId::WORLD;
const SUM: Collective = Collective::AllReduce { op: ReduceOp::Sum };

/// A plan of three ranks with a tensor of eight float32, and a short timeout.
fn plan(write: impl Fn(GlobalRank, &mut ProgramBuilder, TensorId)) -> Plan {
    let mut plan = PlanBuilder::new("ends", 3, BackendName::Mpi).unwrap();
    plan.timeout_ms(700);
    let tensor = plan.tensor("t", Dtype::Float32, 8, Fill::Rank);
    plan.every_rank(|rank, program| write(rank, program, tensor)).unwrap()
}

/// The findings in a run that was ended by its watchdog.
fn hung(ran: &Ran) -> String {
    assert!(!ran.output.status.success(), "{}", ran.text());
    let trace = ran.trace();
    assert_eq!(trace.end.as_ref().unwrap().outcome, Outcome::TimedOut, "{}", ran.text());
    diagnose_trace(&trace).to_text()
}

#[test]
fn a_skipped_call_ends_with_the_finding() {
    let plan = plan(|rank, program, tensor| {
        program.barrier(WORLD);
        if rank.0 != 1 {
            program.collective(WORLD, SUM, 8, None, Some(tensor));
        }
    });
    let found = hung(&launch(&plan, 3));
    assert!(found.contains("ank 1") && found.contains("all_reduce"), "{found}");
}

/// MPI may crash on such calls, or leave anything: it is not given them.
#[test]
fn different_calls_end_with_the_finding() {
    let plan = plan(|rank, program, tensor| match rank.0 {
        2 => {
            _ = program.collective(
                WORLD,
                Collective::Broadcast { root: GroupRank(0) },
                8,
                None,
                Some(tensor),
            )
        }
        _ => _ = program.collective(WORLD, SUM, 8, None, Some(tensor)),
    });
    let found = hung(&launch(&plan, 3));
    assert!(found.contains("ank 2") && found.contains("broadcast"), "{found}");
}

/// `MPI_Isend` would have completed.
#[test]
fn a_send_that_nobody_receives_is_not_complete() {
    let plan = plan(|rank, program, tensor| {
        if rank.0 == 0 {
            program.send(WORLD, GroupRank(2), tensor);
        }
    });
    let found = hung(&launch(&plan, 3));
    assert!(found.contains("send"), "{found}");
}

#[test]
fn a_rank_that_dies_ends_the_others() {
    let plan = plan(|rank, program, tensor| {
        program.barrier(WORLD);
        if rank.0 == 2 {
            program.die("ValueError: no data");
        }
        program.collective(WORLD, SUM, 8, None, Some(tensor));
    });
    let ran = launch(&plan, 3);
    assert!(!ran.output.status.success());
    let outcome = ran.trace().end.unwrap().outcome;
    let Outcome::RankDied { rank, how } = outcome else { panic!("{outcome:?}: {}", ran.text()) };
    assert!(rank.0 == 2 && how.contains("ValueError: no data"), "{how}");
}

#[test]
fn what_mpi_cannot_do_is_refused_before_anything_runs() {
    let scatter = {
        let mut plan = PlanBuilder::new("scatter", 2, BackendName::Mpi).unwrap();
        let whole = plan.tensor("whole", Dtype::Float32, 8, Fill::Rank);
        let part = plan.tensor("part", Dtype::Float32, 4, Fill::Rank);
        let scatter = Collective::ReduceScatter { op: ReduceOp::Sum };
        let plan = plan.every_rank(|_, program| {
            program.collective(WORLD, scatter, 4, Some(whole), Some(part));
        });
        plan.unwrap()
    };
    let ran = launch(&scatter, 2);
    assert!(!ran.output.status.success());
    assert!(
        ran.text().contains("ProcessGroupMPI does not support reduce_scatter"),
        "{}",
        ran.text()
    );
    // Once, not by every rank.
    assert_eq!(ran.text().matches("does not support").count(), 1, "{}", ran.text());
    let ran = launch(&scatter, 3);
    assert!(ran.text().contains("started 3 processes, and the plan has 2 ranks"), "{}", ran.text());
}
