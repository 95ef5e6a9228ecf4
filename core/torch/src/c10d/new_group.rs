//! Making process groups: `new_group`, the functions built on it, and splitting NCCL's groups.

use super::args::{Arg, NewGroup};
use super::backend::{Backend, BackendConfig};
use super::dist::Dist;
use super::error::{DistError, ErrorKind, runtime_error, store_error, type_error, value_error};
use super::groups::repr;
use super::process_group::{Group, GroupHandle, Pg, REPR};
use super::recorded::Recorded;
use lockstep_core::group::BackendName;
use lockstep_core::plan::remark::Remark;
use lockstep_core::rank::{GlobalRank, GroupRank};
use sha1::{Digest, Sha1};
use std::sync::Arc;

impl Dist<'_> {
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
        self.new_group_as(ranks, options, !options.use_local_synchronization)
    }

    /// Makes a group; `by_all` says that the other ranks are to make the same call.
    pub(super) fn new_group_as(
        &mut self,
        ranks: Option<&[i64]>,
        options: &NewGroup,
        by_all: bool,
    ) -> Result<Option<Group>, DistError> {
        let default = self.default_group()?;
        let parent = self.pg(default).clone();
        let backend = match options.backend.as_deref() {
            None | Some("") => parent.backend.clone(),
            Some(name) => Backend::new(name),
        };
        let timeout_ms = group_timeout(options.timeout_ms.as_ref(), &backend)?;
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
        if by_all {
            let (name, ranks) = (name.clone(), sorted.to_vec());
            self.remark(Remark::NewGroup { name, ranks }, None);
        }
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
        let timeout_ms = group_timeout(timeout_ms.as_ref(), &pg.backend)?;
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
        if let Group::Member(handle) = made {
            // It has the parent's backend string, though only NCCL serves it.
            let made = self.pg_mut(handle);
            made.config = made.config.clone().called(&pg.config);
            made.backend = pg.backend;
        }
        Ok(Some(made))
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
        let mut machine = self.shared.machine;
        if self.state.without_gpus && backend == Backend::undefined() {
            machine.cuda_devices = 0;
        }
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
                match self.shared.is_of_all(*group) {
                    true => self.state.clock.all_meet(),
                    false => self.state.clock.loose = true,
                }
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

/// The parts that a group is made of.
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

/// The timeout of a group that is made.
///
/// # Errors
/// As [`timeout`], and where it is 0. PyTorch 2.9.1 then finds no peer on gloo (`wait timeout after 0ms`,
/// `The client socket has timed out after 0ms`), and NCCL's watchdog takes the first call for late.
pub(super) fn group_timeout(given: Option<&Arg<u64>>, backend: &Backend) -> Result<u64, DistError> {
    match timeout(given, backend)? {
        0 => Err(store_error("wait timeout after 0ms").with_help(
            "datetime.timedelta(0) leaves ranks no time to find each other, and calls none to complete: give \
             timeout= more, or leave it out.",
        )),
        timeout_ms => Ok(timeout_ms),
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
        // PyTorch 2.7.1's error on every rank, about its own constructor.
        return Err(type_error(
            "__init__(): incompatible constructor arguments. The following argument types are \
             supported:\n    1. torch._C._distributed_c10d.ProcessGroup(rank: int, size: int)\n    2. \
             torch._C._distributed_c10d.ProcessGroup(store: torch._C._distributed_c10d.Store, rank: \
             int, size: int)",
        )
        .with_help("A group has one member at least: list its ranks, or None for all."));
    }
    Ok(ranks.into())
}

/// A list of integers as Python prints it.
fn python_list(ranks: &[i64]) -> String {
    let ranks: Vec<_> = ranks.iter().map(i64::to_string).collect();
    format!("[{}]", ranks.join(", "))
}
