//! The last resort: a run that did not complete has a finding, also where its calls show nothing.

use super::report::{Certainty, Evidence, Finding, Kind, Report, Verdict};
use crate::trace::{CallLog, Outcome, RankState};

/// Says of a run that failed, or timed out for no reason that its calls show, that it did and
/// where its ranks stood.
pub(super) fn tell(report: &mut Report, log: &CallLog) {
    let message = match &log.outcome {
        Outcome::Failed { why } => format!("The run was ended from outside its ranks: {why}."),
        Outcome::TimedOut if report.findings.is_empty() => {
            "A call did not complete in time, and nothing in the calls of its group says why: its \
             ranks were slow, or one was held from outside."
                .to_owned()
        }
        Outcome::RankDied { rank, how } if report.findings.is_empty() => {
            format!("Rank {rank} ended before its program did: {how}.")
        }
        _ => return,
    };
    let evidence = log.logs().filter_map(|(rank, own)| {
        let RankState::AtOp { name, line, .. } = &own.state else { return None };
        let note = format!("stood in {name}");
        Some(Evidence { rank, entry: None, frame: line.clone(), note })
    });
    report.verdict = Verdict::Findings;
    report.findings.push(Finding {
        kind: Kind::RunFailed,
        culprits: Vec::new(),
        victims: Vec::new(),
        group: None,
        seq: None,
        op: None,
        certainty: Certainty::Certain,
        message,
        fix: "Look where each rank stood, and give the run more time if it was at work.".to_owned(),
        // A large job is told by its first ranks.
        evidence: evidence.take(16).collect(),
    });
}

#[cfg(test)]
mod tests {
    use super::super::diagnose_trace;
    use super::*;
    use crate::group::BackendName;
    use crate::plan::PlanBuilder;
    use crate::trace::{Origin, Trace, TraceEnd, TraceHeader};

    #[test]
    fn only_runs_that_did_not_complete_have_one() {
        let plan = PlanBuilder::new("p", 2, BackendName::Host)
            .unwrap()
            .every_rank(|_, program| {
                program.compute("forward", 1);
            })
            .unwrap();
        let kinds = |outcome| {
            let trace = Trace {
                header: TraceHeader {
                    origin: Origin::Run { backend: "host".into(), device: "a test".into() },
                    world_size: 2,
                    groups: plan.groups.clone(),
                    plan: Some(plan.clone()),
                    epoch_ns: 1,
                },
                events: Vec::new(),
                end: Some(TraceEnd { time_ps: 1, outcome }),
            };
            diagnose_trace(&trace).findings.iter().map(|f| f.kind).collect::<Vec<_>>()
        };
        assert_eq!(kinds(Outcome::Completed), []);
        assert_eq!(kinds(Outcome::Cancelled), []);
        assert_eq!(kinds(Outcome::TimedOut), [Kind::RunFailed]);
        assert_eq!(kinds(Outcome::Failed { why: "limit".into() }), [Kind::RunFailed]);
    }
}
