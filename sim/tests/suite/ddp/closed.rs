//! By how much a step in closed form differs from the simulator's: by latencies alone.

use super::{device, training};
use lockstep_core::trace::Outcome;
use lockstep_sim::training::simulate_training;
use lockstep_sim::{Link, SimConfig, Topology};
use lockstep_torch::ddp::RingLink;
use lockstep_torch::ddp::lab::{LabRun, Setting};
use lockstep_torch::ddp::model::Model;
use lockstep_torch::ddp::plan::{Training, training_run};
use lockstep_torch::ddp::{BucketCap, DdpOptions, Purpose};
use proptest::prelude::*;

/// Passes of the simulated run: the first ones build the buckets anew, the last has no broadcasts
/// of a next one behind it.
const PASSES: u32 = 9;

fn model(layers: &[(u64, u64)], buffers: &[u64]) -> Model {
    let params = layers.iter().enumerate().map(|(index, (rows, columns))| {
        serde_json::json!([
            format!("l{index}.weight"),
            [rows, columns],
            rows * columns,
            "float32",
            true
        ])
    });
    let types = ["float32", "int64", "float16"];
    let buffers = buffers
        .iter()
        .zip(types)
        .map(|(numel, dtype)| serde_json::json!([format!("b.{dtype}"), [numel], numel, dtype]));
    let (params, buffers): (Vec<_>, Vec<_>) = (params.collect(), buffers.collect());
    let file = serde_json::json!({ "params": params, "buffers": buffers });
    Model::read("random", &file.to_string()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The closed form has a broadcast over on all ranks at once, and lets them begin a ring
    /// together. In the simulator a rank goes on when it has its own: what it is ahead by stays from
    /// ring to ring. A step then differs by up to a latency a rank and one for every level of every
    /// broadcast's tree, and behind a broadcast by half of a ring; without one the first cancels out
    /// over several steps.
    #[test]
    fn a_step_in_closed_form_differs_by_latencies_alone(
        layers in prop::collection::vec((1u64..300, 1u64..300), 1..7),
        buffers in prop::collection::vec(1u64..100_000, 0..4),
        world_size in 2u32..=17,
        latency_ns in prop::sample::select(vec![0u64, 100, 1_000, 5_000, 50_000]),
        bytes_per_second in prop::sample::select(vec![100_000_000u64, 1_000_000_000, 25_000_000_000]),
        cap in prop::sample::select(vec![None, Some(0.0), Some(0.1)]),
    ) {
        let model = model(&layers, &buffers);
        let bucket_cap = cap.map_or(BucketCap::Default, |mb| BucketCap::from_mb(mb).unwrap());
        let options = DdpOptions { bucket_cap, ..DdpOptions::default() };
        let training = Training {
            options,
            steps: PASSES,
            device: device(),
            ..training(world_size)
        };
        let run = training_run(&model, &training).unwrap();
        let latency_ps = latency_ns * 1000;
        let topology = Topology::Uniform(Link { latency_ps, bytes_per_second });
        let config = SimConfig { topology, ..SimConfig::default() };
        let (steps, outcome) = simulate_training(&run, &config).unwrap();
        prop_assert_eq!(outcome, Some(Outcome::Completed));
        let links = RingLink { latency_ps, bytes_per_second }.into();
        let closed = LabRun::of(&model, &Setting { training, links }).unwrap().summary();

        let calls = &run.roles[0].steps[4].calls;
        let broadcasts = calls.iter().filter(|note| note.call.purpose == Purpose::Buffers).count();
        let levels = u64::from(u32::BITS - (world_size - 1).leading_zeros());
        let (ranks, broadcasts) = (u64::from(world_size), broadcasts as u64);
        // Of chunks that differ by an element it takes the larger one in every step of a ring.
        let element_ps = 4 * 1_000_000_000_000 / bytes_per_second;
        let rounding = u64::from(closed.buckets) * 2 * (ranks - 1) * element_ps + 20_000;
        let takes: Vec<u64> =
            steps[2..PASSES as usize - 1].iter().map(|s| s.end_ps - s.start_ps).collect();
        // Who has its buffers early is half through the first ring when the last comes to it.
        let bytes: u64 = model.params.iter().map(|param| param.bytes()).sum();
        let half_ps = if broadcasts > 0 { bytes * 1_000_000_000_000 / bytes_per_second } else { 0 };
        for took in &takes {
            let most = (broadcasts * levels + ranks) * latency_ps + half_ps + rounding;
            prop_assert!(took.abs_diff(closed.step_ps) <= most, "{took} {}", closed.step_ps);
        }
        let mean = takes.iter().sum::<u64>() / takes.len() as u64;
        let most = match broadcasts {
            0 => (levels + 1) * latency_ps + rounding,
            _ => (broadcasts * levels + ranks) * latency_ps + half_ps + rounding,
        };
        prop_assert!(mean.abs_diff(closed.step_ps) <= most, "{mean} {}", closed.step_ps);
        // What is behind a broadcast comes no later for it.
        if broadcasts > 0 {
            prop_assert!(mean <= closed.step_ps + rounding, "{mean} {}", closed.step_ps);
        }
    }
}
