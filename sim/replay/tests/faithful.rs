//! A replay ends as the recorded job did, by assumptions about missing facts, or the report says that it does not.

#![allow(clippy::unwrap_used, reason = "tests")]

use lockstep_core::plan::Call;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, Outcome};
use lockstep_core::watch::Unwatched;
use lockstep_diagnosis::{Kind, Report, Verdict, diagnose, diagnose_files};
use lockstep_formats::recording::{Piece, Sources};
use lockstep_replay::{
    Assumption, RecordingEnd, Recovered, recover, repair, report_beside_recording,
    with_tried_repairs,
};
use lockstep_sim::{SimConfig, simulate};
use std::path::{Path, PathBuf};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(name)
}

/// The files of a folder whose names begin so, by name.
fn files(folder: &str, beginnings: &[&str]) -> Vec<PathBuf> {
    // Beside dumps lies the job's log.
    let (dumps, log) = (data(folder).join("dumps"), data(folder).join("job.log"));
    let (folder, log) = if dumps.is_dir() { (dumps, log) } else { (data(folder), PathBuf::new()) };
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_str().unwrap().to_owned();
        path.is_file() && beginnings.iter().any(|begin| name.starts_with(begin))
    };
    let mut files: Vec<PathBuf> = entries.filter(is_one).collect();
    files.extend([log].into_iter().filter(is_one));
    files.sort();
    files
}

fn read(files: &[PathBuf]) -> (CallLog, Report) {
    let mut sources = Sources::default();
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        sources.take(Piece::read(name, &std::fs::read(path).unwrap()));
    }
    let job = diagnose_files(sources).unwrap();
    (job.calls.unwrap().log, job.report)
}

/// A recording's plan, and the end and the report of its replay.
fn replayed(log: &CallLog, report: &Report) -> (Recovered, Outcome, Report) {
    let recovered = recover("job", log, RecordingEnd::of(report)).unwrap();
    let trace = simulate(&recovered.plan, &SimConfig::default()).unwrap();
    let outcome = trace.end.as_ref().unwrap().outcome.clone();
    let simulated = CallLog::of(&trace);
    let beside = report_beside_recording(report, &recovered.calls, log.clone(), &simulated);
    (recovered, outcome, beside)
}

#[test]
fn calls_of_gloo_get_the_group_whose_members_made_them() {
    for beginnings in [&["kineto"][..], &["et_"]] {
        let (log, report) = read(&files("gloo-subgroup", beginnings));
        let (recovered, outcome, beside) = replayed(&log, &report);
        assert_eq!(outcome, Outcome::Completed, "{beginnings:?}: {}", beside.to_text());
        assert!(beside.findings.is_empty(), "{}", beside.to_text());
        assert!(recovered.assumed.contains(&Assumption::Groups), "{:?}", recovered.assumed);
        // The all_reduce of ranks 0-1 is in their group on both, and on no other rank.
        let of_pair = |rank: u32| {
            let program = recovered.plan.program(GlobalRank(rank)).unwrap();
            let calls = program.ops.iter().flat_map(|op| op.action.calls());
            let members = |call: &&Call| recovered.plan.group(call.group()).unwrap().size();
            calls.filter(|call| members(call) == 2).count()
        };
        assert_eq!([of_pair(0), of_pair(1), of_pair(2)], [8, 8, 0]);
    }
}

#[test]
fn a_rank_without_a_profile_has_its_execution_trace() {
    for rank in 0..3u32 {
        let own = format!("et_rank{rank}");
        let others: Vec<String> = (0..3)
            .filter(|other| *other != rank)
            .map(|other| format!("kineto_rank{other}"))
            .collect();
        let mut names: Vec<&str> = others.iter().map(String::as_str).collect();
        names.push(&own);
        let (log, report) = read(&files("gloo-subgroup", &names));
        assert!(log.ranks.iter().all(Option::is_some), "{names:?}");
        let (recovered, outcome, beside) = replayed(&log, &report);
        assert_eq!(outcome, Outcome::Completed, "{names:?}: {}", beside.to_text());
        let like_another = |one: &Assumption| matches!(one, Assumption::LikeAnother { .. });
        assert!(!recovered.assumed.iter().any(like_another), "{:?}", recovered.assumed);
    }
}

#[test]
fn sources_that_lack_facts_of_some_ranks_complete() {
    let mixes: [&[&str]; 4] = [
        &["fr_", "kineto", "et_"],
        &["fr_", "kineto"],
        &["fr_", "et_"],
        &["fr_0", "kineto_rank1", "kineto_rank2"],
    ];
    for names in mixes {
        let (log, report) = read(&files("gloo-subgroup", names));
        assert!(log.ranks.iter().all(Option::is_some), "{names:?}: {}", report.to_text());
        let (recovered, outcome, beside) = replayed(&log, &report);
        assert_eq!(
            outcome,
            Outcome::Completed,
            "{names:?}: {} {:?}",
            beside.to_text(),
            recovered.assumed
        );
        assert!(beside.findings.is_empty(), "{names:?}: {}", beside.to_text());
    }
}

#[test]
fn ranks_of_which_nothing_is_left_answer_messages() {
    for (folder, name) in [("kineto", "kineto_rank0"), ("export", "example.0.et")] {
        let (log, report) = read(&files(folder, &[name]));
        let (recovered, outcome, beside) = replayed(&log, &report);
        assert_eq!(outcome, Outcome::Completed, "{name}: {}", beside.to_text());
        let answers = Assumption::Answers { ranks: vec![GlobalRank(1)] };
        assert!(recovered.assumed.contains(&answers), "{name}: {:?}", recovered.assumed);
    }
}

#[test]
fn a_job_that_hung_is_not_healthy_because_its_replay_completes() {
    for case in [
        "jobs-torch-2.15/pipe_order",
        "jobs-torch-2.15/pipe_sched",
        "jobs-torch-2.15/monitored",
        "flight-recorder-jobs/model_of_two",
        "flight-recorder-jobs/model_rank0_odd",
        "flight-recorder-faults/broadcast_own",
    ] {
        let (log, report) = read(&files(case, &[""]));
        let (_, outcome, beside) = replayed(&log, &report);
        assert_eq!(outcome, Outcome::Completed, "{case}");
        assert_eq!(beside.verdict, Verdict::Inconclusive, "{case}: {}", beside.to_text());
        let message = &report.findings.first().unwrap().message;
        assert!(beside.unseen.iter().any(|why| why.contains(message)), "{case}: {beside:?}");
    }
}

#[test]
fn a_replay_blames_no_rank_that_the_recording_does_not() {
    for case in [
        "jobs-torch-2.15/loader_t",
        "flight-recorder-faults/ddp_no_sync",
        "flight-recorder-faults/ddp_skip_batch",
        "flight-recorder-gaps/running_grid",
    ] {
        let (log, report) = read(&files(case, &[""]));
        let (_, _, beside) = replayed(&log, &report);
        let blamed = report.culprits();
        assert!(
            beside.culprits().iter().all(|rank| blamed.contains(rank)),
            "{case}: {} {}",
            report.to_text(),
            beside.to_text()
        );
    }
}

#[test]
fn a_recording_without_a_fault_blames_nobody_when_its_replay_hangs() {
    let (log, report) = read(&files("flight-recorder-faults/early_stop", &[""]));
    let recovered = recover("job", &log, RecordingEnd::of(&report)).unwrap();
    let simulated = CallLog::of(&simulate(&recovered.plan, &SimConfig::default()).unwrap());
    assert!(!diagnose(&simulated).findings.is_empty());
    let healthy = Report::healthy(log.world_size);
    let beside = report_beside_recording(&healthy, &recovered.calls, log, &simulated);
    assert_eq!((beside.verdict, beside.culprits()), (Verdict::Inconclusive, Vec::new()));
}

#[test]
fn a_change_that_the_replay_does_not_depend_on_is_no_proof() {
    for (case, word) in [
        // The plan has equal roots, so the job completes with and without the change.
        ("flight-recorder-faults/root_mismatch", "proves nothing"),
        ("flight-recorder-faults/reduce_root", "proves nothing"),
        // Others would have to take up the loop again that they have left.
        ("flight-recorder-faults/ddp_one_more_batch", "go on with the loop"),
        ("flight-recorder-faults/accumulate_differently", "go on with the loop"),
    ] {
        let (log, report) = read(&files(case, &[""]));
        let recovered = recover("job", &log, RecordingEnd::of(&report)).unwrap();
        let tried = repair((&recovered, &log), &report, 0).unwrap();
        assert!(tried.completes && !tried.tried.verified, "{case}: {:?}", tried.tried);
        assert!(tried.tried.why.contains(word), "{case}: {}", tried.tried.why);
        let told = with_tried_repairs(report, &log, &mut Unwatched);
        let told = told.findings.first().unwrap().repair.as_ref().unwrap();
        assert_eq!((told.verified, &told.why), (false, &tried.tried.why), "{case}");
    }
}

#[test]
fn a_missing_rank_has_its_repair_in_the_report() {
    let (log, report) = read(&files("flight-recorder-faults/crash_subgroup", &[""]));
    assert_eq!(report.findings.first().unwrap().kind, Kind::RankMissing);
    let told = with_tried_repairs(report, &log, &mut Unwatched);
    let repair = told.findings.first().unwrap().repair.as_ref().unwrap();
    assert!(!repair.change.given_up.is_empty() && repair.verified, "{repair:?}");
}
