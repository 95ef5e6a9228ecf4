//! Real gloo jobs (torch 2.9.1), each with a deliberate fault of another kind: what
//! `tests/data/flight-recorder-faults/faults.py` did, and what can be known of it.

use super::{cases, files, found, report};
use crate::diagnosis::Kind;
use proptest::prelude::*;

/// Kinds and culprits.
type Truth = &'static [(Kind, &'static [u32])];

/// The case, and the kinds and culprits that it must be found to be. A comment says where the
/// recording cannot tell what was really done.
const FAULTS: &[(&str, Truth)] = &[
    ("barrier_missing", &[(Kind::RankNeverJoined, &[1])]),
    ("crash_subgroup", &[(Kind::RankMissing, &[3])]),
    // One set of buckets more and another size of them.
    ("ddp_find_unused_mismatch", &[(Kind::SizeMismatch, &[3])]),
    ("ddp_healthy", &[]),
    ("ddp_model_mismatch", &[(Kind::DdpModelMismatch, &[2])]),
    // A pass under no_sync leaves out as much as a batch.
    ("ddp_no_sync", &[(Kind::DdpUnevenInputs, &[1])]),
    ("ddp_skip_batch", &[(Kind::DdpUnevenInputs, &[2])]),
    ("ddp_straggler", &[(Kind::Straggler, &[3])]),
    ("ddp_uneven_then_eval", &[(Kind::DdpUnevenInputs, &[0])]),
    // It may as well be stuck in its data loader.
    ("ddp_uneven_then_idle", &[(Kind::RankNeverJoined, &[2])]),
    ("ddp_unused", &[(Kind::DdpUnusedParameters, &[1])]),
    ("dtype_broadcast", &[(Kind::DtypeMismatch, &[1])]),
    ("early_stop", &[(Kind::LoopShorter, &[1])]),
    // A call of another line after some rounds: an extra call, or behind the loop.
    ("extra_other_size", &[(Kind::LoopShorter, &[1])]),
    ("extra_same_size", &[(Kind::OpExtra, &[1])]),
    ("loop_shorter", &[(Kind::LoopShorter, &[3])]),
    ("mesh_healthy", &[]),
    ("mesh_size", &[(Kind::SizeMismatch, &[1])]),
    ("mesh_stuck", &[(Kind::RankNeverJoined, &[2])]),
    ("object_rank0", &[(Kind::OpExtra, &[0])]),
    // gloo does not record sends and receives.
    ("p2p_cycle", &[(Kind::RankNeverJoined, &[0, 1])]),
    ("rank0_checkpoint_barrier", &[(Kind::OpExtra, &[0])]),
    ("rank0_gather_at_end", &[(Kind::OpExtra, &[0])]),
    ("rank0_logging", &[(Kind::OpExtra, &[0])]),
    ("ring_of_groups", &[(Kind::GroupDeadlock, &[0, 1, 2])]),
    ("ring_wrap", &[(Kind::RankNeverJoined, &[3])]),
    // Roots are not recorded: the two that hang in it.
    ("root_mismatch", &[(Kind::RootMismatch, &[0, 2])]),
    ("size_all_gather", &[(Kind::SizeMismatch, &[3])]),
    ("size_broadcast", &[(Kind::SizeMismatch, &[2])]),
    ("size_reduce_scatter", &[(Kind::SizeMismatch, &[0])]),
    ("size_tie", &[(Kind::SizeMismatch, &[0, 1, 2, 3])]),
    ("skip_one_of_two", &[(Kind::OpSkipped, &[2])]),
    // All calls are alike: it may also be stuck before the last one.
    ("skip_same_size", &[(Kind::RankNeverJoined, &[1])]),
    ("split_mismatch", &[(Kind::SplitMismatch, &[1])]),
    ("straggler_mesh", &[(Kind::Straggler, &[2])]),
    ("swallowed_exception", &[(Kind::LoopShorter, &[2])]),
    // Two calls on tensors of one size, and nothing after them.
    ("swapped_same_size", &[(Kind::CollectiveMismatch, &[2])]),
    ("two_faults", &[(Kind::RankNeverJoined, &[1]), (Kind::SizeMismatch, &[2])]),
    ("two_stuck", &[(Kind::RankNeverJoined, &[0, 2])]),
    ("uneven_all_to_all_ok", &[]),
];

fn folder(case: &str) -> std::path::PathBuf {
    cases().with_file_name("flight-recorder-faults").join(case)
}

#[test]
fn real_faults() {
    let (mut texts, mut wrong) = (String::new(), Vec::new());
    for (case, truth) in FAULTS {
        let report = report(&files(&folder(case)));
        let truth: Vec<_> = truth.iter().map(|(kind, ranks)| (*kind, ranks.to_vec())).collect();
        if found(&report) != truth {
            wrong.push(format!("{case}: {:?}\n{}", found(&report), report.to_text()));
        }
        for finding in &report.findings {
            assert!(!finding.evidence.is_empty(), "{case}: nobody is blamed without evidence");
        }
        texts += &format!("== {case}\n{}\n", report.to_text());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    insta::assert_snapshot!(texts);
}

/// Every case on disk is judged.
#[test]
fn no_case_is_forgotten() {
    let listed: Vec<_> = FAULTS.iter().map(|(case, _)| (*case).to_owned()).collect();
    let found = std::fs::read_dir(folder("")).unwrap().map(|entry| entry.unwrap());
    let found = found.filter(|entry| entry.path().is_dir());
    let mut found: Vec<_> = found.map(|it| it.file_name().into_string().unwrap()).collect();
    found.sort();
    assert_eq!(found, listed);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The order in which files are read changes nothing.
    #[test]
    fn order_does_not_matter(
        (case, order) in (0..FAULTS.len()).prop_flat_map(|case| {
            let files = files(&folder(FAULTS[case].0));
            (Just(case), Just(files).prop_shuffle())
        }),
    ) {
        prop_assert_eq!(report(&order), report(&files(&folder(FAULTS[case].0))));
    }
}
