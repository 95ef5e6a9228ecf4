//! A report whose repairs were tried: what completes speaks for a finding, what does not against it.

use crate::proof::{Repair, Stopped, Unrepaired, prove};
use crate::recover::{RecordingEnd, Recovered, recover};
use crate::repair::{RepairError, can_be_repaired, changed_and_simulated};
use lockstep_core::trace::CallLog;
use lockstep_core::watch::Watch;
use lockstep_diagnosis::{Certainty, Finding, Report};

/// So many calls a recording may have for its repairs to be tried beside its diagnosis, in about a second.
pub const MOST_CALLS: usize = 100_000;

/// So many of the first findings are tried.
const TRIED: usize = 4;

/// The report of a recording with the repairs of its first findings, simulated.
///
/// A finding whose repair does not complete is no longer certain, if its replay ends in the same finding without
/// the repair. Of findings that are equally certain, one whose repair completes stands first. The report of a
/// recording of more than [`MOST_CALLS`] calls only gets a note. If the watch ends the trials,
/// no repair is told, and a note says so.
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
        first.filter(|(_, finding)| can_be_repaired(finding.kind)).map(|(at, _)| at).collect();
    let (mut tried, mut stopped) = (Vec::<(usize, Repair)>::new(), false);
    for at in first {
        match changed_and_simulated(&recovered, &report, at, watch) {
            Ok(repair) => tried.push((at, repair)),
            Err(RepairError::Stopped { .. }) => {
                stopped = true;
                break;
            }
            Err(_) => {}
        }
    }
    let unrepaired = match stopped || tried.is_empty() {
        true => None,
        false => match Unrepaired::of(&recovered, log, watch) {
            Ok(unrepaired) => Some(unrepaired),
            Err(Stopped) => {
                stopped = true;
                None
            }
        },
    };
    // Each is held against the replay without it: of none that was not simulated is anything said.
    if let Some(unrepaired) = unrepaired {
        for (at, mut repair) in tried {
            let Some(finding) = report.findings.get_mut(at) else { continue };
            prove(&mut repair, &recovered, (finding, &unrepaired));
            let is_same = unrepaired.ends_in(finding);
            attach(finding, repair, is_same);
        }
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
fn attach(finding: &mut Finding, mut repair: Repair, is_same: bool) {
    if !repair.completes && is_same && finding.certainty == Certainty::Certain {
        finding.certainty = Certainty::Likely;
        repair.tried.why.push_str(" So the finding is likely, and not certain.");
    }
    finding.repair = Some(repair.tried);
}

/// The plan of a recording whose first findings are of calls; `None` of a large one.
fn recoverable(report: &Report, log: &CallLog) -> Result<Option<Recovered>, ()> {
    let first = report.findings.iter().take(TRIED);
    if !first.into_iter().any(|finding| can_be_repaired(finding.kind)) {
        return Err(());
    }
    let calls: usize = log.logs().map(|(_, own)| own.calls.len()).sum();
    if calls > MOST_CALLS {
        return Ok(None);
    }
    recover("replay", log, RecordingEnd::of(report)).map(Some).map_err(|_| ())
}

/// Moves a finding whose repair completes in front of those that are as certain.
fn first_what_completes(findings: &mut [Finding]) {
    let Some(certainty) = findings.first().map(|first| first.certainty) else { return };
    let completes = |finding: &Finding| {
        finding.certainty == certainty
            // A job always completes without the ranks that stop it: that says nothing for the finding.
            && finding
                .repair
                .as_ref()
                .is_some_and(|repair| repair.verified && repair.change.given_up.is_empty())
    };
    if let Some(at) = findings.iter().position(completes)
        && let Some(front) = findings.get_mut(..=at)
    {
        front.rotate_right(1);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use lockstep_core::group::BackendName;
    use lockstep_core::plan::{PlanBuilder, Program};
    use lockstep_diagnosis::{Change, Kind, TriedRepair};

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
            let tried = TriedRepair { change: Change::default(), verified, why };
            let plan = PlanBuilder::new("job", 1, BackendName::Host);
            let plan = plan.unwrap().with_programs(|_| Program::default()).unwrap();
            attach(&mut finding, Repair { tried, plan, completes: verified }, is_same);
            assert_eq!(finding.certainty, wanted, "verified {verified}, the same {is_same}");
            assert_eq!(finding.repair.map(|repair| repair.verified), Some(verified));
        }
    }
}
