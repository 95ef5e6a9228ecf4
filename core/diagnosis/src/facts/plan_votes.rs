//! Ranks that go astray in a plan: in a job that ends well, the members of a group make the same
//! collectives of it. Where their programs do not, one of them left a call out or made one on top,
//! whatever circle the job ends in.
//!
//! Most members are right. Where none are most, as in a group of two, the groups that stand for this
//! one in other parts of a mesh show what its calls are.

use crate::facts::alternatives::Alternatives;
use crate::model::index::Job;
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::GroupId;
use lockstep_core::plan::{Call, Plan};
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;

/// So many groups that stand for one are looked at.
const SIBLINGS: usize = 64;
/// Programs that differ in more ways are not told apart.
const WAYS: usize = 8;

/// Members of a group whose programs make other calls of it than they should.
#[derive(Clone, Debug)]
pub(crate) struct Astray {
    /// Ascending.
    pub(crate) ranks: Vec<GlobalRank>,
    /// A member that makes the calls that it should.
    pub(crate) model: GlobalRank,
    /// The weight of the open alternatives.
    pub(crate) alternatives: Alternatives,
}

/// The parts of a call that a group's members must agree on.
type Key = (Collective, u64, Option<Dtype>);

/// The members of `group` whose programs make other calls of it than most members', or than those of
/// the groups that stand for it; `None` without a plan, where all agree, or where nothing tells who is
/// right.
pub(crate) fn astray(job: &Job<'_>, group: GroupId) -> Option<Astray> {
    let plan = job.log.plan.as_deref()?;
    let ways = ways(plan, group)?;
    if ways.len() < 2 {
        return None;
    }
    let members: usize = ways.iter().map(|(_, ranks)| ranks.len()).sum();
    let most = ways.iter().position(|(_, ranks)| ranks.len() * 2 > members);
    let (right, alternatives) = match most {
        // A majority of one group is none against the groups that stand for it.
        Some(most) => match as_siblings(job, plan, group, &ways) {
            Some((right, alternatives)) if right != most => match alternatives {
                Alternatives::None => (right, Alternatives::LessLikely),
                _ => (most, Alternatives::LessLikely),
            },
            _ => (most, Alternatives::None),
        },
        None => as_siblings(job, plan, group, &ways)?,
    };
    let model = *ways.get(right)?.1.first()?;
    let others = ways.iter().enumerate().filter(|(at, _)| *at != right);
    let mut ranks: Vec<GlobalRank> = others.flat_map(|(_, (_, ranks))| ranks.clone()).collect();
    ranks.sort_unstable();
    Some(Astray { ranks, model, alternatives })
}

/// The numbers of calls of `group` in its members' programs, each with the ranks that make so many in one way.
pub(crate) fn numbers(job: &Job<'_>, group: GroupId) -> Option<Vec<(usize, Vec<GlobalRank>)>> {
    let ways = ways(job.log.plan.as_deref()?, group)?;
    Some(ways.into_iter().map(|(calls, ranks)| (calls.len(), ranks)).collect())
}

/// Finds the way through a group's calls that its sibling groups go, if all of them go the same one.
/// Certain if most of their members go it.
fn as_siblings(
    job: &Job<'_>,
    plan: &Plan,
    group: GroupId,
    found: &[(Vec<Key>, Vec<GlobalRank>)],
) -> Option<(usize, Alternatives)> {
    let roles = job.roles();
    let others = (0..).map(GroupId).take(plan.groups.len());
    let others = others.filter(|other| *other != group && roles.same(*other, group));
    let others: Vec<_> = others.take(SIBLINGS).filter_map(|other| ways(plan, other)).collect();
    // One that disagrees in itself shows nothing.
    let agreed: Vec<&(Vec<Key>, Vec<GlobalRank>)> = others
        .iter()
        .filter_map(|ways| match ways.as_slice() {
            [agreed] => Some(agreed),
            _ => None,
        })
        .collect();
    let only = |goes: &dyn Fn(&[Key], &[Key]) -> bool| {
        let known = |(_, (calls, _)): &(usize, &(Vec<Key>, Vec<GlobalRank>))| {
            agreed.iter().any(|(other, _)| goes(calls, other))
        };
        let known: Vec<usize> = found.iter().enumerate().filter(known).map(|(at, _)| at).collect();
        known
    };
    // Parts of a model differ in size: then the kinds of the calls are compared.
    let kinds = |calls: &[Key]| calls.iter().map(|(call, _, _)| *call).collect::<Vec<_>>();
    let same = only(&|a, b| a == b);
    let (right, exact) = match same.as_slice() {
        [right] => (*right, true),
        [] => match only(&|a, b| kinds(a) == kinds(b)).as_slice() {
            [right] => (*right, false),
            _ => return None,
        },
        _ => return None,
    };
    let (calls, own) = found.get(right)?;
    let with = agreed.iter().filter(|(other, _)| other == calls);
    let with = own.len() + with.map(|(_, ranks)| ranks.len()).sum::<usize>();
    let all = others.iter().flatten().chain(found).map(|(_, ranks)| ranks.len()).sum::<usize>();
    let certain = exact && with * 2 > all;
    Some((right, if certain { Alternatives::None } else { Alternatives::LessLikely }))
}

/// The calls that a group's members make of it in their programs, and who makes them; `None` if there
/// are too many ways.
fn ways(plan: &Plan, group: GroupId) -> Option<Vec<(Vec<Key>, Vec<GlobalRank>)>> {
    let mut by_program: BTreeMap<u32, Vec<GlobalRank>> = BTreeMap::new();
    for rank in plan.group(group)?.ranks() {
        by_program.entry(*plan.program_of.get(rank.index())?).or_default().push(*rank);
    }
    let mut ways: Vec<(Vec<Key>, Vec<GlobalRank>)> = Vec::new();
    for ranks in by_program.into_values() {
        let ops = &plan.program(*ranks.first()?)?.ops;
        let calls = ops.iter().flat_map(|op| op.action.calls());
        let calls: Vec<Key> = calls.filter_map(|call| key(plan, group, call)).collect();
        let full = ways.len() == WAYS;
        match ways.iter_mut().find(|(known, _)| *known == calls) {
            Some((_, known)) => known.extend(ranks),
            None if full => return None,
            None => ways.push((calls, ranks)),
        }
    }
    ways.iter_mut().for_each(|(_, ranks)| ranks.sort_unstable());
    Some(ways)
}

fn key(plan: &Plan, of: GroupId, call: &Call) -> Option<Key> {
    let Call::Collective { group, collective, count, .. } = call else { return None };
    let tensor = call.tensors().into_iter().flatten().find_map(|id| plan.tensor(id));
    (*group == of).then_some((*collective, *count, tensor.map(|tensor| tensor.dtype)))
}
