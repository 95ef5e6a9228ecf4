//! Simulated messages per second: `cargo bench -p lockstep-sim`.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on must fail")]

use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{CollectiveLab, Fill, Plan, PlanBuilder};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::Algorithm;
use lockstep_sim::{SimConfig, simulate};

fn main() {
    divan::main();
}

/// A call without values, by an algorithm, as every rank makes it.
fn call(collective: Collective, algorithm: Algorithm, world_size: u32, count: u64) -> Plan {
    let lab = CollectiveLab::new(collective, world_size, count);
    CollectiveLab { algorithm, ..lab }.plan().unwrap()
}

fn times_only() -> SimConfig {
    let record_ranks = Some(vec![0]);
    SimConfig { max_value_bytes: 0, record_messages: false, record_ranks, ..SimConfig::default() }
}

/// Every rank sends to every other at once: n (n - 1) messages, each of which is counted.
#[divan::bench(args = [256, 1024, 4096], sample_count = 3)]
fn all_to_all(bencher: divan::Bencher<'_, '_>, world_size: u32) {
    let plan = call(Collective::AllToAll, Algorithm::Direct, world_size, 256);
    let messages = u64::from(world_size) * u64::from(world_size - 1);
    bencher
        .counter(divan::counter::ItemsCount::new(messages))
        .bench(|| simulate(&plan, &times_only()).unwrap());
}

/// Rabenseifner's all_reduce: 2 n log2 n messages, of which one rank tells all.
#[divan::bench(args = [1024, 65_536], sample_count = 3)]
fn halving_doubling(bencher: divan::Bencher<'_, '_>, world_size: u32) {
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = call(sum, Algorithm::HalvingDoubling, world_size, 1 << 20);
    let messages = 2 * u64::from(world_size) * u64::from(world_size.ilog2());
    bencher
        .counter(divan::counter::ItemsCount::new(messages))
        .bench(|| simulate(&plan, &times_only()).unwrap());
}

/// A ring all_reduce of which every message goes through the event queue's order.
#[divan::bench(args = [256, 1024], sample_count = 3)]
fn ring_message_by_message(bencher: divan::Bencher<'_, '_>, world_size: u32) {
    let plan = ring(world_size);
    let config = SimConfig { record_messages: true, record_ranks: Some(vec![]), ..times_only() };
    let messages = 2 * u64::from(world_size) * u64::from(world_size - 1);
    bencher
        .counter(divan::counter::ItemsCount::new(messages))
        .bench(|| simulate(&plan, &config).unwrap());
}

fn ring(world_size: u32) -> Plan {
    let mut plan = PlanBuilder::new("bench", world_size, BackendName::Host).unwrap();
    let grad = plan.tensor("grad", Dtype::Float32, 1 << 20, Fill::Zeros);
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    plan.every_rank(|_, program| {
        program.collective(GroupId::WORLD, sum, 1 << 20, None, Some(grad));
    })
    .unwrap()
}

/// A ring all_reduce without values and without recording single messages: 2 n (n - 1) messages.
#[divan::bench(args = [64, 256, 1024], sample_count = 5)]
fn ring_all_reduce(bencher: divan::Bencher<'_, '_>, world_size: u32) {
    let plan = ring(world_size);
    let config = SimConfig { max_value_bytes: 0, record_messages: false, ..SimConfig::default() };
    let messages = 2 * u64::from(world_size) * u64::from(world_size - 1);
    bencher
        .counter(divan::counter::ItemsCount::new(messages))
        .bench(|| simulate(&plan, &config).unwrap());
}
