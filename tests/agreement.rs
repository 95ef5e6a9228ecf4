//! A real run and a simulation leave the same bits.

use lockstep_core::collective::Collective;
use lockstep_core::collective::Splits;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Call, Fill, Plan, PlanBuilder};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::{Factor, ReduceOp};
use lockstep_core::schedule::{Algorithm, Schedule};
use lockstep_core::trace::{Origin, TensorValue, Trace, What};
use lockstep_program::compile;
use lockstep_scenarios::program::Options;
use lockstep_scenarios::torch_calls;
use lockstep_sim::{SimConfig, compare, simulate};
use lockstep_tests::lockstep;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fs;

fn ran_and_simulated(words: &[&str]) -> (Plan, Trace, Trace) {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace.lks");
    let mut all = vec!["run"];
    all.extend(words);
    let path = trace.to_str().unwrap();
    all.extend(["-o", path]);
    let output = lockstep(&all);
    assert_eq!(output.code, 0, "{words:?}: {output:?}");
    let ran = Trace::read(&fs::read(&trace).unwrap()).unwrap();
    assert!(matches!(ran.header.origin, Origin::Run { .. }));
    let plan = Plan::clone(ran.header.plan.as_ref().unwrap());
    let simulated = simulate(&plan, &SimConfig::default()).unwrap();
    (plan, ran, simulated)
}

fn assert_same_bits(words: &[&str]) {
    let (plan, ran, simulated) = ran_and_simulated(words);
    let comparison = compare(&plan, &simulated, &ran);
    assert!(comparison.all_equal(), "{words:?}: {comparison:#?}");
    assert_eq!(comparison.only_in_one, 0, "{words:?}");
    // Where there are no values, calls are compared: by order, sizes, types and roots.
    let config = SimConfig { max_value_bytes: 0, ..SimConfig::default() };
    let bare = compare(&plan, &simulate(&plan, &config).unwrap(), &ran);
    // Tensors without elements have the value that they have.
    assert_eq!((bare.elements, bare.calls.equal), (0, bare.calls.calls), "{words:?}: {bare:#?}");
    assert!(bare.calls.calls > 0 && bare.calls.first_difference.is_none());
    let mut other = ran.clone();
    let call = other.events.iter_mut().rev().find_map(|event| match &mut event.what {
        What::Scheduled { call, .. } => Some(std::sync::Arc::make_mut(call)),
        _ => None,
    });
    call.unwrap().seq = Some(77);
    let other = compare(&plan, &simulated, &other);
    assert_eq!(other.calls.equal + 1, other.calls.calls);
    assert!(other.calls.first_difference.is_some());
}

/// Sums of these numbers round, and round differently in any other order.
#[test]
fn float32_sums_are_equal_to_the_bit() {
    for world_size in ["2", "3", "4", "7"] {
        for count in ["1", "2", "5", "1000", "100000"] {
            let ring = ["all_reduce", "--seed", "11", "--world-size", world_size, "--count", count];
            assert_same_bits(&ring);
        }
        for collective in ["reduce", "reduce_scatter"] {
            let words = [collective, "--seed", "5", "--world-size", world_size, "--count", "333"];
            assert_same_bits(&words);
        }
    }
}

#[test]
fn every_collective_leaves_what_the_simulator_says() {
    for collective in [
        "broadcast",
        "all_reduce",
        "reduce",
        "all_gather",
        "gather",
        "scatter",
        "reduce_scatter",
        "all_to_all",
    ] {
        assert_same_bits(&[collective, "--world-size", "5", "--count", "13"]);
    }
}

#[test]
fn low_precision_and_other_reductions_agree_too() {
    for dtype in ["float64", "float16", "int32"] {
        for op in ["SUM", "AVG", "MAX"] {
            let words = ["all_reduce", "--seed", "3", "--dtype", dtype, "--reduce-op", op];
            assert_same_bits(&words);
        }
    }
}

/// A plan's file, run and simulated.
fn assert_plan_leaves_the_same_bits(plan: &Plan) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plan.json");
    fs::write(&path, plan.to_json()).unwrap();
    assert_same_bits(&[path.to_str().unwrap()]);
}

/// Every call with every operation, each on tensors of its own and by another family, with another
/// number of channels and segments: `turn` says which.
fn every_call(world: u32, dtype: Dtype, count: u64, turn: usize, seed: u64) -> Plan {
    let mut plan = PlanBuilder::new("every call", world, BackendName::Host).unwrap();
    let group = GroupId::WORLD;
    let root = GroupRank(turn as u32 % world);
    let ops = ReduceOp::ALL.into_iter().chain(Factor::new(0.3).map(ReduceOp::PremulSum));
    let mut collectives = vec![
        Collective::Broadcast { root },
        Collective::AllGather,
        Collective::Gather { root },
        Collective::Scatter { root },
        Collective::AllToAll,
    ];
    for op in ops.filter(|op| op.supports(dtype)) {
        collectives.push(Collective::AllReduce { op });
        collectives.push(Collective::Reduce { op, root });
        collectives.push(Collective::ReduceScatter { op });
    }
    let fill = Fill::Seeded { seed };
    let mut calls = Vec::new();
    for (place, collective) in collectives.into_iter().enumerate() {
        // The root passes the most: a shared program names its tensors on every rank.
        let mut tensor = |name: String, of: fn(Collective, u32, GroupRank, u64) -> Option<u64>| {
            let most = (0..world).filter_map(|rank| of(collective, world, GroupRank(rank), count));
            most.max().map(|numel| plan.tensor(name, dtype, numel, fill))
        };
        let input = tensor(format!("in{place}"), Collective::input_elements);
        let output = tensor(format!("out{place}"), Collective::output_elements);
        let schedule = |algorithm| Schedule::new(collective, algorithm, world).unwrap();
        // Processes have no switches between them.
        let families: Vec<_> = Algorithm::of(collective)
            .iter()
            .copied()
            .filter(|algorithm| schedule(*algorithm).switches() == 0)
            .collect();
        let turn = turn + place;
        let algorithm = families[turn % families.len()];
        // Not every family can be sliced.
        let schedule = schedule(algorithm);
        let sliced = schedule.with_channels(3).is_ok();
        calls.push(Call::Collective {
            group,
            collective,
            count,
            input,
            output,
            algorithm: Some(algorithm),
            channels: [None, Some(2), Some(3)][turn % 3].filter(|_| sliced),
            segments: [None, Some(2)][turn % 2].filter(|_| sliced),
            schedule: None,
            splits: None,
        });
    }
    // What goes to a rank depends on that rank alone.
    let part = |to: u32| (u64::from(to) + turn as u64) % 4;
    let uneven_in = plan.tensor("uneven in", dtype, (0..world).map(part).sum(), fill);
    let uneven_out: Vec<_> = (0..world)
        .map(|rank| {
            let numel = u64::from(world) * part(rank);
            plan.tensor(format!("uneven out{rank}"), dtype, numel, fill)
        })
        .collect();
    plan.every_rank(|rank, program| {
        // Half of them together, the others one by one.
        let (together, alone) = calls.split_at(calls.len() / 2);
        program.coalesced(together.to_vec());
        alone.iter().for_each(|call| _ = program.call(call.clone()));
        program.call(Call::Collective {
            group,
            collective: Collective::AllToAll,
            count: 0,
            input: Some(uneven_in),
            output: Some(uneven_out[rank.index()]),
            algorithm: None,
            channels: None,
            segments: None,
            schedule: None,
            splits: Some(Box::new(Splits {
                input: (0..world).map(part).collect(),
                output: vec![part(rank.0); world as usize],
            })),
        });
    })
    .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn every_dtype_operation_and_family_leaves_the_same_bits(
        world in 1u32..7,
        dtype in prop::sample::select(&Dtype::COMPUTABLE[..]),
        count in prop_oneof![0u64..20, 100u64..3000],
        turn in 0usize..60,
        seed in any::<u64>(),
    ) {
        assert_plan_leaves_the_same_bits(&every_call(world, dtype, count, turn, seed));
    }
}

/// A call's shown text is the one that is carried out: taken as a program, it leaves the same tensors as the
/// call's plan.
#[test]
fn the_text_of_a_call_does_what_its_plan_does() {
    let results = |plan: &Plan| -> BTreeMap<GlobalRank, Vec<TensorValue>> {
        let trace = simulate(plan, &SimConfig::default()).unwrap();
        let mut found: BTreeMap<GlobalRank, Vec<TensorValue>> = BTreeMap::new();
        for event in trace.events {
            if let What::Result { value, .. } = event.what {
                found.entry(event.rank).or_default().push(value);
            }
        }
        found
    };
    let (mut compared, mut refused) = (0, Vec::new());
    for call in torch_calls() {
        let options = call.options();
        let plan = call.plan(&options).unwrap();
        let how = Options { world_size: Some(options.world_size), ..Options::default() };
        let text = call.source(&options);
        let program = match compile(call.name, &text, &how) {
            Ok(program) if program.raised.is_empty() => program,
            _ => {
                refused.push(call.name);
                continue;
            }
        };
        let (here, there) = (results(&plan), results(&program.plan));
        for (rank, values) in here {
            let theirs = there.get(&rank).cloned().unwrap_or_default();
            for value in values {
                assert!(theirs.contains(&value), "{} on {rank}: {value:?}\n{text}", call.name);
                compared += 1;
            }
        }
    }
    // The first is in part a sketch (`model(batch)`); the others are of older versions of PyTorch.
    let others = ["broadcast", "all_reduce", "reduce", "all_gather", "reduce_scatter"];
    let others = others.map(|name| format!("{name}_multigpu"));
    assert_eq!(
        (refused[0], &refused[1..]),
        ("async_op", &others.each_ref().map(String::as_str)[..])
    );
    assert!(compared > 100, "{compared}");
}
