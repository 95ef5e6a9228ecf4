//! Process groups: an ordered set of ranks with a backend, a timeout and its own sequence numbers.
//!
//! Follows `torch.distributed.new_group` and c10d's `ProcessGroup`; the default timeouts are
//! c10d's (`kProcessGroupNCCLDefaultTimeout` 10 minutes, `kProcessGroupDefaultTimeout` 30).

use crate::rank::{GlobalRank, GroupRank};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The index of a group in its plan's or trace's table; 0 is the default group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupId(pub u32);

impl GroupId {
    /// The default group: the world.
    pub const WORLD: GroupId = GroupId(0);

    /// The group as an index into a table of groups.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The backend that carries out a group's collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendName {
    /// Lockstep's own executor over shared memory, one process per rank.
    Host,
    /// PyTorch's CPU backend.
    Gloo,
    /// NVIDIA's library.
    Nccl,
    /// A Message Passing Interface library.
    Mpi,
    /// A recording that does not say.
    Unknown,
}

impl BackendName {
    /// c10d's default timeout for the backend, in milliseconds.
    pub fn default_timeout_ms(self) -> u64 {
        match self {
            BackendName::Nccl => 10 * 60 * 1000,
            _ => 30 * 60 * 1000,
        }
    }

    /// The name as `init_process_group` takes it.
    pub fn name(self) -> &'static str {
        match self {
            BackendName::Host => "host",
            BackendName::Gloo => "gloo",
            BackendName::Nccl => "nccl",
            BackendName::Mpi => "mpi",
            BackendName::Unknown => "unknown",
        }
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The reason that a set of ranks cannot be a process group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// No member.
    #[error("process group {name:?} has no ranks; give it at least one")]
    Empty {
        /// The group's name.
        name: String,
    },
    /// The same rank twice; PyTorch 2.7.1 hangs on it, we refuse it.
    #[error("process group {name:?} lists rank {rank} twice; list each rank once")]
    DuplicateRank {
        /// The group's name.
        name: String,
        /// The rank that is listed twice.
        rank: GlobalRank,
    },
}

/// An ordered set of ranks that make collectives together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "GroupFields", into = "GroupFields")]
pub struct ProcessGroup {
    name: String,
    desc: String,
    backend: BackendName,
    timeout_ms: u64,
    ranks: Vec<GlobalRank>,
    /// (global rank, group rank), sorted: membership in logarithmic time at any size.
    by_global: Vec<(GlobalRank, GroupRank)>,
}

impl ProcessGroup {
    /// A group of `ranks` in the given order: the first has group rank 0.
    ///
    /// # Errors
    /// When `ranks` is empty or names a rank twice.
    pub fn new(
        name: impl Into<String>,
        backend: BackendName,
        ranks: Vec<GlobalRank>,
    ) -> Result<ProcessGroup, GroupError> {
        let name = name.into();
        if ranks.is_empty() {
            return Err(GroupError::Empty { name });
        }
        let mut by_global: Vec<_> = ranks.iter().copied().zip((0..).map(GroupRank)).collect();
        by_global.sort_unstable();
        if let Some(pair) = by_global.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(GroupError::DuplicateRank { name, rank: pair[0].0 });
        }
        Ok(ProcessGroup {
            name,
            desc: String::new(),
            backend,
            timeout_ms: backend.default_timeout_ms(),
            ranks,
            by_global,
        })
    }

    /// The default group of a job of `world_size` ranks, named `0` and described `default_pg`
    /// as PyTorch does.
    ///
    /// # Errors
    /// When `world_size` is 0.
    pub fn world(world_size: u32, backend: BackendName) -> Result<ProcessGroup, GroupError> {
        let ranks = (0..world_size).map(GlobalRank).collect();
        Ok(ProcessGroup::new("0", backend, ranks)?.with_desc("default_pg"))
    }

    /// The same group with the description that `new_group(group_desc=…)` gives.
    pub fn with_desc(mut self, desc: impl Into<String>) -> ProcessGroup {
        self.desc = desc.into();
        self
    }

    /// The same group with another timeout, in milliseconds.
    pub fn with_timeout_ms(mut self, timeout_ms: u64) -> ProcessGroup {
        self.timeout_ms = timeout_ms;
        self
    }

    /// The unique name (`_get_process_group_name`).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The description, empty if none was given.
    pub fn desc(&self) -> &str {
        &self.desc
    }

    /// The group's name for people: its description, or its name if it has none.
    pub fn label(&self) -> &str {
        if self.desc.is_empty() { &self.name } else { &self.desc }
    }

    /// The backend that carries out its collectives.
    pub fn backend(&self) -> BackendName {
        self.backend
    }

    /// Milliseconds after which a call that has not completed is a hang.
    pub fn timeout_ms(&self) -> u64 {
        self.timeout_ms
    }

    /// The number of members.
    pub fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// The members in group-rank order.
    pub fn ranks(&self) -> &[GlobalRank] {
        &self.ranks
    }

    /// `dist.get_group_rank`: the rank's place in the group, or `None` if it is no member.
    pub fn group_rank(&self, rank: GlobalRank) -> Option<GroupRank> {
        let found = self.by_global.binary_search_by_key(&rank, |(global, _)| *global).ok()?;
        Some(self.by_global[found].1)
    }

    /// `dist.get_global_rank`: the member at a place, or `None` past the end.
    pub fn global_rank(&self, rank: GroupRank) -> Option<GlobalRank> {
        self.ranks.get(rank.index()).copied()
    }
}

/// A group as files carry it.
#[derive(Serialize, Deserialize)]
struct GroupFields {
    name: String,
    #[serde(default)]
    desc: String,
    backend: BackendName,
    timeout_ms: u64,
    ranks: Vec<GlobalRank>,
}

impl TryFrom<GroupFields> for ProcessGroup {
    type Error = GroupError;

    fn try_from(fields: GroupFields) -> Result<ProcessGroup, GroupError> {
        let group = ProcessGroup::new(fields.name, fields.backend, fields.ranks)?;
        Ok(group.with_desc(fields.desc).with_timeout_ms(fields.timeout_ms))
    }
}

impl From<ProcessGroup> for GroupFields {
    fn from(group: ProcessGroup) -> GroupFields {
        GroupFields {
            name: group.name,
            desc: group.desc,
            backend: group.backend,
            timeout_ms: group.timeout_ms,
            ranks: group.ranks,
        }
    }
}

/// One rank's count of the collectives it has called, per group. The first is number 1, as in
/// c10d's `collective_seq_id`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SequenceNumbers {
    /// The last number in the default group, which most ranks call alone: tens of thousands of them need no list.
    world: u64,
    /// Those of the groups behind it.
    #[expect(clippy::box_collection, reason = "one pointer where there is no other group")]
    others: Option<Box<Vec<u64>>>,
}

impl SequenceNumbers {
    /// Takes the next number of the group.
    pub fn next(&mut self, group: GroupId) -> u64 {
        let last = match group.index().checked_sub(1) {
            None => &mut self.world,
            Some(at) => {
                let others = self.others.get_or_insert_default();
                if others.len() <= at {
                    if others.is_empty() {
                        // Most ranks call in one other group only: no room for more than there is.
                        others.reserve_exact(at + 1);
                    }
                    others.resize(at + 1, 0);
                }
                &mut others[at]
            }
        };
        *last += 1;
        *last
    }

    /// The last number taken; 0 if the rank never called the group.
    pub fn last(&self, group: GroupId) -> u64 {
        match group.index().checked_sub(1) {
            None => self.world,
            Some(at) => self.others.as_ref().and_then(|it| it.get(at)).copied().unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(ranks: &[u32]) -> Result<ProcessGroup, GroupError> {
        ProcessGroup::new("g", BackendName::Host, ranks.iter().copied().map(GlobalRank).collect())
    }

    #[test]
    fn ranks_translate_both_ways_in_any_order() {
        let group = group(&[7, 2, 5]).unwrap();
        assert_eq!(group.group_rank(GlobalRank(7)), Some(GroupRank(0)));
        assert_eq!(group.group_rank(GlobalRank(5)), Some(GroupRank(2)));
        assert_eq!(group.group_rank(GlobalRank(3)), None);
        assert_eq!(group.global_rank(GroupRank(1)), Some(GlobalRank(2)));
        assert_eq!(group.global_rank(GroupRank(3)), None);
    }

    #[test]
    fn refuses_empty_and_duplicate_also_from_files() {
        assert!(matches!(group(&[]), Err(GroupError::Empty { .. })));
        let duplicate = GroupError::DuplicateRank { name: "g".into(), rank: GlobalRank(1) };
        assert_eq!(group(&[1, 0, 1]), Err(duplicate));
        let json = r#"{"name":"g","backend":"gloo","timeout_ms":5,"ranks":[1,1]}"#;
        let error = serde_json::from_str::<ProcessGroup>(json).unwrap_err();
        assert!(error.to_string().contains("lists rank 1 twice"), "{error}");
    }

    #[test]
    fn sequence_numbers_start_at_one_and_are_per_group() {
        let mut numbers = SequenceNumbers::default();
        assert_eq!(numbers.next(GroupId(3)), 1);
        assert_eq!(numbers.next(GroupId(3)), 2);
        assert_eq!(numbers.next(GroupId::WORLD), 1);
        assert_eq!(numbers.last(GroupId(9)), 0);
    }
}
