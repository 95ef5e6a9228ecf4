//! The analysis of a job's time, and the variations of a job.

use super::{assert_refused, json};
use lockstep_tests::lockstep;
use serde_json::Value;

fn case(name: &str) -> String {
    format!("{}/data/flight-recorder/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn time_ps(said: &Value) -> u64 {
    said["time_ps"].as_u64().unwrap()
}

#[test]
fn a_straggler_is_told_with_what_it_costs() {
    let said = json(&lockstep(["analyze", "throttled-gpu", "--json"]));
    assert_eq!((&said["schema"], &said["world_size"]), (&"lockstep.analysis/1".into(), &4.into()));
    assert_eq!((&said["late"][0]["rank"], &said["late"][0]["came_last"]), (&2.into(), &12.into()));
    assert_eq!(said["steps"].as_array().unwrap().len(), 12);
    let parts = said["critical_path"]["parts"].as_array().unwrap();
    let computing = parts.iter().filter(|part| part["cause"] == "computing");
    assert!(computing.clone().count() == 12 && computing.clone().all(|part| part["rank"] == 2));
    let text = lockstep(["analyze", "throttled-gpu"]);
    assert!(text.out.contains("rank 2 came last in 12 of 12 collectives"), "{}", text.out);
}

/// The scenario's own repair is the same job with a rank that is as fast as the others: both simulations end at the
/// same picosecond.
#[test]
fn a_job_without_its_straggler_is_the_repaired_job() {
    let asked = lockstep(["whatif", "throttled-gpu", "--without-straggler", "2", "--json"]);
    let said = json(&asked);
    let slow = json(&lockstep(["analyze", "throttled-gpu", "--json"]));
    let repaired = json(&lockstep(["analyze", "throttled-gpu", "--repaired", "--json"]));
    assert_eq!(time_ps(&said["before"]), time_ps(&slow));
    assert_eq!(time_ps(&said["after"]), time_ps(&repaired));
    assert!(time_ps(&repaired) * 2 < time_ps(&slow));
}

#[test]
fn recorded_dumps_are_analysed_and_changed() {
    let dumps = case("t215_healthy");
    let analysed = lockstep(["analyze", &dumps]);
    assert_eq!(analysed.code, 0, "{analysed:?}");
    assert!(analysed.out.contains("outside of calls"), "{}", analysed.out);
    // gloo's recorder does not tell when calls ended: nothing is built on that.
    let asked = lockstep(["whatif", &dumps, "--scale", "rank=0,compute=2"]);
    assert_refused(&asked, "when calls were issued and not when they ended");
}

/// Few steps with one bucket each: more calls come before the loop than are in it.
#[test]
fn a_short_ddp_job_with_one_bucket_has_steps() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("ddp.json");
    let plan = plan.to_str().unwrap();
    let ddp = ["ddp", "--model", "resnet18", "--bucket-cap-mb", "50", "--plan", plan];
    assert_eq!(lockstep(ddp).code, 0);
    let said = json(&lockstep(["analyze", plan, "--json"]));
    assert_eq!(said["steps"].as_array().unwrap().len(), 2, "{said:#}");
    // A smaller bucket starts its call during the backward pass: less of it is exposed.
    let asked = json(&lockstep(["whatif", plan, "--bucket-cap-mb", "10", "--json"]));
    let step = |said: &Value| said["step_ps"].as_f64().unwrap();
    assert!(step(&asked["after"]) < step(&asked["before"]), "{asked:#}");
}

/// The calls of a replay take what they took: on links a hundred times slower than the simulator's own.
#[test]
fn a_replay_plays_recorded_times() {
    let folder = tempfile::tempdir().unwrap();
    let profiles = folder.path().join("profiles");
    let profiles = profiles.to_str().unwrap();
    let job = ["--world-size", "3", "--count", "1048576", "--link-bytes-per-second", "100000000"];
    let written = ["export", "all_reduce", "--kineto", "-o", profiles];
    assert_eq!(lockstep([&written[..], &job].concat()).code, 0);
    let original = json(&lockstep([&["sim", "all_reduce", "--json"][..], &job].concat()));
    let time = |said: &Value| said["time_ps"].as_f64().unwrap();
    let played = json(&lockstep(["sim", profiles, "--as-recorded", "--json"]));
    assert!((time(&played) / time(&original) - 1.0).abs() < 0.01, "{played:#}\n{original:#}");
    let simulated = json(&lockstep(["sim", profiles, "--json"]));
    assert!(time(&simulated) * 10.0 < time(&original));
    let none = lockstep(["sim", "all_reduce", "--as-recorded"]);
    assert_refused(&none, "all_reduce is none");
    // A trace of ours has times as well.
    let trace = folder.path().join("slow.trace");
    let trace = trace.to_str().unwrap();
    assert_eq!(lockstep([&["sim", "all_reduce", "-o", trace][..], &job].concat()).code, 0);
    let played = json(&lockstep(["sim", trace, "--as-recorded", "--json"]));
    assert!((time(&played) / time(&original) - 1.0).abs() < 0.01, "{played:#}\n{original:#}");
}

/// A job that really ran: its links are fitted from its trace.
#[test]
fn a_run_is_replayed_on_fitted_links() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("run.trace");
    let trace = trace.to_str().unwrap();
    let run = lockstep(["run", "all_reduce", "--world-size", "3", "--count", "65536", "-o", trace]);
    assert_eq!(run.code, 0, "{run:?}");
    let changed = folder.path().join("changed.trace");
    let changed = changed.to_str().unwrap();
    let asked =
        lockstep(["whatif", trace, "--link", "inter=8Gbps,latency=9us", "--json", "-o", changed]);
    let said = json(&asked);
    assert_eq!(
        said["recorded"]["time_ps"],
        json(&lockstep(["analyze", trace, "--json"]))["time_ps"]
    );
    assert_eq!(said["fitted"]["kinds"], 1);
    // The replay's own call, by the simulator on the links that were asked for.
    let ring = lockstep([
        "sim",
        "all_reduce",
        "--world-size",
        "3",
        "--count",
        "65536",
        "--link-latency-ns",
        "9000",
        "--link-bytes-per-second",
        "1000000000",
        "--json",
    ]);
    assert_eq!(time_ps(&said["after"]), time_ps(&json(&ring)));
    assert_eq!(lockstep(["diagnose", changed]).code, 0);
}

#[test]
fn a_change_that_does_not_apply_is_refused() {
    for (changes, about) in [
        (&["--without-straggler", "9"][..], "there is no rank 9"),
        (&["--link", "intra=1GB/s"], "no links inside nodes"),
        (&["--link", "inter=fast"], "is no rate"),
        (&["--scale", "rank=1"], "needs a factor"),
        (&["--algorithm", "rign"], "there is no algorithm rign"),
        (&["--algorithm", "bruck"], "carries out none"),
        (&["--bucket-cap-mb", "0"], "a number of MiB above 0"),
        (&["--bucket-cap-mb", "4"], "no buckets of DDP"),
    ] {
        assert_refused(&lockstep([&["whatif", "all_reduce"], changes].concat()), about);
    }
    assert_refused(&lockstep(["whatif", "all_reduce"]), "say what is otherwise");
    assert_refused(&lockstep(["whatif", "all_reduce", "--cluster", "h10x8"]), "h100x8");
    let hangs = lockstep(["whatif", "skipped-all-reduce", "--scale", "compute=2"]);
    assert_refused(&hangs, "does not complete as it is simulated");
}

/// On another machine a job takes the time of `sim --cluster`.
#[test]
fn a_job_is_asked_for_on_a_cluster() {
    let cluster = ["--world-size", "16", "--count", "1048576", "--cluster", "h100x8", "--json"];
    let asked = json(&lockstep([&["whatif", "all_reduce"][..], &cluster].concat()));
    let simulated = json(&lockstep([&["sim", "all_reduce"][..], &cluster].concat()));
    assert_eq!(time_ps(&asked["after"]), time_ps(&simulated));
    let told = asked["changes"][0].as_str().unwrap();
    assert!(told.starts_with("the job runs on") && told.contains("h100x8"), "{told}");
}

/// A profile of a device: the process runs ahead, and the device says when the ranks came to their calls.
#[test]
fn a_profile_of_devices_is_replayed_with_its_computing() {
    let folder = tempfile::tempdir().unwrap();
    let profiles = folder.path().join("profiles");
    let profiles = profiles.to_str().unwrap();
    assert_eq!(lockstep(["export", "--kineto", "throttled-gpu", "-o", profiles]).code, 0);
    let step = |said: &Value| said["step_ps"].as_f64().unwrap();
    let simulated = step(&json(&lockstep(["analyze", "throttled-gpu", "--json"])));
    let asked = json(&lockstep(["whatif", profiles, "--without-straggler", "2", "--json"]));
    let (before, after) = (step(&asked["before"]), step(&asked["after"]));
    assert!((before / simulated - 1.0).abs() < 0.01, "{before} {simulated}");
    assert!(after < before / 2.0, "{before} {after}");
    // The kernels are the computations of the simulation that they were written of.
    let computing = |job: &str| -> Vec<u64> {
        let said = json(&lockstep(["analyze", job, "--json"]));
        assert_eq!(said["knows_computations"], true);
        let ranks = said["ranks"].as_array().unwrap().iter();
        ranks.map(|rank| rank["total"]["computing_ps"].as_u64().unwrap() / 1_000_000).collect()
    };
    assert_eq!(computing(profiles), computing("throttled-gpu"));
    let plan = json(&lockstep(["plan", profiles]));
    let named = |name: &str| plan.to_string().contains(&format!("\"kernel {name}\""));
    let original = json(&lockstep(["plan", "throttled-gpu"]));
    let names = original["programs"][0]["ops"].as_array().unwrap().iter();
    let names: Vec<&str> =
        names.filter_map(|op| op["action"]["compute"]["name"].as_str()).collect();
    assert!(!names.is_empty() && names.iter().all(|name| named(name)), "{names:?} {plan:#}");
}

/// Steps are held against steps and whole jobs against whole jobs.
#[test]
fn a_hang_and_a_cut_are_told() {
    let hung = lockstep(["analyze", "skipped-all-reduce"]);
    assert!(hung.out.contains("The job did not complete"), "{hung:?}");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (whole, cut) = (path("whole.trace"), path("cut.trace"));
    lockstep(["sim", "throttled-gpu", "-o", &whole]);
    let bytes = std::fs::read(&whole).unwrap();
    std::fs::write(&cut, &bytes[..bytes.len() - 20]).unwrap();
    let analysed = lockstep(["analyze", &cut]);
    assert!(analysed.err.contains("it was cut off"), "{analysed:?}");
    assert!(!lockstep(["analyze", &whole]).err.contains("cut off"));
    let both = ["whatif", "all_reduce", "--cluster", "h100x8", "--link", "inter=1Gbps"];
    assert_refused(&lockstep(both), "a cluster has links of its own");
    let uneven = ["sim", "all_reduce", "--cluster", "h100x8", "--nodes", "3"];
    assert_refused(&lockstep(uneven), "do not spread evenly");
}
