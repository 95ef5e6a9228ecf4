//! A recording is a plan: replayed, repaired, and run.

use super::{assert_refused, json};
use lockstep_tests::lockstep;

fn case(name: &str) -> String {
    format!("{}/data/flight-recorder/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_folder_of_dumps_is_simulated_repaired_and_run() {
    let dumps = case("t215_skip_allreduce_diff_size");
    let simulated = lockstep(["sim", &dumps, "--json"]);
    let said = json(&simulated);
    assert_eq!(
        (simulated.code, &said["findings"]["findings"][0]["culprits"]),
        (1, &serde_json::json!([2]))
    );
    assert!(simulated.err.contains("assumed: reductions are sums"), "{}", simulated.err);
    let folder = tempfile::tempdir().unwrap();
    let fixed = folder.path().join("fixed.json");
    let fixed = fixed.to_str().unwrap();
    let repaired = lockstep(["repair", &dumps, "--json", "-o", fixed]);
    let said = json(&repaired);
    assert_eq!((repaired.code, &said["repair"]["verified"]), (0, &true.into()), "{said}");
    assert_eq!(said["repair"]["change"]["ranks"], serde_json::json!([2]), "{said}");
    assert_eq!(lockstep(["sim", fixed]).code, 0);
    let run = lockstep(["run", "--repaired", &dumps]);
    assert_eq!(run.code, 0, "{run:?}");
    let explored = lockstep(["explore", fixed]);
    assert_eq!(explored.code, 0, "{explored:?}");
}

#[test]
fn a_trace_of_ours_is_its_own_plan() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (trace, plan, again) = (path("t.lks"), path("a.json"), path("b.json"));
    assert_eq!(lockstep(["sim", "all_reduce", "-o", &trace]).code, 0);
    assert_eq!(lockstep(["plan", "all_reduce", "-o", &plan]).code, 0);
    assert_eq!(lockstep(["plan", &trace, "-o", &again]).code, 0);
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    assert_eq!(read(&plan), read(&again));
}

#[test]
fn what_cannot_be_repaired_is_said() {
    assert_refused(&lockstep(["repair", &case("t215_healthy")]), "nothing is to be mended");
    assert_refused(
        &lockstep(["repair", &case("t215_straggler_midstep")]),
        "not mended by other calls",
    );
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("job.log");
    std::fs::write(&log, "nothing\n").unwrap();
    assert_refused(&lockstep(["repair", log.to_str().unwrap()]), "tells of no calls");
}

/// Two of four ranks have a profile: what the others did is assumed, and so no evidence of health.
#[test]
fn a_replay_that_assumes_calls_is_never_healthy() {
    let profiles = format!("{}/data/kineto", env!("CARGO_MANIFEST_DIR"));
    let simulated = lockstep(["sim", &profiles, "--json"]);
    let said = json(&simulated);
    assert_eq!(
        (simulated.code, &said["findings"]["verdict"]),
        (3, &"inconclusive".into()),
        "{said}"
    );
    let unseen = said["findings"]["unseen"].to_string();
    assert!(unseen.contains("assumed to call as rank 0 does"), "{unseen}");
    assert_eq!(lockstep(["run", &profiles]).code, 3);
}

/// `sim` of a recording says what `diagnose` says of it, or says that it does not; the dumps may be named one by one.
#[test]
fn a_replay_is_judged_as_its_recording() {
    let first = |report: &serde_json::Value| {
        let finding = &report["findings"][0];
        (finding["kind"].clone(), finding["culprits"].clone())
    };
    for name in ["t215_skip_allreduce_diff_size", "t215_swapped_order", "t215_never_arrives"] {
        let dumps = case(name);
        let mut files: Vec<String> = std::fs::read_dir(&dumps)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_file())
            .map(|path| path.to_str().unwrap().to_owned())
            .collect();
        files.sort();
        let recorded = json(&lockstep(["diagnose", &dumps, "--json"]));
        let one_by_one = ["sim", "--json"].into_iter().chain(files.iter().map(String::as_str));
        for simulated in [lockstep(["sim", &dumps, "--json"]), lockstep(one_by_one)] {
            let said = &json(&simulated)["findings"];
            let notes = said["notes"].to_string();
            assert!(
                first(said) == first(&recorded) || notes.contains("lockstep diagnose says"),
                "{name}: {said}"
            );
        }
    }
    assert_refused(
        &lockstep(["plan", &case("t215_healthy"), "no-such-file"]),
        "cannot read no-such-file",
    );
}
