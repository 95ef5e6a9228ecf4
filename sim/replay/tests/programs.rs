//! A plan that is written as a program takes as long: what is computed beside a call stands in front of its wait.

#![allow(clippy::unwrap_used, reason = "tests")]

use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, Plan, PlanBuilder};
use lockstep_core::reduce::ReduceOp;
use lockstep_program::compile;
use lockstep_replay::python_program;
use lockstep_scenarios::program::Options;
use lockstep_sim::{SimConfig, simulate};
use proptest::prelude::*;

/// Two calls that are made one after the other, as DDP's buckets, with computing before, between and beside them.
#[derive(Clone, Copy, Debug)]
struct Buckets {
    before_us: u64,
    between_us: u64,
    beside_us: u64,
    behind_us: u64,
    numel: u64,
    /// The rank waits for the first call before it has done what it computes beside the second one.
    waits_early: bool,
}

fn buckets() -> impl Strategy<Value = Buckets> {
    let us = || 5..900u64;
    (us(), us(), us(), us(), 1u64 << 12..1 << 21, any::<bool>()).prop_map(
        |(before_us, between_us, beside_us, behind_us, numel, waits_early)| Buckets {
            before_us,
            between_us,
            beside_us,
            behind_us,
            numel,
            waits_early,
        },
    )
}

/// A plan whose computations have that name: that of the time between recorded calls, or a program's own.
fn plan(backend: BackendName, name: &str, all: &[Buckets], rounds: usize) -> Plan {
    let mut plan = PlanBuilder::new("steps", 4, backend).unwrap();
    let mut tensor = |numel| (numel, plan.tensor("x", Dtype::Float32, numel, Fill::Unknown));
    // Each call has a size of its own: by size and line a program's calls are told apart.
    let tensors: Vec<_> = (0..)
        .zip(all)
        .map(|(at, one)| [tensor(one.numel + 2 * at), tensor(one.numel + 2 * at + 1)])
        .collect();
    let plan = plan.every_rank(|_, program| {
        for (one, tensors) in (0..rounds).flat_map(|_| all.iter().zip(&tensors)) {
            let call = |program: &mut lockstep_core::plan::ProgramBuilder, at: usize| {
                let (numel, tensor) = tensors[at];
                let sum = Collective::AllReduce { op: ReduceOp::Sum };
                program.async_op();
                program.collective(GroupId::WORLD, sum, numel, None, Some(tensor))
            };
            program.compute(name, one.before_us * 1000);
            let first = call(program, 0);
            program.compute(name, one.between_us * 1000);
            let second = call(program, 1);
            if one.waits_early {
                program.wait(first);
            }
            program.compute(name, one.beside_us * 1000);
            if !one.waits_early {
                program.wait(first);
            }
            program.wait(second);
            program.compute(name, one.behind_us * 1000);
        }
    });
    plan.unwrap()
}

fn time_us(plan: &Plan) -> u64 {
    let config = SimConfig { record_messages: false, ..SimConfig::default() };
    simulate(plan, &config).unwrap().end.unwrap().time_ps / 1_000_000
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_program_takes_as_long_as_its_plan(
        all in prop::collection::vec(buckets(), 1..4),
        rounds in 1usize..4,
        is_recorded in any::<bool>(),
        on_device in any::<bool>(),
    ) {
        let backend = if on_device { BackendName::Nccl } else { BackendName::Host };
        let name = if is_recorded { "what was done between the calls" } else { "backward" };
        let plan = plan(backend, name, &all, rounds);
        let text = python_program(&plan).unwrap();
        let again = compile("job.py", &text, &Options::default());
        let again = again.unwrap_or_else(|error| panic!("{error:?}\n{text}")).plan;
        let (us, again_us) = (time_us(&plan), time_us(&again));
        // Times are written with three digits.
        prop_assert!(again_us.abs_diff(us) * 100 <= us, "{} instead of {} µs\n{}", again_us, us, text);
    }
}
