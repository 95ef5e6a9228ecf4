//! Findings of sends and receives that nobody answers.

use crate::claim::{Claim, evidence};
use crate::facts::alternatives::Alternatives;
use crate::facts::{Facts, idle};
use crate::kinds::Kind;
use crate::model::index::window_begins_after;
use crate::model::messages::{PendingP2p, complete};
use crate::words;
use lockstep_core::group::GroupId;
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::trace::{CallRecord, Called, RankState};

/// A rank that makes fewer sends or receives than its peers expect of it, or more than they
/// answer.
pub(crate) fn silent(facts: &Facts<'_, '_>, rank: GlobalRank) -> Option<Claim> {
    let expected = facts.p2p.iter().find(|pending| pending.never && pending.peer == rank);
    if let Some(expected) = expected {
        let mutual = facts.p2p.iter().find(|pending| {
            pending.never && pending.made.rank == rank && pending.peer == expected.made.rank
        });
        return match mutual {
            Some(own) if rank < expected.made.rank => Some(both_wait(facts, own, expected)),
            // Told with the other one.
            Some(_) => None,
            None => crossed(facts, rank, expected).or_else(|| unanswered(facts, rank)),
        };
    }
    let log = facts.job.log;
    let own = facts.p2p.iter().filter(|pending| pending.never && pending.made.rank == rank);
    let own: Vec<&PendingP2p<'_>> = own.collect();
    let first = own.first()?;
    let call = &first.made.record.call;
    let answer = if call.op.contains("send") { "recv" } else { "send" };
    Some(Claim {
        kind: Kind::P2pMismatch,
        culprits: vec![rank],
        also_victims: Vec::new(),
        group: Some(call.group),
        seq: first.made.record.seq,
        op: Some(call.op.clone()),
        alternatives: Alternatives::None,
        message: format!(
            "Rank {rank} waits in {}, and rank {} has no {answer} left that would meet it.",
            words::call(log, first.made),
            first.peer,
        )
        .into(),
        fix: format!(
            "Make one {answer} on rank {} for every {} on rank {rank}, with the same tag and group.",
            first.peer, call.op
        ),
        evidence: own
            .iter()
            .take(8)
            .map(|pending| evidence(facts, pending.made, "waits in"))
            .collect(),
    })
}

/// A rank that waits in a receive for one that has nothing left to send to it, while another rank sends
/// to it, and for that it has no receive: most likely its receive names the wrong rank. Likewise of a send.
fn crossed(facts: &Facts<'_, '_>, rank: GlobalRank, expected: &PendingP2p<'_>) -> Option<Claim> {
    let log = facts.job.log;
    let call = &expected.made.record.call;
    let sends = |call: &Called| call.op.contains("send");
    let own = facts.p2p.iter().find(|pending| {
        let own = &pending.made.record.call;
        pending.never && pending.made.rank == rank && sends(own) != sends(call)
    })?;
    // With another tag or in another group it would not meet that one either.
    let (mine, their) = (&own.made.record.call, expected.made.rank);
    if (mine.group, mine.tag) != (call.group, call.tag) {
        return None;
    }
    let (word, answer) = if sends(mine) { ("to", "recv") } else { ("from", "send") };
    Some(Claim {
        kind: Kind::P2pMismatch,
        culprits: vec![rank],
        also_victims: Vec::new(),
        group: Some(mine.group),
        seq: own.made.record.seq,
        op: Some(mine.op.clone()),
        alternatives: Alternatives::LessLikely,
        message: format!(
            "Rank {rank} waits in {} for rank {}, which has no {answer} left that would meet it, while rank \
             {their} waits in {}, which no call of rank {rank}'s meets. Most likely rank {rank}'s {} names \
             rank {} and should name rank {their}.",
            words::call(log, own.made),
            own.peer,
            words::call(log, expected.made),
            mine.op,
            own.peer,
        ).into(),
        fix: format!(
            "Name the rank there that the other side is: {} {word} rank {their}. If rank {} is meant, it \
             has to make one {answer} more, and rank {rank} one call more that meets rank {their}'s.",
            mine.op, own.peer
        ),
        evidence: vec![
            evidence(facts, own.made, "waits in"),
            evidence(facts, expected.made, "waits in"),
        ],
    })
}

/// Two ranks that wait for each other with calls that no call left of the other's meets, as where both
/// receive: which of the two should have been the other kind of call nobody can tell.
fn both_wait(facts: &Facts<'_, '_>, own: &PendingP2p<'_>, other: &PendingP2p<'_>) -> Claim {
    let log = facts.job.log;
    let (one, two) = (own.made, other.made);
    Claim {
        kind: Kind::P2pMismatch,
        culprits: vec![one.rank, two.rank],
        also_victims: Vec::new(),
        group: Some(one.record.call.group),
        seq: one.record.seq,
        op: Some(one.record.call.op.clone()),
        alternatives: Alternatives::None,
        message: format!(
            "Ranks {} and {} wait for each other, and neither has a call left that would meet the \
             other's: rank {} waits in {}, rank {} in {}.",
            one.rank,
            two.rank,
            one.rank,
            words::call(log, one),
            two.rank,
            words::call(log, two),
        ).into(),
        fix: "Let one of the two make the other kind of call there: a send for a recv, with the same \
              tag and group."
            .to_owned(),
        evidence: vec![evidence(facts, one, "waits in"), evidence(facts, two, "waits in")],
    }
}

/// A rank whose answer to a send or receive never came.
pub(crate) fn unanswered(facts: &Facts<'_, '_>, rank: GlobalRank) -> Option<Claim> {
    let log = facts.job.log;
    let mut waits: Vec<&PendingP2p<'_>> = facts
        .p2p
        .iter()
        .filter(|pending| pending.partner.is_none() && pending.peer == rank)
        .collect();
    // Messages that the rank's program would still answer are no reason.
    if waits.iter().any(|pending| pending.never) {
        waits.retain(|pending| pending.never);
    }
    let first = waits.first()?;
    let made = first.made;
    let sends = made.record.call.op.contains("send");
    let (answer, direction) = if sends { ("recv", "from") } else { ("send", "to") };
    let own = facts.job.rank(rank);
    let finished = own.is_some_and(|own| own.state == RankState::Finished);
    let never = waits.iter().any(|pending| pending.never);
    let kind = match own {
        None => Kind::RankMissing,
        Some(_) if finished || never => Kind::P2pMismatch,
        Some(_) => Kind::RankNeverJoined,
    };
    let in_store = words::of_store(log, made).is_some();
    let what = match kind {
        Kind::RankMissing => format!("Nothing was recorded of rank {rank}, and"),
        _ if in_store => format!("Rank {rank} never came to what is waited for in a store:"),
        _ => format!("Rank {rank} never called {answer} {direction} rank {};", made.rank),
    };
    let ended = match (finished, never) {
        (true, _) => " It finished its program without it.",
        (_, true) => " It has no such call left to make.",
        _ => "",
    };
    let call = words::call(log, made);
    if let (Some(_), [waits], None) = (own, waits.as_slice(), &log.plan)
        && made_too_many(facts, waits) == Some(true)
    {
        return Some(too_many(facts, waits));
    }
    // The ring may hold nothing so old.
    let dropped = own.is_some_and(|own| window_begins_after(own, made.record.scheduled_ps));
    // One that is waited for by several is at odds with all of them.
    let alone = waits.iter().all(|pending| pending.made.rank == made.rank);
    let either = alone && own.is_some() && (never || finished || log.recorded);
    let or = match either {
        _ if dropped => {
            " Or its recorder's ring has dropped that call: it holds nothing so old.".to_owned()
        }
        true => format!(
            " Or rank {} made one {} too many: between two ranks nothing tells which.",
            made.rank, made.record.call.op
        ),
        false => String::new(),
    };
    Some(Claim {
        kind,
        culprits: vec![rank],
        also_victims: Vec::new(),
        group: Some(made.record.call.group),
        seq: made.record.seq,
        op: Some(made.record.call.op.clone()),
        alternatives: match own {
            Some(_) if dropped => Alternatives::AsLikely,
            Some(_) if !either => Alternatives::None,
            _ => Alternatives::LessLikely,
        },
        message: format!("{what} rank {} waits in {call}.{ended}{or}", made.rank).into(),
        fix: if in_store {
            format!("Look at where rank {rank} stands: it does not get as far as the store.")
        } else {
            format!(
                "Make one {answer} on rank {rank} for every {} on rank {}, with the same tag and group.",
                made.record.call.op, made.rank
            )
        },
        evidence: waits
            .iter()
            .take(8)
            .map(|pending| evidence(facts, pending.made, "waits in"))
            .collect(),
    })
}

/// True if the rank that waits made more such calls, and the other one did not, than ranks in their
/// places make in groups that stand for theirs and have ended: pipelines side by side. `None` where
/// there are none.
fn made_too_many(facts: &Facts<'_, '_>, pending: &PendingP2p<'_>) -> Option<bool> {
    let job = facts.job;
    let call = &pending.made.record.call;
    let group = job.group(call.group)?;
    let (rank, peer) = (group.group_rank(pending.made.rank)?, group.group_rank(pending.peer)?);
    let sends = call.op.contains("send");
    // The number of calls of one direction that a member has made with another.
    let count = |id: GroupId, of: GroupRank, with: GroupRank, sends: bool| {
        let of = job.group(id)?.global_rank(of).filter(|rank| complete(job, *rank))?;
        let is = |record: &&CallRecord| {
            let theirs = &record.call;
            theirs.p2p
                && (theirs.group, theirs.peer, theirs.tag) == (id, Some(with), call.tag)
                && theirs.op.contains(if sends { "send" } else { "recv" })
        };
        Some((of, job.rank(of)?.calls.iter().filter(is).count()))
    };
    let both = |id: GroupId| {
        let (waits, own) = count(id, rank, peer, sends)?;
        let (answers, theirs) = count(id, peer, rank, !sends)?;
        Some((waits, own, answers, theirs))
    };
    let (_, own, _, theirs) = both(call.group)?;
    let others = (0..).map(GroupId).take(job.log.groups.len());
    let others = others.filter(|id| *id != call.group && job.roles().same(*id, call.group));
    let mut usual = None;
    for (waits, own, answers, theirs) in others.filter_map(both) {
        let ended = own == theirs && idle(facts, waits) && idle(facts, answers);
        if !ended || usual.is_some_and(|usual| usual != own) {
            return None;
        }
        usual = Some(own);
    }
    usual.map(|usual| usual == theirs && usual < own)
}

/// A send or receive that its like elsewhere never made.
fn too_many(facts: &Facts<'_, '_>, pending: &PendingP2p<'_>) -> Claim {
    let (rank, peer, call) = (pending.made.rank, pending.peer, &pending.made.record.call);
    Claim {
        kind: Kind::P2pMismatch,
        culprits: vec![rank],
        also_victims: Vec::new(),
        group: Some(call.group),
        seq: pending.made.record.seq,
        op: Some(call.op.clone()),
        alternatives: Alternatives::LessLikely,
        message: format!(
            "Rank {rank} waits in {} for rank {peer}, which never answers. Ranks in their places in other \
             groups of the kind have ended with as many calls as rank {peer} made: most likely rank \
             {rank} made one too many.",
            words::call(facts.job.log, pending.made),
        ).into(),
        fix: "Make the same number of sends and receives on both sides: look for a microbatch too many, \
              and for counts that each rank works out for itself."
            .to_owned(),
        evidence: vec![evidence(facts, pending.made, "waits in")],
    }
}
