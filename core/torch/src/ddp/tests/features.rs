//! `ddp_features.json`: the record of `ddp_features.py` on hooks, averagers, sharded optimizers and `Join`.

use super::{list, numbers, recorded};
use crate::ddp::join::{JoinOptions, Joinable, run_join_of};
use crate::ddp::model::Model;
use crate::ddp::zero::{ZeroOverlap, partition, sync_params};
use crate::ddp::*;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::BackendName;
use serde_json::Value;

/// `["all_reduce", "float32", 12, {"group_size": 2}]` of a call.
fn event(call: &DdpCall) -> Value {
    let mut extra = serde_json::Map::new();
    if let DdpOp::Broadcast { root } = call.op {
        extra.insert("root".into(), root.into());
    }
    if let Some(size) = call.subgroup {
        extra.insert("group_size".into(), size.into());
    }
    serde_json::json!([call.name(), call.dtype.name(), call.numel, extra])
}

fn events(calls: &[DdpCall]) -> Value {
    calls.iter().map(event).collect()
}

fn model(case: &Value) -> Model {
    Model::read("features", &case.to_string()).unwrap()
}

fn cap(value: &Value) -> BucketCap {
    value.as_f64().map_or(BucketCap::Default, |mb| BucketCap::from_mb(mb).unwrap())
}

/// Replays the iterations of a case and calls `after` behind each.
fn replay(
    case: &Value,
    model: &Model,
    options: &DdpOptions,
    about: &str,
    mut after: impl FnMut(&Ddp, &Value),
) -> Ddp {
    let order: Vec<u32> = match case.get("grad_ready_order") {
        Some(order) => numbers(order).into_iter().map(|index| index as u32).collect(),
        None => numbers(&recorded_order()).into_iter().map(|index| index as u32).collect(),
    };
    let (mut ddp, _) = Ddp::new(0, model, options).unwrap();
    for (number, truth) in (1..).zip(list(&case["iterations"])) {
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        ddp.forward(&Forward::default(), &mut forward).unwrap();
        ddp.backward(&order, &mut backward).unwrap();
        assert_eq!(events(&forward), truth["forward"], "{about}, forward {number}");
        assert_eq!(events(&backward), truth["backward"], "{about}, backward {number}");
        after(&ddp, truth);
    }
    ddp
}

/// The order of the model `Shapes`, which not every case repeats.
fn recorded_order() -> Value {
    recorded("ddp_features.json")["power_sgd"]["2"]["powerSGD_hook/rank1/None"]["grad_ready_order"]
        .clone()
}

fn power_sgd(state: &Value) -> PowerSgd {
    let number = |key: &str, default| state[key].as_u64().unwrap_or(default);
    let default = PowerSgd::default();
    PowerSgd {
        matrix_approximation_rank: number(
            "matrix_approximation_rank",
            default.matrix_approximation_rank,
        ),
        start_iter: number("start_powerSGD_iter", default.start_iter),
        min_compression_rate: state["min_compression_rate"]
            .as_f64()
            .map_or(default.min_compression_rate, |rate| rate.try_into().unwrap()),
        use_error_feedback: state["use_error_feedback"].as_bool().unwrap_or(true),
        warm_start: state["warm_start"].as_bool().unwrap_or(true),
    }
}

#[test]
fn power_sgd_compresses_what_was_recorded() {
    let file = recorded("ddp_features.json")["power_sgd"]["2"].clone();
    let model = model(&file["model"]);
    let mut compared = 0;
    for (name, case) in file.as_object().unwrap() {
        if let Some(arguments) = name.strip_prefix("refused/") {
            let state = power_sgd(&serde_json::from_str(arguments).unwrap());
            let hook = CommHook::new(HookAlgorithm::PowerSgd(state));
            let options = DdpOptions { comm_hook: Some(hook), ..DdpOptions::default() };
            let error = Ddp::new(0, &model, &options).unwrap_err();
            assert_eq!(error.to_string(), case.as_str().unwrap());
            assert_eq!(error.class(), "ValueError");
        }
        let Some(state) = case.get("state") else { continue };
        let state = power_sgd(state);
        let algorithm = match name.starts_with("batched") {
            true => HookAlgorithm::BatchedPowerSgd(state),
            false => HookAlgorithm::PowerSgd(state),
        };
        let options = DdpOptions {
            bucket_cap: cap(&case["bucket_cap_mb"]),
            comm_hook: Some(CommHook::new(algorithm)),
            ..DdpOptions::default()
        };
        replay(case, &model, &options, name, |ddp, truth| {
            let stats = ddp.reducer().unwrap().compression_stats();
            let rate = stats.map_or(0.0, |stats| stats.rate());
            let [before, after] = stats.map_or([0, 0], |stats| [stats.before, stats.after]);
            let own = serde_json::json!([rate, before, after]);
            let same = |index: usize| own[index].as_f64() == truth["stats"][index].as_f64();
            assert!((0..3).all(same), "{name}: {own}, {}", truth["stats"]);
        });
        compared += 1;
    }
    assert_eq!(compared, 34);
}

#[test]
fn other_hooks_communicate_what_was_recorded() {
    let file = recorded("ddp_features.json");
    let file = &file["other_hooks"];
    let mut compared = 0;
    for (world_size, cases) in file.as_object().unwrap() {
        let model = model(&cases["model"]);
        for (name, case) in cases.as_object().unwrap() {
            let Some((hook, mb)) = name.rsplit_once('/') else { continue };
            let power = PowerSgd { start_iter: 2, ..PowerSgd::default() };
            let sum = |compress: Option<Dtype>| {
                compress.map_or(CommHook::new(HookAlgorithm::AllReduce), CommHook::compress)
            };
            let hook = match hook {
                "allreduce_hook" => sum(None),
                "fp16_compress_hook" => sum(Some(Dtype::Float16)),
                "bf16_compress_hook" | "bf16_compress_wrapper(allreduce_hook)" => {
                    sum(Some(Dtype::Bfloat16))
                }
                "fp16_compress_wrapper(powerSGD_hook)" => {
                    CommHook::wrapping(Dtype::Float16, HookAlgorithm::PowerSgd(power))
                }
                "quantization_pertensor_hook" => {
                    CommHook::new(HookAlgorithm::QuantizationPerTensor)
                }
                "quantization_perchannel_hook" => {
                    CommHook::new(HookAlgorithm::QuantizationPerChannel)
                }
                other => panic!("{other}"),
            };
            let bucket_cap = match mb {
                "None" => BucketCap::Default,
                mb => BucketCap::from_mb(mb.parse().unwrap()).unwrap(),
            };
            let options = DdpOptions { bucket_cap, comm_hook: Some(hook), ..DdpOptions::default() };
            replay(case, &model, &options, &format!("{name}, {world_size} ranks"), |_, _| {});
            compared += 1;
        }
    }
    assert_eq!(compared, 2 * 7 * 2);
}

#[test]
fn models_are_averaged_when_recorded() {
    let file = recorded("ddp_features.json")["local_sgd"]["4"].clone();
    let model = model(&file["model"]);
    let mut compared = 0;
    for (name, case) in file.as_object().unwrap() {
        let Some((averager, local)) = name.split_once('/') else { continue };
        let averager = match averager {
            "periodic" => ModelAverager::Periodic { period: 2, warmup_steps: 3 },
            "periodic_warmup_0" => ModelAverager::Periodic { period: 3, warmup_steps: 0 },
            "hierarchical" => ModelAverager::Hierarchical {
                period_group_size: vec![(2, 2), (4, 4)],
                warmup_steps: 3,
            },
            "hierarchical_one_level" => {
                ModelAverager::Hierarchical { period_group_size: vec![(3, 4)], warmup_steps: 1 }
            }
            other => panic!("{other}"),
        };
        averager.check(4).unwrap();
        let hook = CommHook::new(HookAlgorithm::PostLocalSgd(PostLocalSgd {
            start_iter: 3,
            subgroup: 2,
            post_local_gradient_allreduce: local == "True",
        }));
        let options = DdpOptions { comm_hook: Some(hook), ..DdpOptions::default() };
        let mut step = 0;
        replay(case, &model, &options, name, |_, truth| {
            let sizes: Vec<u64> = list(&truth["optimizer"])
                .iter()
                .map(|call| call[3]["group_size"].as_u64().unwrap_or(4))
                .collect();
            let own: Vec<u64> = averager.group_size(step, 4).map(u64::from).into_iter().collect();
            assert_eq!(own, sizes, "{name}, step {step}");
            step += 1;
        });
        compared += 1;
    }
    assert_eq!(compared, 8);
}

#[test]
fn the_sharded_optimizer_broadcasts_what_was_recorded() {
    let file = recorded("ddp_features.json");
    for (world_size, cases) in file["zero"].as_object().unwrap() {
        let world_size = world_size.parse().unwrap();
        for (name, case) in cases.as_object().unwrap() {
            let model = model(&case["model"]);
            let all: Vec<u64> = model.params.iter().map(|param| param.numel()).collect();
            let own: Vec<Vec<u64>> = partition(&all, world_size)
                .iter()
                .map(|indices| indices.iter().map(|index| u64::from(*index)).collect())
                .collect();
            let truth: Vec<_> = list(&case["partition"]).iter().map(numbers).collect();
            assert_eq!(own, truth, "{name}");
            let calls = sync_params(&model, world_size, name.ends_with("view=True"));
            for step in list(&case["steps"]) {
                assert_eq!(&events(&calls), step, "{name}, {world_size} ranks");
            }
        }
    }
}

#[test]
fn the_sharded_optimizer_overlaps_as_recorded() {
    let file = recorded("ddp_features.json");
    let mut compared = 0;
    for (world_size, cases) in file["zero_overlap"].as_object().unwrap() {
        for (name, case) in cases.as_object().unwrap() {
            let world_size = world_size.parse().unwrap();
            let overlap = ZeroOverlap {
                interleaved: name.contains("interleaved"),
                shard_buckets: name.contains("shard=True"),
                world_size,
            };
            let static_graph = name.contains("static=True");
            let options = DdpOptions {
                bucket_cap: BucketCap::from_mb(0.004).unwrap(),
                static_graph,
                comm_hook: Some(CommHook::new(HookAlgorithm::AllReduce)),
                zero_overlap: Some(overlap),
                ..DdpOptions::default()
            };
            let model = model(&case["model"]);
            let (mut ddp, _) = Ddp::new(0, &model, &options).unwrap();
            let order: Vec<u32> = (0..10).rev().collect();
            for (number, truth) in (1..).zip(list(&case["steps"])) {
                let mut calls = Vec::new();
                ddp.forward(&Forward::default(), &mut calls).unwrap();
                ddp.backward(&order, &mut calls).unwrap();
                assert_eq!(&events(&calls), truth, "{name}, step {number}, {world_size} ranks");
            }
            // The shards that each rank updates.
            let params: Vec<u64> = model.params.iter().map(|param| param.numel()).collect();
            let buckets = ddp.reducer().unwrap().buckets();
            let of = |bucket: &Bucket| bucket.indices.iter().map(|i| params[*i as usize]).collect();
            let shards = overlap.assign(&buckets.iter().map(of).collect::<Vec<_>>()).unwrap();
            for (rank, truth) in (0..).zip(list(&case["assigned"])) {
                for (bucket, truth) in truth.as_object().unwrap() {
                    let bucket: usize = bucket.parse().unwrap();
                    let shard = shards[bucket].iter().find(|shard| shard.rank == rank).unwrap();
                    let own = buckets[bucket].indices[shard.first..][..shard.params].iter();
                    let own: Vec<u64> = own.map(|index| u64::from(*index)).collect();
                    assert_eq!(own, numbers(truth), "{name}");
                    compared += 1;
                }
            }
        }
    }
    assert!(compared > 30, "{compared}");
}

#[test]
fn several_joinables_shadow_what_was_recorded() {
    let file = recorded("ddp_features.json");
    let rows = "weight,3x4\nbias,3\n";
    let model = Model::read("linear", rows).unwrap();
    let mut compared = 0;
    for (world_size, cases) in file["join_several"].as_object().unwrap() {
        let world_size: u32 = world_size.parse().unwrap();
        for (name, case) in cases.as_object().unwrap() {
            let Some((joinables, throw)) = name.split_once('/') else { continue };
            let joinables: Vec<_> = joinables
                .split(',')
                .map(|joinable| match joinable {
                    "ddp" => Joinable::Ddp,
                    _ => Joinable::Zero { parameters_as_bucket_view: false },
                })
                .collect();
            let throw_on_early_termination = throw == "throw=True";
            let join = JoinOptions { throw_on_early_termination, ..JoinOptions::default() };
            let inputs: Vec<u32> = (0..world_size).map(|rank| 2 + rank).collect();
            let options = DdpOptions::default();
            let on = BackendName::Gloo;
            let ranks = run_join_of(&joinables, &model, &options, &inputs, join, 1, on).unwrap();
            for (rank, done) in ranks.iter().enumerate() {
                let of = |value: &Value| match value.get("per_rank") {
                    Some(ranks) => ranks[rank].clone(),
                    None => value.clone(),
                };
                let about = format!("{name}, rank {rank} of {world_size}");
                let error = of(&case["error"]);
                let text = done.error.as_ref().map(ToString::to_string);
                assert_eq!(text.as_deref(), error.as_str(), "{about}");
                let mut after = Vec::new();
                for (own, truth) in done.iterations.iter().zip(list(&of(&case["iterations"]))) {
                    if truth.get("forward").is_none() {
                        // It raised inside its forward pass.
                        after.extend(own.forward.clone());
                        continue;
                    }
                    for (own, part) in [
                        (&own.forward, "forward"),
                        (&own.backward, "backward"),
                        (&own.optimizer, "optimizer"),
                    ] {
                        assert_eq!(events(own), truth[part], "{about}, {part}");
                    }
                }
                assert_eq!(done.iterations.len(), list(&of(&case["iterations"])).len(), "{about}");
                after.extend(done.after.clone());
                assert_eq!(events(&after), of(&case["after"]), "{about}");
                compared += 1;
            }
        }
        let (options, join) = (DdpOptions::default(), JoinOptions::default());
        let error = run_join_of(&[], &model, &options, &[1], join, 1, BackendName::Gloo);
        let error = error.unwrap_err();
        assert_eq!(error.to_string(), cases["empty"].as_str().unwrap());
    }
    assert_eq!(compared, 4 * (2 + 3));
}
