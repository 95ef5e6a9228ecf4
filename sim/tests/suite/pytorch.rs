//! The simulator against what real PyTorch 2.7.1 answered over gloo, to the bit
//! (`tests/data/pytorch/README.md`).
//!
//! Float SUM and PRODUCT beyond two ranks depend on the order of the additions: there the schedule
//! is gloo's own ring, which also leaves on other ranks than the root of a `reduce` what gloo
//! leaves there. gloo's `reduce_scatter_tensor` is an all_reduce of which each rank keeps its part,
//! always SUM. Left out: what gloo refuses (`core` holds the texts), and inputs that no
//! [`Fill`] makes: scattered lists, and the special values, which `core`'s reductions are held to.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use lockstep_core::collective::Collective;
use lockstep_core::collective::Splits;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Call, Fill, Plan, PlanBuilder, TensorId};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::Algorithm;
use lockstep_core::trace::{TensorValue, What};
use lockstep_sim::{SimConfig, simulate};
use serde_json::Value;
use std::collections::BTreeMap;

fn recorded() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/pytorch/collectives.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The recorded result of one rank as bytes; `None` where PyTorch raised or returned nothing.
fn expected(case: &Value, rank: u32, dtype: Dtype) -> Option<Vec<u8>> {
    let outcome = case.get("all_ranks").unwrap_or_else(|| &case["per_rank"][rank as usize]);
    let elements = outcome.get("ok")?.as_array()?;
    let size = dtype.size_bytes() as usize;
    let bytes = elements.iter().flat_map(|element| {
        let bits = match element {
            Value::String(hex) => u64::from_str_radix(hex, 16).unwrap(),
            Value::Bool(bit) => u64::from(*bit),
            number => number.as_i64().map(|n| n as u64).or(number.as_u64()).unwrap(),
        };
        bits.to_le_bytes()[..size].to_vec()
    });
    Some(bytes.collect())
}

/// The results of a plan, by rank and tensor.
fn results(plan: &Plan) -> BTreeMap<(GlobalRank, TensorId), TensorValue> {
    let trace = simulate(plan, &SimConfig::default()).unwrap();
    let results = trace.events.into_iter().filter_map(|event| match event.what {
        What::Result { tensor, value } => Some(((event.rank, tensor), value)),
        _ => None,
    });
    results.collect()
}

/// Simulates one call by each family and compares what ranks end with; returns how many results
/// were checked.
fn check(
    name: &str,
    case: &Value,
    collective: Collective,
    world: u32,
    algorithms: &[Algorithm],
    (seed, count, dtype): (u64, u64, Dtype),
) -> u32 {
    let mut checked = 0;
    for algorithm in algorithms {
        let mut plan = PlanBuilder::new(name, world, BackendName::Gloo).unwrap();
        let root = collective.root().unwrap_or(GroupRank(0));
        let fill = Fill::Seeded { seed };
        let input = collective.input_elements(world, root, count);
        let input = input.map(|n| plan.tensor("input", dtype, n, fill));
        let output = collective.output_elements(world, root, count);
        let output = output.map(|n| plan.tensor("output", dtype, n, fill));
        let plan = plan
            .every_rank(|_, program| {
                let group = GroupId::WORLD;
                program.collective_by(group, collective, count, input, output, Some(*algorithm));
            })
            .unwrap();
        let results = results(&plan);
        // gloo's ring leaves its own partial results even where nothing is promised.
        let all = *algorithm == Algorithm::GlooRing;
        for rank in (0..world).filter(|rank| all || collective.promises(GroupRank(*rank))) {
            let Some(expected) = expected(case, rank, dtype) else {
                continue;
            };
            let got = &results[&(GlobalRank(rank), output.unwrap())];
            assert_eq!(
                *got,
                TensorValue::Bytes(expected),
                "{name}, {algorithm}, rank {rank} of {world}"
            );
            checked += 1;
        }
    }
    checked
}

const GLOO: &[Algorithm] = &[Algorithm::GlooRing];

#[test]
fn reductions_are_pytorchs_to_the_bit() {
    let recorded = recorded();
    let mut checked = 0;
    for world in [1, 2, 4, 6, 8] {
        let results = &recorded["results"][world.to_string()];
        // Whose sums do not depend on the order of the additions.
        let any_order = |op, dtype: Dtype| {
            let rounds = dtype.is_float() && matches!(op, ReduceOp::Sum | ReduceOp::Product);
            world <= 2 || !rounds
        };
        for op in ReduceOp::ALL {
            for dtype in Dtype::COMPUTABLE {
                let name = format!("all_reduce/{op}/{dtype}");
                let call = Collective::AllReduce { op };
                let by = if any_order(op, dtype) { Algorithm::of(call) } else { GLOO };
                if op.supports(dtype) {
                    checked += check(&name, &results[&name], call, world, by, (1, 7, dtype));
                }
            }
            for (dtype, root) in [Dtype::Int64, Dtype::Float32]
                .into_iter()
                .flat_map(|dtype| (0..world).map(move |root| (dtype, GroupRank(root))))
            {
                let name = format!("reduce/{op}/{dtype}/dst={root}");
                let call = Collective::Reduce { op, root };
                let by = if any_order(op, dtype) { Algorithm::of(call) } else { GLOO };
                if let Some(case) = results.get(&name) {
                    checked += check(&name, case, call, world, by, (2, 7, dtype));
                }
            }
        }
        let name = "reduce_scatter_tensor/SUM/int64";
        let call = Collective::ReduceScatter { op: ReduceOp::Sum };
        let by = Algorithm::of(call);
        checked += check(name, &results[name], call, world, by, (7, 3, Dtype::Int64));
    }
    assert!(checked > 2000, "only {checked} results were compared");
}

/// gloo's `reduce_scatter_tensor` is its all_reduce, whatever the operation.
#[test]
fn reduce_scatter_over_gloo_is_a_part_of_its_all_reduce() {
    let recorded = recorded();
    for world in [1, 2, 4, 6, 8u32] {
        let results_of = &recorded["results"][world.to_string()];
        let cases = ["SUM/float32", "SUM/int64", "MAX/int64", "PRODUCT/int64", "AVG/int64"];
        for case in cases {
            let name = format!("reduce_scatter_tensor/{case}");
            let dtype = if case.ends_with("int64") { Dtype::Int64 } else { Dtype::Float32 };
            let count = u64::from(world) * 3;
            let mut plan = PlanBuilder::new("p", world, BackendName::Gloo).unwrap();
            let tensor = plan.tensor("input", dtype, count, Fill::Seeded { seed: 7 });
            let sum = Collective::AllReduce { op: ReduceOp::Sum };
            let plan = plan
                .every_rank(|_, program| {
                    let (group, by) = (GroupId::WORLD, Some(Algorithm::GlooRing));
                    program.collective_by(group, sum, count, None, Some(tensor), by);
                })
                .unwrap();
            let results = results(&plan);
            for rank in 0..world {
                let TensorValue::Bytes(all) = &results[&(GlobalRank(rank), tensor)] else {
                    panic!("a small tensor is kept whole");
                };
                let part = 3 * dtype.size_bytes() as usize;
                let own = all[rank as usize * part..][..part].to_vec();
                let expected = expected(&results_of[&name], rank, dtype).unwrap();
                assert_eq!(own, expected, "{name}, rank {rank} of {world}");
            }
        }
    }
}

#[test]
fn data_movement_is_pytorchs_to_the_bit() {
    let recorded = recorded();
    let mut checked = 0;
    for world in [1, 2, 4, 6, 8] {
        let results = &recorded["results"][world.to_string()];
        let mut compare = |name: &str, call, seed_and_count: (u64, u64)| {
            if let Some(case) = results.get(name) {
                let (seed, count) = seed_and_count;
                let by = Algorithm::of(call);
                checked += check(name, case, call, world, by, (seed, count, Dtype::Int32));
            }
        };
        compare("all_gather_into_tensor/int32/concat", Collective::AllGather, (4, 3));
        compare("all_gather/int32", Collective::AllGather, (4, 3));
        compare("all_to_all_single/int32/even", Collective::AllToAll, (8, 2));
        for root in (0..world).map(GroupRank) {
            compare(&format!("broadcast/int32/src={root}"), Collective::Broadcast { root }, (3, 7));
            compare(&format!("gather/int32/dst={root}"), Collective::Gather { root }, (5, 3));
        }
    }
    assert!(checked > 150, "only {checked} results were compared");
}

/// Rank r sends (r + d) % 3 elements to rank d.
#[test]
fn uneven_splits_and_messages_are_pytorchs() {
    let recorded = recorded();
    for world in [1, 2, 4, 6, 8u32] {
        let results_of = &recorded["results"][world.to_string()];
        let seeded = |seed| Fill::Seeded { seed };
        let part = |from: u32, to: u32| u64::from((from + to) % 3);
        let mut plan = PlanBuilder::new("p", world, BackendName::Gloo).unwrap();
        let tensors: Vec<_> = (0..world)
            .map(|rank| {
                let sends = (0..world).map(|to| part(rank, to)).sum();
                let gets = (0..world).map(|from| part(from, rank)).sum();
                let input = plan.tensor("input", Dtype::Int32, sends, seeded(9));
                (input, plan.tensor("output", Dtype::Int32, gets, Fill::Zeros))
            })
            .collect();
        let out = plan.tensor("out", Dtype::Int32, 3, seeded(10));
        let around = plan.tensor("around", Dtype::Int32, 3, Fill::Zeros);
        let from_0 = plan.tensor("from 0", Dtype::Int32, 3, seeded(11));
        let plan = plan
            .every_rank(|rank, program| {
                let group = GroupId::WORLD;
                let (input, output) = tensors[rank.index()];
                program.call(Call::Collective {
                    group,
                    collective: Collective::AllToAll,
                    count: 0,
                    input: Some(input),
                    output: Some(output),
                    algorithm: None,
                    channels: None,
                    segments: None,
                    schedule: None,
                    splits: Some(Box::new(Splits {
                        input: (0..world).map(|to| part(rank.0, to)).collect(),
                        output: (0..world).map(|from| part(from, rank.0)).collect(),
                    })),
                });
                if world == 1 {
                    return;
                }
                let next = GroupRank((rank.0 + 1) % world);
                let before = GroupRank((rank.0 + world - 1) % world);
                program.coalesced(vec![
                    Call::Send { group, peer: next, tensor: out, tag: 0 },
                    Call::Recv { group, peer: Some(before), tensor: around, tag: 0 },
                ]);
                match rank.0 {
                    0 => {
                        (1..world).for_each(|peer| _ = program.send(group, GroupRank(peer), from_0))
                    }
                    _ => _ = program.recv(group, GroupRank(0), from_0),
                }
            })
            .unwrap();
        let results = results(&plan);
        for rank in 0..world {
            let check = |name: &str, tensor: TensorId| {
                let case = &results_of[name];
                let Some(mut expected) = expected(case, rank, Dtype::Int32) else {
                    assert_eq!(world, 1, "{name}");
                    return;
                };
                if name.starts_with("send_recv") {
                    // The rank that `recv` returned comes behind.
                    expected.truncate(12);
                }
                let got = &results[&(GlobalRank(rank), tensor)];
                assert_eq!(*got, TensorValue::Bytes(expected), "{name}, rank {rank} of {world}");
            };
            check("all_to_all_single/int32/uneven", tensors[rank as usize].1);
            if world > 1 {
                check("batch_isend_irecv/ring", around);
                check("send_recv/0_to_all(result+returned_src)", from_0);
            }
        }
    }
}
