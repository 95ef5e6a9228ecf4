//! Findings of sends and receives that nobody answers.

use super::causes::{Cause, Scene, evidence};
use super::p2p::PendingP2p;
use super::report::{Certainty, Kind};
use super::words;
use crate::rank::GlobalRank;
use crate::trace::RankState;

/// A rank that makes fewer sends or receives than its peers expect of it, or more than they
/// answer.
pub(super) fn silent(scene: &Scene<'_, '_>, rank: GlobalRank) -> Option<Cause> {
    let expected = scene.p2p.iter().find(|pending| pending.never && pending.peer == rank);
    if let Some(expected) = expected {
        let mutual = scene.p2p.iter().find(|pending| {
            pending.never && pending.made.rank == rank && pending.peer == expected.made.rank
        });
        return match mutual {
            Some(own) if rank < expected.made.rank => Some(both_wait(scene, own, expected)),
            // Told with the other one.
            Some(_) => None,
            None => unanswered(scene, rank),
        };
    }
    let log = scene.job.log;
    let own = scene.p2p.iter().filter(|pending| pending.never && pending.made.rank == rank);
    let own: Vec<&PendingP2p<'_>> = own.collect();
    let first = own.first()?;
    let call = &first.made.record.call;
    let answer = if call.op.contains("send") { "recv" } else { "send" };
    Some(Cause {
        kind: Kind::P2pMismatch,
        culprits: vec![rank],
        also_victims: Vec::new(),
        group: Some(call.group),
        seq: first.made.record.seq,
        op: Some(call.op.clone()),
        certainty: Certainty::Certain,
        message: format!(
            "Rank {rank} waits in {}, and rank {} has no {answer} left that would meet it.",
            words::call(log, first.made),
            first.peer,
        ),
        fix: format!(
            "Make one {answer} on rank {} for every {} on rank {rank}, with the same tag and group.",
            first.peer, call.op
        ),
        evidence: own
            .iter()
            .take(8)
            .map(|pending| evidence(scene, pending.made, "waits in"))
            .collect(),
    })
}

/// Two ranks that wait for each other with calls that no call left of the other's meets, as where both
/// receive: which of the two should have been the other kind of call nobody can tell.
fn both_wait(scene: &Scene<'_, '_>, own: &PendingP2p<'_>, other: &PendingP2p<'_>) -> Cause {
    let log = scene.job.log;
    let (one, two) = (own.made, other.made);
    Cause {
        kind: Kind::P2pMismatch,
        culprits: vec![one.rank, two.rank],
        also_victims: Vec::new(),
        group: Some(one.record.call.group),
        seq: one.record.seq,
        op: Some(one.record.call.op.clone()),
        certainty: Certainty::Certain,
        message: format!(
            "Ranks {} and {} wait for each other, and neither has a call left that would meet the \
             other's: rank {} waits in {}, rank {} in {}.",
            one.rank,
            two.rank,
            one.rank,
            words::call(log, one),
            two.rank,
            words::call(log, two),
        ),
        fix: "Let one of the two make the other kind of call there: a send for a recv, with the same \
              tag and group."
            .to_owned(),
        evidence: vec![evidence(scene, one, "waits in"), evidence(scene, two, "waits in")],
    }
}

/// A rank whose answer to a send or receive never came.
pub(super) fn unanswered(scene: &Scene<'_, '_>, rank: GlobalRank) -> Option<Cause> {
    let log = scene.job.log;
    let mut waits: Vec<&PendingP2p<'_>> = scene
        .p2p
        .iter()
        .filter(|pending| pending.partner.is_none() && pending.peer == rank)
        .collect();
    // What the rank's program would still answer is no reason.
    if waits.iter().any(|pending| pending.never) {
        waits.retain(|pending| pending.never);
    }
    let first = waits.first()?;
    let made = first.made;
    let sends = made.record.call.op.contains("send");
    let (answer, direction) = if sends { ("recv", "from") } else { ("send", "to") };
    let own = scene.job.rank(rank);
    let finished = own.is_some_and(|own| own.state == RankState::Finished);
    let never = waits.iter().any(|pending| pending.never);
    let kind = match own {
        None => Kind::RankMissing,
        Some(_) if finished || never => Kind::P2pMismatch,
        Some(_) => Kind::RankNeverJoined,
    };
    let what = match kind {
        Kind::RankMissing => format!("Nothing was recorded of rank {rank}, and"),
        _ => format!("Rank {rank} never called {answer} {direction} rank {};", made.rank),
    };
    let ended = match (finished, never) {
        (true, _) => " It finished its program without it.",
        (_, true) => " It has no such call left to make.",
        _ => "",
    };
    let call = words::call(log, made);
    // One that is waited for by several is at odds with all of them.
    let alone = waits.iter().all(|pending| pending.made.rank == made.rank);
    let either = alone && own.is_some() && (never || finished || log.recorded);
    let or = match either {
        true => format!(
            " Or rank {} made one {} too many: between two ranks nothing tells which.",
            made.rank, made.record.call.op
        ),
        false => String::new(),
    };
    Some(Cause {
        kind,
        culprits: vec![rank],
        also_victims: Vec::new(),
        group: Some(made.record.call.group),
        seq: made.record.seq,
        op: Some(made.record.call.op.clone()),
        certainty: match own {
            Some(_) if !either => Certainty::Certain,
            _ => Certainty::Likely,
        },
        message: format!("{what} rank {} waits in {call}.{ended}{or}", made.rank),
        fix: format!(
            "Make one {answer} on rank {rank} for every {} on rank {}, with the same tag and group.",
            made.record.call.op, made.rank
        ),
        evidence: waits
            .iter()
            .take(8)
            .map(|pending| evidence(scene, pending.made, "waits in"))
            .collect(),
    })
}
