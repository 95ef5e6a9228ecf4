//! The report of a replay, judged by what its job would have left instead of by all that the simulator knows.

use crate::recover::RecordedCalls;
use lockstep_core::trace::{CallLog, Outcome, Trace};
use lockstep_diagnosis::{Kind, Report, Verdict, diagnose, diagnose_trace};

/// The report of the recording that a replayed job would have left. `calls` are those of the recovered plan, `log` the
/// recording that it was recovered from, `replay` the plan's simulation or run.
///
/// A replay without a finding is judged by its trace, which knows the assumptions of its plan.
pub fn replayed_report(calls: &RecordedCalls, log: &CallLog, replay: &Trace) -> Report {
    let report = diagnose(&calls.recorded_again(log, replay));
    let completed = replay.end.as_ref().is_some_and(|end| end.outcome == Outcome::Completed);
    // A rank of which nothing was recorded did in the replay what was assumed of it.
    let only_missing = report.findings.iter().all(|finding| finding.kind == Kind::RankMissing);
    match report.verdict {
        Verdict::Findings if !(completed && only_missing) => report,
        _ => diagnose_trace(replay),
    }
}
