//! Models compared with PyTorch's records and their authors' publications.

use super::*;
use crate::ddp::parse_indices;
use crate::ddp::tests::{list, recorded};
use serde_json::{Value, json};

fn entries(params: &[Parameter]) -> Value {
    let entry = |p: &Parameter| json!([p.name, p.shape, p.numel(), p.dtype, p.requires_grad]);
    params.iter().map(entry).collect()
}

#[test]
fn every_shipped_model_that_was_recorded_is_equal() {
    let models = recorded("models.json");
    let mut compared = 0;
    for (name, truth) in models["models"].as_object().unwrap() {
        let Some(model) = named(name.trim_end_matches("-bf16")) else { continue };
        compared += 1;
        assert_eq!(entries(&model.params), truth["params"], "{name}");
        assert_eq!(json!(model.tied), truth["tied"], "{name}");
        let buffer = |b: &Buffer| json!([b.name, b.shape, b.numel(), b.dtype]);
        assert_eq!(model.buffers.iter().map(buffer).collect::<Value>(), truth["buffers"], "{name}");
    }
    assert_eq!(compared, 6, "resnet18, resnet50, vit_b_16, bert-base, gpt2-small, llama");
}

#[test]
fn every_recorded_ready_order_follows_from_the_layers() {
    let (models, runs) = (recorded("models.json"), recorded("buckets.json"));
    let mut compared = 0;
    for run in list(&runs["runs"]) {
        let name = run["model"].as_str().unwrap();
        let truth = parse_indices(run["grad_ready_order"].as_str().unwrap()).unwrap();
        if let Some(model) = named(name.trim_end_matches("-bf16")) {
            assert_eq!(model.grad_ready_order(), truth, "{name}");
            compared += 1;
        }
        // As a file, without an order: recognised, or taken as layers in reverse.
        let text = models["models"][name].to_string();
        let mut file = Model::read(name, &text).unwrap();
        assert_eq!(file.grad_ready_order(), truth, "{name} from a file");
        file.recorded_ready_order = Some(truth.clone());
        let ready: Vec<u32> = file.backward().into_iter().flat_map(|(_, ready)| ready).collect();
        assert_eq!(ready, truth);
    }
    assert!(compared > 40, "{compared}");
}

#[test]
fn mlps_are_written_as_recorded() {
    let models = recorded("models.json");
    for (name, sizes) in
        [("mlp", &[1024, 4096, 4096, 4096, 1000][..]), ("mlp-small", &[64, 128, 128, 10])]
    {
        let model = mlp(name, sizes, Dtype::Float32);
        assert_eq!(entries(&model.params), models["models"][name]["params"]);
    }
    assert_eq!(named("mlp:64,128,10").unwrap().params.len(), 4);
    assert!(named("mlp:64").is_none() && named("mlp:64,x").is_none() && named("mlp:0,5").is_none());
}

/// Parameters that were not recorded one by one, by their published numbers (torchvision's
/// `num_params`, transformers' `num_parameters()`), and VGG-16 and BERT-large also by the
/// constructor's recorded broadcasts.
#[test]
fn the_numbers_of_parameters_are_the_published_ones() {
    for (name, params) in [
        ("ResNet-18", 11_689_512),
        ("ResNet-50", 25_557_032),
        ("ResNet-152", 60_192_808),
        ("VGG-16", 138_357_544),
        ("ViT-B/16", 86_567_656),
        ("BERT-base", 109_482_240),
        ("bert-large", 335_141_888),
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("GPT-2 XL", 1_557_611_200),
        ("llama-1b", 1_235_814_400),
        ("llama3-8b", 8_030_261_248),
    ] {
        let model = named(name).unwrap();
        let total: u64 = model.params.iter().map(Parameter::numel).sum();
        assert_eq!(total, params, "{name}");
        let mut order = model.grad_ready_order();
        order.sort_unstable();
        assert!(order.iter().copied().eq(0..model.params.len() as u32), "{name}");
    }
    for name in known_models() {
        assert_eq!(named(name).unwrap().name, name);
    }
}

/// torchvision publishes the multiplications of its models (`_ops` of the weights, in 10^9).
#[test]
fn the_operations_are_the_published_ones() {
    for (name, giga, tolerance_permille) in [
        ("resnet18", 1.814, 10),
        ("resnet50", 4.089, 10),
        ("resnet152", 11.514, 10),
        ("vgg16", 15.470, 5),
        ("vit_b_16", 17.564, 30),
    ] {
        let flops: u64 = named(name).unwrap().layers.iter().map(|layer| layer.cost.flops).sum();
        let published = (giga * 2e9) as u64;
        let off = flops.abs_diff(published) * 1000 / published;
        assert!(off <= tolerance_permille, "{name}: {flops} against {published}");
    }
}

#[test]
fn a_device_takes_the_larger_of_arithmetic_and_memory() {
    let device = Device {
        name: "d".into(),
        float32_flops: 1_000_000_000_000,
        half_flops: 4_000_000_000_000,
        bytes_per_second: 100_000_000_000,
        efficiency_percent: 50,
    };
    let heavy = Cost { flops: 5_000_000, activation_bytes: 0, weight_bytes: 1000 };
    assert_eq!(device.forward_ns(&heavy, Dtype::Float32, 1), 10_000);
    assert_eq!(device.forward_ns(&heavy, Dtype::Bfloat16, 1), 2_500);
    assert_eq!(device.backward_ns(&heavy, Dtype::Float32, 2), 40_000);
    let wide = Cost { flops: 1, activation_bytes: 40_000, weight_bytes: 10_000 };
    assert_eq!(device.forward_ns(&wide, Dtype::Float32, 1), 1_000);
    assert_eq!(device.forward_ns(&wide, Dtype::Float32, 2), 1_800);
    assert!(Device::named("a100").is_some() && Device::named("abacus").is_none());
}

#[test]
fn files_are_read_and_refused() {
    let csv = "name,shape,dtype,requires_grad\nfc.weight,10x20,bfloat16,true\nfc.bias,10,,false\n";
    let model = Model::read("mine", csv).unwrap();
    assert_eq!((model.params[0].numel(), model.params[0].dtype), (200, Dtype::Bfloat16));
    assert!(!model.params[1].requires_grad && model.params[1].dtype == Dtype::Float32);
    assert_eq!(model.trained_indices(), [Some(0), None]);
    let quoted = Model::read("q", "\"a,b\", 10x10\n\"c\"\"d\" ,\"3\",float32\n").unwrap();
    let names: Vec<_> = quoted.params.iter().map(|p| (p.name.as_str(), p.numel())).collect();
    assert_eq!(names, [("a,b", 100), ("c\"d", 3)]);
    let json = r#"{"params": [["a", [2], 2, "float32", true], ["b", [3], 3, "float32", true]],
                   "grad_ready_order": "0-1", "sparse": ["b"]}"#;
    let model = Model::read("mine", json).unwrap();
    assert_eq!(model.grad_ready_order(), [0, 1]);
    assert!(model.params[1].sparse && !model.params[0].sparse);
    for (text, about) in [
        ("{}", "params"),
        (r#"{"params": [["a", [2], 3, "float32", true]]}"#, "2 elements, not 3"),
        (r#"{"params": [["a", [2], 2, "float7", true]]}"#, "float7"),
        (r#"{"params": [["a", [2], 2, "float32", true]], "grad_ready_order": [1]}"#, "index 1"),
        (r#"{"params": [["a", [2], 2, "float32", true]], "reentrant": ["b"]}"#, "\"reentrant\""),
        (r#"{"params": [["a", [4294967296, 4294967296], 1, "float32", true]]}"#, "elements"),
        (r#"{"params": [["a", [2], 2, "float32", true]], "sparse": ["z"]}"#, "\"z\": it is listed"),
        (r#"{"params": [["a", [2], 2, "float32", true]], "tied": [["x", "no"]]}"#, "\"no\""),
        (r#"{"params": [["a", [2], 2, "float32", true]], "tied": [["a", "a"]]}"#, "an alias"),
        (
            r#"{"params": [["a", [2], 2, "float32", true]], "tied": [["b", "a"]],
                "buffers": [["b", [1], 1, "float32"]]}"#,
            "and a buffer as well",
        ),
        (
            r#"{"params": [["a", [2], 2, "float32", true]], "tied": [["b", "a"], ["b", "a"]]}"#,
            "twice",
        ),
        (
            r#"{"params": [["a", [2], 2, "float32", true]], "uninitialized": ["a"]}"#,
            "write [0] and 0",
        ),
        (r#"{"params": [["a", [2], 2, "int64", true]]}"#, "can require gradients"),
        (
            r#"{"params": [["a", [2], 2, "float32", true]], "grad_ready_order": [0, -1]}"#,
            "-1 is no",
        ),
        (
            r#"{"params": [["a", [2], 2, "float32", true]], "grad_ready_order": 3}"#,
            "neither a list",
        ),
        ("a,2,int64", "line 1"),
        ("\"a,2,float32", "quoted cell"),
        ("a,2y,float32", "line 1"),
        ("a", "two columns"),
        ("", "no parameter"),
        ("a,2,float32,perhaps", "perhaps"),
    ] {
        let error = Model::read("m", text).unwrap_err().to_string();
        assert!(error.contains(about), "{text}: {error}");
    }
}

#[test]
fn a_shared_parameter_is_ready_after_its_last_use() {
    let model = named("gpt2").unwrap();
    let backward = model.backward();
    assert_eq!(backward.len(), model.layers.len());
    assert_eq!(model.layers[backward[0].0.unwrap()].name, "lm_head");
    assert!(backward[0].1.is_empty());
    assert_eq!(backward.last().unwrap().1, [0]);
}

/// `"unused"` of passes that are all alike is the script's `--unused`.
#[test]
fn passes_that_leave_out_the_same_are_alike() {
    let of = |unused: &str| {
        let text = format!(
            r#"{{"params": [["a", [2], 2, "float32", true], ["b", [3], 3, "float32", true]],
                "unused": {unused}}}"#
        );
        Model::read("mine", &text).unwrap()
    };
    let without = of("[]").without(&[1]);
    for unused in [r#"[["b"]]"#, r#"[["b"], ["b"], ["b", "b"]]"#] {
        assert_eq!(*of(unused).with_equal_passes().unwrap(), without, "{unused}");
    }
    assert_eq!(*of("[]").with_equal_passes().unwrap(), of("[]"));
    assert!(of(r#"[["b"], []]"#).with_equal_passes().is_none());
}
