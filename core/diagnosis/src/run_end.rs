//! The last resort: a run that did not complete has a finding, also where its calls show nothing.

use crate::kinds::Kind;
use crate::report::{Certainty, Evidence, Finding, Report};
use crate::words::ranks;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, Outcome, RankState};

/// So many places are told in which ranks stood.
const MOST_PLACES: usize = 6;

/// Says of a run that failed, or timed out for no reason that its calls show, that it did and
/// where its ranks stood.
pub(crate) fn tell(report: &mut Report, log: &CallLog) {
    let message = match &log.outcome {
        Outcome::Failed { why } => format!("The run was ended before its ranks were done: {why}."),
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
    let fix =
        "Look where each rank stood: one that was at work needed more time, one in a call waited.";
    push(report, log, Certainty::Certain, message, fix);
}

/// Says of a run whose trace has no end that it was broken off, and where its ranks stood. Each rank's part
/// breaks off at a moment of its own: who had not come to a call by then may be in it.
pub(crate) fn broken_off(report: &mut Report, log: &CallLog) {
    report.findings.retain(|finding| {
        let of_absence = matches!(
            finding.kind,
            Kind::RankNeverJoined
                | Kind::CallNeverCompleted
                | Kind::RankMissing
                | Kind::OpSkipped
                | Kind::OpExtra
                | Kind::LoopShorter
        );
        !of_absence || finding.certainty != Certainty::Undecidable
    });
    let stood = stood(log).map(|stood| format!(" {stood}")).unwrap_or_default();
    let broken =
        "The trace has no end: what ran it was killed, or was still running when it was copied.";
    if !report.findings.is_empty() {
        report.notes.push(format!("{broken}{stood}"));
        return;
    }
    let message = format!("{broken} As far as it goes, nothing is wrong in it.{stood}");
    let fix = "Look how the process ended that ran it (lockstep run, or rank 0's lockstep rank): its exit \
               code, the kernel's log (dmesg) if memory ran out.";
    push(report, log, Certainty::Undecidable, message, fix);
}

/// `At the last that is seen of them, ranks 0-2 stood in all_reduce (train.py:8), rank 3 in forward.`
pub(crate) fn stood(log: &CallLog) -> Option<String> {
    let mut places: Vec<(String, Vec<GlobalRank>)> = Vec::new();
    for (rank, own) in log.logs() {
        let place = match &own.state {
            RankState::AtOp(at) => match &at.line {
                Some(line) => format!("in {} ({line})", at.name),
                None => format!("in {}", at.name),
            },
            RankState::Finished => "at the end".to_owned(),
            RankState::Died { .. } | RankState::Unknown => continue,
        };
        match places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, ranks)) => ranks.push(rank),
            None => places.push((place, vec![rank])),
        }
    }
    let mut told = places.iter().take(MOST_PLACES).map(|(place, who)| (ranks(who), place));
    let (who, place) = told.next()?;
    let others = told.map(|(who, place)| format!(", {who} {place}")).collect::<String>();
    let more = match places.len().saturating_sub(MOST_PLACES) {
        0 => String::new(),
        more => format!(", and others in {more} more places"),
    };
    Some(format!("At the last that is seen of them, {who} stood {place}{others}{more}."))
}

fn push(report: &mut Report, log: &CallLog, certainty: Certainty, message: String, fix: &str) {
    let evidence = log.logs().filter_map(|(rank, own)| {
        let RankState::AtOp(at) = &own.state else { return None };
        let note = format!("stood in {}", at.name);
        Some(Evidence { rank, entry: None, frame: at.line.clone(), place: None, note })
    });
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
        ladder: None,
        repair: None,
    });
}

#[cfg(test)]
mod tests {
    use super::super::{diagnose_trace, diagnose_whole_trace};
    use super::*;
    use lockstep_core::group::BackendName;
    use lockstep_core::plan::PlanBuilder;
    use lockstep_core::trace::{Origin, Trace, TraceEnd, TraceHeader};

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
                plan: Some(plan.clone().into()),
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
