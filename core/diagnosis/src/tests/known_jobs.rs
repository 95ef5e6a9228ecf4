//! Real jobs of torch 2.15 with known causes (`tests/data/jobs-torch-2.15`): whom the first finding blames, as what,
//! and which line it names.

use crate::{Kind, Report, Verdict, diagnose_files};
use lockstep_formats::recording::{Piece, Sources};
use std::path::{Path, PathBuf};

/// Which of a job's files are read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Read {
    Dumps,
    DumpsAndLog,
    Log,
}

fn report_of(job: &str, read: Read) -> Report {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/jobs-torch-2.15").join(job);
    let mut files: Vec<PathBuf> = Vec::new();
    if read != Read::Log {
        files.extend(folder.join("dumps").read_dir().unwrap().map(|file| file.unwrap().path()));
    }
    if read != Read::Dumps {
        files.push(folder.join("job.log"));
    }
    let mut sources = Sources::default();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        sources.take(Piece::read(&name, &std::fs::read(&file).unwrap()));
    }
    diagnose_files(sources).unwrap().report
}

#[test]
fn the_first_finding_names_who_did_what_and_where() {
    use Read::{Dumps, DumpsAndLog, Log};
    let cases: &[(&str, Read, Kind, &[u32], &str)] = &[
        ("loader_t", Dumps, Kind::RankMissing, &[2], "loader.py:30"),
        // The others timed out, and no connection was closed: the process was there.
        ("loader_t", DumpsAndLog, Kind::RankNeverJoined, &[2], "loader.py:30"),
        ("killed_torchrun", DumpsAndLog, Kind::RankDied, &[3], "signals.py:20"),
        ("monitored", DumpsAndLog, Kind::RankNeverJoined, &[2], "monitored.py:19"),
        ("monitored", Log, Kind::RankNeverJoined, &[2], "monitored.py:19"),
        ("pipe_sched", DumpsAndLog, Kind::RankDied, &[2], "pipe_sched.py:24"),
        ("pipe_sched", Log, Kind::RankDied, &[2], "pipe_sched.py:24"),
    ];
    for (job, read, kind, culprits, line) in cases {
        let report = report_of(job, *read);
        let text = report.to_text();
        let first = report.findings.first().unwrap_or_else(|| panic!("{job}: {text}"));
        let blamed: Vec<u32> = first.culprits.iter().map(|rank| rank.0).collect();
        assert_eq!((first.kind, blamed.as_slice()), (*kind, *culprits), "{job} {read:?}: {text}");
        assert!(text.contains(line), "{job} {read:?}: {text}");
    }
}

/// All four ranks wait in receives, from two lines: one of them sent something else before, and nothing tells who.
#[test]
fn nobody_is_blamed_for_a_circle_that_a_wrong_tag_closed() {
    for read in [Read::DumpsAndLog, Read::Log] {
        let report = report_of("pipe_order", read);
        let sure =
            report.findings.iter().filter(|it| it.certainty != crate::Certainty::Undecidable);
        assert_eq!(sure.count(), 0, "{}", report.to_text());
    }
}

/// Ranks 0 and 1 alone made a group and stand in `new_group`, which gloo's recorder does not show; a job that ended
/// well has the same dumps but for that group.
#[test]
fn a_group_in_which_nothing_was_called_keeps_a_job_from_being_healthy() {
    let report = report_of("subset_group", Read::Dumps);
    assert_eq!(report.verdict, Verdict::Inconclusive, "{}", report.to_text());
    let told =
        report.unseen.iter().any(|why| why.contains("Ranks 0-1") && why.contains("subset.py:27"));
    assert!(told, "{:?}", report.unseen);
    assert_eq!(report_of("healthy", Read::Dumps).verdict, Verdict::Healthy);
}

/// The log says where all gave up, and a circle of calls says who went another way: that is one mistake.
#[test]
fn a_log_that_blames_the_same_rank_adds_its_lines_to_the_finding_of_the_calls() {
    let report = report_of("moe_t", Read::DumpsAndLog);
    let kinds: Vec<Kind> = report.findings.iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [Kind::OpSkipped], "{}", report.to_text());
    let places = report.findings[0].evidence.iter().filter_map(|seen| seen.place.as_ref());
    let of_the_log = places.filter(|place| place.file.contains("log"));
    assert_eq!(of_the_log.count(), 4, "{}", report.to_text());
}

/// gloo's recorder has a call as done that failed. The job's log names the ranks that gave up on it.
#[test]
fn ranks_that_gave_up_on_a_call_are_its_victims_though_the_recorder_has_it_as_done() {
    let victims = |read| {
        let report = report_of("nan_skip_t", read);
        let first = &report.findings[0];
        assert_eq!(first.culprits, [lockstep_core::rank::GlobalRank(2)]);
        first.victims.iter().map(|rank| rank.0).collect::<Vec<u32>>()
    };
    assert_eq!(victims(Read::Dumps), [0]);
    assert_eq!(victims(Read::DumpsAndLog), [0, 1, 3]);
}
