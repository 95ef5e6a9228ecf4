//! Findings of ranks that others wait for and that wait for nobody: dead, missing, slow, or busy
//! with something else.

use super::causes::{Cause, Scene, evidence, no_call};
use super::differing::{
    FIX_EXTRA, FIX_UNUSED, extra, fix_loop, fix_skipped, skipped, unused, waits,
};
use super::explain::{Reason, alike_since, from_plan_of, skipped_by_lines};
use super::in_ddp;
use super::index::{Made, Row};
use super::inside;
use super::monitored;
use super::p2p::PendingP2p;
use super::report::{Certainty, Evidence, Kind};
use super::straggler::Straggler;
use super::words::{self, cap_ranks, capital, ranks};
use crate::rank::GlobalRank;
use crate::trace::RankState;

/// The finding of the rank whose death ended the job.
pub(super) fn death(scene: &Scene<'_, '_>, rank: GlobalRank) -> Option<Cause> {
    let log = scene.job.log;
    let own = scene.job.rank(rank);
    let how = match (&log.outcome, own.map(|own| &own.state)) {
        (crate::trace::Outcome::RankDied { how, .. }, _) => how.clone(),
        (_, Some(RankState::Died { how })) => how.clone(),
        _ => "for an unknown reason".to_owned(),
    };
    let last = own.and_then(|own| own.calls.last()).map(|record| Made { rank, record });
    let stood = match last {
        Some(last) => format!(" Its last call was {}.", words::call(log, last)),
        None => " It had not made a call yet.".to_owned(),
    };
    let (row, _) =
        rows_without(scene, rank).min_by_key(|(row, _)| (row.first_ps(), row.group)).unzip();
    let waiting = match row {
        Some(row) => format!(
            " {} in {}.",
            capital(&waits(&row.waiting())),
            row.made.first().map(|made| words::call(log, *made)).unwrap_or_default()
        ),
        None => String::new(),
    };
    let call = row.and_then(|row| row.made.first().copied()).or(last);
    let (kind, fix) = death_by(&how);
    Some(Cause {
        kind,
        culprits: vec![rank],
        also_victims: Vec::new(),
        group: call.map(|made| made.record.call.group),
        seq: call.and_then(|made| made.record.seq),
        op: call.map(|made| made.record.call.op.clone()),
        certainty: Certainty::Certain,
        message: format!("Rank {rank} died: {}.{stood}{waiting}", how.trim_end_matches('.')),
        fix: fix.to_owned(),
        evidence: match last {
            Some(last) => vec![evidence(scene, last, "last called")],
            None => vec![no_call(rank, "died before its first call")],
        },
    })
}

/// What kind of death its last words tell of, and what to do about it.
fn death_by(how: &str) -> (Kind, &'static str) {
    let said = |words: &[&str]| words.iter().any(|words| how.contains(words));
    // `reducer.cpp`: what a rank says that skipped a bucket, when its next pass begins.
    if said(&["Expected to have finished reduction in the prior iteration"]) {
        return (Kind::DdpUnusedParameters, FIX_UNUSED);
    }
    // `verify_params_across_processes` in `reducer.cpp`.
    if said(&["DDP expects same model across all ranks", "appears not to match sizes of the same"])
    {
        return (
            Kind::DdpModelMismatch,
            "Build the same model on every rank, with its parameters in the same order: look for \
             layers made in the order of a set, for a config or a checkpoint that differs, for a \
             branch on the rank.",
        );
    }
    // `Join` with throw_on_early_termination.
    if said(&["exhausted all inputs", "at least one rank that exhausted inputs"]) {
        return (Kind::DdpUnevenInputs, fix_loop(true));
    }
    (
        Kind::RankDied,
        "Look at the end of the rank's own log and at its machine (out of memory, a device error, \
         a preemption): the others only waited for it.",
    )
}

/// Open rows that lack a rank, and who waits in them.
fn rows_without<'s, 'a>(
    scene: &'s Scene<'a, '_>,
    rank: GlobalRank,
) -> impl Iterator<Item = (&'s Row<'a>, usize)> {
    scene.job.open_rows().filter(move |(_, row)| row.lacks(rank)).map(|(at, row)| (row, at))
}

/// The findings of ranks at which waiting ends. Ranks that are missed in the same call are one
/// finding.
pub(super) fn causes(scene: &Scene<'_, '_>, alone: &[GlobalRank]) -> Vec<Cause> {
    let mut parts: Vec<(Vec<GlobalRank>, Vec<usize>)> = Vec::new();
    for rank in alone {
        let recorded = scene.job.rank(*rank).is_some();
        let mut merged =
            (vec![*rank], rows_without(scene, *rank).map(|(_, at)| at).collect::<Vec<_>>());
        // Union with every part that shares a row; a rank with no dump is told apart.
        parts.retain(|(ranks, rows)| {
            let alike =
                ranks.first().is_some_and(|first| scene.job.rank(*first).is_some() == recorded);
            let shares = alike && rows.iter().any(|row| merged.1.binary_search(row).is_ok());
            if shares {
                merged.0.extend(ranks);
                merged.1.extend(rows);
                merged.1.sort_unstable();
                merged.1.dedup();
            }
            !shares
        });
        merged.0.sort_unstable();
        parts.push(merged);
    }
    let mut found = Vec::new();
    for (ranks, rows) in parts {
        let rows = rows.iter().filter_map(|at| scene.job.rows.get(*at));
        let lacking = |row: &Row<'_>| ranks.iter().filter(|rank| row.lacks(**rank)).count();
        let row = rows.min_by_key(|row| {
            (std::cmp::Reverse(lacking(row)), row.first_ps(), row.group, row.seq)
        });
        match row {
            Some(row) => found.extend(never_joined(scene, &ranks, row).map(|mut cause| {
                if let Some(said) = monitored::said(scene, row, &cause.culprits) {
                    cause.message = format!("{} In the log: \"{said}\".", cause.message);
                }
                cause
            })),
            None => {
                found.extend(ranks.iter().filter_map(|rank| {
                    unanswered(scene, *rank).or_else(|| lost_with(scene, *rank))
                }))
            }
        }
    }
    found
}

fn never_joined(scene: &Scene<'_, '_>, culprits: &[GlobalRank], row: &Row<'_>) -> Option<Cause> {
    let job = scene.job;
    let log = job.log;
    let waiting = row.waiting();
    let made = row.made.iter().find(|made| made.pending()).copied()?;
    let call = words::call(log, made);
    let there = format!("{} there", waits(&waiting));
    let first = *culprits.first()?;
    let mut shown: Vec<Evidence> = row
        .made
        .iter()
        .filter(|made| made.pending())
        .take(4)
        .map(|made| evidence(scene, *made, "waits in"))
        .collect();
    let base = Cause {
        kind: Kind::RankNeverJoined,
        culprits: culprits.to_vec(),
        also_victims: Vec::new(),
        group: Some(row.group),
        seq: Some(row.seq),
        op: Some(made.record.call.op.clone()),
        certainty: if job.members_are_worked_out(row.group)
            && job.last_call(row.group, first).is_none()
        {
            Certainty::Likely
        } else {
            Certainty::Certain
        },
        message: String::new(),
        fix: String::new(),
        evidence: Vec::new(),
    };
    if job.rank(first).is_none() {
        shown.extend(culprits.iter().take(16).map(|rank| no_call(*rank, "left no dump")));
        // Without the missing ranks the call cannot have ended well for anybody.
        let others = row.made.iter().map(|made| made.rank).collect();
        return Some(Cause {
            kind: Kind::RankMissing,
            also_victims: others,
            certainty: if row.absent.is_empty() { Certainty::Likely } else { Certainty::Undecidable },
            message: format!(
                "Nothing was recorded of {}, and {} in {call}. Most likely {} crashed or {} killed \
                 before the others noticed.",
                ranks(culprits),
                waits(&waiting),
                if culprits.len() == 1 { "it" } else { "they" },
                if culprits.len() == 1 { "was" } else { "were" },
            ),
            fix: "Look at the end of the missing rank's own log and at its machine (out of memory, a \
                  device error, a preemption). If its dump exists, add it."
                .to_owned(),
            evidence: shown,
            ..base
        });
    }
    shown.extend(culprits.iter().take(16).map(|rank| where_it_stands(scene, *rank, row)));
    let (who, group) = (cap_ranks(culprits), words::group_label(log, row.group));
    if let Some(cause) = inside::cause(scene, culprits) {
        return Some(cause);
    }
    if let Some((kind, why, fix)) = culprits
        .iter()
        .map(|rank| in_ddp::reason(scene, *rank, row.group, made))
        .collect::<Option<Vec<_>>>()
        .and_then(|reasons| reasons.first().copied())
    {
        return Some(Cause {
            kind,
            certainty: Certainty::Likely,
            message: format!("{who} never called {call}; {there}. {why}"),
            fix: fix.to_owned(),
            evidence: shown,
            ..base
        });
    }
    if culprits.len() > waiting.len()
        && row.absent == culprits
        && let Some(cause) = alone_in_it(scene, culprits, row, base.clone(), &shown)
    {
        return Some(cause);
    }
    let why = match from_plan_of(job, row.group, first, made.rank) {
        Reason::Other => skipped_by_lines(job, row.group, row.seq, first, made.rank),
        known => known,
    };
    match why {
        Reason::Skipped(deed) => {
            let then = if deed.seq == row.seq {
                format!("{} there.", capital(&waits(&waiting)))
            } else {
                format!(
                    "Its later calls were matched one too early, so that {} now wait{} in {call}.",
                    ranks(&waiting),
                    words::s(&waiting)
                )
            };
            return Some(Cause {
                kind: Kind::OpSkipped,
                seq: Some(deed.seq),
                op: Some(deed.op.clone()),
                certainty: deed.certainty,
                message: format!("{} {then}", skipped(&who, &deed, &group)),
                fix: fix_skipped(deed.ddp),
                evidence: shown,
                ..base
            });
        }
        Reason::Unused(deed) => {
            return Some(Cause {
                kind: Kind::DdpUnusedParameters,
                seq: Some(deed.seq),
                op: Some(deed.op.clone()),
                certainty: deed.certainty,
                message: format!("{} {there}.", unused(&who, &deed, &group)),
                fix: FIX_UNUSED.to_owned(),
                evidence: shown,
                ..base
            });
        }
        Reason::LeftLoop { ddp, short_by, .. } => {
            let by = short_by.map(|calls| format!(", {} short", words::count(calls, "call")));
            return Some(Cause {
                kind: if ddp { Kind::DdpUnevenInputs } else { Kind::LoopShorter },
                message: format!(
                    "{who} left the {}loop before the others{}: {} in {call}.",
                    if ddp { "DDP training " } else { "" },
                    by.unwrap_or_default(),
                    waits(&waiting)
                ),
                fix: fix_loop(ddp).to_owned(),
                evidence: shown,
                ..base
            });
        }
        Reason::Extra(_) | Reason::Swapped(_) | Reason::Other => {}
    }
    let stands = match culprits {
        [rank] => stands(scene, *rank, row),
        many if many.iter().all(|rank| device_stall(scene, *rank)) => {
            " Their own last calls did not complete on them, though they did on others: most \
             likely their devices or processes are stuck."
                .to_owned()
        }
        many if many.iter().all(|rank| idle(scene, *rank)) => {
            " They have no call under way: they are stuck in their own code, or ended.".to_owned()
        }
        _ => String::new(),
    };
    let alike = match (&log.plan, alike_since(job, row.group, row.seq, first)) {
        (None, Some(from))
            if from < row.seq
                && culprits.iter().all(|rank| {
                    idle(scene, *rank) && {
                        let last = job.rank(*rank).and_then(|log| log.calls.last());
                        last.is_some_and(|last| last.call.group == row.group)
                    }
                }) =>
        {
            format!(
                " Or it left out one of #{from} to #{}, which are all alike, and is past the loop: \
                 the recording cannot tell.",
                row.seq
            )
        }
        _ => String::new(),
    };
    Some(Cause {
        message: format!("{who} never called {call}; {there}.{stands}{alike}"),
        fix: fix_never_joined(scene, first),
        evidence: shown,
        ..base
    })
}

/// The finding of a call that only a minority made, while nothing holds the others: by majority,
/// those who made it are the odd ones out.
fn alone_in_it(
    scene: &Scene<'_, '_>,
    absent: &[GlobalRank],
    row: &Row<'_>,
    base: Cause,
    shown: &[Evidence],
) -> Option<Cause> {
    let job = scene.job;
    let made = row.made.iter().find(|made| made.pending()).copied()?;
    let stuck = absent.iter().any(|rank| device_stall(scene, *rank));
    let planned = job.log.plan.is_some();
    let not_theirs = matches!(
        from_plan_of(job, row.group, *absent.first()?, made.rank),
        Reason::Skipped(_) | Reason::Unused(_) | Reason::LeftLoop { .. }
    );
    if stuck || (planned && !not_theirs) {
        return None;
    }
    let waiting = row.waiting();
    if let ([rank], Some(peer)) = (waiting.as_slice(), absent.first())
        && let Reason::Skipped(deed) = skipped_by_lines(job, row.group, row.seq, *peer, *rank)
    {
        // What the others seem to have left out is what the one made on top.
        let call = words::call(job.log, made);
        return Some(Cause {
            kind: Kind::OpExtra,
            culprits: waiting.clone(),
            seq: Some(deed.seq),
            op: Some(deed.op.clone()),
            certainty: deed.certainty,
            message: format!(
                "{} Since then its calls were matched one too late, and it waits alone in {call}.",
                extra(&cap_ranks(&waiting), &deed, &words::group_label(job.log, row.group))
            ),
            fix: FIX_EXTRA.to_owned(),
            evidence: shown.to_vec(),
            ..base
        });
    }
    let call = words::call(job.log, made);
    let unsure = " If they should have made it too, look at what all of them do instead.";
    Some(Cause {
        kind: Kind::OpExtra,
        culprits: waiting.clone(),
        certainty: if planned { Certainty::Certain } else { Certainty::Likely },
        message: format!(
            "{} alone called {call} and wait{} there; {} never did, and {} for nothing.{}",
            cap_ranks(&waiting),
            words::s(&waiting),
            ranks(absent),
            if absent.len() == 1 { "waits" } else { "wait" },
            if planned { "" } else { unsure },
        ),
        fix: FIX_EXTRA.to_owned(),
        evidence: shown.to_vec(),
        ..base
    })
}

fn fix_never_joined(scene: &Scene<'_, '_>, rank: GlobalRank) -> String {
    match scene.job.rank(rank).map(|log| &log.state) {
        Some(RankState::Finished) => {
            "Make every rank of the group make the call: look for a branch or a loop that ends \
             earlier on this rank."
        }
        _ => {
            "Look at what the rank does between its last call and this one: a data loader or a \
             checkpoint that blocks, a branch around the call, an exception that was swallowed, a \
             device error. py-spy dump --pid shows where it stands."
        }
    }
    .to_owned()
}

/// ` Its last call was …`, or where its plan says that it stands.
fn stands(scene: &Scene<'_, '_>, rank: GlobalRank, row: &Row<'_>) -> String {
    let log = scene.job.log;
    let Some(own) = scene.job.rank(rank) else { return String::new() };
    let last = own.calls.last().map(|record| Made { rank, record });
    match (&own.state, last) {
        (RankState::Finished, _) => " It finished its program without it.".to_owned(),
        (RankState::AtOp { name, line, .. }, _) if !name.is_empty() => {
            format!(" It stands at {name}{}.", words::at_line(line.clone()))
        }
        (_, Some(last)) if last.pending() => match device_stall(scene, rank) {
            true => format!(
                " Its own last calls, up to {}, did not complete on it, though they did on others: \
                 most likely its device or its process is stuck.",
                words::call(log, last)
            ),
            false => format!(" Its last call was {}.", words::call(log, last)),
        },
        (_, Some(last)) => {
            let same = last.record.call.group == row.group;
            let so = if same {
                ", which completed: it is stuck in its own code after it, or ended"
            } else {
                ""
            };
            format!(" Its last call was {}{so}.", words::call(log, last))
        }
        (_, None) => " It has no call under way: it is stuck in its own code, or ended.".to_owned(),
    }
}

/// True if a call of the rank is pending that others saw complete.
fn device_stall(scene: &Scene<'_, '_>, rank: GlobalRank) -> bool {
    let stalled = |row: &Row<'_>| {
        row.of(rank).is_some_and(|own| own.pending()) && row.made.iter().any(|made| !made.pending())
    };
    let is_behind = |row: &Row<'_>| {
        // Recordings of active calls only: the others have dropped what they completed.
        row.of(rank).is_some_and(|own| own.pending())
            && row.made.len() == 1
            && row.absent.is_empty()
    };
    scene.job.open_rows().any(|(_, row)| stalled(row) || is_behind(row))
}

/// True if nothing of the rank is pending.
pub(super) fn idle(scene: &Scene<'_, '_>, rank: GlobalRank) -> bool {
    let calls = scene.job.rank(rank).map(|log| log.calls.as_slice()).unwrap_or_default();
    !calls.iter().any(|record| Made { rank, record }.pending())
}

fn where_it_stands(scene: &Scene<'_, '_>, rank: GlobalRank, row: &Row<'_>) -> Evidence {
    let last = scene.job.last_call(row.group, rank).or_else(|| scene.job.rank(rank)?.calls.last());
    match last {
        Some(record) => evidence(scene, Made { rank, record }, "last called"),
        None => no_call(rank, "made no call that is still recorded"),
    }
}

/// A rank of which nothing was recorded, and whose partners' calls ended with it: gloo's calls fail
/// when a member is gone, and its recorder takes that for their end.
fn lost_with(scene: &Scene<'_, '_>, rank: GlobalRank) -> Option<Cause> {
    let job = scene.job;
    let last: Vec<Made<'_>> = job.last_with(rank).collect();
    let made = *last.first()?;
    let partners: Vec<GlobalRank> = last.iter().map(|made| made.rank).collect();
    Some(Cause {
        kind: Kind::RankMissing,
        culprits: vec![rank],
        also_victims: partners.clone(),
        group: Some(made.record.call.group),
        seq: made.record.seq,
        op: Some(made.record.call.op.clone()),
        certainty: Certainty::Likely,
        message: format!(
            "Nothing was recorded of rank {rank}, and the last call of {} was one with it: {}. Most \
             likely it crashed or was killed, and that call failed.",
            ranks(&partners),
            words::call(job.log, made),
        ),
        fix: "Look at the end of the missing rank's own log and at its machine (out of memory, a \
              device error, a preemption). If its dump exists, add it."
            .to_owned(),
        evidence: last
            .iter()
            .take(8)
            .map(|made| evidence(scene, *made, "last called"))
            .chain([no_call(rank, "left no dump")])
            .collect(),
    })
}

/// A rank that makes fewer sends or receives than its peers expect of it, or more than they
/// answer.
pub(super) fn silent(scene: &Scene<'_, '_>, rank: GlobalRank) -> Option<Cause> {
    let expected = scene.p2p.iter().any(|pending| pending.never && pending.peer == rank);
    if expected {
        return unanswered(scene, rank);
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

/// A rank whose answer to a send or receive never came.
pub(super) fn unanswered(scene: &Scene<'_, '_>, rank: GlobalRank) -> Option<Cause> {
    let log = scene.job.log;
    let waits: Vec<&PendingP2p<'_>> = scene
        .p2p
        .iter()
        .filter(|pending| pending.partner.is_none() && pending.peer == rank)
        .collect();
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
    Some(Cause {
        kind,
        culprits: vec![rank],
        also_victims: Vec::new(),
        group: Some(made.record.call.group),
        seq: made.record.seq,
        op: Some(made.record.call.op.clone()),
        certainty: if own.is_some() { Certainty::Certain } else { Certainty::Likely },
        message: format!("{what} rank {} waits in {call}.{ended}", made.rank),
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

/// The finding of a slow rank.
pub(super) fn slow(scene: &Scene<'_, '_>, slow: &Straggler) -> Cause {
    let log = scene.job.log;
    let group = words::group_label(log, slow.group);
    let last = scene.job.last_call(slow.group, slow.rank);
    let others = log.groups.get(slow.group.index()).map(|group| group.ranks().to_vec());
    let mut others = others.unwrap_or_default();
    others.retain(|rank| *rank != slow.rank);
    others.sort_unstable();
    let seen = last.map(|record| Made { rank: slow.rank, record });
    Cause {
        kind: Kind::Straggler,
        culprits: vec![slow.rank],
        message: format!(
            "Nothing hangs: rank {} is slow. It came last to {} of the last {} of {group}, and {} \
             waited for it, {} in the median.",
            slow.rank,
            slow.late,
            words::count(slow.calls, "call"),
            ranks(&others),
            words::duration(slow.median_ps),
        ),
        fix: "Compare this rank's time between the calls with the others': its data loader, its \
              machine's load, its device's clocks and temperature."
            .to_owned(),
        also_victims: others,
        group: Some(slow.group),
        seq: Some(slow.seq),
        op: last.map(|record| record.call.op.clone()),
        certainty: Certainty::Likely,
        evidence: seen.map(|made| evidence(scene, made, "came late to")).into_iter().collect(),
    }
}
