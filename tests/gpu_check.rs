//! `lockstep gpu-check` whole, against the stand-in for CUDA, NVRTC and NCCL.

use lockstep_tests::binary;
use serde_json::Value;
use std::os::unix::fs::symlink;
use std::process::Command;

/// The folder with the stand-in under the libraries' names.
fn libraries() -> tempfile::TempDir {
    let library = std::env::current_exe().expect("a test").with_file_name("libnccl_stand_in.so");
    assert!(library.exists(), "{} is not there", library.display());
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["libcuda.so.1", "libnvrtc.so.12", "libnccl.so.2"] {
        symlink(&library, folder.path().join(name)).expect("a link");
    }
    folder
}

#[test]
fn a_machine_without_a_gpu_is_told_so() {
    let libraries = libraries();
    let output = tempfile::tempdir().expect("a folder");
    let check = Command::new(binary())
        .args(["gpu-check", "--libraries"])
        .arg(libraries.path())
        .arg("--output")
        .arg(output.path())
        .env("STAND_IN_DEVICES", "0")
        .output()
        .expect("lockstep starts");
    let said = String::from_utf8(check.stderr).expect("text");
    assert_eq!(check.status.code(), Some(2), "{said}");
    assert!(said.contains("CUDA's driver shows no GPU (cuDeviceGetCount says 0)"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(std::fs::read_dir(output.path()).expect("a folder").count(), 0);
}

#[test]
fn every_check_passes_on_one_gpu_of_the_stand_in() {
    assert_every_check_passes("1", 1, ["a host id", "MULTI_RANK"]);
}

#[test]
fn every_check_passes_on_two_gpus_of_the_stand_in() {
    assert_every_check_passes("2", 2, ["NCCL's", "over NCCL"]);
}

#[test]
fn one_way_alone_can_be_asked_for() {
    let libraries = libraries();
    let output = tempfile::tempdir().expect("a folder");
    let check = Command::new(binary())
        .args(["gpu-check", "--quick", "--no-torch", "--share", "none", "--libraries"])
        .arg(libraries.path())
        .arg("--output")
        .arg(output.path())
        .env("STAND_IN_DEVICES", "1")
        .output()
        .expect("lockstep starts");
    let markdown = String::from_utf8(check.stdout).expect("text");
    assert_eq!(check.status.code(), Some(0), "{markdown}");
    let ways: Vec<&str> = markdown.lines().filter(|line| line.starts_with("## ")).collect();
    assert_eq!(ways, ["## NCCL's collectives, one rank"], "{markdown}");
}

fn assert_every_check_passes(devices: &str, gpus: u32, more: [&str; 2]) {
    let libraries = libraries();
    let output = tempfile::tempdir().expect("a folder");
    let check = Command::new(binary())
        .args(["gpu-check", "--quick", "--no-torch", "--libraries"])
        .arg(libraries.path())
        .arg("--output")
        .arg(output.path())
        .env("STAND_IN_DEVICES", devices)
        .output()
        .expect("lockstep starts");
    let said = String::from_utf8_lossy(&check.stderr).into_owned();
    let read = |name: &str| std::fs::read_to_string(output.path().join(name)).expect(name);
    let markdown = read("report.md");
    assert_eq!(check.status.code(), Some(0), "{said}\n{markdown}");
    assert_eq!(String::from_utf8(check.stdout).expect("text"), markdown);
    assert!(markdown.contains("stand-in for a GPU"), "{markdown}");
    let report: Value = serde_json::from_str(&read("report.json")).expect("JSON");
    assert_eq!(report["schema"], "lockstep.gpu-check/1");
    assert_eq!(report["gpus"], gpus);
    let checks = report["checks"].as_array().expect("checks");
    assert!(checks.len() > 60, "{}", checks.len());
    assert!(checks.iter().all(|check| check["state"] == "passed"), "{markdown}");
    let ways = ["one rank", "logical ranks on one GPU"];
    for way in ways.iter().chain(&more) {
        let of_way = |check: &&Value| check["way"].as_str().is_some_and(|w| w.contains(way));
        let hangs = checks.iter().filter(of_way);
        let hangs = hangs.filter(|c| c["what"].as_str().is_some_and(|w| w.starts_with("hang")));
        let wanted = if *way == "one rank" { 0 } else { 3 };
        assert!(hangs.count() >= wanted, "{way}\n{markdown}");
    }
    assert!(report["times"].as_array().is_some_and(|times| times.len() >= 4));
}
