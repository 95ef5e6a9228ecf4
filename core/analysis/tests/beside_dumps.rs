//! Profiles beside the dumps of real NCCL ranks (`tests/data/nccl-h200`): the dumps hold steps that the profiles have not
//! seen, and of these only the recorder's watchdog saw the calls end.

#![allow(clippy::unwrap_used, reason = "tests")]

use lockstep_analysis::{Activity, Analysis};
use lockstep_formats::archive::{self, Limits};
use lockstep_formats::recording::{Piece, RecordedJob, Sources};
use std::path::{Path, PathBuf};

/// The unpacked files of a folder of `tests/data` whose names have `part` in them.
fn files(folder: &str, part: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(folder);
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths.collect();
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !name.contains(part) {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        if !archive::is_archive(&bytes) {
            files.push((name, bytes));
            continue;
        }
        let limits = Limits { file_bytes: 1 << 30, total_bytes: 1 << 30 };
        let mut take = |name: &str, bytes: &[u8]| files.push((name.to_owned(), bytes.to_vec()));
        archive::for_each_file(&name, &bytes, limits, &mut take).unwrap();
    }
    files
}

fn joined(files: &[(String, Vec<u8>)]) -> RecordedJob {
    let mut sources = Sources::default();
    files.iter().for_each(|(name, bytes)| sources.take(Piece::read(name, bytes)));
    sources.join().unwrap()
}

fn analysed(files: &[(String, Vec<u8>)]) -> Analysis {
    Analysis::of(&Activity::of_calls(&joined(files).calls.unwrap().merged.log))
}

/// A step takes the same shares with and without the dumps. The watchdog's ends made 53 ms of exposed communication out
/// of 31.
#[test]
fn profiled_steps_take_what_the_profile_says() {
    let profiles = files("nccl-h200/profile", "kineto");
    let both = files("nccl-h200/profile", "rank");
    assert_eq!((profiles.len(), both.len()), (2, 4));
    let (alone, beside) = (analysed(&profiles), analysed(&both));
    assert_eq!((alone.steps.len(), beside.steps.len()), (3, 3));
    assert_eq!(beside.step_ps, alone.step_ps);
    for (one, other) in alone.ranks.iter().zip(&beside.ranks) {
        assert_eq!(one.step, other.step, "rank {}", one.rank);
    }
    let exposed_ms = alone.ranks.first().unwrap().step.unwrap().communicating_ps / 1_000_000_000;
    assert_eq!(exposed_ms, 31);
    // Of the first step the call before it is bounded by the next one, which began 1.4 ms later.
    for (one, other) in alone.steps.iter().zip(&beside.steps) {
        assert_eq!(one.duration_ps, other.duration_ps);
        for ((rank, one), (_, other)) in one.ranks.iter().zip(&other.ranks) {
            let more_ps = other.communicating_ps.abs_diff(one.communicating_ps);
            assert!(more_ps < 1_500_000_000, "rank {rank}: {one:?} {other:?}");
        }
    }
}

/// A profile of another job, or of another time of this one, is left out in a sentence that names it, and changes nothing.
#[test]
fn a_profile_that_does_not_belong_to_the_dumps_is_left_out() {
    let dumps = files("nccl-h200/profile", "nccl_trace");
    let of_dumps = joined(&dumps).calls.unwrap().merged;
    let later = |(name, bytes): &(String, Vec<u8>)| {
        let text = String::from_utf8(bytes.clone()).unwrap();
        let (before, base) = text.split_once("\"baseTimeNanoseconds\":").unwrap();
        let digits = base.trim_start().find(|it: char| !it.is_ascii_digit()).unwrap();
        let (base_ns, behind) = base.trim_start().split_at(digits);
        let base_ns: u64 = base_ns.parse::<u64>().unwrap() + 60_000_000_000;
        (name.clone(), format!("{before}\"baseTimeNanoseconds\": {base_ns}{behind}").into_bytes())
    };
    let moved = files("nccl-h200/profile", "kineto").iter().map(later).collect::<Vec<_>>();
    for (profiles, why) in [
        (files("kineto", "json"), "a job of 4 ranks, the other a job of 2"),
        (moved, "calls that look the same were made 60.0 s later there"),
    ] {
        let both: Vec<_> = dumps.iter().chain(&profiles).cloned().collect();
        let job = joined(&both);
        let told = job.problems.iter().find(|it| it.contains("do not belong together")).unwrap();
        let named = format!("{} and {}", profiles[0].0, profiles[1].0);
        assert!(told.starts_with(&named) && told.contains(why), "{told}");
        assert!(job.notes.contains(told), "{:?}", job.notes);
        assert!(!job.notes.iter().any(|note| note.contains("are in the dumps too")));
        assert_eq!(job.calls.unwrap().merged, of_dumps);
        assert!(job.others.is_empty());
    }
}
