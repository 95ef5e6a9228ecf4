//! DDP with numbers: what ranks train to in the simulator, against PyTorch's recorded bits and
//! against a plain reference that knows no reducer.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use lockstep_core::trace::{Outcome, TensorValue, What};
use lockstep_sim::{SimConfig, simulate};
use lockstep_torch::ddp::values::{Exchange, Trainer};
use std::collections::BTreeMap;

mod mutants;
mod pytorch;
mod reference;

/// Runs an exchange in the simulator; how it ended, and what every tensor held then.
fn run(exchange: &Exchange) -> (Outcome, BTreeMap<(u32, u32), Vec<u8>>) {
    let trace = simulate(&exchange.plan, &SimConfig::default()).unwrap();
    let mut held = BTreeMap::new();
    for event in trace.events {
        if let What::Result { tensor, value: TensorValue::Bytes(bytes) } = event.what {
            held.insert((event.rank.0, tensor.0), bytes);
        }
    }
    (trace.end.unwrap().outcome, held)
}

/// Runs an exchange and gives its results to the trainer.
fn reduce(trainer: &mut Trainer, exchange: &Exchange) {
    let (outcome, held) = run(exchange);
    assert_eq!(outcome, Outcome::Completed);
    trainer.receive(exchange, |rank, tensor| held.get(&(rank.0, tensor.0)).cloned()).unwrap();
}

/// The bits of a rank's parameters.
fn bits(trainer: &Trainer, rank: u32) -> Vec<Vec<u32>> {
    let params = trainer.params(rank).iter();
    params.map(|param| param.iter().map(|value| value.to_bits()).collect()).collect()
}

/// Floats as `Fill::Seeded` makes them.
fn seeded(seed: u64, rank: u32, numel: usize) -> Vec<f32> {
    use lockstep_core::dtype::Dtype;
    use lockstep_core::plan::{Fill, Tensor, TensorData};
    let (name, dtype, numel) = ("seeded".into(), Dtype::Float32, numel as u64);
    let (fill, data) = (Fill::Seeded { seed }, TensorData::default());
    let tensor = Tensor { name, dtype, numel, fill, data };
    let bytes =
        lockstep_core::plan::value::initial_bytes(&tensor, lockstep_core::rank::GlobalRank(rank));
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}
