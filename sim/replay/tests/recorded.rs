//! Recorded jobs, replayed: the same ranks hang for the same reason, and their repairs are tried.

use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallLog;
use lockstep_diagnosis::{Kind, Report, diagnose, diagnose_files};
use lockstep_formats::recording::{Piece, Sources};
use lockstep_replay::{RecordingEnd, recover, repair};
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

#[test]
fn a_replay_ends_as_the_recording_did() {
    let mut table = String::new();
    let (mut all, mut same) = (0, 0);
    for folder in ["flight-recorder", "flight-recorder-faults", "flight-recorder-jobs", "jobs-torch-2.15"] {
        for case in cases(folder) {
            let Some((log, report)) = diagnosed(&case) else { continue };
            let name = case.file_name().unwrap().to_str().unwrap();
            let recovered = match recover(name, &log, RecordingEnd::of(&report)) {
                Ok(recovered) => recovered,
                Err(error) => {
                    table += &format!("{name}: {error}\n");
                    continue;
                }
            };
            let trace = simulate(&recovered.plan, &SimConfig::default()).unwrap();
            let replayed = diagnose(&recovered.recorded_again(&log, &trace));
            all += 1;
            let alike = first(&report) == first(&replayed);
            same += usize::from(alike);
            table += &format!(
                "{} {name}: {:?} -> {:?} [{}]\n",
                if alike { "same" } else { "DIFF" },
                first(&report),
                first(&replayed),
                match repair(&recovered, &report) {
                    Ok(repair) => format!("{} {}: {}", repair.verified, repair.change.words(), repair.why),
                    Err(why) => why,
                }
            );
        }
    }
    eprintln!("{same} of {all}\n{table}");
}
