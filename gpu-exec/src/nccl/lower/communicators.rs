//! The communicators that a plan needs, in an order that is the same on every rank.

use lockstep_core::group::GroupId;
use lockstep_core::plan::{Action, Call, Plan};
use lockstep_core::rank::{GlobalRank, GroupRank};
use std::collections::BTreeMap;

/// A communicator of a plan, by its place among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::nccl) struct CommunicatorId(pub(in crate::nccl) u32);

/// The purpose of a communicator. The order is that in which they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    /// A group's collectives, and its batches of sends and receives.
    Group(GroupId),
    /// Single sends and receives between two of its ranks, the lower first.
    Pair(GroupId, GroupRank, GroupRank),
}

/// All of a plan's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::nccl) struct Communicators {
    of: BTreeMap<Use, CommunicatorId>,
    /// In their order, each with its ranks in its own order.
    members: Vec<Vec<GlobalRank>>,
}

impl Communicators {
    /// The communicators that the plan's calls need.
    pub(in crate::nccl) fn of(plan: &Plan) -> Communicators {
        let mut uses: BTreeMap<Use, Vec<GlobalRank>> = BTreeMap::new();
        for (rank, program) in (0..).map(GlobalRank).zip(&plan.program_of) {
            let ops = plan.programs.get(*program as usize).map_or(&[][..], |program| &program.ops);
            for op in ops {
                let single = matches!(op.action, Action::Call { .. });
                for call in op.action.calls() {
                    let Some((of, ranks)) = used(plan, rank, call, single) else { continue };
                    uses.entry(of).or_insert(ranks);
                }
            }
        }
        let of = uses.keys().copied().zip((0..).map(CommunicatorId)).collect();
        Communicators { of, members: uses.into_values().collect() }
    }

    /// All, in the order in which ranks make them.
    pub(in crate::nccl) fn all(&self) -> impl Iterator<Item = (CommunicatorId, &[GlobalRank])> {
        (0..).map(CommunicatorId).zip(self.members.iter().map(Vec::as_slice))
    }

    /// The ranks of one, in its order.
    pub(in crate::nccl) fn members(&self, id: CommunicatorId) -> &[GlobalRank] {
        self.members.get(id.0 as usize).map_or(&[], Vec::as_slice)
    }

    /// The group's own.
    pub(super) fn group(&self, group: GroupId) -> Option<CommunicatorId> {
        self.of.get(&Use::Group(group)).copied()
    }

    /// The one of two ranks of a group.
    pub(super) fn pair(
        &self,
        group: GroupId,
        a: GroupRank,
        b: GroupRank,
    ) -> Option<CommunicatorId> {
        self.of.get(&Use::Pair(group, a.min(b), a.max(b))).copied()
    }
}

fn used(
    plan: &Plan,
    rank: GlobalRank,
    call: &Call,
    single: bool,
) -> Option<(Use, Vec<GlobalRank>)> {
    let id = call.group();
    let group = plan.group(id)?;
    let me = group.group_rank(rank)?;
    let peer = match call {
        Call::Send { peer, .. } => Some(*peer),
        Call::Recv { peer, .. } => Some((*peer)?),
        Call::Collective { .. } => None,
    };
    match peer.filter(|_| single) {
        Some(peer) => {
            let (low, high) = (me.min(peer), me.max(peer));
            let ranks = [group.global_rank(low)?, group.global_rank(high)?];
            Some((Use::Pair(id, low, high), ranks.to_vec()))
        }
        None => Some((Use::Group(id), group.ranks().to_vec())),
    }
}
