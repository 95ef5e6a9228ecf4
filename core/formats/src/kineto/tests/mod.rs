//! Profiles that are written, read again.

use super::{KinetoError, KinetoWriter, Profile, calls_of};
use crate::flight_recorder::public_name;
use crate::job_calls::Merged;
use crate::recording::{Piece, RecordedJob, Sources};
use lockstep_core::trace::{
    CallLog, CallRecord, RecordedComputation, RecordedStep, TensorShape, Trace, rank_ops,
};
use std::io::BufReader;
use std::path::Path;

fn trace(name: &str) -> Trace {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/export");
    Trace::read(&std::fs::read(folder.join(name)).unwrap()).unwrap()
}

fn files(trace: &Trace) -> Vec<(String, String)> {
    let writer = KinetoWriter::new(trace);
    let file = |rank| {
        let mut bytes = Vec::new();
        writer.write(rank, &mut bytes).unwrap();
        (KinetoWriter::file_name(rank), String::from_utf8(bytes).unwrap())
    };
    writer.ranks().map(file).collect()
}

fn joined(files: &[(String, String)]) -> RecordedJob {
    let mut sources = Sources::default();
    files.iter().for_each(|(name, text)| sources.take(Piece::read(name, text.as_bytes())));
    sources.join().unwrap()
}

/// Every call, with times in nanoseconds since the first one was made.
fn told(log: &CallLog) -> Vec<String> {
    let mut told = Vec::new();
    let made =
        log.logs().flat_map(|(_, own)| own.calls.iter().map(|call| call.scheduled_ps / 1000));
    let first_ns = made.min().unwrap();
    let ns = |ps: Option<u64>| ps.map(|ps| ps / 1000 - first_ns);
    for (rank, own) in log.logs() {
        for record in &own.calls {
            let call = &record.call;
            let numel = |of: &[TensorShape]| -> Vec<(u64, &str)> {
                of.iter().map(|tensor| (tensor.numel(), tensor.dtype.name())).collect()
            };
            // A profile has no time of a call that did not end, but for when it was made.
            let ended = record.completed_ps.and(record.started_ps);
            told.push(format!(
                "{rank}: {} {} #{:?} to {:?} root {:?} {:?} {:?} {:?} {:?} {:?} {:?}",
                public_name(&call.op),
                log.groups[call.group.index()].label(),
                record.seq,
                call.peer,
                call.root,
                numel(&call.inputs),
                numel(&call.outputs),
                record.state,
                ns(Some(record.scheduled_ps)),
                ns(ended),
                ns(record.completed_ps),
            ));
        }
    }
    told
}

#[test]
fn a_trace_comes_back_as_the_same_calls() {
    for name in ["healthy.lks", "hang.lks"] {
        let trace = trace(name);
        let read = files(&trace)
            .iter()
            .map(|(name, text)| Profile::read(name, text.as_bytes()).unwrap())
            .collect();
        let calls = calls_of(read).unwrap();
        assert_eq!(told(&calls.log), told(&CallLog::of(&trace)), "{name}");
        for (read, before) in calls.log.groups.iter().zip(&trace.header.groups) {
            assert_eq!((read.label(), read.ranks()), (before.label(), before.ranks()));
        }
    }
}

#[test]
fn computations_come_back_and_a_stream_reads_as_the_whole_file() {
    let trace = trace("healthy.lks");
    let written = files(&trace);
    let whole = |(name, text): &(String, String)| Profile::read(name, text.as_bytes()).unwrap();
    let profiles: Vec<Profile> = written.iter().map(whole).collect();
    for ((name, text), profile) in written.iter().zip(&profiles) {
        let stream = BufReader::with_capacity(7, text.as_bytes());
        assert_eq!(Profile::read_stream(name, stream).as_ref(), Ok(profile));
        let cut = &text.as_bytes()[..text.find("record_param_comms").unwrap()];
        assert!(matches!(Profile::read_stream(name, cut), Err(KinetoError::Damaged { .. })));
    }
    let read = calls_of(profiles).unwrap();
    // A trace of the recording holds them too.
    let merged = Merged { header: read.header.clone(), log: read.log.clone(), end_ps: read.end_ps };
    let again = CallLog::of(&merged.trace());
    let computed = |log: &CallLog| -> Vec<Vec<RecordedComputation>> {
        log.logs().map(|(_, own)| own.recording.computations.clone()).collect()
    };
    assert_eq!(computed(&again), computed(&read.log));
    let mut compared = 0;
    for (rank, ops) in rank_ops(&trace) {
        let simulated = ops.computations(&trace, rank).filter(|one| !one.idle);
        let simulated: Vec<(String, u64)> = simulated
            .map(|one| (one.name.to_owned(), (one.span.to_ps.unwrap() - one.span.from_ps) / 1000))
            .collect();
        let own = read.log.ranks[rank.index()].as_ref().unwrap();
        let took = own.recording.computations.iter();
        let took: Vec<(String, u64)> =
            took.map(|one| (one.name.to_string(), (one.to_ps - one.from_ps) / 1000)).collect();
        // Both ends are written in whole nanoseconds.
        let same = |((a, a_ns), (b, b_ns)): (&(String, u64), &(String, u64))| {
            a == b && a_ns.abs_diff(*b_ns) <= 1
        };
        assert_eq!(took.len(), simulated.len());
        assert!(took.iter().zip(&simulated).all(same), "{took:?} {simulated:?}");
        compared += took.len();
    }
    assert!(compared > 0);
}

/// The calls before the place at which a file breaks are used, in the time of the other ranks, and a note says where
/// that is.
#[test]
fn a_profile_that_is_cut_off_keeps_its_calls() {
    let trace = trace("healthy.lks");
    let mut written = files(&trace);
    let whole = joined(&written);
    // Older releases write the origin of times at the end.
    let (_, first) = &mut written[0];
    let (base, rest) = first.split_once("\"baseTimeNanoseconds\": ").unwrap();
    let (_, rest) = rest.split_once(",\n").unwrap();
    let text = format!("{base}{rest}");
    *first = text[..text.rfind("record_param_comms").unwrap()].to_owned();
    let cut = joined(&written);
    let notes = cut.problems.join("\n");
    assert!(notes.contains(&written[0].0) && notes.contains("line "), "{notes}");
    assert!(notes.contains("copy the whole file again"), "{notes}");
    let calls = |job: RecordedJob, rank: usize| {
        told(&CallLog {
            ranks: vec![job.calls.unwrap().merged.log.ranks[rank].clone()],
            ..CallLog::of(&trace)
        })
    };
    let (kept, all) = (calls(cut, 0), calls(whole, 0));
    assert!(!kept.is_empty() && kept.len() < all.len());
    assert_eq!(kept, all[..kept.len()]);
}

/// In a job that hung a rank's last calls are what matters: a file that is cut off does not count as its rank's.
#[test]
fn a_cut_profile_of_a_hang_is_left_out() {
    let mut written = files(&trace("hang.lks"));
    let (name, first) = &mut written[0];
    first.truncate(first.rfind("record_param_comms").unwrap());
    let name = name.clone();
    let job = joined(&written);
    assert!(job.unread.iter().any(|it| it.file_name == name && it.why.contains("left out")));
    assert!(job.calls.unwrap().merged.log.ranks[0].is_none());
}

#[test]
fn a_call_that_ends_before_it_begins_is_told() {
    let mut written = files(&trace("healthy.lks"));
    let (_, text) = &mut written[0];
    let at = text.find("\"name\": \"nccl").unwrap();
    let dur = at + text[at..].find("\"dur\": ").unwrap() + "\"dur\": ".len();
    text.insert_str(dur, "-2000");
    let job = joined(&written);
    let said = job.problems.join("\n");
    assert!(said.contains("ms before it begins"), "{said}");
}

/// HolisticTraceAnalysis finds the rank by this expression, and kernels by stream and name.
#[test]
fn tools_find_rank_and_kernels() {
    let trace = trace("healthy.lks");
    for (rank, (name, text)) in files(&trace).into_iter().enumerate() {
        assert_eq!(name, format!("rank-{rank}.pt.trace.json"));
        let line = text.lines().find(|line| line.contains("\"rank\": ")).unwrap();
        assert!(line.contains(&format!("\"rank\": {rank},")), "{line}");
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["distributedInfo"]["rank"], rank);
        let events = json["traceEvents"].as_array().unwrap();
        let kernels = events.iter().filter(|event| event["cat"] == "kernel");
        let (calls, computations): (Vec<&serde_json::Value>, Vec<&serde_json::Value>) = kernels
            .partition(|kernel| kernel["name"].as_str().unwrap().starts_with("ncclDevKernel_"));
        let own = CallLog::of(&trace);
        assert_eq!(calls.len(), own.ranks[rank].as_ref().unwrap().calls.len());
        // Three a step, two steps.
        assert_eq!(computations.len(), 6);
        assert!(computations.iter().all(|kernel| kernel["args"]["stream"] == 7));
        assert!(calls.iter().all(|kernel| kernel["args"]["stream"].as_u64() >= Some(20)));
        let forward = computations.iter().find(|it| it["name"] == "forward").unwrap();
        assert!((799.0..801.0).contains(&forward["dur"].as_f64().unwrap()), "{forward}");
    }
}

/// The profiles or execution traces of the job in `tests/data/gloo-subgroup`.
fn of_subgroup(beginning: &str) -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/gloo-subgroup");
    let file = |rank: u32| {
        let name = format!("{beginning}_rank{rank}.json");
        let text = std::fs::read_to_string(folder.join(&name)).unwrap();
        (name, text)
    };
    (0..3).map(file).collect()
}

/// The calls of each rank: operation, group and number.
fn grouped(job: &RecordedJob) -> Vec<Vec<(String, String, Option<u64>)>> {
    let log = &job.calls.as_ref().unwrap().merged.log;
    let call = |record: &CallRecord| {
        let group = log.groups[record.call.group.index()].label().to_owned();
        (public_name(&record.call.op).to_owned(), group, record.seq)
    };
    log.logs().map(|(_, own)| own.calls.iter().map(call).collect()).collect()
}

fn exported(job: &RecordedJob) -> Vec<(String, String)> {
    files(&job.calls.as_ref().unwrap().merged.trace())
}

#[test]
fn gloo_calls_are_of_the_group_whose_members_all_made_them() {
    let job = joined(&of_subgroup("kineto"));
    let of_pair = grouped(&job)
        .into_iter()
        .map(|calls| calls.into_iter().filter(|(_, group, _)| group == "undefined").count());
    assert_eq!(of_pair.collect::<Vec<_>>(), [8, 8, 0]);
    let calls = job.calls.as_ref().unwrap();
    assert!(calls.merged.log.logs().all(|(_, own)| own.recording.groups_assumed));
    assert!(calls.notes.iter().any(|note| note.contains("equally often")), "{:?}", calls.notes);
    // An export names the groups: nothing is assumed of it.
    let again = joined(&exported(&job));
    assert_eq!(grouped(&again), grouped(&job));
    assert!(again.calls.unwrap().merged.log.logs().all(|(_, own)| !own.recording.groups_assumed));
}

#[test]
fn gloo_calls_that_fit_no_group_stay_of_none() {
    let mut files = of_subgroup("kineto");
    // Rank 2 makes one all_gather less: no group's members made them equally often.
    let lines: Vec<&str> = files[2].1.lines().collect();
    let last = |name: &str| lines.iter().rposition(|line| line.contains(name)).unwrap();
    let without = [last("\"gloo:all_gather\""), last("c10d::allgather_")];
    let kept = lines.iter().enumerate().filter(|(at, _)| !without.contains(at));
    files[2].1 = kept.map(|(_, line)| *line).collect::<Vec<_>>().join("\n");
    let job = joined(&files);
    let unknown = |job: &RecordedJob| -> Vec<usize> {
        let none = |calls: Vec<(String, String, Option<u64>)>| {
            let of_none = calls.iter().filter(|(op, _, seq)| op == "all_gather" && seq.is_none());
            of_none.count()
        };
        grouped(job).into_iter().map(none).collect()
    };
    assert_eq!(unknown(&job), [8, 8, 7]);
    // The export does not make them calls of a group either.
    assert_eq!(unknown(&joined(&exported(&job))), [8, 8, 7]);
}

#[test]
fn an_all_gather_is_as_large_in_every_recording() {
    for beginning in ["kineto", "et"] {
        let job = joined(&of_subgroup(beginning));
        let log = job.calls.unwrap().merged.log;
        let gathers = log.logs().flat_map(|(_, own)| &own.calls);
        let gathers = gathers.filter(|record| record.call.op == "all_gather");
        let sizes = |tensors: &[TensorShape]| tensors.iter().map(TensorShape::numel).sum::<u64>();
        let sizes: Vec<(u64, u64)> = gathers
            .map(|record| (sizes(&record.call.inputs), sizes(&record.call.outputs)))
            .collect();
        assert_eq!(sizes, [(7, 21); 24], "{beginning}");
    }
}

#[test]
fn two_profiles_of_one_rank_are_a_problem() {
    let mut files = of_subgroup("kineto");
    files.push(("again/kineto_rank1.json".to_owned(), files[1].1.clone()));
    let job = joined(&files);
    let said = job.problems.iter().any(|why| why.contains("are both profiles of rank 1"));
    assert!(said, "{:?}", job.problems);
}

/// `prof.step()` marks steps on the process; on CUDA each stream with kernels of a step has a mark of it as well.
#[test]
fn marked_steps_are_read() {
    let text = r#"{"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
        "baseTimeNanoseconds": 1000000000, "traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#6", "ts": 200, "dur": 90},
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#5", "ts": 100, "dur": 100},
        {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#5", "ts": 130, "dur": 20},
        {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#5", "ts": 120, "dur": 110},
        {"ph": "X", "cat": "gpu_user_annotation", "name": "ProfilerStep#7", "ts": 330, "dur": 20},
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#last", "ts": 1, "dur": 1},
        {"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": 110, "dur": 5, "args": {
            "External id": 1, "Collective name": "allreduce", "dtype": "Float", "In msg nelems": 8,
            "Out msg nelems": 8, "Group size": 2, "Process Group Name": "0"}}]}"#;
    let calls = calls_of(vec![Profile::read("rank-0.json", text.as_bytes()).unwrap()]).unwrap();
    let own = calls.log.ranks[0].as_ref().unwrap();
    let us = |us: u64| us * 1_000_000;
    // Times count from the begin of the first step, which is in front of the first call.
    let step = |number, from_us, to_us, on_device: Option<(u64, u64)>| RecordedStep {
        number,
        from_ps: us(from_us),
        to_ps: us(to_us),
        on_device: on_device.map(|(from_us, to_us)| (us(from_us), us(to_us))),
    };
    assert_eq!(own.recording.steps, [step(5, 0, 100, Some((20, 130))), step(6, 100, 190, None)]);
    assert_eq!(own.calls[0].scheduled_ps, us(10));
}

/// Events of a real profile of April 2023 (HolisticTraceAnalysis, MIT, `tests/data/trace_filter/sampled_rank-0.json.gz`):
/// records of calls without names, sizes and groups, and kernels.
#[test]
fn a_profile_whose_calls_have_no_names_is_not_said_to_have_no_calls() {
    let call = r#"{"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 1, "tid": 1,
        "ts": 1682725898240960, "dur": 134, "args": {"External id": 41956, "Ev Idx": 27619,
        "Input Dims": [[], [], [], [], [], [], []],
        "Input type": ["TensorList", "Scalar", "Scalar", "Scalar", "", "", ""]}}"#;
    let kernel = r#"{"ph": "X", "cat": "kernel", "name":
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "pid": 0, "tid": 84,
        "ts": 1682725898094377, "dur": 30669, "args": {"External id": 6937369, "stream": 84}}"#;
    let refused = |head: &str, events: &[&str]| {
        let text =
            format!("{{\"schemaVersion\": 1, {head}\"traceEvents\": [{}]}}", events.join(", "));
        Profile::read("sampled.json", text.as_bytes()).unwrap_err()
    };
    let head = r#""distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 128}, "#;
    let file = || "sampled.json".to_owned();
    let unnamed = KinetoError::UnnamedCalls { file: file(), calls: 2 };
    assert_eq!(refused(head, &[call, kernel, call]), unnamed);
    // To say first that it has to be renamed by its rank would be of no use.
    assert_eq!(refused("", &[call, call]), unnamed);
    assert_eq!(refused(head, &[kernel]), KinetoError::KernelsOnly { file: file(), kernels: 1 });
    assert_eq!(refused(head, &[]), KinetoError::NoCalls { file: file() });
    assert!(unnamed.to_string().contains("2 calls of NCCL without their names"), "{unnamed}");
}

/// NCCL launches no kernel in a job of one rank, whose profile has other kernels.
#[test]
fn a_profile_with_kernels_is_not_said_to_have_none() {
    let call = r#"{"ph": "X", "cat": "cpu_op", "name": "record_param_comms", "ts": 10, "dur": 5, "args": {
        "External id": 1, "Collective name": "allreduce", "dtype": "Float", "In msg nelems": 8,
        "Out msg nelems": 8, "Group size": 1, "Process Group Name": "0"}}"#;
    let kernel = r#"{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 20, "dur": 5, "args": {"stream": 7}}"#;
    let notes = |events: &[&str]| {
        let text = format!(
            r#"{{"distributedInfo": {{"backend": "nccl", "rank": 0, "world_size": 1}}, "traceEvents": [{}]}}"#,
            events.join(", ")
        );
        let profile = Profile::read("rank-0.json", text.as_bytes()).unwrap();
        calls_of(vec![profile]).unwrap().notes.join(" ")
    };
    assert!(notes(&[call]).contains("hold nothing of the devices"));
    let said = notes(&[call, kernel]);
    assert!(said.contains("none of NCCL") && !said.contains("nothing of the devices"), "{said}");
}
