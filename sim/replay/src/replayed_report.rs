//! The report of a replay, judged by what its job would have left instead of by all that the simulator knows, and held
//! against the diagnosis of the recording.

use crate::recover::RecordedCalls;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, Outcome};
use lockstep_diagnosis::{Certainty, Finding, Kind, Report, Verdict, diagnose};
use std::collections::BTreeSet;

/// The report of the recording that a replayed job would have left. `calls` are those of the recovered plan, `log` the
/// recording that it was recovered from, `replay` the calls of the plan's simulation or run.
///
/// A replay without a finding is judged by its own calls, which know the assumptions of its plan.
pub fn replayed_report(calls: &RecordedCalls, log: CallLog, replay: &CallLog) -> Report {
    let report = diagnose(&calls.recorded_again(log, replay));
    match report.verdict {
        Verdict::Findings => report,
        _ => diagnose(replay),
    }
}

/// The same, held against the diagnosis of the recording (`recorded`). A replay rests on assumptions, so it blames no
/// rank that the recording does not blame, and it is no evidence of health where the recording has a finding or gaps: the
/// report is inconclusive then, and says what the two end in, or what the recording leaves open.
pub fn report_beside_recording(
    recorded: &Report,
    calls: &RecordedCalls,
    log: CallLog,
    replay: &CallLog,
) -> Report {
    let report = replayed_report(calls, log, replay);
    // A rank that the recording is not missed for did in the replay what was assumed of it.
    let missing = |finding: &Finding| finding.kind == Kind::RankMissing;
    let only_missing = report.findings.iter().all(missing)
        && !recorded.findings.iter().any(missing)
        && replay.outcome == Outcome::Completed;
    let report = if only_missing { diagnose(replay) } else { report };
    beside(recorded, report)
}

/// True if two findings are of one kind and blame the same ranks.
pub(crate) fn is_same_finding(one: &Finding, other: &Finding) -> bool {
    (one.kind, &one.culprits) == (other.kind, &other.culprits)
}

/// The report of a replay without a finding, with the gaps that keep the recording from being healthy: that a plan of
/// the recorded calls completes is no evidence of what was not recorded.
fn with_gaps_of(recorded: &Report, mut report: Report) -> Report {
    let gaps = recorded.unseen.iter();
    report.unseen.extend(gaps.map(|gap| format!("The recording leaves this open: {gap}")));
    report.judged()
}

fn beside(recorded: &Report, mut report: Report) -> Report {
    let blamed: BTreeSet<GlobalRank> = recorded.culprits().into_iter().collect();
    let same =
        |finding: &Finding| recorded.findings.iter().any(|one| is_same_finding(one, finding));
    let is_backed = |finding: &Finding| {
        let blames_same = finding.culprits.iter().all(|rank| blamed.contains(rank));
        same(finding) || (blames_same && !finding.culprits.is_empty())
    };
    let (mut backed, foreign): (Vec<Finding>, Vec<Finding>) =
        report.findings.drain(..).partition(is_backed);
    // Stable: the findings that the recording has as well come first.
    backed.sort_by_key(|finding| !same(finding));
    for finding in backed.iter_mut().filter(|finding| !same(finding)) {
        finding.certainty = finding.certainty.max(Certainty::Likely);
    }
    report.findings = backed;
    let ended = match (report.findings.is_empty(), foreign.first()) {
        (_, None) => "completes".to_owned(),
        (_, Some(first)) => {
            format!("ends in another finding ({}: {})", first.kind.title(), first.message)
        }
    };
    match (recorded.findings.first(), report.findings.first()) {
        (None, None) if foreign.is_empty() => return with_gaps_of(recorded, report),
        (None, _) => report.unseen.push(format!(
            "The recording shows no fault, and its replay {ended}. The replay is not faithful: something that the \
             recording does not tell was assumed otherwise than it was. So it blames no rank."
        )),
        (Some(recorded), None) => report.unseen.push(format!(
            "The replay is not faithful: it {ended}. A recording does not tell all that a call depends on. Of the \
             recorded job, lockstep diagnose says: {}: {}",
            recorded.kind.title(),
            recorded.message
        )),
        (Some(recorded), Some(first)) if !is_same_finding(recorded, first) => {
            report.notes.push(format!(
                "The replay does not end as the recorded job did: a recording does not tell all that a call depends \
                 on. Of the job itself, lockstep diagnose says: {}: {}",
                recorded.kind.title(),
                recorded.message
            ));
        }
        _ => {}
    }
    if report.findings.is_empty() {
        report.verdict = Verdict::Inconclusive;
    } else {
        for finding in &foreign {
            report.notes.push(format!(
                "A finding of the replay that the recording does not back is left out: {}: {}",
                finding.kind.title(),
                finding.message
            ));
        }
    }
    report
}
