//! Recorded runs, held against reports.

use super::*;
use crate::ddp::model::{Model, named};
use crate::ddp::tests::{list, recorded};
use crate::ddp::{BucketCap, DdpOptions};

#[test]
fn every_recorded_run_verifies_and_another_cap_does_not() {
    let (models, runs) = (recorded("models.json"), recorded("buckets.json"));
    for run in list(&runs["runs"]) {
        if run["source"] != "comm hook + logging data" {
            continue;
        }
        let name = run["model"].as_str().unwrap();
        let mut file = models["models"][name].clone();
        file["grad_ready_order"] = run["grad_ready_order"].clone();
        let model = Model::read(name, &file.to_string()).unwrap();
        let bucket_cap = match run["bucket_cap_mb"].as_f64() {
            Some(mb) => BucketCap::from_mb(mb).unwrap(),
            None => BucketCap::Default,
        };
        let find_unused_parameters = run["find_unused_parameters"] == true;
        let options = DdpOptions { bucket_cap, find_unused_parameters, ..Default::default() };
        let report = DdpReport::of(&model, &options, 2, 3).unwrap();
        let truth = RecordedRun::read(&run.to_string()).unwrap();
        assert_eq!(truth.differences(&report), Vec::<String>::new(), "{name}");
        let other = DdpOptions { bucket_cap: BucketCap::Bytes(7 << 20), ..options };
        let report = DdpReport::of(&model, &other, 2, 3).unwrap();
        assert!(!truth.differences(&report).is_empty(), "{name}");
    }
}

#[test]
fn calls_are_compared_in_order_and_named() {
    let case = recorded("ddp_cases.json")["cases"]["baseline_mlp"]["result"].clone();
    let model = named("mlp:64,128,128,10").unwrap();
    let options =
        DdpOptions { bucket_cap: BucketCap::from_mb(0.02).unwrap(), ..Default::default() };
    let report = DdpReport::of(&model, &options, 2, 4).unwrap();
    let truth = RecordedRun::read(&case.to_string()).unwrap();
    assert_eq!(truth.iterations(), 4);
    assert_eq!(truth.differences(&report), Vec::<String>::new());
    let mut wrong = case;
    wrong["iterations"][1]["backward"][4][1][1][0] = 17_803.into();
    let truth = RecordedRun::read(&wrong.to_string()).unwrap();
    assert_eq!(
        truth.differences(&report),
        ["iteration 2, backward, call 0: here all_reduce float32[17802], \
          there all_reduce float32[17803]"]
    );
    for cap in ["10485760000000000000", "1048576000000000000000000"] {
        let text = format!(r#"{{"cap_bytes": {cap}, "error": "TypeError: __init__()"}}"#);
        assert_eq!(RecordedRun::read(&text).unwrap().cap_bytes, Some(i64::MAX));
    }
    assert!(RecordedRun::read("{}").unwrap_err().to_string().contains("ddp_record.py"));
}

/// Nothing is passed over without a word.
#[test]
fn what_was_asked_for_is_compared_and_what_is_missing_is_named() {
    let model = named("mlp:8,4").unwrap();
    let report =
        |options: &DdpOptions, world_size| DdpReport::of(&model, options, world_size, 3).unwrap();
    let plain = report(&DdpOptions::default(), 8);
    let differences = |text: &str| RecordedRun::read(text).unwrap().differences(&plain);
    assert_eq!(
        differences(
            r#"{"initial": [[0, 1]], "rebuilt": ["1,0"], "world_size": 2, "iterations": [],
            "comm_hook": "fp16-compress", "broadcast_buffers": false}"#
        ),
        [
            "world_size: here 8, there 2",
            "broadcast_buffers: here true, there false",
            "comm_hook: here none, there fp16-compress"
        ]
    );
    let file = r#"{"initial": [[0, 1]], "rebuilt": ["1,0"], "comm_hook": null}"#;
    assert_eq!(differences(file), Vec::<String>::new());
    let missing = RecordedRun::read(file).unwrap();
    assert_eq!(
        missing.not_compared(&plain),
        ["world_size", "grad_ready_order", "construction", "iterations"]
    );
    let raised = r#"{"error": "RuntimeError: no"}"#;
    assert_eq!(differences(raised), ["raised: here nothing, there \"RuntimeError: no\""]);
    let hint = RecordedRun::read(raised).unwrap().ending(&plain).unwrap();
    assert!(hint.contains("does not say whether the module raises that"), "{hint}");
}

#[test]
fn passes_that_a_run_should_have_and_does_not_are_a_difference() {
    let model = named("mlp:8,4").unwrap();
    let report = DdpReport::of(&model, &DdpOptions::default(), 2, 2).unwrap();
    let step = r#"{"forward": [], "backward": [["allreduce_", ["float32", [36]]]]}"#;
    let run = |rest: &str| {
        let text = format!(r#"{{"passes": 2, "iterations": [{step}]{rest}}}"#);
        RecordedRun::read(&text).unwrap().differences(&report)
    };
    assert_eq!(
        run(""),
        ["iterations: here 2, there 1, though the run was to have 2 and says of no exception"]
    );
    let ended = run(r#", "error": "ValueError: mine", "error_of_module": true"#);
    assert_eq!(ended, Vec::<String>::new());
}

/// A run that ends before DDP's log shows rebuilt buckets leaves them open; one that goes on says that there
/// are none.
#[test]
fn passes_that_are_too_few_for_a_rebuild_are_named() {
    let model = named("mlp:8,4").unwrap();
    let holding = |rebuilt: &str, passes: usize, rest: &str| {
        let step = r#"{"forward": [], "backward": []}"#;
        let steps = vec![step; passes].join(", ");
        let text = format!(
            r#"{{"world_size": 2, "initial": [[0]], "grad_ready_order": [0], "construction": [],
            "rebuilt": {rebuilt}, "iterations": [{steps}]{rest}}}"#
        );
        let run = RecordedRun::read(&text).unwrap();
        let options = DdpOptions {
            static_graph: run.static_graph == Some(true),
            find_unused_parameters: run.find_unused_parameters == Some(true),
            ..Default::default()
        };
        let (on, accumulate) = (run.backend(), run.accumulate());
        let report =
            DdpReport::accumulating(&model, &options, 2, on, passes as u32, accumulate).unwrap();
        let differences = run.differences(&report);
        let differs = differences.iter().any(|line| line.starts_with("rebuilt: here the buckets"));
        (run.not_compared(&report), differs)
    };
    let missing = |passes: usize, rest: &str| holding("null", passes, rest);
    let open = (vec!["rebuilt"], false);
    let (shown, told) = ((vec![], true), (vec![], false));
    assert_eq!(missing(0, "").0, ["rebuilt", "iterations"]);
    assert_eq!(missing(0, r#", "error": "RuntimeError: no""#), told);
    assert_eq!(
        (missing(1, ""), missing(2, ""), missing(3, "")),
        (open.clone(), open.clone(), shown)
    );
    // A run that ended by an exception, or has a bucket left over, never shows it.
    assert_eq!(missing(3, r#", "error": "RuntimeError: no""#), open);
    assert_eq!(missing(3, r#", "rebuilt_bytes": [144]"#), open);
    for (rest, last_open) in
        [(r#", "static_graph": true"#, 3), (r#", "accumulate": 2"#, 3), (r#", "accumulate": 3"#, 4)]
    {
        for passes in 1..=last_open {
            assert_eq!(missing(passes, rest), open, "{rest} {passes}");
        }
        assert_eq!(missing(last_open + 1, rest), (vec![], true), "{rest}");
    }
    assert_eq!(missing(1, r#", "find_unused_parameters": true"#), told);
    assert_eq!(holding("[[0]]", 1, ""), told);
}

/// A module's own exception is not DDP's: only the part before it is compared.
#[test]
fn an_exception_of_the_modules_own_cuts_the_run_short() {
    let model = named("mlp:8,4").unwrap();
    let report = DdpReport::of(&model, &DdpOptions::default(), 2, 3).unwrap();
    let run = |second: &str| {
        let text = format!(
            r#"{{"error": "ValueError: mine\nsecond line", "error_of_module": true,
            "passes": 3, "iterations": [
                {{"forward": [], "backward": [["allreduce_", ["float32", [36]]]]}}, {second}]}}"#
        );
        RecordedRun::read(&text).unwrap()
    };
    let rebuilds = r#"["broadcast_", ["int32", [3]], {"root": 0}]"#;
    let sizes = r#"["broadcast_", ["int32", [1]], {"root": 0}]"#;
    let in_forward = run(&format!(r#"{{"forward": [{rebuilds}, {sizes}], "backward": []}}"#));
    assert_eq!(in_forward.differences(&report), Vec::<String>::new());
    let told = in_forward.ending(&report).unwrap();
    assert!(told.contains("in iteration 2 by an exception of the module's own"), "{told}");
    assert!(told.ends_with("ValueError: mine. What came before it is compared."), "{told}");
    let wrong = run(&format!(r#"{{"forward": [{sizes}], "backward": []}}"#));
    let differences = wrong.differences(&report);
    assert_eq!(differences.len(), 1, "{differences:?}");
    assert!(differences[0].starts_with("iteration 2, forward, call 0: "), "{differences:?}");
    // DDP raises here, and did not there.
    let unused = model.without(&[0]);
    let raises = DdpReport::of(&unused, &DdpOptions::default(), 2, 3).unwrap();
    let differences = in_forward.differences(&raises);
    assert!(differences.iter().any(|line| line.ends_with("there nothing until then")));
}

#[test]
fn the_debug_level_is_that_of_the_run() {
    let debug = |level: &str| {
        let text = format!(r#"{{"error": "RuntimeError: no", "distributed_debug": {level}}}"#);
        RecordedRun::read(&text).unwrap().debug()
    };
    assert!(debug("\"INFO\"") && debug("\"Detail\""));
    assert!(!debug("\"OFF\"") && !debug("null"));
}
