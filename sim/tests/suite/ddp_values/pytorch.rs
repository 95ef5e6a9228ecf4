//! `ddp_features.json`, `values`: parameters whose gradients are `g(step, rank) + p/4`, trained by
//! real DDP over gloo on 2, 3 and 4 ranks. Ours end with the same bits.

use super::{bits, reduce, seeded};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::BackendName;
use lockstep_torch::ddp::join::JoinOptions;
use lockstep_torch::ddp::model::Model;
use lockstep_torch::ddp::values::{Pass, Trainer};
use lockstep_torch::ddp::{BucketCap, CommHook, DdpOptions, HookAlgorithm};
use serde_json::Value;

fn recorded() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/pytorch/ddp_features.json");
    serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap()["values"].clone()
}

fn options(variant: &str) -> DdpOptions {
    let mb = match variant {
        "default" => None,
        "one_a_parameter" => Some(0.0),
        _ => Some(0.0002),
    };
    let sum = |compress: Option<Dtype>| {
        Some(compress.map_or(CommHook::new(HookAlgorithm::AllReduce), CommHook::compress))
    };
    DdpOptions {
        bucket_cap: mb.map_or(BucketCap::Default, |mb| BucketCap::from_mb(mb).unwrap()),
        gradient_as_bucket_view: variant.contains("bucket_view"),
        static_graph: variant == "static_graph",
        find_unused_parameters: variant == "find_unused",
        comm_hook: match variant {
            "allreduce_hook" => sum(None),
            "fp16_compress_hook" => sum(Some(Dtype::Float16)),
            "bf16_compress_hook" => sum(Some(Dtype::Bfloat16)),
            _ => None,
        },
        ..DdpOptions::default()
    }
}

/// The rank that skips in a step, as `skipped` of `ddp_features.py` has it.
fn skips(step: u32, rank: u32) -> Option<u32> {
    match step % 3 {
        0 => Some(rank % 4),
        1 => Some(2),
        _ => None,
    }
}

/// Trains as the script's `values` does and returns the ranks' bits.
fn train(variant: &str, world_size: u32, sizes: &[usize], order: &[u32]) -> Vec<Vec<Vec<u32>>> {
    let rows: String = (0..).zip(sizes).map(|(i, n): (u32, _)| format!("p.{i},{n}\n")).collect();
    let model = Model::read("terms", &rows).unwrap();
    let params: Vec<_> = (1..).zip(sizes).map(|(seed, n)| seeded(seed, 0, *n)).collect();
    let all = vec![params; world_size as usize];
    let (mut trainer, exchange) =
        Trainer::new(&model, &options(variant), BackendName::Gloo, all).unwrap();
    reduce(&mut trainer, &exchange);
    let join = variant.starts_with("join");
    let steps = if join { 1 + world_size } else { 6 };
    if join {
        trainer.enter_join(JoinOptions {
            divide_by_initial_world_size: variant == "join",
            ..JoinOptions::default()
        });
    }
    for step in 0..steps {
        let sync = !variant.starts_with("accumulate") || step % 3 == 2;
        let pass = |rank: u32| {
            if join && step >= 2 + rank {
                return None;
            }
            let skipped = skips(step, rank).filter(|_| variant == "find_unused");
            let used = order.iter().filter(|index| Some(**index) != skipped);
            let gradient = |&index: &u32| {
                let param = &trainer.params(rank)[index as usize];
                let g = seeded(100 * (u64::from(step) + 1) + u64::from(index), rank, param.len());
                (index, g.iter().zip(param).map(|(g, p)| g + 0.25 * p).collect())
            };
            Some(Pass { sync, gradients: used.map(gradient).collect() })
        };
        let passes: Vec<_> = (0..world_size).map(pass).collect();
        let exchange = trainer.iteration(&passes).unwrap();
        reduce(&mut trainer, &exchange);
        if sync {
            trainer.sgd(0.5);
            trainer.zero_grad(!variant.ends_with("kept"));
        }
    }
    if join {
        let exchange = trainer.leave_join().unwrap();
        reduce(&mut trainer, &exchange);
    }
    (0..world_size).map(|rank| bits(&trainer, rank)).collect()
}

#[test]
fn parameters_end_with_pytorchs_bits() {
    let file = recorded();
    let mut compared = 0;
    for (world_size, case) in file.as_object().unwrap() {
        let sizes: Vec<usize> = case["sizes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|n| n.as_u64().unwrap() as usize)
            .collect();
        for (variant, truth) in case.as_object().unwrap() {
            let Some(params) = truth.get("params") else { continue };
            let of = |rank: usize| match params.get("per_rank") {
                Some(ranks) => ranks[rank].clone(),
                None => params.clone(),
            };
            let world_size = world_size.parse().unwrap();
            let ranks = train(variant, world_size, &sizes, &[3, 2, 1, 0]);
            for (rank, own) in ranks.iter().enumerate() {
                for (own, truth) in own.iter().zip(of(rank).as_array().unwrap()) {
                    let hex: String =
                        own.iter().map(|bits| format!("{:08x}", bits.swap_bytes())).collect();
                    assert_eq!(
                        hex,
                        truth.as_str().unwrap(),
                        "{variant}, rank {rank} of {world_size}"
                    );
                }
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 15 * (2 + 3 + 4));
}
