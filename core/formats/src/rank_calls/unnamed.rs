//! The groups of calls whose file names none: gloo's.
//!
//! A profile lists a rank's groups, and does not say of which group a call of gloo is. Calls of one operation and one
//! size are put into the largest group whose members all made them equally often. Where that leaves a rank over, or
//! gives the members of a group different orders, the group of these calls stays unknown.

use super::RankCalls;
use super::call::{Call, is_p2p};
use lockstep_core::group::{GroupId, ProcessGroup};
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;

/// An operation with the sizes of its tensors.
type Alike<'a> = (&'a str, Vec<&'a [u64]>);

/// The groups of the calls that name none.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unnamed<'a> {
    /// The job has one group: all are its calls.
    OnlyGroup,
    /// The job has several groups, and all ranks make the same calls: they are taken for the default group's.
    AllAlike,
    /// The job has several groups: the assumed group of a rank's calls of one kind, `None` for an unknown one.
    ByKind(BTreeMap<(Alike<'a>, GlobalRank), Option<GroupId>>),
}

impl<'a> Unnamed<'a> {
    /// The groups of the files' calls; `groups` are those of the job.
    pub(super) fn of(files: &[&'a RankCalls], groups: &[ProcessGroup]) -> Unnamed<'a> {
        let mut counts: BTreeMap<Alike<'a>, BTreeMap<GlobalRank, u64>> = BTreeMap::new();
        for file in files {
            for call in file.calls.iter().filter(|call| is_unnamed(call)) {
                *counts.entry(alike(call)).or_default().entry(file.rank).or_default() += 1;
            }
        }
        if groups.len() < 2 || counts.is_empty() {
            return Unnamed::OnlyGroup;
        }
        if all_alike(files) {
            return Unnamed::AllAlike;
        }
        let filed = filed_members(files, groups);
        let mut assumed = BTreeMap::new();
        for (kind, count) in counts {
            let of = |rank: &GlobalRank| group_of_kind(*rank, &count, &filed);
            let found: Option<Vec<GroupId>> = count.keys().map(of).collect();
            for (at, rank) in count.keys().enumerate() {
                let group = found.as_ref().and_then(|found| found.get(at).copied());
                assumed.insert((kind.clone(), *rank), group);
            }
        }
        forget_other_orders(files, &filed, &mut assumed);
        Unnamed::ByKind(assumed)
    }

    /// The group of a collective that names none; `None` if it is unknown.
    pub(super) fn group_of(&self, rank: GlobalRank, call: &'a Call) -> Option<GroupId> {
        match self {
            Unnamed::OnlyGroup | Unnamed::AllAlike => Some(GroupId::WORLD),
            Unnamed::ByKind(groups) => groups.get(&(alike(call), rank)).copied().flatten(),
        }
    }

    /// True if groups were assumed.
    pub(super) fn is_assumed(&self) -> bool {
        *self != Unnamed::OnlyGroup
    }

    /// True if the files may begin at different calls. Calls of one kind were counted on ranks whose files do not.
    pub(super) fn may_begin_apart(&self) -> bool {
        !matches!(self, Unnamed::ByKind(_))
    }

    /// A note about the files of a writer; `None` if nothing was assumed.
    pub(super) fn note(&self, by: &str) -> Option<String> {
        let rest = match self {
            Unnamed::OnlyGroup => return None,
            Unnamed::AllAlike => {
                "all ranks make the same ones, which are taken for calls of the default group. The Flight Recorder \
                 dumps name the groups."
            }
            Unnamed::ByKind(groups) if groups.values().all(Option::is_some) => {
                "calls of one operation and size are taken for calls of the largest group whose members all made them \
                 equally often. The Flight Recorder dumps name the groups."
            }
            Unnamed::ByKind(_) => {
                "calls of one operation and size are taken for calls of the largest group whose members all made them \
                 equally often. No group fits some of them: these are shown, and not held against each other. Add the \
                 Flight Recorder dumps, which name the groups."
            }
        };
        Some(format!(
            "{by} does not say of which group gloo's calls are, and the job has several: {rest}"
        ))
    }
}

fn is_unnamed(call: &Call) -> bool {
    call.group.is_none() && !is_p2p(&call.op)
}

/// The operation and the sizes by which calls of different ranks are alike.
fn alike(call: &Call) -> Alike<'_> {
    // Ranks may pass different sizes to these.
    let any_size = matches!(call.op.as_str(), "all_to_all" | "gather" | "scatter");
    let inputs = call.inputs.iter().filter(|_| !any_size);
    (&call.op, inputs.map(|tensor| tensor.shape.as_slice()).collect())
}

/// True if all ranks make the same unnamed calls in the same order.
fn all_alike(files: &[&RankCalls]) -> bool {
    let kinds = |file: &RankCalls| -> Vec<String> {
        let unnamed = file.calls.iter().filter(|call| is_unnamed(call));
        unnamed.map(|call| format!("{:?}", alike(call))).collect()
    };
    let mut lists = files.iter().map(|file| kinds(file));
    let first = lists.next().unwrap_or_default();
    lists.all(|list| list == first)
}

/// The members of each group that have a file.
fn filed_members(files: &[&RankCalls], groups: &[ProcessGroup]) -> Vec<(GroupId, Vec<GlobalRank>)> {
    let has_file = |rank: &GlobalRank| files.iter().any(|file| file.rank == *rank);
    let members = |group: &ProcessGroup| group.ranks().iter().copied().filter(has_file).collect();
    (0..).map(GroupId).zip(groups.iter().map(members)).collect()
}

/// The largest of a rank's groups in which all members made a kind of call equally often.
fn group_of_kind(
    rank: GlobalRank,
    count: &BTreeMap<GlobalRank, u64>,
    filed: &[(GroupId, Vec<GlobalRank>)],
) -> Option<GroupId> {
    let equally_often = |members: &[GlobalRank]| {
        members.contains(&rank)
            && members.iter().all(|member| count.get(member) == count.get(&rank))
    };
    let fits = filed.iter().filter(|(_, members)| equally_often(members));
    // The first of equals is the default group.
    fits.max_by_key(|(id, members)| (members.len(), std::cmp::Reverse(*id))).map(|(id, _)| *id)
}

/// Takes the group from all calls of one whose members would make its calls in different orders.
fn forget_other_orders<'a>(
    files: &[&'a RankCalls],
    filed: &[(GroupId, Vec<GlobalRank>)],
    assumed: &mut BTreeMap<(Alike<'a>, GlobalRank), Option<GroupId>>,
) {
    let order = |rank: GlobalRank, group: GroupId, assumed: &BTreeMap<_, Option<GroupId>>| {
        let file = files.iter().find(|file| file.rank == rank);
        let calls = file.into_iter().flat_map(|file| &file.calls).filter(|call| is_unnamed(call));
        let own = calls
            .map(alike)
            .filter(|kind| assumed.get(&(kind.clone(), rank)).copied().flatten() == Some(group));
        own.collect::<Vec<Alike<'a>>>()
    };
    for (group, members) in filed {
        let Some((first, others)) = members.split_first() else { continue };
        let first = order(*first, *group, assumed);
        if others.iter().any(|rank| order(*rank, *group, assumed) != first) {
            let own = assumed.values_mut().filter(|of| **of == Some(*group));
            own.for_each(|of| *of = None);
        }
    }
}
