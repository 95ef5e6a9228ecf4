//! Circles of sends and receives with a collective: a rank that went on to the collective without
//! the send or receive that its peer waits for, as a stage of a pipeline does that counts one
//! microbatch less.

use crate::claim::{Claim, evidence};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::model::graph::Sink;
use crate::model::messages::{PendingP2p, peer};
use crate::words;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallState;
use std::collections::BTreeSet;

/// At most this many of the calls that wait are shown.
const SHOWN: usize = 8;

/// The finding of a circle that one rank closes by going on; `None` if it is another circle, or if
/// there is a plan, which says what each rank has left to do.
pub(crate) fn claim(facts: &Facts<'_, '_>, sink: &Sink) -> Option<Claim> {
    let (job, log) = (facts.job, facts.job.log);
    let rows = || sink.rows.iter().filter_map(|at| job.rows.get(*at));
    let stands_in = |rank: GlobalRank| {
        let waits =
            rows().find_map(|row| row.of(rank).filter(crate::model::index::Made::pending))?;
        // A rank that waits for somebody itself has not gone on.
        let owed =
            |pending: &PendingP2p<'_>| pending.made.rank == rank && pending.partner.is_none();
        (!facts.p2p.iter().any(owed)).then_some(waits)
    };
    let owed: Vec<&PendingP2p<'_>> = facts
        .p2p
        .iter()
        .filter(|pending| {
            log.plan.is_none()
                && pending.partner.is_none()
                && sink.ranks.binary_search(&pending.made.rank).is_ok()
                && stands_in(pending.peer).is_some()
                && met_before(facts, pending)
        })
        .collect();
    let peers: BTreeSet<GlobalRank> = owed.iter().map(|pending| pending.peer).collect();
    let (Some(peer), 1) = (peers.first().copied(), peers.len()) else { return None };
    // Two that miss it are right; one may as well have made a call too many.
    let missed_by: BTreeSet<GlobalRank> = owed.iter().map(|pending| pending.made.rank).collect();
    let (culprits, alternatives) = match missed_by.len() {
        1 => (missed_by.into_iter().chain([peer]).collect(), Alternatives::AsLikely),
        _ => (BTreeSet::from([peer]), Alternatives::LessLikely),
    };
    let stands = stands_in(peer)?;
    let first = owed.first()?.made;
    let waits = owed.iter().take(SHOWN).map(|pending| {
        let call = &pending.made.record.call;
        let (answer, to) = if call.op.contains("send") { ("recv", "from") } else { ("send", "to") };
        let rank = pending.made.rank;
        format!(
            "rank {rank} waits in {} for its {answer} {to} rank {rank}",
            words::call(log, pending.made)
        )
    });
    let waits: Vec<String> = waits.collect();
    let mut shown = vec![evidence(facts, stands, "went on to")];
    shown.extend(owed.iter().take(SHOWN).map(|owed| evidence(facts, owed.made, "waits in")));
    Some(Claim {
        kind: Kind::P2pMismatch,
        also_victims: sink.ranks.iter().copied().filter(|rank| !culprits.contains(rank)).collect(),
        culprits: culprits.into_iter().collect(),
        group: Some(first.record.call.group),
        seq: first.record.seq,
        op: Some(first.record.call.op.clone()),
        alternatives,
        message: format!(
            "Rank {peer} went on to {}, while {}: {}.",
            words::call(log, stands),
            waits.join(", "),
            match alternatives {
                Alternatives::LessLikely => "it made fewer sends or receives than both of them count on",
                _ => {
                    "it left a call out, or the other made one too many, which the recording cannot \
                     tell"
                }
            },
        ).into(),
        fix:
            "Make the same number of sends and receives on both sides: look for a microbatch that \
              one stage leaves out, and for counts that each rank works out for itself."
                .to_owned(),
        evidence: shown,
    })
}

/// True if calls of this kind between the two have met before: the two belong together.
fn met_before(facts: &Facts<'_, '_>, pending: &PendingP2p<'_>) -> bool {
    let job = facts.job;
    let call = &pending.made.record.call;
    let calls = job.rank(pending.made.rank).map(|log| log.calls.as_slice()).unwrap_or_default();
    calls.iter().any(|record| {
        let peer = job.group(record.call.group).and_then(|group| peer(group, record));
        record.state == CallState::Completed
            && record.call.op == call.op
            && record.call.group == call.group
            && peer == Some(pending.peer)
    })
}
