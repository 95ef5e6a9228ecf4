//! Recorded times played again, links fitted from them, and jobs changed.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use lockstep_analysis::{Activity, Cause, NO_KERNEL};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{CallTimes, Fill, Plan, PlanBuilder};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::Trace;
use lockstep_core::watch::Unwatched;
use lockstep_replay::{Recovered, Variation, fit_links, recorded_times, what_if};
use lockstep_sim::{Link, SimConfig, Topology, simulate};
use std::sync::Arc;

const REDUCE: Collective = Collective::AllReduce { op: ReduceOp::Sum };
const US: u64 = 1_000_000;

/// Steps with an all_reduce of each size, and kernels and gaps between them.
fn job(sizes: &[u64], steps: usize) -> Plan {
    let mut plan = PlanBuilder::new("job", 3, BackendName::Host).unwrap();
    let tensors: Vec<_> =
        sizes.iter().map(|numel| plan.tensor("t", Dtype::Float32, *numel, Fill::Zeros)).collect();
    let plan = plan.every_rank(|_, program| {
        for _ in 0..steps {
            program.compute("kernel gemm", 100_000);
            program.compute(NO_KERNEL, 900_000);
            for (numel, tensor) in sizes.iter().zip(&tensors) {
                program.collective(GroupId::WORLD, REDUCE, *numel, None, Some(*tensor));
            }
        }
    });
    plan.unwrap()
}

fn run(plan: &Plan, config: SimConfig) -> Trace {
    simulate(plan, &SimConfig { record_messages: false, ..config }).unwrap()
}

fn timed(plan: &Plan, times: CallTimes) -> Trace {
    run(plan, SimConfig { call_times: Some(Arc::new(times)), ..SimConfig::default() })
}

/// Not the median of its kind: the replay of a job whose calls vary ends when the job did.
#[test]
fn each_call_takes_its_own_recorded_time() {
    let plan = job(&[1 << 10, 1 << 10], 5);
    let mut times = CallTimes::new("varied");
    for (rank, seq) in (0..3).flat_map(|rank| (1..=10).map(move |seq| (rank, seq))) {
        times.set_single((GlobalRank(rank), GroupId::WORLD, seq), seq * seq * 10 * US);
    }
    let trace = timed(&plan, times);
    let played = recorded_times(&Recovered::of_plan(plan.clone()), &Activity::of_trace(&trace));
    let ends = |trace: &Trace| -> Vec<Vec<Option<u64>>> {
        let activity = Activity::of_trace(trace);
        activity.ranks.iter().map(|own| own.calls.iter().map(|it| it.ended_ps).collect()).collect()
    };
    assert_eq!(ends(&timed(&plan, played)), ends(&trace));
}

/// An execution trace without times has all its calls at once: nothing is played of it.
#[test]
fn a_recording_without_times_has_none_to_play() {
    let plan = job(&[1 << 10], 3);
    let mut times = CallTimes::new("none");
    for (rank, seq) in (0..3).flat_map(|rank| (1..=3).map(move |seq| (rank, seq))) {
        times.set_single((GlobalRank(rank), GroupId::WORLD, seq), 0);
    }
    let trace = timed(&plan, times);
    let played = recorded_times(&Recovered::of_plan(plan), &Activity::of_trace(&trace));
    assert!(played.is_empty());
}

#[test]
fn links_are_fitted_or_said_not_to_fit() {
    let plan = job(&[1 << 8, 1 << 20], 5);
    let recovered = Recovered::of_plan(plan.clone());
    let link = Link { latency_ps: 200 * US, bytes_per_second: 400_000_000 };
    let trace = run(&plan, SimConfig { topology: Topology::Uniform(link), ..SimConfig::default() });
    let fitted = fit_links(&recovered, &Activity::of_trace(&trace)).unwrap();
    assert!(fitted.error < 0.01 && !fitted.is_far_off(), "{fitted:?}");
    let Topology::Uniform(found) = fitted.topology else { panic!("{fitted:?}") };
    assert!(found.latency_ps.abs_diff(link.latency_ps) < link.latency_ps / 50, "{found:?}");
    assert!(found.bytes_per_second.abs_diff(link.bytes_per_second) < link.bytes_per_second / 50);
    // A small call that takes a hundred times as long as a large one: no link does that.
    let mut times = CallTimes::new("odd");
    for (rank, seq) in (0..3).flat_map(|rank| (1..=10).map(move |seq| (rank, seq))) {
        let takes_ps = if seq % 2 == 1 { 10_000 * US } else { 100 * US };
        times.set_single((GlobalRank(rank), GroupId::WORLD, seq), takes_ps);
    }
    let trace = timed(&plan, times);
    let fitted = fit_links(&recovered, &Activity::of_trace(&trace)).unwrap();
    assert!(fitted.is_far_off(), "{fitted:?}");
}

/// A device without a kernel computes nothing: that time is idle, and is not scaled.
#[test]
fn only_kernels_are_scaled() {
    let plan = job(&[1 << 10], 4);
    let topology = Topology::Uniform(Link { latency_ps: US, bytes_per_second: 1 << 33 });
    let half = [Variation::Scale { ranks: Vec::new(), computing: 0.5 }];
    let (before, after, assumed) =
        what_if((&plan, None), topology, &half, None, &mut Unwatched).unwrap();
    let (before, after) = (before.analysis, after.analysis);
    assert_eq!(before.critical_path.time_of(Cause::Computing), 4 * 100 * US);
    assert_eq!(after.critical_path.time_of(Cause::Computing), 4 * 50 * US);
    assert_eq!(before.time_ps - after.time_ps, 4 * 50 * US);
    assert_eq!(before.step_ps.unwrap() - after.step_ps.unwrap(), 50 * US);
    assert!(assumed[0].contains("only kernels are scaled"), "{assumed:?}");
}

/// A profile beside dumps shows kernels of a part of the job only. Outside of it nothing is known of the kernels, so that
/// time stays as well; a rank without a profile has only such time.
#[test]
fn the_time_outside_of_a_profile_is_not_scaled() {
    const OUTSIDE: &str = "what was done between the calls";
    let job = |profiled: u32| {
        let mut plan = PlanBuilder::new("job", 3, BackendName::Host).unwrap();
        let tensor = plan.tensor("t", Dtype::Float32, 1 << 10, Fill::Zeros);
        let plan = plan.every_rank(|rank, program| {
            for step in 0..6 {
                let name = if step >= 3 && rank.0 < profiled { "kernel gemm" } else { OUTSIDE };
                program.compute(name, 100_000);
                program.collective(GroupId::WORLD, REDUCE, 1 << 10, None, Some(tensor));
            }
        });
        plan.unwrap()
    };
    let half = |plan: &Plan, ranks: Vec<GlobalRank>| {
        let topology = Topology::Uniform(Link { latency_ps: US, bytes_per_second: 1 << 33 });
        let half = [Variation::Scale { ranks, computing: 0.5 }];
        let (before, after, assumed) =
            what_if((plan, None), topology, &half, None, &mut Unwatched).unwrap();
        (before.analysis.time_ps - after.analysis.time_ps, assumed.join("; "))
    };
    let (saved_ps, said) = half(&job(3), Vec::new());
    assert_eq!(saved_ps, 3 * 50 * US, "{said}");
    assert!(said.contains("outside of a rank's profile stays"), "{said}");
    // Dumps alone: all of the time between calls is scaled, and there is nothing to say.
    assert_eq!(half(&job(0), Vec::new()), (6 * 50 * US, String::new()));
    // Rank 2 has no profile. The others' first three steps stay, but for its messages, which are sent earlier now.
    let (saved_ps, said) = half(&job(2), Vec::new());
    assert!((150 * US..155 * US).contains(&saved_ps), "{saved_ps} {said}");
    assert!(said.contains("rank 2 has no profile"), "{said}");
    assert!(!half(&job(2), vec![GlobalRank(2)]).1.contains("profile"));
}
