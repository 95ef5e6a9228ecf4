//! Plans simulated and run, and refusals.

use super::{assert_refused, json};
use lockstep_core::plan::Plan;
use lockstep_core::trace::Trace;
use lockstep_sim::{Link, SimConfig, Topology, simulate};
use lockstep_tests::lockstep;
use std::fs;

#[test]
fn every_scenario_is_simulated_to_its_finding() {
    for scenario in lockstep_scenarios::all() {
        let output = lockstep(["sim", scenario.id, "--json"]);
        assert_eq!(output.code, 1, "{}: {output:?}", scenario.id);
        let simulated = json(&output);
        assert_eq!(simulated["findings"]["verdict"], "findings", "{}", scenario.id);
        let repaired = lockstep(["sim", scenario.id, "--repaired"]);
        assert_eq!(repaired.code, 0, "{}: {repaired:?}", scenario.id);
    }
}

#[test]
fn a_plan_goes_through_a_file_in_both_forms() {
    let folder = tempfile::tempdir().unwrap();
    let (text, binary) = (folder.path().join("plan.json"), folder.path().join("plan.lkp"));
    let words = ["plan", "all_gather", "--world-size", "3", "--count", "5", "-o"];
    let written = |extra: &[&str], path: &std::path::Path| {
        let mut words: Vec<_> = words.iter().map(std::ffi::OsStr::new).collect();
        words.push(path.as_os_str());
        words.extend(extra.iter().map(std::ffi::OsStr::new));
        assert_eq!(lockstep(words).code, 0);
        Plan::read(&fs::read(path).unwrap()).unwrap()
    };
    let plan = written(&[], &text);
    assert_eq!(plan, written(&["--binary"], &binary));
    let trace = folder.path().join("trace.lks");
    let simulated =
        lockstep(["sim".as_ref(), binary.as_os_str(), "-o".as_ref(), trace.as_os_str()]);
    assert_eq!(simulated.code, 0, "{simulated:?}");
    let native = simulate(&plan, &SimConfig::default()).unwrap();
    assert_eq!(Trace::read(&fs::read(&trace).unwrap()).unwrap(), native);
    assert_eq!(lockstep(["diagnose".as_ref(), trace.as_os_str()]).code, 0);
}

#[test]
fn what_cannot_be_run_is_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("plan.json");
    fs::write(&other, "{\"schema\":\"lockstep.plan/9\"}").unwrap();
    let other = other.to_str().unwrap();
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let empty = empty.to_str().unwrap();
    for verb in ["sim", "run"] {
        let cases: &[(&[&str], &str)] = &[
            (&["all_reduce", "--world-size", "0"], "world_size is 0"),
            (&["broadcast", "--root", "4"], "root 4"),
            (&["nothing-of-that-name"], "nothing-of-that-name"),
            (&[other], "lockstep.plan/9"),
            (&["all_reduce", "--algorithm", "star"], "star"),
            (&["all_reduce", "--dtype", "complex64", "--reduce-op", "MAX"], "complex64"),
            (&[empty], "holds no files"),
            (&["all_reduce", "--timeout-ms", "0"], "timeout_ms is 0"),
            (&["all_redcue"], "did you mean all_reduce"),
            (&["send", "--root", "7"], "--root changes nothing about send"),
            (&["all_gather_object", "--count", "9"], "--count changes nothing"),
            (&["all_reduce", "--reduce-op", "PREMUL_SUM"], "PREMUL_SUM:0.5"),
        ];
        for (words, about) in cases {
            let words = std::iter::once(&verb).chain(words.iter());
            assert_refused(&lockstep(words), about);
        }
    }
    // Where a library was looked for is told in one sentence, however many places that are.
    let absent = lockstep(["run", "all_reduce", "--backend", "nccl"]);
    assert_eq!(absent.code, 2, "{absent:?}");
    assert!(absent.err.starts_with("lockstep: the nccl backend cannot run here"), "{absent:?}");
    assert_eq!(absent.err.lines().count(), 1, "{absent:?}");
    for told in ["libnccl.so.2", "folders (", "LD_LIBRARY_PATH"] {
        assert!(absent.err.contains(told), "{told}: {absent:?}");
    }
}

#[test]
fn ranks_on_nodes_are_simulated_and_run_as_the_library_does() {
    let words = ["all_reduce", "--algorithm", "hierarchical", "--world-size", "8"];
    let plan = lockstep(["plan"].iter().chain(&words).chain(&["--ranks-per-node", "4"])).out;
    let plan = Plan::from_json(&plan).unwrap();
    assert_eq!(plan.ranks_per_node, 4);
    let nodes = ["--ranks-per-node", "4", "--link-latency-ns", "9000", "--json"];
    let simulated = json(&lockstep(["sim"].iter().chain(&words).chain(&nodes)));
    let across = Link { latency_ps: 9_000_000, ..Link::DEFAULT };
    let topology = Topology::Nodes { ranks_per_node: 4, inside: Link::NVLINK, across };
    let native = simulate(&plan, &SimConfig { topology, ..SimConfig::default() }).unwrap();
    assert_eq!(simulated["time_ps"], native.end.unwrap().time_ps);
    let text = lockstep(["sim"].iter().chain(&words).chain(&nodes[..4])).out;
    assert!(text.contains("nodes of 4"), "{text}");
    let ran = lockstep(["run"].iter().chain(&words).chain(&["--ranks-per-node", "3", "--json"]));
    assert_eq!((ran.code, &json(&ran)["comparison"]["equal"]), (0, &8.into()), "{ran:?}");
    assert_refused(&lockstep(["sim", "all_reduce", "--node-latency-ns", "5"]), "--ranks-per-node");
}

#[test]
fn what_is_only_slow_does_not_count_as_stuck() {
    // A healthy call has the time that it needs, however large it is.
    let huge = lockstep(["sim", "all_reduce", "--count", "1000000000000"]);
    assert_eq!(huge.code, 0, "{huge:?}");
    let slow = ["sim", "all_reduce", "--count", "1000000000", "--timeout-ms", "1"];
    let said = lockstep(slow).out;
    assert!(said.contains("slow, not stuck") && !said.contains("stalled"), "{said}");
    // Who is late is told all the same.
    let late = lockstep(["sim", "stuck-data-loader"]);
    assert!(late.out.contains("slow, not stuck") && late.out.contains("culprits"), "{late:?}");
    let slow = json(&lockstep(slow.iter().chain(&["--json"])));
    assert!(slow["time_without_timeouts_ps"].as_u64() > Some(1_000_000_000), "{slow:#}");
    let stuck = json(&lockstep(["sim", "skipped-all-reduce", "--json"]));
    assert!(stuck["time_without_timeouts_ps"].is_null());
}

#[test]
fn a_limit_names_the_options_that_move_it() {
    let words = ["sim", "all_reduce", "--world-size", "16", "--max-events", "100"];
    assert_refused(&lockstep(words), "--no-messages");
    let enough = ["--no-messages", "--max-events", "200"];
    assert_eq!(lockstep(words[..4].iter().chain(&enough)).code, 0);
}

#[test]
fn another_backend_than_the_plans_is_named() {
    let output = lockstep(["run", "all_reduce", "--dist-backend", "nccl"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert!(output.out.contains("The plan is for nccl; host carried it out"), "{output:?}");
    let own = lockstep(["run", "all_reduce"]);
    assert!(!own.out.contains("carried it out"), "{own:?}");
    let unasked = lockstep(["sim", "all_gather_coalesced"]);
    assert_eq!(unasked.err, "", "gloo is the usual one");
    let unasked = lockstep(["sim", "split_group"]);
    assert!(unasked.err.contains("on nccl"), "{unasked:?}");
}

#[test]
fn a_real_run_is_compared_with_the_simulator() {
    let output = lockstep(["run", "all_reduce", "--world-size", "3", "--seed", "7", "--json"]);
    assert_eq!(output.code, 0, "{output:?}");
    let ran = json(&output);
    assert_eq!(ran["outcome"], "completed");
    assert_eq!(ran["comparison"]["tensors"], 3);
    assert_eq!(ran["comparison"]["equal"], 3);
}

#[test]
fn a_real_hang_ends_by_its_watchdog() {
    let output = lockstep(["run", "skipped-all-reduce", "--timeout-ms", "500", "--json"]);
    assert_eq!(output.code, 1, "{output:?}");
    let ran = json(&output);
    assert_eq!(ran["outcome"], "timed_out");
    assert_eq!(ran["findings"]["findings"][0]["culprits"][0], 2, "{ran:#}");
}

#[test]
fn a_reader_that_has_gone_is_no_reason_to_panic() {
    use std::process::{Command, Stdio};
    let words = ["plan", "all_to_all", "--world-size", "64", "--count", "64"];
    // The shell closes the pipe at once; the exit code of lockstep is what it prints.
    let lockstep = lockstep_tests::binary();
    let script = format!("( {} {}; echo $? >&2 ) | true", lockstep.display(), words.join(" "));
    let output = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr).trim(), "0");
}
