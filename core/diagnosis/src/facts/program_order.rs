//! Finds the ranks that go through the program in step with most others, across groups.
//!
//! Ranks of one job run one program. Groups that stand for each other (tensor-parallel groups of
//! several nodes, say) are called alike by their members, with the same numbers: so a rank can be
//! compared with ranks that it shares no group with, and a group of two is not a tie when ten others
//! went the other way.

use crate::facts::alternatives::Alternatives;
use crate::facts::deed::{Deed, Reason};
use crate::facts::edit_distance::{Alignment, Edit, Place, align_in};
use crate::facts::loops::is_later;
use crate::model::ddp_frames::is_ddp;
use crate::model::index::{Job, Made};
use crate::model::roles::Roles;
use crate::words::line_of;
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallSignature;
use lockstep_core::trace::{CallRecord, CallState};
use std::collections::BTreeSet;

/// So many of a rank's last calls are compared.
const LAST: usize = 512;
/// So many ranks are compared, beside those in question.
const RANKS: usize = 256;
/// So many ways through the program are told apart.
const WAYS: usize = 8;

/// Ranks that went another way than most.
#[derive(Clone, Debug)]
pub(crate) struct Odd {
    /// Ascending.
    pub(crate) ranks: Vec<GlobalRank>,
    /// A rank that went as most did, and got furthest.
    pub(crate) model: GlobalRank,
    /// True if those of whom nothing was recorded could not make another way that of most.
    pub(crate) sure: bool,
}

/// The ranks of `among` that went another way than most of the job's; `None` if there are none, or if
/// no way has most ranks.
pub(crate) fn odd_ones(job: &Job<'_>, among: &[GlobalRank]) -> Option<Odd> {
    let roles = job.roles();
    let others = job.log.logs().map(|(rank, _)| rank).filter(|rank| !among.contains(rank));
    let asked = among.iter().copied().chain(others.take(RANKS));
    let mut ranks: Vec<Known<'_>> = asked.map(|rank| Known::of(job, rank)).collect();
    ranks.retain(|known| !known.calls.is_empty());
    // The ranks that got furthest first: who stands early goes all ways as far as can be seen.
    let far = |known: &Known<'_>| known.calls.last().map_or(0, |last| last.work);
    ranks.sort_by_key(|known| (std::cmp::Reverse(far(known)), known.rank));
    let goes = |known: &Known<'_>, model: &Known<'_>| {
        // Whom nobody accuses is held against what it is known to be a member of.
        let unlisted = |known: &Known<'_>| among.contains(&known.rank);
        let own = known.calls_with(job, model, unlisted(model));
        let theirs = model.calls_with(job, known, unlisted(known));
        in_step(&own, &theirs, roles)
    };
    let mut ways: Vec<Way<'_, '_>> = Vec::new();
    for (at, known) in ranks.iter().enumerate() {
        // A rank outside its groups does not show the way in them.
        let shown = |way: &Way<'_, '_>| known.roles.is_subset(&way.of.roles);
        let has_one = ways.iter().any(|way| shown(way) && way.goes(at) == Some(true));
        if !has_one && ways.len() < WAYS {
            let goes = ranks.iter().map(|other| goes(other, known)).collect();
            ways.push(Way { of: known, goes, members: Vec::new() });
        }
    }
    let accused: Vec<usize> = (0..ranks.len())
        .filter(|at| ranks.get(*at).is_some_and(|known| among.contains(&known.rank)))
        .collect();
    ways.retain(|way| accused.iter().any(|at| way.goes(*at) == Some(false)));
    // A rank that contradicts no way has no vote: it has not come so far, or is not in those groups.
    let silent = |at: usize| {
        ways.iter().any(|way| way.goes(at) == Some(true))
            && !ways.iter().any(|way| way.goes(at) == Some(false))
    };
    let silent: Vec<bool> = (0..ranks.len()).map(silent).collect();
    for way in &mut ways {
        let on_it = ranks.iter().zip(&way.goes).zip(&silent);
        let on_it = on_it.filter(|((_, goes), silent)| **goes == Some(true) && !**silent);
        way.members = on_it.map(|((known, _), _)| known.rank).collect();
    }
    let heard = silent.iter().filter(|silent| !**silent).count();
    // Ranks without a recording may have gone another way.
    let unrecorded = job.log.ranks.iter().filter(|log| log.is_none()).count();
    // Stages of a pipeline go other ways: where no way is most ranks', the ways of those in question
    // are held against each other.
    // Without them, only ranks that are in all of its groups speak for a way.
    let of_recorded = usual(&ways, heard).filter(|way| {
        let in_all = |rank: &&GlobalRank| kinds_of(job, **rank) == way.of.roles;
        way.members.iter().filter(in_all).count() * 2 > heard
    });
    let way = usual(&ways, heard + unrecorded).or_else(|| {
        ways.retain(|way| way.members.iter().any(|rank| among.contains(rank)));
        let known: BTreeSet<GlobalRank> =
            ways.iter().flat_map(|way| &way.members).copied().collect();
        usual(&ways, known.len() + unrecorded)
    });
    let sure = way.is_some();
    let way = way.or(of_recorded)?;
    let odd = accused.iter().filter(|at| way.goes(**at) == Some(false));
    let mut odd: Vec<GlobalRank> = odd.filter_map(|at| Some(ranks.get(*at)?.rank)).collect();
    // The members of a group that only one rank has called are guessed: others may have no such group.
    odd.retain(|rank| !stands_alone(job, *rank));
    odd.sort_unstable();
    let few = !odd.is_empty() && odd.len() < way.members.len();
    few.then_some(Odd { ranks: odd, model: way.of.rank, sure })
}

/// A rank, its last calls, and what its groups stand for.
pub(crate) struct Known<'a> {
    pub(crate) rank: GlobalRank,
    pub(crate) calls: Vec<&'a CallRecord>,
    pub(crate) roles: BTreeSet<usize>,
}

impl<'a> Known<'a> {
    pub(crate) fn of(job: &Job<'a>, rank: GlobalRank) -> Known<'a> {
        Known { rank, calls: last(job, rank), roles: kinds_of(job, rank) }
    }

    /// The calls in groups that another rank has as well: what it does not make elsewhere says
    /// nothing. With `unlisted`, those in groups of which nobody knows the members, too.
    fn calls_with(&self, job: &Job<'_>, other: &Known<'_>, unlisted: bool) -> Vec<&'a CallRecord> {
        let shared = |call: &&&CallRecord| {
            let group = call.call.group;
            job.roles().role(group).is_some_and(|role| other.roles.contains(&role))
                || (unlisted && job.members_are_worked_out(group))
        };
        self.calls.iter().filter(shared).copied().collect()
    }
}

/// The roles of the groups that a rank is in.
pub(crate) fn kinds_of(job: &Job<'_>, rank: GlobalRank) -> BTreeSet<usize> {
    let groups = (0..).map(GroupId).zip(&job.log.groups);
    let own = groups.filter(|(_, group)| group.group_rank(rank).is_some());
    own.filter_map(|(id, _)| job.roles().role(id)).collect()
}

/// The last calls of two ranks in the groups that both have.
fn both_last<'a>(
    job: &Job<'a>,
    rank: GlobalRank,
    other: GlobalRank,
) -> (Vec<&'a CallRecord>, Vec<&'a CallRecord>) {
    let (own, theirs) = (Known::of(job, rank), Known::of(job, other));
    (own.calls_with(job, &theirs, true), theirs.calls_with(job, &own, true))
}

/// Two ranks' last calls in the groups that both have, from where both are known.
struct SideBySide<'a> {
    own: Vec<&'a CallRecord>,
    theirs: Vec<&'a CallRecord>,
    /// The number of calls that are the same until the two part.
    common: usize,
}

impl<'a> SideBySide<'a> {
    fn of(job: &Job<'a>, rank: GlobalRank, other: GlobalRank) -> Option<SideBySide<'a>> {
        let roles = job.roles();
        let (own, theirs) = both_last(job, rank, other);
        let (own, theirs) = anchored(&own, &theirs, roles)?;
        let common = own.iter().zip(theirs).take_while(|(a, b)| same(a, b, roles)).count();
        Some(SideBySide { own: own.to_vec(), theirs: theirs.to_vec(), common })
    }
}

/// True if a rank's calls are another's up to its last one of a group: it left none of them out before.
pub(crate) fn all_of(job: &Job<'_>, rank: GlobalRank, model: GlobalRank, group: GroupId) -> bool {
    let roles = job.roles();
    let Some(SideBySide { own, common, .. }) = SideBySide::of(job, rank, model) else {
        return false;
    };
    let rest = own.get(common..).unwrap_or_default();
    common > 0 && !rest.iter().any(|call| roles.same(call.call.group, group))
}

/// True if two ranks' calls are the same in the groups that both have, as far as both are known; `None`
/// if they have none in common.
pub(crate) fn alike_so_far(job: &Job<'_>, rank: GlobalRank, other: GlobalRank) -> Option<bool> {
    let (own, theirs) = both_last(job, rank, other);
    in_step(&own, &theirs, job.roles())
}

/// A way through the program: the rank that it is taken from, and who goes it.
#[derive(Clone)]
struct Way<'s, 'a> {
    of: &'s Known<'a>,
    /// True for each compared rank that goes this way; `None` if too little is recorded to say.
    goes: Vec<Option<bool>>,
    /// The ranks on this way that others are compared with.
    members: Vec<GlobalRank>,
}

impl Way<'_, '_> {
    fn goes(&self, rank: usize) -> Option<bool> {
        self.goes.get(rank).copied().flatten()
    }
}

/// The one way that more than half of so many ranks go.
fn usual<'s, 'a>(ways: &[Way<'s, 'a>], all: usize) -> Option<Way<'s, 'a>> {
    let most = ways.iter().map(|way| way.members.len()).max()?;
    let mut usual = ways.iter().filter(|way| way.members.len() == most);
    let way = usual.next()?;
    (usual.next().is_none() && most * 2 > all).then(|| way.clone())
}

/// True of a rank that waits in a group whose members are not listed, and that no other has called.
fn stands_alone(job: &Job<'_>, rank: GlobalRank) -> bool {
    let calls = job.rank(rank).map(|log| log.calls.as_slice()).unwrap_or_default();
    let Some(last) = calls.iter().rfind(|record| !record.call.p2p) else { return false };
    let group = last.call.group;
    let others = || job.rows_of(group).iter().flat_map(|row| &row.made);
    job.members_are_worked_out(group) && others().all(|made| made.rank == rank)
}

/// The deviation of `rank` from `model`, over all groups: left out, added, a loop left early, or two
/// calls of one group swapped. With the group, by the name that the rank knows it under.
pub(crate) fn reason(
    job: &Job<'_>,
    rank: GlobalRank,
    model: GlobalRank,
) -> Option<(GroupId, Reason)> {
    let roles = job.roles();
    let SideBySide { own, theirs, common } = SideBySide::of(job, rank, model)?;
    let found = align_in(&own, &theirs, Some(roles));
    let first = found.as_ref().and_then(|found| found.edits.first()).copied();
    // Calls of a loop match again after a shift by any number of iterations. A shift that lies before
    // the point where the ranks part, and explains only the call that a rank waits in, is no evidence.
    let told = |found: &Alignment, first: &Place| {
        found.matched > 1 || first.own.min(first.theirs) >= common
    };
    let Some((found, first)) = found.zip(first).filter(|(found, first)| told(found, first)) else {
        return round_or_end(job, rank, &own, &theirs, common, roles);
    };
    let alternatives = match found.only && found.matched > 1 && found.edits.len() == 1 {
        true => Alternatives::None,
        false => Alternatives::LessLikely,
    };
    let deed = |record: &CallRecord, of: GlobalRank, count: usize, alternatives: Alternatives| {
        Deed { count, alternatives, ..Deed::of(job, record, of) }
    };
    match first.edit {
        Edit::Skipped { count } => {
            let record = *theirs.get(first.theirs)?;
            let next = theirs.get(first.theirs + count);
            let other_group =
                next.is_some_and(|next| !roles.same(next.call.group, record.call.group));
            let in_order = next.is_some_and(|next| {
                let before = own.get(..first.own).unwrap_or_default();
                before.windows(2).any(|pair| match pair {
                    [a, b] => same(a, record, roles) && same(b, next, roles),
                    _ => false,
                })
            });
            if found.matched < 2 && other_group && !in_order {
                // It stands in the call of another group that comes next: it may as well have
                // begun with that one, unless it has made the two in the others' order before.
                return None;
            }
            let group = known_as(job, rank, record.call.group)?;
            let deed = deed(record, model, count, alternatives);
            let left = left_rounds(&own, &theirs, first.own, first.theirs, count, roles);
            let reason = match left {
                true => Reason::LeftLoop {
                    ddp: deed.ddp.is_some(),
                    rounds: None,
                    short_by: Some(count),
                },
                false => Reason::Skipped(deed),
            };
            Some((group, reason))
        }
        Edit::Extra { count } => {
            let record = *own.get(first.own)?;
            Some((record.call.group, Reason::Extra(deed(record, rank, count, alternatives))))
        }
        Edit::Swapped => {
            let (one, two) = (*theirs.get(first.theirs)?, *theirs.get(first.theirs + 1)?);
            // Across groups it is the groups' order that is swapped.
            if one.call.group != two.call.group {
                return None;
            }
            let other = Some((two.call.op.clone(), line_of(job.log, model, two)));
            let group = known_as(job, rank, one.call.group)?;
            Some((group, Reason::Swapped(Deed { other, ..deed(one, model, 1, alternatives) })))
        }
        Edit::Replaced => None,
    }
}

/// The first calls in which two ranks part.
pub(crate) fn where_they_part<'a>(
    job: &Job<'a>,
    rank: GlobalRank,
    model: GlobalRank,
) -> Option<(Made<'a>, Made<'a>)> {
    let SideBySide { own, theirs, common } = SideBySide::of(job, rank, model)?;
    let (mine, other) = (own.get(common)?, theirs.get(common)?);
    Some((Made { rank, record: mine }, Made { rank: model, record: other }))
}

/// A call that a rank made in one group where another rank made the same in a group of another kind.
#[derive(Clone, Copy)]
pub(crate) struct InAnother<'a> {
    pub(crate) own: Made<'a>,
    pub(crate) theirs: Made<'a>,
    /// True if it may have been made on top as well: it is of another line, and nothing is seen behind it.
    pub(crate) or_on_top: bool,
}

/// The call that `rank` made in one group where `model` made the same in a group of another kind: the
/// first one in which the two part. Both are from one line, or are followed by the same calls again; or the
/// rank stands in its own, at a line to which nobody else comes.
pub(crate) fn in_another_group<'a>(
    job: &Job<'a>,
    rank: GlobalRank,
    model: GlobalRank,
) -> Option<InAnother<'a>> {
    let roles = job.roles();
    let SideBySide { own, theirs, common } = SideBySide::of(job, rank, model)?;
    let (mine, other) = (*own.get(common)?, *theirs.get(common)?);
    let alike = CallSignature::of(&mine.call).difference(&CallSignature::of(&other.call)).is_none();
    let line = !mine.call.stack.is_empty() && mine.call.stack == other.call.stack;
    // The others come to that line as well, for that group: it is there, and left something out.
    let theirs_too = theirs.iter().any(|call| {
        roles.same(call.call.group, mine.call.group)
            && !mine.call.stack.is_empty()
            && call.call.stack == mine.call.stack
    });
    let goes_on = own.get(common + 1).zip(theirs.get(common + 1));
    let goes_on = goes_on.is_some_and(|(a, b)| same(a, b, roles));
    let lines = !mine.call.stack.is_empty() && !other.call.stack.is_empty();
    // Without lines the size of a tensor tells, where none like it was ever in such a group.
    let sized = mine.call.payload() > 1
        && !own.iter().take(common).chain(&theirs).any(|call| same(call, mine, roles));
    let tells = lines || (sized && mine.call.stack.is_empty() && other.call.stack.is_empty());
    let stands = mine.state != CallState::Completed && own.len() == common + 1 && tells;
    let found = alike
        && !roles.same(mine.call.group, other.call.group)
        && (line || ((goes_on || stands) && !theirs_too));
    found.then_some(InAnother {
        own: Made { rank, record: mine },
        theirs: Made { rank: model, record: other },
        or_on_top: !line && !goes_on,
    })
}

/// The difference between two ranks that part in the calls that they stand in: one is in a call
/// that has been made before, again and again, the other in one that has not. The former is in a
/// loop that the latter has left.
fn round_or_end(
    job: &Job<'_>,
    rank: GlobalRank,
    own: &[&CallRecord],
    theirs: &[&CallRecord],
    common: usize,
    roles: &Roles,
) -> Option<(GroupId, Reason)> {
    const ROUNDS: usize = 2;
    let (mine, other) = (*own.get(common)?, *theirs.get(common)?);
    let before = own.get(..common)?;
    let made = |call: &CallRecord| before.iter().filter(|known| same(known, call, roles)).count();
    // In a loop that went past its line again and again, a call stands in a branch: not behind the loop.
    let in_loop = || {
        let earlier = |known: &CallRecord| {
            is_later(&mine.call.stack, &known.call.stack) == Some(false) && made(known) >= ROUNDS
        };
        earlier(other) || before.iter().any(|known| earlier(known))
    };
    let on_top = || {
        mine.seq?;
        Some((mine.call.group, Reason::Extra(Deed::of(job, mine, rank))))
    };
    match (made(mine), made(other)) {
        (ROUNDS.., 0) => on_top(),
        (0, ROUNDS..) if in_loop() => on_top(),
        (0, ROUNDS..) => {
            let ddp = is_ddp(&other.call.stack) && !is_ddp(&mine.call.stack);
            let group = known_as(job, rank, other.call.group)?;
            Some((group, Reason::LeftLoop { ddp, rounds: None, short_by: None }))
        }
        _ => None,
    }
}

/// True if what was left out are whole rounds of a loop, and the rank is behind it.
fn left_rounds(
    own: &[&CallRecord],
    theirs: &[&CallRecord],
    at: usize,
    other: usize,
    count: usize,
    roles: &Roles,
) -> bool {
    let (Some(before), Some(left)) = (own.get(..at), theirs.get(other..other + count)) else {
        return false;
    };
    let behind = theirs.get(other + count).zip(left.first());
    if count < 2 || behind.is_none_or(|(behind, first)| same(behind, first, roles)) {
        return false;
    }
    (1..=count).any(|period| {
        let round = before.len().checked_sub(period).and_then(|from| before.get(from..));
        count.is_multiple_of(period)
            && round.is_some_and(|round| {
                left.iter().zip(round.iter().cycle()).all(|(a, b)| same(a, b, roles))
            })
    })
}

/// The group that a rank knows another rank's group as.
pub(crate) fn known_as(job: &Job<'_>, rank: GlobalRank, group: GroupId) -> Option<GroupId> {
    let own = |id: &GroupId| {
        job.roles().same(*id, group)
            && job.group(*id).is_some_and(|it| it.group_rank(rank).is_some())
    };
    (0..).map(GroupId).take(job.log.groups.len()).find(own)
}

/// The last collectives of a rank, in order.
pub(crate) fn last<'a>(job: &Job<'a>, rank: GlobalRank) -> Vec<&'a CallRecord> {
    let calls = job.rank(rank).map(|log| log.calls.as_slice()).unwrap_or_default();
    let mut last: Vec<&CallRecord> =
        calls.iter().rev().filter(|record| !record.call.p2p).take(LAST).collect();
    last.reverse();
    last
}

/// Both from the first call on that both have; `None` if they have none in common.
fn anchored<'s, 'a>(
    own: &'s [&'a CallRecord],
    theirs: &'s [&'a CallRecord],
    roles: &Roles,
) -> Option<(&'s [&'a CallRecord], &'s [&'a CallRecord])> {
    let meets = |a: &CallRecord, b: &CallRecord| {
        a.seq.is_some() && a.seq == b.seq && roles.same(a.call.group, b.call.group)
    };
    let (first, other) = (*own.first()?, *theirs.first()?);
    if let Some(at) = theirs.iter().position(|record| meets(first, record)) {
        return Some((own, theirs.get(at..)?));
    }
    let at = own.iter().position(|record| meets(record, other))?;
    Some((own.get(at..)?, theirs))
}

/// True if one rank's calls are the other's as far as both go; `None` if they have no call in common, or go
/// in rounds of their own.
fn in_step(own: &[&CallRecord], theirs: &[&CallRecord], roles: &Roles) -> Option<bool> {
    let (own, theirs) = anchored(own, theirs, roles)?;
    let Some(part) = own.iter().zip(theirs).position(|(a, b)| !same(a, b, roles)) else {
        return Some(true);
    };
    let apart = own.get(part).zip(theirs.get(part));
    let kinds = apart.is_some_and(|(a, b)| !roles.same(a.call.group, b.call.group));
    (!(kinds && is_habit(own, part) && is_habit(theirs, part))).then_some(false)
}

/// True of a call that came to its end where a rank has made it again and again since, behind the same one: it
/// is in its groups in that order.
fn is_habit(calls: &[&CallRecord], at: usize) -> bool {
    /// Fewer times are no habit.
    const TIMES: usize = 2;
    let like = |a: &CallRecord, b: &CallRecord| {
        a.call.group == b.call.group
            && CallSignature::of(&a.call).difference(&CallSignature::of(&b.call)).is_none()
    };
    let Some(record) = calls.get(at).filter(|it| it.state == CallState::Completed) else {
        return false;
    };
    let before = at.checked_sub(1).and_then(|at| calls.get(at));
    let later = (at + 1..calls.len()).filter(|later| {
        let ahead = later.checked_sub(1).and_then(|at| calls.get(at));
        calls.get(*later).is_some_and(|it| like(it, record))
            && before.zip(ahead).is_none_or(|(a, b)| like(a, b))
    });
    later.take(TIMES).count() == TIMES
}

/// True if both are the same call, in groups that stand for each other.
pub(crate) fn same(a: &CallRecord, b: &CallRecord, roles: &Roles) -> bool {
    roles.same(a.call.group, b.call.group)
        && (std::sync::Arc::ptr_eq(&a.call, &b.call)
            || CallSignature::of(&a.call).difference(&CallSignature::of(&b.call)).is_none())
}
