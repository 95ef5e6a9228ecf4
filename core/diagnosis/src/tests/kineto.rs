use crate::facts::other_sources::OtherSources;
use crate::{Kind, Report, Verdict, diagnose_files, diagnose_other};
use lockstep_core::trace::{CallLog, TensorShape};
use lockstep_formats::archive::{self, Limits};
use lockstep_formats::job_calls::Shows;
use lockstep_formats::kineto::{Calls, Profile, calls_of};
use lockstep_formats::recording::{Piece, Sources};
use proptest::prelude::*;
use std::path::Path;

fn diagnose_profiles(log: &CallLog, notes: Vec<String>) -> Report {
    diagnose_other(log, Shows::EndedCalls, notes, OtherSources::default())
}

/// The profiles of two of four ranks of a real gloo job with DDP.
fn real() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/kineto");
    let name = |rank: u32| format!("kineto_rank{rank}.json");
    (0..2).map(|rank| (name(rank), std::fs::read(folder.join(name(rank))).unwrap())).collect()
}

#[test]
fn a_real_profile_is_read_with_groups_roots_and_times() {
    let files = real();
    assert!(files.iter().all(|(_, bytes)| Profile::is_one(bytes)));
    let profiles: Vec<Profile> =
        files.iter().map(|(name, bytes)| Profile::read(name, bytes).unwrap()).collect();
    assert_eq!(profiles.iter().map(|it| it.rank().0).collect::<Vec<_>>(), [0, 1]);
    let calls = calls_of(profiles).unwrap();
    assert_eq!(calls.log.world_size, 4);
    let groups: Vec<_> = calls.log.groups.iter().map(|group| group.label().to_owned()).collect();
    assert_eq!(groups, ["default_pg", "dp_even", "dp_odd"]);
    // What the job did: see the file's own `c10d::` events.
    let ops = |rank: usize| -> Vec<(String, Option<u32>, u64)> {
        let own = calls.log.ranks[rank].as_ref().unwrap();
        let of = |it: &lockstep_core::trace::CallRecord| {
            let numel = it.call.inputs.iter().map(TensorShape::numel).sum();
            (it.call.op.clone(), it.call.root.or(it.call.peer).map(|root| root.0), numel)
        };
        own.calls.iter().map(of).collect()
    };
    let both = [
        ("all_reduce", None, 4680),
        ("broadcast", Some(0), 5),
        ("broadcast", Some(0), 1),
        ("all_reduce", None, 4680),
        ("all_reduce", None, 32),
        ("all_gather", None, 64),
        ("broadcast", Some(1), 8),
        ("barrier", None, 0),
        ("all_to_all", None, 16),
    ];
    for (rank, last) in [(0, ("send", Some(1), 3)), (1, ("recv", Some(0), 3))] {
        let wanted: Vec<_> = both
            .iter()
            .chain([&last])
            .map(|(op, root, numel)| ((*op).to_owned(), *root, *numel))
            .collect();
        assert_eq!(ops(rank), wanted);
    }
    let first = &calls.log.ranks[0].as_ref().unwrap().calls[0];
    // 4339732279455.858 µs to 4339732279640.091 + 308738.593 µs.
    let took = first.completed_ps.unwrap() - first.scheduled_ps;
    assert_eq!(took / 1_000_000, 308_922);
    let report = diagnose_profiles(&calls.log, calls.notes);
    // Two of four ranks left a profile.
    assert_eq!(report.verdict, Verdict::Inconclusive, "{}", report.to_text());
    assert_eq!(report.unseen, ["Nothing was recorded of ranks 2-3."]);
}

/// An observer is switched on where it is asked for, as a profiler is: a rank without an execution trace is not missed.
#[test]
fn execution_traces_of_two_of_four_ranks_are_inconclusive() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/export");
    let mut sources = Sources::default();
    for rank in 0..2 {
        let packed = std::fs::read(folder.join(format!("et_rank{rank}.json.gz"))).unwrap();
        let limits = Limits { file_bytes: 1 << 24, total_bytes: 1 << 24 };
        let mut take = |_: &str, bytes: &[u8]| {
            sources.take(Piece::read(&format!("et_rank{rank}.json"), bytes));
        };
        archive::for_each_file("et", &packed, limits, &mut take).unwrap();
    }
    let report = diagnose_files(sources).unwrap().report;
    assert_eq!(report.verdict, Verdict::Inconclusive, "{}", report.to_text());
    let ends = "The recording tells which calls were made, and not which of them ended.";
    assert_eq!(report.unseen, ["Nothing was recorded of ranks 2-3.", ends]);
}

/// A profile as NCCL's calls make it: `torch/csrc/profiler/util.cpp`, `saveNcclMeta`.
fn nccl(rank: u32, steps: u32, late_us: f64, skew_us: f64, keep: impl Fn(u32) -> bool) -> Vec<u8> {
    let mut events = Vec::new();
    for step in (0..steps).filter(|step| keep(*step)) {
        let begins = 1000.0 + f64::from(step) * 50_000.0;
        let came = begins + late_us;
        // All end together: whoever waits for the last one takes longer.
        let ends = begins + 20_000.0;
        for (name, group, size, ranks) in
            [("_allgather_base", "1", 2, "[0, 1]"), ("allreduce", "0", 4, "[0, 1, ..., 3]")]
        {
            if group == "1" && rank > 1 {
                continue;
            }
            let id = step * 2 + u32::from(group == "0");
            let shift = if group == "0" { 21_000.0 } else { 0.0 };
            let args = serde_json::json!({
                "External id": id, "Collective name": name, "In msg nelems": 64,
                "Out msg nelems": 64 * size, "Group size": size, "dtype": "BFloat16",
                "Process Group Name": group, "Process Group Ranks": ranks,
                "Global rank start": 0, "Global rank stride": 1, "Rank": rank,
            });
            events.push(serde_json::json!({
                "ph": "X", "cat": "cpu_op", "name": "record_param_comms", "pid": 1, "tid": 1,
                "ts": begins + shift - 500.0 + skew_us, "dur": 20.0, "args": args,
            }));
            events.push(serde_json::json!({
                "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
                "pid": 0, "tid": 7, "ts": came + shift + skew_us, "dur": ends - came,
                "args": {"External id": id, "stream": 7},
            }));
        }
    }
    let ranks = [0, 1, 2, 3];
    serde_json::json!({
        "schemaVersion": 1,
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 4, "pg_config": [
            {"pg_name": "0", "pg_desc": "default_pg", "ranks": ranks},
        ]},
        "baseTimeNanoseconds": 1_700_000_000_000_000_000u64,
        "traceEvents": events,
    })
    .to_string()
    .into_bytes()
}

fn calls(files: &[Vec<u8>]) -> Calls {
    let read = |bytes: &Vec<u8>| Profile::read("trace.json", bytes).unwrap();
    calls_of(files.iter().map(read).collect()).unwrap()
}

fn found(calls: &Calls) -> Vec<(Kind, Vec<u32>)> {
    let report = diagnose_profiles(&calls.log, Vec::new());
    let short = |finding: &crate::Finding| {
        (finding.kind, finding.culprits.iter().map(|rank| rank.0).collect())
    };
    report.findings.iter().map(short).collect()
}

#[test]
fn calls_of_nccl_have_groups_and_the_times_of_their_kernels() {
    let files: Vec<_> = (0..4).map(|rank| nccl(rank, 20, 0.0, 0.0, |_| true)).collect();
    let calls = calls(&files);
    assert_eq!(found(&calls), []);
    let ranks: Vec<usize> = calls.log.groups.iter().map(|group| group.ranks().len()).collect();
    assert_eq!(ranks, [4, 2]);
    let first = &calls.log.ranks[0].as_ref().unwrap().calls[0];
    assert_eq!((first.call.op.as_str(), first.call.group.0, first.seq), ("all_gather", 1, Some(1)));
    // Made 500 µs before its kernel began, which took 20 ms.
    assert_eq!(first.started_ps.unwrap() - first.scheduled_ps, 500_000_000);
    assert_eq!(first.completed_ps.unwrap() - first.started_ps.unwrap(), 20_000_000_000);
}

/// The process runs ahead: only the device's times tell who is slow.
#[test]
fn a_slow_device_is_found_by_its_kernels() {
    let slow = |rank: u32| if rank == 2 { 15_000.0 } else { 0.0 };
    let mut files: Vec<_> = (0..4).map(|rank| nccl(rank, 30, slow(rank), 0.0, |_| true)).collect();
    assert_eq!(found(&calls(&files)), [(Kind::Straggler, vec![2])]);
    files.reverse();
    assert_eq!(found(&calls(&files)), [(Kind::Straggler, vec![2])]);
}

/// A rank whose kernels never began, while the others' did and never ended.
#[test]
fn who_stopped_is_found_where_nobody_ended() {
    let mut files: Vec<_> =
        (0..4).map(|rank| nccl(rank, 10, 0.0, 0.0, |step| rank != 3 || step < 9)).collect();
    // The last kernels of the others are not there either.
    for file in &mut files {
        let mut json: serde_json::Value = serde_json::from_slice(file).unwrap();
        let events = json["traceEvents"].as_array_mut().unwrap();
        events.retain(|event| {
            event["cat"] != "kernel" || event["args"]["External id"] != serde_json::json!(19)
        });
        *file = json.to_string().into_bytes();
    }
    assert_eq!(found(&calls(&files)), [(Kind::RankNeverJoined, vec![3])]);
}

#[test]
fn what_is_no_profile_is_refused() {
    let refused = |bytes: &[u8]| Profile::read("x.json", bytes).unwrap_err().to_string();
    assert!(refused(b"{\"traceEvents\": [").contains("no whole trace"));
    assert!(refused(b"{\"traceEvents\": 3}").contains("no whole trace"));
    let text = b"{\"distributedInfo\": {\"rank\": 1}, \"traceEvents\": []}";
    assert!(refused(text).contains("without calls of torch.distributed"));
    let deep = format!("{{\"traceEvents\": [{}", "[".repeat(100_000));
    assert!(refused(deep.as_bytes()).contains("no whole trace"));
    let mut file = nccl(0, 2, 0.0, 0.0, |_| true);
    let text = String::from_utf8(std::mem::take(&mut file)).unwrap();
    let text = text.replace("\"rank\":0,", "");
    assert!(refused(text.as_bytes()).contains("does not say which rank"), "{text}");
    assert!(Profile::read("rank7.json", text.as_bytes()).is_ok_and(|it| it.rank().0 == 7));
    assert!(!Profile::is_one(b"{\"version\": \"2.10\", \"entries\": []}"));
}

/// Of a file that breaks off the calls before the break are used; those behind it may be the ones that matter.
#[test]
fn a_profile_that_breaks_off_is_no_evidence_of_health() {
    let judged = |cut: usize| {
        let mut sources = Sources::default();
        for rank in 0..2 {
            let mut bytes = nccl(rank, 2, 0.0, 0.0, |_| true);
            bytes.truncate(bytes.len() - if rank == 1 { cut } else { 0 });
            sources.take(Piece::read(&format!("rank{rank}.json"), &bytes));
        }
        diagnose_files(sources).unwrap().report
    };
    let flawed = |report: &Report| report.unseen.iter().any(|why| why.contains("the notes say"));
    assert!(!flawed(&judged(0)), "{:?}", judged(0));
    let broken = judged(10);
    assert!(flawed(&broken) && broken.verdict != Verdict::Healthy, "{broken:?}");
    assert!(broken.notes.iter().any(|note| note.contains("no whole trace")), "{broken:?}");
}

proptest! {
    #[test]
    fn any_damage_ends_without_a_panic(at in 0..2000usize, put in "[ -~]{0,6}", cut in 0..40usize) {
        let mut text = nccl(1, 2, 0.0, 0.0, |_| true);
        let at = at % text.len();
        let to = (at + cut).min(text.len());
        text.splice(at..to, put.bytes());
        if let Ok(profile) = Profile::read("rank1.json", &text) {
            let calls = calls_of(vec![profile]).unwrap();
            let _ = diagnose_profiles(&calls.log, calls.notes);
        }
    }
}
