//! The cause of a circle: a rank that left a call out, or made one on top, has been in the wrong
//! calls of its groups since. Where ranks only took their groups in another order, the circle is
//! theirs.

use crate::claim::Claim;
use crate::claim::deed_text::{
    FIX_EXTRA, FIX_SWAPPED, FIX_UNUSED, extra, fix_skipped, skipped, swapped, unused,
};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::facts::broken_habit;
use crate::facts::call_counts;
use crate::facts::deed::{Deed, Reason};
use crate::facts::loops::{fix_loop, left_out};
use crate::facts::pauses;
use crate::facts::plan_votes;
use crate::facts::plan_votes::Astray;
use crate::facts::program_order;
use crate::facts::program_order::{InAnother, odd_ones};
use crate::facts::reason::from_plan_of;
use crate::kinds::Kind;
use crate::model::ddp_frames::DdpPart;
use crate::model::graph::Sink;
use crate::model::index::{Job, Made, Row};
use crate::rules::queued_behind;
use crate::words;
use crate::words::{at_line, cap_ranks, since};
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeSet;

/// The fix of a call that a rank makes in another group than the others.
pub(crate) const FIX_GROUP: &str = "Pass the same group= on every rank at this line: look for a group that \
                         depends on the rank or the step, and for one that is left out, which means \
                         the default group.";

/// Of so many ranks it is looked up whether they did the same.
pub(crate) const ALIKE: usize = 64;

/// The finding of a circle, told as what closed it where most ranks go through the program in one
/// way, and few of the circle in another; or where a plan says who goes astray.
pub(crate) fn claim(facts: &Facts<'_, '_>, sink: &Sink, circle: Claim) -> Claim {
    match facts.job.log.plan.is_some() {
        true => planned(facts, sink, circle),
        false => recorded(facts, sink, circle),
    }
}

fn recorded(facts: &Facts<'_, '_>, sink: &Sink, circle: Claim) -> Claim {
    let job = facts.job;
    let Some(odd) = odd_ones(job, &sink.ranks) else {
        return match broken_habit::broken(job, &facts.graph.tightest(sink)) {
            Some(broken) => as_never(facts, circle, sink, &broken),
            None => match miscounted(facts, sink, &circle) {
                Some(claim) => claim,
                None => queued_behind::claim(facts, sink, &circle)
                    .unwrap_or_else(|| alone(facts, sink, circle)),
            },
        };
    };
    let Some(first) = odd.ranks.first().copied() else { return circle };
    let held = queued_behind::claim(facts, sink, &circle).filter(|held| held.culprits == odd.ranks);
    let mut claim = blame(circle, sink, &odd.ranks);
    claim.alternatives = Alternatives::LessLikely;
    // Behind a call in a circle nothing is seen in any case: it was on top, or its group left out, only if it
    // is the default one's.
    let other = program_order::in_another_group(job, first, odd.model)
        .filter(|other| !other.or_on_top || other.own.record.call.group == GroupId::WORLD);
    if let Some(other) = other {
        let (own, (said, fix)) = (other.own, in_another(job, &[first], other));
        (claim.seq, claim.op) = (own.record.seq, Some(own.record.call.op.clone()));
        return Claim { fix, ..other_group(claim, own.record.call.group, &said) };
    }
    let Some((group, why)) = program_order::reason(job, first, odd.model) else {
        let broken = broken_habit::broken(job, &facts.graph.tightest(sink));
        return match (held, broken.filter(|broken| odd.ranks == [broken.rank])) {
            (Some(held), _) => held,
            (None, Some(broken)) => as_never(facts, claim, sink, &broken),
            (None, None) => claim,
        };
    };
    let alike = |rank: &GlobalRank| {
        let own = program_order::reason(job, *rank, odd.model);
        own.is_some_and(|(own, reason)| own == group && reason.same(&why))
    };
    if odd.ranks.len() > ALIKE || !odd.ranks.iter().skip(1).all(alike) {
        return claim;
    }
    // Nothing in that group is seen of it behind the call that it left out, and little in others.
    let may_come = match &why {
        Reason::Skipped(deed) if deed.alternatives != Alternatives::None => {
            job.last_call(group, first).and_then(|last| last.seq).is_none_or(|last| last < deed.seq)
        }
        _ => false,
    };
    let missed = job.last_number(group, first).map_or(1, |last| last.saturating_add(1));
    let why = match pauses::by_times(job, (group, missed), first, odd.model, &why) {
        Some(deed) => Reason::Skipped(deed),
        None => why,
    };
    let mut claim = tell(facts, claim, &odd.ranks, group, why);
    if !odd.sure {
        claim.alternatives = claim.alternatives.max(Alternatives::LessLikely);
    }
    if may_come {
        claim.message.said += queued_behind::MAY_COME;
    }
    claim
}

/// The circle as the fault of those who wait in a call that most of its group have not come to, where
/// there is one such call: they are where nobody else is.
fn alone(facts: &Facts<'_, '_>, sink: &Sink, circle: Claim) -> Claim {
    let job = facts.job;
    let rows = sink.rows.iter().filter_map(|at| job.rows.get(*at));
    let mut few = rows.filter(|row| row.waiting().len() * 2 < row.absent.len());
    let (Some(row), None) = (few.next(), few.next()) else { return either(facts, sink, circle) };
    let waiting = row.waiting();
    let made = row.made.iter().find(|made| made.pending()).copied();
    let (Some(made), true) = (made, waiting.iter().all(|rank| sink.ranks.contains(rank))) else {
        return either(facts, sink, circle);
    };
    let said = format!(
        "{} alone called {}: that call is one too many, or an earlier one was left out or put off.",
        cap_ranks(&waiting),
        words::call(job.log, made)
    );
    let mut claim = blame(circle, sink, &waiting);
    claim.alternatives = Alternatives::LessLikely;
    claim.group = Some(row.group);
    (claim.seq, claim.op) = (Some(row.seq), Some(made.record.call.op.clone()));
    claim.message.said = since(&said, &claim.message.said);
    claim
}

/// The circle as the fault of the one that made fewer calls than its peers, or more.
fn miscounted(facts: &Facts<'_, '_>, sink: &Sink, circle: &Claim) -> Option<Claim> {
    let job = facts.job;
    let odd = call_counts::odd_one(job, &facts.graph.tightest(sink).ranks)?;
    let mut claim = blame(circle.clone(), sink, &[odd.rank]);
    claim.alternatives = Alternatives::LessLikely;
    claim.message.said = since(&odd.said, &circle.message.said);
    let rows = sink.rows.iter().filter_map(|at| job.rows.get(*at));
    // It has gone on without a call in which others wait.
    let left_out = rows.filter(|row| odd.fewer && row.lacks(odd.rank)).min_by_key(|row| row.seq);
    if let Some(row) = left_out {
        let made = row.made.iter().find(|made| made.pending())?;
        claim.kind = Kind::OpSkipped;
        claim.group = Some(row.group);
        (claim.seq, claim.op) = (Some(row.seq), Some(made.record.call.op.clone()));
        claim.fix = fix_skipped(DdpPart::of_stack(&made.record.call.stack));
    }
    Some(claim)
}

/// A circle between whose sides nothing decides: that they wait for each other is certain, and who of
/// them is to blame is not.
fn either(facts: &Facts<'_, '_>, sink: &Sink, circle: Claim) -> Claim {
    if circle.alternatives != Alternatives::None {
        return circle;
    }
    let tight = facts.graph.tightest(sink);
    let rows = tight.rows.iter().filter_map(|at| facts.job.rows.get(*at));
    let groups: BTreeSet<GroupId> = rows.map(|row| row.group).collect();
    let said = match groups.len() {
        2 => {
            " Either side may be the one that takes them otherwise than the program means, or that \
              left a call out before: the recording cannot tell."
        }
        _ => {
            " Any of them may be the one that takes its groups otherwise than the program means, or \
              that left a call out before: the recording cannot tell."
        }
    };
    let message = circle.message.said + said;
    Claim { alternatives: Alternatives::LessLikely, message: message.into(), ..circle }
}

/// `Rank 2 called all_reduce #1 of default_pg (train.py:9) where rank 0 called all_reduce #2 of tp
/// (train.py:9).`
pub(crate) fn instead(
    job: &Job<'_>,
    ranks: &[GlobalRank],
    own: Made<'_>,
    theirs: Made<'_>,
) -> String {
    format!(
        "{} called {} where {} called {}.",
        cap_ranks(ranks),
        words::call(job.log, own),
        words::ranks(&[theirs.rank]),
        words::call(job.log, theirs),
    )
}

/// The same of a call in another group, with what to do about it.
pub(crate) fn in_another(
    job: &Job<'_>,
    ranks: &[GlobalRank],
    other: InAnother<'_>,
) -> (String, String) {
    let said = instead(job, ranks, other.own, other.theirs);
    if !other.or_on_top {
        return (said, FIX_GROUP.to_owned());
    }
    let fix = format!("{FIX_GROUP} If the call is one too many: {}", words::uncapital(FIX_EXTRA));
    (format!("{said} Or it made that call on top: nothing is seen of it behind."), fix)
}

/// With a plan: some group of the circle has members whose programs make other calls of it than they
/// should.
fn planned(facts: &Facts<'_, '_>, sink: &Sink, circle: Claim) -> Claim {
    let job = facts.job;
    let groups: BTreeSet<GroupId> =
        sink.rows.iter().filter_map(|at| Some(job.rows.get(*at)?.group)).collect();
    let in_circle =
        |astray: &Astray| astray.ranks.iter().all(|rank| sink.ranks.binary_search(rank).is_ok());
    let mut found: Vec<(GroupId, Astray, Reason)> = groups
        .into_iter()
        .filter_map(|group| {
            let astray = plan_votes::astray(job, group).filter(in_circle)?;
            let why = |rank: &GlobalRank| from_plan_of(job, group, *rank, astray.model);
            let first = why(astray.ranks.first()?);
            let few = astray.ranks.len() <= ALIKE;
            let alike = few && astray.ranks.iter().skip(1).all(|rank| why(rank).same(&first));
            let why = if alike { first.at_most(astray.alternatives) } else { Reason::Other };
            Some((group, astray, why))
        })
        .collect();
    found.sort_by_key(|(_, astray, why)| (*why == Reason::Other, astray.alternatives));
    let Some((group, astray, why)) = found.first().cloned() else {
        // All make the same calls of each group, and few take their groups in another order.
        let Some(odd) = odd_ones(job, &sink.ranks) else { return tied(facts, sink, circle) };
        return Claim { alternatives: Alternatives::LessLikely, ..blame(circle, sink, &odd.ranks) };
    };
    let mut claim = blame(circle, sink, &astray.ranks);
    claim.alternatives = astray.alternatives;
    let of = |found: &(GroupId, Astray, Reason)| found.1.ranks == astray.ranks;
    let single = |deed: &Deed| deed.count == 1;
    let added = found.iter().filter(|found| of(found)).find_map(|found| match &found.2 {
        Reason::Extra(deed) if single(deed) => Some((found.0, deed.clone())),
        _ => None,
    });
    let left_out = found.iter().filter(|found| of(found)).find_map(|found| match &found.2 {
        Reason::Skipped(deed) if single(deed) => Some((found.0, deed.clone())),
        _ => None,
    });
    if let (Some((called, own)), Some((instead_of, theirs))) = (added, left_out)
        && own.op == theirs.op
    {
        let said = format!(
            "{} called {} #{} of {}{} where the others call {} #{} of {}{}.",
            cap_ranks(&astray.ranks),
            own.op,
            own.seq,
            words::group_label(job.log, called),
            at_line(own.line),
            theirs.op,
            theirs.seq,
            words::group_label(job.log, instead_of),
            at_line(theirs.line),
        );
        claim.seq = Some(own.seq);
        claim.op = Some(own.op);
        return other_group(claim, called, &said);
    }
    let alternatives = claim.alternatives;
    let mut claim = tell(facts, claim, &astray.ranks, group, why);
    claim.alternatives = claim.alternatives.max(alternatives);
    claim
}

/// With a plan in which as many members of a group go one way as another: what a rank has done before
/// may tell whose way it is.
fn tied(facts: &Facts<'_, '_>, sink: &Sink, circle: Claim) -> Claim {
    let job = facts.job;
    let tight = facts.graph.tightest(sink);
    let rows = tight.rows.iter().filter_map(|at| job.rows.get(*at));
    let groups: BTreeSet<GroupId> = rows.map(|row| row.group).collect();
    let said = groups.into_iter().find_map(|group| {
        let calls = plan_votes::numbers(job, group).filter(|calls| calls.len() > 1)?;
        let calls = calls.iter().map(|(calls, ranks)| {
            format!("{} by {}", words::count(*calls, "call"), words::ranks(ranks))
        });
        let label = words::group_label(job.log, group);
        Some((label, calls.collect::<Vec<_>>().join(", ")))
    });
    let Some((label, calls)) = said else { return circle };
    if let Some(broken) = broken_habit::broken(job, &tight) {
        return as_never(facts, circle, sink, &broken);
    }
    let message = format!(
        "{} The programs make different calls of {label} ({calls}): one side leaves some out, or the \
         other makes some too many, and nothing tells which.",
        circle.message.said
    );
    Claim { alternatives: Alternatives::AsLikely, message: message.into(), ..circle }
}

/// A claim that a rank never came to a call since it left out one of that group before, as its
/// calls in all its groups show beside those of ranks that go through the program as most do.
pub(crate) fn skipped_among_groups(
    facts: &Facts<'_, '_>,
    culprits: &[GlobalRank],
    row: &Row<'_>,
) -> Reason {
    let job = facts.job;
    let [rank] = culprits else { return Reason::Other };
    let last = job.rank(*rank).and_then(|own| own.calls.last());
    let elsewhere = last.is_some_and(|last| !last.call.p2p && last.call.group != row.group);
    if job.log.plan.is_some() || !elsewhere || !job.may_look() {
        return Reason::Other;
    }
    let among: Vec<GlobalRank> = row.waiting().into_iter().chain([*rank]).collect();
    let odd = odd_ones(job, &among).filter(|odd| odd.ranks == [*rank]);
    match odd.and_then(|odd| program_order::reason(job, *rank, odd.model)) {
        Some((group, Reason::Skipped(deed))) if group == row.group => Reason::Skipped(deed),
        _ => Reason::Other,
    }
}

/// The circle as the fault of a rank that takes its groups as it never has.
///
/// It left a call out, or made the two in the other order, and its calls look the same. A call of all members of
/// the other group and more ends what they do together: a rank that has come to it left the earlier call out. Of
/// two groups that share some members, each rank orders the calls for itself: all that is sure is the circle.
fn as_never(
    facts: &Facts<'_, '_>,
    circle: Claim,
    sink: &Sink,
    broken: &broken_habit::Broken,
) -> Claim {
    let job = facts.job;
    let circle = blame(circle, sink, &[broken.rank]);
    let message = circle.message.said.clone() + &broken.said;
    let order = circle.fix.clone();
    let mut rows = sink.rows.iter().filter_map(|at| job.rows.get(*at));
    let due = rows.find(|row| row.group == broken.due && row.lacks(broken.rank));
    let made = due.and_then(|row| row.made.iter().find(|made| made.pending()));
    let nested = sink
        .rows
        .iter()
        .filter_map(|at| job.rows.get(*at))
        .all(|row| row.group == broken.due || is_within(job, broken.due, row.group));
    let Some(made) = made.filter(|_| nested) else {
        let left_out = words::uncapital(&fix_skipped(None));
        let fix = format!("{order} If it left a call out: {left_out}");
        return Claim {
            alternatives: Alternatives::LessLikely,
            message: message.into(),
            fix,
            ..circle
        };
    };
    let deed = Deed::of(job, made.record, made.rank);
    let circle =
        Claim { alternatives: Alternatives::LessLikely, message: message.into(), ..circle };
    let mut claim = tell(facts, circle, &[broken.rank], broken.due, Reason::Skipped(deed));
    claim.fix += &format!(" If it makes the two in the other order: {}", words::uncapital(&order));
    claim
}

/// True if all members of a group are members of another one.
fn is_within(job: &Job<'_>, inner: GroupId, outer: GroupId) -> bool {
    let (Some(inner), Some(outer)) = (job.group(inner), job.group(outer)) else { return false };
    inner.ranks().iter().all(|rank| outer.group_rank(*rank).is_some())
}

/// The circle as the fault of some of its ranks.
fn blame(circle: Claim, sink: &Sink, ranks: &[GlobalRank]) -> Claim {
    let others = sink.ranks.iter().copied().filter(|rank| !ranks.contains(rank)).collect();
    Claim { culprits: ranks.to_vec(), also_victims: others, ..circle }
}

/// A call made in another group than the others make it in.
fn other_group(circle: Claim, group: GroupId, said: &str) -> Claim {
    Claim {
        kind: Kind::OpExtra,
        group: Some(group),
        message: since(said, &circle.message.said).into(),
        fix: FIX_GROUP.to_owned(),
        ..circle
    }
}

/// The circle, or whatever else waits, told as what `ranks` did otherwise than the others in their calls of `group`.
pub(crate) fn tell(
    facts: &Facts<'_, '_>,
    mut claim: Claim,
    ranks: &[GlobalRank],
    group: GroupId,
    why: Reason,
) -> Claim {
    let (who, label) = (cap_ranks(ranks), words::group_label(facts.job.log, group));
    let (kind, said, fix, deed) = match why {
        Reason::Skipped(deed) => {
            let said = skipped(&who, &deed, &label);
            (Kind::OpSkipped, said, fix_skipped(deed.ddp), Some(deed))
        }
        Reason::Unused(deed) => {
            let said = unused(&who, &deed, &label);
            (Kind::DdpUnusedParameters, said, FIX_UNUSED.to_owned(), Some(deed))
        }
        Reason::Extra(deed) => {
            (Kind::OpExtra, extra(&who, &deed, &label), FIX_EXTRA.to_owned(), Some(deed))
        }
        Reason::Swapped(deed) => {
            (Kind::OpsSwapped, swapped(&who, &deed, &label), FIX_SWAPPED.to_owned(), Some(deed))
        }
        Reason::LeftLoop { ddp, short_by, .. } => {
            let said = format!("{who} left a loop before the others{}.", left_out(short_by));
            claim.alternatives = claim.alternatives.max(Alternatives::LessLikely);
            let kind = if ddp { Kind::DdpUnevenInputs } else { Kind::LoopShorter };
            (kind, said, fix_loop(ddp).to_owned(), None)
        }
        Reason::StayedInLoop { .. } | Reason::Replaced | Reason::Other => return claim,
    };
    claim.kind = kind;
    claim.group = Some(group);
    if let Some(deed) = deed {
        (claim.seq, claim.alternatives) = (Some(deed.told_seq()), deed.alternatives);
        claim.op = Some(deed.op);
    }
    claim.message.said = since(&said, &claim.message.said);
    claim.fix = fix;
    claim
}
