//! Decides between what the calls show and what the logs say.

use crate::claim::Claim;
use crate::claim::message::Message;
use crate::facts::alternatives::Alternatives;
use crate::facts::other_sources::OtherSources;
use crate::kinds::Kind;
use crate::logs;
use crate::logs::{ended_ranks, watchdogs};
use lockstep_core::rank::GlobalRank;
use lockstep_formats::job_log::{Heard, Said};
use std::collections::BTreeSet;

/// `torch.multiprocessing` counts processes, not ranks.
const SPAWNED: &str = "torch.multiprocessing numbers the processes that it starts, and what it says of \
                       process N is told of rank N, as spawn() has it by default: where a job counts its \
                       ranks otherwise, or has several machines, it is another rank.";

/// The fix of a step that one rank skips after an error.
const TOGETHER: &str = "Let no rank skip a step alone: all_reduce a flag before the backward pass and have all ranks \
                        skip the step, or let the error end the job.";

/// So many errors of processes whose rank nothing tells are notes.
const UNNAMED: usize = 4;

/// The claims of the calls, most important first, together with those of the logs: a claim of the same ranks takes
/// the log's word for the kind, anything else stands beside it. `world` ranks are known of, 0 where there are no
/// calls.
pub(crate) fn decide(
    of_calls: Vec<Claim>,
    sources: &OtherSources<'_>,
    world: u32,
    notes: &mut Vec<String>,
) -> Vec<Claim> {
    let heard = &sources.heard;
    let mut claims = of_calls;
    let from_calls = !claims.is_empty();
    for (job, own) in &heard.jobs {
        let own = OtherSources {
            heard: own.clone(),
            stacks: sources.stacks.clone(),
            ..OtherSources::default()
        };
        let apart = decide(Vec::new(), &own, 0, notes);
        claims.extend(apart.into_iter().map(|mut claim| {
            let said = &claim.message.said;
            claim.message.said = format!("Of the job whose lines begin with ({job} pid=…): {said}");
            claim
        }));
    }
    if heard.jobs.len() > 1 {
        let names: Vec<&str> = heard.jobs.keys().map(String::as_str).collect();
        notes.push(format!(
            "One log holds the lines of several jobs ({}): the ranks of each were compared with each other only.",
            names.join(", ")
        ));
    }
    let disagree = claims.iter().any(|it| shows_disagreement(it.kind));
    for logged in logs::claims(sources, world) {
        // When calls disagree the job fails, and its processes close their connections.
        if logged.kind == Kind::NetworkError && disagree {
            notes.push(format!(
                "{} No network makes calls disagree: mend those first.",
                logged.message.text()
            ));
            continue;
        }
        add(&mut claims, logged, heard, from_calls);
    }
    // Calls tell more of a disagreement than the one line that each watchdog writes.
    let alone = claims.is_empty();
    for logged in watchdogs::differing(&heard.statements, heard.world(world)) {
        match claims.iter_mut().find(|known| known.culprits == logged.culprits) {
            Some(known) => known.evidence.extend(logged.evidence),
            None if alone => claims.push(logged),
            None => {}
        }
    }
    // The log names the ranks in a call that no recorder holds: they do not wait for nothing.
    let never = |it: &&Claim, sure| it.kind == Kind::RankNeverJoined && it.open() == sure;
    let named = claims.iter().filter(|it| never(it, Alternatives::None));
    let named: Vec<GlobalRank> = named.flat_map(|it| it.culprits.clone()).collect();
    claims.retain(|claim| {
        !never(&claim, Alternatives::AsLikely)
            || !named.iter().any(|rank| claim.culprits.contains(rank))
    });
    if claims.is_empty() {
        claims.extend(ended_ranks::unnamed(&heard.unnamed));
    } else {
        // The cause is told; the ranks that gave up because of it are no news.
        let no_news =
            |said: &Said| matches!(said, Said::GaveUp { .. } | Said::NetworkFailed { .. });
        let raised = heard.unnamed.iter().filter(|it| !no_news(&it.said));
        notes.extend(raised.take(UNNAMED).map(ended_ranks::note));
    }
    for claim in &mut claims {
        if let Some(said) = caught_error(claim, heard) {
            claim.message.added.push(said);
            claim.fix = format!("{TOGETHER} {}", claim.fix);
        }
    }
    if heard.spawned && !claims.is_empty() {
        notes.push(SPAWNED.to_owned());
    }
    claims
}

/// A line of the log about memory that ran out, where the ranks to blame left calls out: a loop that catches the error
/// goes on without the rest of that step's calls.
fn caught_error(claim: &Claim, heard: &Heard) -> Option<String> {
    let leaves_out =
        matches!(claim.kind, Kind::OpSkipped | Kind::LoopShorter | Kind::DdpUnevenInputs);
    let of_culprit = |rank: Option<u64>| {
        rank.is_none_or(|rank| claim.culprits.iter().any(|known| u64::from(known.0) == rank))
    };
    let (file, error) = heard.errors.iter().find(|(_, error)| {
        let text = error.text.to_lowercase();
        of_culprit(error.rank) && (text.contains("out of memory") || text.contains("outofmemory"))
    })?;
    leaves_out.then(|| {
        format!(
            "The log says \"{}\" ({file}:{}): if that was the rank to blame, it caught the error and went on without \
             the rest of that step's calls.",
            error.text, error.line
        )
    })
}

/// Adds a claim of the logs to those that are known, or to the one that it explains. Some are `from_calls`.
fn add(claims: &mut Vec<Claim>, logged: Claim, heard: &Heard, from_calls: bool) {
    let same = |known: &Claim| known.culprits == logged.culprits;
    let guess = logged.open() != Alternatives::None
        && matches!(
            logged.kind,
            Kind::RankNeverJoined
                | Kind::CallNeverCompleted
                | Kind::OpExtra
                | Kind::CollectiveMismatch
        );
    // The cause is told; the timeouts that it led to are no news.
    let undecided = logged.open() == Alternatives::AsLikely && !claims.is_empty();
    let among_calls = from_calls && !claims.iter().any(same);
    // A connection that is closed says that a process ended, and not why: where calls tell of a hang, it
    // may be one that was ended because of that.
    let closed = logged.kind == Kind::RankDied && !ended_ranks::says_of(heard, &logged.culprits);
    if (guess || closed) && (undecided || among_calls) {
        return;
    }
    // Recorded calls describe a disagreement better than a log's line, or another tool's reading of the same dumps.
    let told_better = |known: &&mut Claim| {
        let other = known.kind != logged.kind && known.culprits == logged.culprits;
        other && shows_disagreement(known.kind) && known.open() <= logged.open()
    };
    if from_calls
        && shows_disagreement(logged.kind)
        && let Some(known) = claims.iter_mut().find(told_better)
    {
        known.evidence.extend(logged.evidence);
        return;
    }
    // A rank that goes on without a barrier that no recorder holds seems to make an extra call.
    let passed_by = |known: &Claim| {
        let sure = logged.kind == Kind::RankNeverJoined && logged.open() < known.open();
        sure && known.kind == Kind::OpExtra && same(known)
    };
    let explained = claims.iter_mut().find(|known| {
        let among = known.culprits.iter().all(|rank| logged.culprits.contains(rank));
        let told = known.kind == logged.kind || leaves_cause_open(known.kind) || passed_by(known);
        // Nothing is known of who left no dump, but for what others' logs say.
        let lost = known.kind == Kind::RankMissing && same(known);
        among && told && (lost || known.open() != Alternatives::AsLikely)
    });
    match explained {
        Some(known) => {
            // Calls that show a loop's end say more than where each rank gave up.
            let knows_less = logged.kind == Kind::RankNeverJoined
                || (known.kind, logged.kind) == (Kind::LoopShorter, Kind::CollectiveMismatch);
            if !knows_less || passed_by(known) {
                // The log settles guesses and doubts.
                let said = format!("{} {}", logged.message.text(), known.message.said);
                let added = std::mem::take(&mut known.message.added);
                known.message = Message { said, added, ..Message::default() };
                (known.kind, known.alternatives, known.fix) =
                    (logged.kind, logged.alternatives, logged.fix);
            }
            known.evidence.extend(logged.evidence);
        }
        None if closed && from_calls => {}
        // Calls tell more of what a rank did than the lines at which all gave up.
        None => match claims.iter_mut().find(|known| guess && from_calls && same(known)) {
            Some(known) => known.evidence.extend(logged.evidence),
            None => claims.push(logged),
        },
    }
}

/// True of a kind that says what a rank did not do, and not why: a log may know.
fn leaves_cause_open(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::RankNeverJoined
            | Kind::DdpUnusedParameters
            | Kind::DdpModelMismatch
            | Kind::DdpUnevenInputs
            | Kind::LoopShorter
            | Kind::CallNeverCompleted
            | Kind::RankMissing
    )
}

/// True for the kinds in which ranks made different calls, which no network can cause.
fn shows_disagreement(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::GroupDeadlock
            | Kind::P2pDeadlock
            | Kind::CollectiveMismatch
            | Kind::OpsSwapped
            | Kind::OpSkipped
            | Kind::OpExtra
            | Kind::SizeMismatch
            | Kind::DtypeMismatch
            | Kind::ReduceOpMismatch
            | Kind::RootMismatch
            | Kind::SplitMismatch
            | Kind::GroupMismatch
            | Kind::P2pMismatch
    )
}

/// The number of ranks: those of the calls, and those that logs and claims name.
pub(crate) fn world_size(from_calls: u32, claims: &[Claim], heard: &Heard) -> u32 {
    let of_jobs = heard.jobs.values().map(|own| world_size(0, &[], own));
    let named = claims.iter().flat_map(|claim| claim.culprits.iter().copied());
    let said = heard.statements.iter().map(|it| it.rank);
    let ranks: BTreeSet<GlobalRank> = named.chain(said).collect();
    let above = ranks.last().map_or(0, |rank| rank.0.saturating_add(1));
    // A process whose rank nothing tells is one all the same.
    let told = !heard.is_empty() || !heard.wrote.is_empty();
    let above = match from_calls == 0 && told {
        true => heard.world(above).max(1),
        false => above,
    };
    of_jobs.fold(from_calls.max(above), u32::max)
}
