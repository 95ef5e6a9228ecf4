//! Ranks with uneven inputs, and the syntax for them.

use super::{assert_refused, json};
use lockstep_tests::lockstep;
use serde_json::Value;

const MLP: [&str; 3] = ["ddp", "--model", "mlp:16,8,4"];

fn shown(words: &[&str]) -> Value {
    let output = lockstep(MLP.iter().chain(words).chain(&["--json"]));
    assert_eq!(output.code, 0, "{output:?}");
    json(&output)
}

fn ranks(report: &Value) -> usize {
    report["join"].as_array().map_or(0, Vec::len)
}

#[test]
fn passes_inside_no_sync_are_shadowed_without_a_backward_pass() {
    let report = shown(&["--join", "4,2", "--accumulate", "2", "--simulate"]);
    let passes = report["join"][0]["iterations"].as_array().unwrap().iter();
    let backward: Vec<_> = passes.map(|pass| pass["backward"].as_array().unwrap().len()).collect();
    assert_eq!(backward, [0, 1, 0, 1]);
    // It says that it has joined, twice, and takes part in the rebuild and in one reduction.
    assert_eq!(report["join"][1]["after"].as_array().unwrap().len(), 4 + 3 + 3);
    assert_eq!(report["simulated"].as_array().unwrap().len(), 5);
}

#[test]
fn the_last_number_of_inputs_holds_for_the_ranks_that_follow() {
    assert_eq!(ranks(&shown(&["--join", "2", "--world-size", "3"])), 3);
    // Several numbers say how many ranks there are.
    assert_eq!(ranks(&shown(&["--join", "3,2,1"])), 3);
}

#[test]
fn a_rank_that_raises_alone_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("sparse.json");
    let text = r#"{"params": [["e", [30, 4], 120, "float32", true]], "sparse": ["e"]}"#;
    std::fs::write(&model, text).unwrap();
    let alone = ["ddp", "--model", model.to_str().unwrap(), "--join", "3,0", "--simulate"];
    let alone = lockstep(alone);
    assert_eq!(alone.code, 1, "{alone:?}");
    for said in [
        "then it waits for rank 1",
        "then DDP raises on rank 1 in the backward pass of iteration 1: RuntimeError: Expected a \
         proper Tensor",
        "and the others wait for rank 1 until their group's timeout",
    ] {
        assert!(alone.out.contains(said), "{alone:?}");
    }
}

/// Without `join()` the plan ends there too. A file that is no plan is not replaced, and a plan stays where there is
/// no other to write.
#[test]
fn a_hook_that_raises_in_join_ends_its_plan() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("raises.json");
    std::fs::write(&plan, "of another day").unwrap();
    let hook = ["--backend", "gloo", "--comm-hook", "quantization-pertensor", "--join", "3,2"];
    let asked = ["--simulate", "--plan", plan.to_str().unwrap(), "--json"];
    assert_refused(&lockstep(MLP.iter().chain(&hook).chain(&asked)), "--force");
    std::fs::remove_file(&plan).unwrap();
    let raised = lockstep(MLP.iter().chain(&hook).chain(&asked));
    assert_eq!(raised.code, 1, "{raised:?}");
    let report = json(&raised);
    for rank in report["join"].as_array().unwrap() {
        assert!(rank["error"].as_str().unwrap().contains("IndexError"), "{rank}");
        assert_eq!(rank["iterations"].as_array().unwrap().len(), 1);
    }
    assert_eq!(report["simulated_error"]["step"], 1);
    let simulated = lockstep(["sim", plan.to_str().unwrap()]);
    assert!(simulated.out.contains("IndexError"), "{simulated:?}");
    let written = std::fs::read(&plan).unwrap();
    // What raises before there is a plan writes none.
    let model = folder.path().join("double.json");
    let text = r#"{"params": [["w", [4], 4, "float64", true], ["v", [4], 4, "float64", true]]}"#;
    std::fs::write(&model, text).unwrap();
    let delayed = ["--delay-all-reduce-named-params", "w", "--param-to-hook-all-reduce", "v"];
    let words = ["ddp", "--model", model.to_str().unwrap(), "--plan", plan.to_str().unwrap()];
    let raised = lockstep(words.iter().chain(&delayed));
    assert!(raised.code == 1 && raised.out.contains("no plan and no simulation"), "{raised:?}");
    assert!(raised.err.contains("stays as it was"), "{raised:?}");
    assert_eq!(std::fs::read(&plan).unwrap(), written);
}

/// The page's word and PyTorch's own.
#[test]
fn a_hook_has_several_names() {
    for hook in ["power-sgd", "powersgd", "powerSGD_hook"] {
        assert_eq!(shown(&["--comm-hook", hook])["comm_hook"], "power-sgd");
    }
}
