//! Tells which ranks are out of step if some wait in a call that others, who wait for nobody, never
//! made: these left it out, or those made it on top.
//!
//! Between two ranks either may be. What tells is how many ranks wait for the ones, who else goes
//! through the program as they do and made the call or ended without it, and what their recorders
//! count. A rank of which nothing was recorded may have done either.

use crate::facts::program_order::alike_so_far;
use crate::facts::{Facts, idle, rows_without};
use crate::model::index::{Job, Row};
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeSet;

/// So many ranks of other groups are asked.
const ASKED: usize = 64;

/// The ranks on either side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// The number of ranks that made the call, or wait elsewhere for those that did not.
    pub(crate) made: usize,
    /// The number of ranks that did not, and were free to.
    pub(crate) left: usize,
    /// The number of ranks of the group that may have done either.
    pub(crate) unknown: usize,
    /// The ranks of groups that stand for this one that ended their calls without one like it,
    /// ascending.
    pub(crate) ended_without: Vec<GlobalRank>,
}

impl Tally {
    /// The ranks for and against `culprits`, who are not in a row.
    pub(crate) fn of(facts: &Facts<'_, '_>, row: &Row<'_>, culprits: &[GlobalRank]) -> Tally {
        let job = facts.job;
        let is_culprit = |rank: &GlobalRank| culprits.contains(rank);
        let mut made: BTreeSet<GlobalRank> = row.made.iter().map(|made| made.rank).collect();
        for culprit in culprits {
            made.extend(rows_without(facts, *culprit).flat_map(|(row, _)| row.waiting()));
            let waits = |pending: &&crate::model::messages::PendingP2p<'_>| {
                pending.partner.is_none() && pending.peer == *culprit
            };
            made.extend(facts.p2p.iter().filter(waits).map(|pending| pending.made.rank));
        }
        let members = job.group(row.group).map(|group| group.ranks()).unwrap_or_default();
        made.extend(members.iter().filter(|rank| job.has_made(row.group, **rank, row.seq)));
        made.retain(|rank| !is_culprit(rank));
        let mut tally = Tally {
            made: made.len(),
            left: culprits.len(),
            unknown: row.unrecorded.iter().filter(|rank| !is_culprit(rank)).count(),
            ended_without: Vec::new(),
        };
        let (Some(first), Some(waits)) = (culprits.first(), row.waiting().first().copied()) else {
            return tally;
        };
        for (group, rank) in peers(job, row).take(ASKED) {
            let alike = |other| alike_so_far(job, rank, other) == Some(true);
            if job.has_made(group, rank, row.seq) {
                // It goes through the program as the one that waits does, and came to this call.
                tally.made += usize::from(!made.contains(&rank) && alike(waits));
            } else if idle(facts, rank) && !is_culprit(&rank) {
                tally.left += usize::from(alike(*first));
                tally.ended_without.push(rank);
            }
        }
        tally.ended_without.sort_unstable();
        tally
    }

    /// True if more ranks speak for the call than could speak against it.
    pub(crate) fn tells(&self) -> bool {
        self.made > self.left + self.unknown
    }
}

/// The recorded ranks of the groups that stand for a row's, with theirs.
fn peers<'s>(
    job: &'s Job<'_>,
    row: &'s Row<'_>,
) -> impl Iterator<Item = (GroupId, GlobalRank)> + 's {
    let groups = (0..).map(GroupId).zip(&job.log.groups);
    let others = groups.filter(|(id, _)| *id != row.group && job.roles().same(*id, row.group));
    let ranks = others.flat_map(|(id, group)| group.ranks().iter().map(move |rank| (id, *rank)));
    ranks.filter(|(_, rank)| job.rank(*rank).is_some())
}
