//! The facts of a job before any rule looks at it: its calls in rows, its unanswered messages, and who
//! waits for whom.

pub(crate) mod alternatives;
pub(crate) mod arrival;
pub(crate) mod broken_habit;
pub(crate) mod call_counts;
pub(crate) mod call_sites;
pub(crate) mod ddp_pass;
pub(crate) mod deed;
pub(crate) mod edit_distance;
pub(crate) mod gave_up;
pub(crate) mod history;
pub(crate) mod loops;
pub(crate) mod other_readings;
pub(crate) mod other_sources;
pub(crate) mod pauses;
pub(crate) mod plan_diff;
pub(crate) mod plan_votes;
pub(crate) mod program_order;
pub(crate) mod reason;
pub(crate) mod reordering;
pub(crate) mod row_mismatch;
pub(crate) mod skipped_line;
pub(crate) mod stacks;
pub(crate) mod tally;

use crate::facts::other_sources::OtherSources;
use crate::model::graph::Graph;
use crate::model::index::{Job, Made, Row};
use crate::model::messages::PendingP2p;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::RankLog;

/// Everything that rules read.
pub(crate) struct Facts<'a, 'j> {
    pub(crate) job: &'j Job<'a>,
    pub(crate) p2p: &'j [PendingP2p<'a>],
    pub(crate) graph: &'j Graph,
    pub(crate) other_sources: &'j OtherSources<'a>,
}

/// Open rows that lack a rank, and who waits in them.
pub(crate) fn rows_without<'s, 'a>(
    facts: &'s Facts<'a, '_>,
    rank: GlobalRank,
) -> impl Iterator<Item = (&'s Row<'a>, usize)> {
    facts.job.open_rows().filter(move |(_, row)| row.lacks(rank)).map(|(at, row)| (row, at))
}

/// True if a call of the rank is pending that others saw complete.
pub(crate) fn device_stall(facts: &Facts<'_, '_>, rank: GlobalRank) -> bool {
    let stalled = |row: &Row<'_>| {
        row.of(rank).is_some_and(|own| own.pending()) && row.made.iter().any(|made| !made.pending())
    };
    let is_behind = |row: &Row<'_>| {
        // Recordings of active calls only: the others have dropped what they completed, unless their
        // recorders count it as not ended.
        let ended = |own: &RankLog| {
            own.recording.unended.get(&row.group).is_none_or(|ended| *ended >= row.seq)
        };
        let members = facts.job.group(row.group).map(|group| group.ranks()).unwrap_or_default();
        let mut others = members.iter().filter(|other| **other != rank);
        row.of(rank).is_some_and(|own| own.pending())
            && row.made.len() == 1
            && row.absent.is_empty()
            && others.all(|other| facts.job.rank(*other).is_none_or(ended))
    };
    facts.job.open_rows().any(|(_, row)| stalled(row) || is_behind(row))
}

/// True if nothing of the rank is pending, as far as is known.
pub(crate) fn idle(facts: &Facts<'_, '_>, rank: GlobalRank) -> bool {
    let calls = facts.job.rank(rank).map(|log| log.calls.as_slice()).unwrap_or_default();
    let unended = facts.job.rank(rank).is_some_and(|own| !own.recording.unended.is_empty());
    !unended && !calls.iter().any(|record| Made { rank, record }.pending())
}

/// The rows in which a rank waits that have everybody's call, and complete nowhere.
pub(crate) fn full_rows<'s, 'a>(
    facts: &'s Facts<'a, '_>,
    rank: GlobalRank,
) -> impl Iterator<Item = (usize, &'s Row<'a>)> {
    facts.job.open_rows().filter(move |(_, row)| {
        let Some(own) = row.of(rank) else { return false };
        own.pending() && nobody_done(facts, row) && !held_up_before(facts, row)
    })
}

/// The row in which a rank waits that has everybody's call, and completes nowhere: whoever waits
/// for the rank waits for that. Not one that its process would go on behind, as another's did.
pub(crate) fn stuck_in(facts: &Facts<'_, '_>, rank: GlobalRank) -> Option<usize> {
    let went_on = |made: &Made<'_>| {
        let last = facts.job.rank(made.rank).and_then(|own| own.calls.last());
        made.rank != rank && last.is_some_and(|last| last.work > made.record.work)
    };
    let mut full = full_rows(facts, rank);
    full.find(|(_, row)| !row.made.iter().any(went_on)).map(|(at, _)| at)
}

/// True if every member made the call, and it completed on none. A member that went on saw it
/// complete, even if the recording has dropped it since.
pub(crate) fn nobody_done(facts: &Facts<'_, '_>, row: &Row<'_>) -> bool {
    let size = facts.job.group(row.group).map_or(0, |group| group.size() as usize);
    row.made.len() == size && row.made.iter().all(|made| made.pending())
}

/// True if a member of the row waits in an earlier call, for somebody who has not come or for the
/// other side of a send or receive: its turn has not come.
pub(crate) fn held_up_before(facts: &Facts<'_, '_>, row: &Row<'_>) -> bool {
    let unanswered = |made: &Made<'_>| {
        let first = facts.p2p.partition_point(|pending| pending.made.rank < made.rank);
        let own = facts.p2p.iter().skip(first).take_while(|pending| pending.made.rank == made.rank);
        let mut earlier = own.take_while(|pending| pending.made.record.work < made.record.work);
        earlier.any(|pending| pending.partner.is_none())
    };
    facts.job.held_up_before(row) || row.made.iter().any(unanswered)
}
