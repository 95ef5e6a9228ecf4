//! What groups stand for, so that ranks which share none can be compared.

use crate::group::{GroupId, ProcessGroup};
use crate::rank::GlobalRank;

/// So many kinds of groups are told apart.
const ROLES: usize = 64;

/// What every group stands for: groups of one size, without a member in common, whose descriptions
/// differ in digits only, stand for each other.
#[derive(Clone, Debug)]
pub(super) struct Roles {
    of: Vec<usize>,
}

impl Roles {
    pub(super) fn of(groups: &[ProcessGroup]) -> Roles {
        struct Role {
            desc: String,
            size: u32,
            members: Vec<bool>,
        }
        let mut roles: Vec<Role> = Vec::new();
        let mut of = Vec::with_capacity(groups.len());
        for (at, group) in groups.iter().enumerate() {
            let desc: String = group.desc().chars().filter(|c| !c.is_ascii_digit()).collect();
            let taken = |role: &Role| {
                let is_in = |rank: &GlobalRank| role.members.get(rank.index()) == Some(&true);
                group.ranks().iter().any(is_in)
            };
            let known = roles
                .iter()
                .position(|role| role.size == group.size() && role.desc == desc && !taken(role));
            let role = match known {
                Some(role) => role,
                None if roles.len() < ROLES => {
                    roles.push(Role { desc, size: group.size(), members: Vec::new() });
                    roles.len() - 1
                }
                // One of its own.
                None => ROLES + at,
            };
            if let Some(known) = roles.get_mut(role) {
                for rank in group.ranks() {
                    if known.members.len() <= rank.index() {
                        known.members.resize(rank.index() + 1, false);
                    }
                    if let Some(member) = known.members.get_mut(rank.index()) {
                        *member = true;
                    }
                }
            }
            of.push(role);
        }
        Roles { of }
    }

    /// What a group stands for.
    pub(super) fn role(&self, group: GroupId) -> Option<usize> {
        self.of.get(group.index()).copied()
    }

    /// True if the groups are one, or stand for each other.
    pub(super) fn same(&self, a: GroupId, b: GroupId) -> bool {
        a == b
            || (self.of.get(a.index()).is_some()
                && self.of.get(a.index()) == self.of.get(b.index()))
    }
}
