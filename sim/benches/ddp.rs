//! DDP at size: `cargo bench -p lockstep-sim --bench ddp`.

#![allow(clippy::unwrap_used, reason = "a benchmark that cannot go on must fail")]

use lockstep_core::plan::Plan;
use lockstep_sim::{SimConfig, simulate};
use lockstep_torch::ddp::RingLink;
use lockstep_torch::ddp::lab::{LabRun, Setting, sweep_caps};
use lockstep_torch::ddp::model::{Device, Model, named};
use lockstep_torch::ddp::plan::{Training, training_plan};

fn main() {
    divan::main();
}

fn gpt2_xl() -> Model {
    named("gpt2-xl").unwrap()
}

/// One iteration on the buckets of the constructor, or two: the second on the rebuilt ones.
fn training(steps: u32) -> Training {
    let device = Device::named("A100").unwrap();
    Training { steps, ..Training::new(1024, device) }
}

fn plan(steps: u32) -> Plan {
    training_plan(&gpt2_xl(), &training(steps)).unwrap()
}

#[divan::bench(args = [1, 2, 3], sample_count = 5)]
fn plan_gpt2_xl_on_1024_ranks(bencher: divan::Bencher<'_, '_>, steps: u32) {
    bencher.bench(|| plan(steps));
}

/// Every rank is simulated; what happens on rank 0 is recorded.
#[divan::bench(args = [1, 2, 3], sample_count = 3)]
fn simulate_gpt2_xl_on_1024_ranks(bencher: divan::Bencher<'_, '_>, steps: u32) {
    let plan = plan(steps);
    let record_ranks = Some(vec![0]);
    let config = SimConfig { record_messages: false, record_ranks, ..SimConfig::default() };
    bencher.bench(|| simulate(&plan, &config).unwrap());
}

/// 40 caps from 1 to 400 MiB, each with a plan and a timeline of its own.
#[divan::bench(sample_count = 3)]
fn sweep_gpt2_xl_over_40_caps(bencher: divan::Bencher<'_, '_>) {
    let (model, setting) = (gpt2_xl(), setting());
    let caps: Vec<Option<f64>> = (1..=40).map(|cap| Some(f64::from(cap * 10 - 9))).collect();
    bencher.bench(|| sweep_caps(&model, &setting, &caps).unwrap());
}

fn setting() -> Setting {
    let link = RingLink { latency_ps: 5_000_000, bytes_per_second: 25_000_000_000 };
    Setting { training: training(3), links: link.into() }
}

/// The requests of the page: three passes, the last of them told gradient by gradient, and its log.
#[divan::bench(sample_count = 20)]
fn lab_gpt2_xl_on_1024_ranks(bencher: divan::Bencher<'_, '_>) {
    let (model, setting) = (gpt2_xl(), setting());
    bencher.bench(|| {
        let run = LabRun::of(&model, &setting).unwrap();
        (run.pass(2), run.summary(), run.log(0, 3))
    });
}
