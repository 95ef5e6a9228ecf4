//! The simulator against what real PyTorch 2.7.1 answered over gloo, to the bit
//! (`tests/data/pytorch/README.md`).
//!
//! Left out: float SUM and PRODUCT beyond two ranks, where the order of the additions is gloo's
//! own; what gloo refuses; and gloo's `reduce_scatter_tensor`, which ignores its operation.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, PlanBuilder, TensorId};
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

/// Simulates one call and compares what every rank ends with; returns how many ranks were checked.
fn check(
    name: &str,
    case: &Value,
    collective: Collective,
    world: u32,
    (seed, count, dtype): (u64, u64, Dtype),
) -> u32 {
    let mut checked = 0;
    for algorithm in Algorithm::of(collective) {
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
        let trace = simulate(&plan, &SimConfig::default()).unwrap();
        let results: BTreeMap<(GlobalRank, TensorId), &TensorValue> = trace
            .events
            .iter()
            .filter_map(|event| match &event.what {
                What::Result { tensor, value } => Some(((event.rank, *tensor), value)),
                _ => None,
            })
            .collect();
        for rank in (0..world).filter(|rank| collective.promises(GroupRank(*rank))) {
            let Some(expected) = expected(case, rank, dtype) else {
                continue;
            };
            let got = results[&(GlobalRank(rank), output.unwrap())];
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

#[test]
fn reductions_are_pytorchs_to_the_bit() {
    let recorded = recorded();
    let mut checked = 0;
    for world in [1, 2, 4, 6, 8] {
        let results = &recorded["results"][world.to_string()];
        for op in ReduceOp::ALL {
            for dtype in Dtype::COMPUTABLE {
                let rounds = dtype.is_float() && matches!(op, ReduceOp::Sum | ReduceOp::Product);
                if !op.supports(dtype) || (rounds && world > 2) {
                    continue;
                }
                let name = format!("all_reduce/{op}/{dtype}");
                let call = Collective::AllReduce { op };
                checked += check(&name, &results[&name], call, world, (1, 7, dtype));
            }
            for root in (0..world).map(GroupRank) {
                let name = format!("reduce/{op}/int64/dst={root}");
                let call = Collective::Reduce { op, root };
                if let Some(case) = results.get(&name) {
                    checked += check(&name, case, call, world, (2, 7, Dtype::Int64));
                }
            }
        }
        let name = "reduce_scatter_tensor/SUM/int64";
        let call = Collective::ReduceScatter { op: ReduceOp::Sum };
        checked += check(name, &results[name], call, world, (7, 3, Dtype::Int64));
    }
    assert!(checked > 1500, "only {checked} results were compared");
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
                checked += check(name, case, call, world, (seed, count, Dtype::Int32));
            }
        };
        compare("all_gather_into_tensor/int32/concat", Collective::AllGather, (4, 3));
        compare("all_to_all_single/int32/even", Collective::AllToAll, (8, 2));
        for root in (0..world).map(GroupRank) {
            compare(&format!("broadcast/int32/src={root}"), Collective::Broadcast { root }, (3, 7));
            compare(&format!("gather/int32/dst={root}"), Collective::Gather { root }, (5, 3));
        }
    }
    assert!(checked > 150, "only {checked} results were compared");
}
