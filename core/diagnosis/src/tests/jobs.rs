//! Real gloo jobs (torch 2.9.1) of epochs, groups and works that are started together, and of ranks that are
//! slow: what `tests/data/flight-recorder-jobs/jobs.py` did, and what can be known of it.

use super::{cases, files, found, report};
use crate::facts::other_sources::OtherSources;
use crate::{Certainty, Kind, Report, diagnose_recording};
use lockstep_formats::flight_recorder::read_files;
use lockstep_formats::job_log::{Heard, read};
use std::sync::Arc;

/// Kinds and culprits, and how sure at most.
type Truth = &'static [(Kind, &'static [u32], Certainty)];

use Certainty::{Certain, Likely, Undecidable};

/// The case, and what it must be found to be. A comment says where the recording cannot tell what was
/// really done.
const JOBS: &[(&str, Truth)] = &[
    // On gloo a reduce_scatter is an all_reduce.
    ("all_gather_for_all_reduce", &[(Kind::CollectiveMismatch, &[1], Likely)]),
    // Dumps hold the sums of the splits only.
    ("all_to_all_other_size", &[(Kind::SplitMismatch, &[3], Likely)]),
    // Rank 2 alone expects more than the others, as it always has.
    ("all_to_all_sends_less", &[(Kind::SplitMismatch, &[1], Likely)]),
    ("async_other_order", &[(Kind::OpsSwapped, &[2], Likely)]),
    ("async_reversed", &[(Kind::OpsSwapped, &[1], Likely)]),
    ("ddp_rank0_log", &[(Kind::OpExtra, &[0], Likely)]),
    ("ddp_rank0_save", &[(Kind::OpExtra, &[0], Likely)]),
    // Nothing of the step is reduced: it may as well be stuck before it.
    ("ddp_unused_first_bucket", &[(Kind::RankNeverJoined, &[2], Likely)]),
    ("dict_order", &[(Kind::OpsSwapped, &[1], Likely)]),
    // It may as well have gone on to the next epoch without the call at the end of this one.
    ("epoch_one_more", &[(Kind::OpSkipped, &[1], Likely)]),
    ("epochs_plain", &[(Kind::LoopShorter, &[2], Likely)]),
    ("epochs_two_loops", &[(Kind::LoopShorter, &[0], Likely)]),
    ("epochs_uneven", &[(Kind::DdpUnevenInputs, &[1], Likely)]),
    ("epochs_uneven_barrier", &[(Kind::DdpUnevenInputs, &[3], Likely)]),
    ("epochs_uneven_ring", &[(Kind::DdpUnevenInputs, &[2], Likely)]),
    ("full_tensor_skip", &[(Kind::OpSkipped, &[2], Likely)]),
    ("mesh_of_three_skip", &[(Kind::OpSkipped, &[6], Likely)]),
    // Of two, either may be the odd one.
    ("model_of_two", &[(Kind::DdpModelMismatch, &[0, 1], Undecidable)]),
    ("model_rank0_odd", &[(Kind::DdpModelMismatch, &[0], Likely)]),
    // gloo does not record monitored_barrier.
    ("monitored", &[(Kind::OpExtra, &[3], Likely)]),
    ("object_left_out", &[(Kind::OpSkipped, &[2], Likely)]),
    ("odd_even_skip", &[(Kind::OpSkipped, &[3], Likely)]),
    ("odd_even_wrong_group", &[(Kind::OpExtra, &[2], Likely)]),
    ("resume_missing", &[(Kind::OpSkipped, &[3], Likely)]),
    ("ring_of_groups", &[(Kind::GroupDeadlock, &[0, 2, 4], Likely)]),
    ("rotated", &[(Kind::OpsSwapped, &[1], Likely)]),
    ("rotated_back", &[(Kind::OpsSwapped, &[2], Likely)]),
    // It may as well have made its two calls in the other order this time.
    ("skip_in_subgroup", &[(Kind::OpSkipped, &[2], Likely)]),
    // Rank 0, the root, is in the gather of which all others have come out: its dump is the oldest.
    ("slow_before_gather", &[(Kind::Straggler, &[2], Likely)]),
    ("slow_ddp", &[(Kind::Straggler, &[0], Likely)]),
    // The root waits for rank 3 as well, and comes late to the next call because of it.
    ("slow_gather", &[(Kind::Straggler, &[3], Likely)]),
    ("slow_in_group", &[(Kind::Straggler, &[2], Likely)]),
    ("slow_in_one_of_two", &[(Kind::Straggler, &[0], Likely)]),
    // Both of the pair are in its call when they are recorded: it was told as a circle with rank 1.
    ("slow_in_pair", &[(Kind::Straggler, &[2], Likely)]),
    ("slow_mesh_of_three", &[(Kind::Straggler, &[6], Likely)]),
    ("slow_two", &[(Kind::Straggler, &[1, 2], Likely)]),
    // Or it left the all_reduce out in one round of a loop, and makes that of the next.
    ("swapped_at_the_start", &[(Kind::OpsSwapped, &[1], Likely)]),
    ("two_smaller", &[(Kind::SizeMismatch, &[1, 3], Likely)]),
    ("world_for_group", &[(Kind::OpExtra, &[1], Likely)]),
    ("wrong_group_barrier", &[(Kind::OpExtra, &[3], Likely)]),
];

fn of_case(case: &str) -> Report {
    report(&files(&cases().with_file_name("flight-recorder-jobs").join(case)))
}

#[test]
fn real_jobs() {
    let mut wrong = Vec::new();
    for (case, truth) in JOBS {
        let report = of_case(case);
        let truth = truth.iter().map(|(kind, ranks, sure)| (*kind, ranks.to_vec(), *sure));
        let told = found(&report).into_iter().zip(&report.findings);
        let told = told.map(|((kind, ranks), finding)| (kind, ranks, finding.certainty));
        let (truth, told): (Vec<_>, Vec<_>) = (truth.collect(), told.collect());
        if told != truth {
            wrong.push(format!("{case}: {told:?}\n{}", report.to_text()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Without the dump of one rank no other is to blame for what that one may have done.
#[test]
fn who_left_no_dump_may_be_the_one() {
    let found_without = |case: &str, rank: u32| {
        let mut files = files(&cases().with_file_name("flight-recorder-jobs").join(case));
        files.retain(|(name, _)| *name != format!("rank_{rank}"));
        let report = report(&files);
        let found = found(&report).into_iter().zip(&report.findings);
        found.map(|((kind, ranks), finding)| (kind, ranks, finding.certainty)).collect::<Vec<_>>()
    };
    // That rank 5 is in the group of ranks 0 and 4 as well makes that no other kind of group.
    let circle = (Kind::GroupDeadlock, vec![0, 2, 4], Likely);
    assert_eq!(found_without("ring_of_groups", 5), [circle]);
    // Rank 2 is late to the calls of its second group because it waits for rank 0 in the first.
    let missing = (Kind::RankMissing, vec![0], Undecidable);
    assert_eq!(found_without("slow_in_one_of_two", 0), [missing]);
    // Two of the three that are left are odd: the line's history says more than they do.
    for rank in [0, 2] {
        let odd = (Kind::SizeMismatch, vec![1, 3], Likely);
        assert!(found_without("two_smaller", rank).contains(&odd), "without rank {rank}");
    }
    // Rank 7 is the first that came, and rank 6 the slow one.
    let told = found_without("slow_mesh_of_three", 3);
    let either = (Kind::RankNeverJoined, vec![6, 7], Undecidable);
    assert!(told.contains(&either) && told.len() == 2, "{told:?}");
}

/// Which calls in which order is said.
#[test]
fn another_order_is_told() {
    let report = of_case("rotated");
    let said = "made 3 calls of default_pg in another order: all_reduce of 20, broadcast of 30, all_reduce \
                of 10 where the others made all_reduce of 10, all_reduce of 20, broadcast of 30.";
    assert!(report.findings[0].message.contains(said), "{}", report.to_text());
}

/// JSON has no frames: what sizes and the order of the calls tell is told all the same.
#[test]
fn sizes_decide_without_lines() {
    let told = |folder: &str, case: &str| {
        let files = files(&cases().with_file_name(folder).join(case));
        let files = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
        let mut recording = read_files(files).unwrap();
        for own in recording.merged.log.ranks.iter_mut().flatten() {
            for record in &mut own.calls {
                let mut call = (*record.call).clone();
                call.stack = Arc::from(Vec::new());
                record.call = Arc::new(call);
            }
        }
        let report = diagnose_recording(&recording);
        let finding = report.findings.first().unwrap();
        let ranks: Vec<u32> = finding.culprits.iter().map(|rank| rank.0).collect();
        (finding.kind, ranks, finding.certainty)
    };
    let jobs = "flight-recorder-jobs";
    assert_eq!(told(jobs, "object_left_out"), (Kind::OpSkipped, vec![2], Likely));
    assert_eq!(told(jobs, "world_for_group"), (Kind::OpExtra, vec![1], Likely));
    assert_eq!(told(jobs, "rotated"), (Kind::OpsSwapped, vec![1], Likely));
    let faults = "flight-recorder-faults";
    assert_eq!(told(faults, "half_skip"), (Kind::OpSkipped, vec![0, 1], Likely));
    // A rank that is a round ahead looks as one that made calls on top.
    assert_eq!(told(faults, "ddp_no_sync_once_in_join"), (Kind::OpExtra, vec![1], Likely));
}

#[test]
fn no_job_is_forgotten() {
    let found = std::fs::read_dir(cases().with_file_name("flight-recorder-jobs")).unwrap();
    let found = found.map(|entry| entry.unwrap()).filter(|entry| entry.path().is_dir());
    let mut found: Vec<_> = found.map(|it| it.file_name().into_string().unwrap()).collect();
    found.sort();
    assert_eq!(found, JOBS.iter().map(|(case, _)| (*case).to_owned()).collect::<Vec<_>>());
}

/// A call that seems to be on top is one behind a barrier that the rank left out, where gloo says so.
#[test]
fn a_log_tells_of_the_barrier_that_no_recorder_holds() {
    let case = files(&cases().with_file_name("flight-recorder-jobs").join("monitored"));
    let case = case.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    let log = read(
        "job.log",
        b"[rank0]: RuntimeError: [Rank 0]: Rank 3 failed to pass monitoredBarrier in 3000 ms\n",
    );
    let heard = Heard::of([("log", &log, None)]);
    let report = crate::diagnose_dumps(
        &read_files(case).unwrap(),
        OtherSources { heard, ..OtherSources::default() },
    );
    assert_eq!(found(&report), [(Kind::RankNeverJoined, vec![3])], "{}", report.to_text());
    let finding = &report.findings[0];
    assert_eq!(finding.certainty, Certain);
    assert!(finding.message.contains("Rank 3 alone called all_reduce #5"), "{}", finding.message);
}

/// DDP's constructor raises on the ranks that have not rank 0's shapes.
#[test]
fn a_log_of_raised_shapes_tells_of_the_odd_model() {
    let says = |rank: u32| {
        format!(
            "[rank{rank}]: RuntimeError: [{rank}]: params[2] in this process with sizes [64, 64] appears not to \
             match sizes of the same param in process 0.\n"
        )
    };
    let judged = |ranks: &[u32], world: u32| {
        let text = ranks.iter().map(|rank| says(*rank)).collect::<String>();
        let log = read("job.log", text.as_bytes());
        let heard = Heard::of([("log", &log, None)]);
        let sources = OtherSources { heard, ..OtherSources::default() };
        let report = crate::diagnose_logs(Report::healthy(world), &sources);
        (found(&report), report.findings[0].certainty)
    };
    let odd = |ranks: &[u32]| vec![(Kind::DdpModelMismatch, ranks.to_vec())];
    assert_eq!(judged(&[2], 4), (odd(&[2]), Certain));
    assert_eq!(judged(&[1, 2, 3], 4), (odd(&[0]), Likely));
    assert_eq!(judged(&[1], 2), (odd(&[0, 1]), Undecidable));
}
