mod apart;
mod branches;
mod doubts;
mod edits;
mod fake;
mod faults;
mod gaps;
mod gaps_told;
mod habits;
mod jobs;
mod kineto;
mod known_jobs;
mod ladder;
mod lines;
mod mesh;
mod missing;
mod moments;
mod nccl;
mod nccl_h200;
mod nccl_logs;
mod one_f_one_b;
mod other_backends;
mod programs;
mod recorded_jobs;
mod reported_logs;
mod simulated;
mod stopped;
mod unsaid;
mod votes;
mod wait_causes;
mod which;

use super::*;
use lockstep_core::words::rank_list;
use lockstep_formats::flight_recorder::read_files;
use proptest::prelude::*;
use std::path::{Path, PathBuf};

fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/flight-recorder")
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut files: Vec<_> = paths
        .filter(|path| path.is_file())
        .map(|path| (name(&path), std::fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

fn report(files: &[(String, Vec<u8>)]) -> Report {
    let files = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    diagnose_recording(&read_files(files).unwrap())
}

/// Kinds and culprits, as found.
fn found(report: &Report) -> Vec<(Kind, Vec<u32>)> {
    let culprits = |finding: &Finding| finding.culprits.iter().map(|rank| rank.0).collect();
    report.findings.iter().map(|finding| (finding.kind, culprits(finding))).collect()
}

/// The true fault of a recorded case, and its ranks.
type Truth = Option<(Kind, &'static [u32])>;

/// Every recorded case, with what its program did.
const TRUTHS: [(&str, Truth); 14] = [
    ("t215_healthy", None),
    ("t291_healthy", None),
    ("t215_skip_allreduce_diff_size", Some((Kind::OpSkipped, &[2]))),
    ("t215_type_mismatch", Some((Kind::CollectiveMismatch, &[1]))),
    ("t215_size_mismatch", Some((Kind::SizeMismatch, &[2]))),
    ("t291_size_mismatch", Some((Kind::SizeMismatch, &[2]))),
    ("t215_dtype_mismatch", Some((Kind::DtypeMismatch, &[3]))),
    ("t215_never_arrives", Some((Kind::RankNeverJoined, &[3]))),
    ("t215_two_subgroups_one_hung", Some((Kind::RankNeverJoined, &[3]))),
    ("t215_ddp_uneven_inputs", Some((Kind::DdpUnevenInputs, &[3]))),
    ("t215_swapped_order", Some((Kind::OpsSwapped, &[1]))),
    ("t215_cross_group_deadlock", Some((Kind::GroupDeadlock, &[1, 2]))),
    ("t215_rank_crash_no_dump", Some((Kind::RankMissing, &[2]))),
    ("t215_straggler_midstep", Some((Kind::Straggler, &[3]))),
];

#[test]
fn real_cases() {
    let mut wrong = Vec::new();
    for (case, truth) in TRUTHS {
        let report = report(&files(&cases().join(case)));
        let truth: Vec<_> = truth.iter().map(|(kind, ranks)| (*kind, ranks.to_vec())).collect();
        if found(&report) != truth {
            wrong.push(format!("{case}: {:?}", found(&report)));
        }
        assert_text("cases", case, &report);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Holds a case's report against the snapshot of its name.
fn assert_text(folder: &str, case: &str, report: &Report) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(format!("snapshots/{folder}"));
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| insta::assert_snapshot!(case, report.to_text()));
}

/// JSON has no stacks: the same ranks are to blame.
#[test]
fn real_cases_from_json() {
    for (case, truth) in TRUTHS {
        let report = report(&files(&cases().join(case).join("json")));
        let culprits: Vec<_> = found(&report).into_iter().map(|(_, culprits)| culprits).collect();
        let truth: Vec<_> = truth.iter().map(|(_, ranks)| ranks.to_vec()).collect();
        assert_eq!(culprits, truth, "{case}: {}", report.to_text());
    }
}

/// torch 2.9.1 leaves the list of a new group's members empty.
#[test]
fn a_deadlock_is_found_without_any_list_of_members() {
    let mut files = files(&cases().join("t215_cross_group_deadlock/json"));
    for (_, bytes) in &mut files {
        let text = String::from_utf8(std::mem::take(bytes)).unwrap();
        *bytes = text.replace("\"[0, 1, 2]\"", "\"[]\"").into_bytes();
    }
    let report = report(&files);
    assert_eq!(found(&report), [(Kind::GroupDeadlock, vec![1, 2])], "{}", report.to_text());
    assert_eq!(report.findings[0].certainty, Certainty::Likely);
}

#[test]
fn json_is_the_documented_schema() {
    let report = report(&files(&cases().join("t215_never_arrives")));
    insta::assert_json_snapshot!(report);
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&json).unwrap(), report);
    // The page's worker sends it in a form that names no fields: none of them may be left out.
    let bytes = postcard::to_stdvec(&report).unwrap();
    assert_eq!(postcard::from_bytes::<Report>(&bytes).unwrap(), report);
    for kind in TRUTHS.iter().filter_map(|(_, truth)| truth.map(|(kind, _)| kind)) {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
    }
}

#[test]
fn who_waits_for_whom() {
    let files = files(&cases().join("t215_two_subgroups_one_hung"));
    let files = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    let waits = who_waits(&read_files(files).unwrap().merged.log);
    let short = |wait: &Wait| {
        let line = wait.line.clone().unwrap_or_default();
        let whom = rank_list(&wait.waits_for);
        format!(
            "{} in {} #{} of {} ({line}) for {whom}",
            wait.rank,
            wait.op,
            wait.seq.unwrap(),
            wait.group.desc
        )
    };
    let waits: Vec<_> = waits.iter().map(short).collect();
    let wanted = [
        "0 in all_reduce #6 of default_pg (job.py:67) for 2-3",
        "1 in all_reduce #6 of default_pg (job.py:67) for 2-3",
        "2 in all_reduce #3 of tp1 (job.py:227) for 3",
    ];
    assert_eq!(waits, wanted);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The order in which files are read changes nothing.
    #[test]
    fn order_does_not_matter(case in 0..TRUTHS.len(), seed: u64) {
        let (case, _) = TRUTHS[case];
        let mut files = files(&cases().join(case));
        let wanted = report(&files);
        let length = files.len() as u64;
        for at in (1..length).rev() {
            let other = seed.rotate_left(at as u32 * 7) % (at + 1);
            files.swap(at as usize, other as usize);
        }
        prop_assert_eq!(report(&files), wanted);
    }

    /// Damage is reported or survived; it never panics.
    #[test]
    fn damaged_recordings_never_panic(
        case in 0..TRUTHS.len(), rank in 0usize..4, at: u32, value: u8, json: bool,
    ) {
        let folder = cases().join(TRUTHS[case].0);
        let mut files = files(&if json { folder.join("json") } else { folder });
        let length = files.len();
        let bytes = &mut files[rank % length].1;
        let size = bytes.len();
        bytes[at as usize % size] = value;
        let _ = report(&files).to_text();
    }
}

/// Two hangs of a 16-rank Megatron job over NCCL, with faults injected on ranks 9 and 14. The data
/// is not ours to ship: `LOCKSTEP_NVRX` names its folder.
#[test]
#[ignore = "reads the folder that LOCKSTEP_NVRX names"]
fn nvrx_hangs() {
    let folder = std::env::var_os("LOCKSTEP_NVRX").expect("LOCKSTEP_NVRX names the folder");
    for case in ["gpu_error_2nd", "lock_gil_1st"] {
        let report = report(&files(&Path::new(&folder).join(case)));
        let text = report.to_text();
        let [finding] = report.findings.as_slice() else { panic!("{case}: {text}") };
        assert_eq!(finding.kind, Kind::RankNeverJoined, "{text}");
        assert_eq!(finding.culprits, [9, 14].map(lockstep_core::rank::GlobalRank), "{text}");
        assert_eq!(finding.victims.len(), 14, "{text}");
        assert!(finding.certainty <= crate::Certainty::Likely, "{text}");
        eprintln!("{case}\n{text}");
    }
    // Without any one of its dumps.
    for missing in 0..16u32 {
        let mut files = files(&Path::new(&folder).join("gpu_error_2nd"));
        files.retain(|(name, _)| *name != format!("_dump_{missing}"));
        let report = report(&files);
        let stuck: Vec<u32> = [9, 14].into_iter().filter(|rank| *rank != missing).collect();
        let truth = [(Kind::RankNeverJoined, stuck), (Kind::RankMissing, vec![missing])];
        assert_eq!(found(&report), truth, "without {missing}: {}", report.to_text());
        let sure = report.findings.iter().map(|it| it.certainty).collect::<Vec<_>>();
        let truth = [Certainty::Likely, Certainty::Undecidable];
        assert_eq!(sure, truth, "without {missing}: {}", report.to_text());
    }
}

/// Launchers give every rank a folder of its own, and its files one name.
#[test]
fn ranks_are_in_the_folders() {
    let folders = |folder: &dyn Fn(&str) -> String| {
        let mut files = files(&cases().join("t215_never_arrives"));
        for (name, _) in &mut files {
            *name = folder(name.trim_start_matches("rank_"));
        }
        report(&files)
    };
    let truth = [(Kind::RankNeverJoined, vec![3])];
    assert_eq!(found(&folders(&|rank| format!("rank{rank}/dump.pickle"))), truth);
    assert_eq!(found(&folders(&|rank| format!("{rank}/fr.pkl"))), truth);
    assert_eq!(found(&folders(&|rank| format!("node{rank}/rank_{rank}/trace"))), truth);
    // An older attempt beside it is another set, and told once.
    let mut both = files(&cases().join("t215_never_arrives"));
    for (name, _) in &mut both {
        *name = format!("attempt_1/{}/dump.pickle", name.replace('_', ""));
    }
    let older = files(&cases().join("t215_skip_allreduce_diff_size"));
    both.extend(older.into_iter().map(|(name, bytes)| (format!("attempt_0/{name}/dump"), bytes)));
    let judged = report(&both);
    assert_eq!(judged.findings.len(), 1, "{}", judged.to_text());
    let left: Vec<_> = judged.notes.iter().filter(|note| note.contains("attempt_")).collect();
    assert_eq!(left.len(), 1, "{}", judged.to_text());
}

/// A dump that was cut off while it was copied is not a rank that crashed.
#[test]
fn an_unreadable_dump_is_called_that() {
    let mut files = files(&cases().join("t215_never_arrives"));
    let (_, bytes) = files.iter_mut().find(|(name, _)| name == "rank_1").unwrap();
    bytes.truncate(bytes.len() / 2);
    let report = report(&files);
    assert_eq!(found(&report)[0], (Kind::RankNeverJoined, vec![3]));
    let missing = report.findings.iter().find(|f| f.kind == Kind::RankMissing).unwrap();
    assert!(missing.message.starts_with("The dump of rank 1 (rank_1) cannot be read."));
    assert!(!missing.message.contains("crashed"), "{}", missing.message);
    assert!(missing.message.contains("says nothing of its rank"), "{}", missing.message);
    assert!(missing.evidence.iter().any(|seen| seen.note.contains("cut off at byte")));
}
