//! Statements of a log as evidence of a claim.

use super::no_call;
use crate::report::Evidence;
use lockstep_formats::job_log::{Said, Statement};

/// A statement of a log as evidence, with its line in the log.
pub(crate) fn log_evidence(it: &Statement) -> Evidence {
    Evidence {
        frame: match &it.said {
            Said::Raised { frame, .. } | Said::GaveUp { frame, .. } => frame.clone(),
            _ => None,
        },
        place: Some(it.place.clone()),
        ..no_call(it.rank, deed(&it.said))
    }
}

/// A statement about a rank as a phrase of evidence: `timed out in ALLREDUCE #6`.
pub(crate) fn deed(said: &Said) -> String {
    let deed = match said {
        Said::TimedOut { op, seq, .. } => return format!("timed out in {op} #{seq}"),
        Said::Runs { op, seq, .. } => return format!("was in {op} #{seq}"),
        Said::NotJoined { op, seq: Some(seq), .. } => return format!("did not join {op} #{seq}"),
        Said::NotJoined { op, .. } => return format!("did not join {op}"),
        Said::Differs { op, seq, .. } => {
            return format!("called {op} #{seq} otherwise than the others");
        }
        Said::Launched { op, count, .. } => {
            return format!("had launched {count} {op} operations");
        }
        Said::GaveUp { call: Some(call), .. } => return format!("gave up in {call}"),
        Said::GaveUp { .. } => "gave up on a call",
        Said::Raised { .. } => "raised an exception",
        Said::Unused { .. } => "has parameters without a gradient",
        Said::Parameters { .. } => "tells its number of parameters",
        Said::Shape { .. } => "has a parameter of another shape",
        Said::Exhausted => "ran out of inputs",
        Said::MissedBarrier => "did not come to the barrier",
        Said::Stood { .. } => "told how far it had come",
        Said::Signalled => "was told of a timeout",
        Said::Lagging { .. } => "was behind the others",
        Said::StuckWatchdog { .. } => "had a watchdog thread that stood still",
        Said::MismatchedInNccl => "made another collective",
        Said::RunsElsewhere => "was in another call",
        Said::Store { .. } => "could not use the store",
        Said::Exited { .. } => "was the first process to end",
        Said::Terminated => "was ended by torchrun",
        Said::Killed { .. } => "was ended by a signal",
        Said::NetworkFailed { .. } => "reports a failed transfer",
    };
    deed.to_owned()
}
