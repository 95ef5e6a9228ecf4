//! gloo's ring against the sums that real PyTorch 2.7.1 answered over gloo, for every recorded world
//! size, dtype and length (`tests/data/pytorch/reduce_order.json`): the bits of a sum show the
//! order of its additions, and so which chunks gloo cuts.
//!
//! Recorded are digests, and traces hold digests of another kind of what is large. So the schedule
//! is carried out here, in the plainest way; what that gives has the recorded digest, and is what
//! the simulator says.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::value::initial_bytes;
use lockstep_core::plan::{Fill, PlanBuilder, Tensor, TensorData};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::{self, ReduceOp};
use lockstep_core::schedule::{Action, Algorithm, Layout, Schedule, Slice};
use lockstep_core::trace::{TensorValue, What};
use lockstep_sim::{SimConfig, simulate};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

const OP: ReduceOp = ReduceOp::Sum;
const CALLS: [Collective; 2] =
    [Collective::AllReduce { op: OP }, Collective::Reduce { op: OP, root: GroupRank(0) }];

/// Rank 0's tensor after an in-place call, carried out step by step in one memory.
fn carried_out(call: Collective, mut memory: Vec<Vec<u8>>, tensor: &Tensor) -> Vec<u8> {
    let world = memory.len() as u32;
    let schedule = Schedule::new(call, Algorithm::GlooRing, world).unwrap();
    let bytes = tensor.dtype.size_bytes();
    let layout = Layout::new(schedule.clone(), tensor.numel, bytes);
    let range = |rank: u32, slice: Slice| -> Range<usize> {
        let range = layout.range(GroupRank(rank), slice);
        (range.start * bytes) as usize..(range.end * bytes) as usize
    };
    let mut actions = Vec::new();
    for step in 0..schedule.steps() {
        let mut messages = Vec::new();
        for rank in 0..world {
            schedule.actions(GroupRank(rank), step, &mut actions);
            for action in &actions {
                if let Action::Send { peer, from } = *action {
                    let sent = memory[rank as usize][range(rank, from)].to_vec();
                    messages.push((rank, peer.0, sent));
                }
            }
        }
        for rank in 0..world {
            schedule.actions(GroupRank(rank), step, &mut actions);
            for action in &actions {
                let (peer, into, reduces) = match *action {
                    Action::Receive { peer, into } => (peer, into, false),
                    Action::ReceiveReduce { peer, into, .. } => (peer, into, true),
                    _ => continue,
                };
                let message = messages.iter().find(|(from, to, _)| (*from, *to) == (peer.0, rank));
                let own = &mut memory[rank as usize][range(rank, into)];
                match reduces {
                    true => reduce::combine(tensor.dtype, OP, own, &message.unwrap().2),
                    false => own.copy_from_slice(&message.unwrap().2),
                }
            }
        }
    }
    memory.swap_remove(0)
}

/// Rank 0's tensor in the simulator.
fn simulated(call: Collective, world: u32, tensor: &Tensor) -> TensorValue {
    let mut plan = PlanBuilder::new("sum", world, BackendName::Gloo).unwrap();
    let id = plan.tensor("tensor", tensor.dtype, tensor.numel, tensor.fill);
    let plan = plan.every_rank(|_, program| {
        let by = Some(Algorithm::GlooRing);
        program.collective_by(GroupId::WORLD, call, tensor.numel, None, Some(id), by);
    });
    let trace = simulate(&plan.unwrap(), &SimConfig::default()).unwrap();
    let of_rank_0 = trace.events.into_iter().filter(|event| event.rank == GlobalRank(0));
    let mut result = of_rank_0.filter_map(|event| match event.what {
        What::Result { value, .. } => Some(value),
        _ => None,
    });
    result.next_back().unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[test]
fn sums_are_pytorchs_to_the_bit_for_every_recorded_length() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/pytorch/reduce_order.json");
    let recorded: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let cells: Vec<(u32, &String, &Value)> = (recorded["results"].as_object().unwrap().iter())
        .flat_map(|(world, results)| {
            let world = world.parse().unwrap();
            results.as_object().unwrap().iter().map(move |(cell, digests)| (world, cell, digests))
        })
        .collect();
    assert_eq!(cells.len(), 273);
    let next = AtomicUsize::new(0);
    let some = || {
        while let Some(&(world, cell, digests)) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
            assert_sums(world, cell, digests);
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(some))));
}

fn assert_sums(world: u32, cell: &str, digests: &Value) {
    let (dtype, numel) = cell.split_once('/').unwrap();
    let dtype = match dtype {
        "float64" => Dtype::Float64,
        "float16" => Dtype::Float16,
        "bfloat16" => Dtype::Bfloat16,
        _ => Dtype::Float32,
    };
    let (numel, fill) = (numel.parse().unwrap(), Fill::Seeded { seed: 100 });
    let (name, data) = (cell.to_owned(), TensorData::default());
    let tensor = Tensor { name, dtype, numel, fill, data };
    let ranks = (0..world).map(GlobalRank);
    let memory: Vec<_> = ranks.map(|rank| initial_bytes(&tensor, rank)).collect();
    for (call, digest) in CALLS.into_iter().zip(digests.as_array().unwrap()) {
        let result = carried_out(call, memory.clone(), &tensor);
        let what = format!("{call} of {cell} on {world} ranks");
        assert_eq!(sha256(&result), digest.as_str().unwrap(), "{what}");
        if numel <= 70_000 {
            assert_eq!(simulated(call, world, &tensor), TensorValue::of(&result), "{what}");
        }
    }
}
