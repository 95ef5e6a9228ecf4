//! Sends and receives of which both sides were called, and which ended on neither. A dump holds no
//! tags: two calls that seem to meet may never.

use crate::claim::{Claim, evidence};
use crate::facts::alternatives::Alternatives;
use crate::facts::{Facts, rows_without};
use crate::kinds::Kind;
use crate::model::index::Made;
use crate::model::messages::PendingP2p;
use crate::words;
use crate::words::{capital, waits};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::Outcome;
use std::collections::BTreeSet;

/// The ranks of a recording that stand in a send or receive which has met that of another of these
/// ranks, and has ended on neither.
pub(crate) fn among(facts: &Facts<'_, '_>, ranks: &[GlobalRank]) -> BTreeSet<GlobalRank> {
    let recorded = facts.job.log.recorded;
    let pairs = facts.p2p.iter().filter(|pending| {
        let partner = pending.partner.filter(|partner| recorded && partner.pending());
        let both = partner.map(|partner| [pending.made.rank, partner.rank]);
        both.is_some_and(|both| both.iter().all(|rank| ranks.binary_search(rank).is_ok()))
    });
    pairs.map(|pending| pending.made.rank).collect()
}

/// True if the first call that a rank is in is a send or receive that has met the other side's, and has
/// ended on neither: it may hang there, of sizes or tags that nobody sees any more.
pub(crate) fn stands_in_one(facts: &Facts<'_, '_>, rank: GlobalRank) -> bool {
    let Some(own) = facts.job.rank(rank) else { return false };
    let first = own.calls.iter().find(|record| Made { rank, record }.pending());
    let in_it = |pending: &PendingP2p<'_>| {
        let met = pending.partner.is_some_and(|partner| partner.pending());
        met && pending.made.rank == rank
            && Some(pending.made.record.work) == first.map(|it| it.work)
    };
    facts.job.log.recorded && facts.p2p.iter().any(in_it)
}

/// The first pair of a recording that seems to have met and has ended on neither side, where nothing
/// else is wrong. Of a run or a simulation the tags are known.
pub(crate) fn never_completed(facts: &Facts<'_, '_>) -> Option<Claim> {
    let log = facts.job.log;
    if !log.recorded {
        return None;
    }
    let both = facts.p2p.iter().filter_map(|pending| {
        let partner = pending.partner.filter(|partner| partner.pending())?;
        pending.made.record.call.op.contains("send").then_some((pending.made, partner))
    });
    let (send, receive) = both.min_by_key(|(send, receive)| {
        let since = send.record.scheduled_ps.max(receive.record.scheduled_ps);
        (since, send.rank, receive.rank, send.record.work)
    })?;
    let mut pair = vec![send.rank, receive.rank];
    pair.sort_unstable();
    let wait = pair.iter().flat_map(|rank| rows_without(facts, *rank));
    let wait: BTreeSet<GlobalRank> = wait.flat_map(|(row, _)| row.waiting()).collect();
    let waiting: Vec<GlobalRank> = wait.into_iter().filter(|rank| !pair.contains(rank)).collect();
    let others = match waiting.is_empty() {
        true => String::new(),
        false => {
            format!(" {} in calls that these two have not come to.", capital(&waits(&waiting)))
        }
    };
    pair.extend(waiting);
    Some(Claim {
        kind: Kind::CallNeverCompleted,
        culprits: Vec::new(),
        also_victims: pair,
        group: Some(send.record.call.group),
        seq: send.record.seq,
        op: Some(send.record.call.op.clone()),
        alternatives: match log.outcome {
            Outcome::TimedOut => Alternatives::LessLikely,
            _ => Alternatives::AsLikely,
        },
        message: format!(
            "Rank {} waits in {}, and rank {} in {}: they seem to meet, and neither saw its call end. \
             Their tags may differ, which a dump does not hold (gloo and MPI heed them, NCCL does not); \
             or the network or a device stalled, or the job was still running when this was recorded.{others}",
            send.rank,
            words::call(log, send),
            receive.rank,
            words::call(log, receive),
        ).into(),
        fix: "If the job was hung, compare the tag= of the two calls, then look at the network and the \
              devices. If it was running, record again when it hangs."
            .to_owned(),
        evidence: vec![evidence(facts, send, "waits in"), evidence(facts, receive, "waits in")],
    })
}
