//! Ranks that stand by themselves: in a call that all others of its group have come out of, with nothing
//! before it that has not ended. What such a rank has called behind that waits for its turn, and for nobody.

use super::index::Job;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallState;
use lockstep_formats::flight_recorder::needs_all;
use std::collections::BTreeSet;

/// The ranks that do, of a job of which dumps are missing: of others the calls of all tell who waits for
/// whom.
pub(super) fn beside_missing(job: &Job<'_>) -> BTreeSet<GlobalRank> {
    if job.log.ranks.iter().all(Option::is_some) || !job.log.recorded {
        return BTreeSet::new();
    }
    job.log.logs().map(|(rank, _)| rank).filter(|rank| by_itself(job, *rank)).collect()
}

/// True if nothing before holds up its first call that has not ended, and all others of its group are
/// known to have come out of that one, which needs everybody: it is the rank itself that stands, not what
/// it called behind that. Who left no dump was in that call as well, or nobody had come out of it; only if
/// the rank has begun it, it may be in it with one that crashed there.
pub(super) fn by_itself(job: &Job<'_>, rank: GlobalRank) -> bool {
    let Some(own) = job.rank(rank).filter(|own| own.dropped_ended) else { return false };
    let mut waiting = own.calls.iter().filter(|record| record.state != CallState::Completed);
    let Some(first) = waiting.next().filter(|first| !first.call.p2p && needs_all(&first.call.op))
    else {
        return false;
    };
    let rows = job.rows_of(first.call.group);
    let row =
        first.seq.and_then(|seq| rows.get(rows.binary_search_by_key(&seq, |row| row.seq).ok()?));
    let (Some(row), Some(group)) = (row, job.group(first.call.group)) else { return false };
    let came_out = |other: &GlobalRank| match row.of(*other) {
        Some(made) => !made.pending(),
        // It has made the call, and all that its recorder dropped has ended.
        None => {
            job.has_made(row.group, *other, row.seq)
                && job.rank(*other).is_some_and(|own| own.dropped_ended)
        }
    };
    let others = group.ranks().iter().filter(|other| **other != rank);
    let (recorded, missing): (Vec<GlobalRank>, Vec<GlobalRank>) =
        others.copied().partition(|other| job.rank(*other).is_some());
    let begun = first.state == CallState::Started;
    !recorded.is_empty() && recorded.iter().all(came_out) && (missing.is_empty() || !begun)
}
