//! How many calls a rank made before the one in which it waits, where a recorder's ring has dropped
//! most of them: it numbers them all. Ranks that are in groups of the same kinds come to one call with
//! one number, unless one of them left a call out, or made one on top.

use super::graph::Sink;
use super::in_step::Known;
use super::index::{Job, Made};
use super::words;
use crate::group::GroupId;
use crate::rank::GlobalRank;

/// A rank that came to a call with another number than its peers.
#[derive(Clone, Debug)]
pub(super) struct Miscounted {
    pub(super) rank: GlobalRank,
    /// True if it made fewer calls than they.
    pub(super) fewer: bool,
    /// What is told of it.
    pub(super) said: String,
}

/// The one rank of a circle that came to its last call with another number than all of its peers, of
/// which there are several, if all others of the circle came to theirs with the same.
pub(super) fn odd_one(job: &Job<'_>, circle: &Sink) -> Option<Miscounted> {
    /// Circles of more ranks are told otherwise.
    const RANKS: usize = 16;
    /// So many peers say it.
    const PEERS: usize = 2;
    if !job.log.recorded || job.log.plan.is_some() || circle.ranks.len() > RANKS {
        return None;
    }
    let mut odd = None;
    for rank in &circle.ranks {
        let known = Known::of(job, *rank);
        let last = Made { rank: *rank, record: *known.calls.last()? };
        let own = last.record.record_id?;
        let mut peers = peers(job, &known, last);
        // The others of the circle are in question themselves.
        peers.retain(|(peer, _)| !circle.ranks.contains(peer));
        let usual = peers.first()?.1;
        if peers.len() < PEERS || peers.iter().any(|(_, id)| *id != usual) {
            return None;
        }
        if own != usual && odd.replace((last, own, usual, peers)).is_some() {
            return None;
        }
    }
    let (last, own, usual, peers) = odd?;
    let others: Vec<GlobalRank> = peers.into_iter().map(|(rank, _)| rank).collect();
    let (calls, more) = (own.abs_diff(usual), if own < usual { "fewer" } else { "more" });
    let said = format!(
        "Rank {} came to {} with {} {more} than {} came to theirs.",
        last.rank,
        words::call(job.log, last),
        words::count(usize::try_from(calls).unwrap_or(usize::MAX), "call"),
        words::ranks(&others),
    );
    Some(Miscounted { rank: last.rank, fewer: own < usual, said })
}

/// The ranks in groups of the same kinds that made the same call, and the numbers that their recorders
/// gave it.
fn peers(job: &Job<'_>, known: &Known<'_>, last: Made<'_>) -> Vec<(GlobalRank, u64)> {
    let (group, seq) = (last.record.call.group, last.record.seq);
    let groups = (0..).map(GroupId).take(job.log.groups.len());
    let rows = groups.filter(|other| job.roles().same(*other, group)).filter_map(|other| {
        let rows = job.rows_of(other);
        rows.iter().find(|row| Some(row.seq) == seq)
    });
    let made = rows
        .flat_map(|row| &row.made)
        .filter(|made| made.rank != last.rank && Known::of(job, made.rank).roles == known.roles);
    let mut peers: Vec<(GlobalRank, u64)> =
        made.filter_map(|made| Some((made.rank, made.record.record_id?))).collect();
    peers.sort_unstable();
    peers
}
