//! A call that a rank makes in one group, where the ranks that go through the program with it make the
//! same in another: it lacks in the one and is one too many in the other, and the place of both is the
//! same line. What is told as a call left out, or made on top, is then a wrong `group=`.

use crate::claim::Claim;
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::facts::call_counts;
use crate::facts::deed::Reason;
use crate::facts::program_order;
use crate::facts::program_order::odd_ones;
use crate::facts::row_mismatch::Decided;
use crate::kinds::Kind;
use crate::model::index::{Job, Row};
use crate::rules::out_of_step::{FIX_GROUP, in_another};
use crate::words;
use crate::words::{at_line, cap_ranks, waits};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::GroupId;
use lockstep_core::plan::{Call, Plan, SourceLine};
use lockstep_core::rank::GlobalRank;

/// With so many other ranks' programs a rank's is compared.
const ASKED: usize = 64;

/// A call made in another group than the others make it in.
#[derive(Clone, Debug)]
pub(crate) struct WrongGroup {
    /// `Rank 2 called all_reduce #4 of tp (train.py:9) where rank 0 called all_reduce #3 of dp (…).`
    pub(crate) said: String,
    /// The fix of it.
    pub(crate) fix: String,
    /// The group in which it was made.
    pub(crate) group: GroupId,
    seq: Option<u64>,
    op: String,
    /// The group in which the others make it, as the rank knows that group; `None` if it has never
    /// called it, and gloo does not say that it is a member.
    pub(crate) meant: Option<GroupId>,
    /// The number of theirs there.
    meant_seq: Option<u64>,
    pub(crate) alternatives: Alternatives,
}

/// A finding of calls of `row` that differ, told as what `rank` did: a call on top in the one group, or left
/// out in the other. `why` is what it did as far as this group's calls tell.
pub(crate) fn differing(
    facts: &Facts<'_, '_>,
    row: &Row<'_>,
    decided: Decided,
    rank: GlobalRank,
    why: &Reason,
    claim: &Claim,
) -> Option<Claim> {
    // That it made a call on top, or left one out, may be surer than in which group it was meant.
    let sure = match why {
        Reason::Skipped(deed) | Reason::Extra(deed) => deed.alternatives,
        Reason::LeftLoop { .. } | Reason::StayedInLoop { .. } | Reason::Other => {
            Alternatives::LessLikely
        }
        Reason::Unused(_) | Reason::Swapped(_) | Reason::Replaced => return None,
    };
    let wrong = of(facts, rank, row)?;
    let on_top = wrong.group == row.group;
    if !on_top && wrong.meant != Some(row.group) {
        return None;
    }
    Some(Claim {
        kind: if on_top { Kind::OpExtra } else { Kind::OpSkipped },
        seq: if on_top { wrong.seq } else { wrong.meant_seq },
        op: Some(wrong.op),
        alternatives: match facts.job.log.plan.is_some() {
            true => wrong.alternatives,
            false => decided.at_most(wrong.alternatives.min(sure)),
        },
        message: wrong.said.into(),
        fix: wrong.fix,
        ..claim.clone()
    })
}

/// The finding of a call in which one rank waits alone, as the recorders' numbers tell it where rings have
/// dropped the place.
pub(crate) fn by_count(facts: &Facts<'_, '_>, row: &Row<'_>, base: &Claim) -> Option<Claim> {
    let job = facts.job;
    let waiting = row.waiting();
    let [rank] = waiting.as_slice() else { return None };
    if !job.may_look() {
        return None;
    }
    let moved = call_counts::moved(job, *rank).filter(|moved| moved.more == row.group)?;
    Some(Claim {
        kind: Kind::OpExtra,
        culprits: waiting.clone(),
        alternatives: Alternatives::LessLikely,
        message: format!(
            "{} made 1 call more of {} than {}, and 1 fewer of {}: most likely it made a call in the wrong \
             group. {} in {}.",
            cap_ranks(&waiting),
            words::group_label(job.log, moved.more),
            words::ranks(&moved.others),
            words::group_label(job.log, moved.fewer),
            words::capital(&waits(&waiting)),
            words::call(job.log, row.of(*rank)?),
        ).into(),
        fix: FIX_GROUP.to_owned(),
        ..base.clone()
    })
}

/// The call that `rank` made in another group than the ranks that go through the program as most
/// do; `None` if that is not what it did otherwise. In `row` it has not met them.
pub(crate) fn of(facts: &Facts<'_, '_>, rank: GlobalRank, row: &Row<'_>) -> Option<WrongGroup> {
    let job = facts.job;
    if !job.may_look() {
        return None;
    }
    match &job.log.plan {
        Some(plan) => planned(job, plan, rank),
        None => recorded(job, rank, row),
    }
}

fn recorded(job: &Job<'_>, rank: GlobalRank, row: &Row<'_>) -> Option<WrongGroup> {
    let others = row.made.iter().map(|made| made.rank).filter(|other| *other != rank);
    let among: Vec<GlobalRank> = others.chain([rank]).collect();
    let odd = odd_ones(job, &among).filter(|odd| odd.ranks == [rank])?;
    let other = program_order::in_another_group(job, rank, odd.model)?;
    let (own, theirs, (said, fix)) = (other.own, other.theirs, in_another(job, &[rank], other));
    Some(WrongGroup {
        said,
        fix,
        group: own.record.call.group,
        seq: own.record.seq,
        op: own.record.call.op.clone(),
        meant: program_order::known_as(job, rank, theirs.record.call.group),
        meant_seq: theirs.record.seq,
        alternatives: Alternatives::LessLikely,
    })
}

/// A collective of a program.
#[derive(Clone, Copy)]
struct Planned {
    group: GroupId,
    what: (Collective, u64, Option<Dtype>),
    at: Option<SourceLine>,
}

fn calls(plan: &Plan, rank: GlobalRank) -> Vec<Planned> {
    let ops = plan.program(rank).map(|program| program.ops.as_slice()).unwrap_or_default();
    let calls = ops.iter().flat_map(|op| op.action.calls().iter().map(|call| (call, op.at)));
    let calls = calls.filter_map(|(call, at)| {
        let Call::Collective { group, collective, count, .. } = call else { return None };
        let tensor = call.tensors().into_iter().flatten().find_map(|id| plan.tensor(id));
        let what = (*collective, *count, tensor.map(|tensor| tensor.dtype));
        Some(Planned { group: *group, what, at })
    });
    calls.collect()
}

/// The first call at which two programs, which are the same call by call, name different groups:
/// always the same two.
fn parted(job: &Job<'_>, own: &[Planned], theirs: &[Planned]) -> Option<usize> {
    let roles = job.roles();
    let other = |(a, b): &(&Planned, &Planned)| !roles.same(a.group, b.group);
    let pairs = || own.iter().zip(theirs);
    let first = pairs().position(|pair| other(&pair))?;
    let (mine, their) = (own.get(first)?, theirs.get(first)?);
    let alike = own.len() == theirs.len() && pairs().all(|(a, b)| a.what == b.what);
    // Two that are made in the other order name each other's.
    let same = |(a, b): (&Planned, &Planned)| {
        roles.same(a.group, mine.group) && roles.same(b.group, their.group)
    };
    (alike && pairs().filter(other).all(same)).then_some(first)
}

fn planned(job: &Job<'_>, plan: &Plan, rank: GlobalRank) -> Option<WrongGroup> {
    let own = calls(plan, rank);
    let others = (0..job.log.world_size).map(GlobalRank).filter(|other| *other != rank);
    let others: Vec<(GlobalRank, Vec<Planned>)> =
        others.take(ASKED).map(|other| (other, calls(plan, other))).collect();
    let places: Vec<Option<usize>> =
        others.iter().map(|(_, theirs)| parted(job, &own, theirs)).collect();
    let first = places.iter().copied().flatten().min()?;
    let with = places.iter().filter(|place| **place == Some(first)).count();
    let model = others.get(places.iter().position(|place| *place == Some(first))?)?;
    let (mine, theirs) = (own.get(first)?, model.1.get(first)?);
    // As many as go its way are no majority.
    let goes_own = |theirs: &[Planned]| {
        let same =
            |(a, b): (&Planned, &Planned)| a.what == b.what && job.roles().same(a.group, b.group);
        theirs.len() == own.len() && own.iter().zip(theirs).all(same)
    };
    let as_own = 1 + others.iter().filter(|(_, theirs)| goes_own(theirs)).count();
    if with <= as_own {
        return None;
    }
    let number = |calls: &[Planned], group: GroupId| {
        calls.iter().take(first + 1).filter(|call| call.group == group).count() as u64
    };
    let said = |call: &Planned, seq: u64| {
        let line = at_line(call.at.map(|at| plan.describe_line(at)));
        let group = words::group_label(job.log, call.group);
        format!("{} #{seq} of {group}{line}", call.what.0.name())
    };
    let all = job.log.ranks.len();
    let (seq, meant_seq) = (number(&own, mine.group), number(&model.1, theirs.group));
    Some(WrongGroup {
        said: format!(
            "{} calls {} where the others call {}.",
            cap_ranks(&[rank]),
            said(mine, seq),
            said(theirs, meant_seq),
        ),
        fix: FIX_GROUP.to_owned(),
        group: mine.group,
        seq: Some(seq),
        op: mine.what.0.name().to_owned(),
        meant: Some(program_order::known_as(job, rank, theirs.group)?),
        meant_seq: Some(meant_seq),
        // Of the ranks that were not asked nobody knows where they make it.
        alternatives: match others.len() + 1 == all && with * 2 > all {
            true => Alternatives::None,
            false => Alternatives::LessLikely,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::group::{BackendName, ProcessGroup};
    use lockstep_core::plan::{Fill, PlanBuilder};
    use lockstep_core::reduce::ReduceOp;
    use lockstep_core::trace::{CallLog, Outcome};

    /// The claim about rank 1 of a plan, which calls in the world what all others call in another group.
    fn told(world_size: u32) -> WrongGroup {
        let backend = BackendName::Gloo;
        let mut plan = PlanBuilder::new("test", world_size, backend).unwrap();
        let all = (0..world_size).map(GlobalRank).collect();
        let group = plan.group(ProcessGroup::new("1", backend, all).unwrap());
        let grad = plan.tensor("grad", Dtype::Float32, 64, Fill::Rank);
        let sum = Collective::AllReduce { op: ReduceOp::Sum };
        let plan = plan.every_rank(|rank, own| {
            let group = if rank.0 == 1 { GroupId::WORLD } else { group };
            own.collective(group, sum, 64, None, Some(grad));
        });
        let log = CallLog {
            world_size,
            groups: plan.as_ref().unwrap().groups.clone(),
            ranks: vec![None; world_size as usize],
            outcome: Outcome::TimedOut,
            recorded: false,
            simulated: false,
            device_times: false,
            ended_ps: None,
            plan: plan.ok().map(Into::into),
        };
        planned(&Job::of(&log), log.plan.as_deref().unwrap(), GlobalRank(1)).unwrap()
    }

    #[test]
    fn what_only_some_were_asked_of_is_not_certain() {
        let small = told(ASKED as u32 + 1);
        assert_eq!((small.group, small.meant), (GroupId::WORLD, Some(GroupId(1))));
        assert_eq!(small.alternatives, Alternatives::None);
        assert_eq!(told(ASKED as u32 + 2).alternatives, Alternatives::LessLikely);
    }
}
