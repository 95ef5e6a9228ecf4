//! Logs as people attach them to bug reports (`tests/data/job-log-reports`): what is found, and what must be said.

use crate::{Certainty, Kind, Report, Verdict, diagnose_files};
use lockstep_formats::recording::{Piece, Sources};
use std::path::Path;

fn report_of(name: &str) -> Report {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/job-log-reports");
    let mut sources = Sources::default();
    sources.take(Piece::read(name, &std::fs::read(folder.join(name)).unwrap()));
    diagnose_files(sources).unwrap().report
}

/// A log, the findings with their culprits, and what their texts hold.
type Case<'a> = (&'a str, &'a [(Kind, &'a [u32], Certainty)], &'a [&'a str]);

#[test]
fn logs_of_bug_reports_are_read() {
    use Certainty::{Likely, Undecidable};
    let cases: &[Case<'_>] = &[
        (
            "allgather-says-how-many.log",
            &[(Kind::CallNeverCompleted, &[], Undecidable)],
            &["4 ranks", "ranks 1-3", "never came"],
        ),
        ("cuda-error-glued.log", &[(Kind::RankDied, &[7], Likely)], &["illegal memory access"]),
        (
            "desync-spaces.log",
            &[(Kind::RankNeverJoined, &[7], Likely)],
            &["#12", "never joined #13"],
        ),
        (
            "detail-peer-without-shape.log",
            &[(Kind::CollectiveMismatch, &[1, 3], Undecidable)],
            &["ALLGATHER #101", "rank 3 was elsewhere"],
        ),
        (
            "detail-sequence-number.log",
            &[(Kind::OpSkipped, &[2], Likely)],
            &["#5", "#6", "or ranks 0-1 made one more"],
        ),
        (
            "dump-signal.log",
            &[(Kind::CallNeverCompleted, &[], Undecidable)],
            &["Ranks 2-3 timed out in ALLREDUCE #31", "rank 6"],
        ),
        (
            "frtrace-output.log",
            &[(Kind::RankNeverJoined, &[3, 4], Likely)],
            &["all_reduce #31 of default_pg"],
        ),
        (
            "heartbeat-monitor.log",
            &[(Kind::RankNeverJoined, &[0], Likely)],
            &["84", "103", "ranks 0-2"],
        ),
        ("nccl-mismatch-warn.log", &[(Kind::CollectiveMismatch, &[39], Undecidable)], &["NCCL"]),
        (
            "ncclras.log",
            &[(Kind::OpExtra, &[2, 3], Undecidable)],
            &["AllGather", "64", "65", "behind"],
        ),
        (
            "one-rank-without-status-line.log",
            &[(Kind::CollectiveMismatch, &[1], Certainty::Certain)],
            &["ranks 0, 2 in ALLREDUCE", "rank 1 in BROADCAST", "#10"],
        ),
        (
            "store-socket-timeout.log",
            &[(Kind::StoreWait, &[], Undecidable)],
            &["rendezvous store", "--nnodes"],
        ),
        (
            "two-ranks-at-different-numbers.log",
            &[(Kind::OpExtra, &[0, 1], Undecidable)],
            &["Rank 0 timed out in _REDUCE_SCATTER_BASE #12", "rank 1 in _ALLGATHER_BASE #16"],
        ),
        (
            "two-ray-jobs.log",
            &[
                (Kind::CallNeverCompleted, &[], Undecidable),
                (Kind::CallNeverCompleted, &[], Undecidable),
            ],
            &["(Actor", "(Reference", "14 other processes", "RAY_DEDUP_LOGS=0"],
        ),
        (
            "wrapped-by-terminal.log",
            &[(Kind::RankNeverJoined, &[0], Undecidable)],
            &["Ranks 1-3 timed out in BROADCAST #4"],
        ),
    ];
    for (name, findings, said) in cases {
        let report = report_of(name);
        let found: Vec<(Kind, Vec<u32>, Certainty)> = report
            .findings
            .iter()
            .map(|it| (it.kind, it.culprits.iter().map(|rank| rank.0).collect(), it.certainty))
            .collect();
        let want: Vec<(Kind, Vec<u32>, Certainty)> =
            findings.iter().map(|(kind, ranks, how)| (*kind, ranks.to_vec(), *how)).collect();
        let text = report.to_text().split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(found, want, "{name}: {text}");
        assert_eq!(report.verdict, Verdict::Findings, "{name}");
        for what in *said {
            assert!(text.contains(what), "{name}: {what:?} is not in {text}");
        }
    }
}

/// A loop that catches the error goes on without the rest of the step's calls: the log's line belongs to the finding.
#[test]
fn memory_that_ran_out_is_told_with_the_calls_that_were_left_out() {
    let case = super::cases().join("t215_skip_allreduce_diff_size");
    let with_log = |line: &str| {
        let mut sources = Sources::default();
        let mut files = super::files(&case);
        files.push(("job.log".to_owned(), format!("epoch 0\n{line}\n").into_bytes()));
        files.iter().for_each(|(name, bytes)| sources.take(Piece::read(name, bytes)));
        diagnose_files(sources).unwrap().report.findings[0].clone()
    };
    let finding =
        with_log("WARNING: CUDA out of memory. Tried to allocate 2.00 GiB; skipping the batch");
    assert_eq!(finding.kind, crate::Kind::OpSkipped);
    assert!(
        finding.message.contains("skipping the batch\" (job.log:2)")
            && finding.message.contains("caught the error"),
        "{}",
        finding.message
    );
    // Of another rank than the one to blame it says nothing.
    assert_ne!(finding.culprits, [lockstep_core::rank::GlobalRank(0)]);
    let other = with_log(
        "[rank0]: WARNING: CUDA out of memory. Tried to allocate 2.00 GiB; skipping the batch",
    );
    assert!(!other.message.contains("caught the error"), "{}", other.message);
}

/// Gloo's recorder does not tell a call that failed from one that ended: the ranks' exceptions do.
#[test]
fn peers_that_lost_their_connection_say_that_a_rank_without_a_dump_did_not_end_well() {
    let folder = super::cases().with_file_name("flight-recorder-faults").join("killed_last");
    let report = |log: Option<&str>| {
        let mut sources = Sources::default();
        for (name, bytes) in super::files(&folder) {
            sources.take(Piece::read(&name, &bytes));
        }
        log.into_iter().for_each(|log| sources.take(Piece::read("job.log", log.as_bytes())));
        diagnose_files(sources).unwrap().report.findings[0].clone()
    };
    let raised = |rank: u32, error: &str| {
        format!(
            "[rank{rank}]: Traceback (most recent call last):\n\
             [rank{rank}]:   File \"/srv/train/job.py\", line 20, in step\n\
             [rank{rank}]:     dist.all_reduce(grad)\n\
             [rank{rank}]: RuntimeError: [third_party/gloo/gloo/transport/tcp/{error}\n"
        )
    };
    let closed = raised(0, "pair.cc:561] Connection closed by peer [127.0.0.1]:35520");
    let late =
        raised(0, "unbound_buffer.cc:81] Timed out waiting 10000ms for recv operation to complete");
    let alone = report(None);
    assert_eq!((alone.kind, alone.certainty), (Kind::RankMissing, Certainty::Undecidable));
    assert!(alone.message.contains("ended well"), "{}", alone.message);
    let told = report(Some(&closed));
    assert_eq!((told.kind, told.certainty), (Kind::RankMissing, Certainty::Likely));
    assert_eq!(told.culprits, alone.culprits);
    assert!(
        told.message.contains("rank 0 lost a connection") && !told.message.contains("ended well"),
        "{}",
        told.message
    );
    assert!(told.evidence.iter().any(|seen| seen.place.is_some()), "{:?}", told.evidence);
    // A time-out says nothing of an end.
    assert!(report(Some(&late)).message.contains("ended well"));
}
