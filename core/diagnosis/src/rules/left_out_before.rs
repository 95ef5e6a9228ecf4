//! The call of another group that a rank left out before the one in which it is seen to differ: since
//! then it makes its calls too early, and those of every later group differ as well.

use crate::claim::Claim;
use crate::facts::alternatives::Alternatives;
use crate::facts::deed::Reason;
use crate::facts::plan_votes;
use crate::facts::reason::from_plan_of;
use crate::facts::{Facts, rows_without};
use crate::kinds::Kind;
use crate::rules::never_joined;
use crate::rules::out_of_step;
use crate::words;
use lockstep_core::group::GroupId;
use lockstep_core::plan::Plan;
use lockstep_core::rank::GlobalRank;

/// The claim of a rank whose call differs, told as the call of another group that it left out before.
pub(crate) fn or_left_out_before(facts: &Facts<'_, '_>, claim: Claim) -> Claim {
    let [rank] = claim.culprits.as_slice() else { return claim };
    match facts.job.log.plan.as_deref() {
        Some(plan) => by_plan(facts, plan, *rank, claim),
        None => by_who_waits(facts, *rank, claim),
    }
}

/// Told as the first call that its program leaves out, in whichever group.
fn by_plan(facts: &Facts<'_, '_>, plan: &Plan, rank: GlobalRank, claim: Claim) -> Claim {
    let job = facts.job;
    let (Kind::OpSkipped, Some(told), Some(seq)) = (claim.kind, claim.group, claim.seq) else {
        return claim;
    };
    let Some(shown) = place_in_program(plan, rank, told, seq) else { return claim };
    let groups = (0..).map(GroupId).take(plan.groups.len()).filter(|group| *group != told);
    let of_rank = groups
        .filter(|group| plan.group(*group).is_some_and(|group| group.ranks().contains(&rank)));
    let left_out = of_rank.filter_map(|group| {
        let astray = plan_votes::astray(job, group).filter(|astray| astray.ranks == [rank])?;
        let why = from_plan_of(job, group, rank, astray.model).at_most(astray.alternatives);
        match &why {
            Reason::Skipped(deed) => {
                // Of calls that are alike the last is told: it was due behind the one that was made before.
                let at = place_in_program(plan, rank, group, deed.seq.saturating_sub(1))?;
                (at < shown).then_some((at, group, why))
            }
            _ => None,
        }
    });
    let Some((_, group, why)) = left_out.min_by_key(|(at, ..)| *at) else { return claim };
    let mut claim = claim;
    claim.message.said = differ_as_well(facts, told, seq);
    out_of_step::tell(facts, claim, &[rank], group, why)
}

/// The operation of a rank's program that makes its collective of this number in a group, counted from 1, or
/// the program's end if it makes fewer; 0 for number 0. `None` for a rank without a program.
fn place_in_program(plan: &Plan, rank: GlobalRank, of: GroupId, seq: u64) -> Option<usize> {
    let ops = &plan.program(rank)?.ops;
    let mut made = ops.iter().enumerate().flat_map(|(at, op)| {
        let calls = op.action.calls().iter();
        calls.filter(|call| call.collective().is_some() && call.group() == of).map(move |_| at)
    });
    let Some(before) = seq.checked_sub(1) else { return Some(0) };
    Some(made.nth(usize::try_from(before).ok()?).unwrap_or(ops.len()))
}

/// Without a plan: told as the call of another group in which others wait for it, unless what follows in
/// the group itself tells what the rank did.
fn by_who_waits(facts: &Facts<'_, '_>, rank: GlobalRank, claim: Claim) -> Claim {
    let job = facts.job;
    let told = claim.alternatives == Alternatives::None || claim.kind == Kind::OpSkipped;
    if !job.log.recorded || told {
        return claim;
    }
    let rows = rows_without(facts, rank).filter(|(row, _)| Some(row.group) != claim.group);
    let left_out = rows
        .filter(|(row, _)| !row.waiting().is_empty())
        .filter_map(|(row, _)| never_joined::never_joined(facts, &[rank], row))
        .find(|other| other.kind == Kind::OpSkipped);
    let Some(left_out) = left_out else { return claim };
    let apart = claim.group.zip(claim.seq);
    let apart =
        apart.map(|(group, seq)| format!(" Since then {}", differ_as_well(facts, group, seq)));
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

/// The rest of a sentence that begins with `Since then`.
fn differ_as_well(facts: &Facts<'_, '_>, group: GroupId, seq: u64) -> String {
    let group = words::group_label(facts.job.log, group);
    format!("its calls of {group} differ as well: at #{seq} it made another one than the rest.")
}
