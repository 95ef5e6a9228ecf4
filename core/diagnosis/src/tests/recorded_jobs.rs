use super::{cases, files};
use crate::{Certainty, Finding, Verdict};
use crate::{DiagnosedJob, Kind, diagnose_files};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_formats::place::Place;
use lockstep_formats::recording::{Piece, Sources};
use proptest::prelude::*;
use serde_json::json;
use std::path::Path;

/// The dumps, NCCL logs and profiles of one job of four ranks on NCCL. Rank 2 reduces its third
/// bucket with SUM, the others with AVG: the recorder sees four all_reduces of one size.
struct Made {
    dumps: Vec<(String, Vec<u8>)>,
    logs: Vec<(String, Vec<u8>)>,
    profiles: Vec<(String, Vec<u8>)>,
}

const CALLS: u32 = 12;

fn made(skew_us: [f64; 4]) -> Made {
    let mut made = Made { dumps: Vec::new(), logs: Vec::new(), profiles: Vec::new() };
    for (rank, skew_us) in skew_us.into_iter().enumerate() {
        let (mut entries, mut lines, mut events) = (Vec::new(), String::new(), Vec::new());
        lines += &format!(
            "n:{0}:1 [{rank}] NCCL INFO ncclCommInitRank comm 0x1{rank} rank {rank} nranks 4 cudaDev \
             {rank} nvmlDev 0 busId 1 commId 0xabc - Init COMPLETE\n",
            100 + rank
        );
        for at in 0..CALLS {
            let (last, wrong) = (at >= 9, rank == 2 && at == 9);
            let us = 1_000_000.0 + f64::from(at) * 20_000.0 + skew_us;
            let ns = |us: f64| 1_700_000_000_000_000_000 + (us * 1000.0) as u64;
            // The ring has dropped the first ones.
            if at >= 3 {
                entries.push(json!({
                    "record_id": at, "pg_id": 0, "process_group": ["0", "default_pg"],
                    "collective_seq_id": at + 1, "p2p_seq_id": 0, "op_id": at + 1,
                    "profiling_name": if at == 5 { "nccl:broadcast" } else { "nccl:all_reduce" },
                    "time_created_ns": ns(us),
                    "time_discovered_completed_ns": (!last).then(|| ns(us + 9_000.0)),
                    "input_sizes": [[64]], "input_dtypes": ["Float"],
                    "output_sizes": [[64]], "output_dtypes": ["Float"],
                    "state": if last { "scheduled" } else { "completed" }, "retired": !last,
                    "timeout_ms": 600_000, "is_p2p": false,
                }));
            }
            let (name, op, root) = match at {
                5 => ("Broadcast", 0, 3),
                _ => ("AllReduce", if wrong { 0 } else { 4 }, 0),
            };
            lines += &format!(
                "n:{}:1 [{rank}] NCCL INFO {name}: opCount {at:x} sendbuff 0x1 recvbuff 0x1 count 64 \
                 datatype 7 op {op} root {root} comm 0x1{rank} [nranks=4] stream 0x5\n",
                100 + rank
            );
            if !last {
                let args = json!({
                    "External id": at, "Collective name": if at == 5 { "broadcast" } else { "allreduce" },
                    "In msg nelems": 64, "Out msg nelems": 64, "Group size": 4, "dtype": "Float",
                    "Process Group Name": "0", "Process Group Ranks": "[0, 1, 2, 3]", "Rank": 3,
                });
                events.push(json!({"ph": "X", "cat": "cpu_op", "name": "record_param_comms",
                    "ts": us, "dur": 5.0, "args": args}));
                events.push(json!({"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce",
                    "ts": us + 1000.0, "dur": 2000.0, "args": {"External id": at}}));
            }
        }
        let dump = json!({"version": "2.10", "entries": entries,
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}});
        let profile = json!({
            "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 4},
            "baseTimeNanoseconds": 1_700_000_000_000_000_000u64, "traceEvents": events});
        made.dumps.push((format!("nccl_trace_rank_{rank}"), dump.to_string().into_bytes()));
        made.logs.push((format!("nccl.{rank}.log"), lines.into_bytes()));
        made.profiles.push((format!("trace{rank}.json"), profile.to_string().into_bytes()));
    }
    made
}

fn gather<'a>(files: impl IntoIterator<Item = &'a (String, Vec<u8>)>) -> DiagnosedJob {
    let mut sources = Sources::default();
    files.into_iter().for_each(|(name, bytes)| sources.take(Piece::read(name, bytes)));
    diagnose_files(sources).unwrap()
}

fn found(gathered: &DiagnosedJob) -> Vec<(Kind, Vec<u32>)> {
    let findings = gathered.report.findings.iter();
    findings.map(|it| (it.kind, it.culprits.iter().map(|rank| rank.0).collect())).collect()
}

fn notes(gathered: &DiagnosedJob) -> String {
    gathered.report.notes.join("\n")
}

/// The recorder alone sees a call that does not complete; NCCL's log has what differs.
#[test]
fn a_log_fills_in_what_the_recorder_lacks() {
    let made = made([0.0; 4]);
    let alone = gather(&made.dumps);
    assert_eq!(found(&alone), [(Kind::CallNeverCompleted, vec![])]);
    let both = gather(made.logs.iter().chain(&made.dumps));
    assert_eq!(found(&both), [(Kind::ReduceOpMismatch, vec![2])], "{}", both.report.to_text());
    assert_eq!(both.report.findings[0].seq, Some(10));
    let told = notes(&both);
    assert!(
        told.contains(
            "36 of 4 ranks are in the other recording too, and it filled in the reduction \
                       of 32 and the root of 4"
        ),
        "{told}"
    );
    let calls = &both.calls.as_ref().unwrap().log.ranks[1].as_ref().unwrap().calls;
    assert_eq!(calls[0].call.reduce_op, Some(ReduceOp::Avg));
    assert_eq!(calls[2].call.root, Some(GroupRank(3)));
    // The log alone finds the same.
    let log = gather(&made.logs);
    assert_eq!(found(&log), [(Kind::ReduceOpMismatch, vec![2])]);
    // A log of another run is not believed.
    let other: Vec<(String, Vec<u8>)> = made
        .logs
        .iter()
        .map(|(name, bytes)| {
            let text = String::from_utf8(bytes.clone()).unwrap().replace("count 64", "count 65");
            (name.clone(), text.into_bytes())
        })
        .collect();
    let both = gather(other.iter().chain(&made.dumps));
    assert_eq!(found(&both), [(Kind::CallNeverCompleted, vec![])]);
    assert!(notes(&both).contains("is it of another run"), "{}", notes(&both));
}

#[test]
fn profiles_fill_in_the_times_of_dumps() {
    let made = made([0.0; 4]);
    let both = gather(made.dumps.iter().chain(&made.profiles));
    let call = &both.calls.as_ref().unwrap().log.ranks[0].as_ref().unwrap().calls[0];
    // A millisecond after it was made, for two; the watchdog looked after nine.
    assert_eq!(call.started_ps.unwrap() - call.scheduled_ps, 1_000_000_000);
    assert_eq!(call.completed_ps.unwrap() - call.scheduled_ps, 3_000_000_000);
    let told = notes(&both);
    assert!(told.contains("24 of 4 ranks are in the dumps too"), "{told}");
    assert!(told.contains("when 24 of them started, and the root of 4"), "{told}");
    let all = gather(made.dumps.iter().chain(&made.profiles).chain(&made.logs));
    assert_eq!(found(&all), [(Kind::ReduceOpMismatch, vec![2])]);
}

#[test]
fn a_rank_without_a_dump_has_last_words_in_its_log() {
    let made = made([0.0; 4]);
    let files = made.dumps.iter().filter(|(name, _)| !name.ends_with('3')).chain(&made.logs[3..]);
    let gathered = gather(files);
    let finding = &gathered.report.findings[0];
    assert_eq!(
        (finding.kind, finding.culprits.as_slice()),
        (Kind::RankMissing, [GlobalRank(3)].as_slice())
    );
    assert!(finding.message.contains("log ends with all_reduce #12"), "{}", finding.message);
}

/// Profiles of four machines, one of whose clocks is 30 ms ahead and one 7 ms behind.
#[test]
fn clocks_are_set_right_by_the_ends_of_collectives() {
    let skew = [0.0, 30_000.0, 0.0, -7_000.0];
    let wrong = gather(&made(skew).profiles);
    let right = gather(&made([0.0; 4]).profiles);
    let times = |gathered: &DiagnosedJob| -> Vec<Vec<Option<u64>>> {
        let log = &gathered.calls.as_ref().unwrap().log;
        let first =
            log.logs().flat_map(|(_, own)| own.calls.first()).map(|it| it.scheduled_ps).min();
        log.logs()
            .map(|(_, own)| {
                own.calls.iter().map(|it| Some(it.completed_ps? - first.unwrap())).collect()
            })
            .collect()
    };
    assert_eq!(times(&wrong), times(&right));
    assert_eq!(wrong.report.verdict, Verdict::Healthy);
    assert!(
        notes(&wrong).contains("rank 1's was 30 ms ahead of rank 0's, by 8 collectives"),
        "{}",
        notes(&wrong)
    );
    assert!(!notes(&right).contains("clock"), "{}", notes(&right));
}

/// Messages alone tell of findings, and of no calls; with dumps they settle what those guess.
#[test]
fn messages_count_alone_and_with_dumps() {
    let said = ("train.log".to_owned(), b"RuntimeError: Rank 2 exhausted all inputs.\n".to_vec());
    let alone = gather([&said]);
    assert!(alone.calls.is_none());
    assert_eq!(found(&alone), [(Kind::DdpUnevenInputs, vec![2])]);
    let with = gather(made([0.0; 4]).dumps.iter().chain([&said]));
    assert!(notes(&with).contains("1 message of PyTorch's own"), "{}", notes(&with));
}

#[test]
fn nothing_that_can_be_read_is_an_error() {
    assert_eq!(
        diagnose_files(Sources::default()).unwrap_err().to_string(),
        "there are no files to diagnose"
    );
    let mut sources = Sources::default();
    sources.take(Piece::read("notes.txt", b"hello"));
    // A text without a message is a log in which nothing was seen to go wrong, or to go well.
    let report = diagnose_files(sources).unwrap().report;
    assert_eq!((report.verdict, report.unseen.len()), (Verdict::Inconclusive, 1), "{report:?}");
    assert!(report.notes[0].contains("its last line is \"hello\""), "{:?}", report.notes);
    // An error in it is quoted.
    let mut sources = Sources::default();
    sources.take(Piece::read(
        "a.log",
        b"epoch 1\nOSError: [Errno 28] No space left on device\ndone\n",
    ));
    let report = diagnose_files(sources).unwrap().report;
    assert_eq!(report.verdict, Verdict::Inconclusive);
    assert!(
        report
            .unseen
            .iter()
            .any(|why| why.contains("a.log, line 2") && why.contains("No space left"))
    );
}

/// PowerShell's `>` writes UTF-16 with a mark.
#[test]
fn texts_in_utf_16_are_read() {
    let text: String = (0..3).map(watchdog).collect();
    let wide: Vec<u8> =
        [0xFEFF].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let plain = gather(&[("job.log".to_owned(), text.into_bytes())]);
    assert!(!plain.report.findings.is_empty());
    assert_eq!(gather(&[("job.log".to_owned(), wide)]).report, plain.report);
    // A dump of a pipe, too.
    let mut dumps = made([0.0; 4]).dumps;
    let plain = gather(&dumps).report;
    for (_, bytes) in &mut dumps {
        let text = std::str::from_utf8(bytes).unwrap();
        let units = [0xFEFF].into_iter().chain(text.encode_utf16());
        *bytes = units.flat_map(u16::to_be_bytes).collect();
    }
    assert_eq!(gather(&dumps).report, plain);
}

#[test]
fn the_order_of_files_does_not_matter() {
    let made = made([0.0, 9_000.0, 0.0, 0.0]);
    let mut files: Vec<_> =
        made.dumps.iter().chain(&made.logs).chain(&made.profiles).cloned().collect();
    let forward = gather(&files);
    files.reverse();
    assert_eq!(gather(&files).report, forward.report);
}

/// Real profiles, alone.
#[test]
fn real_profiles_of_two_of_four_ranks_are_inconclusive() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/kineto");
    let files: Vec<(String, Vec<u8>)> = (0..2)
        .map(|rank| format!("kineto_rank{rank}.json"))
        .map(|name| (name.clone(), std::fs::read(folder.join(&name)).unwrap()))
        .collect();
    let gathered = gather(&files);
    assert_eq!(gathered.report.verdict, Verdict::Inconclusive, "{}", gathered.report.to_text());
    assert!(notes(&gathered).contains("2 of the job's 4 ranks have a profile"));
    assert!(gathered.report.findings.iter().all(|it| it.certainty != Certainty::Certain));
}

proptest! {
    #[test]
    fn any_bytes_are_some_piece(bytes: Vec<u8>) {
        let mut sources = Sources::default();
        sources.take(Piece::read("rank_0", &bytes));
        let _ = diagnose_files(sources);
    }
}

/// Files beside another job's dumps are that job's.
#[test]
fn jobs_in_folders_are_not_mixed() {
    let within = |folder: &str, files: Vec<(String, Vec<u8>)>| {
        files
            .into_iter()
            .map(|(name, bytes)| (format!("{folder}/{name}"), bytes))
            .collect::<Vec<_>>()
    };
    let (old, new) = (made([0.0; 4]), made([60_000_000.0; 4]));
    let old_raises = ("old/rank1.log".to_owned(), b"[rank1]: ValueError: x\n".to_vec());
    let all = [
        within("old", old.dumps.clone()),
        within("old", old.logs),
        within("old", old.profiles),
        vec![old_raises],
        within("new", new.dumps.clone()),
    ];
    let all = gather(all.iter().flatten());
    assert_eq!(found(&all), [(Kind::CallNeverCompleted, vec![])], "{}", all.report.to_text());
    let told = notes(&all);
    assert!(told.contains("new was judged") && told.contains("old was not (4 older"), "{told}");
    assert!(!told.contains("NCCL's log") && !told.contains("profiles"), "{told}");
    // A damaged file of the other job says nothing of a rank that left none here.
    let mut some = within("new", new.dumps.clone());
    some.pop();
    let mut others = within("old", old.dumps.clone());
    others[3].1.truncate(20);
    let missing = gather(some.iter().chain(&others));
    assert_eq!(found(&missing), [(Kind::RankMissing, vec![3])], "{}", missing.report.to_text());
    let message = &missing.report.findings[0].message;
    assert!(!message.contains("cannot be read"), "{message}");
    // The same without folders: whose is whose cannot be told.
    let mixed = gather(old.dumps.iter().chain(&new.dumps));
    assert_eq!(mixed.report.verdict, Verdict::Unusable);
    assert!(notes(&mixed).contains("both claim to be rank"), "{}", notes(&mixed));
}

fn watchdog(rank: u32) -> String {
    format!(
        "[rank{rank}]:[E1122 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation \
         timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran \
         for 600012 milliseconds before timing out.\n"
    )
}

const RAISES: &str = "Traceback (most recent call last):\n  File \"/job/train.py\", line 88, in main\n    \
                      step(batch)\nValueError: bad batch\n";

fn texts(files: &[(&str, &str)]) -> DiagnosedJob {
    let files: Vec<(String, Vec<u8>)> =
        files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect();
    let gathered = gather(&files);
    let mut turned: Vec<_> = files;
    turned.reverse();
    assert_eq!(gather(&turned).report, gathered.report);
    gathered
}

/// torchrun's folders: a number a process, and an attempt for each time that it starts them.
#[test]
fn the_last_attempts_logs_are_judged() {
    let waits: Vec<String> = (0..3).map(watchdog).collect();
    let first = [("attempt_0/0/stderr.log", waits[0].as_str()), ("attempt_0/1/stderr.log", RAISES)];
    let second = [
        ("attempt_1/0/stderr.log", waits[0].as_str()),
        ("attempt_1/1/stderr.log", waits[1].as_str()),
        ("attempt_1/2/stderr.log", waits[2].as_str()),
        ("attempt_1/3/stderr.log", RAISES),
        ("attempt_1/3/stdout.log", "step 6\n"),
    ];
    let both = texts(&[first.as_slice(), &second].concat());
    assert_eq!(found(&both), [(Kind::RankDied, vec![3])]);
    assert!(
        notes(&both).contains("attempt 1 were judged; attempt 0 was left out"),
        "{}",
        notes(&both)
    );
    assert_eq!(found(&texts(&first)), [(Kind::RankDied, vec![1])]);
    // Two runs whose folders say nothing of the kind.
    let mixed = texts(&[("a/rank_1.log", RAISES), ("b/rank_1.log", RAISES)]);
    assert_eq!(mixed.report.verdict, Verdict::Unusable);
    assert!(notes(&mixed).contains("Give the files of one run"), "{}", notes(&mixed));
}

/// A log that says nothing says that its rank timed out in nothing; an empty one, too.
#[test]
fn quiet_logs_are_ranks_logs() {
    let waits: Vec<String> = (0..3).map(watchdog).collect();
    let mut files: Vec<(&str, &str)> = ["rank_0.log", "rank_1.log", "rank_2.log"]
        .into_iter()
        .zip(waits.iter().map(String::as_str))
        .collect();
    files.push(("README.md", "notes"));
    for quiet in ["loading\n", ""] {
        let all = texts(&[files.as_slice(), &[("rank_3.log", quiet)]].concat());
        assert_eq!(found(&all), [(Kind::RankNeverJoined, vec![3])]);
        assert_eq!(all.report.findings[0].certainty, Certainty::Likely);
        assert_eq!(all.problems.len(), 1, "{:?}", all.problems);
    }
    // What cannot be read is a rank's as well.
    let mut sources = Sources::default();
    for (name, text) in &files {
        sources.take(Piece::read(name, text.as_bytes()));
    }
    sources.take(Piece::read("rank_3.log", b"\x00\x9f\xff"));
    let report = diagnose_files(sources).unwrap().report;
    assert_eq!(report.world_size, 4);
    assert_eq!(report.findings[0].certainty, Certainty::Undecidable);
    // Logs of an older attempt's folder are not the newer dumps'.
    let (old, new) = (made([0.0; 4]), made([60_000_000.0; 4]));
    let within = |folder: &str, files: Vec<(String, Vec<u8>)>| {
        files
            .into_iter()
            .map(|(name, bytes)| (format!("{folder}/{name}"), bytes))
            .collect::<Vec<_>>()
    };
    let log = vec![("attempt_0/1/stderr.log".to_owned(), RAISES.as_bytes().to_vec())];
    let all = [within("attempt_0", old.dumps), within("attempt_1", new.dumps), log];
    assert_eq!(found(&gather(all.iter().flatten())), [(Kind::CallNeverCompleted, vec![])]);
}

/// The logs that torchrun of torch 2.7.1 left of real jobs, with its own output and without.
#[test]
fn real_logs_of_torchrun_name_who_did_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/job-log");
    let logs = |job: &str, attempts: u32, printed: bool| {
        let ranks = (0..attempts).flat_map(|attempt| (0..4).map(move |rank| (attempt, rank)));
        let mut names: Vec<String> = ranks
            .flat_map(|(attempt, rank)| {
                let of = |stream| format!("{job}/attempt_{attempt}/{rank}/{stream}.log");
                [of("stdout"), of("stderr")]
            })
            .collect();
        names.extend(printed.then(|| format!("{job}.log")));
        let read = |name: String| (name.clone(), std::fs::read(folder.join(&name)).unwrap());
        gather(&names.into_iter().map(read).collect::<Vec<_>>())
    };
    let short = |gathered: &DiagnosedJob| {
        let findings = gathered.report.findings.iter();
        let ranks = |ranks: &[GlobalRank]| ranks.iter().map(|rank| rank.0).collect::<Vec<_>>();
        let short = findings.map(|it| (it.kind, ranks(&it.culprits), ranks(&it.victims)));
        (short.collect::<Vec<_>>(), gathered.report.world_size)
    };
    for printed in [false, true] {
        let stuck = logs("stuck", 1, printed);
        let never = (vec![(Kind::RankNeverJoined, vec![3], vec![0, 1, 2])], 4);
        assert_eq!(short(&stuck), never);
        let message = &stuck.report.findings[0].message;
        assert!(message.contains("job.py:20 (\"dist.all_reduce(y)\")"), "{message}");
        assert!(message.contains("Rank 3's log ends with \"rank 3 loads\""), "{message}");
        assert_eq!(stuck.problems, [""; 0]);
        let raises = logs("raises", 1, printed);
        assert_eq!(short(&raises), (vec![(Kind::RankDied, vec![3], vec![0, 2])], 4));
        let message = &raises.report.findings[0].message;
        assert!(
            message.starts_with("Rank 3 raised ValueError: bad batch 2 at job.py:8"),
            "{message}"
        );
        let restarted = logs("restarted", 2, printed);
        assert_eq!(short(&restarted).0, [(Kind::CallNeverCompleted, vec![], vec![0, 1])]);
        assert!(notes(&restarted).contains("attempt 0 was left out"), "{}", notes(&restarted));
    }
    assert_eq!(short(&logs("killed", 1, true)), (vec![(Kind::RankDied, vec![2], vec![1, 3])], 4));
}

/// Two looks find the ranks in different collectives: the ranks that differ from most are a likely finding.
#[test]
fn stacks_alone_name_the_rank_in_another_collective() {
    let stack = |rank: u32, call: &str, line: u32| {
        let text = format!(
            "=== Rank {rank}: process {rank}7 ===\nProcess {rank}7: python skip.py\nPython v3.11.7 \
             (/usr/bin/python3.11)\n\nThread {rank}7 (idle): \"MainThread\"\n    {call} \
             (torch/distributed/distributed_c10d.py:4181)\n    main (skip.py:{line})\n    <module> (skip.py:38)\n"
        );
        text
    };
    let at = |rank: u32| match rank {
        1 => stack(rank, "all_gather", 32),
        rank => stack(rank, "all_reduce", 33),
    };
    let twice =
        |rank: u32| (format!("stacks_rank_{rank}.txt"), (at(rank) + "\n" + &at(rank)).into_bytes());
    let job = gather(&[0, 1, 2, 3].map(twice));
    let [finding] = &job.report.findings[..] else { panic!("{:?}", job.report) };
    let seen = (finding.kind, finding.culprits.clone(), finding.certainty);
    assert_eq!(seen, (Kind::CollectiveMismatch, vec![GlobalRank(1)], Certainty::Likely));
    assert!(finding.message.contains("rank 1 waits in all_gather (skip.py:32)"), "{finding:?}");
    assert!(
        finding.message.contains("ranks 0, 2-3 wait in all_reduce (skip.py:33)"),
        "{finding:?}"
    );
    // One look may have met a running job.
    let once = |rank: u32| (format!("stacks_rank_{rank}.txt"), at(rank).into_bytes());
    let job = gather(&[0, 1, 2, 3].map(once));
    assert_eq!(job.report.findings[0].certainty, Certainty::Undecidable);
    // A receive says nothing about collectives, and two calls alike differ in nothing.
    let other = |rank: u32, call: &str| {
        (format!("stacks_rank_{rank}.txt"), stack(rank, call, 33).into_bytes())
    };
    for call in ["recv", "all_reduce"] {
        let job = gather(&[other(0, "all_reduce"), other(1, call), other(2, "all_reduce")]);
        assert_eq!(job.report.findings, [], "{call}");
    }
}

/// Stacks alone name the rank that is not in the others' call. One look does not show that it is stuck; a timer of
/// its own does.
#[test]
fn stacks_alone_name_the_rank_in_code_of_its_own() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/stacks");
    let file = |name: String| {
        let bytes = std::fs::read(folder.join(&name)).unwrap();
        (name, bytes)
    };
    let job = gather(&[0, 1, 2, 3].map(|rank| file(format!("pyspy_rank_{rank}.txt"))));
    let short = |job: &DiagnosedJob| {
        let found = job.report.findings.iter();
        let ranks = |it: &Finding| it.culprits.iter().map(|rank| rank.0).collect::<Vec<_>>();
        found.map(|it| (it.kind, ranks(it), it.certainty)).collect::<Vec<_>>()
    };
    let never = |certainty| [(Kind::RankNeverJoined, vec![2], certainty)];
    assert_eq!((short(&job), job.report.world_size), (never(Certainty::Undecidable).to_vec(), 4));
    assert_eq!(job.report.findings[0].evidence.len(), 4);
    let message = &job.report.findings[0].message;
    assert!(message.contains("rank 2 was in load_batch (hang.py:10)"), "{message}");
    assert!(message.contains("If the job was running"), "{message}");
    assert!(notes(&job).contains("rank 2 was in load_batch (hang.py:10)"), "{}", notes(&job));
    assert_eq!(job.problems, [""; 0]);
    // The ranks' own timers ran out.
    let job = gather(&[0, 1, 2, 3].map(|rank| file(format!("rank_{rank}.log"))));
    assert_eq!(short(&job), never(Certainty::Likely));
    assert!(notes(&job).contains("ranks 0-1, 3 were in train_step (hang.py:16), in all_reduce"));
    // Where all are in one call, nobody is missing there.
    let job = gather(&[0, 1, 3].map(|rank| file(format!("pyspy_rank_{rank}.txt"))));
    assert_eq!((short(&job), job.report.verdict), (vec![], Verdict::Inconclusive));
}

/// Dumps say that a rank never came; its stack says in which line it is instead. Of a rank without a dump, too.
#[test]
fn the_stack_of_a_silent_rank_names_its_line() {
    let dumps = files(&cases().join("t215_never_arrives"));
    let stack = "Process 77: python train.py\nPython v3.11.7\n\nThread 77 (idle): \"MainThread\"\n    \
                 load_batch (data.py:41)\n    main (train.py:12)\n    <module> (train.py:30)\n";
    for without in [false, true] {
        let kept = dumps.iter().filter(|(name, _)| !without || name != "rank_3").cloned();
        let mut all: Vec<(String, Vec<u8>)> = kept.collect();
        all.push(("pyspy_rank_3.txt".to_owned(), stack.as_bytes().to_vec()));
        let report = gather(&all).report;
        let finding = &report.findings[0];
        let kind = if without { Kind::RankMissing } else { Kind::RankNeverJoined };
        assert_eq!((finding.kind, &finding.culprits[..]), (kind, &[GlobalRank(3)][..]));
        assert!(
            finding.message.contains("By the stacks, rank 3 was in load_batch (data.py:41)."),
            "{finding:?}"
        );
        let own = finding.evidence.iter().filter(|it| it.rank == GlobalRank(3));
        let lines: Vec<&str> = own.filter_map(|it| it.frame.as_deref()).collect();
        assert!(lines.contains(&"data.py:41"), "{finding:?}");
    }
}

/// The debug server shows all ranks' dumps on one page.
#[test]
fn a_page_of_the_debug_server_is_the_dumps_of_all_ranks() {
    let dumps = files(&cases().join("t215_never_arrives/json"));
    let page = |ranks: usize| {
        let part = |(name, bytes): &(String, Vec<u8>)| {
            let rank = name.trim_start_matches("rank_").trim_end_matches(".json");
            format!(
                "<h2>Rank {rank}: http://node:2/</h2>\n<pre>{}</pre>\n",
                String::from_utf8_lossy(bytes)
            )
        };
        let text: String = dumps.iter().take(ranks).map(part).collect();
        gather(&[("fr_trace_json.html".to_owned(), text.into_bytes())]).report
    };
    let found = |report: &crate::Report| {
        let first = &report.findings[0];
        (first.kind, first.culprits.clone(), report.world_size)
    };
    assert_eq!(found(&page(4)), (Kind::RankNeverJoined, vec![GlobalRank(3)], 4));
    assert_eq!(found(&page(3)), (Kind::RankMissing, vec![GlobalRank(3)], 4));
}

/// torchfrtrace compares calls by their numbers, so that it reports a skipped call as a wrong size. Its line becomes
/// evidence of the skipped call.
#[test]
fn torchfrtrace_makes_no_second_finding_of_the_same_dumps() {
    let mut sources = Sources::default();
    for (name, bytes) in files(&cases().join("t215_skip_allreduce_diff_size")) {
        sources.take(Piece::read(&name, &bytes));
    }
    let output = "Collective sequence number: 7 has errors\ninternal record id: 6\ngroup info: 0:default_pg\n\
                  collective: gloo:all_reduce\ninput sizes: [[512]]\noutput sizes: [[512]]\nworld size: 4\n\
                  expected ranks: {0, 1, 2, 3}\ncollective state: started\nerror msg: Culprit rank 2; Error type: \
                  SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: '[[512]]' does not match found input sizes: '[[640]]'\n";
    sources.take(Piece::read("torchfrtrace.txt", output.as_bytes()));
    let report = diagnose_files(sources).unwrap().report;
    assert_eq!(super::found(&report), [(Kind::OpSkipped, vec![2])]);
    let evidence = &report.findings[0].evidence;
    let place = Some(Place::new("torchfrtrace.txt", 1));
    assert!(evidence.iter().any(|seen| seen.place == place), "{evidence:?}");
}
