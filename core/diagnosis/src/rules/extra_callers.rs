//! Findings of calls that only those make who wait in them: not the others left them out, but these
//! made them on top, or in the wrong group.

use crate::claim::Claim;
use crate::claim::deed_text::{FIX_EXTRA, extra, fix_skipped};
use crate::facts::alternatives::Alternatives;
use crate::facts::call_counts;
use crate::facts::call_counts::Miscounted;
use crate::facts::deed::{Deed, Reason};
use crate::facts::history::follows;
use crate::facts::loops::has_gone_round;
use crate::facts::plan_votes;
use crate::facts::program_order;
use crate::facts::program_order::odd_ones;
use crate::facts::reason::from_plan_of;
use crate::facts::skipped_line::skipped_by_lines;
use crate::facts::tally::Tally;
use crate::facts::{Facts, device_stall};
use crate::kinds::Kind;
use crate::model::ddp_frames::DdpPart;
use crate::model::index::{Made, Row};
use crate::rules::out_of_step::{ALIKE, in_another};
use crate::rules::wrong_group;
use crate::words;
use crate::words::{cap_ranks, capital, ranks, waits};
use lockstep_core::rank::GlobalRank;

/// The finding of a call that those who wait in it should not have made; `culprits` are those who
/// never made it and wait for nobody.
pub(crate) fn claim(
    facts: &Facts<'_, '_>,
    culprits: &[GlobalRank],
    row: &Row<'_>,
    base: &Claim,
) -> Option<Claim> {
    let waiting = row.waiting();
    // Whoever waits for those in the call is kept from it by them.
    let held = facts.graph.waiting_for(&waiting);
    let free = |rank: &GlobalRank| {
        culprits.binary_search(rank).is_ok() || held.binary_search(rank).is_ok()
    };
    let few = culprits.len() > waiting.len() && row.absent.iter().all(free);
    if few && let Some(claim) = alone_in_it(facts, culprits, row, base) {
        return Some(claim);
    }
    match facts.job.log.plan.is_some() {
        true => odd_by_plan(facts, culprits, row, base),
        false => odd_by_others(facts, culprits, row, base),
    }
}

/// The finding of a call that only a minority made, while nothing holds the others: by majority,
/// those who made it are the odd ones out.
fn alone_in_it(
    facts: &Facts<'_, '_>,
    absent: &[GlobalRank],
    row: &Row<'_>,
    base: &Claim,
) -> Option<Claim> {
    let job = facts.job;
    let made = row.made.iter().find(|made| made.pending()).copied()?;
    let stuck = absent.iter().any(|rank| device_stall(facts, *rank));
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
        // The call that the others seem to have left out is the extra call of the one.
        let call = words::call(job.log, made);
        return Some(Claim {
            kind: Kind::OpExtra,
            culprits: waiting.clone(),
            seq: Some(deed.seq),
            op: Some(deed.op.clone()),
            alternatives: deed.alternatives,
            message: format!(
                "{} Since then its calls were matched one too late, and it waits alone in {call}.",
                extra(&cap_ranks(&waiting), &deed, &words::group_label(job.log, row.group))
            )
            .into(),
            fix: FIX_EXTRA.to_owned(),
            ..base.clone()
        });
    }
    if let Some(claim) = odd_by_others(facts, absent, row, base) {
        return Some(claim);
    }
    if let Some(claim) = next_of_all(facts, absent, row, made, base)
        .or_else(|| before_any_round(facts, absent, row, made, base))
    {
        return Some(claim);
    }
    let call = words::call(job.log, made);
    let idle = match row.absent.len() > absent.len() {
        true => format!("{} ", ranks(absent)),
        false => String::new(),
    };
    let unsure = " If they should have made it too, look at what all of them do instead.";
    Some(Claim {
        kind: Kind::OpExtra,
        culprits: waiting.clone(),
        alternatives: match planned {
            true => Alternatives::None,
            // Those of whom nothing was recorded may have come as well.
            false if row.absent.len() <= waiting.len() + row.unrecorded.len() => {
                Alternatives::AsLikely
            }
            false => Alternatives::LessLikely,
        },
        message: format!(
            "{} alone called {call} and wait{} there; {} never did, and {idle}{} for nothing.{}",
            cap_ranks(&waiting),
            words::s(&waiting),
            ranks(if row.absent.is_empty() { absent } else { &row.absent }),
            if absent.len() == 1 { "waits" } else { "wait" },
            if planned { "" } else { unsure },
        )
        .into(),
        fix: FIX_EXTRA.to_owned(),
        ..base.clone()
    })
}

/// The finding of a call that a minority made, and that came next for everybody in the rounds before: the
/// others may as well be stuck in front of it.
fn next_of_all(
    facts: &Facts<'_, '_>,
    absent: &[GlobalRank],
    row: &Row<'_>,
    made: Made<'_>,
    base: &Claim,
) -> Option<Claim> {
    let job = facts.job;
    let rows = job.rows_of(row.group);
    let at = rows.partition_point(|before| before.seq < row.seq).checked_sub(1)?;
    // All missing ranks must have made the call right before this one last.
    let last = |rank: &GlobalRank| job.last_call(row.group, *rank);
    let before = absent.first().and_then(last)?;
    let there = absent.iter().all(|rank| last(rank).is_some_and(|last| last.seq == before.seq));
    let next = rows.get(at)?.seq == before.seq? && there;
    if job.log.plan.is_some() || !next || !follows(job, row.group, row.seq, before, made.record) {
        return None;
    }
    let (they, are) = they_are(absent);
    let said = format!(
        "In the rounds before it came next for all of them. So either {they} {are} stuck in front of it, or \
         {they} ended there and {} made a round more",
        ranks(&row.waiting()),
    );
    let fix = ". If they have ended, let every rank make as many rounds: the same number of batches, or \
               DDP's join().";
    Some(either(facts, absent, row, made, (&said, fix), base))
}

/// The finding of a call that a minority made before it went through any round twice: what is usual is not
/// known, and the others may as well be stuck in front of their first round.
fn before_any_round(
    facts: &Facts<'_, '_>,
    absent: &[GlobalRank],
    row: &Row<'_>,
    made: Made<'_>,
    base: &Claim,
) -> Option<Claim> {
    let job = facts.job;
    if job.log.plan.is_some() || has_gone_round(job, made.rank, made.record) {
        return None;
    }
    let waiting = row.waiting();
    let (they, are) = they_are(absent);
    let said = format!(
        "No round of calls has come twice before, so that nothing shows what comes next: either {they} {are} \
         stuck in front of it, or still on the way to it, or {} make{} a call that the others do not make",
        ranks(&waiting),
        words::s(&waiting),
    );
    let fix = format!(
        ": a download, a data set or a model that loads, another rank's lock. If they are past it: {}",
        words::uncapital(FIX_EXTRA)
    );
    Some(either(facts, absent, row, made, (&said, &fix), base))
}

fn they_are(ranks: &[GlobalRank]) -> (&'static str, &'static str) {
    if ranks.len() == 1 { ("it", "is") } else { ("they", "are") }
}

/// The finding that some wait alone in a call, and that either they or those who never came are to blame.
fn either(
    facts: &Facts<'_, '_>,
    absent: &[GlobalRank],
    row: &Row<'_>,
    made: Made<'_>,
    (said, fix): (&str, &str),
    base: &Claim,
) -> Claim {
    let waiting = row.waiting();
    let mut either: Vec<GlobalRank> = waiting.iter().chain(absent).copied().collect();
    either.sort_unstable();
    Claim {
        kind: Kind::RankNeverJoined,
        culprits: either,
        alternatives: Alternatives::AsLikely,
        message: format!(
            "{} never called {}, in which {} {}, and {} for nothing. {said}: the recording does not tell \
             which.",
            cap_ranks(absent),
            words::call(facts.job.log, made),
            ranks(&waiting),
            if waiting.len() == 1 { "waits alone" } else { "wait alone" },
            if absent.len() == 1 { "waits" } else { "wait" },
        ).into(),
        fix: format!(
            "Look where the ranks stand that did not come (py-spy dump --pid) and at the ends of their \
             logs{fix}"
        ),
        ..base.clone()
    }
}

/// The finding of a call that those who wait in it make on top, as the programs of the group's other
/// members show.
fn odd_by_plan(
    facts: &Facts<'_, '_>,
    absent: &[GlobalRank],
    row: &Row<'_>,
    base: &Claim,
) -> Option<Claim> {
    let job = facts.job;
    let astray = plan_votes::astray(job, row.group)?;
    let odd = |rank: &GlobalRank| astray.ranks.binary_search(rank).is_ok();
    let waiting = row.waiting();
    let made = row.made.iter().find(|made| made.pending()).copied()?;
    if !waiting.iter().all(odd) || absent.iter().any(odd) {
        return None;
    }
    let why = |rank: &GlobalRank| from_plan_of(job, row.group, *rank, astray.model);
    let first = why(&made.rank);
    if waiting.len() > ALIKE || !waiting.iter().all(|rank| why(rank).same(&first)) {
        return None;
    }
    let Reason::Extra(deed) = first else { return None };
    let mut claim =
        Claim { alternatives: astray.alternatives, ..on_top(facts, row, made, deed, base) };
    if let [rank] = waiting.as_slice()
        && let Some(wrong) = wrong_group::of(facts, *rank, row).filter(|it| it.group == row.group)
    {
        claim.message.said = format!("{} {}", wrong.said, claim.message.said);
        claim.fix = wrong.fix;
    }
    Some(claim)
}

/// The same of a recording, as ranks show that go through the program in other groups.
fn odd_by_others(
    facts: &Facts<'_, '_>,
    absent: &[GlobalRank],
    row: &Row<'_>,
    base: &Claim,
) -> Option<Claim> {
    let job = facts.job;
    let waiting = row.waiting();
    let made = row.made.iter().find(|made| made.pending()).copied()?;
    let among: Vec<GlobalRank> = waiting.iter().chain(absent).copied().collect();
    let odd = odd_ones(job, &among)?;
    // The comparison below holds for a single rank only.
    if waiting.len() > 1
        || odd.ranks != waiting
        || absent.iter().any(|rank| device_stall(facts, *rank))
    {
        return None;
    }
    if let Some(other) = program_order::in_another_group(job, made.rank, odd.model) {
        let (own, (said, fix)) = (other.own, in_another(job, &waiting, other));
        return Some(Claim {
            kind: Kind::OpExtra,
            culprits: waiting.clone(),
            group: Some(own.record.call.group),
            seq: own.record.seq,
            op: Some(own.record.call.op.clone()),
            alternatives: Alternatives::LessLikely,
            message: format!(
                "{said} {} in {}.",
                capital(&waits(&waiting)),
                words::call(job.log, made),
            )
            .into(),
            fix,
            ..base.clone()
        });
    }
    match program_order::reason(job, made.rank, odd.model)? {
        (group, Reason::Extra(deed)) if group == row.group => {
            let alternatives = Alternatives::LessLikely;
            Some(Claim { alternatives, ..on_top(facts, row, made, deed, base) })
        }
        _ => None,
    }
}

/// The same, as counts show: the one that waits has made more calls than those who are in groups of
/// the same kinds, or these ended without the call.
pub(crate) fn by_count(
    facts: &Facts<'_, '_>,
    absent: &[GlobalRank],
    row: &Row<'_>,
    tally: &Tally,
    base: &Claim,
) -> Option<Claim> {
    let job = facts.job;
    let waiting = row.waiting();
    let [rank] = waiting.as_slice() else { return None };
    let made = row.of(*rank)?;
    let sides: Vec<GlobalRank> = waiting.iter().chain(absent).copied().collect();
    let odd = call_counts::odd_one(job, &sides);
    // In the group itself a call on top shifts its calls the other way.
    let elsewhere = |odd: &&Miscounted<'_>| odd.last.record.call.group != row.group;
    let fewer = odd.as_ref().filter(|odd| odd.rank == *rank && odd.fewer);
    if let Some(odd) = fewer.filter(elsewhere) {
        // Whatever others make of the call: what it left out before shifts its own.
        return Some(Claim {
            kind: Kind::OpSkipped,
            culprits: waiting.clone(),
            alternatives: Alternatives::LessLikely,
            message: format!(
                "{} So most likely it left out what it made fewer, and its later calls are matched too early: \
                 {} in {}.",
                odd.said,
                waits(&waiting),
                words::call(job.log, made),
            ).into(),
            fix: fix_skipped(DdpPart::of_stack(&made.record.call.stack)),
            ..base.clone()
        });
    }
    if tally.tells() {
        return None;
    }
    let more = odd.filter(|odd| odd.rank == *rank && !odd.fewer).map(|odd| odd.said);
    let ended = tally.ended_without.as_slice();
    let stuck = || absent.iter().any(|rank| device_stall(facts, *rank));
    // Those may as well be in front of it, and this one the first that came.
    if more.is_none()
        && !ended.is_empty()
        && let Some(claim) = next_of_all(facts, absent, row, made, base)
    {
        return Some(claim);
    }
    let said = match more {
        Some(said) => said,
        // Most of those who could have made it ended without.
        None if ended.len() + absent.len() > tally.made && !ended.is_empty() && !stuck() => {
            format!("{} ended their calls without one like it.", cap_ranks(ended))
        }
        None => return None,
    };
    Some(Claim {
        kind: Kind::OpExtra,
        culprits: waiting.clone(),
        alternatives: Alternatives::LessLikely,
        message: format!(
            "{} alone called {} and waits there; {} never did. {said} So most likely rank {rank} made \
             one call too many before or there; or {} did not come to it.",
            cap_ranks(&waiting),
            words::call(job.log, made),
            ranks(absent),
            ranks(absent),
        ).into(),
        fix: FIX_EXTRA.to_owned(),
        ..base.clone()
    })
}

/// The finding of calls that those who wait in a row made on top.
fn on_top(facts: &Facts<'_, '_>, row: &Row<'_>, made: Made<'_>, deed: Deed, base: &Claim) -> Claim {
    let waiting = row.waiting();
    let label = words::group_label(facts.job.log, row.group);
    Claim {
        kind: Kind::OpExtra,
        message: format!(
            "{} {} in {}.",
            extra(&cap_ranks(&waiting), &deed, &label),
            capital(&waits(&waiting)),
            words::call(facts.job.log, made),
        )
        .into(),
        culprits: waiting,
        seq: Some(deed.seq),
        op: Some(deed.op),
        fix: FIX_EXTRA.to_owned(),
        ..base.clone()
    }
}
