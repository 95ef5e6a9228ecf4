//! Recordings of real NCCL ranks: two on one H200 (`tests/data/nccl-h200`), torch 2.11, NCCL 2.28.9.

use super::files;
use crate::facts::other_sources::OtherSources;
use crate::{DiagnosedJob, Kind, diagnose_dumps, diagnose_files};
use lockstep_core::trace::{CallState, RankLog, RankState};
use lockstep_formats::flight_recorder::Recording;
use lockstep_formats::job_calls::Merged;
use lockstep_formats::recording::{Piece, Sources};
use std::path::Path;

fn diagnosed(case: &str, left_out: &str) -> DiagnosedJob {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/nccl-h200");
    let mut sources = Sources::default();
    for (name, bytes) in files(&data.join(case)) {
        if name != left_out {
            sources.take(Piece::read(&name, &bytes));
        }
    }
    diagnose_files(sources).unwrap()
}

fn found(job: &DiagnosedJob) -> Vec<(Kind, Vec<u32>)> {
    super::found(&job.report)
}

/// Rank 1 leaves its fourth all_reduce out, makes the all_gather behind it and ends by itself: it dumps nothing.
#[test]
fn a_rank_that_ended_without_a_dump_is_told_by_its_nccl_log() {
    let job = diagnosed("skip", "");
    // Of two ranks that differ, the recording does not show which one is wrong.
    assert_eq!(found(&job), [(Kind::CollectiveMismatch, vec![0, 1])]);
    // Rank 1 closed its connection when it ended, and rank 0's NCCL blames the network.
    assert!(job.report.notes.iter().any(|note| note.contains("NCCL's network layer")));
    let told = |note: &String| note.contains("Rank 1 left no dump: its calls are those of the log");
    assert!(job.report.notes.iter().any(told), "{:?}", job.report.notes);
    let without = diagnosed("skip", "nccl_log_rank1.txt");
    assert_eq!(found(&without).first(), Some(&(Kind::RankMissing, vec![1])));
}

/// Rank 1 was in 19 all_reduces, left one out and has ended: `attach` found its process gone, and nothing else is
/// known of it.
#[test]
fn a_dead_rank_without_a_recording_is_not_said_to_have_called_nothing() {
    let job = diagnosed("ended", "");
    assert_eq!(found(&job).first(), Some(&(Kind::RankMissing, vec![1])));
    let mut merged = job.calls.unwrap();
    let died = RankState::Died { how: "its process is gone".to_owned() };
    merged.log.ranks[1] = Some(RankLog { state: died, ..RankLog::default() });
    let text = |merged: &Merged| {
        let recording = Recording { merged: merged.clone(), problems: Vec::new() };
        let report = diagnose_dumps(&recording, OtherSources::default());
        assert_eq!(super::found(&report), [(Kind::RankDied, vec![1])]);
        report.to_text()
    };
    let said = text(&merged);
    assert!(said.contains("None of its calls are recorded"), "{said}");
    assert!(!said.contains("had not made a call"), "{said}");
    // If nobody completed a call with it, it may have made none.
    let own = merged.log.ranks[0].as_mut().unwrap();
    own.calls.retain(|record| record.state != CallState::Completed);
    let said = text(&merged);
    assert!(said.contains("It had not made a call yet"), "{said}");
}

#[test]
fn a_profiled_job_is_healthy() {
    assert_eq!(found(&diagnosed("profile", "")), []);
}
