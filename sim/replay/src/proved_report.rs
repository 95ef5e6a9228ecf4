//! A report whose repairs were tried: what completes speaks for a finding, what does not against it.

use crate::recover::{RecordingEnd, Recovered, recover};
use crate::repair::repair;
use crate::replayed_report::replayed_report;
use lockstep_core::trace::CallLog;
use lockstep_diagnosis::{Certainty, Finding, Report};
use lockstep_sim::{SimConfig, simulate};

/// So many calls a recording may have for its repairs to be tried beside its diagnosis, in about a second.
pub const MOST_CALLS: usize = 100_000;

/// So many of the first findings are tried.
const TRIED: usize = 4;

/// The report of a recording with the repairs of its first findings, simulated.
///
/// A finding whose repair does not complete is no longer certain, if its replay ends in the same finding without
/// the repair. Of findings that are equally certain, one whose repair completes stands first. The report of a
/// recording of more than [`MOST_CALLS`] calls only gets a note.
pub fn with_tried_repairs(mut report: Report, log: &CallLog) -> Report {
    let Ok(recovered) = recoverable(&report, log) else { return report };
    let Some(recovered) = recovered else {
        report.notes.push(
            "The repair was not tried in the simulator, since the recording is large: lockstep repair tries it."
                .to_owned(),
        );
        return report;
    };
    let count = report.findings.len().min(TRIED);
    let tried: Vec<_> = (0..count).map(|at| repair(&recovered, &report, at).ok()).collect();
    let mut replayed = None;
    for (at, tried) in tried.into_iter().enumerate() {
        let Some((mut tried, finding)) = tried.map(|it| it.tried).zip(report.findings.get_mut(at))
        else {
            continue;
        };
        let again = replayed.get_or_insert_with(|| replayed_finding(&recovered, log));
        let is_same = again.as_ref().is_some_and(|again| is_of(again, finding));
        if !tried.verified && is_same && finding.certainty == Certainty::Certain {
            finding.certainty = Certainty::Likely;
            tried.why.push_str(" So the finding is likely, and not certain.");
        }
        finding.repair = Some(tried);
    }
    first_what_completes(&mut report.findings);
    report
}

/// The plan of a recording whose first findings are of calls; `None` of a large one.
fn recoverable(report: &Report, log: &CallLog) -> Result<Option<Recovered>, ()> {
    let first = report.findings.iter().take(TRIED);
    if !first.into_iter().any(|finding| crate::repair::is_tried(finding.kind)) {
        return Err(());
    }
    let calls: usize = log.logs().map(|(_, own)| own.calls.len()).sum();
    if calls > MOST_CALLS {
        return Ok(None);
    }
    recover("replay", log, RecordingEnd::of(report)).map(Some).map_err(|_| ())
}

/// The finding that the job ends in when it is replayed as it was recorded.
fn replayed_finding(recovered: &Recovered, log: &CallLog) -> Option<Finding> {
    let config = SimConfig { record_messages: false, ..SimConfig::default() };
    let trace = simulate(&recovered.plan, &config).ok()?;
    replayed_report(&recovered.calls, log, &trace).findings.into_iter().next()
}

fn is_of(one: &Finding, other: &Finding) -> bool {
    (one.kind, &one.culprits) == (other.kind, &other.culprits)
}

/// Moves a finding whose repair completes in front of those that are as certain.
fn first_what_completes(findings: &mut [Finding]) {
    let Some(certainty) = findings.first().map(|first| first.certainty) else { return };
    let completes = |finding: &Finding| {
        finding.certainty == certainty
            && finding.repair.as_ref().is_some_and(|repair| repair.verified)
    };
    if let Some(at) = findings.iter().position(completes)
        && let Some(front) = findings.get_mut(..=at)
    {
        front.rotate_right(1);
    }
}
