use crate::{Certainty, Kind, Report, Verdict, diagnose};
use lockstep_formats::nccl_log::*;
use proptest::prelude::*;

/// A line of COLL, as NCCL 2.26 writes it.
fn coll(rank: u32, name: &str, op_count: u64, count: u64, op: u32, root: u32, comm: u32) -> String {
    format!(
        "node{}:{}:{} [{}] NCCL INFO {name}: opCount {op_count:x} sendbuff 0x7f00 recvbuff 0x7f00 \
         count {count} datatype 7 op {op} root {root} comm 0x{:x} [nranks=4] stream 0x55\n",
        rank / 2,
        100 + rank,
        200 + rank,
        rank % 2,
        0x1000 + 0x100 * comm + rank
    )
}

fn init(rank: u32, place: u32, nranks: u32, comm: u32, id: &str) -> String {
    ["START", "COMPLETE"]
        .map(|state| {
            format!(
                "node{}:{}:{} [{}] NCCL INFO ncclCommInitRank comm 0x{:x} rank {place} nranks \
                 {nranks} cudaDev 0 nvmlDev 0 busId 1a000 {id} - Init {state}\n",
                rank / 2,
                100 + rank,
                300 + rank,
                rank % 2,
                0x1000 + 0x100 * comm + rank
            )
        })
        .concat()
}

/// A call: name, count, op, root.
type Made = (&'static str, u64, u32, u32);

/// Four ranks on two nodes, that each make these calls.
fn job(calls: impl Fn(u32) -> Vec<Made>) -> Vec<(String, String)> {
    (0..4)
        .map(|rank| {
            let mut text = init(rank, rank, 4, 0, "commId 0xabc");
            for (at, (name, count, op, root)) in (0..).zip(calls(rank)) {
                text += &coll(rank, name, at, count, op, root, 0);
            }
            (format!("nccl.node{}.{}.log", rank / 2, 100 + rank), text)
        })
        .collect()
}

fn calls(files: &[(String, String)]) -> Calls {
    let logs: Vec<NcclLog> =
        files.iter().map(|(name, text)| NcclLog::read(name, text.as_bytes())).collect();
    calls_of(&logs).unwrap()
}

fn report(files: &[(String, String)]) -> Report {
    diagnose(&calls(files).log)
}

fn found(report: &Report) -> Vec<(Kind, Vec<u32>)> {
    let short = |finding: &crate::Finding| {
        (finding.kind, finding.culprits.iter().map(|rank| rank.0).collect())
    };
    report.findings.iter().map(short).collect()
}

const STEP: [Made; 3] = [("Broadcast", 10, 0, 1), ("AllReduce", 64, 4, 0), ("AllGather", 8, 0, 0)];

#[test]
fn a_job_that_agrees_is_healthy_and_says_reductions_and_roots() {
    let files = job(|_| STEP.repeat(3));
    let calls = calls(&files);
    assert_eq!(diagnose(&calls.log).verdict, Verdict::Healthy);
    assert_eq!(calls.log.world_size, 4);
    let own = calls.log.ranks[2].as_ref().unwrap();
    let told: Vec<_> = own.calls[..3]
        .iter()
        .map(|it| (it.call.op.as_str(), it.call.reduce_op, it.call.root.map(|root| root.0), it.seq))
        .collect();
    use lockstep_core::reduce::ReduceOp::Avg;
    assert_eq!(
        told,
        [
            ("broadcast", None, Some(1), Some(1)),
            ("all_reduce", Some(Avg), None, Some(2)),
            ("all_gather", None, None, Some(3)),
        ]
    );
    // In one file, interleaved, it is the same.
    let lines: Vec<Vec<&str>> = files.iter().map(|(_, text)| text.lines().collect()).collect();
    let mixed: Vec<&str> =
        (0..11).flat_map(|at| lines.iter().map(move |lines| lines[at])).collect();
    let one = NcclLog::read("train.log", mixed.join("\n").as_bytes());
    assert_eq!(calls_of(&[one]).unwrap().log, calls.log);
}

#[test]
fn what_a_rank_does_differently_is_found() {
    let with = |change: &dyn Fn(&mut Vec<Made>)| {
        let mut files = job(|rank| {
            let mut calls = STEP.repeat(3);
            if rank == 2 {
                change(&mut calls);
            }
            calls
        });
        let forward = report(&files);
        files.reverse();
        assert_eq!(report(&files), forward);
        found(&forward)
    };
    assert_eq!(with(&|calls| calls[4].2 = 0), [(Kind::ReduceOpMismatch, vec![2])]);
    assert_eq!(with(&|calls| calls[3].3 = 2), [(Kind::RootMismatch, vec![2])]);
    assert_eq!(with(&|calls| calls[4].1 = 65), [(Kind::SizeMismatch, vec![2])]);
    assert_eq!(with(&|calls| calls[5].1 = 9), [(Kind::SizeMismatch, vec![2])]);
    assert_eq!(
        with(&|calls| {
            calls.remove(4);
        }),
        [(Kind::OpSkipped, vec![2])]
    );
    assert_eq!(with(&|calls| calls.swap(3, 4)), [(Kind::OpsSwapped, vec![2])]);
    assert_eq!(with(&|calls| calls.truncate(7)), [(Kind::RankNeverJoined, vec![2])]);
}

/// Only COLL's lines: the ranks are those of hosts and devices, and that is said.
#[test]
fn without_init_lines_ranks_are_guessed_and_that_is_said() {
    let mut files = job(|rank| {
        let mut calls = STEP.repeat(3);
        if rank == 3 {
            calls[4].2 = 0;
        }
        calls
    });
    for (_, text) in &mut files {
        *text = text
            .lines()
            .filter(|line| !line.contains("Init"))
            .fold(String::new(), |all, line| all + line + "\n");
    }
    let guessed = |calls: &Calls| calls.notes.iter().any(|note| note.contains("numbered by host"));
    let calls_then = calls(&files);
    assert!(guessed(&calls_then), "{:?}", calls_then.notes);
    assert_eq!(found(&diagnose(&calls_then.log)), [(Kind::ReduceOpMismatch, vec![3])]);
    // A launcher that writes the rank settles it; so do names of files.
    for (rank, (_, text)) in [1, 3, 0, 2].into_iter().zip(&mut files) {
        *text =
            text.lines().fold(String::new(), |all, line| format!("{all}[rank{rank}]: {line}\n"));
    }
    let said = calls(&files);
    assert!(!guessed(&said));
    assert_eq!(found(&diagnose(&said.log)), [(Kind::ReduceOpMismatch, vec![2])]);
}

/// Groups by `ncclCommInitRank` and by `ncclCommSplit`; ranks in them are places in the group.
#[test]
fn groups_are_put_together_from_their_ids_and_splits() {
    for split in [false, true] {
        let files: Vec<(String, String)> = (0..4)
            .map(|rank| {
                let mut text = init(rank, rank, 4, 0, "commId 0xabc");
                let (group, place) = (rank % 2, rank / 2);
                let id = match split {
                    true => {
                        format!("parent 0x{:x} splitCount 1 color {group} key 0", 0x1000 + rank)
                    }
                    false => format!("commId 0x{}", 77 + group),
                };
                text += &init(rank, place, 2, 1, &id);
                for at in 0..4 {
                    let two = |line: String| line.replace("[nranks=4]", "[nranks=2]");
                    // Rank 3 leaves one out, in the group of ranks 1 and 3.
                    if rank != 3 || at != 3 {
                        text += &two(coll(rank, "AllReduce", at, 5, 0, 0, 1));
                    }
                }
                (format!("{rank}.log"), text)
            })
            .collect();
        let calls = calls(&files);
        let ranks: Vec<Vec<u32>> = calls
            .log
            .groups
            .iter()
            .map(|group| group.ranks().iter().map(|rank| rank.0).collect())
            .collect();
        assert_eq!(ranks, [vec![0, 1, 2, 3], vec![0, 2], vec![1, 3]]);
        let report = diagnose(&calls.log);
        assert_eq!(found(&report), [(Kind::RankNeverJoined, vec![3])], "{}", report.to_text());
        assert_eq!(report.findings[0].seq, Some(4));
    }
}

/// The log of one rank begins late: its own numbers say where.
#[test]
fn a_log_that_begins_late_is_counted_by_op_count() {
    let mut files = job(|_| STEP.repeat(3));
    let (_, text) = &mut files[1];
    *text = text
        .lines()
        .filter(|line| !line.contains("opCount 0 ") && !line.contains("opCount 1 "))
        .fold(String::new(), |all, line| all + line + "\n");
    assert_eq!(report(&files).verdict, Verdict::Healthy);
}

#[test]
fn what_is_behind_is_likely_only() {
    let files = job(|rank| STEP.repeat(if rank == 1 { 2 } else { 3 }));
    let calls = calls(&files);
    let report = crate::diagnose_other(
        &calls.log,
        lockstep_formats::job_calls::Shows::CallOrder,
        calls.notes,
        Default::default(),
    );
    assert_eq!(found(&report), [(Kind::RankNeverJoined, vec![1])]);
    assert_eq!(report.findings[0].certainty, Certainty::Likely);
    assert!(report.notes.iter().any(|note| note.contains("no clock")), "{:?}", report.notes);
}

proptest! {
    #[test]
    fn any_text_ends_without_a_panic(text in ".*", at in 0..2000usize, put in "[ -~]{0,12}") {
        let mut all: String = job(|_| STEP.to_vec()).into_iter().map(|(_, text)| text).collect();
        let at = at % all.len();
        all.insert_str(at, &put);
        let logs = [NcclLog::read("a", all.as_bytes()), NcclLog::read("b", text.as_bytes())];
        if let Some(calls) = calls_of(&logs) {
            let _ = diagnose(&calls.log);
        }
    }
}
