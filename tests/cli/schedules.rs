//! Schedules from files: MSCCL programs and GOAL.

use super::{assert_refused, json};
use lockstep_tests::{data, lockstep};
use std::fs;

fn msccl(name: &str) -> String {
    data("msccl").join(name).display().to_string()
}

#[test]
fn a_schedule_from_a_file_is_proved_simulated_and_run() {
    let ring = msccl("ndv4_r48ll.xml");
    let output = lockstep(["schedule", "check", "--json", &ring]);
    assert_eq!(output.code, 0, "{output:?}");
    let checked = json(&output);
    assert_eq!(checked["schema"], "lockstep.schedule-check/1");
    assert_eq!((&checked["world_size"], &checked["messages"]), (&8.into(), &896.into()));
    // In place, with messages between all pairs, and not the default algorithm's.
    for (call, file) in [("all_reduce", &ring), ("all_gather", &msccl("ndv4_ag-1k-512k.xml"))] {
        let output = lockstep(["sim", "--json", call, "--schedule", file]);
        assert_eq!((output.code, &json(&output)["outcome"]), (0, &"completed".into()));
        let output = lockstep(["run", "--json", call, "--schedule", file, "--seed", "3"]);
        assert_eq!(output.code, 0, "{output:?}");
        let compared = &json(&output)["comparison"];
        assert_eq!(compared["tensors"], compared["equal"], "{compared:#}");
    }
    // The plan carries the schedule along, and the proof is made again.
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.json").display().to_string();
    lockstep(["plan", "all_reduce", "--schedule", &ring, "-o", &plan]);
    assert_eq!(lockstep(["sim", &plan]).code, 0);
    let changed = fs::read_to_string(&plan).unwrap().replacen("receive_reduce", "receive", 1);
    fs::write(&plan, changed).unwrap();
    assert_refused(&lockstep(["sim", &plan]), "cannot use");
}

#[test]
fn a_schedule_that_is_wrong_is_refused_where_it_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wrong.xml").display().to_string();
    let right = fs::read_to_string(msccl("ndv4_a2a2ll.xml")).unwrap();
    // The first message of GPU 1 to GPU 0 lands where GPU 2's should.
    fs::write(&file, right.replacen("dstoff=\"2\"", "dstoff=\"4\"", 1)).unwrap();
    assert_refused(&lockstep(["schedule", "check", &file]), "gpu 0, tb 0, step 0");
    // GPU 0 sends another chunk than it should.
    let changed = right.replacen(
        "type=\"s\" srcbuf=\"i\" srcoff=\"2\"",
        "type=\"s\" srcbuf=\"i\" srcoff=\"3\"",
        1,
    );
    assert_ne!(changed, right);
    fs::write(&file, changed).unwrap();
    for command in [&["schedule", "check", &file][..], &["sim", "all_to_all", "--schedule", &file]]
    {
        assert_refused(&lockstep(command), "does not carry out all_to_all: rank 1");
    }
    let refused = lockstep(["schedule", "check", "--json", &file]);
    assert_eq!((refused.code, refused.err.as_str()), (2, ""));
    let refused = json(&refused);
    assert_eq!(refused["proved"], false);
    assert!(refused["error"].as_str().unwrap().contains("rank 1"), "{refused:#}");
    fs::write(&file, &right[..right.len() / 2]).unwrap();
    assert_refused(&lockstep(["schedule", "check", &file]), "line ");
    let ring = msccl("ndv4_r48ll.xml");
    let refused = |arguments: &[&str], about| {
        assert_refused(&lockstep([&["sim", "--schedule", &ring], arguments].concat()), about);
    };
    refused(&["all_gather"], "carries out all_reduce");
    refused(&["all_reduce", "--world-size", "4"], "among 8 ranks");
    refused(&["all_reduce", "--count", "17"], "multiple of 64");
    refused(&["all_reduce", "--algorithm", "ring"], "leave one out");
    refused(&["skipped-all-reduce"], "--schedule");
}

#[test]
fn goal_and_msccl_files_are_written_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (goal, xml) = (path("ring.goal"), path("ring.xml"));
    let written = lockstep(["export", "--goal", "all_reduce", "--world-size", "5", "-o", &goal]);
    assert_eq!(written.code, 0, "{written:?}");
    assert_eq!(lockstep(["sim", &goal]).code, 0);
    assert_eq!(lockstep(["run", &goal]).code, 0);
    let text = lockstep(["export", "--goal", "all_reduce", "--world-size", "5"]).out;
    assert_eq!(fs::read_to_string(&goal).unwrap(), text);
    lockstep(["export", "--msccl", "all_reduce", "--world-size", "5", "-o", &xml]);
    let checked = lockstep(["schedule", "check", &xml]);
    assert!(checked.out.contains("8 steps, 40 messages"), "{checked:?}");
    assert_refused(&lockstep(["export", "--msccl", "barrier"]), "MSCCL has no barrier");
    assert_refused(&lockstep(["sim", &xml]), "all_reduce --schedule");
    let again = lockstep(["sim", "all_reduce", "--schedule", &xml]).out;
    assert_eq!(again.lines().next().unwrap().matches("all_reduce").count(), 1, "{again}");
    let nvls = path("nvls.xml");
    let switches = ["export", "--msccl", "all_reduce", "--algorithm", "nvls", "-o", &nvls];
    let refused = lockstep(switches);
    assert_refused(&refused, "choose another --algorithm");
    assert!(!refused.err.contains("cannot write"), "{refused:?}");
    assert!(!fs::exists(&nvls).unwrap());
    fs::write(&goal, "num_ranks 2\nrank 0 {\nl1: send 8b to 1\n").unwrap();
    assert_refused(&lockstep(["sim", &goal]), "line 3");
}
