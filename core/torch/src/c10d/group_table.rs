//! The process groups of a job's plan.

use super::fingerprint::Members;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The process groups of the plan: one for each group of the job and each of its backends.
#[derive(Debug)]
pub(super) struct GroupTable {
    pub(super) world: Arc<[GlobalRank]>,
    pub(super) groups: Vec<GroupEntry>,
    by_name: BTreeMap<(String, u32, BackendName), Vec<GroupId>>,
}

/// A group of the plan.
#[derive(Debug)]
pub(super) struct GroupEntry {
    pub(super) name: String,
    pub(super) desc: String,
    pub(super) backend: BackendName,
    pub(super) timeout_ms: u64,
    pub(super) ranks: Arc<[GlobalRank]>,
    /// Members that have made it.
    pub(super) made: u32,
}

impl GroupTable {
    pub(super) fn new(world: Arc<[GlobalRank]>) -> GroupTable {
        let entry = GroupEntry {
            name: "0".into(),
            desc: "default_pg".into(),
            backend: BackendName::Unknown,
            timeout_ms: BackendName::Unknown.default_timeout_ms(),
            ranks: world.clone(),
            made: 0,
        };
        GroupTable { world, groups: vec![entry], by_name: BTreeMap::new() }
    }

    /// The plan's group for a group that a member makes; the same for all members that name it
    /// alike and list the same ranks. `epoch` counts the rank's `init_process_group` calls.
    pub(super) fn make(
        &mut self,
        name: &str,
        epoch: u32,
        backend: BackendName,
        ranks: &Arc<[GlobalRank]>,
        desc: &str,
        timeout_ms: u64,
    ) -> GroupId {
        let known = self.by_name.entry((name.to_owned(), epoch, backend)).or_default();
        let groups = &mut self.groups;
        let same = |id: &&GroupId| {
            let other = &groups[id.index()].ranks;
            Arc::ptr_eq(other, ranks) || other == ranks
        };
        if let Some(&id) = known.iter().find(same) {
            let entry = &mut groups[id.index()];
            entry.made += 1;
            // Each rank has its own timeout in PyTorch; the first to run out ends the job.
            entry.timeout_ms = entry.timeout_ms.min(timeout_ms);
            return id;
        }
        let entry = GroupEntry {
            name: name.to_owned(),
            desc: desc.to_owned(),
            backend,
            timeout_ms,
            ranks: ranks.clone(),
            made: 1,
        };
        let first = &mut groups[0];
        let is_default = first.made == 0 && desc == "default_pg" && first.ranks == *ranks;
        let id = if is_default {
            *first = entry;
            GroupId::WORLD
        } else {
            groups.push(entry);
            GroupId(groups.len() as u32 - 1)
        };
        known.push(id);
        id
    }

    /// True if every member has made the group.
    pub(super) fn complete(&self, id: GroupId) -> bool {
        self.groups.get(id.index()).is_some_and(|entry| entry.made as usize >= entry.ranks.len())
    }

    /// The values that the members of each group agree on.
    pub(super) fn members(&self) -> Vec<Members<'_>> {
        let groups = self.groups.iter();
        groups.map(|entry| Members { ranks: &entry.ranks, timeout_ms: entry.timeout_ms }).collect()
    }
}
