//! The certainty that a recording with gaps allows: one in which dumps are missing, rings have
//! dropped what came first, or dumps are of different moments. What is told as certain must be so
//! in every reading of the gaps.

use crate::claim::Claim;
use crate::claim::message::{Doubt, Reason};
use crate::decide::moments;
use crate::facts::alternatives::Alternatives;
use crate::facts::{Facts, full_rows};
use crate::kinds::Kind;
use crate::model::index::{Job, Made, by_itself};
use crate::model::messages::peer;
use crate::words;
use crate::words::ranks;
use lockstep_core::group::BackendName;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallSignature;
use lockstep_core::trace::{CallRecord, CallState, MaybeEarly, RankLog};
use lockstep_formats::flight_recorder::needs_all;
use std::collections::BTreeSet;

/// So many ranks are asked whether they are in a call that nothing holds up.
const ASKED: usize = 64;

/// Makes findings of a recording, or of a run that was cut short, no surer than what it holds.
pub(crate) fn soften(facts: &Facts<'_, '_>, claims: &mut Vec<Claim>) {
    let job = facts.job;
    moments::soften_run(job, claims);
    if !job.log.recorded || job.log.plan.is_some() {
        return;
    }
    let gaps = has_gaps(job);
    let running = running(facts, claims);
    let missing = claims.iter().filter(|claim| claim.kind == Kind::RankMissing);
    let missing: Vec<GlobalRank> = missing.flat_map(|claim| claim.culprits.clone()).collect();
    for claim in claims {
        let p2p = matches!(claim.kind, Kind::P2pDeadlock | Kind::P2pMismatch)
            || claim.op.as_deref().is_some_and(|op| op.contains("send") || op.contains("recv"));
        if gaps && ((is_of_order(claim.kind) && is_undone(job, claim)) || p2p) {
            claim.alternatives = claim.alternatives.max(Alternatives::LessLikely);
        }
        if let Some(doubt) = astray_before(job, claim) {
            claim.doubt(doubt);
        }
        if claim.kind != Kind::RankNeverJoined {
            moments::soften(job, claim);
            continue;
        }
        let doubts = [
            early(job, &claim.culprits),
            in_message(facts, &claim.culprits),
            blind(job, &claim.culprits),
            failed(job, &claim.culprits),
            at_odds(job, claim),
            running.clone(),
            also_missing(job, claim, &missing),
        ];
        for doubt in doubts.into_iter().flatten() {
            if claim.open() < doubt.weight {
                claim.doubt(doubt);
            }
        }
        moments::soften(job, claim);
    }
}

fn is_of_order(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::RankNeverJoined
            | Kind::OpSkipped
            | Kind::OpExtra
            | Kind::OpsSwapped
            | Kind::LoopShorter
    )
}

/// True if no majority of a group's members is seen to go another way. Either side may be the one
/// that is out of step: what the program's other ranks do tells which, and in a recording with gaps
/// the ones that would contradict may be those that are not seen. So nobody is blamed for certain.
/// The same of sends and receives, whose partners are found by counting.
fn is_undone(job: &Job<'_>, claim: &Claim) -> bool {
    claim.group.and_then(|group| job.group(group)).is_some_and(|group| {
        let silent =
            |rank: &&GlobalRank| job.rank(**rank).is_none() && !claim.culprits.contains(rank);
        let against = claim.culprits.len() + group.ranks().iter().filter(silent).count();
        against * 2 >= group.ranks().len()
    })
}

/// Ranks that were recorded and have not come, where others wait for one that left no dump as well, and
/// nobody is seen to have waited long: it takes one reason for both to be on their way, and two for both
/// to be stuck.
fn also_missing(job: &Job<'_>, claim: &Claim, missing: &[GlobalRank]) -> Option<Doubt> {
    let other = !missing.is_empty() && missing.iter().all(|rank| !claim.culprits.contains(rank));
    // A rank in a call that has not ended on it alone is not on its way.
    let idle = |rank: &GlobalRank| {
        let ended = |record: &CallRecord| record.state == CallState::Completed;
        job.rank(*rank).is_some_and(|own| own.calls.iter().all(ended))
    };
    if !other || !claim.culprits.iter().all(idle) || moments::waited_long(job, claim) {
        return None;
    }
    let why = format!(
        "Others wait for {} as well, of which nothing was recorded: a job that runs looks like this.",
        ranks(missing)
    );
    Some(Doubt::not_seen(Alternatives::AsLikely, why))
}

/// A circle of sends and receives whose ranks' rings have dropped what came before: a stage of a pipeline
/// that leaves out a batch leaves such a circle behind, and is not always in it.
fn astray_before(job: &Job<'_>, claim: &Claim) -> Option<Doubt> {
    if claim.kind != Kind::P2pDeadlock {
        return None;
    }
    let cut = |rank: &&GlobalRank| job.rank(**rank).is_some_and(RankLog::is_cut);
    // Calls behind it may have answered in the dropped part.
    let with = claim.culprits.iter().chain(&claim.also_victims);
    let cut: Vec<GlobalRank> = with.filter(cut).copied().collect();
    let ring = if cut.len() == 1 { "The ring" } else { "The rings" };
    let have = if cut.len() == 1 { "has" } else { "have" };
    let why = format!(
        "{ring} of {} {have} dropped what came before: where a rank left a send or receive out, or made one \
         on top, others end in such a circle as well, and whether one did is not seen.",
        ranks(&cut)
    );
    (!cut.is_empty()).then(|| Doubt::not_seen(Alternatives::AsLikely, why))
}

/// True if a rank left no dump, or one that does not begin with its first call.
fn has_gaps(job: &Job<'_>) -> bool {
    job.log.ranks.iter().any(|log| log.as_ref().is_none_or(RankLog::is_cut))
}

/// Ranks whose dumps may be older than those of others. Where NCCL's calls have ended that need them
/// they are; gloo's may have failed instead, which is what all stop at.
fn early(job: &Job<'_>, culprits: &[GlobalRank]) -> Option<Doubt> {
    let how = |rank: &GlobalRank| {
        job.rank(*rank).map(|own| own.recording.maybe_early).unwrap_or_default()
    };
    let early = culprits.iter().copied().filter(|rank| how(rank) != MaybeEarly::No);
    let early: Vec<GlobalRank> = early.collect();
    let last = job.rank(*early.first()?)?.calls.last()?;
    let gloo = job.group(last.call.group).map(|group| group.backend()) == Some(BackendName::Gloo);
    let dumps = if early.len() == 1 { "The dump" } else { "The dumps" };
    if early.iter().any(|rank| how(rank) == MaybeEarly::OutrunBySome) {
        return Some(Doubt::not_seen(
            Alternatives::AsLikely,
            format!(
                "Or {} of {} was made before the others', and the job went on: some have come out of that \
                 call and some have not, as in a job that runs. Or it failed on those who have.",
                dumps.to_lowercase(),
                ranks(&early)
            ),
        ));
    }
    Some(match gloo {
        true => Doubt::not_seen(
            Alternatives::LessLikely,
            format!(
                "Or {} of {} was made before the others': their rings hold too little to tell whether they \
                 went on.",
                dumps.to_lowercase(),
                ranks(&early)
            ),
        ),
        false => Doubt::not_seen(
            Alternatives::AsLikely,
            format!(
                "{dumps} of {} {} made before the others', which have come out of a later call that needs \
                 everybody: what {} did since is not known. Dump all ranks once the job hangs.",
                ranks(&early),
                if early.len() == 1 { "was" } else { "were" },
                if early.len() == 1 { "it" } else { "they" },
            ),
        ),
    })
}

/// Ranks that are in a send or receive themselves, where a ring has dropped calls of either side: it may
/// be this one that was not answered.
fn in_message(facts: &Facts<'_, '_>, culprits: &[GlobalRank]) -> Option<Doubt> {
    let job = facts.job;
    let cut = |rank: GlobalRank| job.rank(rank).is_some_and(RankLog::is_cut);
    let made = culprits.iter().filter(|rank| !by_itself(job, **rank)).find_map(|rank| {
        let waits = job.rank(*rank)?.calls.iter().find(|record| {
            record.call.p2p && record.state != CallState::Completed && record.call.peer.is_some()
        })?;
        let peer = peer(job.group(waits.call.group)?, waits)?;
        (cut(*rank) || cut(peer)).then_some(Made { rank: *rank, record: waits })
    })?;
    let why = format!(
        "Rank {} is in {} itself, and rings have dropped what would tell whether that was answered.",
        made.rank,
        words::call(job.log, made)
    );
    Some(Doubt::not_seen(Alternatives::AsLikely, why))
}

/// Ranks that are in calls, and whose rings have dropped what came before: they are not stuck in code of
/// their own for certain, and where even the first call that is left has not ended, what holds them up is
/// among those.
fn blind(job: &Job<'_>, culprits: &[GlobalRank]) -> Option<Doubt> {
    let waits = |record: &CallRecord| record.state != CallState::Completed;
    let mut blind = Vec::new();
    let mut most = Alternatives::LessLikely;
    for (rank, own) in culprits.iter().filter_map(|rank| Some((*rank, job.rank(*rank)?))) {
        let Some(first) = own.calls.first().filter(|_| own.is_cut()) else { continue };
        if own.calls.iter().any(waits) && !own.recording.dropped_ended {
            blind.push(rank);
            most = if waits(first) { Alternatives::AsLikely } else { most };
        }
    }
    if blind.is_empty() {
        return None;
    }
    let ring = if blind.len() == 1 { "The ring" } else { "The rings" };
    let have = if blind.len() == 1 { "has" } else { "have" };
    let why = format!(
        "{ring} of {} {have} dropped what came before {} last calls, which have not all ended: what holds \
         {} up may be among that.",
        ranks(&blind),
        if blind.len() == 1 { "its" } else { "their" },
        if blind.len() == 1 { "it" } else { "them" },
    );
    Some(Doubt::not_seen(most, why))
}

/// Ranks on gloo whose last call ended, and behind which none of those who made it went on: it may have
/// failed on them, for want of a rank of which nothing is known. It most likely has where it ended on
/// some of its ranks only, and who its members are had to be worked out: there may be more.
fn failed(job: &Job<'_>, culprits: &[GlobalRank]) -> Option<Doubt> {
    let (most, failed) = culprits.iter().find_map(|rank| {
        let record = job.rank(*rank)?.calls.last()?;
        let group = record.call.group;
        let (gloo, seq) = (job.group(group)?.backend() == BackendName::Gloo, record.seq?);
        let rows = job.rows_of(group);
        let row = rows.get(rows.binary_search_by_key(&seq, |row| row.seq).ok()?)?;
        let ended = |made: &Made<'_>| !made.pending();
        let some = row.open() && row.made.iter().any(ended) && needs_all(&record.call.op);
        let most = match some && job.members_are_worked_out(group) {
            true => Alternatives::AsLikely,
            false => Alternatives::LessLikely,
        };
        let ended = record.state == CallState::Completed || most == Alternatives::AsLikely;
        let held = gloo && ended && row.made.len() > 1 && job.ends_in(group, seq);
        held.then(|| row.of(*rank)).flatten().map(|made| (most, made))
    })?;
    let unheard = job.log.ranks.iter().any(Option::is_none);
    let want = if unheard { ", for want of a rank that left no dump" } else { "" };
    let why = match most {
        Alternatives::AsLikely => format!(
            "Some came out of {} and some did not, and nobody is seen to go on behind it: most likely it \
             failed, which gloo's recorder does not tell from its end{want}.",
            words::call(job.log, failed)
        ),
        _ => format!(
            "Nobody is seen to go on behind {}: it may have failed, which gloo's recorder does not tell from \
             its end{want}.",
            words::call(job.log, failed)
        ),
    };
    Some(Doubt::not_seen(most, why))
}

/// A call under whose number those who came did not call the same: what the others have to come to is not
/// known.
fn at_odds(job: &Job<'_>, claim: &Claim) -> Option<Doubt> {
    let (group, seq) = claim.group.zip(claim.seq)?;
    let p2p = claim.op.as_deref().is_some_and(|op| op.contains("send") || op.contains("recv"));
    let rows = job.rows_of(group);
    let row = rows.get(rows.binary_search_by_key(&seq, |row| row.seq).ok()?)?;
    let mut signatures = row.made.iter().map(|made| CallSignature::of(&made.record.call));
    let first = signatures.next().filter(|_| !p2p)?;
    signatures.any(|other| first.difference(&other).is_some()).then(|| {
        Doubt::not_seen(
            Alternatives::LessLikely,
            "Those that came there did not call the same.".to_owned(),
        )
    })
}

/// The evidence that the job may have been running when it was recorded: ranks that wait for nobody stand
/// in several places, or a call is under way that everybody made and nothing holds up.
fn running(facts: &Facts<'_, '_>, claims: &[Claim]) -> Option<Doubt> {
    let job = facts.job;
    let never = || claims.iter().filter(|claim| claim.kind == Kind::RankNeverJoined);
    let idle: BTreeSet<GlobalRank> =
        never().flat_map(|claim| claim.culprits.iter().copied()).collect();
    let place = |rank: &GlobalRank| {
        let last = job.rank(*rank)?.calls.last()?;
        // Stages of a pipeline differ in how many sends and receives they make.
        let seq = last.seq.filter(|_| !last.call.p2p);
        Some((job.roles().role(last.call.group), last.call.p2p, seq))
    };
    let places: BTreeSet<_> = idle.iter().map(place).collect();
    if places.len() > 1 || never().count() > 1 {
        let idle: Vec<GlobalRank> = idle.into_iter().collect();
        return Some(still_running(format!(
            "{} stand in several places and wait for nobody: if the job was still running when it was \
             recorded, they were on their way.",
            words::cap_ranks(&idle)
        )));
    }
    let recorded = job.log.logs().map(|(rank, _)| rank).take(ASKED);
    let full = recorded.filter(|_| !idle.is_empty()).find_map(|rank| {
        let (_, row) = full_rows(facts, rank).next()?;
        let mut signatures = row.made.iter().map(|made| CallSignature::of(&made.record.call));
        let first = signatures.next()?;
        signatures.all(|other| first.difference(&other).is_none()).then(|| row.of(rank)).flatten()
    })?;
    Some(still_running(format!(
        "All of its ranks made {}, and nothing seen holds it up: if it was on its way, the job was still \
         running when it was recorded.",
        words::call(job.log, full)
    )))
}

fn still_running(text: String) -> Doubt {
    Doubt { reason: Reason::StillRunning, weight: Alternatives::LessLikely, text }
}

/// The note that dumps are of different moments, where the calls show it.
pub(crate) fn dumped_early(job: &Job<'_>) -> Option<String> {
    let early = job.log.logs().filter(|(_, own)| own.recording.dumped_early);
    let early: Vec<GlobalRank> = early.map(|(rank, _)| rank).collect();
    let (dump, was) = match early.len() {
        0 => return None,
        1 => ("dump", "was"),
        _ => ("dumps", "were"),
    };
    Some(format!(
        "The {dump} of {} {was} made before the others': others have come out of collectives that \
         need it, and gone on. What it did after that is not known, so it is not blamed. Dump all \
         ranks once the job hangs.",
        ranks(&early)
    ))
}
