//! Recorded jobs, replayed: the same ranks hang for the same reason, and their repairs are tried.

#![allow(clippy::unwrap_used, reason = "tests")]

use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, Outcome};
use lockstep_core::watch::Unwatched;
use lockstep_diagnosis::{Kind, Report, Verdict, diagnose_files};
use lockstep_formats::recording::{Piece, Sources};
use lockstep_replay::{
    RecordingEnd, RecoverError, recover, repair, replayed_report, report_beside_recording,
    with_tried_repairs,
};
use lockstep_sim::{SimConfig, simulate};
use std::path::{Path, PathBuf};

fn data(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(folder)
}

/// The recorded cases of a folder: those below it that hold dumps.
fn cases(folder: &str) -> Vec<PathBuf> {
    let mut cases: Vec<PathBuf> =
        std::fs::read_dir(data(folder)).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.retain(|path| path.is_dir());
    cases.sort();
    cases
}

/// A case's calls and what is wrong with it.
fn diagnosed(case: &Path) -> Option<(CallLog, Report)> {
    let mut sources = Sources::default();
    let dumps = case.join("dumps");
    let folder = if dumps.is_dir() { &dumps } else { case };
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.is_file());
    files.sort();
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        sources.take(Piece::read(name, &std::fs::read(&path).unwrap()));
    }
    let job = diagnose_files(sources).ok()?;
    Some((job.calls?.log, job.report))
}

fn first(report: &Report) -> Option<(Kind, Vec<GlobalRank>)> {
    report.findings.first().map(|finding| (finding.kind, finding.culprits.clone()))
}

/// Cases whose replay ends otherwise, since a dump does not hold what they are about: roots, splits, the model that
/// DDP's constructor compares, `new_group`, and when a rank that left no dump ended.
const OTHERWISE: [&str; 15] = [
    "all_to_all_input_splits",
    "all_to_all_other_size",
    "all_to_all_pair",
    "broadcast_own",
    "ddp_model_mismatch",
    "ddp_stuck",
    "ddp_uneven_then_idle",
    "groups_opposite",
    "loader_t",
    "model_of_two",
    "model_rank0_odd",
    "reduce_root",
    "ring_of_groups",
    "root_mismatch",
    "run_mesh",
];

/// Cases whose repair is not proved although the changed job completes, and the one that has none.
const UNPROVED: [&str; 13] = [
    "accumulate_differently",
    "broadcast_own",
    "ddp_nan_two_ranks",
    "ddp_one_more_batch",
    "ddp_stuck",
    "ddp_uneven_then_idle",
    "groups_opposite",
    "only_one_arrives",
    "reduce_root",
    "ring_of_groups",
    "root_mismatch",
    "run_mesh",
    "size_tie",
];

/// Kinds that other calls would have prevented, and whose repair is tried.
fn is_mended(kind: Kind) -> bool {
    !matches!(
        kind,
        Kind::RankMissing
            | Kind::RankDied
            | Kind::Straggler
            | Kind::SplitMismatch
            | Kind::DdpModelMismatch
            | Kind::CallNeverCompleted
            | Kind::P2pDeadlock
            | Kind::P2pMismatch
            | Kind::GroupMismatch
    )
}

#[test]
fn a_report_says_what_came_of_a_repair() {
    let case = data("flight-recorder-jobs").join("resume_missing");
    let (log, report) = diagnosed(&case).unwrap();
    let finding = &with_tried_repairs(report, &log, &mut Unwatched).findings[0];
    let repair = finding.repair.as_ref().unwrap();
    assert!(repair.verified, "{}", repair.why);
    assert_eq!(repair.change.ranks, [GlobalRank(3)]);
    // Rank 3 left out both broadcasts of an object.
    assert_eq!(repair.change.inserted, ["broadcast of default_pg (jobs.py:168)"]);
    assert!(repair.change.removed.is_empty());
}

#[test]
fn a_replay_ends_as_the_recording_did_and_repairs_are_proved() {
    let mut otherwise = Vec::new();
    let mut unproved = Vec::new();
    let (mut tried, mut completes, mut all) = (0, 0, 0);
    for folder in
        ["flight-recorder", "flight-recorder-faults", "flight-recorder-jobs", "jobs-torch-2.15"]
    {
        for case in cases(folder) {
            let name = case.file_name().unwrap().to_str().unwrap().to_owned();
            let Some((log, report)) = diagnosed(&case) else { continue };
            let recovered = match recover(&name, &log, RecordingEnd::of(&report)) {
                Ok(recovered) => recovered,
                // Dumps without a call are no plan.
                Err(RecoverError::NoCalls) => continue,
                Err(error) => panic!("{name}: {error}"),
            };
            all += 1;
            let trace = simulate(&recovered.plan, &SimConfig::default()).unwrap();
            let replayed = replayed_report(&recovered.calls, log.clone(), &CallLog::of(&trace));
            let replay = CallLog::of(&trace);
            let beside = report_beside_recording(&report, &recovered.calls, log.clone(), &replay);
            // A replay is no evidence of what the recording leaves open.
            assert!(
                beside.verdict != Verdict::Healthy || report.verdict == Verdict::Healthy,
                "{name}: {} {}",
                report.to_text(),
                beside.to_text()
            );
            if first(&report) != first(&replayed) {
                otherwise.push(name.clone());
            }
            if first(&report).is_some_and(|(kind, _)| is_mended(kind)) {
                tried += 1;
                let proved = repair((&recovered, &log), &report, 0).is_ok_and(|repair| {
                    // A repair that is called complete completes.
                    let again = simulate(&repair.plan, &SimConfig::default()).unwrap();
                    let completed = again.end.unwrap().outcome == Outcome::Completed;
                    assert_eq!(completed, repair.completes, "{name}: {}", repair.tried.why);
                    completes += usize::from(completed);
                    repair.tried.verified
                });
                if !proved {
                    unproved.push(name.clone());
                }
            }
        }
    }
    otherwise.sort();
    otherwise.dedup();
    assert_eq!(otherwise, OTHERWISE, "of {all}");
    // Of `broadcast_own` no change of calls is known.
    assert!(all > 160 && completes + 1 == tried, "{completes} of {tried} changed jobs complete");
    unproved.sort();
    assert_eq!(unproved, UNPROVED, "of {tried}");
}
