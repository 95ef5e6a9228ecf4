//! DistributedDataParallel.

use super::{assert_refused, json};
use lockstep_core::plan::Plan;
use lockstep_core::trace::Outcome::Completed;
use lockstep_sim::{SimConfig, simulate};
use lockstep_tests::{data, lockstep};
use serde_json::Value;
use std::fs;

#[test]
fn ddp_shows_the_buckets_of_resnet18() {
    let output = lockstep(["ddp", "--model", "resnet18", "--world-size", "8", "--json"]);
    assert_eq!(output.code, 0, "{output:?}");
    let report = json(&output);
    assert_eq!(report["rebuilt_bytes"], serde_json::json!([2_052_000, 28_852_224, 15_853_824]));
    assert_eq!(report["initial_bytes"], serde_json::json!([46_758_048]));
    assert_eq!(report["rebuilt"][0], serde_json::json!([61, 60]));
    assert_eq!(report["collectives"][0]["op"], "all_gather");
    let text = lockstep(["ddp", "--model", "ResNet-18"]).out;
    assert!(text.contains("28,852,224") && text.contains("fc.bias … fc.weight"), "{text}");
    let old = ["ddp", "--model", "resnet18", "--bucket-cap-mb", "35", "--version", "1.x", "--json"];
    let report = json(&lockstep(old));
    assert_eq!(report["rebuilt_bytes"], serde_json::json!([2_052_000, 38_297_600, 6_408_448]));
    assert_eq!(report["first_bytes"], 1 << 20);
    let unused = ["ddp", "--model", "resnet18", "--find-unused-parameters", "--json"];
    assert!(json(&lockstep(unused))["rebuilt"].is_null());
}

/// The records of real runs of PyTorch, with the options that they had.
#[test]
fn ddp_verifies_against_real_runs() {
    let runs: [(&str, &[&str]); 16] = [
        ("bert_like", &[]),
        ("branches_find_unused", &["--find-unused-parameters", "--bucket-cap-mb", "0.01"]),
        (
            "branches_find_unused_accumulate",
            &["--find-unused-parameters", "--bucket-cap-mb", "0.01"],
        ),
        ("branches_static_graph", &["--static-graph", "--bucket-cap-mb", "0.01"]),
        ("checkpoint_static_graph", &["--static-graph", "--bucket-cap-mb", "0.3"]),
        ("mlp_cap0_accumulate", &["--bucket-cap-mb", "0"]),
        ("mlp_default", &[]),
        (
            "mlp_fp16",
            &["--bucket-cap-mb", "0.02", "--no-init-sync", "--comm-hook", "fp16-compress"],
        ),
        ("resnet18", &[]),
        ("resnet18_cap5_accumulate", &["--bucket-cap-mb", "5"]),
        (
            "resnet18_find_unused_no_buffers",
            &["--find-unused-parameters", "--no-broadcast-buffers"],
        ),
        ("mlp_cap_1", &["--bucket-cap-mb", "1"]),
        ("sparse_embeddings", &[]),
        ("transformer_cap_0.5", &["--bucket-cap-mb", "0.5"]),
        ("transformer_find_unused", &["--find-unused-parameters"]),
        ("transformer_static_graph", &["--static-graph"]),
    ];
    for (name, options) in runs {
        let file = data("pytorch/ddp_runs").join(format!("{name}.json"));
        let file = file.to_str().unwrap();
        let words = ["ddp", "--model", file, "--verify-against", file];
        let same = lockstep(words.iter().chain(options));
        assert_eq!(same.code, 0, "{name}: {same:?}");
        assert!(same.out.contains("no difference"), "{same:?}");
        let other = lockstep(words.iter().chain(&["--bucket-cap-mb", "0.3", "--json"]));
        assert_eq!(other.code, 1, "{name}: {other:?}");
        assert!(json(&other)["differences"].as_array().unwrap().len() > 1);
    }
}

/// Writes a file, and returns its path.
fn written(folder: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// An MLP on gloo.
const ON_GLOO: [&str; 5] = ["ddp", "--model", "mlp:8,4", "--backend", "gloo"];

/// Fields that were not compared are named, and so are other options than those of the run; a
/// refusal is compared too.
#[test]
fn ddp_names_what_it_did_not_compare() {
    let folder = tempfile::tempdir().unwrap();
    let short = written(
        &folder,
        "short.json",
        r#"{"initial": [[0, 1]], "rebuilt": ["1,0"], "world_size": 3}"#,
    );
    let words = ["ddp", "--model", "mlp:8,4", "--verify-against", &short];
    let same = lockstep(words);
    assert_eq!(same.code, 0, "{same:?}");
    assert!(same.out.contains("does not hold it: grad_ready_order, construction, iterations"));
    let run = data("pytorch/ddp_runs/mlp_default.json");
    let run = run.to_str().unwrap();
    let words = ["ddp", "--model", run, "--verify-against", run];
    assert!(!lockstep(words).out.contains("not compared"));
    let more = lockstep(words.iter().chain(&["--world-size", "8"]));
    assert_eq!(more.code, 1, "{more:?}");
    assert!(more.out.contains("world_size: here 8, there 2"), "{more:?}");
    let run = data("pytorch/ddp_runs/mlp_negative_cap.json");
    let run = run.to_str().unwrap();
    let words = ["ddp", "--model", run, "--verify-against", run, "--find-unused-parameters"];
    let refused = lockstep(words.iter().chain(&["--bucket-cap-mb", "-1"]));
    assert_eq!(refused.code, 0, "{refused:?}");
    let text = "device_ids can only be None or contain a single element.";
    let refused =
        written(&folder, "refused.json", &format!(r#"{{"error": "ValueError: {text}"}}"#));
    let words = ["ddp", "--model", "mlp:8,4", "--verify-against", &refused];
    let same = lockstep(words.iter().chain(&["--device-ids", "2"]));
    assert_eq!(same.code, 0, "{same:?}");
    let shown = json(&lockstep(words.iter().chain(&["--device-ids", "2", "--json"])));
    assert_eq!(shown["differences"], serde_json::json!([]), "{shown}");
    let other = lockstep(words);
    assert!(other.code == 1 && other.out.contains("raised: here nothing"), "{other:?}");
}

/// Types, hooks and options that gloo does not know are refused where PyTorch refuses them.
#[test]
fn ddp_refuses_on_gloo_what_pytorch_refuses() {
    let folder = tempfile::tempdir().unwrap();
    let complex = written(&folder, "complex.csv", "w,4x4,complex64\n");
    let gloo = lockstep(["ddp", "--model", &complex, "--backend", "gloo"]);
    assert_refused(&gloo, "DDP raises RuntimeError: Invalid scalar type");
    let cpu = ["ddp", "--model", "mlp:8,4", "--backend", "gloo", "--device-ids", "1"];
    assert_refused(&lockstep(cpu), "got device_ids [0], output_device None");
    let refused = json(&lockstep(cpu.iter().chain(&["--json"])));
    assert!(refused["error"].as_str().unwrap().starts_with("ValueError: Distrib"), "{refused}");
    let cpu = ["ddp", "--model", "resnet18", "--backend", "gloo", "--sync-batch-norm"];
    assert_refused(&lockstep(cpu), "ValueError: SyncBatchNorm layers only work with GPU modules");
}

/// A step in which DDP raises is shown up to there, and what there is none of is named.
#[test]
fn ddp_shows_what_was_before_it_raises() {
    let folder = tempfile::tempdir().unwrap();
    let cpu = ON_GLOO;
    let hook = ["--comm-hook", "quantization-pertensor"];
    let raised = lockstep(cpu.iter().chain(&hook));
    assert!(raised.code == 1 && raised.out.contains("IndexError: invalid index"), "{raised:?}");
    let asked = ["--simulate", "--log", "--sweep", "0,25"];
    let raised = lockstep(cpu.iter().chain(&hook).chain(&asked));
    let place = "DDP raises in the backward pass of iteration 1: RuntimeError: Got the following";
    assert_eq!((raised.code, raised.out.matches(place).count()), (1, 2), "{raised:?}");
    assert!(raised.out.contains("no sweep: DDP raises RuntimeError"), "{raised:?}");
    let plan = folder.path().join("raises.json");
    let plan = plan.to_str().unwrap();
    let part = ["ddp", "--model", "mlp:8,8,4", "--unused", "layers.1", "--plan", plan, "--json"];
    let raised = lockstep(part.iter().chain(&asked));
    assert_eq!(raised.code, 1, "{raised:?}");
    let report = json(&raised);
    assert_eq!(report["error_at"], serde_json::json!({"iteration": 2, "phase": "forward"}));
    assert_eq!(report["simulated"].as_array().unwrap().len(), 1);
    assert_eq!(report["simulated_error"]["step"], 2);
    assert_eq!(report["simulated_error"]["error"], report["error"]);
    assert_eq!(report["missing"][0]["what"], "sweep");
    assert_eq!(report["log"]["numbers"]["world_size"], 2);
    // What runs the plan comes to the exception, and says so.
    let simulated = lockstep(["sim", plan]);
    assert_eq!(simulated.code, 1, "{simulated:?}");
    let said = ": exited with status 1: RuntimeError: Expected to have finished reduction \
                in the prior iteration";
    assert!(simulated.out.contains(said), "{simulated:?}");
    assert!(simulated.out.contains("Ranks 0-1 died at train.py:7: "), "{simulated:?}");
    assert!(simulated.out.contains("did not receive grad for this rank: 2 3"), "{simulated:?}");
}

/// Passes that all leave out the same are alike; others `join()` does not follow.
#[test]
fn ddp_tells_passes_that_change_from_those_that_are_alike() {
    let folder = tempfile::tempdir().unwrap();
    let changing = r#"{"params": [["a.weight", [4, 4], 16, "float32", true],
        ["b.weight", [4, 4], 16, "float32", true]], "unused": [["b"], []]}"#;
    let changing = written(&folder, "changing.json", changing);
    let raised = lockstep(["ddp", "--model", &changing, "--static-graph"]).out;
    let place =
        "in the backward pass of iteration 2: RuntimeError: Your training graph has changed";
    assert!(raised.contains(place), "{raised}");
    let join = ["--join", "3,2", "--find-unused-parameters"];
    let refused = lockstep(["ddp", "--model", &changing].iter().chain(&join));
    assert_refused(&refused, "lists different parameters for different passes");
    let with = |unused: &str| {
        let text = r#"{"name": "m", "params": [["a.weight", [4, 4], 16, "float32", true],
            ["b.weight", [4, 4], 16, "float32", true]], "unused": "#;
        written(&folder, "alike.json", &format!("{text}{unused}}}"))
    };
    let same = ["[[\"b\"]]", "[[\"b\"], [\"b\"]]"].map(|unused| {
        let path = with(unused);
        lockstep(["ddp", "--model", &path].iter().chain(&join))
    });
    let path = with("[]");
    let by_flag = lockstep(["ddp", "--model", &path, "--unused", "b"].iter().chain(&join));
    assert_eq!(by_flag.code, 0, "{by_flag:?}");
    for same in same {
        assert_eq!(same.out, by_flag.out);
    }
}

/// Steps that never happen are not shown, and what is not as in PyTorch is noted.
#[test]
fn ddp_notes_what_pytorch_would_do_otherwise() {
    let cpu = ON_GLOO;
    let alone = lockstep(["ddp", "--model", "mlp:8,4", "--world-size", "1", "--simulate"]).out;
    assert!(alone.contains("simulated on 1 rank, as"), "{alone}");
    let slow = ["ddp", "--model", "mlp:64,64", "--link-bytes-per-second", "1", "--simulate"];
    let slow = lockstep(slow);
    assert!(slow.code == 1 && !slow.out.contains("0.00 ns"), "{slow:?}");
    assert!(slow.out.contains("step 1 a collective does not complete within"), "{slow:?}");
    let power = ["--comm-hook", "power-sgd", "--bucket-cap-mb", "0", "--json"];
    let noted = json(&lockstep(cpu.iter().chain(&power)));
    assert!(noted["notes"][0].as_str().unwrap().contains("hangs over gloo"), "{noted}");
    // Its state's start is PyTorch's, behind what is followed.
    assert!(noted["notes"][1].as_str().unwrap().contains("begins in iteration 1001"), "{noted}");
    let early = ["--power-sgd-start-iter", "2"];
    let noted = json(&lockstep(cpu.iter().chain(&power).chain(&early)));
    assert_eq!(noted["notes"].as_array().unwrap().len(), 1, "{noted}");
    let noted = lockstep(cpu.iter().chain(&["--mixed-precision", "param=float16"]));
    assert!(noted.code == 0 && noted.out.contains("mixed_precision needs a GPU"), "{noted:?}");
    let batched = ["ddp", "--model", "mlp:8,4", "--comm-hook", "batched-power-sgd"];
    assert!(lockstep(batched).out.contains("raises an AssertionError"));
}

/// The recording says how many passes there were to be, and how many of them accumulate.
#[test]
fn ddp_takes_the_passes_of_a_recording() {
    let run = data("pytorch/ddp_runs/raises_static_graph_accumulate.json");
    let run = run.to_str().unwrap();
    let words = ["ddp", "--model", run, "--verify-against", run, "--static-graph"];
    let same = lockstep(words);
    assert!(same.code == 0 && same.out.contains("no difference"), "{same:?}");
    let run = data("pytorch/ddp_runs/mlp_cap0_accumulate.json");
    let run = run.to_str().unwrap();
    let words = ["ddp", "--model", run, "--verify-against", run, "--bucket-cap-mb", "0"];
    let logged = json(&lockstep(words.iter().chain(&["--log", "--json"])));
    assert_eq!(logged["log"]["numbers"]["iteration"], 2, "{logged}");
    let one = lockstep(["ddp", "--model", "mlp:8,4", "--device-ids", "1"]);
    assert!(one.code == 0 && !one.out.contains("replica"), "{one:?}");
    for (sizes, about) in [("mlp:10", "one size is no layer"), ("mlp:0,0", "\"0\" is no size")] {
        assert_refused(&lockstep(["ddp", "--model", sizes]), about);
    }
}

/// The report of a setting, as JSON.
fn shown(model: &str, words: &[&str]) -> Value {
    let output = lockstep(["ddp", "--model", model, "--json"].iter().chain(words));
    assert_eq!(output.code, 0, "{words:?}: {output:?}");
    json(&output)
}

/// The collectives of a phase: `all_reduce float32[212]`.
fn calls(report: &Value, iteration: u64, phase: &str) -> Vec<String> {
    let calls = report["collectives"].as_array().unwrap().iter();
    let of = calls.filter(|c| c["iteration"] == iteration && c["phase"] == phase);
    let text = |c: &Value, name: &str| c[name].as_str().unwrap().to_owned();
    of.map(|c| format!("{} {}[{}]", text(c, "op"), text(c, "dtype"), c["numel"])).collect()
}

const MLP: &str = "mlp:8,16,4";

/// Each flag changes what it says.
#[test]
fn ddp_has_a_flag_for_what_is_reduced() {
    let mlp = MLP;
    let report = shown(mlp, &["--accumulate", "2", "--iterations", "4"]);
    assert!(calls(&report, 1, "backward").is_empty());
    assert_eq!(calls(&report, 2, "backward"), ["all_reduce float32[212]"]);
    let report = shown(mlp, &["--mixed-precision", "param=float16,reduce=bfloat16"]);
    assert_eq!(calls(&report, 1, "backward"), ["all_reduce bfloat16[212]"]);
    let report = shown("resnet18", &["--mixed-precision", "buffer=float16"]);
    // The constructor broadcasts them as they were; later all are of one type.
    assert_eq!(calls(&report, 1, "forward"), ["broadcast float16[9620]"]);
    assert_eq!(calls(&report, 1, "backward"), ["all_reduce float32[11689512]"]);
    let report = shown(mlp, &["--grad-ready-order", "0,3,1-2"]);
    assert_eq!(report["rebuilt"], serde_json::json!([[0, 3, 1, 2]]));
    let report = shown(mlp, &["--ignore", "layers.1.bias"]);
    assert_eq!(calls(&report, 1, "backward"), ["all_reduce float32[208]"]);
    let delay = ["--delay-all-reduce-named-params", "layers.0.weight"];
    let hooked = ["--param-to-hook-all-reduce", "layers.1.weight"];
    let report = shown(mlp, &[delay, hooked].concat());
    assert_eq!(
        calls(&report, 1, "backward"),
        ["all_reduce float32[128]", "all_reduce float32[84]"]
    );
    let report = shown(mlp, &["--set-last-bucket-cap", "--bucket-cap-mb", "0.0003"]);
    assert_eq!(report["rebuilt"], serde_json::json!([[3], [1, 2], [0]]));
    let report = shown(mlp, &["--version", "2.15", "--bucket-cap-mb-list", "0.00001,100"]);
    assert_eq!(report["rebuilt"], serde_json::json!([[3], [2, 1, 0]]));
    let report = shown(mlp, &["--version", "2.15", "--bucket-cap-mb-list="]);
    assert_eq!(report["first_bytes"], 1 << 20);
    let early = ["--power-sgd-start-iter", "2"];
    let hook = ["--comm-hook", "power-sgd", "--power-sgd-min-compression-rate", "1"];
    let report = shown("mlp:64,64", &[&hook[..], &early].concat());
    // 64 biases as they are, 64 + 64 in place of 4,096 weights.
    assert_eq!(report["compression"], serde_json::json!({"before": 4160, "after": 192}));
    let report = shown(mlp, &["--comm-hook", "power-sgd", "--compress-wrapper", "float16"]);
    assert_eq!(calls(&report, 1, "backward"), ["all_reduce float16[212]"]);
    let report = shown(mlp, &["--comm-hook", "fp16-compress", "--compress-wrapper", "bfloat16"]);
    assert_eq!(calls(&report, 1, "backward"), ["all_reduce float16[212]"]);
}

#[test]
fn ddp_has_a_flag_for_everything_around_it() {
    let mlp = MLP;
    let overlap = ["--zero-overlap", "interleaved", "--iterations", "4"];
    let report = shown(mlp, &overlap);
    assert_eq!(
        calls(&report, 4, "backward"),
        ["all_reduce float32[212]", "broadcast float32[212]"]
    );
    let report = shown(mlp, &["--join", "1,3", "--zero", "view"]);
    assert_eq!(report["join"][0]["iterations"].as_array().unwrap().len(), 1);
    assert_eq!(report["join"][1]["iterations"].as_array().unwrap().len(), 3);
    let replicas = ["--version", "1.x", "--device-ids", "4", "--world-size", "3"];
    let report = shown("resnet18", &replicas);
    assert_eq!(report["replicas"]["members"], 12);
    assert_eq!(report["replicas"]["params"][0]["numel"], 11_689_512);
    let throws = ["--join", "1,3", "--throw-on-early-termination"];
    // The exit code says that ranks raise, with a simulation or without.
    let thrown = lockstep(["ddp", "--model", mlp, "--json"].iter().chain(&throws));
    assert_eq!(thrown.code, 1, "{thrown:?}");
    let report = json(&thrown);
    assert_eq!(report["join"][0]["error"], "RuntimeError: Rank 0 exhausted all inputs.");
    // The second forward pass of rank 1 raises: nothing is divided in it.
    assert_eq!(report["join"][1]["iterations"][1]["divisor"], Value::Null);
    let text = lockstep(["ddp", "--model", mlp].iter().chain(&throws)).out;
    assert!(text.contains("gradients divided by 2\n"), "{text}");
    let report = shown(mlp, &["--join", "1,3"]);
    let own = report["join"][0]["after"].as_array().unwrap().len();
    assert_eq!(calls(&report, 2, "joined").len(), own);
    assert_eq!(calls(&report, 1, "forward")[0], "all_reduce float32[1]");
    let report = shown(mlp, &["--log", "--simulate", "--steps", "4", "--world-size", "5"]);
    assert_eq!(report["log"]["numbers"]["world_size"], 5);
    assert_eq!(report["simulated"].as_array().unwrap().len(), 4);
}

/// Averagers, shards, uneven inputs and replicas are in the plan and in the report.
#[test]
fn ddp_plans_what_is_around_it() {
    let mlp = MLP;
    let averager = ["--averager", "hierarchical:1=2,2=4:0", "--world-size", "4", "--steps", "2"];
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("averaged.json");
    let plan = plan.to_str().unwrap();
    shown(mlp, &[&averager[..], &["--plan", plan]].concat());
    let plan = Plan::read(&fs::read(plan).unwrap()).unwrap();
    assert_eq!((plan.groups.len(), plan.programs.len()), (3, 2));
    assert_eq!(simulate(&plan, &SimConfig::default()).unwrap().end.unwrap().outcome, Completed);
    // Without a plan they say what they do as well.
    let shares = ["--zero", "view", "--averager", "hierarchical:1=2,2=4:0", "--world-size", "4"];
    let report = shown(mlp, &shares);
    let after = &report["after_steps"];
    assert_eq!(after["zero"]["partition"].as_array().unwrap().len(), 4);
    assert_eq!(after["zero"]["broadcasts"].as_array().unwrap().len(), 4);
    let among: Vec<_> =
        after["averaged"].as_array().unwrap().iter().map(|a| &a["subgroup"]).collect();
    assert_eq!(among, [&Value::Null, &2.into(), &Value::Null]);
    let text = lockstep(["ddp", "--model", mlp].iter().chain(&shares)).out;
    assert!(text.contains("4 broadcasts in every step"), "{text}");
    assert!(text.contains("after step 2 among 2"), "{text}");
    let report = shown(mlp, &["--join", "1,3", "--simulate"]);
    assert_eq!(report["simulated"].as_array().unwrap().len(), 4);
    let report = shown("resnet18", &["--device-ids", "2", "--version", "1.x", "--simulate"]);
    assert_eq!(report["simulated"].as_array().unwrap().len(), 3);
    let report = shown(mlp, &["--unused", "layers.1", "--find-unused-parameters"]);
    assert_eq!(report["grad_ready_order"], serde_json::json!([1, 0]));
    assert_eq!(calls(&report, 1, "backward"), ["all_reduce float32[212]", "all_reduce int32[4]"]);
}

/// Nothing is asked for that nobody answers.
#[test]
fn ddp_refuses_what_cannot_be_around_it() {
    let mlp = MLP;
    let idle = lockstep(["ddp", "--model", mlp, "--join", "0,0"]).out;
    assert!(idle.contains("rank 1: 0 iterations with 0 collectives\n"), "{idle}");
    let once = lockstep(["ddp", "--model", mlp, "--averager", "periodic:0:1"]);
    assert_eq!(once.err.matches("positive value").count(), 1, "{once:?}");
    for flag in ["--accumulate", "--iterations", "--batch", "--steps", "--device-ids"] {
        let output = lockstep(["ddp", "--model", mlp, flag, "0"]);
        assert!(output.code == 2 && output.err.contains("0 is not in 1.."), "{output:?}");
    }
    let refused: [(&[&str], &str); 15] = [
        (&["--ignore", "layers.0.wieght"], "did you mean layers.0.weight"),
        (&["--world-size", "100000"], "million messages"),
        (
            &["--comm-hook", "post-local-sgd", "--local-sgd-subgroup", "3", "--world-size", "4"],
            "must be divisible by 'group_size'",
        ),
        (
            &["--comm-hook", "post-local-sgd", "--local-sgd-subgroup", "8"],
            "must not exceed the world size (2)",
        ),
        (&["--averager", "hierarchical:2=3,4=4:0", "--world-size", "4"], "divisible"),
        (&["--unused", "layer.0"], "did you mean layers.0"),
        (&["--join", "1,3", "--accumulate", "2", "--zero", "each"], "no_sync"),
        (&["--device-ids", "2"], "device_ids"),
        (&["--averager", "periodic:0"], "positive"),
        (&["--averager", "often"], "often"),
        (&["--join", "1,2,3", "--world-size", "2"], "--world-size"),
        (&["--mixed-precision", "param=int8"], "int8"),
        (&["--grad-ready-order", "7"], "past the last"),
        (&["--comm-hook", "power-sgd", "--power-sgd-start-iter", "1"], "start_powerSGD_iter"),
        (&["--zero-overlap", "step", "--backend", "gloo"], "NCCL"),
    ];
    for (words, about) in refused {
        let first = ["ddp", "--model", mlp, "--simulate"];
        assert_refused(&lockstep(first.iter().chain(words)), about);
    }
    // A gradient may come twice: in a static graph, or else PyTorch raises.
    let twice = ["ddp", "--model", mlp, "--grad-ready-order", "3,3,2,1,0"];
    let raised = lockstep(twice);
    assert!(raised.code == 1 && raised.out.contains("ready only once"), "{raised:?}");
    assert_eq!(lockstep(twice.iter().chain(&["--static-graph"])).code, 0);
}

#[test]
fn ddp_refuses_what_is_no_model_and_writes_plans() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("ddp.json");
    let plan = plan.to_str().unwrap();
    let words = ["ddp", "--model", "mlp:64,128,10", "--world-size", "3", "--plan", plan];
    let (list, twice) = (folder.path().join("list.json"), folder.path().join("twice.csv"));
    fs::write(&list, "[]").unwrap();
    fs::write(&twice, "a,2\na,3\n").unwrap();
    let (list, twice) = (list.to_str().unwrap(), twice.to_str().unwrap());
    assert_eq!(lockstep(words).code, 0);
    assert_eq!(lockstep(["sim", plan]).code, 0);
    let run = lockstep(["run", plan, "--json"]);
    assert_eq!(run.code, 0, "{run:?}");
    let cases: &[(&[&str], &str)] = &[
        (&["--model", "resnet19"], "did you mean resnet18?"),
        (&["--model", list], "it is a list"),
        (&["--model", twice], "there twice"),
        (&["--model", plan], "params"),
        (&["--model", "resnet18", "--bucket-cap-mb-list", "1,2"], "2.15"),
        (&["--model", "resnet18", "--world-size", "0"], "world-size"),
        (&["--model", "resnet18", "--verify-against", plan], "ddp_record.py"),
        (&["--model", "resnet18", "--plan", plan, "--device", "abacus"], "abacus"),
    ];
    for (words, about) in cases {
        let words = std::iter::once(&"ddp").chain(words.iter());
        assert_refused(&lockstep(words), about);
    }
    // PyTorch's own text, which takes several lines.
    let words = ["ddp", "--model", "resnet18", "--find-unused-parameters", "--bucket-cap-mb", "-1"];
    let refused = lockstep(words);
    assert_eq!((refused.code, refused.out.as_str()), (2, ""), "{refused:?}");
    assert!(refused.err.contains("TypeError: _compute_bucket_assignment_by_size()"), "{refused:?}");
}

/// Options that PyTorch refuses, or that are not followed, are refused without a plan too.
#[test]
fn ddp_says_what_does_not_go_together() {
    let first = ["ddp", "--model", "mlp:16,8,4"];
    let overlap = "DDP raises RuntimeError: Overlapping DDP with ZeRO";
    let refused: [(&[&str], &str); 4] = [
        (
            &["--join", "1,3", "--accumulate", "2", "--zero", "view"],
            "with no_sync() such a job hangs in PyTorch",
        ),
        (&["--join", "1,3", "--averager", "periodic:2:0"], "a model averager is no joinable"),
        (&["--join", "1,3", "--zero-overlap", "step"], "cannot be in join()"),
        (&["--zero-overlap", "step", "--backend", "gloo"], overlap),
    ];
    for (words, about) in refused {
        assert_refused(&lockstep(first.iter().chain(words)), about);
    }
    // What pybind11 says has lines of its own.
    let caps = ["--version", "2.15", "--bucket-cap-mb-list", "-1,2"];
    let caps = lockstep(first.iter().chain(&caps));
    assert!(caps.code == 2 && caps.err.starts_with("lockstep: DDP raises TypeError"), "{caps:?}");
    // Nothing is told of a compression that has not begun.
    let power = ["--comm-hook", "power-sgd"];
    let before = lockstep(first.iter().chain(&power));
    assert!(before.code == 0 && !before.out.contains("PowerSGD:"), "{before:?}");
    let begun = lockstep(first.iter().chain(&power).chain(&["--power-sgd-start-iter", "2"]));
    assert!(begun.out.contains("PowerSGD: 172 elements before compression, "), "{begun:?}");
}

/// A recorded run says whether errors name parameters there, and whether it ended by the module's own
/// exception.
#[test]
fn ddp_takes_over_what_a_recorded_run_says_of_its_errors() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, debug: &str| {
        let run = serde_json::json!({
            "name": "m",
            "params": [["a.weight", [4, 4], 16, "float32", true], ["b.weight", [4, 4], 16, "float32", true]],
            "unused": [["b"]],
            "distributed_debug": debug,
            "error": "ValueError: mine",
            "error_of_module": true,
            "passes": 3,
            "iterations": [{"forward": [], "backward": []}],
        });
        let path = folder.path().join(name);
        fs::write(&path, run.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (plain, detail) = (file("plain.json", "OFF"), file("detail.json", "DETAIL"));
    let named = "did not receive grad for rank 0: b.weight";
    let plain = lockstep(["ddp", "--model", &plain, "--verify-against", &plain]);
    assert!(plain.code == 0 && !plain.out.contains(named), "{plain:?}");
    assert!(plain.out.contains("an exception of the module's own"), "{plain:?}");
    let detail = lockstep(["ddp", "--model", &detail, "--verify-against", &detail]);
    assert!(detail.code == 0 && detail.out.contains(named), "{detail:?}");
}

#[test]
fn ddp_sweeps_over_caps() {
    let words = ["ddp", "--model", "gpt2", "--world-size", "8", "--batch", "8"];
    let output = lockstep(words.iter().chain(&["--sweep", "default,1,25,100000", "--json"]));
    assert_eq!(output.code, 0, "{output:?}");
    let report = json(&output);
    let points = report["sweep"].as_array().unwrap();
    let buckets: Vec<_> = points.iter().map(|point| point["buckets"].as_u64().unwrap()).collect();
    // As recorded for gpt2-small: 13 at the default, 50 at 1 MiB, 13 at an explicit 25.
    assert_eq!(buckets, [13, 50, 13, 1]);
    assert_eq!(points[3]["exposed_ps"], points[3]["communication_ps"]);
    let text = lockstep(words.iter().chain(&["--sweep"])).out;
    assert_eq!(text.matches("* best:").count(), 1, "{text}");
    assert!(text.contains("Smaller buckets lose to latency"), "{text}");
    assert_refused(&lockstep(words.iter().chain(&["--sweep", "x"])), "no number");
}
