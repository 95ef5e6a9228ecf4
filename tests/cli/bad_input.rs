//! Recordings that are damaged, or do not belong together: one sentence that says what, where and how to mend it, from
//! every command that takes a recording; what could be read is used.

use super::assert_refused;
use lockstep_tests::{Output, data, lockstep};
use std::fs;
use std::path::{Path, PathBuf};

/// The commands that take a recording.
const COMMANDS: [&str; 4] = ["plan", "sim", "analyze", "repair"];

fn written(folder: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, bytes).unwrap();
    path
}

fn asked(command: &str, paths: &[&Path]) -> Output {
    lockstep([command.as_ref()].into_iter().chain(paths.iter().map(|path| path.as_os_str())))
}

/// An execution trace of PyTorch's own: the callers of nodes 2, 3, …
fn execution_trace(callers: &[u64]) -> String {
    let node = |(id, by): (u64, &u64)| {
        format!(
            "{{\"id\": {id}, \"name\": \"c10d::barrier\", \"ctrl_deps\": {by}, \"inputs\": {{}}}}"
        )
    };
    let nodes: Vec<String> = (2..).zip(callers).map(node).collect();
    format!("{{\"schema\": \"1.1.1-chakra.0.0.4\", \"nodes\": [{}]}}", nodes.join(", "))
}

/// A profile of NCCL: all_reduces with these numbers, a millisecond apart.
fn profile(rank: u32, numbers: impl Iterator<Item = u64>) -> String {
    let call = |seq: u64| {
        let ts = seq * 1000;
        format!(
            "{{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"record_param_comms\", \"ts\": {ts}, \"dur\": 5, \"args\": \
             {{\"External id\": {seq}, \"Collective name\": \"allreduce\", \"dtype\": \"Float\", \"In msg nelems\": 64, \
             \"Out msg nelems\": 64, \"Group size\": 2, \"Process Group Name\": \"0\", \"Process Group Description\": \
             \"default_pg\", \"Process Group Ranks\": \"[0, 1]\", \"Seq\": {seq}}}}},\n\
             {{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"ncclDevKernel_AllReduce\", \"ts\": {ts}, \"dur\": 100, \
             \"args\": {{\"External id\": {seq}, \"stream\": 20}}}}"
        )
    };
    let calls: Vec<String> = numbers.map(call).collect();
    format!(
        "{{\"schemaVersion\": 1, \"distributedInfo\": {{\"backend\": \"nccl\", \"rank\": {rank}, \"world_size\": 2}}, \
         \"baseTimeNanoseconds\": 1700000000000000000, \"traceEvents\": [\n{}\n]}}",
        calls.join(",\n")
    )
}

#[test]
fn what_cannot_be_read_is_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| written(folder.path(), name, bytes);
    let dump = fs::read(data("flight-recorder/t215_type_mismatch/rank_0")).unwrap();
    let cases = [
        (write("a/et_0.json", execution_trace(&[4, 2, 3]).as_bytes()), "in a circle"),
        (write("b/et_0.json", execution_trace(&[1, 9]).as_bytes()), "which is not in the file"),
        (write("c/job.0.et", b""), "is empty"),
        (write("d/nccl_trace_rank_0", b""), "is empty"),
        (write("e/rank0.json", b""), "is empty"),
        (write("f/nccl_trace_rank_0", &dump[..dump.len() / 2]), "cut off at byte"),
        (write("g/rank0.json", &profile(0, 0..3).as_bytes()[..150]), "copy the whole file again"),
    ];
    for (path, about) in &cases {
        for command in COMMANDS {
            let output = asked(command, &[path]);
            assert!(output.err.contains(path.file_name().unwrap().to_str().unwrap()), "{output:?}");
            assert_refused(&output, about);
        }
    }
}

#[test]
fn profiles_of_different_steps_make_no_plan() {
    let folder = tempfile::tempdir().unwrap();
    let one = written(folder.path(), "rank0.json", profile(0, 100..120));
    let other = written(folder.path(), "rank1.json", profile(1, 140..160));
    for command in COMMANDS {
        let output = asked(command, &[&one, &other]);
        let said = output.err.to_lowercase();
        assert!(said.contains("#100 to #119") && said.contains("#140 to #159"), "{output:?}");
        assert!(said.contains("record the same steps on every rank"), "{output:?}");
        // Each rank's own time is told all the same.
        assert_eq!(output.code, if command == "analyze" { 0 } else { 2 }, "{output:?}");
    }
}

/// The calls before the place at which a file is cut off are used, and a line says where that is.
#[test]
fn a_cut_profile_is_used_as_far_as_it_goes() {
    let folder = tempfile::tempdir().unwrap();
    let whole = profile(0, 0..10);
    let cut = whole.rfind("\"ph\"").unwrap();
    let one = written(folder.path(), "rank0.json", &whole[..cut]);
    let other = written(folder.path(), "rank1.json", profile(1, 0..10));
    for command in ["plan", "sim", "analyze"] {
        let output = asked(command, &[&one, &other]);
        assert_ne!(output.code, 2, "{output:?}");
        assert!(output.err.contains("rank0.json") && output.err.contains(" line "), "{output:?}");
    }
}

/// A clock that was set back, and a damaged file, leave nothing out.
#[test]
fn times_that_run_backwards_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let backwards = profile(0, 0..10).replacen("\"dur\": 100", "\"dur\": -2500", 1);
    let one = written(folder.path(), "rank0.json", backwards);
    let other = written(folder.path(), "rank1.json", profile(1, 0..10));
    for command in ["plan", "sim", "analyze"] {
        let output = asked(command, &[&one, &other]);
        assert_ne!(output.code, 2, "{output:?}");
        assert!(output.err.contains("2.500 ms before it begins"), "{output:?}");
    }
}
