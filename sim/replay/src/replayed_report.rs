//! The report of a replay, judged by what its job would have left instead of by all that the simulator knows.

use crate::recover::RecordedCalls;
use lockstep_core::trace::CallLog;
use lockstep_diagnosis::{Report, Verdict, diagnose};

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
