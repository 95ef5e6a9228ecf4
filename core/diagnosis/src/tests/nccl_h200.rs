//! Recordings of real NCCL ranks: two on one H200 (`tests/data/nccl-h200`), torch 2.11, NCCL 2.28.9.

use super::files;
use crate::{DiagnosedJob, Kind, diagnose_files};
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
    assert!(found(&job).contains(&(Kind::CollectiveMismatch, vec![0, 1])), "{:?}", found(&job));
    assert!(!found(&job).iter().any(|(kind, _)| *kind == Kind::RankMissing));
    let without = diagnosed("skip", "nccl_log_rank1.txt");
    assert_eq!(found(&without).first(), Some(&(Kind::RankMissing, vec![1])));
}

/// Rank 1 was in 19 all_reduces, left one out and has ended: nothing is known of it.
#[test]
fn a_rank_without_a_recording_is_not_said_to_have_called_nothing() {
    let job = diagnosed("ended", "");
    assert_eq!(found(&job).first(), Some(&(Kind::RankMissing, vec![1])));
    let healthy = diagnosed("profile", "");
    assert_eq!(found(&healthy), []);
}
