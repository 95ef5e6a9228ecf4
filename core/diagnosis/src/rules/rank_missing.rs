//! Findings of ranks of which nothing was recorded, where no call waits for them alone.

use crate::claim::log_evidence::log_evidence;
use crate::claim::message::{Doubt, Guess, Message};
use crate::claim::{Claim, evidence, no_call};
use crate::facts::alternatives::Alternatives;
use crate::facts::{Facts, rows_without};
use crate::kinds::Kind;
use crate::model::index::Row;
use crate::rules::unanswered_message::unanswered;
use crate::words;
use crate::words::{cap_ranks, ranks};
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_formats::job_log::{Said, Statement, is_timeout};
use std::collections::{BTreeMap, BTreeSet};

/// The ranks of which nothing was recorded, and whose partners' calls ended with them: gloo's calls
/// fail when a member is gone, and its recorder takes that for their end.
pub(crate) fn claims(facts: &Facts<'_, '_>, ranks: &[GlobalRank]) -> Vec<Claim> {
    // Those that are missed in the same calls are one finding.
    let mut parts: BTreeMap<Vec<(GlobalRank, u32)>, Vec<GlobalRank>> = BTreeMap::new();
    for rank in ranks.iter().filter(|rank| unanswered(facts, **rank).is_none()) {
        let last = facts.job.last_with(*rank);
        let last = last.iter().map(|made| (made.rank, made.record.work)).collect();
        parts.entry(last).or_default().push(*rank);
    }
    parts.into_values().filter_map(|ranks| lost_with(facts, &ranks)).collect()
}

fn lost_with(facts: &Facts<'_, '_>, lost: &[GlobalRank]) -> Option<Claim> {
    let job = facts.job;
    let last = job.last_with(*lost.first()?);
    let made = *last.first()?;
    let partners: Vec<GlobalRank> = last.iter().map(|made| made.rank).collect();
    let (it, was) = if lost.len() == 1 { ("it", "was") } else { ("they", "were") };
    let with = if lost.len() == 1 { "it" } else { "them" };
    // All of a job that has ended well stand behind a call of all.
    let all = made.record.call.group == GroupId::WORLD;
    // Others miss those partners elsewhere: they may as well be stuck by themselves.
    let missed: Vec<GlobalRank> = partners
        .iter()
        .copied()
        .filter(|rank| rows_without(facts, *rank).next().is_some())
        .collect();
    // Partners whose call failed when a connection was closed: the job did not end well.
    let cut_off: Vec<&Statement> = facts
        .other_sources
        .heard
        .statements
        .iter()
        .filter(|it| partners.contains(&it.rank))
        .filter(|it| matches!(&it.said, Said::GaveUp { error, .. } if !is_timeout(error)))
        .collect();
    let guess = match all {
        _ if !missed.is_empty() => Guess::Several(format!(
            "Either {it} crashed or {was} killed, and that call failed, which gloo's recorder does not tell \
             from its end; or it ended well, and {} {} stuck behind it, in code of {} own: others wait \
             for {} as well.",
            ranks(&missed),
            if missed.len() == 1 { "is" } else { "are" },
            if missed.len() == 1 { "its" } else { "their" },
            if missed.len() == 1 { "it" } else { "them" },
        )),
        true if !cut_off.is_empty() => {
            let told: BTreeSet<GlobalRank> = cut_off.iter().map(|it| it.rank).collect();
            let told: Vec<GlobalRank> = told.into_iter().collect();
            Guess::Likely(format!(
                "{it} crashed or {was} killed: the log says that {} lost a connection in a call.",
                ranks(&told)
            ))
        }
        true => Guess::Several(format!(
            "Either {it} crashed or {was} killed, and that call failed, which gloo's recorder does \
             not tell from its end; or the job ended well, and a dump is left out."
        )),
        false => Guess::Likely(format!("{it} crashed or {was} killed, and that call failed.")),
    };
    // Either side of what cannot be decided. That several are stuck by themselves behind one call is no
    // match for one that is gone.
    let either = missed.iter().filter(|_| partners.len() == 1);
    let mut culprits: Vec<GlobalRank> = lost.iter().chain(either).copied().collect();
    culprits.sort_unstable();
    let victims = partners.iter().copied().filter(|rank| !culprits.contains(rank)).collect();
    let mut claim = Claim {
        kind: Kind::RankMissing,
        culprits,
        also_victims: victims,
        group: Some(made.record.call.group),
        seq: made.record.seq,
        op: Some(made.record.call.op.clone()),
        alternatives: match (all && cut_off.is_empty()) || !missed.is_empty() {
            true => Alternatives::AsLikely,
            false => Alternatives::LessLikely,
        },
        message: Message {
            said: format!(
                "Nothing was recorded of {}, and the last call of {} was one with {with}: {}.",
                ranks(lost),
                ranks(&partners),
                words::call(job.log, made),
            ),
            guess: Some(guess),
            ..Message::default()
        },
        fix: "Look at the end of the missing rank's own log and at its machine (out of memory, a \
              device error, a preemption). If its dump exists, add it."
            .to_owned(),
        evidence: last
            .iter()
            .take(8)
            .map(|made| evidence(facts, *made, "last called"))
            .chain(lost.iter().take(16).map(|rank| no_call(*rank, "left no dump")))
            .chain(cut_off.iter().take(4).map(|it| log_evidence(it)))
            .collect(),
    };
    claim.add_stacks(facts.other_sources);
    Some(claim)
}

/// Makes findings of ranks of whom nothing was recorded no surer than what else is wrong lets them be:
/// where the recorded ranks' calls are a reason to hang, those who are not seen may have come.
pub(crate) fn doubt(claims: &mut [Claim]) {
    let reason = |claim: &Claim| {
        let none = matches!(
            claim.kind,
            Kind::RankMissing
                | Kind::Straggler
                | Kind::WorkDropped
                | Kind::CallNeverCompleted
                | Kind::RunFailed
        );
        !none && claim.open() != Alternatives::AsLikely
    };
    if !claims.iter().any(reason) {
        return;
    }
    let sure = |claim: &&mut Claim| {
        claim.kind == Kind::RankMissing && claim.open() != Alternatives::AsLikely
    };
    for claim in claims.iter_mut().filter(sure) {
        let text = format!(
            "But what else is told is reason enough for a hang: whether {} came cannot be told.",
            ranks(&claim.culprits)
        );
        claim.doubt(Doubt::not_seen(Alternatives::AsLikely, text));
    }
}

/// Ranks of whom nothing was recorded and who are not needed for what is seen: nobody waits for
/// them, or only in calls that others hold up as well.
pub(crate) fn not_needed(facts: &Facts<'_, '_>, claims: &[Claim]) -> Option<Claim> {
    let job = facts.job;
    let all = (0..).map(GlobalRank).zip(&job.log.ranks);
    let known = |rank: &GlobalRank| claims.iter().any(|claim| claim.culprits.contains(rank));
    let missing = all.filter(|(rank, log)| log.is_none() && !known(rank));
    let missing: Vec<GlobalRank> = missing.map(|(rank, _)| rank).collect();
    let first = *missing.first()?;
    let rows = job.open_rows().map(|(_, row)| row);
    let lacking: Vec<&Row<'_>> = rows
        .filter(|row| missing.iter().any(|rank| row.unrecorded.binary_search(rank).is_ok()))
        .collect();
    let waiting: BTreeSet<GlobalRank> = lacking.iter().flat_map(|row| row.waiting()).collect();
    let call = lacking.iter().find_map(|row| row.made.iter().find(|made| made.pending()));
    let them = if missing.len() == 1 { "it" } else { "them" };
    let message = match call {
        Some(made) => format!(
            "Nothing was recorded of {}. {} wait{} for {them} as well, in {}, but what is told above \
             is reason enough: whether {} came cannot be told.",
            ranks(&missing),
            cap_ranks(&waiting.iter().copied().collect::<Vec<_>>()),
            if waiting.len() == 1 { "s" } else { "" },
            words::call(job.log, *made),
            if missing.len() == 1 { format!("rank {first}") } else { "they".to_owned() },
        ),
        None => format!(
            "Nothing was recorded of {}, and no other rank is seen to wait for {them}.",
            ranks(&missing),
        ),
    };
    let seen = call.map(|made| evidence(facts, *made, "waits in"));
    let mut claim = Claim {
        kind: Kind::RankMissing,
        also_victims: waiting.into_iter().collect(),
        group: call.map(|made| made.record.call.group),
        seq: call.and_then(|made| made.record.seq),
        op: call.map(|made| made.record.call.op.clone()),
        alternatives: Alternatives::AsLikely,
        message: message.into(),
        fix: "Add the missing dumps if they exist; a rank without one may have crashed before it \
              could write: look at the end of its log."
            .to_owned(),
        evidence: missing
            .iter()
            .take(16)
            .map(|rank| no_call(*rank, "left no dump"))
            .chain(seen)
            .collect(),
        culprits: missing,
    };
    claim.add_stacks(facts.other_sources);
    Some(claim)
}
