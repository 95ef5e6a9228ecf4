//! How sure a recording with gaps can be: one in which dumps are missing, or rings have dropped what
//! came first.

use super::causes::Cause;
use super::index::Job;
use super::report::{Certainty, Kind};
use crate::rank::GlobalRank;

/// Where no majority of a group's members is seen to go another way, either side may be the one that is
/// out of step: what the program's other ranks do tells which, and in a recording with gaps the ones that
/// would contradict may be those that are not seen. So nobody is blamed for certain. The same of sends
/// and receives, whose partners are found by counting.
pub(super) fn soften(job: &Job<'_>, causes: &mut [Cause]) {
    if !job.log.recorded || job.log.plan.is_some() || !has_gaps(job) {
        return;
    }
    for cause in causes {
        let undone = cause.group.and_then(|group| job.group(group)).is_some_and(|group| {
            let silent =
                |rank: &&GlobalRank| job.rank(**rank).is_none() && !cause.culprits.contains(rank);
            let against = cause.culprits.len() + group.ranks().iter().filter(silent).count();
            against * 2 >= group.ranks().len()
        });
        let of_order = matches!(
            cause.kind,
            Kind::RankNeverJoined
                | Kind::OpSkipped
                | Kind::OpExtra
                | Kind::OpsSwapped
                | Kind::LoopShorter
        );
        let p2p = matches!(cause.kind, Kind::P2pDeadlock | Kind::P2pMismatch)
            || cause.op.as_deref().is_some_and(|op| op.contains("send") || op.contains("recv"));
        if (of_order && undone) || p2p {
            cause.certainty = cause.certainty.max(Certainty::Likely);
        }
    }
}

/// True if a rank left no dump, or one that does not begin with its first call.
fn has_gaps(job: &Job<'_>) -> bool {
    job.log.ranks.iter().any(|log| {
        let first = log.as_ref().map(|log| log.calls.first().and_then(|call| call.record_id));
        first.is_none_or(|id| id.is_some_and(|id| id > 0))
    })
}
