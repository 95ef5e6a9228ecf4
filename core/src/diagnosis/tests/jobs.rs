//! Real gloo jobs (torch 2.9.1) of epochs, groups and works that are started together, and of ranks that are
//! slow: what `tests/data/flight-recorder-jobs/jobs.py` did, and what can be known of it.

use super::{cases, files, found, report};
use crate::diagnosis::{Certainty, Kind, Report, add_log};
use crate::job_log::{Heard, read};

/// Kinds and culprits, and how sure at most.
type Truth = &'static [(Kind, &'static [u32], Certainty)];

use Certainty::{Certain, Likely, Undecidable};

/// The case, and what it must be found to be. A comment says where the recording cannot tell what was
/// really done.
const JOBS: &[(&str, Truth)] = &[
    // On gloo a reduce_scatter is an all_reduce.
    ("all_gather_for_all_reduce", &[(Kind::CollectiveMismatch, &[1], Likely)]),
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
    ("odd_even_skip", &[(Kind::OpSkipped, &[3], Likely)]),
    ("odd_even_wrong_group", &[(Kind::OpExtra, &[2], Likely)]),
    ("resume_missing", &[(Kind::OpSkipped, &[3], Likely)]),
    ("slow_ddp", &[(Kind::Straggler, &[0], Likely)]),
    ("slow_in_group", &[(Kind::Straggler, &[2], Likely)]),
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

#[test]
fn no_job_is_forgotten() {
    let found = std::fs::read_dir(cases().with_file_name("flight-recorder-jobs")).unwrap();
    let found = found.map(|entry| entry.unwrap()).filter(|entry| entry.path().is_dir());
    let mut found: Vec<_> = found.map(|it| it.file_name().into_string().unwrap()).collect();
    found.sort();
    assert_eq!(found, JOBS.iter().map(|(case, _)| (*case).to_owned()).collect::<Vec<_>>());
}

/// What seems to be a call on top is one behind a barrier that the rank left out, where gloo says so.
#[test]
fn a_log_tells_of_the_barrier_that_no_recorder_holds() {
    let mut report = of_case("monitored");
    let log = read(
        b"[rank0]: RuntimeError: [Rank 0]: Rank 3 failed to pass monitoredBarrier in 3000 ms\n",
    );
    add_log(&mut report, &Heard::of([("log", &log, None)]));
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
        let log = read(text.as_bytes());
        let mut report = Report::healthy(world);
        add_log(&mut report, &Heard::of([("log", &log, None)]));
        (found(&report), report.findings[0].certainty)
    };
    let odd = |ranks: &[u32]| vec![(Kind::DdpModelMismatch, ranks.to_vec())];
    assert_eq!(judged(&[2], 4), (odd(&[2]), Certain));
    assert_eq!(judged(&[1, 2, 3], 4), (odd(&[0]), Likely));
    assert_eq!(judged(&[1], 2), (odd(&[0, 1]), Undecidable));
}
