//! Analyses of simulated jobs, compared with simulations of changed ones.

#![allow(clippy::unwrap_used, reason = "tests")]

use lockstep_analysis::{Activity, Analysis, Cause, Stretch};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Action, Fill, Plan, PlanBuilder};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::Trace;
use lockstep_sim::{SimConfig, simulate};
use proptest::prelude::*;

const REDUCE: Collective = Collective::AllReduce { op: ReduceOp::Sum };

/// A training loop: per step each rank computes, reduces a bucket while it computes more, and waits.
/// `computations` are nanoseconds by rank, before and beside the bucket.
fn training(backend: BackendName, steps: usize, computations: &[(u64, u64)]) -> Plan {
    let world = computations.len() as u32;
    let mut plan = PlanBuilder::new("training", world, backend).unwrap();
    let bucket = plan.tensor("bucket", Dtype::Float32, 1 << 16, Fill::Rank);
    let plan = plan.every_rank(|rank, program| {
        let (before, beside) = computations[rank.index()];
        for _ in 0..steps {
            program.compute("forward", before);
            let reduced =
                program.async_op().collective(GroupId::WORLD, REDUCE, 1 << 16, None, Some(bucket));
            program.compute("backward", beside);
            program.wait(reduced);
        }
    });
    plan.unwrap()
}

fn run(plan: &Plan) -> Trace {
    simulate(plan, &SimConfig { record_messages: false, ..SimConfig::default() }).unwrap()
}

fn analysis_of(plan: &Plan) -> Analysis {
    Analysis::of(&Activity::of_trace(&run(plan)))
}

#[test]
fn a_straggler_is_on_the_path_and_costs_what_the_job_gains_without_it() {
    let slow = training(
        BackendName::Host,
        10,
        &[(1_000_000, 100_000), (1_000_000, 100_000), (3_000_000, 100_000)],
    );
    let even = training(BackendName::Host, 10, &[(1_000_000, 100_000); 3]);
    let (slow_analysis, even_analysis) = (analysis_of(&slow), analysis_of(&even));
    let late = slow_analysis.late[0];
    assert_eq!((late.rank, late.came_last, late.of), (GlobalRank(2), 10, 10));
    let gained = slow_analysis.time_ps - even_analysis.time_ps;
    assert!(late.behind_ps.abs_diff(gained) < gained / 20, "{} {gained}", late.behind_ps);
    let path = &slow_analysis.critical_path;
    let computing =
        path.parts.iter().filter(|part| part.cause == Cause::Computing && part.name == "forward");
    assert!(computing.clone().all(|part| part.rank == GlobalRank(2)));
    assert_eq!(computing.map(|part| part.to_ps - part.from_ps).sum::<u64>(), 10 * 3_000_000_000);
    assert_eq!(slow_analysis.steps.len(), 10);
    let waits = |rank: usize| slow_analysis.ranks[rank].step.unwrap();
    assert!(waits(0).waiting_ps > 1_800_000_000 && waits(2).waiting_ps == 0);
    assert_eq!(waits(2).computing_ps, 3_100_000_000);
}

#[test]
fn communication_behind_computations_is_not_exposed() {
    let hidden = analysis_of(&training(BackendName::Nccl, 5, &[(1_000_000, 9_000_000); 4]));
    let exposed = analysis_of(&training(BackendName::Nccl, 5, &[(1_000_000, 0); 4]));
    let mean_exposed = |it: &Analysis| it.mean_ps(Stretch::Step, |share| share.communicating_ps);
    assert_eq!(mean_exposed(&hidden), 0);
    assert_eq!(mean_exposed(&exposed), exposed.calls[0].median_ps);
    // Both see the same collective, and its bandwidth by the formula of nccl-tests.
    let kind = &exposed.calls[0];
    assert_eq!((kind.count, kind.bytes, kind.members), (5, 4 << 16, 4));
    let bus = 1.5 * f64::from(4 << 16) / (kind.median_ps as f64 / 1e12);
    assert!((kind.busbw.unwrap() / bus - 1.0).abs() < 1e-9);
}

/// The plan with some computations half as long.
fn halved(plan: &Plan, which: impl Fn(GlobalRank, u32) -> bool) -> Plan {
    let mut changed = plan.clone();
    changed.programs.clear();
    for rank in (0..plan.world_size).map(GlobalRank) {
        let mut own = plan.program(rank).unwrap().clone();
        for (at, op) in own.ops.iter_mut().enumerate() {
            if let Action::Compute { duration_ns, .. } = &mut op.action
                && which(rank, at as u32)
            {
                *duration_ns /= 2;
            }
        }
        changed.program_of[rank.index()] = rank.0;
        changed.programs.push(own);
    }
    changed
}

proptest! {
    /// Times add up, and computations beside the path do not matter: with them shortened the job takes as
    /// long, but for the time that its collectives gain from members that come earlier.
    #[test]
    fn only_the_path_makes_the_job_longer(
        computations in prop::collection::vec((0u64..5_000_000, 0u64..3_000_000), 2..6),
        nccl: bool,
        steps in 1usize..5,
    ) {
        let backend = if nccl { BackendName::Nccl } else { BackendName::Host };
        let plan = training(backend, steps, &computations);
        let activity = Activity::of_trace(&run(&plan));
        let analysis = Analysis::of(&activity);
        for own in &analysis.ranks {
            let share = own.total;
            let sum = share.computing_ps + share.communicating_ps + share.waiting_ps + share.idle_ps;
            prop_assert_eq!(sum, analysis.time_ps);
        }
        let path = &analysis.critical_path;
        prop_assert_eq!(path.time_ps(), analysis.time_ps);
        prop_assert!(path.parts.windows(2).all(|pair| pair[0].to_ps == pair[1].from_ps));
        let on_path = |rank: GlobalRank, op: u32| {
            activity.ranks[rank.index()].computations.iter().any(|one| {
                one.op == Some(op)
                    && path.parts.iter().any(|part| {
                        part.rank == rank && part.from_ps < one.to_ps && one.from_ps < part.to_ps
                            && part.cause == Cause::Computing
                    })
            })
        };
        let faster = analysis_of(&halved(&plan, |rank, op| !on_path(rank, op)));
        prop_assert!(faster.time_ps <= analysis.time_ps);
        let communicating = path.time_of(Cause::Communicating);
        prop_assert!(analysis.time_ps - faster.time_ps <= communicating, "{} {}", analysis.time_ps, faster.time_ps);
        let shorter = analysis_of(&halved(&plan, on_path));
        let computing = path.time_of(Cause::Computing);
        prop_assert!(computing < 1_000_000 || shorter.time_ps < analysis.time_ps);
    }
}
