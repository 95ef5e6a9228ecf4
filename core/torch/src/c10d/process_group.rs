//! Process groups as a rank has them: `_World` and `ProcessGroup` of `distributed_c10d.py`.

use super::backend::{Backend, BackendConfig};
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::rank::{GlobalRank, GroupRank};
use std::sync::Arc;

/// The group argument of calls: a `ProcessGroup` of this rank, or `GroupMember.NON_GROUP_MEMBER`,
/// which `new_group` returns to ranks that are not in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// A group that the rank has made and is in.
    Member(GroupHandle),
    /// `GroupMember.NON_GROUP_MEMBER` (-100).
    NonMember,
}

/// A process group of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupHandle(pub(super) u32);

/// A rank's process groups: `_World` of `distributed_c10d.py`.
#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) groups: Vec<Pg>,
    pub(super) default: Option<GroupHandle>,
    /// `_world.group_count`: names are given by it.
    pub(super) group_count: u32,
    /// The number of times the rank has called `init_process_group`.
    pub(super) epoch: u32,
    /// The entry of `_world.pg_group_ranks` under `NON_GROUP_MEMBER`: the ranks of the last group
    /// that this rank made and is not in.
    pub(super) non_member_ranks: Option<Arc<[GlobalRank]>>,
}

/// A `ProcessGroup`.
#[derive(Clone, Debug)]
pub(super) struct Pg {
    pub(super) name: String,
    pub(super) desc: String,
    pub(super) ranks: Arc<[GlobalRank]>,
    pub(super) me: GroupRank,
    pub(super) backend: Backend,
    pub(super) config: BackendConfig,
    /// True if the group is in `_world.pg_map`: not destroyed.
    pub(super) registered: bool,
    pub(super) plan: Vec<(BackendName, GroupId)>,
    /// Calls held back by a coalescing manager.
    pub(super) coalescing: Option<super::held_calls::Coalescing>,
    pub(super) splits: u32,
    pub(super) device_id: Option<u32>,
}

impl Pg {
    pub(super) fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// The group rank of a member.
    pub(super) fn group_rank(&self, rank: i64) -> Option<u32> {
        let rank = GlobalRank(u32::try_from(rank).ok()?);
        // Groups are sorted, except those that were split off in the parent's order, which is
        // sorted too.
        self.ranks.binary_search(&rank).ok().map(|at| at as u32)
    }
}

/// A process group as Python prints it.
pub(super) const REPR: &str = "<torch.distributed.distributed_c10d.ProcessGroup object at 0xADDR>";
