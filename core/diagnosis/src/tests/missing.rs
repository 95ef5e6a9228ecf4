//! Real dumps of which one is left out: what it would have told is not guessed.

use super::fake::{Fake, done, pending};
use super::{cases, files, found, report};
use crate::{Certainty, Kind, Report};

const GAPS: &str = "../flight-recorder-gaps";

fn without(case: &str, rank: u32) -> Report {
    let mut files = files(&cases().join(case));
    files.retain(|(name, _)| *name != format!("rank_{rank}"));
    report(&files)
}

/// Two groups that were given different descriptions are not one group under two names, and a
/// majority that the missing rank could undo decides nothing.
#[test]
fn a_circle_of_described_groups_stays_one() {
    for missing in [0, 3] {
        let report = without("t215_cross_group_deadlock", missing);
        let finding = &report.findings[0];
        assert_eq!(finding.kind, Kind::GroupDeadlock);
        // On gloo whoever is missing may be in any group.
        assert_eq!(finding.certainty, Certainty::Undecidable, "{}", report.to_text());
        assert!(!finding.message.contains("the same group"), "{}", finding.message);
        for rank in [1, 2] {
            assert!(
                finding.culprits.contains(&lockstep_core::rank::GlobalRank(rank)),
                "{}",
                report.to_text()
            );
        }
    }
}

/// Reading was stopped: the ranks whose dumps were left unread are not missing, and nothing is healthy or certain.
#[test]
fn of_a_part_of_a_recording_no_rank_is_missing_and_nothing_certain() {
    let unread = "Reading was stopped after 3 of 4 files.";
    let of_a_part = |case, rank| without(case, rank).of_a_part(unread.to_owned());
    let skipped = of_a_part("t215_skip_allreduce_diff_size", 3);
    assert_eq!(skipped.verdict, crate::Verdict::Findings, "{}", skipped.to_text());
    assert!(skipped.findings.iter().all(|it| it.certainty != Certainty::Certain));
    assert!(skipped.findings.iter().all(|it| it.kind != Kind::RankMissing));
    assert_eq!(skipped.notes[0], unread);
    let healthy = of_a_part("t215_healthy", 3);
    assert_eq!(healthy.verdict, crate::Verdict::Inconclusive, "{}", healthy.to_text());
    assert!(healthy.unseen.iter().any(|it| it == unread), "{}", healthy.to_text());
    let all = report(&files(&cases().join("t215_healthy"))).of_a_part(unread.to_owned());
    assert_eq!(all.verdict, crate::Verdict::Inconclusive, "{}", all.to_text());
}

/// Nothing in the dumps names the last rank of a job on gloo.
#[test]
fn a_rank_that_nothing_names_may_still_be_missing() {
    let report = without("t215_cross_group_deadlock", 3);
    let said = &report.findings[0].message;
    assert!(said.contains("more ranks than left a dump"), "{said}");
}

/// Rank 3 came out of the call that the others seem to miss rank 0 in: the job was running.
#[test]
fn a_rank_is_not_missing_in_a_call_that_others_came_out_of() {
    let report = without("t215_straggler_midstep", 0);
    assert_eq!(
        found(&report),
        [(Kind::Straggler, vec![3]), (Kind::RankMissing, vec![0])],
        "{}",
        report.to_text()
    );
    assert_eq!(report.findings[1].certainty, Certainty::Undecidable);
    assert!(!report.findings[0].message.contains("ranks 0-2 waited"), "{}", report.to_text());
}

/// A job that ended well, of which a dump is left out: that its partners' calls are in a group that most
/// ranks are not in is no fault of theirs.
#[test]
fn of_a_healthy_job_nobody_is_blamed_for_want_of_a_dump() {
    for missing in 0..4 {
        let report = without("t215_healthy", missing);
        let blamed = found(&report).into_iter().filter(|(kind, _)| *kind != Kind::RankMissing);
        assert_eq!(blamed.count(), 0, "without {missing}: {}", report.to_text());
    }
}

/// Rank 6 was killed; of the pairs of other groups each waits for one that waits for it. Without rank 7
/// nothing says that there were more than six ranks.
#[test]
fn of_pairs_nobody_is_blamed_for_certain_for_want_of_dumps() {
    for missing in [1, 3, 5, 7] {
        let report = without("../flight-recorder-faults/killed_before_group", missing);
        let certain = report.findings.iter().filter(|it| it.certainty == Certainty::Certain);
        assert_eq!(certain.count(), 0, "without {missing}: {}", report.to_text());
    }
}

/// Its sizes may differ from rank to rank, its type may not.
#[test]
fn all_to_all_of_another_type_is_told() {
    let call = pending("all_to_all", 64);
    let fake = Fake::new(4, std::slice::from_ref(&call)).rank(1, &[call.clone().dtype("Double")]);
    let files = fake.files();
    let report = report(&files);
    assert_eq!(found(&report), [(Kind::DtypeMismatch, vec![1])], "{}", report.to_text());
}

/// The recorded ranks' calls differ, which is reason enough for a hang: whoever left no dump is not the
/// likelier one.
#[test]
fn what_differs_is_a_reason_without_the_dump_that_is_missing() {
    let steps = |sizes: [u64; 3]| {
        let before = [100, 200, 300].map(|size| done("all_reduce", size).gloo());
        let now = sizes.map(|size| pending("all_reduce", size).gloo());
        [before, now].concat()
    };
    for missing in [0, 1, 3] {
        let fake = Fake::new(4, &steps([100, 200, 300])).rank(2, &steps([100, 300, 200]));
        let report = report(&fake.no_dump(missing).files());
        let lost = report.findings.iter().find(|it| it.kind == Kind::RankMissing).unwrap();
        assert_eq!(lost.certainty, Certainty::Undecidable, "{}", report.to_text());
        assert_ne!(report.findings[0].kind, Kind::RankMissing, "{}", report.to_text());
    }
}

/// Rank 3 is stuck before its third tp call, behind a call with rank 1, of which nothing was recorded: that
/// call may have failed, or rank 3 is stuck by itself, as rank 2 waits for it.
#[test]
fn who_is_missed_by_others_may_be_stuck_by_itself() {
    let call = |state: fn(&str, u64) -> super::fake::Said, group: usize| {
        state("all_reduce", 8 * group as u64).gloo().in_group(group)
    };
    let (tp, dp) = (|rank: usize| 1 + rank / 2, |rank: usize| 3 + rank % 2);
    let mut fake = Fake::new(4, &[])
        .group("mesh_tp", &[0, 1])
        .group("mesh_tp", &[2, 3])
        .group("mesh_dp", &[0, 2])
        .group("mesh_dp", &[1, 3]);
    for rank in [0, 1, 2, 3] {
        let mut said = Vec::new();
        for _ in 0..2 {
            said.extend([call(done, tp(rank)), call(done, dp(rank))]);
        }
        match rank {
            0 | 1 => said.extend([call(done, tp(rank)), call(pending, dp(rank))]),
            2 => said.push(call(pending, tp(rank))),
            _ => {}
        }
        fake = fake.rank(rank, &said);
    }
    let report = report(&fake.no_dump(1).files());
    let sure = report.findings.iter().filter(|it| it.certainty != Certainty::Undecidable);
    let wrong = sure.filter(|it| it.culprits.iter().any(|rank| rank.0 != 3));
    assert_eq!(wrong.count(), 0, "{}", report.to_text());
    let text = report.to_text().split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("rank 3 is stuck behind it"), "{text}");
    // Both sides are named, and neither for sure.
    assert_eq!(found(&report)[0], (Kind::RankMissing, vec![1, 3]), "{text}");
}

/// Rank 1 made a call of its other group at a line at which nobody else does: those who never met it are told
/// behind that, whoever of them left no dump.
#[test]
fn who_called_the_wrong_group_is_named_without_a_partners_dump() {
    for missing in [0, 2, 3] {
        let report = without(&format!("{GAPS}/wrong_group_same"), missing);
        let truth = [(Kind::OpExtra, vec![1]), (Kind::RankMissing, vec![missing])];
        assert_eq!(found(&report), truth, "{}", report.to_text());
        assert_eq!(report.findings[0].certainty, Certainty::Likely, "{}", report.to_text());
        assert_eq!(report.findings[1].certainty, Certainty::Undecidable, "{}", report.to_text());
        let said = &report.findings[0].message;
        assert!(
            said.starts_with("Rank 1 called all_reduce #5 of tp (train.py:39) where"),
            "{said}"
        );
        assert!(!said.contains("crashed"), "{said}");
    }
}

/// Healthy jobs that were recorded while they ran: nobody is late as far as these show.
#[test]
fn of_a_running_job_nobody_is_blamed() {
    for case in ["running_first_call", "running_grid"] {
        for missing in 0..=4 {
            let report = without(&format!("{GAPS}/{case}"), missing);
            let sure = report.findings.iter().filter(|it| it.certainty != Certainty::Undecidable);
            assert_eq!(sure.count(), 0, "{case} without {missing}: {}", report.to_text());
        }
    }
}
