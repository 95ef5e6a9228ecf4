//! One rank took a branch that no other rank took. Used only when no stronger rule applies: the
//! dumps are missing of those who wait for it, or rings have dropped what would tell.

use crate::claim::deed_text::{FIX_EXTRA, fix_skipped};
use crate::claim::difference_text::{fix_of, kind_of};
use crate::claim::{Claim, evidence};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::facts::call_counts;
use crate::facts::program_order;
use crate::facts::program_order::odd_ones;
use crate::kinds::Kind;
use crate::model::index::{Job, Made};
use crate::rules::out_of_step::{FIX_GROUP, instead, tell};
use crate::words::since;
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallRecord;
use lockstep_core::trace::CallSignature;

/// So many ranks are looked at.
const ALL: usize = 64;
/// So many of a rank's last calls are asked for one in the wrong group.
const LAST: usize = 16;
/// So often a line has called one kind of groups before, and so many other ranks have done it again.
const ROUNDS: usize = 2;

/// The finding of the one rank that does, in the place of findings that blame nobody who was recorded.
pub(crate) fn claim(facts: &Facts<'_, '_>, claims: &[Claim]) -> Option<Claim> {
    let job = facts.job;
    let blames_nobody =
        |claim: &Claim| matches!(claim.kind, Kind::RankMissing | Kind::CallNeverCompleted);
    let first = claims.first()?;
    let all: Vec<GlobalRank> = job.log.logs().map(|(rank, _)| rank).take(ALL + 1).collect();
    if !job.log.recorded
        || job.log.plan.is_some()
        || all.len() > ALL
        || !claims.iter().all(blames_nobody)
        || !all.iter().any(|rank| waits(facts, *rank))
    {
        return None;
    }
    by_calls(facts, first, &all)
        .or_else(|| by_line(facts, first, &all))
        .or_else(|| by_numbers(facts, first, &all))
}

/// True if a rank is in a call that has not ended, as far as is seen: of a job in which nobody is, a dump
/// may just have been left out.
fn waits(facts: &Facts<'_, '_>, rank: GlobalRank) -> bool {
    facts.job.rank(rank).is_some_and(|own| {
        !own.recording.unended.is_empty()
            || own.calls.iter().any(|record| Made { rank, record }.pending())
    })
}

/// The claim of the replaced findings, told as the fault of a rank.
fn blame(facts: &Facts<'_, '_>, first: &Claim, rank: GlobalRank, seen: Vec<Made<'_>>) -> Claim {
    let mut victims = first.also_victims.clone();
    victims.extend(&first.culprits);
    victims.retain(|victim| *victim != rank && facts.job.rank(*victim).is_some());
    let shown = seen.into_iter().map(|made| evidence(facts, made, "called"));
    Claim {
        // The first claim's certainty was about the missing ranks, so it does not carry over.
        message: first.message.said.clone().into(),
        culprits: vec![rank],
        also_victims: victims,
        alternatives: Alternatives::LessLikely,
        evidence: shown.collect(),
        ..first.clone()
    }
}

/// The one whose calls are not those of most.
fn by_calls(facts: &Facts<'_, '_>, first: &Claim, all: &[GlobalRank]) -> Option<Claim> {
    let job = facts.job;
    let odd = odd_ones(job, all)?;
    let [rank] = odd.ranks.as_slice() else { return None };
    let (own, theirs) = program_order::where_they_part(job, *rank, odd.model)?;
    // In a group that it is not in, and that stands for none of its own, it had no call to make: that
    // most are in such a one is for want of the dumps of those that are not.
    let is_in = |rank: GlobalRank, group| {
        job.group(group).is_some_and(|group| group.group_rank(rank).is_some())
    };
    let (group, other) = (own.record.call.group, theirs.record.call.group);
    let could = job.roles().same(group, other) || (is_in(*rank, other) && is_in(odd.model, group));
    if !could {
        return None;
    }
    let claim = blame(facts, first, *rank, vec![own, theirs]);
    let (mine, other) = (&own.record.call, &theirs.record.call);
    let differ = CallSignature::of(mine).difference(&CallSignature::of(other));
    let mut claim = match program_order::reason(job, *rank, odd.model) {
        Some((group, why)) => tell(facts, claim, &[*rank], group, why),
        None => Claim {
            // In groups that stand for each other the same call was to be made.
            kind: match differ.filter(|_| job.roles().same(mine.group, other.group)) {
                Some(difference) => kind_of(difference),
                None => Kind::OpSkipped,
            },
            group: Some(mine.group),
            seq: own.record.seq,
            op: Some(mine.op.clone()),
            message: since(&instead(job, &[*rank], own, theirs), &claim.message.said).into(),
            fix: match differ.filter(|_| job.roles().same(mine.group, other.group)) {
                Some(difference) => fix_of(difference).to_owned(),
                None => fix_skipped(None),
            },
            ..claim
        },
    };
    claim.alternatives = claim.alternatives.max(Alternatives::LessLikely);
    Some(claim)
}

/// The one that made a call of a group from a line from which nobody else, and it never before, called any but
/// groups of another kind.
fn by_line(facts: &Facts<'_, '_>, first: &Claim, all: &[GlobalRank]) -> Option<Claim> {
    let job = facts.job;
    let mut odd = all.iter().filter_map(|rank| off_the_line(job, *rank, all));
    let (Some((own, theirs)), None) = (odd.next(), odd.next()) else { return None };
    let claim = blame(facts, first, own.rank, vec![own, theirs]);
    Some(Claim {
        kind: Kind::OpExtra,
        group: Some(own.record.call.group),
        seq: own.record.seq,
        op: Some(own.record.call.op.clone()),
        message: format!("{} {}", instead(job, &[own.rank], own, theirs), claim.message.said)
            .into(),
        fix: FIX_GROUP.to_owned(),
        ..claim
    })
}

/// The call of a rank that it made so, and the one of another rank that it should have been: all others that
/// came to that line so often made the group's next there, which the rank did not.
fn off_the_line<'a>(
    job: &Job<'a>,
    rank: GlobalRank,
    all: &[GlobalRank],
) -> Option<(Made<'a>, Made<'a>)> {
    let calls = program_order::last(job, rank);
    let from = calls.len().saturating_sub(LAST);
    (from..calls.len()).find_map(|at| {
        let own = *calls.get(at).filter(|own| !own.call.stack.is_empty())?;
        let here = |record: &&CallRecord| record.call.stack == own.call.stack;
        let before: Vec<&CallRecord> =
            calls.get(..at)?.iter().copied().filter(|it| here(it)).collect();
        let last = *before.last().filter(|_| before.len() >= ROUNDS)?;
        let usual = kind(job, last.call.group)?;
        let as_usual =
            |record: &CallRecord| kind(job, record.call.group).as_deref() == Some(usual.as_str());
        if as_usual(own) || !before.iter().all(|record| as_usual(record)) {
            return None;
        }
        let next = last.seq?.checked_add(1)?;
        let mut theirs: Vec<Made<'a>> = Vec::new();
        for other in all.iter().copied().filter(|other| *other != rank) {
            let there = program_order::last(job, other).into_iter().filter(here);
            for record in there {
                if !as_usual(record) {
                    return None;
                }
                if record.seq == Some(next) {
                    theirs.push(Made { rank: other, record });
                }
            }
        }
        let model = *theirs.first().filter(|_| theirs.len() >= ROUNDS)?;
        let alike = CallSignature::of(&own.call).difference(&CallSignature::of(&model.record.call));
        alike.is_none().then_some((Made { rank, record: own }, model))
    })
}

/// The purpose of a group, as its description says.
fn kind(job: &Job<'_>, group: GroupId) -> Option<String> {
    let desc = job.group(group)?.desc();
    let kind: String = desc.chars().filter(|it| !it.is_ascii_digit()).collect();
    (!kind.is_empty() && kind != "undefined").then_some(kind)
}

/// The one that came to its calls with another number than all others.
fn by_numbers(facts: &Facts<'_, '_>, first: &Claim, all: &[GlobalRank]) -> Option<Claim> {
    let mut odd = all.iter().filter_map(|rank| call_counts::odd_one(facts.job, &[*rank]));
    let (Some(one), None) = (odd.next(), odd.next()) else { return None };
    let (kind, did, fix) = match one.fewer {
        true => (Kind::OpSkipped, "left calls out before", fix_skipped(None)),
        false => (Kind::OpExtra, "made calls too many before", FIX_EXTRA.to_owned()),
    };
    let claim = blame(facts, first, one.rank, vec![one.last]);
    Some(Claim {
        kind,
        message: format!(
            "{} So most likely it {did}; which ones is not seen. {}",
            one.said, claim.message.said
        )
        .into(),
        fix,
        ..claim
    })
}
