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
    let fix = "Look where each rank stood, and give the run more time if it was at work.";
    push(report, log, Certainty::Certain, message, fix);
}

/// Says of a run whose trace has no end that it was broken off, where nothing else is wrong in it.
pub(super) fn broken_off(report: &mut Report, log: &CallLog) {
    if !report.findings.is_empty() {
        return;
    }
    let message = "The trace has no end: what ran it was killed, or was still running when it was copied. As \
                   far as it goes, nothing is wrong in it.";
    let fix = "Look how the process ended that ran it (lockstep run, or rank 0's lockstep rank): its exit \
               code, the kernel's log (dmesg) if memory ran out.";
    push(report, log, Certainty::Undecidable, message.to_owned(), fix);
}

fn push(report: &mut Report, log: &CallLog, certainty: Certainty, message: String, fix: &str) {
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
        certainty,
        message,
        fix: fix.to_owned(),
        // A large job is told by its first ranks.
        evidence: evidence.take(16).collect(),
    });
}

#[cfg(test)]
mod tests {
    use super::super::{diagnose_trace, diagnose_whole_trace};
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
        let ended = |end: Option<Outcome>| Trace {
            header: TraceHeader {
                origin: Origin::Run { backend: "host".into(), device: "a test".into() },
                world_size: 2,
                groups: plan.groups.clone(),
                plan: Some(plan.clone()),
                epoch_ns: 1,
            },
            events: Vec::new(),
            end: end.map(|outcome| TraceEnd { time_ps: 1, outcome }),
        };
        let all = |report: Report| report.findings.iter().map(|f| f.kind).collect::<Vec<_>>();
        let kinds = |outcome| all(diagnose_trace(&ended(Some(outcome))));
        assert_eq!(kinds(Outcome::Completed), []);
        assert_eq!(kinds(Outcome::Cancelled), []);
        assert_eq!(kinds(Outcome::TimedOut), [Kind::RunFailed]);
        assert_eq!(kinds(Outcome::Failed { why: "limit".into() }), [Kind::RunFailed]);

        // One that goes on has no end either.
        assert_eq!(all(diagnose_trace(&ended(None))), []);
        let broken = diagnose_whole_trace(&ended(None));
        assert_eq!(broken.findings[0].certainty, Certainty::Undecidable);
        assert_eq!(all(broken), [Kind::RunFailed]);
        assert_eq!(all(diagnose_whole_trace(&ended(Some(Outcome::Completed)))), []);
    }
}
