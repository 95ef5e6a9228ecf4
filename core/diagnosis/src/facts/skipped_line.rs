//! The call that a rank left out among calls that are all alike, by the lines that they come from.

use crate::facts::alternatives::Alternatives;
use crate::facts::deed::{Deed, Reason, sure};
use crate::facts::edit_distance::{Edit, Place, WINDOW, align};
use crate::model::index::{Job, Made};
use crate::words::lines_of_both;
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallRecord;
use lockstep_formats::frames::own_frames;

/// So many calls from different lines are looked at.
const PLACES: usize = 8;

/// The earlier call of the same size that a rank which never came to a call left out, by the lines
/// of its calls; the calls of `rank` fall short of those of `peer` by one at `seq`.
pub(crate) fn skipped_by_lines(
    job: &Job<'_>,
    group: GroupId,
    seq: u64,
    rank: GlobalRank,
    peer: GlobalRank,
) -> Reason {
    let Some((own, theirs)) = parted(job, group, seq, rank, peer) else { return Reason::Other };
    // Calls through one line of a helper are told apart by whence that was called.
    let skipped = |their: &CallRecord, count: usize, alternatives: Alternatives| {
        let instead = own.first().map(|own| Made { rank, record: own });
        let line = instead.and_then(|own| {
            let [_, line] = lines_of_both(job.log, own, Made { rank: peer, record: their });
            line
        });
        let deed = Deed::of(job, their, peer);
        let line = line.or(deed.line);
        Reason::Skipped(Deed { count, alternatives, line, ..deed })
    };
    for count in 1..=8usize {
        let (Some(their), Some(shifted)) = (theirs.first(), theirs.get(count..)) else { break };
        let matched = own.iter().zip(shifted).filter(|(a, b)| same_lines(a, b)).count();
        if matched == own.len() && matched > 0 {
            return skipped(their, count, sure(matched));
        }
    }
    if let Some(found) = align(&own, &theirs)
        && let Some(first) = found.edits.first()
        && let Edit::Skipped { count } = first.edit
        && let Some(their) = theirs.get(first.theirs)
    {
        let alternatives = if found.only { sure(found.matched) } else { Alternatives::LessLikely };
        return skipped(their, count, alternatives);
    }
    Reason::Other
}

/// True if two calls come from the same lines of the job: in a library, the rank whose data the others get
/// goes another way than they do.
fn same_lines(a: &CallRecord, b: &CallRecord) -> bool {
    let (a, b) = (&a.call.stack, &b.call.stack);
    let own = || own_frames(a).eq(own_frames(b)) && own_frames(a).next().is_some();
    a == b || own()
}

/// The calls of two ranks in a group since they first made one from different lines, before `seq`;
/// `None` if they never did. Not from where calls that go on alike behind show that only the line differs, as
/// that of the rank does which has what the others are sent.
pub(crate) fn parted<'a>(
    job: &Job<'a>,
    group: GroupId,
    seq: u64,
    rank: GlobalRank,
    peer: GlobalRank,
) -> Option<(Vec<&'a CallRecord>, Vec<&'a CallRecord>)> {
    let rows = job.rows_of(group);
    let to = rows.partition_point(|row| row.seq < seq);
    let rows = rows.get(to.saturating_sub(WINDOW)..to)?;
    let both = rows.iter().filter_map(|row| Some((row.of(rank)?.record, row.of(peer)?.record)));
    let parted = both.filter(|(own, their)| {
        !own.call.stack.is_empty() && !their.call.stack.is_empty() && !same_lines(own, their)
    });
    let calls =
        |of, since| -> Vec<&CallRecord> { job.calls_from(group, of, since).take(WINDOW).collect() };
    parted.take(PLACES).find_map(|(first, _)| {
        let (own, theirs) = (calls(rank, first.seq?), calls(peer, first.seq?));
        let begins =
            |edits: &[Place]| edits.first().is_some_and(|it| (it.own, it.theirs) == (0, 0));
        let here = align(&own, &theirs).is_none_or(|found| begins(&found.edits));
        here.then_some((own, theirs))
    })
}
