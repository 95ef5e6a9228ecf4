//! Findings of rows whose calls differ.

use crate::claim::deed_text::{
    FIX_EXTRA, FIX_SWAPPED, FIX_UNUSED, ONE_OF_MANY, extra, fix_skipped, skipped, swapped, unused,
};
use crate::claim::difference_text::{describe, fix_of, kind_of};
use crate::claim::{Claim, evidence};
use crate::facts::alternatives::Alternatives;
use crate::facts::call_sites::{
    OtherReading, in_one_statement, nobody_else, nobody_else_through, or_else,
};
use crate::facts::ddp_pass::of_pass;
use crate::facts::deed::Reason;
use crate::facts::loops;
use crate::facts::loops::fix_loop;
use crate::facts::other_readings::{doubt, late, one_of_many};
use crate::facts::pauses;
use crate::facts::program_order;
use crate::facts::reason::{further, reason};
use crate::facts::row_mismatch::{Decided, MAX_SIDES, Mismatch, Side};
use crate::facts::{Facts, rows_without};
use crate::kinds::Kind;
use crate::model::ddp_frames::is_ddp;
use crate::model::index::Row;
use crate::rules::ddp_passes;
use crate::rules::never_joined;
use crate::rules::ties::tie;
use crate::rules::wrong_group;
use crate::words;
use crate::words::{cap_ranks, ranks};
use lockstep_core::rank::GlobalRank;

/// The causes behind one mismatch: one a side, or one for all in a tie.
pub(crate) fn claims(facts: &Facts<'_, '_>, mismatch: &Mismatch) -> Vec<Claim> {
    let Some(row) = mismatch.row(facts) else { return Vec::new() };
    if mismatch.majority.is_empty() {
        return tie(facts, row, &mismatch.sides).into_iter().collect();
    }
    if let (true, Some(first)) = (mismatch.sides.len() > MAX_SIDES, mismatch.sides.first()) {
        // Everybody has a size of their own: one finding says it.
        let mut ranks: Vec<_> = mismatch.sides.iter().flat_map(|side| side.ranks.clone()).collect();
        ranks.sort_unstable();
        let all = Side { ranks, difference: first.difference };
        return minority(facts, row, mismatch, &all).into_iter().collect();
    }
    let sides = mismatch.sides.iter();
    sides.filter_map(|side| minority(facts, row, mismatch, side)).collect()
}

/// The claim of a rank whose call differs, told as the call of another group that it left out before, where
/// others wait in that group for it: since then it makes its calls too early. Not where the plan, or what
/// follows in the group itself, tells what the rank did.
pub(crate) fn or_left_out_before(facts: &Facts<'_, '_>, claim: Claim) -> Claim {
    let job = facts.job;
    let [rank] = claim.culprits.as_slice() else { return claim };
    let told = claim.alternatives == Alternatives::None || claim.kind == Kind::OpSkipped;
    if job.log.plan.is_some() || !job.log.recorded || told {
        return claim;
    }
    let rows = rows_without(facts, *rank).filter(|(row, _)| Some(row.group) != claim.group);
    let left_out = rows
        .filter(|(row, _)| !row.waiting().is_empty())
        .filter_map(|(row, _)| never_joined::never_joined(facts, &[*rank], row))
        .find(|other| other.kind == Kind::OpSkipped);
    let Some(left_out) = left_out else { return claim };
    let apart = claim.group.zip(claim.seq).map(|(group, seq)| {
        let group = words::group_label(job.log, group);
        format!(" Since then its calls of {group} differ as well: at #{seq} it made another one than the rest.")
    });
    let mut also_victims = claim.also_victims;
    also_victims.extend(left_out.also_victims);
    let mut evidence = left_out.evidence;
    evidence.extend(claim.evidence);
    Claim {
        also_victims,
        evidence,
        alternatives: left_out.alternatives.max(Alternatives::LessLikely),
        message: (left_out.message.said + &apart.unwrap_or_default()).into(),
        ..left_out
    }
}

fn minority(
    facts: &Facts<'_, '_>,
    row: &Row<'_>,
    mismatch: &Mismatch,
    side: &Side,
) -> Option<Claim> {
    let log = facts.job.log;
    let majority = mismatch.majority.as_slice();
    let history = match mismatch.decided {
        Decided::ByMajority => "",
        Decided::ByMajorityOfRecorded => {
            " Nothing was recorded of other members, who may have called either."
        }
        Decided::ByHistory => {
            " As many ranks called the one as the other, but all calls of that line before \
                 were as the latter."
        }
        Decided::ByHistoryOfRecorded => {
            " Nothing was recorded of other members, who may have called either, but all calls of that \
             line before were as the latter."
        }
        Decided::ByOrder => " No majority tells, but in all rounds before the latter came next.",
        Decided::Elsewhere { .. } => {
            " As many ranks called the one as the other, but the ranks of other groups go through \
             the program as the latter."
        }
    };
    let culprit = *side.ranks.first()?;
    let peer =
        mismatch.model.filter(|rank| row.of(*rank).is_some()).or(majority.first().copied())?;
    let (own, theirs) = (row.of(culprit)?, row.of(peer)?);
    let told = match mismatch.decided {
        // A plan tells by itself.
        Decided::Elsewhere { model, .. } if log.plan.is_none() => {
            program_order::reason(facts.job, culprit, model)
        }
        _ => None,
    };
    let told = told.filter(|(group, _)| *group == row.group).map(|(_, why)| why);
    let why = told
        .unwrap_or_else(|| reason(facts.job, row.group, row.seq, culprit, peer, side.difference));
    let (why, passes) =
        ddp_passes::told(facts.job, row.group, culprit, peer, mismatch.decided.doubted(why));
    let by_times = pauses::by_times(facts.job, (row.group, row.seq), culprit, peer, &why);
    let why = match by_times.filter(|deed| deed.pause.is_some()) {
        Some(deed) => Reason::Skipped(deed),
        None => why,
    };
    let left = matches!(why, Reason::LeftLoop { .. } | Reason::StayedInLoop { .. });
    let why =
        match left && in_one_statement(facts.job, row.group, own.record, theirs.record, culprit) {
            true => Reason::Replaced,
            false => why,
        };
    let group = words::group_label(log, row.group);
    let who = cap_ranks(&side.ranks);
    let [own_line, their_line] = words::lines_of_both(log, own, theirs);
    let here = format!(
        "At #{} of {group} {} called {}{} while {} called {}{}",
        row.seq,
        ranks(&side.ranks),
        describe(log, own, side.difference),
        words::at_line(own_line),
        ranks(majority),
        describe(log, theirs, side.difference),
        words::at_line(their_line),
    );
    let waits = words::and_who_waits(row);
    let doubt = match log.plan.is_some() || why == Reason::Replaced {
        true => None,
        false => doubt(facts.job, row, own, theirs, side.difference),
    };
    let mut claim = Claim {
        kind: kind_of(side.difference),
        culprits: side.ranks.clone(),
        also_victims: majority
            .iter()
            .copied()
            .filter(|rank| row.of(*rank).is_some_and(|m| m.pending()))
            .collect(),
        group: Some(row.group),
        seq: Some(row.seq),
        op: Some(theirs.record.call.op.clone()),
        alternatives: match mismatch.decided {
            Decided::ByMajority if doubt.is_none() => Alternatives::None,
            _ => Alternatives::LessLikely,
        },
        message: format!("{here}{waits}.{history}{}", doubt.unwrap_or_default()).into(),
        fix: fix_of(side.difference).to_owned(),
        evidence: sides_seen(facts, row, majority, &side.ranks),
    };
    if let [rank] = side.ranks.as_slice()
        && let Some(mut wrong) =
            wrong_group::differing(facts, row, mismatch.decided, *rank, &why, &claim)
    {
        wrong.message.said += &format!(" {here}{waits}.");
        return Some(wrong);
    }
    match why {
        Reason::Replaced | Reason::Other => {}
        Reason::Skipped(mut deed) => {
            let many = deed.pause.is_none() && one_of_many(facts.job, row, theirs, &deed);
            if many {
                deed.alternatives = deed.alternatives.max(Alternatives::LessLikely);
            }
            let of_pass = of_pass(own.record, theirs.record, true);
            let or = match many {
                _ if !of_pass.is_empty() => of_pass,
                true => ONE_OF_MANY,
                false => late(facts.job, row, own, &deed),
            };
            claim.kind = Kind::OpSkipped;
            claim.seq = Some(deed.told_seq());
            claim.op = Some(deed.op.clone());
            claim.alternatives = deed.alternatives;
            claim.message.said = format!("{} {here}{waits}.{or}", skipped(&who, &deed, &group));
            claim.fix = match many && of_pass.is_empty() {
                true => fix_loop(deed.ddp).to_owned(),
                false => fix_skipped(deed.ddp),
            };
        }
        Reason::Unused(deed) => {
            claim.kind = Kind::DdpUnusedParameters;
            claim.seq = Some(deed.seq);
            claim.op = Some(deed.op.clone());
            claim.alternatives = deed.alternatives;
            claim.message.said = format!("{} {here}{waits}.", unused(&who, &deed, &group));
            claim.fix = FIX_UNUSED.to_owned();
        }
        Reason::Extra(deed) => {
            claim.kind = Kind::OpExtra;
            claim.seq = Some(deed.seq);
            claim.op = Some(deed.op.clone());
            claim.alternatives = deed.alternatives;
            let only = nobody_else(facts, row, &side.ranks, deed.line.as_deref());
            let or = or_else(facts, row, own, theirs, &deed);
            let of_pass = of_pass(own.record, theirs.record, false);
            let or_text = or.map(OtherReading::text).unwrap_or_default().to_owned();
            let (only, or_text): (String, String) = match of_pass.is_empty() {
                true => (only, or_text),
                false => (String::new(), of_pass.to_owned()),
            };
            claim.message.said =
                format!("{}{only} {here}{waits}.{or_text}", extra(&who, &deed, &group));
            claim.fix = match of_pass.is_empty() {
                true if or.is_some_and(|or| or == OtherReading::LeftLoop) => {
                    let ddp = is_ddp(&theirs.record.call.stack) && !is_ddp(&own.record.call.stack);
                    format!("{FIX_EXTRA} If it left the loop: {}", words::uncapital(fix_loop(ddp)))
                }
                true => FIX_EXTRA.to_owned(),
                false => fix_skipped(true),
            };
        }
        Reason::Swapped(deed) => {
            claim.kind = Kind::OpsSwapped;
            claim.alternatives = deed.alternatives;
            let line = deed.other.as_ref().and_then(|(_, line)| line.as_deref());
            let unsure = log.plan.is_none() && deed.alternatives != Alternatives::None;
            let other = line.filter(|_| unsure);
            let only = match nobody_else(facts, row, &side.ranks, other) {
                _ if deed.count > 2 => String::new(),
                only if !unsure => only,
                only => format!(
                    "{only} It may as well have made that call besides, or left the other out."
                ),
            };
            claim.message.said = format!("{}{only} {here}{waits}.", swapped(&who, &deed, &group));
            claim.fix = FIX_SWAPPED.to_owned();
        }
        Reason::StayedInLoop { ddp } => {
            claim.kind = if ddp { Kind::DdpUnevenInputs } else { Kind::OpExtra };
            claim.op = Some(own.record.call.op.clone());
            claim.alternatives = Alternatives::LessLikely;
            // A plan tells which of them it is.
            let told = log.plan.is_some();
            claim.message.said = format!("{} {here}{waits}.", loops::stayed(&who, ddp, told));
            claim.fix = fix_loop(ddp).to_owned();
        }
        Reason::LeftLoop { ddp, rounds, short_by } => {
            claim.kind = if ddp { Kind::DdpUnevenInputs } else { Kind::LoopShorter };
            claim.alternatives = Alternatives::LessLikely;
            let who = (who.as_str(), side.ranks.as_slice());
            let left = loops::left(who, ddp, rounds, short_by, passes.is_some());
            claim.message.said = format!("{left} {here}{waits}.");
            claim.fix = fix_loop(ddp).to_owned();
            let line = words::line_of(log, culprit, own.record);
            if short_by.is_none() && log.plan.is_none() {
                let only = nobody_else_through(facts, row, &side.ranks, own);
                claim.message.said += &only;
                // Nothing tells what stands behind the loop.
                if !only.is_empty() || line.is_none() {
                    claim.message.said +=
                        " If that is no call behind the loop, it is one call too many.";
                    claim.fix +=
                        &format!(" If the call is one too many: {}", words::uncapital(FIX_EXTRA));
                }
            }
        }
    }
    let told_as = claim.kind != kind_of(side.difference);
    if told_as {
        // What tells it is shown, whatever it is told as.
        claim.message.said += history;
    }
    claim.alternatives = mismatch.decided.at_most(claim.alternatives);
    if told_as && mismatch.decided == Decided::ByHistory {
        claim.message.said += &format!(" {} may be astray instead.", cap_ranks(majority));
    }
    let further = further(facts.job, row.group, row.seq, culprit, peer);
    if !further.is_empty() {
        let it = if side.ranks.len() == 1 { "it" } else { "they" };
        claim.message.said += &format!(" Further on {it} {}.", further.join("; "));
    }
    Some(ddp_passes::with(claim, passes))
}

/// A call of each side as evidence; of the majority a few are enough.
fn sides_seen(
    facts: &Facts<'_, '_>,
    row: &Row<'_>,
    majority: &[GlobalRank],
    others: &[GlobalRank],
) -> Vec<crate::report::Evidence> {
    let shown = others.iter().take(16).chain(majority.iter().take(4));
    shown.filter_map(|rank| Some(evidence(facts, row.of(*rank)?, "called"))).collect()
}
