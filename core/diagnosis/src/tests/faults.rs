//! Real gloo jobs (torch 2.9.1), each with a deliberate fault of another kind: what
//! `tests/data/flight-recorder-faults/faults.py` did, and what can be known of it.

use super::{assert_text, cases, files, found, report};
use crate::Kind;
use proptest::prelude::*;

/// Kinds and culprits.
type Truth = &'static [(Kind, &'static [u32])];

/// The case, and the kinds and culprits that it must be found to be. A comment says where the
/// recording cannot tell what was really done.
const FAULTS: &[(&str, Truth)] = &[
    // Its gradients are reduced every other batch, the others' every third: it has more to reduce.
    ("accumulate_differently", &[(Kind::DdpUnevenInputs, &[1])]),
    // Rank 2 sends one element to rank 0 that is another's: only the sums are recorded.
    ("all_to_all_input_splits", &[(Kind::SplitMismatch, &[0, 2, 3])]),
    ("all_to_all_outputs", &[(Kind::SplitMismatch, &[3])]),
    // What ranks 0 and 2 send to rank 1 is as much together as it expects.
    ("all_to_all_pair", &[(Kind::SplitMismatch, &[0, 2])]),
    ("barrier_in_try_then_gather", &[(Kind::OpSkipped, &[1])]),
    ("barrier_missing", &[(Kind::RankNeverJoined, &[1])]),
    // Every rank takes itself for the root, which is not recorded.
    ("broadcast_own", &[(Kind::RootMismatch, &[0, 1, 2, 3])]),
    ("coalesced_size", &[(Kind::SizeMismatch, &[1])]),
    ("crash_subgroup", &[(Kind::RankMissing, &[3])]),
    // One set of buckets more and another size of them.
    ("ddp_find_unused_mismatch", &[(Kind::SizeMismatch, &[3])]),
    ("ddp_healthy", &[]),
    ("ddp_killed", &[(Kind::RankMissing, &[1])]),
    ("ddp_model_mismatch", &[(Kind::DdpModelMismatch, &[2])]),
    // All others leave out a backward pass, which is the program's way by majority.
    ("ddp_nan_all_but_one", &[(Kind::OpExtra, &[0])]),
    ("ddp_nan_continue", &[(Kind::OpSkipped, &[2])]),
    // Two ranks against two: some left out a backward pass, or some reduce on top.
    ("ddp_nan_two_ranks", &[(Kind::CollectiveMismatch, &[0, 1, 2, 3])]),
    // A pass under no_sync leaves out as much as a batch.
    ("ddp_no_sync", &[(Kind::DdpUnevenInputs, &[1])]),
    // It reduces in another step than the others, a step earlier.
    ("ddp_no_sync_in_join", &[(Kind::OpExtra, &[1])]),
    ("ddp_no_sync_once_in_join", &[(Kind::OpSkipped, &[1])]),
    ("ddp_one_more_batch", &[(Kind::DdpUnevenInputs, &[1])]),
    ("ddp_skip_batch", &[(Kind::DdpUnevenInputs, &[2])]),
    ("ddp_straggler", &[(Kind::Straggler, &[3])]),
    ("ddp_stuck", &[(Kind::RankNeverJoined, &[2])]),
    // At the end of a step, without buffers: nothing of its next one is seen.
    ("ddp_stuck_bare", &[(Kind::RankNeverJoined, &[2])]),
    // Its inputs ended. But of rank 0 alone a call behind `if rank == 0:` looks the same, and is likelier.
    ("ddp_uneven_then_eval", &[(Kind::OpExtra, &[0])]),
    // It may as well be stuck in its data loader.
    ("ddp_uneven_then_idle", &[(Kind::RankNeverJoined, &[2])]),
    ("ddp_unused", &[(Kind::DdpUnusedParameters, &[1])]),
    ("ddp_unused_bare", &[(Kind::DdpUnusedParameters, &[1])]),
    ("ddp_validate_rank0", &[(Kind::OpExtra, &[0])]),
    ("dtype_bf16_gather", &[(Kind::DtypeMismatch, &[2])]),
    ("dtype_broadcast", &[(Kind::DtypeMismatch, &[1])]),
    ("dtype_same_width", &[(Kind::DtypeMismatch, &[1])]),
    // It runs: the dumps are of different moments.
    ("dumped_apart", &[]),
    ("early_stop", &[(Kind::LoopShorter, &[1])]),
    ("eval_half", &[(Kind::OpExtra, &[0, 1])]),
    ("eval_shorter_first_epoch", &[(Kind::LoopShorter, &[2])]),
    ("eval_shorter_metrics", &[(Kind::OpSkipped, &[3])]),
    // Its group has two members: the other groups show who is right.
    ("extra_in_tp", &[(Kind::OpExtra, &[4])]),
    // A call of another line after some rounds: an extra call, or behind the loop.
    ("extra_other_size", &[(Kind::LoopShorter, &[1])]),
    ("extra_same_size", &[(Kind::OpExtra, &[1])]),
    // It leaves out a backward pass of FSDP.
    ("fsdp_real_skip", &[(Kind::OpSkipped, &[1])]),
    ("gather_vs_all_gather", &[(Kind::CollectiveMismatch, &[2])]),
    // Its group of two is not known to be its own: it has never called it.
    ("group_always_left_out_barrier", &[(Kind::OpExtra, &[2]), (Kind::CallNeverCompleted, &[])]),
    ("group_left_out_line", &[(Kind::OpExtra, &[3])]),
    ("group_left_out_world_loop", &[(Kind::OpExtra, &[1])]),
    // Each is seen in one of the two groups, whose members gloo does not list.
    ("groups_opposite", &[(Kind::GroupDeadlock, &[0, 1])]),
    // Two ranks against two: in the rounds before the call came next.
    ("half_skip", &[(Kind::OpSkipped, &[0, 1])]),
    ("hsdp_cross", &[(Kind::GroupDeadlock, &[1, 6])]),
    // One round less of a loop of one call.
    ("inner_loop_uneven", &[(Kind::OpSkipped, &[1])]),
    ("killed_before_group", &[(Kind::RankMissing, &[6])]),
    // The barrier failed, which looks as if it had ended.
    ("killed_last", &[(Kind::RankMissing, &[3])]),
    ("loop_shorter", &[(Kind::LoopShorter, &[3])]),
    ("loop_shorter_two_calls", &[(Kind::LoopShorter, &[2])]),
    ("mesh_healthy", &[]),
    ("mesh_size", &[(Kind::SizeMismatch, &[1])]),
    ("mesh_stuck", &[(Kind::RankNeverJoined, &[2])]),
    // It waits for the job in a barrier, and closes a circle of three groups.
    ("mesh_tp_skip_world_waits", &[(Kind::OpSkipped, &[3])]),
    ("new_shape_second_epoch", &[(Kind::SizeMismatch, &[0])]),
    ("newgroup_members_later", &[(Kind::GroupDeadlock, &[2, 3])]),
    // All others leave it out, which is the program's way by majority.
    ("object_once", &[(Kind::OpExtra, &[0])]),
    ("object_rank0", &[(Kind::OpExtra, &[0])]),
    ("object_rank0_step", &[(Kind::OpExtra, &[0])]),
    ("object_skip", &[(Kind::OpSkipped, &[3])]),
    ("objects_healthy", &[]),
    // Another epoch, of which its partner makes no call.
    // Nothing tells its further round from calls that were matched wrongly.
    ("one_more_epoch", &[(Kind::GroupDeadlock, &[6])]),
    // No round has come twice before: the others may be stuck in front of the call.
    ("only_one_arrives", &[(Kind::RankNeverJoined, &[0, 1, 2, 3])]),
    // gloo does not record sends and receives.
    ("p2p_cycle", &[(Kind::RankNeverJoined, &[0, 1])]),
    // gloo does not record sends and receives: it is the one that went on too early, rank 2, that
    // leaves its neighbours in them.
    ("pipeline_microbatch", &[(Kind::RankNeverJoined, &[1, 3])]),
    ("rank0_broadcast_object", &[(Kind::OpExtra, &[0])]),
    ("rank0_checkpoint_barrier", &[(Kind::OpExtra, &[0])]),
    ("rank0_gather_at_end", &[(Kind::OpExtra, &[0])]),
    ("rank0_logging", &[(Kind::OpExtra, &[0])]),
    // Roots are not recorded: the two that hang in it.
    ("reduce_root", &[(Kind::RootMismatch, &[0, 3])]),
    // To gloo both are an all_reduce of the same size: they pass, and look alike.
    ("reduce_scatter_vs_all_reduce", &[]),
    ("ring_of_groups", &[(Kind::GroupDeadlock, &[0, 1, 2])]),
    ("ring_wrap", &[(Kind::RankNeverJoined, &[3])]),
    // Roots are not recorded: the two that hang in it.
    ("root_mismatch", &[(Kind::RootMismatch, &[0, 2])]),
    // It runs, as the older dump of rank 0 shows: undecidable.
    ("run_mesh", &[(Kind::RankNeverJoined, &[2])]),
    ("scatter_sizes", &[(Kind::SizeMismatch, &[3])]),
    ("size_all_gather", &[(Kind::SizeMismatch, &[3])]),
    ("size_broadcast", &[(Kind::SizeMismatch, &[2])]),
    ("size_reduce_scatter", &[(Kind::SizeMismatch, &[0])]),
    ("size_tie", &[(Kind::SizeMismatch, &[0, 1, 2, 3])]),
    // The next call of its line is of another size, as each was before.
    ("skip_between_sizes", &[(Kind::OpSkipped, &[3])]),
    ("skip_in_dp", &[(Kind::OpSkipped, &[5])]),
    ("skip_one_of_two", &[(Kind::OpSkipped, &[2])]),
    ("skip_one_of_two_lines", &[(Kind::OpSkipped, &[2])]),
    // All calls are alike: it may also be stuck before the last one.
    ("skip_same_size", &[(Kind::RankNeverJoined, &[1])]),
    ("split_mismatch", &[(Kind::SplitMismatch, &[1])]),
    // A stopped process leaves no dump either.
    ("stopped", &[(Kind::RankMissing, &[2])]),
    ("straggler_mesh", &[(Kind::Straggler, &[2])]),
    ("straggler_sleep", &[(Kind::Straggler, &[2])]),
    ("stuck_before_wait", &[(Kind::RankNeverJoined, &[1])]),
    ("swallowed_exception", &[(Kind::LoopShorter, &[2])]),
    // Two calls on tensors of one size, and nothing after them.
    ("swapped_same_size", &[(Kind::CollectiveMismatch, &[2])]),
    ("three_groups_chain", &[(Kind::RankNeverJoined, &[6])]),
    // gloo has retired the calls that failed.
    ("timed_out", &[(Kind::RankNeverJoined, &[3])]),
    ("timed_out_ddp", &[(Kind::RankNeverJoined, &[2])]),
    ("two_faults", &[(Kind::SizeMismatch, &[2]), (Kind::RankNeverJoined, &[1])]),
    ("two_killed", &[(Kind::RankMissing, &[1, 4])]),
    ("two_skip_same", &[(Kind::OpSkipped, &[1, 5])]),
    ("two_stuck", &[(Kind::RankNeverJoined, &[0, 2])]),
    ("uneven_all_to_all_ok", &[]),
    ("unused_on_most", &[(Kind::DdpUnusedParameters, &[1, 2, 3])]),
];

fn folder(case: &str) -> std::path::PathBuf {
    cases().with_file_name("flight-recorder-faults").join(case)
}

#[test]
fn real_faults() {
    let mut wrong = Vec::new();
    for (case, truth) in FAULTS {
        let report = report(&files(&folder(case)));
        let truth: Vec<_> = truth.iter().map(|(kind, ranks)| (*kind, ranks.to_vec())).collect();
        if found(&report) != truth {
            wrong.push(format!("{case}: {:?}\n{}", found(&report), report.to_text()));
        }
        for finding in &report.findings {
            assert!(!finding.evidence.is_empty(), "{case}: nobody is blamed without evidence");
        }
        assert_text("faults", case, &report);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A case, the rank whose dump is taken away, the findings that are left of it, and who is named to
/// wait for that rank.
type Without = (&'static str, u32, Truth, &'static [u32]);

/// Other causes that hold the job up are told first, and by the same ranks as with the dump; ranks
/// that wait for the missing rank as well are named.
const WITHOUT: &[Without] = &[
    // Rank 1 is known not to have come; rank 0 may have.
    ("barrier_missing", 0, &[(Kind::RankNeverJoined, &[1]), (Kind::RankMissing, &[0])], &[2, 3]),
    // A circle explains it, though all wait for rank 0 in a barrier.
    (
        "mesh_tp_skip_world_waits",
        0,
        &[(Kind::OpSkipped, &[3]), (Kind::RankMissing, &[0])],
        &[1, 4, 5, 6, 7],
    ),
    // The calls differ without it; with it, it might be a tie.
    ("size_tie", 0, &[(Kind::SizeMismatch, &[1]), (Kind::RankMissing, &[0])], &[2, 3]),
    // Nobody needs rank 0, which waits for rank 1 itself.
    ("skip_in_dp", 0, &[(Kind::OpSkipped, &[5]), (Kind::RankMissing, &[0])], &[]),
    ("straggler_mesh", 1, &[(Kind::Straggler, &[2]), (Kind::RankMissing, &[1])], &[]),
    // gloo's calls that failed look as if they had ended.
    ("timed_out", 3, &[(Kind::RankMissing, &[3])], &[0, 1, 2]),
    ("killed_last", 3, &[(Kind::RankMissing, &[3])], &[0, 1, 2]),
    ("killed_before_group", 6, &[(Kind::RankMissing, &[6])], &[0, 1, 2, 3, 4, 5, 7]),
];

#[test]
fn a_missing_dump_is_not_blamed_for_what_others_explain() {
    for (case, rank, truth, waiting) in WITHOUT {
        let mut files = files(&folder(case));
        files.retain(|(name, _)| *name != format!("rank_{rank}"));
        let report = report(&files);
        let truth: Vec<_> = truth.iter().map(|(kind, ranks)| (*kind, ranks.to_vec())).collect();
        assert_eq!(found(&report), truth, "{case}: {}", report.to_text());
        let missing = report.findings.last().unwrap();
        let victims: Vec<u32> = missing.victims.iter().map(|rank| rank.0).collect();
        assert_eq!(victims, *waiting, "{case}: {}", report.to_text());
        // A majority of three is none of four.
        let sure = missing.culprits.len() == report.culprits().len() || *case != "size_tie";
        assert!(sure || report.findings[0].certainty == crate::Certainty::Likely);
    }
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
