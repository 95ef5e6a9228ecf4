//! The number of calls that a rank made before the one in which it waits, where a recorder's ring
//! has dropped most of them: it numbers them all. Ranks that are in groups of the same kinds come
//! to one call with one number, unless one of them left a call out, or made one on top.

use crate::facts::program_order::{Known, kinds_of};
use crate::model::index::{Job, Made};
use crate::words;
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallRecord;

/// A rank that came to a call with another number than its peers.
#[derive(Clone, Debug)]
pub(crate) struct Miscounted<'a> {
    pub(crate) rank: GlobalRank,
    /// The call.
    pub(crate) last: Made<'a>,
    /// True if it made fewer calls than they.
    pub(crate) fewer: bool,
    /// The sentence about it.
    pub(crate) said: String,
}

/// Those of more ranks are told otherwise.
const RANKS: usize = 16;
/// So many peers say it.
const PEERS: usize = 2;
/// So many are asked.
const ASKED: usize = 64;
/// So many of a rank's last calls are looked at.
const LAST: usize = 16;

/// The one of a few ranks that came to a call with another number than all of its peers, of which there
/// are several, if all others of them came to theirs with the same.
pub(crate) fn odd_one<'a>(job: &Job<'a>, ranks: &[GlobalRank]) -> Option<Miscounted<'a>> {
    if !job.log.recorded || job.log.plan.is_some() || ranks.len() > RANKS {
        return None;
    }
    let mut odd = None;
    for rank in ranks {
        let known = Known::of(job, *rank);
        let compared = |record: &&'a CallRecord| compared(job, &known, record, ranks);
        let numbers = known.calls.iter().rev().take(LAST).find_map(compared)?;
        let Numbers { own, usual, .. } = numbers;
        // A rank whose numbers already differed at its first calls always differs: it is not to blame.
        let first = || known.calls.iter().take(LAST).find_map(compared);
        let always =
            || first().is_some_and(|first| first.own.abs_diff(first.usual) == own.abs_diff(usual));
        let cut = known.calls.first().is_some_and(|first| first.record_id > Some(0));
        if own == usual || (!cut && always()) {
            continue;
        }
        if odd.replace(numbers).is_some() {
            return None;
        }
    }
    let Numbers { last, own, usual, others } = odd?;
    let (calls, more) = (own.abs_diff(usual), if own < usual { "fewer" } else { "more" });
    let said = format!(
        "Rank {} came to {} with {} {more} than {} came to theirs.",
        last.rank,
        words::call(job.log, last),
        words::count(usize::try_from(calls).unwrap_or(usize::MAX), "call"),
        words::ranks(&others),
    );
    Some(Miscounted { rank: last.rank, last, fewer: own < usual, said })
}

/// A rank that made as many calls as its peers, one more of them in one of its groups and one fewer in
/// another, and has gone on from there.
pub(crate) struct Moved {
    pub(crate) more: GroupId,
    pub(crate) fewer: GroupId,
    /// The peers.
    pub(crate) others: Vec<GlobalRank>,
}

/// The place, by the recorders' numbers, of a call that a rank made and its peers made in another
/// group, where several peers agree in the numbers of all their groups.
pub(crate) fn moved(job: &Job<'_>, rank: GlobalRank) -> Option<Moved> {
    let roles = kinds_of(job, rank);
    let groups = |rank: GlobalRank| {
        let ids = (0..).map(GroupId).zip(&job.log.groups);
        ids.filter(move |(_, group)| group.size() > 1 && group.group_rank(rank).is_some())
    };
    let own: Vec<(GroupId, u64)> = groups(rank)
        .map(|(id, _)| Some((id, job.last_number(id, rank)?)))
        .collect::<Option<_>>()?;
    // In the order of the rank's own groups.
    let numbers = |peer: GlobalRank| {
        let number = |(id, _): &(GroupId, u64)| {
            let mut same = groups(peer).filter(|(other, _)| job.roles().same(*id, *other));
            job.last_number(same.next()?.0, peer)
        };
        own.iter().map(number).collect::<Option<Vec<u64>>>()
    };
    let others = job.log.logs().map(|(peer, _)| peer).filter(|peer| *peer != rank);
    let others = others.filter(|peer| kinds_of(job, *peer) == roles).take(ASKED);
    let others: Vec<GlobalRank> = others.collect();
    let usual = numbers(*others.first()?)?;
    let agree = others.len() >= PEERS
        && others.iter().all(|peer| numbers(*peer).as_deref() == Some(&*usual));
    let differing = own.iter().zip(&usual).filter(|((_, own), usual)| own != *usual);
    let differing: Vec<(GroupId, u64, u64)> =
        differing.map(|((id, own), usual)| (*id, *own, *usual)).collect();
    let one_more = |a: u64, b: u64| a.checked_sub(1) == Some(b);
    let (more, fewer) = match differing.as_slice() {
        [(a, own, usual), (b, other, others)] | [(b, other, others), (a, own, usual)]
            if one_more(*own, *usual) && one_more(*others, *other) =>
        {
            (*a, *b)
        }
        _ => return None,
    };
    // Two calls that are made in the other order stand like that between them.
    let last = job.rank(rank)?.calls.iter().rfind(|record| !record.call.p2p)?.call.group;
    (agree && last != more && last != fewer).then_some(Moved { more, fewer, others })
}

/// A rank's call, and the numbers that its recorder and its peers' gave it.
struct Numbers<'a> {
    last: Made<'a>,
    own: u64,
    usual: u64,
    /// Those peers.
    others: Vec<GlobalRank>,
}

/// The numbers of a call of a rank, if several peers made it that are not among `ranks`, who are in
/// question themselves, and all of them with one number.
fn compared<'a>(
    job: &Job<'a>,
    known: &Known<'a>,
    record: &'a CallRecord,
    ranks: &[GlobalRank],
) -> Option<Numbers<'a>> {
    let last = Made { rank: known.rank, record };
    let own = number(job, last)?;
    let mut peers = peers(job, known, last);
    peers.retain(|(peer, _)| !ranks.contains(peer));
    let usual = peers.first()?.1;
    let alike = peers.len() >= PEERS && peers.iter().all(|(_, id)| *id == usual);
    let others = peers.into_iter().map(|(rank, _)| rank).collect();
    alike.then_some(Numbers { last, own, usual, others })
}

/// The number of collectives that a rank made before a call, if that is known: stages of a pipeline
/// differ in their sends and receives.
fn number(job: &Job<'_>, made: Made<'_>) -> Option<u64> {
    let own = job.rank(made.rank)?;
    let id = made.record.record_id?;
    let before = own.calls.iter().take_while(|call| call.work < made.record.work);
    let p2p = before.filter(|call| call.call.p2p).count() as u64;
    match own.is_cut() {
        true => (!own.calls.iter().any(|call| call.call.p2p)).then_some(id),
        false => id.checked_sub(p2p),
    }
}

/// The ranks in groups of the same kinds that made the same call, and the numbers that their recorders
/// gave it.
fn peers(job: &Job<'_>, known: &Known<'_>, last: Made<'_>) -> Vec<(GlobalRank, u64)> {
    let group = last.record.call.group;
    let Some(seq) = last.record.seq else { return Vec::new() };
    let groups = (0..).map(GroupId).take(job.log.groups.len());
    let rows = groups.filter(|other| job.roles().same(*other, group)).filter_map(|other| {
        let rows = job.rows_of(other);
        let at = rows.binary_search_by_key(&seq, |row| row.seq).ok()?;
        rows.get(at)
    });
    let made = rows
        .flat_map(|row| &row.made)
        .take(ASKED)
        .filter(|made| made.rank != last.rank && kinds_of(job, made.rank) == known.roles);
    let mut peers: Vec<(GlobalRank, u64)> =
        made.filter_map(|made| Some((made.rank, number(job, *made)?))).collect();
    peers.sort_unstable();
    peers
}
