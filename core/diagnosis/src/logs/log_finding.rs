//! A finding made of what ranks say in a log.

use crate::claim::{Claim, no_call};
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::report::Evidence;
use lockstep_core::rank::GlobalRank;
use lockstep_formats::job_log::{Said, Statement};
use std::collections::BTreeSet;

pub(crate) fn finding(
    kind: Kind,
    about: &[&Statement],
    message: String,
    fix: &str,
) -> Option<Claim> {
    let culprits: BTreeSet<GlobalRank> = about.iter().map(|it| it.rank).collect();
    (!culprits.is_empty()).then(|| Claim {
        kind,
        culprits: culprits.into_iter().collect(),
        also_victims: Vec::new(),
        group: None,
        seq: None,
        op: None,
        alternatives: Alternatives::None,
        message: message.into(),
        fix: fix.to_owned(),
        evidence: about
            .iter()
            .take(16)
            .map(|it| Evidence {
                frame: match &it.said {
                    Said::Raised { frame, .. } | Said::GaveUp { frame, .. } => frame.clone(),
                    _ => None,
                },
                place: Some(it.place.clone()),
                ..no_call(it.rank, deed(&it.said))
            })
            .collect(),
    })
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
