//! `ddp_errors.json`, as far as this crate expresses it.
//!
//! Not replayed: `uneven_iterations_without_join`, `one_rank_raises`, `one_rank_exits`,
//! `no_sync_on_one_rank`, whose errors are gloo's for a peer that is gone.

use super::models::{mlp_small, one_layer};
use super::{list, recorded};
use crate::ddp::model::Model;
use crate::ddp::verify::verify_zero_types;
use crate::ddp::*;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::BackendName;
use serde_json::Value;

fn case(name: &str) -> Value {
    recorded("ddp_errors.json")["cases"][name].clone()
}

fn assert_raised(case: &Value, error: &DdpError) {
    assert_eq!(case["outcome"], "raised");
    assert_eq!(case["type"], error.class());
    assert_eq!(case["text"], error.to_string());
}

#[test]
fn models_that_differ_between_ranks() {
    let different = case("different_number_of_params");
    let (both, one) = (vec![vec![4, 4], vec![4]], vec![vec![4, 4]]);
    for (rank, verdict) in verify_params(&[both, one]).into_iter().enumerate() {
        assert_raised(&different[format!("rank{rank}")], &verdict.unwrap_err());
    }
    let shapes = case("different_shape");
    let verdicts = verify_params(&[vec![vec![4, 4], vec![4]], vec![vec![5, 4], vec![5]]]);
    // Rank 0 notices only that its peer has gone.
    assert_eq!(verdicts[0], Ok(()));
    assert_raised(&shapes["rank1"], verdicts[1].as_ref().unwrap_err());
    assert_eq!(case("different_dtype")["rank0"]["outcome"], "ok");
}

#[test]
fn models_without_anything_to_train() {
    let mut frozen = one_layer();
    for param in &mut frozen.params {
        param.requires_grad = false;
    }
    let empty = Model { params: Vec::new(), layers: Vec::new(), ..one_layer() };
    for (name, model) in [("no_grad_params", frozen), ("no_params", empty)] {
        let error = Ddp::new(0, &model, &DdpOptions::default()).unwrap_err();
        assert_raised(&case(name)["rank0"], &error);
    }
}

#[test]
fn a_lazy_module_that_saw_no_batch() {
    let mut text: Value = serde_json::json!({
        "params": [["0.weight", [0], 0, "float32", true], ["1.weight", [4, 4], 16, "float32", true]],
        "uninitialized": ["0.weight"],
    });
    let model = Model::read("lazy", &text.to_string()).unwrap();
    let error = Ddp::new(0, &model, &DdpOptions::default()).unwrap_err();
    assert_raised(&case("uninitialized_param")["rank0"], &error);
    text["uninitialized"] = serde_json::json!(["0.wait"]);
    let refused = Model::read("lazy", &text.to_string()).unwrap_err().to_string();
    assert!(refused.contains("\"uninitialized\""), "{refused}");
}

#[test]
fn devices_of_a_module_on_the_cpu() {
    let raised = |version, backend, devices| {
        verify_device_ids(&DdpOptions { version, ..DdpOptions::default() }, backend, devices)
    };
    let new = DdpVersion::V2_7;
    let error = raised(new, BackendName::Gloo, 1).unwrap_err();
    assert_raised(&case("device_ids_on_cpu")["rank0"], &error);
    assert_eq!(raised(new, BackendName::Nccl, 1), Ok(()));
    assert_eq!(raised(new, BackendName::Nccl, 2), Err(DdpError::DeviceIds));
    assert_eq!(raised(DdpVersion::V1, BackendName::Gloo, 2), Ok(()));
}

#[test]
fn types_that_gloo_does_not_know() {
    let mut model = one_layer();
    model.params[0].dtype = Dtype::Complex64;
    let raised = |options: &DdpOptions, backend| verify_types(&model, options, backend);
    let error = raised(&DdpOptions::default(), BackendName::Gloo).unwrap_err();
    // As `errors.json` has it of gloo's other calls.
    assert_eq!(
        (error.class(), error.to_string().as_str()),
        ("RuntimeError", "Invalid scalar type")
    );
    assert_eq!(raised(&DdpOptions::default(), BackendName::Nccl), Ok(()));
    let ignored = vec![model.params[0].name.clone()];
    let options = DdpOptions { ignored, ..DdpOptions::default() };
    assert_eq!(raised(&options, BackendName::Gloo), Ok(()));
}

#[test]
fn caps_of_zero_and_less() {
    let bytes = |buckets: &[Bucket]| {
        buckets.iter().map(|bucket| bucket.bytes.to_string()).collect::<Vec<_>>().join(", ")
    };
    let run = |mb| {
        let options =
            DdpOptions { bucket_cap: BucketCap::from_mb(mb).unwrap(), ..DdpOptions::default() };
        let (mut ddp, _) = Ddp::new(0, &one_layer(), &options).unwrap();
        let initial = bytes(ddp.reducer().unwrap().buckets());
        for _ in 0..2 {
            ddp.forward(&Forward::default(), &mut Vec::new()).unwrap();
            ddp.backward(&[1, 0], &mut Vec::new()).unwrap();
        }
        (initial, bytes(ddp.reducer().unwrap().buckets()))
    };
    let zero = &case("zero_bucket_cap")["rank0"]["value"];
    let (initial, rebuilt) = run(0.0);
    assert_eq!(zero["bucket_sizes"], initial);
    assert_eq!(zero["rebuilt_bucket_sizes"], rebuilt);
    assert_eq!(case("negative_bucket_cap")["rank0"]["value"], run(-1.0).1);
    let refused = DdpOptions {
        bucket_cap: BucketCap::Bytes(-1),
        find_unused_parameters: true,
        ..DdpOptions::default()
    };
    assert_eq!(Ddp::new(0, &one_layer(), &refused).unwrap_err().class(), "TypeError");
}

#[test]
fn passes_out_of_order() {
    let (mut ddp, _) = Ddp::new(0, &mlp_small(), &DdpOptions::default()).unwrap();
    let order = mlp_small().grad_ready_order();
    let mut calls = Vec::new();
    // Two forward passes, one backward pass; then that backward pass again.
    ddp.forward(&Forward::default(), &mut calls).unwrap();
    ddp.forward(&Forward::default(), &mut calls).unwrap();
    ddp.backward(&order, &mut calls).unwrap();
    assert_eq!(calls.len(), 1);
    ddp.backward(&order, &mut calls).unwrap();
    assert_eq!(calls.len(), 1, "the second one is not reduced");
    for name in ["two_forwards_one_backward", "backward_twice_retain"] {
        assert_eq!(case(name)["rank0"]["outcome"], "ok", "{name}");
    }
    // An output that is not in the loss gets undefined gradients, which fire the hooks as well.
    let options = DdpOptions { find_unused_parameters: true, ..DdpOptions::default() };
    let (mut ddp, _) = Ddp::new(0, &mlp_small(), &options).unwrap();
    for _ in 0..3 {
        ddp.forward(&Forward::default(), &mut calls).unwrap();
        ddp.backward(&order, &mut calls).unwrap();
    }
    assert_eq!(case("output_not_in_loss_find_unused")["rank0"]["outcome"], "ok");
}

#[test]
fn a_gradient_that_comes_twice() {
    let options = DdpOptions { debug: true, ..DdpOptions::default() };
    let (mut ddp, _) = Ddp::new(0, &mlp_small(), &options).unwrap();
    let mut calls = Vec::new();
    ddp.forward(&Forward::default(), &mut calls).unwrap();
    ddp.gradient(5, &mut calls).unwrap();
    let error = ddp.gradient(5, &mut calls).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("at index 5 with name layers.2.bias has been marked"), "{text}");
    // A static graph counts how often a parameter is used, and reduces after the last.
    let options = DdpOptions { static_graph: true, ..DdpOptions::default() };
    let (mut ddp, _) = Ddp::new(0, &mlp_small(), &options).unwrap();
    for _ in 0..3 {
        calls.clear();
        ddp.forward(&Forward::default(), &mut Vec::new()).unwrap();
        ddp.backward(&[5, 5, 4, 3, 2, 1, 0, 0], &mut calls).unwrap();
        let buckets = calls.iter().filter(|call| matches!(call.purpose, Purpose::Bucket { .. }));
        assert_eq!(buckets.count(), 1);
    }
}

/// The calls of hooks, by the formulas of their sources.
#[test]
fn hooks_communicate_what_their_sources_say() {
    let run = |hook, iterations| {
        let options = DdpOptions { comm_hook: Some(hook), ..DdpOptions::default() };
        let (mut ddp, _) = Ddp::new(0, &mlp_small(), &options)?;
        let mut last = Vec::new();
        for _ in 0..iterations {
            last.clear();
            ddp.forward(&Forward::default(), &mut Vec::new())?;
            ddp.backward(&mlp_small().grad_ready_order(), &mut last)?;
        }
        Ok::<_, DdpError>(last.iter().map(|c| (c.name(), c.dtype, c.numel)).collect::<Vec<_>>())
    };
    use Dtype::{Bfloat16, Float16, Float32, Uint8};
    let all = 26_122;
    assert_eq!(run(CommHook::compress(Float16), 1).unwrap(), [("all_reduce", Float16, all)]);
    assert_eq!(run(CommHook::compress(Bfloat16), 1).unwrap(), [("all_reduce", Bfloat16, all)]);
    assert_eq!(run(CommHook::new(HookAlgorithm::Noop), 1).unwrap(), []);
    let state = PowerSgd { matrix_approximation_rank: 2, start_iter: 2, ..PowerSgd::default() };
    let power = |state| CommHook::new(HookAlgorithm::PowerSgd(state));
    assert_eq!(run(power(state), 2).unwrap(), [("all_reduce", Float32, all)]);
    // 10 x 128: (10 + 128) * 2 * 2 = 552 < 1280, so all three weights are compressed; the biases
    // (n x 1) are not.
    let (p, q) = (2 * (128 + 128 + 10), 2 * (64 + 128 + 128));
    let parts = [266, p, q].map(|numel| ("all_reduce", Float32, numel));
    assert_eq!(run(power(state), 3).unwrap(), parts);
    let wrapped = CommHook::wrapping(Float16, power(state).algorithm);
    assert_eq!(run(wrapped, 3).unwrap(), parts.map(|(name, _, n)| (name, Float16, n)));
    let early = PowerSgd { start_iter: 1, ..state };
    assert_eq!(run(power(early), 1), Err(DdpError::PowerSgdStart));
    let batched = CommHook::new(HookAlgorithm::BatchedPowerSgd(state));
    // The square has 162 rows: 161^2 = 25,921.
    assert_eq!(run(batched, 3).unwrap(), [("all_reduce", Float32, 324); 2]);
    let quantized = |algorithm| run(CommHook::new(algorithm), 1).unwrap();
    assert_eq!(
        quantized(HookAlgorithm::QuantizationPerTensor),
        [("all_gather", Float32, 2), ("all_gather", Uint8, all)]
    );
    assert_eq!(
        quantized(HookAlgorithm::QuantizationPerChannel),
        [("all_gather", Float32, 104), ("all_gather", Uint8, 52 * 512)]
    );
    let local = |post_local_gradient_allreduce| {
        let state = PostLocalSgd { start_iter: 1, subgroup: 8, post_local_gradient_allreduce };
        CommHook::new(HookAlgorithm::PostLocalSgd(state))
    };
    assert_eq!(run(local(false), 1).unwrap().len(), 1);
    assert_eq!(run(local(false), 2).unwrap().len(), 0);
    assert_eq!(run(local(true), 2).unwrap().len(), 1);
    assert!(list(&recorded("last_bucket_cap.json")["rows"]).len() > 5);
}

/// The errors of PyTorch 2.7.1 for types that a buffer of delayed gradients, or a sharded
/// optimizer, does not take.
#[test]
fn types_that_do_not_go_with_what_stands_around_the_reducer() {
    let model = |second: &str| {
        let text = format!(
            r#"{{"params": [["a", [2, 2], 4, "float32", true], ["b", [2], 2, "{second}", false],
            ["c", [2], 2, "float32", true]]}}"#
        );
        Model::read("m", &text).unwrap()
    };
    let options = |delayed: &[&str]| DdpOptions {
        delay_all_reduce_named_params: Some(delayed.iter().map(|name| (*name).into()).collect()),
        param_to_hook_all_reduce: Some("c".into()),
        ..DdpOptions::default()
    };
    for (dtype, name) in [
        ("float64", "double"),
        ("float16", "c10::Half"),
        ("bfloat16", "c10::BFloat16"),
        ("complex64", "c10::complex<float>"),
        ("float8_e4m3fn", "c10::Float8_e4m3fn"),
    ] {
        let (mut ddp, _) = Ddp::new(0, &model(dtype), &options(&["a", "b"])).unwrap();
        let error = ddp.forward(&Forward::default(), &mut Vec::new()).unwrap_err();
        assert_eq!(
            format!("{}: {error}", error.class()),
            format!(
                "RuntimeError: attempting to assign a gradient with dtype 'float' to a tensor with \
                 dtype '{name}'. Please ensure that the gradient and the tensor have the same dtype"
            )
        );
    }
    let (mut ddp, _) = Ddp::new(0, &model("float64"), &options(&["a"])).unwrap();
    assert_eq!(ddp.forward(&Forward::default(), &mut Vec::new()), Ok(()));

    let said = |dtype: &str, backend| {
        let error = verify_zero_types(&model(dtype), backend).unwrap_err();
        format!("{}: {error}", error.class())
    };
    let only = "ValueError: ZeroRedundancyOptimizer only supports using the same dense type for all \
                parameters but got both";
    assert_eq!(
        said("bfloat16", BackendName::Gloo),
        format!("{only} torch.FloatTensor and torch.BFloat16Tensor")
    );
    assert_eq!(
        said("float16", BackendName::Nccl),
        format!("{only} torch.cuda.FloatTensor and torch.cuda.HalfTensor")
    );
    assert_eq!(verify_zero_types(&model("float32"), BackendName::Gloo), Ok(()));
}
