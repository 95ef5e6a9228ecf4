//! The roles of groups, so that ranks which share none can be compared.

use crate::model::calls::alike;
use lockstep_core::group::{GroupId, ProcessGroup};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallRecord;

/// So many kinds of groups are told apart.
const ROLES: usize = 64;
/// So many calls of a group are its beginning.
pub(crate) const OPENING: usize = 8;
/// One call from the same line may be what all groups begin with, whatever they are for.
const ENOUGH: usize = 2;

/// True if groups make the same calls from the same lines, as far as either goes.
fn begin_alike(a: &[&CallRecord], b: &[&CallRecord]) -> bool {
    let same = |(a, b): (&&CallRecord, &&CallRecord)| {
        !a.call.stack.is_empty() && a.call.stack == b.call.stack && alike(a, b)
    };
    a.len().min(b.len()) >= ENOUGH && a.iter().zip(b).all(same)
}

/// The role of every group: groups of one size, without a member in common, whose descriptions
/// differ in digits only, or that begin with the same calls from the same lines, stand for each
/// other.
#[derive(Clone, Debug)]
pub(crate) struct Roles {
    of: Vec<usize>,
}

impl Roles {
    /// `opening` is with which calls a group begins, as far as its members agree in them.
    pub(crate) fn of<'a>(
        groups: &[ProcessGroup],
        opening: impl Fn(GroupId) -> Vec<&'a CallRecord>,
    ) -> Roles {
        struct Role<'a> {
            desc: String,
            opening: Vec<&'a CallRecord>,
            size: u32,
            members: Vec<bool>,
        }
        let mut roles: Vec<Role<'a>> = Vec::new();
        let mut of = Vec::with_capacity(groups.len());
        for (at, (id, group)) in (0..).map(GroupId).zip(groups).enumerate() {
            let desc: String = group.desc().chars().filter(|c| !c.is_ascii_digit()).collect();
            let opening = opening(id);
            let taken = |role: &Role<'_>| {
                let is_in = |rank: &GlobalRank| role.members.get(rank.index()) == Some(&true);
                group.ranks().iter().any(is_in)
            };
            let free = |role: &Role<'_>| role.size == group.size() && !taken(role);
            let by_desc = roles.iter().position(|role| role.desc == desc && free(role));
            let by_line =
                || roles.iter().position(|role| begin_alike(&role.opening, &opening) && free(role));
            let known = by_desc.or_else(by_line);
            let role = match known {
                Some(role) => role,
                None if roles.len() < ROLES => {
                    roles.push(Role { desc, opening, size: group.size(), members: Vec::new() });
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

    /// The role of a group.
    pub(crate) fn role(&self, group: GroupId) -> Option<usize> {
        self.of.get(group.index()).copied()
    }

    /// True if the groups are one, or stand for each other.
    pub(crate) fn same(&self, a: GroupId, b: GroupId) -> bool {
        a == b
            || (self.of.get(a.index()).is_some()
                && self.of.get(a.index()) == self.of.get(b.index()))
    }
}
