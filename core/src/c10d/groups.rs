//! Process groups as a rank has them: made, named, asked, destroyed.

use super::args::{Arg, NewGroup};
use super::backend::{Backend, BackendConfig};
use super::dist::Dist;
use super::error::{DistError, ErrorKind, assertion_error, runtime_error, type_error, value_error};
use super::job::Recorded;
use crate::group::{BackendName, GroupId};
use crate::rank::{GlobalRank, GroupRank};
use sha1::{Digest, Sha1};
use std::sync::Arc;

/// What stands for a group in calls: a `ProcessGroup` of this rank, or
/// `GroupMember.NON_GROUP_MEMBER`, which `new_group` returns to ranks that are not in it.
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
    /// How often the rank has called `init_process_group`.
    pub(super) epoch: u32,
    /// What `_world.pg_group_ranks` holds under `NON_GROUP_MEMBER`: the ranks of the last group
    /// that this rank made and is not in.
    non_member_ranks: Option<Arc<[GlobalRank]>>,
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
    /// Whether it is in `_world.pg_map`: not destroyed.
    registered: bool,
    plan: Vec<(BackendName, GroupId)>,
    /// Calls held back by a coalescing manager.
    pub(super) coalescing: Option<super::coalesced::Coalescing>,
    pub(super) splits: u32,
    pub(super) device_id: Option<u32>,
}

impl Pg {
    pub(super) fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// The group rank of a member.
    fn group_rank(&self, rank: i64) -> Option<u32> {
        let rank = GlobalRank(u32::try_from(rank).ok()?);
        // Groups are sorted, except those that were split off in the parent's order, which is
        // sorted too.
        self.ranks.binary_search(&rank).ok().map(|at| at as u32)
    }
}

/// A process group as Python prints it.
const REPR: &str = "<torch.distributed.distributed_c10d.ProcessGroup object at 0xADDR>";
const NOT_INITIALIZED: &str = "Default process group has not been initialized, please make sure to \
                               call init_process_group.";

impl Dist<'_> {
    /// `dist.is_initialized`.
    pub fn is_initialized(&self) -> bool {
        self.state.world.default.is_some()
    }

    /// `dist.group.WORLD`: the default group.
    pub fn world(&self) -> Option<Group> {
        self.state.world.default.map(Group::Member)
    }

    /// `dist.get_rank`: -1 for a group that the rank is not in.
    ///
    /// # Errors
    /// `ValueError` before `init_process_group` and for a destroyed group.
    pub fn get_rank(&self, group: Option<Group>) -> Result<i64, DistError> {
        if group == Some(Group::NonMember) {
            return Ok(-1);
        }
        let default = self.default_group()?;
        match group {
            Some(group) if group != Group::Member(default) => {
                self.get_group_rank(group, i64::from(self.pg(default).me.0))
            }
            _ => Ok(i64::from(self.pg(default).me.0)),
        }
    }

    /// `dist.get_world_size`: -1 for a group that the rank is not in.
    ///
    /// # Errors
    /// `ValueError` before `init_process_group`.
    pub fn get_world_size(&self, group: Option<Group>) -> Result<i64, DistError> {
        match group {
            Some(Group::NonMember) => Ok(-1),
            Some(Group::Member(handle)) => Ok(i64::from(self.pg(handle).size())),
            None => Ok(i64::from(self.pg(self.default_group()?).size())),
        }
    }

    /// `dist.get_backend`: the string that the group was made with.
    ///
    /// # Errors
    /// `ValueError` for a group that the rank is not in, `TypeError` for a destroyed one.
    pub fn get_backend(&self, group: Option<Group>) -> Result<String, DistError> {
        let pg = self.registered_group(group)?;
        Ok(pg.backend.as_str().to_owned())
    }

    /// `dist.get_backend_config`: which backend serves which device, `cpu:gloo,cuda:gloo`.
    ///
    /// # Errors
    /// Those of [`Dist::get_backend`].
    pub fn get_backend_config(&self, group: Option<Group>) -> Result<String, DistError> {
        Ok(self.registered_group(group)?.config.to_string())
    }

    fn registered_group(&self, group: Option<Group>) -> Result<&Pg, DistError> {
        let handle = match group {
            Some(Group::NonMember) => return Err(value_error("Invalid process group specified")),
            Some(Group::Member(handle)) => handle,
            None => self.default_group()?,
        };
        Some(self.pg(handle)).filter(|pg| pg.registered).ok_or_else(|| {
            type_error("Invariant encountered: value was None when it should not be")
                .with_help("The group was destroyed, or is no process group.")
        })
    }

    /// `group.group_name`: `0` for the default group, then as they are numbered.
    ///
    /// # Errors
    /// `ValueError` for a group that the rank is not in.
    pub fn group_name(&self, group: Option<Group>) -> Result<String, DistError> {
        Ok(self.any_group(group)?.name.clone())
    }

    /// `group.group_desc`.
    ///
    /// # Errors
    /// `ValueError` for a group that the rank is not in.
    pub fn group_desc(&self, group: Option<Group>) -> Result<String, DistError> {
        Ok(self.any_group(group)?.desc.clone())
    }

    fn any_group(&self, group: Option<Group>) -> Result<&Pg, DistError> {
        match group {
            Some(Group::NonMember) => Err(value_error("Invalid process group specified")),
            Some(Group::Member(handle)) => Ok(self.pg(handle)),
            None => Ok(self.pg(self.default_group()?)),
        }
    }

    /// `dist.get_group_rank`: a global rank's place in the group.
    ///
    /// # Errors
    /// `ValueError` for a destroyed group, or a rank that is not in it.
    pub fn get_group_rank(&self, group: Group, global_rank: i64) -> Result<i64, DistError> {
        if self.world() == Some(group) {
            return Ok(global_rank);
        }
        let ranks = self.ranks_of(group)?;
        let place = ranks.iter().position(|rank| i64::from(rank.0) == global_rank);
        let place = match group {
            Group::Member(handle) => self.pg(handle).group_rank(global_rank).map(i64::from),
            Group::NonMember => place.map(|place| place as i64),
        };
        place.ok_or_else(|| {
            value_error(format!("Global rank {global_rank} is not part of group {}", repr(group)))
                .with_help(members(&ranks))
        })
    }

    /// `dist.get_global_rank`: the member at a place.
    ///
    /// # Errors
    /// `ValueError` for a destroyed group, or a place past its end.
    pub fn get_global_rank(&self, group: Group, group_rank: i64) -> Result<i64, DistError> {
        if self.world() == Some(group) {
            return Ok(group_rank);
        }
        let ranks = self.ranks_of(group)?;
        let found = usize::try_from(group_rank).ok().and_then(|place| ranks.get(place));
        found.map(|rank| i64::from(rank.0)).ok_or_else(|| {
            value_error(format!("Group rank {group_rank} is not part of group {}", repr(group)))
                .with_help(members(&ranks))
        })
    }

    /// `dist.get_process_group_ranks`: global ranks by group rank. For
    /// `GroupMember.NON_GROUP_MEMBER` PyTorch answers with the last group that the rank is not in.
    ///
    /// # Errors
    /// `KeyError` for a destroyed group.
    pub fn get_process_group_ranks(&self, group: Group) -> Result<Vec<GlobalRank>, DistError> {
        let ranks = self.ranks_of(group);
        ranks
            .map(|ranks| ranks.to_vec())
            .map_err(|_| DistError::new(ErrorKind::KeyError, repr(group)))
    }

    fn ranks_of(&self, group: Group) -> Result<Arc<[GlobalRank]>, DistError> {
        let ranks = match group {
            Group::Member(handle) => {
                Some(self.pg(handle)).filter(|pg| pg.registered).map(|pg| pg.ranks.clone())
            }
            Group::NonMember => self.state.world.non_member_ranks.clone(),
        };
        ranks.ok_or_else(|| {
            value_error(format!(
                "Group {} is not registered, please create group with \
                 torch.distributed.new_group API",
                repr(group)
            ))
        })
    }

    /// `dist.new_group(ranks, …)`: every rank of the job calls it, in the same order, whether it is
    /// a member or not, unless `use_local_synchronization` is set; then only members need to, and
    /// others get `None`, which as a group means the default group. Ranks are sorted; `None` means
    /// all.
    ///
    /// # Errors
    /// PyTorch's refusals, and ours of a rank that is listed twice, on which PyTorch 2.7.1 hangs.
    pub fn new_group(
        &mut self,
        ranks: Option<&[i64]>,
        options: &NewGroup,
    ) -> Result<Option<Group>, DistError> {
        let default = self.default_group()?;
        let parent = self.pg(default).clone();
        let backend = match options.backend.as_deref() {
            None | Some("") => parent.backend.clone(),
            Some(name) => Backend::new(name),
        };
        let timeout_ms = timeout(options.timeout_ms.as_ref(), &backend)?;
        let me = i64::from(parent.me.0);
        if options.use_local_synchronization {
            if backend.as_str() == "mpi" {
                return Err(value_error(
                    "MPI backend doesn't support use_local_synchronization=True",
                ));
            }
            if ranks.is_some_and(|ranks| !ranks.contains(&me)) {
                return Ok(None);
            }
        }
        let sorted: Arc<[GlobalRank]> = match ranks {
            None => parent.ranks.clone(),
            Some(ranks) => checked_ranks(ranks, parent.size())?,
        };
        let name = match options.use_local_synchronization {
            true => self.hashed_name(&sorted),
            false => self.next_name(),
        };
        let made = self.make_group(MakeGroup {
            name,
            ranks: sorted,
            backend,
            timeout_ms,
            desc: options.group_desc.as_deref(),
            device_id: parent.device_id,
            via: "new_group",
        })?;
        Ok(Some(made))
    }

    /// `dist.new_subgroups(group_size)`: consecutive groups of that size. Returns the rank's own and
    /// all of them. A `group_size` of `None` means the CUDA devices that a rank sees.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn new_subgroups(
        &mut self,
        group_size: Option<i64>,
        options: &NewGroup,
    ) -> Result<(Option<Group>, Vec<Group>), DistError> {
        let devices = self.shared.machine.cuda_devices;
        let group_size = match group_size {
            Some(size) => size,
            None if devices == 0 => {
                return Err(value_error(
                    "Default group size only takes effect when CUDA is available.If your subgroup \
                     using a backend that does not depend on CUDA,please pass in 'group_size' \
                     correctly.",
                ));
            }
            None => i64::from(devices),
        };
        if group_size <= 0 {
            return Err(value_error(format!(
                "The arg 'group_size' ({group_size}) must be positive"
            )));
        }
        let world_size = self.get_world_size(None)?;
        if world_size < group_size {
            return Err(value_error(format!(
                "The arg 'group_size' ({group_size}) must not exceed the world size ({world_size})"
            )));
        }
        if world_size % group_size != 0 {
            return Err(value_error("The world size must be divisible by 'group_size'"));
        }
        let lists = (0..world_size / group_size)
            .map(|group| (group * group_size..(group + 1) * group_size).collect());
        self.each_subgroup(lists.collect(), options)
    }

    /// `dist.new_subgroups_by_enumeration`: a group for each list of ranks. Returns the rank's own
    /// and all of them.
    ///
    /// # Errors
    /// PyTorch's refusals. Like PyTorch, it makes the groups up to the one that is refused.
    pub fn new_subgroups_by_enumeration(
        &mut self,
        ranks_per_subgroup_list: &[Vec<i64>],
        options: &NewGroup,
    ) -> Result<(Option<Group>, Vec<Group>), DistError> {
        if ranks_per_subgroup_list.is_empty() {
            return Err(value_error("The arg 'ranks_per_subgroup_list' cannot be empty"));
        }
        self.each_subgroup(ranks_per_subgroup_list.to_vec(), options)
    }

    fn each_subgroup(
        &mut self,
        lists: Vec<Vec<i64>>,
        options: &NewGroup,
    ) -> Result<(Option<Group>, Vec<Group>), DistError> {
        let options = NewGroup { use_local_synchronization: false, ..options.clone() };
        let (mut own, mut all) = (None, Vec::new());
        let mut seen: std::collections::BTreeMap<i64, usize> = std::collections::BTreeMap::new();
        for (index, ranks) in lists.iter().enumerate() {
            let group = self.new_group(Some(ranks), &options)?.unwrap_or(Group::NonMember);
            all.push(group);
            for rank in ranks {
                if let Some(first) = seen.insert(*rank, index) {
                    return Err(value_error(format!(
                        "Rank {rank} has appeared in both subgroup {} and {}",
                        python_list(&lists[first]),
                        python_list(ranks)
                    )));
                }
            }
            if group != Group::NonMember {
                own = Some(group);
            }
        }
        Ok((own, all))
    }

    /// `dist.split_group(parent, split_ranks)`: NCCL's `ncclCommSplit` of a group whose processes
    /// are bound to devices (`init_process_group(device_id=…)`). `split_ranks` are ranks of the
    /// parent. `None` if no list names this rank.
    ///
    /// # Errors
    /// PyTorch's refusals.
    pub fn split_group(
        &mut self,
        parent: Option<Group>,
        split_ranks: Option<&[Vec<i64>]>,
        timeout_ms: Option<Arg<u64>>,
        group_desc: Option<&str>,
    ) -> Result<Option<Group>, DistError> {
        let lists = split_ranks.ok_or_else(|| value_error("split_ranks cannot be None"))?;
        let default = self.default_group()?;
        let Some(device_id) = self.pg(default).device_id else {
            return Err(runtime_error(
                "No device associated with the default pg, not safe to split any process groups",
            )
            .with_help("Pass device_id to init_process_group, with the nccl backend."));
        };
        let (world_size, me) = (self.pg(default).size(), self.pg(default).me);
        let parent = match parent {
            None => default,
            Some(Group::Member(handle)) if self.pg(handle).registered => handle,
            Some(group) => {
                let text = format!("Group {} is not registered", repr(group));
                return Err(value_error(text));
            }
        };
        let pg = self.pg(parent).clone();
        let Some(my_rank) = pg.group_rank(i64::from(me.0)) else {
            return Err(value_error(format!(
                "Global rank {me} is not part of the parent group {REPR}"
            )));
        };
        if pg.config.for_device(super::backend::Device::Cuda) != Ok(BackendName::Nccl) {
            return Err(runtime_error(
                "No backend for the parent process group or its backend does not support splitting",
            ));
        }
        let desc = match group_desc {
            Some(desc) => desc.to_owned(),
            None => format!("{}:split:{}", pg.desc, pg.splits),
        };
        let timeout_ms = timeout(timeout_ms.as_ref(), &pg.backend)?;
        let mut mine = None;
        for list in lists {
            if list.is_empty() {
                return Err(value_error("the split group cannot be empty"));
            }
            if list.len() > world_size as usize {
                return Err(value_error(
                    "the split group's size should be less or equal to the world_size set by \
                     init_process_group",
                ));
            }
            let mut sorted = list.clone();
            sorted.sort_unstable();
            if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(value_error("the split group cannot have duplicate ranks"));
            }
            if sorted.contains(&i64::from(my_rank)) {
                mine = Some(sorted);
                break;
            }
        }
        self.pg_mut(parent).splits += 1;
        let Some(mine) = mine else { return Ok(None) };
        let name = self.next_name();
        let ranks: Option<Arc<[GlobalRank]>> = mine
            .iter()
            .map(|rank| usize::try_from(*rank).ok().and_then(|rank| pg.ranks.get(rank)).copied())
            .collect();
        // A rank that the parent lacks is a KeyError of a dict of Python's.
        let ranks = ranks.ok_or_else(|| {
            DistError::new(ErrorKind::KeyError, "a rank is not part of the parent group").with_help(
                format!("split_ranks are group ranks of the parent: 0 to {}", pg.size() - 1),
            )
        })?;
        let made = self.make_group(MakeGroup {
            name,
            ranks,
            backend: Backend::new("nccl"),
            timeout_ms,
            desc: Some(&desc),
            device_id: Some(device_id),
            via: "split_group",
        })?;
        Ok(Some(made))
    }

    /// `dist.destroy_process_group`: the group, or everything if it is the default group.
    ///
    /// # Errors
    /// `AssertionError` before `init_process_group`, `ValueError` for a group destroyed already.
    pub fn destroy_process_group(&mut self, group: Option<Group>) -> Result<(), DistError> {
        if group == Some(Group::NonMember) {
            return Ok(());
        }
        let world = &mut self.state.world;
        let handle = match group {
            Some(Group::Member(handle)) => handle,
            _ => world.default.ok_or_else(|| {
                assertion_error("").with_help("init_process_group was not called.")
            })?,
        };
        if !world.groups.get(handle.0 as usize).is_some_and(|pg| pg.registered) {
            return Err(value_error("Invalid process group specified"));
        }
        if world.default == Some(handle) {
            for pg in &mut world.groups {
                pg.registered = false;
            }
            world.default = None;
            world.group_count = 0;
            world.non_member_ranks = None;
        } else {
            let pg = &mut world.groups[handle.0 as usize];
            pg.registered = false;
            if pg.coalescing.take().is_some() {
                self.warn(
                    "Some coalesced collectives haven't been launched when ProcessGroup is \
                     destroyed. They will be cleaned.",
                );
            }
        }
        Ok(())
    }

    /// The group of a call: `None`, with PyTorch's warning, if the rank is no member.
    pub(super) fn member(
        &mut self,
        group: Option<Group>,
        call: &str,
    ) -> Result<Option<GroupHandle>, DistError> {
        match group {
            Some(Group::Member(handle)) => Ok(Some(handle)),
            Some(Group::NonMember) => {
                let rank = self.world_rank();
                self.warn(format!(
                    "Running {call} on global rank {rank} which does not belong to the given group."
                ));
                Ok(None)
            }
            None => self.default_group().map(Some),
        }
    }

    fn world_rank(&self) -> i64 {
        self.state.world.default.map_or(-1, |handle| i64::from(self.pg(handle).me.0))
    }

    /// `_group_or_default_group`.
    pub(super) fn or_default(&self, group: Option<Group>) -> Result<Group, DistError> {
        match group {
            Some(group) => Ok(group),
            None => self.default_group().map(Group::Member),
        }
    }

    pub(super) fn default_group(&self) -> Result<GroupHandle, DistError> {
        self.state.world.default.ok_or_else(|| value_error(NOT_INITIALIZED))
    }

    pub(super) fn pg(&self, handle: GroupHandle) -> &Pg {
        &self.state.world.groups[handle.0 as usize]
    }

    pub(super) fn pg_mut(&mut self, handle: GroupHandle) -> &mut Pg {
        &mut self.state.world.groups[handle.0 as usize]
    }

    /// `_canonicalize_group_rank`: the group rank of what was given as a global or a group rank.
    pub(super) fn group_rank_of(
        &self,
        group: Group,
        global_rank: Option<i64>,
        group_rank: Option<i64>,
    ) -> Result<i64, DistError> {
        match (global_rank, group_rank) {
            (Some(_), Some(_)) => Err(value_error("Can't specify both group_rank and global_rank")),
            (None, None) => Err(value_error("Must specify global_rank or group_rank")),
            (Some(global), None) => self.get_group_rank(group, global),
            // PyTorch looks the global rank up, which refuses places past the end.
            (None, Some(place)) => self.get_global_rank(group, place).map(|_| place),
        }
    }

    /// The plan's group for one of the group's backends.
    pub(super) fn plan_group(&mut self, handle: GroupHandle, backend: BackendName) -> GroupId {
        let plan = &self.pg(handle).plan;
        let found = plan.iter().find(|(name, _)| *name == backend);
        found.map_or(GroupId::WORLD, |(_, id)| *id)
    }

    fn next_name(&mut self) -> String {
        let count = &mut self.state.world.group_count;
        *count += 1;
        (*count - 1).to_string()
    }

    /// `_hash_ranks_to_str`: by the ranks and the number of groups that this rank has.
    fn hashed_name(&self, ranks: &[GlobalRank]) -> String {
        let mut parts: Vec<_> = ranks.iter().map(GlobalRank::to_string).collect();
        let registered = self.state.world.groups.iter().filter(|pg| pg.registered).count();
        parts.push(registered.to_string());
        let digest = Sha1::digest(parts.join("_"));
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// `_new_process_group_helper`.
    pub(super) fn make_group(&mut self, make: MakeGroup<'_>) -> Result<Group, DistError> {
        let MakeGroup { name, ranks, backend, timeout_ms, desc, device_id, via } = make;
        let registered = || self.state.world.groups.iter().filter(|pg| pg.registered);
        if registered().any(|pg| pg.name == name) {
            return Err(value_error(
                "The specified group name has already been created, please use a different group \
                 name",
            ));
        }
        let Ok(me) = ranks.binary_search(&self.rank) else {
            self.state.world.non_member_ranks = Some(ranks);
            return Ok(Group::NonMember);
        };
        let machine = self.shared.machine;
        let config = BackendConfig::new(&backend, &machine, &mut self.state.warnings)?;
        let mut names = vec![config.default_backend()];
        for device in config.devices() {
            let name = config.for_device(device)?;
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let epoch = self.state.world.epoch;
        let shown = desc.unwrap_or_default();
        let groups = &mut self.shared.groups;
        let plan: Vec<_> = names
            .into_iter()
            .map(|backend| (backend, groups.make(&name, epoch, backend, &ranks, shown, timeout_ms)))
            .collect();
        let at = self.state.at;
        for (backend, group) in &plan {
            // NCCL connects at the first call; the others do now.
            if *backend != BackendName::Nccl {
                self.state.recorded.push(Recorded::Connect { group: *group, via, at });
            }
        }
        self.state.world.groups.push(Pg {
            name,
            desc: desc.unwrap_or("undefined").to_owned(),
            ranks,
            me: GroupRank(me as u32),
            backend,
            config,
            registered: true,
            plan,
            coalescing: None,
            splits: 0,
            device_id,
        });
        Ok(Group::Member(GroupHandle(self.state.world.groups.len() as u32 - 1)))
    }
}

/// What a group is made of.
pub(super) struct MakeGroup<'a> {
    pub(super) name: String,
    pub(super) ranks: Arc<[GlobalRank]>,
    pub(super) backend: Backend,
    pub(super) timeout_ms: u64,
    pub(super) desc: Option<&'a str>,
    pub(super) device_id: Option<u32>,
    pub(super) via: &'static str,
}

/// A timeout in milliseconds, checked as `_check_valid_timeout` does.
pub(super) fn timeout(timeout: Option<&Arg<u64>>, backend: &Backend) -> Result<u64, DistError> {
    match timeout {
        None => Ok(backend.default_timeout_ms()),
        Some(Arg::Is(timeout_ms)) => Ok(*timeout_ms),
        Some(Arg::Not { repr, .. }) => Err(type_error(format!(
            "Expected timeout argument to be of type datetime.timedelta, got {repr}"
        ))
        .with_help("Write datetime.timedelta(seconds=…).")),
    }
}

fn checked_ranks(ranks: &[i64], world_size: u32) -> Result<Arc<[GlobalRank]>, DistError> {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable();
    if sorted.len() > world_size as usize {
        return Err(value_error(
            "the new group's world size should be less or equal to the world size set by \
             init_process_group",
        ));
    }
    let inside = |rank: &i64| u32::try_from(*rank).ok().filter(|rank| *rank < world_size);
    let ranks: Option<Vec<GlobalRank>> =
        sorted.iter().map(|rank| inside(rank).map(GlobalRank)).collect();
    let ranks = ranks.ok_or_else(|| {
        value_error(
            "The new group's rank should be within the world_size set by init_process_group",
        )
        .with_help(format!("Ranks are 0 to {}.", world_size - 1))
    })?;
    if let Some(pair) = ranks.windows(2).find(|pair| pair[0] == pair[1]) {
        // PyTorch 2.7.1 has no such check: gloo waits for a member that never comes.
        return Err(value_error(format!("new_group lists rank {} twice", pair[0]))
            .with_help("PyTorch 2.7.1 hangs here instead; list each rank once."));
    }
    if ranks.is_empty() {
        return Err(value_error("new_group lists no ranks")
            .with_help("PyTorch 2.7.1 makes a group without members; list at least one rank."));
    }
    Ok(ranks.into())
}

fn repr(group: Group) -> &'static str {
    match group {
        Group::Member(_) => REPR,
        Group::NonMember => "-100",
    }
}

fn members(ranks: &[GlobalRank]) -> String {
    let shown: Vec<_> = ranks.iter().take(16).map(GlobalRank::to_string).collect();
    let more = if ranks.len() > 16 { ", …" } else { "" };
    format!("The group has global ranks [{}{more}].", shown.join(", "))
}

/// A list of integers as Python prints it.
fn python_list(ranks: &[i64]) -> String {
    let ranks: Vec<_> = ranks.iter().map(i64::to_string).collect();
    format!("[{}]", ranks.join(", "))
}
