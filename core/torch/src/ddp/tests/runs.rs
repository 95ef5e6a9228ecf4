//! `ddp_runs`: the records of `docs/ddp_record.py`, each run replayed with its own arguments.

use super::{list, recorded};
use crate::ddp::model::Model;
use crate::ddp::*;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::BackendName;
use serde_json::Value;

const RUNS: [&str; 22] = [
    "bert_like",
    "branches_find_unused",
    "branches_find_unused_accumulate",
    "branches_static_graph",
    "changing_find_unused",
    "checkpoint_static_graph",
    "experts_find_unused",
    "experts_static_find_unused_fp16",
    "mlp_cap0_accumulate",
    "mlp_cap_1",
    "mlp_default",
    "mlp_fp16",
    "odd_cap0_bucket_view_accumulate",
    "odd_set_last_bucket_cap",
    "odd_static_graph",
    "orders_set_last_static_graph",
    "resnet18",
    "resnet18_cap5_accumulate",
    "resnet18_find_unused_no_buffers",
    "sparse_embeddings",
    "transformer_cap_0.5",
    "transformer_find_unused",
];

/// Runs that raised, with their own arguments; the recorder wrote how many passes there were to be.
#[test]
fn what_a_run_raised_is_raised_here_after_the_same_calls() {
    let replayed = |name: &str, options: &DdpOptions, backend| {
        let text = recorded(&format!("ddp_runs/{name}.json")).to_string();
        let model = Model::read(name, &text).unwrap();
        let truth = RecordedRun::read(&text).unwrap();
        assert_eq!(truth.iterations(), 3, "{name}");
        let (passes, accumulate) = (truth.iterations(), truth.accumulate());
        let report = DdpReport::accumulating(&model, options, 2, backend, passes, accumulate);
        report.map(|report| (truth.differences(&report), report.error))
    };
    let gloo = BackendName::Gloo;
    // Only the first of two passes inside no_sync() raises: the last would synchronize.
    let options = DdpOptions { static_graph: true, ..DdpOptions::default() };
    let (differences, error) = replayed("raises_static_graph_accumulate", &options, gloo).unwrap();
    assert_eq!(differences, Vec::<String>::new());
    assert!(error.unwrap().contains("expect_autograd_hooks_"));
    // A static graph that changes: in the backward pass that uses more, or behind one that uses less.
    for (change, half, about) in [
        ("used_later", Half::Backward, "Your training graph has changed in this iteration"),
        ("unused_later", Half::Forward, "Expected to have finished reduction"),
    ] {
        let name = format!("raises_static_graph_{change}");
        let (differences, error) = replayed(&name, &options, gloo).unwrap();
        assert_eq!(differences, Vec::<String>::new(), "{name}");
        assert!(error.unwrap().contains(about), "{name}");
        // The plan of such a run ends there too.
        let text = recorded(&format!("ddp_runs/{name}.json")).to_string();
        let model = Model::read(&name, &text).unwrap();
        let device = crate::ddp::model::Device::named("A100").unwrap();
        let training =
            plan::Training { options: options.clone(), ..plan::Training::new(2, device) };
        let run = plan::training_run_as_far(&model, &training).unwrap();
        let (step, raised_in, error) = run.roles[0].raised().unwrap();
        assert_eq!((step, raised_in), (if half == Half::Backward { 2 } else { 3 }, half), "{name}");
        assert!(error.to_string().starts_with(about), "{name}");
    }
    // A layer inside two reentrant checkpoints: its gradients come twice, and no walk finds them.
    for (name, find_unused_parameters) in [("twice", false), ("find_unused", true)] {
        let options = DdpOptions { find_unused_parameters, ..DdpOptions::default() };
        let name = format!("raises_checkpoint_{name}");
        let (differences, error) = replayed(&name, &options, gloo).unwrap();
        assert_eq!(differences, Vec::<String>::new(), "{name}");
        assert!(error.unwrap().contains("Expected to mark a variable ready only once"), "{name}");
    }
    // The first gradient that raises is not the last that comes: those that never came are in the file.
    let options = DdpOptions { find_unused_parameters: true, ..DdpOptions::default() };
    let (differences, error) = replayed("raises_checkpoint_unused", &options, gloo).unwrap();
    assert_eq!(differences, Vec::<String>::new());
    assert!(error.unwrap().contains("Expected to mark a variable ready only once"));
    // With TORCH_DISTRIBUTED_DEBUG=DETAIL errors name parameters, those of the model itself with a dot.
    let options = DdpOptions { debug: true, ..DdpOptions::default() };
    let (differences, error) = replayed("raises_debug_detail", &options, gloo).unwrap();
    assert_eq!(differences, Vec::<String>::new());
    assert!(error.unwrap().contains("for rank 0: skip.bias, skip.weight, .u\n"));
    // The module's own exception is none of DDP's.
    let (differences, error) = replayed("raises_of_module", &DdpOptions::default(), gloo).unwrap();
    assert_eq!((differences, error), (Vec::new(), None));
    // A last pass that leaves a bucket over is none that raises.
    let cap = BucketCap::from_mb(5.0).unwrap();
    let options = DdpOptions { bucket_cap: cap, ..DdpOptions::default() };
    let (differences, error) = replayed("accumulate_left_over", &options, gloo).unwrap();
    assert_eq!((differences, error), (Vec::new(), None));
    let hook = Some(CommHook::compress(Dtype::Float16));
    let options = DdpOptions { comm_hook: hook, ..DdpOptions::default() };
    let (differences, error) = replayed("raises_sparse_fp16", &options, gloo).unwrap();
    assert_eq!(differences, Vec::<String>::new());
    assert!(error.unwrap().contains("\"cadd_sparse\" not implemented for 'Half'"));
    // Elsewhere nothing is known of it.
    let (differences, _) = replayed("raises_sparse_fp16", &options, BackendName::Host).unwrap();
    assert!(differences[0].starts_with("raised: here nothing, there"), "{differences:?}");
    // The buffers of a lazy BatchNorm cannot be copied: the recorder asks DDP all the same.
    let refused = replayed("raises_lazy_batch_norm", &DdpOptions::default(), gloo).unwrap_err();
    let there = recorded("ddp_runs/raises_lazy_batch_norm.json")["error"].clone();
    assert_eq!(there, format!("{}: {refused}", refused.class()));
}

/// Hooks on gloo: their errors, and their treatment of a sparse gradient.
#[test]
fn hooks_raise_over_gloo_what_was_recorded() {
    let file = recorded("hook_errors.json");
    let state = PowerSgd { start_iter: 2, ..PowerSgd::default() };
    let (power, batched) = (HookAlgorithm::PowerSgd(state), HookAlgorithm::BatchedPowerSgd(state));
    let hook = |name: &str| match name {
        "fp16_compress_hook" => CommHook::compress(Dtype::Float16),
        "bf16_compress_hook" => CommHook::compress(Dtype::Bfloat16),
        "fp16_compress_wrapper(allreduce_hook)" => {
            CommHook::wrapping(Dtype::Float16, HookAlgorithm::AllReduce)
        }
        "fp16_compress_wrapper(powerSGD_hook)" => CommHook::wrapping(Dtype::Float16, power),
        "fp16_compress_wrapper(bf16_compress_hook)" => {
            CommHook::wrapping(Dtype::Float16, HookAlgorithm::Compress(Dtype::Bfloat16))
        }
        "bf16_compress_wrapper(fp16_compress_hook)" => {
            CommHook::wrapping(Dtype::Bfloat16, HookAlgorithm::Compress(Dtype::Float16))
        }
        "bf16_compress_wrapper(quantization_pertensor_hook)" => {
            CommHook::wrapping(Dtype::Bfloat16, HookAlgorithm::QuantizationPerTensor)
        }
        "powerSGD_hook" => CommHook::new(power),
        "batched_powerSGD_hook" => CommHook::new(batched),
        "quantization_pertensor_hook" => CommHook::new(HookAlgorithm::QuantizationPerTensor),
        "quantization_perchannel_hook" => CommHook::new(HookAlgorithm::QuantizationPerChannel),
        other => panic!("{other}"),
    };
    let sparse = r#"{"params": [["e.weight", [50, 16], 800, "float32", true],
        ["l.weight", [4, 16], 64, "float32", true], ["l.bias", [4], 4, "float32", true]],
        "sparse": ["e.weight"]}"#;
    let sparse = Model::read("sparse", sparse).unwrap();
    let dense = crate::ddp::model::named("mlp:64,128,10").unwrap();
    let mut compared = 0;
    for (case, truth) in file["cases"].as_object().unwrap() {
        let (kind, name) = case.split_once(", ").unwrap();
        let model = if kind == "sparse" { &sparse } else { &dense };
        let options = DdpOptions { comm_hook: Some(hook(name)), ..DdpOptions::default() };
        let run = |backend| DdpReport::accumulating(model, &options, 2, backend, 4, 1).unwrap();
        let report = run(BackendName::Gloo);
        assert_eq!(report.error.as_deref(), truth["error"].as_str(), "{case}");
        // Operations that sparse tensors lack are missing on every device.
        let on_cpu = report.error.as_ref().filter(|error| error.contains("SparseCPU"));
        let on_gpu = on_cpu.map(|error| error.replace("SparseCPU", "SparseCUDA"));
        assert_eq!(run(BackendName::Nccl).error, on_gpu, "{case}");
        for (pass, calls) in (1..).zip(list(&truth["calls"])) {
            let call = |call: &Value| (call[1].as_str().unwrap().to_owned(), call[2].as_u64());
            let mut there: Vec<_> = list(calls).iter().map(call).collect();
            let here = report.calls(pass, Phase::Backward);
            let mut here: Vec<_> =
                here.map(|call| (call.dtype.to_string(), Some(call.numel))).collect();
            // Callbacks of several buckets run in any order.
            there.sort();
            here.sort();
            assert_eq!(here, there, "{case}, pass {pass}");
            compared += here.len();
        }
        if let Some(stats) = truth["stats"].as_array() {
            let here = report.compression.unwrap();
            assert_eq!(stats, &[here.before, here.after].map(Value::from), "{case}");
        }
    }
    assert!(compared > 20, "{compared}");
}

#[test]
fn no_run_differs() {
    for name in RUNS.into_iter().chain(["transformer_static_graph"]) {
        let file = recorded(&format!("ddp_runs/{name}.json"));
        let text = file.to_string();
        let model = Model::read(name, &text).unwrap();
        let flag = |key: &str, default| file[key].as_bool().unwrap_or(default);
        let options = DdpOptions {
            bucket_cap: match file["bucket_cap_mb"].as_f64() {
                Some(mb) => BucketCap::from_mb(mb).unwrap(),
                None => BucketCap::Default,
            },
            find_unused_parameters: flag("find_unused_parameters", false),
            static_graph: flag("static_graph", false),
            broadcast_buffers: flag("broadcast_buffers", true),
            init_sync: flag("init_sync", true),
            gradient_as_bucket_view: flag("gradient_as_bucket_view", false),
            set_last_bucket_cap: flag("set_last_bucket_cap", false),
            comm_hook: file["comm_hook"].as_str().map(|_| CommHook::compress(Dtype::Float16)),
            ..DdpOptions::default()
        };
        let truth = RecordedRun::read(&text).unwrap();
        let report = |options: &DdpOptions, accumulate| {
            let (gloo, passes) = (truth.backend(), truth.iterations());
            DdpReport::accumulating(&model, options, 2, gloo, passes, accumulate).unwrap()
        };
        let own = report(&options, truth.accumulate());
        assert_eq!(truth.differences(&own), Vec::<String>::new(), "{name}");
        assert!(truth.iterations() as usize == list(&file["iterations"]).len());
        // Other arguments are told apart.
        let other = DdpOptions { bucket_cap: BucketCap::Bytes(77_777), ..options.clone() };
        assert!(!truth.differences(&report(&other, truth.accumulate())).is_empty(), "{name}");
        let more = report(&options, truth.accumulate() + 1);
        assert!(!truth.differences(&more).is_empty(), "{name}");
    }
}
