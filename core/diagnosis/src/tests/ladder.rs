//! The calls side by side: what is shown is where ranks part, whatever else they did.

use super::simulated::report_of;
use crate::report::{Finding, Ladder, LadderStep};
use lockstep_core::rank::GlobalRank;

/// The ladder as text, a rung a line: `*` where sides differ, `-` for a call that was left out, `.` for one
/// that was not reached.
fn drawn(finding: &Finding) -> Vec<String> {
    let ladder = finding.ladder.as_ref().expect("a ladder");
    let rungs = ladder.rungs.iter().map(|rung| {
        assert_eq!(rung.steps.len(), ladder.sides.len());
        let steps = rung.steps.iter().map(|step| match step {
            LadderStep::Called(call) => {
                let line = call.line.as_deref().unwrap_or_default();
                format!("{} {line}{}", call.op, if call.waits { " waits" } else { "" })
            }
            LadderStep::LeftOut => "-".to_owned(),
            LadderStep::NotReached => ".".to_owned(),
        });
        let steps = steps.collect::<Vec<_>>().join(" | ");
        if rung.differs { format!("* {steps}") } else { steps }
    });
    rungs.collect()
}

fn sides(ladder: &Ladder) -> Vec<(Vec<u32>, bool)> {
    let side = |side: &crate::report::LadderSide| {
        (side.ranks.iter().map(|rank: &GlobalRank| rank.0).collect(), side.culprits)
    };
    ladder.sides.iter().map(side).collect()
}

#[test]
fn what_was_expected_stands_beside_what_happened() {
    let report = report_of(
        "    t = torch.ones(4)
    for step in range(20):
        dist.all_reduce(t)
        if not (rank == 2 and step == 17):
            dist.broadcast(t, src=0)
        dist.all_gather_into_tensor(torch.zeros(16), t)",
    );
    let finding = &report.findings[0];
    let ladder = finding.ladder.as_ref().unwrap();
    assert_eq!(sides(ladder), [(vec![0, 1, 3], false), (vec![2], true)]);
    // Three calls a step: what came before is counted, not shown.
    assert_eq!((ladder.before, ladder.rungs.len(), ladder.after), (17 * 3 + 1 - 3, 4, 0));
    assert_eq!(drawn(finding)[2], "all_reduce train.py:6 | all_reduce train.py:6");
    assert_eq!(drawn(finding)[3], "* broadcast train.py:8 waits | all_gather train.py:9 waits");
}

#[test]
fn a_call_of_one_rank_alone_stands_beside_nothing() {
    let report = report_of(
        "    t = torch.ones(4)
    dist.all_reduce(t)
    if rank == 1:
        dist.broadcast(t, src=1)
    dist.all_reduce(t)",
    );
    let finding = &report.findings[0];
    assert_eq!(sides(finding.ladder.as_ref().unwrap()), [(vec![0, 2, 3], false), (vec![1], true)]);
    let drawn = drawn(finding);
    assert!(
        drawn.iter().any(|rung| rung.starts_with("* - | broadcast")
            || rung.starts_with("* all_reduce train.py:8 waits | broadcast train.py:7 waits")),
        "{drawn:#?}"
    );
}

#[test]
fn two_lines_of_one_call_agree() {
    let report = report_of(
        "    t = torch.ones(4)
    if rank == 0:
        dist.broadcast(t, src=0)
    else:
        dist.broadcast(t, src=0)
    if rank != 3:
        dist.all_reduce(t)",
    );
    let drawn = drawn(&report.findings[0]);
    assert!(drawn[0].starts_with("broadcast train.py:6 | broadcast train.py:8"), "{drawn:#?}");
    assert!(drawn[1].starts_with('*'), "{drawn:#?}");
}

/// Of every recorded case: sides have no rank in common, culprits stand apart from others, and the ladder shows
/// where its sides differ.
#[test]
fn ladders_of_real_jobs_show_a_disagreement() {
    let mut ladders = 0;
    for (case, _) in super::TRUTHS {
        let report = super::report(&super::files(&super::cases().join(case)));
        for finding in &report.findings {
            let Some(ladder) = &finding.ladder else { continue };
            ladders += 1;
            let mut seen = std::collections::BTreeSet::new();
            for side in &ladder.sides {
                assert!(side.ranks.iter().all(|rank| seen.insert(*rank)), "{case:?}: {ladder:#?}");
                let blamed = side.ranks.iter().all(|rank| finding.culprits.contains(rank));
                assert_eq!(blamed, side.culprits, "{case:?}: {ladder:#?}");
            }
            assert!(ladder.sides.len() > 1, "{case:?}");
            assert!(ladder.rungs.iter().any(|rung| rung.differs), "{case:?}: {ladder:#?}");
            assert!(ladder.rungs.iter().all(|rung| rung.steps.len() == ladder.sides.len()));
        }
    }
    assert!(ladders > 7, "{ladders}");
}

#[test]
fn the_report_to_send() {
    let case = super::cases().join("t215_skip_allreduce_diff_size");
    insta::assert_snapshot!(super::report(&super::files(&case)).to_markdown());
}
