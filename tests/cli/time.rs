//! `lockstep time`: what it answers, in JSON and in words.

use super::{assert_refused, json};
use lockstep_tests::lockstep;

#[test]
fn a_size_has_a_time_and_a_choice() {
    let sizes = ["time", "all_reduce", "--cluster", "h200x8", "--bytes", "1M,2M", "--json"];
    let answer = json(&lockstep(sizes));
    assert_eq!(answer["schema"], "lockstep.time/1");
    let points = &answer["points"];
    assert_eq!((&points[0]["bytes"], &points[0]["algorithm"]), (&1_048_576.into(), &"Ring".into()));
    assert_eq!(
        (&points[1]["algorithm"], &points[1]["protocol"]),
        (&"NVLS".into(), &"Simple".into())
    );
    assert!(points[1]["predicted_us"].as_f64().unwrap() > 10.0, "{answer}");
    assert_eq!(answer["extrapolated"], false);
}

#[test]
fn a_table_is_compared_and_its_errors_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.csv");
    let table = "# collective: all_reduce\n# gpus: 8\n# nodes: 1\n# kind: H100-SXM-NVSwitch\n\
                 bytes,time_us\n1048576,30\n268435456,1100\n";
    std::fs::write(&file, table).unwrap();
    let answer = json(&lockstep(["time", "--table", file.to_str().unwrap(), "--json"]));
    assert_eq!(answer["points"][1]["measured_us"], 1100.0);
    assert!(answer["mean_error"].as_f64().unwrap() < 0.3, "{answer}");
    let told = lockstep(["time", "--table", folder.path().to_str().unwrap()]);
    assert!(told.code == 0 && told.out.contains("mine") && told.out.contains("median"), "{told:?}");
}

#[test]
fn what_is_not_known_is_refused_with_the_nearest() {
    let cluster = |name| lockstep(["time", "all_reduce", "--cluster", name]);
    assert_refused(&cluster("h100x9"), "h100x8");
    assert_refused(&lockstep(["time", "all_reduce", "--nodes", "1000000000"]), "--nodes 65536");
    let setting = lockstep(["time", "all_reduce", "--env", "NCCL_ALG=Ring"]);
    assert_refused(&setting, "did you mean NCCL_ALGO?");
}
