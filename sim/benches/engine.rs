//! Simulated messages per second: `cargo bench -p lockstep-sim`.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on must fail")]

use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, Plan, PlanBuilder};
use lockstep_core::reduce::ReduceOp;
use lockstep_sim::{SimConfig, simulate};

fn main() {
    divan::main();
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
