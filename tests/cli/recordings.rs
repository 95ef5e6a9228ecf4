//! The files that jobs left behind: dumps, archives, logs, profiles.

use super::{assert_refused, json};
use lockstep_tests::{data, lockstep};
use serde_json::Value;
use std::fs;

/// Folder, exit code and the ranks that did it, of the real dumps in `tests/data`.
const RECORDINGS: &[(&str, i32, &[u64])] = &[
    ("t215_healthy", 3, &[]),
    ("t291_healthy", 3, &[]),
    ("t215_type_mismatch", 1, &[1]),
    ("t215_size_mismatch", 1, &[2]),
    ("t291_size_mismatch", 1, &[2]),
    ("t215_dtype_mismatch", 1, &[3]),
    ("t215_never_arrives", 1, &[3]),
    ("t215_two_subgroups_one_hung", 1, &[3]),
    ("t215_skip_allreduce_diff_size", 1, &[2]),
    ("t215_swapped_order", 1, &[1]),
    ("t215_cross_group_deadlock", 1, &[1, 2]),
    ("t215_rank_crash_no_dump", 1, &[2]),
    ("t215_ddp_uneven_inputs", 1, &[3]),
];

#[test]
fn diagnose_names_the_ranks_that_did_it() {
    for (folder, code, culprits) in RECORDINGS {
        let path = data("flight-recorder").join(folder);
        let output = lockstep(["diagnose".as_ref(), "--json".as_ref(), path.as_os_str()]);
        assert_eq!(output.code, *code, "{folder}: {output:?}");
        let report = json(&output);
        assert_eq!(report["schema"], "lockstep.findings/1");
        assert_eq!(report["world_size"], 4, "{folder}");
        assert_eq!(report["verdict"], if *code == 3 { "inconclusive" } else { "findings" });
        let first = &report["findings"][0];
        let named: Vec<u64> = first["culprits"]
            .as_array()
            .map_or_else(Vec::new, |ranks| ranks.iter().filter_map(Value::as_u64).collect());
        assert_eq!(named, *culprits, "{folder}: {first:#}");
        let text = lockstep(["diagnose".as_ref(), path.as_os_str()]);
        assert_eq!(text.code, *code);
        for rank in *culprits {
            assert!(text.out.contains(&rank.to_string()), "{folder}: {}", text.out);
        }
    }
}

#[test]
fn diagnose_refuses_what_is_no_recording() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let dump = fs::read(data("flight-recorder/t215_type_mismatch/rank_0")).unwrap();
    let cases = [
        (write("nccl_trace_rank_0", b""), "empty"),
        (write("nccl_trace_rank_1", &dump[..dump.len() / 2]), "nccl_trace_rank_1"),
        (write("nccl_trace_rank_2", b"cos\nsystem\n(S'true'\ntR."), "nccl_trace_rank_2"),
        (write("nccl_trace_rank_3", &[0xff; 4096]), "nccl_trace_rank_3"),
        (write("trace.lks", b"LKSTRCE\x09"), "version"),
        (write("trace.json", b"{\"schema\":\"lockstep.trace/9\"}"), "lockstep.trace/9"),
        (folder.path().join("absent"), "absent"),
        ("/dev/zero".into(), "not a file"),
    ];
    for (path, about) in cases {
        assert_refused(&lockstep(["diagnose".as_ref(), path.as_os_str()]), about);
        let output = lockstep(["diagnose".as_ref(), "--json".as_ref(), path.as_os_str()]);
        assert_eq!(output.code, 2);
        assert_eq!(json(&output)["verdict"], "unusable");
    }
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert_refused(&lockstep(["diagnose".as_ref(), empty.as_os_str()]), "no files");
}

#[test]
fn a_dump_of_a_gigabyte_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in [("nccl_trace_rank_0", 1 << 30), ("nccl_trace_rank_1", 3 << 30)] {
        let path = folder.path().join(name);
        // Sparse: it takes no disk.
        fs::File::create(&path).unwrap().set_len(bytes).unwrap();
        assert_refused(&lockstep(["diagnose".as_ref(), path.as_os_str()]), name);
    }
}

#[test]
fn one_bad_dump_among_good_ones_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    for rank in 0..3 {
        let name = format!("rank_{rank}");
        fs::copy(data("flight-recorder/t215_never_arrives").join(&name), folder.path().join(&name))
            .unwrap();
    }
    fs::write(folder.path().join("rank_3"), b"").unwrap();
    let output = lockstep(["diagnose".as_ref(), "--json".as_ref(), folder.path().as_os_str()]);
    assert_eq!(output.code, 1, "{output:?}");
    let report = json(&output);
    assert!(report["notes"].to_string().contains("rank_3"), "{report:#}");
}

/// An archive, a folder, a file under gzip and single files are the same recording.
#[test]
fn archives_are_diagnosed_like_folders() {
    let folder = tempfile::tempdir().unwrap();
    let case = data("flight-recorder/t215_size_mismatch");
    let report = |paths: &[&std::path::Path]| {
        let words = ["diagnose".as_ref(), "--json".as_ref()].into_iter();
        let output = lockstep(words.chain(paths.iter().map(|path| path.as_os_str())));
        assert_eq!(output.code, 1, "{output:?}");
        json(&output)
    };
    let plain = report(&[&case]);
    let tar = |name: &str, flags: &str| {
        let path = folder.path().join(name);
        let made = std::process::Command::new("tar")
            .args([flags, path.to_str().unwrap(), "-C", case.to_str().unwrap()])
            .args((0..4).map(|rank| format!("rank_{rank}")))
            .status();
        assert!(made.unwrap().success());
        path
    };
    assert_eq!(report(&[&tar("job.tar", "-cf")])["findings"], plain["findings"]);
    assert_eq!(report(&[&tar("job.tgz", "-czf")])["findings"], plain["findings"]);
    // Half of an archive: what is left of it, and a sentence on the rest.
    let whole = fs::read(folder.path().join("job.tar")).unwrap();
    let half = folder.path().join("half.tar");
    fs::write(&half, &whole[..whole.len() / 2]).unwrap();
    let output = lockstep(["diagnose".as_ref(), "--json".as_ref(), half.as_os_str()]);
    assert!(json(&output)["notes"].to_string().contains("half.tar"), "{output:?}");
}

/// Four ranks' lines of NCCL, as `NCCL_DEBUG_SUBSYS=INIT,COLL` writes them; rank 2 takes the sum.
fn nccl_log() -> String {
    let mut text = String::from("step 0 loss 3.14\n");
    for rank in 0..4 {
        text += &format!(
            "gpu1:{}:7 [{rank}] NCCL INFO ncclCommInitRank comm 0x1{rank} rank {rank} nranks 4 \
             cudaDev {rank} nvmlDev {rank} busId 1a000 commId 0xbd10cc2b - Init COMPLETE\n",
            900 + rank
        );
        for count in 0..3 {
            let op = if rank == 2 && count == 1 { 0 } else { 4 };
            text += &format!(
                "gpu1:{}:7 [{rank}] NCCL INFO AllReduce: opCount {count} sendbuff 0x1 recvbuff 0x1 \
                 count 256 datatype 7 op {op} root 0 comm 0x1{rank} [nranks=4] stream 0x5\n",
                900 + rank
            );
        }
    }
    text
}

#[test]
fn logs_and_profiles_are_diagnosed_alone_and_with_dumps() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.log");
    fs::write(&path, nccl_log()).unwrap();
    let output = lockstep(["diagnose".as_ref(), "--json".as_ref(), path.as_os_str()]);
    let report = json(&output);
    assert_eq!(output.code, 1, "{report:#}");
    let first = &report["findings"][0];
    assert_eq!((&first["kind"], &first["culprits"][0]), (&"reduce_op_mismatch".into(), &2.into()));
    assert!(first["message"].as_str().unwrap().contains("SUM"), "{first:#}");
    assert_eq!(first["seq"], 2);
    // PyTorch's own messages.
    fs::write(&path, "RuntimeError: Rank 1 exhausted all inputs.\n").unwrap();
    let output = lockstep(["diagnose".as_ref(), "--json".as_ref(), path.as_os_str()]);
    assert_eq!(json(&output)["findings"][0]["kind"], "ddp_uneven_inputs");
    // What a job left, in one go.
    let case = data("flight-recorder/t215_ddp_uneven_inputs");
    let both =
        lockstep(["diagnose".as_ref(), "--json".as_ref(), case.as_os_str(), path.as_os_str()]);
    assert!(json(&both)["notes"].to_string().contains("1 message of PyTorch's own"), "{both:?}");
    // Profiles.
    let output = lockstep(["diagnose".as_ref(), "--json".as_ref(), data("kineto").as_os_str()]);
    let report = json(&output);
    assert_eq!((output.code, &report["verdict"]), (3, &"inconclusive".into()), "{report:#}");
    assert!(report["notes"].to_string().contains("2 of the job's 4 ranks have a profile"));
}

/// The files that torchrun left of a job: a folder for each attempt and process.
#[test]
fn torchruns_folders_are_diagnosed() {
    let diagnose = |path: &str| {
        let output = lockstep(["diagnose".as_ref(), "--json".as_ref(), data(path).as_os_str()]);
        (output.code, json(&output))
    };
    let (code, report) = diagnose("job-log/stuck");
    let first = &report["findings"][0];
    assert_eq!((code, &report["world_size"]), (1, &4.into()), "{report:#}");
    assert_eq!((&first["kind"], &first["culprits"][0]), (&"rank_never_joined".into(), &3.into()));
    assert_eq!(first["evidence"][0]["frame"], "job.py:20");
    let (_, report) = diagnose("job-log");
    let notes = report["notes"].to_string();
    assert!(notes.contains("were not read, since it holds files itself"), "{report:#}");
}

/// The dumps that `lockstep export` writes of a simulation are diagnosed like the simulation.
#[test]
fn exported_dumps_are_diagnosed_like_what_they_are_of() {
    let folder = tempfile::tempdir().unwrap();
    for (id, kind, culprit) in [
        ("stuck-data-loader", "rank_never_joined", 3),
        ("uneven-last-batch", "size_mismatch", 1),
        ("checkpoint-on-rank-0", "op_extra", 0),
    ] {
        let out = folder.path().join(id);
        let written = ["export", "--flight-recorder", id, "-o", out.to_str().unwrap()];
        assert_eq!(lockstep(written).code, 0);
        let output = lockstep(["diagnose".as_ref(), "--json".as_ref(), out.as_os_str()]);
        let first = &json(&output)["findings"][0];
        assert_eq!(
            (&first["kind"], &first["culprits"][0]),
            (&kind.into(), &culprit.into()),
            "{id}"
        );
    }
}

/// Dumps that are written of recorded dumps are those: they are not simulated on the way.
#[test]
fn exported_dumps_of_a_recording_keep_its_finding() {
    let folder = tempfile::tempdir().unwrap();
    for case in ["jobs-torch-2.15/objects", "jobs-torch-2.15/moe_t", "jobs-torch-2.15/mesh_tp"] {
        let dumps = format!("{}/data/{case}/dumps", env!("CARGO_MANIFEST_DIR"));
        let out = folder.path().join(case.replace('/', "-"));
        let out = out.to_str().unwrap();
        let written = lockstep(["export", "--flight-recorder", &dumps, "-o", out]);
        assert_eq!(written.code, 0, "{written:?}");
        let first = |path: &str| {
            let said = json(&lockstep(["diagnose", "--json", path]));
            (said["findings"][0]["kind"].clone(), said["findings"][0]["culprits"].clone())
        };
        assert_eq!(first(out), first(&dumps), "{case}");
    }
}

/// Profiles and execution traces of a hang are diagnosed like the hang: they say which calls did not end.
#[test]
fn exported_profiles_and_execution_traces_hold_the_hang() {
    let folder = tempfile::tempdir().unwrap();
    for (id, kind, culprit) in [
        ("stuck-data-loader", "rank_never_joined", 3),
        ("uneven-last-batch", "size_mismatch", 1),
        ("checkpoint-on-rank-0", "op_extra", 0),
    ] {
        for form in ["--kineto", "--chakra"] {
            let out = folder.path().join(format!("{id}{form}"));
            let written = lockstep(["export", form, id, "-o", out.to_str().unwrap()]);
            assert_eq!(written.code, 0, "{written:?}");
            let output = lockstep(["diagnose".as_ref(), "--json".as_ref(), out.as_os_str()]);
            let first = &json(&output)["findings"][0];
            let found = (&first["kind"], &first["culprits"][0]);
            assert_eq!(found, (&kind.into(), &culprit.into()), "{id} {form}");
        }
    }
}

/// An execution trace is a recording to every command: its calls and computations are simulated again.
#[test]
fn an_execution_trace_is_a_plan() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (program, trace, chakra) = (path("train.py"), path("trace.json"), path("chakra"));
    let text = "def main():\n    dist.init_process_group('gloo')\n    grad = tensor(64)\n    for step in \
                range(4):\n        compute('forward', us = 800)\n        dist.all_reduce(grad)\nrun(main, \
                world_size = 3)\n";
    fs::write(&program, text).unwrap();
    assert_eq!(lockstep(["sim", &program, "-o", &trace]).code, 0);
    assert_eq!(lockstep(["export", "--chakra", &trace, "-o", &chakra]).code, 0);
    let groups = fs::read_to_string(format!("{chakra}/astra-sim/comm_group.json")).unwrap();
    let groups: serde_json::Value = serde_json::from_str(&groups).unwrap();
    assert_eq!(groups, serde_json::json!({ "0": [0, 1, 2] }));
    let healthy = lockstep(["diagnose", &chakra, "--json"]);
    assert_eq!(json(&healthy)["verdict"], "healthy");
    let plan = json(&lockstep(["plan", &chakra]));
    assert_eq!(plan["world_size"], 3);
    let ops = plan["programs"][0]["ops"].as_array().unwrap();
    let computed = ops.iter().filter_map(|op| op["action"]["compute"]["duration_ns"].as_u64());
    let computed: Vec<u64> = computed.collect();
    assert!(
        computed.len() == 4 && computed.iter().all(|ns| ns.abs_diff(800_000) <= 2),
        "{computed:?}"
    );
    // One file is a recording by its name. Its replay assumes the calls of the others, and so is inconclusive.
    fs::copy(format!("{chakra}/job.1.et"), path("alone.1.et")).unwrap();
    assert_eq!(lockstep(["sim", &path("alone.1.et")]).code, 3);
    let mut cut = fs::read(format!("{chakra}/job.0.et")).unwrap();
    cut.truncate(cut.len() - 5);
    fs::write(path("job.0.et"), cut).unwrap();
    for (command, code) in [("diagnose", 3), ("plan", 0), ("sim", 3)] {
        let told = lockstep([command, &path("job.0.et")]);
        assert_eq!(told.code, code, "{command}: {told:?}");
        let said = told.out.clone() + &told.err;
        assert!(said.contains("is cut off inside of message"), "{command}: {told:?}");
    }
}

/// A program knows which call of its loop a rank left out. In its dumps the calls are all alike: there the
/// rank is named, and between which calls it is. Where times are recorded that were not simulated on a
/// stream, they tell it, too.
#[test]
fn what_dumps_cannot_tell_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let found = |backend: &str| {
        let (path, out) = (folder.path().join("train.py"), folder.path().join(backend));
        let program = format!(
            "def main():\n    dist.init_process_group('{backend}')\n    dp = dist.new_group([0, 1, 2, 3])\n    \
             grad = tensor(64)\n    for step in range(8):\n        compute('forward', us = 800)\n        if \
             dist.get_rank() != 2 or step != 5:\n            dist.all_reduce(grad, group = dp)\n    \
             dist.barrier()\nrun(main, world_size = 8)\n"
        );
        fs::write(&path, program).unwrap();
        let simulated = lockstep(["sim".as_ref(), path.as_os_str(), "--json".as_ref()]);
        let simulated = json(&simulated)["findings"]["findings"][0].clone();
        let words = ["export".as_ref(), "--flight-recorder".as_ref(), path.as_os_str()];
        let written = lockstep(words.into_iter().chain(["-o".as_ref(), out.as_os_str()]));
        assert_eq!(written.code, 0, "{written:?}");
        let read = lockstep(["diagnose".as_ref(), "--json".as_ref(), out.as_os_str()]);
        [simulated, json(&read)["findings"][0].clone()]
    };
    for backend in ["nccl", "gloo"] {
        let [simulated, read] = found(backend);
        for finding in [&simulated, &read] {
            assert_eq!(finding["kind"], "op_skipped", "{finding:#}");
            assert_eq!(finding["culprits"], serde_json::json!([2]), "{finding:#}");
        }
        assert_eq!(simulated["seq"], 6, "{simulated:#}");
        let said = read["message"].as_str().unwrap();
        match backend {
            "nccl" => assert!(said.contains("one of #1 to #8, which are all alike"), "{said}"),
            _ => assert_eq!(read["seq"], 6, "{read:#}"),
        }
    }
}

/// PyTorch's own analyser reads what is exported, and agrees where it is right: it compares the
/// calls at one number, so a size that differs is seen, and with everybody alike it is content.
/// (The wheels of 2.7.1 and 2.9.1 have the script without the module that it imports.)
#[test]
#[ignore = "needs a Python with PyTorch in LOCKSTEP_PYTHON"]
fn torchfrtrace_agrees_with_what_is_exported() {
    let python = std::env::var_os("LOCKSTEP_PYTHON").expect("LOCKSTEP_PYTHON names a Python");
    let folder = tempfile::tempdir().unwrap();
    let analysed = |id: &str, repaired: bool| -> String {
        let out = folder.path().join(format!("{id}-{repaired}"));
        let mut words = vec!["export", "--flight-recorder", id, "-o", out.to_str().unwrap()];
        words.extend(repaired.then_some("--repaired"));
        let written = lockstep(&words);
        assert_eq!(written.code, 0, "{written:?}");
        let prefix = fs::read_dir(&out)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .find_map(|name| Some(name.strip_suffix('0')?.to_owned()))
            .expect("a dump of rank 0");
        let said = std::process::Command::new(&python)
            .args(["-m", "torch.distributed.flight_recorder.fr_trace"])
            .args(["--prefix", &prefix, out.to_str().unwrap()])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&said.stdout) + String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success(), "{id}: {text}");
        text.into_owned()
    };
    let differs = analysed("uneven-last-batch", false).to_lowercase();
    assert!(differs.contains("mismatch"), "{differs}");
    let differs = analysed("mismatched-collectives", false).to_lowercase();
    assert!(differs.contains("mismatch"), "{differs}");
    let alike = analysed("uneven-last-batch", true).to_lowercase();
    assert!(!alike.contains("mismatch"), "{alike}");
}

/// A rank whose model has another layer: DDP's constructor ends it, and everybody's words say so.
#[test]
fn ranks_with_different_numbers_of_parameters_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("train.py");
    let text = "\
def main():
    dist.init_process_group('gloo', timeout = seconds(10))
    sizes = [8, 8, 8]
    if dist.get_rank() == 1:
        sizes = sizes + [8]
    model = DDP(models.mlp(sizes))
    model.forward()
    model.backward()

run(main, world_size = 3)
";
    // Every rank raises here, in PyTorch as well: the minority is to blame, whoever ends first.
    for (world, odd, culprits, certainty) in [
        ("3", "== 1", vec![1], "certain"),
        ("3", "== 0", vec![0], "certain"),
        ("4", "== 3", vec![3], "certain"),
        ("4", "!= 2", vec![2], "certain"),
        ("4", "< 2", vec![0, 1, 2, 3], "undecidable"),
    ] {
        let text = text.replace("== 1", odd).replace("size = 3", &format!("size = {world}"));
        fs::write(&path, text).unwrap();
        for verb in ["sim", "run"] {
            let output = lockstep([verb.as_ref(), "--json".as_ref(), path.as_os_str()]);
            assert_eq!(output.code, 1, "{output:?}");
            let said = json(&output)["findings"]["findings"].clone();
            assert_eq!(said.as_array().map(Vec::len), Some(1), "{verb} {odd}: {said:#}");
            assert_eq!(said[0]["kind"], "ddp_model_mismatch", "{verb} {odd}: {said:#}");
            assert_eq!(said[0]["culprits"], serde_json::json!(culprits), "{verb} {odd}: {said:#}");
            assert_eq!(said[0]["certainty"], certainty, "{verb} {odd}: {said:#}");
        }
    }
}

/// Two attempts in one drop, in folders or in archives: the newer is judged, the other named.
#[test]
fn attempts_are_kept_apart() {
    let folder = tempfile::tempdir().unwrap();
    let newer = data("flight-recorder/t291_size_mismatch");
    let older = data("flight-recorder/t215_never_arrives");
    for (attempt, from) in [("attempt_0", &older), ("attempt_1", &newer)] {
        fs::create_dir(folder.path().join(attempt)).unwrap();
        for rank in 0..4 {
            let name = format!("rank_{rank}");
            fs::copy(from.join(&name), folder.path().join(attempt).join(&name)).unwrap();
        }
    }
    let output = lockstep(["diagnose".as_ref(), "--json".as_ref(), folder.path().as_os_str()]);
    let report = json(&output);
    assert_eq!(report["findings"][0]["kind"], "size_mismatch", "{report:#}");
    assert_eq!(report["findings"].as_array().map(Vec::len), Some(1), "{report:#}");
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("attempt_1 was judged") && notes.contains("attempt_0 was not"),
        "{notes}"
    );
    // Without folders or names that tell: unusable, and why.
    let all = folder.path().join("attempt_0");
    for rank in 0..4 {
        fs::copy(newer.join(format!("rank_{rank}")), all.join(format!("rank_{rank}.pkl"))).unwrap();
    }
    let output = lockstep(["diagnose".as_ref(), "--json".as_ref(), all.as_os_str()]);
    assert_eq!(output.code, 2, "{output:?}");
    let report = json(&output);
    assert_eq!(report["verdict"], "unusable");
    assert!(report["notes"].to_string().contains("both claim to be rank"), "{report:#}");
}

/// PyTorch's execution traces of two of four ranks (`tests/data/kineto` has the profiles of the same job).
#[test]
fn execution_traces_of_some_ranks_are_inconclusive() {
    let traces = [0, 1].map(|rank| data(&format!("export/et_rank{rank}.json.gz")));
    let arguments = ["diagnose".as_ref(), "--json".as_ref()].into_iter();
    let output = lockstep(arguments.chain(traces.iter().map(|path| path.as_os_str())));
    let report = json(&output);
    assert_eq!((output.code, &report["verdict"]), (3, &"inconclusive".into()), "{report:#}");
    assert_eq!(report["unseen"][0], "Nothing was recorded of ranks 2-3.");
}

/// Healthy means evidence: one of four ranks' profiles shows no mistake, and shows nothing of the
/// others either.
#[test]
fn a_part_of_a_job_without_a_finding_is_inconclusive() {
    let profile = data("kineto/kineto_rank0.json");
    let arguments = ["diagnose".as_ref(), "--json".as_ref(), profile.as_os_str()];
    let output = lockstep(arguments);
    assert_eq!(output.code, 3, "{output:?}");
    let report = json(&output);
    assert_eq!(report["verdict"], "inconclusive");
    assert!(report["unseen"].to_string().contains("ranks 1-3"), "{report:#}");
    let accepted = [&arguments[..], &["--accept-inconclusive".as_ref()]].concat();
    assert_eq!(lockstep(accepted).code, 0);
}
