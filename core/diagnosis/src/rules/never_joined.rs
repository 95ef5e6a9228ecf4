//! Findings of ranks that others wait for and that wait for nobody: missing, or busy with something
//! else.

use crate::claim::deed_text::{FIX_UNUSED, fix_skipped, skipped, unused};
use crate::claim::message::{Guess, Message};
use crate::claim::{Claim, evidence, no_call};
use crate::facts::alternatives::Alternatives;
use crate::facts::deed::Reason;
use crate::facts::loops::{alike_since, fix_loop, left_out};
use crate::facts::pauses;
use crate::facts::reason::from_plan_of;
use crate::facts::skipped_line::skipped_by_lines;
use crate::facts::tally::Tally;
use crate::facts::{Facts, device_stall, full_rows, idle, rows_without};
use crate::kinds::Kind;
use crate::model::index::{Job, Made, Row};
use crate::report::Evidence;
use crate::rules::ddp_models;
use crate::rules::ddp_passes;
use crate::rules::ddp_waits;
use crate::rules::extra_callers;
use crate::rules::monitored_barrier;
use crate::rules::out_of_step::skipped_among_groups;
use crate::rules::rank_missing;
use crate::rules::send_recv_pairs;
use crate::rules::stuck_inside;
use crate::rules::unanswered_message::unanswered;
use crate::rules::wrong_group;
use crate::words;
use crate::words::{cap_ranks, capital, ranks, waits};
use lockstep_core::group::BackendName;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Outcome, RankState};

/// The findings of ranks at which waiting ends. Ranks that are missed in the same call are one
/// finding.
pub(crate) fn claims(facts: &Facts<'_, '_>, alone: &[GlobalRank]) -> Vec<Claim> {
    let mut parts: Vec<(Vec<GlobalRank>, Vec<usize>)> = Vec::new();
    let unknown = |rank: &GlobalRank| {
        was_on_its_way(facts, *rank) || facts.job.rank(*rank).is_some_and(|own| own.dumped_early)
    };
    for rank in alone.iter().filter(|rank| !unknown(rank)) {
        let recorded = facts.job.rank(*rank).is_some();
        let mut merged =
            (vec![*rank], rows_without(facts, *rank).map(|(_, at)| at).collect::<Vec<_>>());
        // Union with every part that shares a row; a rank with no dump is told apart.
        parts.retain(|(ranks, rows)| {
            let alike =
                ranks.first().is_some_and(|first| facts.job.rank(*first).is_some() == recorded);
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
    let (mut found, mut alone_lost) = (Vec::new(), Vec::new());
    for (ranks, rows) in parts {
        let rows = rows.iter().filter_map(|at| facts.job.rows.get(*at));
        let lacking = |row: &Row<'_>| ranks.iter().filter(|rank| row.lacks(**rank)).count();
        // Of calls made at one time, the one that a rank made first.
        let first = |row: &Row<'_>| row.made.iter().map(|made| made.record.work).min();
        let row = rows.min_by_key(|row| {
            (std::cmp::Reverse(lacking(row)), row.first_ps(), first(row), row.group, row.seq)
        });
        match row {
            Some(row) => found.extend(never_joined(facts, &ranks, row).map(|mut claim| {
                if let Some(said) = monitored_barrier::said(facts, row, &claim.culprits) {
                    claim.message.added.push(format!("In the log: \"{said}\"."));
                }
                claim
            })),
            None => {
                let answered = ranks.iter().filter_map(|rank| unanswered(facts, *rank));
                found.extend(answered);
                alone_lost.extend(ranks);
            }
        }
    }
    found.extend(rank_missing::claims(facts, &alone_lost));
    found
}

/// True if a real run was ended by another rank's death while this one was at work: nobody knows
/// that it would not have come. Its plan may say so.
fn was_on_its_way(facts: &Facts<'_, '_>, rank: GlobalRank) -> bool {
    let job = facts.job;
    let log = job.log;
    let ended_by_a_death = matches!(log.outcome, Outcome::RankDied { .. });
    if !ended_by_a_death || log.recorded || log.simulated {
        return false;
    }
    let Some(RankState::AtOp { .. }) = job.rank(rank).map(|own| &own.state) else { return false };
    let told_by_plan = rows_without(facts, rank).any(|(row, _)| {
        let made = row.made.iter().find(|made| made.pending());
        made.is_some_and(|made| {
            !matches!(from_plan_of(job, row.group, rank, made.rank), Reason::Other)
        })
    });
    !told_by_plan
}

/// The finding of ranks that never made a call in which others wait, with the lines of their stacks.
pub(crate) fn never_joined(
    facts: &Facts<'_, '_>,
    culprits: &[GlobalRank],
    row: &Row<'_>,
) -> Option<Claim> {
    let mut claim = by_calls(facts, culprits, row)?;
    claim.add_stacks(facts.other_sources);
    Some(claim)
}

/// The finding as the calls tell it.
fn by_calls(facts: &Facts<'_, '_>, culprits: &[GlobalRank], row: &Row<'_>) -> Option<Claim> {
    let job = facts.job;
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
        .map(|made| evidence(facts, *made, "waits in"))
        .collect();
    let base = Claim {
        kind: Kind::RankNeverJoined,
        culprits: culprits.to_vec(),
        also_victims: Vec::new(),
        group: Some(row.group),
        seq: Some(row.seq),
        op: Some(made.record.call.op.clone()),
        alternatives: if job.members_are_worked_out(row.group)
            && job.last_call(row.group, first).is_none()
            // A call in which nobody is missing may hold it up as well, or one that the ring dropped.
            || culprits.iter().any(|rank| full_rows(facts, *rank).next().is_some())
            || culprits.iter().any(|rank| send_recv_pairs::stands_in_one(facts, *rank))
            || culprits.iter().filter_map(|rank| job.rank(*rank)).any(|own| !own.unended.is_empty())
        {
            Alternatives::LessLikely
        } else {
            Alternatives::None
        },
        message: String::new().into(),
        fix: String::new(),
        evidence: Vec::new(),
    };
    if job.rank(first).is_none() {
        shown.extend(culprits.iter().take(16).map(|rank| no_call(*rank, "left no dump")));
        // Without the missing ranks the call cannot have ended well for anybody.
        let others = row.made.iter().map(|made| made.rank).collect();
        let (they, were) = if culprits.len() == 1 { ("it", "was") } else { ("they", "were") };
        let needs_all = matches!(
            made.record.call.op.as_str(),
            "all_reduce" | "all_gather" | "reduce_scatter" | "all_to_all" | "barrier"
        );
        let made = row.made.iter().filter(|_| needs_all);
        let out: Vec<GlobalRank> =
            made.filter(|made| !made.pending()).map(|made| made.rank).collect();
        let gloo = job.group(row.group).is_some_and(|it| it.backend() == BackendName::Gloo);
        // A process that is stopped answers nobody who asks for its dump.
        let either = format!(
            "Either {they} {} dead, crashed or killed before the others noticed, or {} stopped and answer{} \
             nobody, or only the dump is missing.",
            if culprits.len() == 1 { "is" } else { "are" },
            if culprits.len() == 1 { "is" } else { "are" },
            words::s(culprits),
        );
        let either = match out.as_slice() {
            [] => either,
            out if gloo => format!(
                "{either} But {} came out of it: if it did not fail there, which gloo's recorder does not \
                 tell, {they} {were} in it, and only the dump is left out.",
                ranks(out)
            ),
            out => format!(
                "But {} came out of it, which needs everybody: {they} {were} in it, and only the dump is \
                 left out, or {they} crashed in it.",
                ranks(out)
            ),
        };
        return Some(Claim {
            kind: Kind::RankMissing,
            also_victims: others,
            alternatives: match row.absent.is_empty() && (out.is_empty() || gloo) {
                true => Alternatives::LessLikely,
                false => Alternatives::AsLikely,
            },
            message: Message {
                said: format!(
                    "Nothing was recorded of {}, and {} in {call}.",
                    ranks(culprits),
                    waits(&waiting)
                ),
                guess: Some(Guess::Several(either)),
                ..Message::default()
            },
            fix: "Look at the end of the missing rank's own log and at its machine (out of memory, a \
                  device error, a preemption; ps shows a stopped process as T). If its dump exists, add it."
                .to_owned(),
            evidence: shown,
            ..base
        });
    }
    shown.extend(culprits.iter().take(16).map(|rank| where_it_stands(facts, *rank, row)));
    let (who, group) = (cap_ranks(culprits), words::group_label(log, row.group));
    if let Some(claim) = stuck_inside::claim(facts, culprits) {
        return Some(claim);
    }
    if let Some((kind, why, fix)) = culprits
        .iter()
        .map(|rank| ddp_waits::reason(facts, *rank, row.group, made))
        .collect::<Option<Vec<_>>>()
        .and_then(|reasons| reasons.first().copied())
    {
        let claim = Claim {
            kind,
            alternatives: Alternatives::LessLikely,
            message: format!("{who} never called {call}; {there}. {why}").into(),
            fix: fix.to_owned(),
            evidence: shown,
            ..base
        };
        return Some(if kind == Kind::DdpModelMismatch {
            ddp_models::of_raised(facts, row, claim)
        } else {
            claim
        });
    }
    if let Some(claim) = extra_callers::claim(facts, culprits, row, &base, &shown) {
        return Some(claim);
    }
    let tally = Tally::of(facts, row, culprits);
    if log.plan.is_none()
        && let Some(claim) = wrong_group::by_count(facts, row, &base, &shown)
            .or_else(|| extra_callers::by_count(facts, culprits, row, &tally, &base, &shown))
    {
        return Some(claim);
    }
    let why = match from_plan_of(job, row.group, first, made.rank) {
        Reason::Other => match skipped_by_lines(job, row.group, row.seq, first, made.rank) {
            Reason::Other => skipped_among_groups(facts, culprits, row),
            known => known,
        },
        known => known,
    };
    let (why, passes) = ddp_passes::told(job, row.group, first, made.rank, why);
    // Without a majority that made it, the call may be the one too many.
    let told = match log.plan.is_some() {
        true => row.made.len() > culprits.len(),
        false => tally.tells(),
    };
    let (tie, or) = match told {
        true => (Alternatives::None, String::new()),
        false => (Alternatives::LessLikely, or_too_many(row, culprits, &tally)),
    };
    match why {
        Reason::Skipped(mut deed) => {
            let wrong = match culprits {
                [rank] => wrong_group::of(facts, *rank, row)
                    .filter(|wrong| wrong.meant == Some(row.group)),
                _ => None,
            };
            deed.alternatives = deed.alternatives.max(tie);
            let then = if deed.seq == row.seq {
                let finished = finished(job, culprits).unwrap_or_default();
                format!("{} there.{finished}", capital(&waits(&waiting)))
            } else {
                format!(
                    "Its later calls were matched one too early, so that {} now wait{} in {call}.",
                    ranks(&waiting),
                    words::s(&waiting)
                )
            };
            let told = Claim {
                kind: Kind::OpSkipped,
                seq: Some(deed.seq),
                op: Some(deed.op.clone()),
                alternatives: deed.alternatives,
                message: match &wrong {
                    Some(wrong) => {
                        format!("{} {} {then}", wrong.said, skipped(&who, &deed, &group))
                    }
                    None => format!("{} {then}{or}", skipped(&who, &deed, &group)),
                }
                .into(),
                fix: match wrong {
                    Some(wrong) => wrong.fix,
                    None => fix_skipped(deed.ddp),
                },
                evidence: shown,
                ..base
            };
            return Some(ddp_passes::with(told, passes));
        }
        Reason::Unused(deed) => {
            let told = Claim {
                kind: Kind::DdpUnusedParameters,
                seq: Some(deed.seq),
                op: Some(deed.op.clone()),
                alternatives: deed.alternatives,
                message: format!("{} {there}.", unused(&who, &deed, &group)).into(),
                fix: FIX_UNUSED.to_owned(),
                evidence: shown,
                ..base
            };
            return Some(ddp_passes::with(told, passes));
        }
        Reason::LeftLoop { ddp, short_by, .. } => {
            let told = Claim {
                kind: if ddp { Kind::DdpUnevenInputs } else { Kind::LoopShorter },
                message: format!(
                    "{who} left the {}loop before the others{}: {} in {call}.{or}",
                    if ddp { "DDP training " } else { "" },
                    left_out(short_by),
                    waits(&waiting)
                )
                .into(),
                fix: fix_loop(ddp).to_owned(),
                alternatives: base.alternatives.max(tie).max(Alternatives::LessLikely),
                evidence: shown,
                ..base
            };
            return Some(ddp_passes::with(told, passes));
        }
        Reason::Extra(_)
        | Reason::Swapped(_)
        | Reason::StayedInLoop { .. }
        | Reason::Replaced
        | Reason::Other => {}
    }
    let stands = match culprits {
        [rank] => stands(facts, *rank, row),
        many if many.iter().all(|rank| device_stall(facts, *rank)) => {
            " Their own last calls did not complete on them, though they did on others: most \
             likely their devices or processes are stuck."
                .to_owned()
        }
        many if many.iter().all(|rank| idle(facts, *rank)) => match is_unseen(facts, many, row) {
            true => " They have no call under way: they are stuck in their own code, or in a send, a receive \
                     or new_group, which gloo's recorder leaves out, or ended."
                .to_owned(),
            false => {
                " They have no call under way: they are stuck in their own code, or ended.".to_owned()
            }
        },
        _ => String::new(),
    };
    let alike = match (&log.plan, alike_since(job, row.group, row.seq, first)) {
        (None, Some(from))
            if from < row.seq
                && culprits.iter().all(|rank| {
                    idle(facts, *rank) && {
                        let last = job.rank(*rank).and_then(|log| log.calls.last());
                        last.is_some_and(|last| last.call.group == row.group)
                    }
                }) =>
        {
            pauses::or_left_out(job, row, culprits, from)
        }
        _ => String::new(),
    };
    // Of programs that are alike, whoever is not there is late.
    let (sure, or) = match log.plan.is_some() {
        true => (Alternatives::None, String::new()),
        false => (tie, or),
    };
    Some(Claim {
        message: format!("{who} never called {call}; {there}.{stands}{alike}{or}").into(),
        fix: fix_never_joined(facts, first, made),
        alternatives: base.alternatives.max(sure),
        evidence: shown,
        ..base
    })
}

/// The other possibility, where no majority made a call.
fn or_too_many(row: &Row<'_>, culprits: &[GlobalRank], tally: &Tally) -> String {
    let made: Vec<GlobalRank> = row.made.iter().map(|made| made.rank).collect();
    if tally.unknown > 0 && row.made.len() > culprits.len() {
        return format!(
            " Or {} made calls too many: nothing was recorded of {}, which would tell.",
            ranks(&made),
            ranks(&row.unrecorded)
        );
    }
    format!(" Or {} made calls too many: no more ranks made this one than did not.", ranks(&made))
}

fn fix_never_joined(facts: &Facts<'_, '_>, rank: GlobalRank, made: Made<'_>) -> String {
    let fix = match facts.job.rank(rank).map(|log| &log.state) {
        Some(RankState::Finished) => {
            "Make every rank of the group make the call: look for a branch or a loop that ends \
             earlier on this rank."
        }
        _ => {
            "Look at what the rank does between its last call and this one: a data loader or a \
             checkpoint that blocks, a branch around the call, an exception that was swallowed, a \
             device error. py-spy dump --pid shows where it stands."
        }
    };
    let bucket = match made.record.call.is_ddp_bucket() {
        true => {
            " If it is past its backward pass, a parameter of this bucket got no gradient there: its \
             log says \"Expected to have finished reduction in the prior iteration\" then."
        }
        false => "",
    };
    format!("{fix}{bucket}")
}

/// ` Its last call was …`, or where its plan says that it stands.
fn stands(facts: &Facts<'_, '_>, rank: GlobalRank, row: &Row<'_>) -> String {
    let log = facts.job.log;
    let Some(own) = facts.job.rank(rank) else { return String::new() };
    let last = own.calls.last().map(|record| Made { rank, record });
    match (&own.state, last) {
        (RankState::Finished, _) => finished(facts.job, &[rank]).unwrap_or_default().to_owned(),
        (RankState::AtOp { name, line, .. }, _) if !name.is_empty() => {
            format!(" It stands at {name}{}.", words::at_line(line.clone()))
        }
        (_, Some(last)) if last.pending() => match device_stall(facts, rank) {
            true => format!(
                " Its own last calls, up to {}, did not complete on it, though they did on others: \
                 most likely its device or its process is stuck.",
                words::call(log, last)
            ),
            false => format!(" Its last call was {}.", words::call(log, last)),
        },
        (_, Some(last)) => {
            let same = last.record.call.group == row.group;
            let so = match (same, is_unseen(facts, &[rank], row)) {
                (true, true) => {
                    ", which completed: it is stuck after it, in its own code or in a send, a receive or \
                     new_group, which gloo's recorder leaves out, or it ended"
                }
                (true, false) => {
                    ", which completed: it is stuck in its own code after it, or ended"
                }
                (false, _) => "",
            };
            let unready = ddp_waits::unready(last.record, row);
            format!(" Its last call was {}{so}.{unready}", words::call(log, last))
        }
        (_, None) => " It has no call under way: it is stuck in its own code, or ended.".to_owned(),
    }
}

/// Of a rank that is at its program's end.
fn finished(job: &Job<'_>, culprits: &[GlobalRank]) -> Option<&'static str> {
    let [rank] = culprits else { return None };
    let ended = job.rank(*rank)?.state == RankState::Finished;
    ended.then_some(" It finished its program without it.")
}

/// True if these ranks may be in calls that their recorders leave out, as gloo's do.
fn is_unseen(facts: &Facts<'_, '_>, many: &[GlobalRank], row: &Row<'_>) -> bool {
    let gloo = facts.job.group(row.group).is_some_and(|it| it.backend() == BackendName::Gloo);
    let own = many.iter().filter_map(|rank| facts.job.rank(*rank));
    let mut calls = own.flat_map(|own| &own.calls);
    facts.job.log.recorded && gloo && !calls.any(|record| record.call.p2p)
}

fn where_it_stands(facts: &Facts<'_, '_>, rank: GlobalRank, row: &Row<'_>) -> Evidence {
    let last = facts.job.last_call(row.group, rank).or_else(|| facts.job.rank(rank)?.calls.last());
    match last {
        Some(record) => {
            // Others have completed a call behind it: the rank has made that one too, unrecorded. What a
            // process that stops has written down last may not have left it.
            let passed = |seq: u64| record.call.group == row.group && seq + 1 < row.seq;
            let verb = if record.seq.is_some_and(passed) {
                "was last seen to call"
            } else {
                "last called"
            };
            evidence(facts, Made { rank, record }, verb)
        }
        None => no_call(rank, "made no call that is still recorded"),
    }
}
