//! Receives from any source that took what a later receive waits for: which message such a receive
//! gets is whoever sends first.

use crate::claim::{Claim, evidence};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::kinds::Kind;
use crate::model::index::{Job, Made};
use crate::model::messages::{PendingP2p, from_anyone, peer};
use crate::words;
use lockstep_core::trace::{CallRecord, CallState};

/// A receive that waits for a send that has been taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken<'a> {
    pub(crate) waits: Made<'a>,
    took: Made<'a>,
    sent: Made<'a>,
}

/// The first such receive of each rank. A send completes when it is received: of a rank that has ended
/// more sends to another than that one has received from it by name, a receive from any source took
/// one.
pub(crate) fn find<'a>(job: &Job<'a>, pending: &[PendingP2p<'a>]) -> Vec<Taken<'a>> {
    let mut found: Vec<Taken<'a>> = Vec::new();
    for waits in pending.iter().filter(|pending| pending.partner.is_none()) {
        let rank = waits.made.rank;
        let call = &waits.made.record.call;
        let (Some(own), Some(theirs)) = (job.rank(rank), job.rank(waits.peer)) else { continue };
        if !call.op.contains("recv") || found.iter().any(|found| found.waits.rank == rank) {
            continue;
        }
        let group = job.group(call.group);
        let ended = |record: &&'a CallRecord| {
            record.call.p2p
                && record.state == CallState::Completed
                && (record.call.group, record.call.tag) == (call.group, call.tag)
        };
        let peer = |record: &CallRecord| group.and_then(|group| peer(group, record));
        let receives = own.calls.iter().filter(ended).filter(|it| it.call.op.contains("recv"));
        let (any, named): (Vec<_>, Vec<_>) =
            receives.partition(|receive| from_anyone(job, receive));
        let named = named.into_iter().filter(|receive| peer(receive) == Some(waits.peer)).count();
        let sends = theirs.calls.iter().filter(ended);
        let sends = sends.filter(|it| it.call.op.contains("send") && peer(it) == Some(rank));
        let before = |took: &&&CallRecord| took.work < waits.made.record.work;
        if let (Some(took), Some(sent)) = (any.iter().rfind(before), sends.skip(named).last()) {
            let took = Made { rank, record: took };
            let sent = Made { rank: waits.peer, record: sent };
            found.push(Taken { waits: waits.made, took, sent });
        }
    }
    found
}

pub(crate) fn claim(facts: &Facts<'_, '_>, taken: &Taken<'_>) -> Claim {
    let log = facts.job.log;
    let (rank, peer) = (taken.waits.rank, taken.sent.rank);
    let call = &taken.waits.record.call;
    Claim {
        kind: Kind::P2pMismatch,
        culprits: vec![rank],
        also_victims: Vec::new(),
        group: Some(call.group),
        seq: taken.waits.record.seq,
        op: Some(call.op.clone()),
        alternatives: Alternatives::LessLikely,
        message: format!(
            "Rank {rank} waits in {} for a send of rank {peer}, but has received it already: its receive \
             from any source, {}, took it, since it came first. Or rank {peer} makes one send too few.",
            words::call(log, taken.waits),
            words::call(log, taken.took),
        ).into(),
        fix: "Name the source of each receive, or give messages that a receive from any source must not \
              take another tag."
            .to_owned(),
        evidence: vec![
            evidence(facts, taken.waits, "waits in"),
            evidence(facts, taken.took, "received from any source in"),
            evidence(facts, taken.sent, "was received in"),
        ],
    }
}
