//! A report whose repairs were tried: what completes speaks for a finding, what does not against it.

use crate::recover::{RecordingEnd, Recovered, recover};
use crate::repair::{Repair, RepairError, is_tried, repair_watched};
use crate::replayed_report::replayed_report;
use lockstep_core::trace::{CallLog, Outcome};
use lockstep_core::watch::Watch;
use lockstep_diagnosis::{Certainty, Finding, Report, TriedRepair};
use lockstep_sim::{SimConfig, simulate_calls};
use std::sync::Arc;

/// So many calls a recording may have for its repairs to be tried beside its diagnosis, in about a second.
pub const MOST_CALLS: usize = 100_000;

/// So many of the first findings are tried.
const TRIED: usize = 4;

/// The report of a recording with the repairs of its first findings, simulated.
///
/// A finding whose repair does not complete is no longer certain, if its replay ends in the same finding without
/// the repair. Of findings that are equally certain, one whose repair completes stands first. The report of a
/// recording of more than [`MOST_CALLS`] calls only gets a note. If the watch ends the trials,
/// those that have completed count, and a note says so.
pub fn with_tried_repairs(mut report: Report, log: &CallLog, watch: &mut dyn Watch) -> Report {
    let Ok(recovered) = recoverable(&report, log) else { return report };
    let Some(recovered) = recovered else {
        report.notes.push(
            "The repair was not tried in the simulator, since the recording is large: lockstep repair tries it."
                .to_owned(),
        );
        return report;
    };
    let first = report.findings.iter().take(TRIED).enumerate();
    let first: Vec<usize> =
        first.filter(|(_, finding)| is_tried(finding.kind)).map(|(at, _)| at).collect();
    let (mut tried, mut stopped) = (Vec::<(usize, Repair)>::new(), false);
    for at in first {
        match repair_watched(&recovered, &report, at, watch) {
            Ok(repair) => tried.push((at, repair)),
            Err(RepairError::Stopped { .. }) => {
                stopped = true;
                break;
            }
            Err(_) => {}
        }
    }
    let again = match stopped || tried.is_empty() {
        true => None,
        false => replayed_finding(&recovered, log, watch).unwrap_or_else(|Stopped| {
            stopped = true;
            None
        }),
    };
    for (at, Repair { tried, .. }) in tried {
        // What does not complete is compared with the replay, and that was not simulated.
        if stopped && !tried.verified {
            continue;
        }
        let Some(finding) = report.findings.get_mut(at) else { continue };
        let is_same = again.as_ref().is_some_and(|again| is_of(again, finding));
        attach(finding, tried, is_same);
    }
    if stopped {
        report.notes.push(
            "Not all repairs were tried in the simulator, since that was stopped: lockstep repair tries the first."
                .to_owned(),
        );
    }
    first_what_completes(&mut report.findings);
    report
}

/// Attaches a repair that was tried. One that does not complete takes the certainty of a finding that the
/// replay of the job ends in without it (`is_same`): the replay then shows the job as it was.
fn attach(finding: &mut Finding, mut tried: TriedRepair, is_same: bool) {
    if !tried.verified && is_same && finding.certainty == Certainty::Certain {
        finding.certainty = Certainty::Likely;
        tried.why.push_str(" So the finding is likely, and not certain.");
    }
    finding.repair = Some(tried);
}

/// The plan of a recording whose first findings are of calls; `None` of a large one.
fn recoverable(report: &Report, log: &CallLog) -> Result<Option<Recovered>, ()> {
    let first = report.findings.iter().take(TRIED);
    if !first.into_iter().any(|finding| is_tried(finding.kind)) {
        return Err(());
    }
    let calls: usize = log.logs().map(|(_, own)| own.calls.len()).sum();
    if calls > MOST_CALLS {
        return Ok(None);
    }
    recover("replay", log, RecordingEnd::of(report)).map(Some).map_err(|_| ())
}

/// Its watch ended the simulation.
struct Stopped;

/// The finding that the job ends in when it is replayed as it was recorded, if it can be.
fn replayed_finding(
    recovered: &Recovered,
    log: &CallLog,
    watch: &mut dyn Watch,
) -> Result<Option<Finding>, Stopped> {
    let plan = Arc::new(recovered.plan.clone());
    let simulated = SimConfig::default()
        .for_calls_of(&plan)
        .and_then(|config| simulate_calls(plan, &config, watch));
    let Ok(simulated) = simulated else { return Ok(None) };
    if simulated.calls.outcome == Outcome::Cancelled {
        return Err(Stopped);
    }
    let report = replayed_report(&recovered.calls, log.clone(), &simulated.calls);
    Ok(report.findings.into_iter().next())
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

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_diagnosis::{Change, Kind};

    #[test]
    fn only_a_repair_that_fails_on_the_same_finding_takes_its_certainty() {
        for (verified, is_same, wanted) in [
            (true, true, Certainty::Certain),
            (true, false, Certainty::Certain),
            (false, false, Certainty::Certain),
            (false, true, Certainty::Likely),
        ] {
            let mut finding = Finding {
                kind: Kind::OpSkipped,
                culprits: Vec::new(),
                victims: Vec::new(),
                group: None,
                seq: None,
                op: None,
                certainty: Certainty::Certain,
                message: String::new(),
                fix: String::new(),
                evidence: Vec::new(),
                ladder: None,
                repair: None,
            };
            let why = String::new();
            attach(&mut finding, TriedRepair { change: Change::default(), verified, why }, is_same);
            assert_eq!(finding.certainty, wanted, "verified {verified}, the same {is_same}");
            assert_eq!(finding.repair.map(|repair| repair.verified), Some(verified));
        }
    }
}
