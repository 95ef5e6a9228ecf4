//! Process groups as a rank has them: asked and destroyed. `new_group` makes them.

use super::dist::Dist;
use super::error::{DistError, ErrorKind, assertion_error, type_error, value_error};
use super::process_group::{Group, GroupHandle, Pg, REPR};
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::rank::GlobalRank;
use std::sync::Arc;

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
        let place = match group {
            Group::Member(handle) => self.pg(handle).group_rank(global_rank).map(i64::from),
            Group::NonMember => {
                let place = ranks.iter().position(|rank| i64::from(rank.0) == global_rank);
                place.map(|place| place as i64)
            }
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

    /// `_canonicalize_group_rank`: the group rank of an argument that is a global or a group rank.
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

    /// As [`Dist::group_rank_of`], for calls whose exceptions PyTorch logs: its logger asks for the group's
    /// backend, which fails on a rank outside of the group, and the program sees that error instead.
    pub(super) fn logged_rank_of(
        &self,
        group: Group,
        global_rank: Option<i64>,
        group_rank: Option<i64>,
    ) -> Result<i64, DistError> {
        let found = self.group_rank_of(group, global_rank, group_rank);
        found.map_err(|error| match group {
            Group::Member(_) => error,
            Group::NonMember => {
                let help = error.help.map(|help| format!(" {help}")).unwrap_or_default();
                value_error("Invalid process group specified").with_help(format!(
                    "This rank is not in the group, which is all that PyTorch's logger of \
                     exceptions says; what is wrong is: {}.{help}",
                    error.text
                ))
            }
        })
    }

    /// The group of a call with a root, and the root's group rank; rank 0 of the world where no
    /// root is named.
    pub(super) fn rooted(
        &self,
        group: Option<Group>,
        global_rank: Option<i64>,
        group_rank: Option<i64>,
    ) -> Result<(Group, i64), DistError> {
        let group = self.or_default(group)?;
        let global_rank = global_rank.or(group_rank.is_none().then_some(0));
        Ok((group, self.logged_rank_of(group, global_rank, group_rank)?))
    }

    /// The plan's group for one of the group's backends.
    pub(super) fn plan_group(&mut self, handle: GroupHandle, backend: BackendName) -> GroupId {
        let plan = &self.pg(handle).plan;
        let found = plan.iter().find(|(name, _)| *name == backend);
        found.map_or(GroupId::WORLD, |(_, id)| *id)
    }
}

pub(super) fn repr(group: Group) -> &'static str {
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
