//! The progress of a rank in its groups, as the recorder counts it (`pg_status`): also of calls
//! that the ring has dropped.

use super::groups::GroupTable;
use super::names::call_name;
use super::{Dump, Entry, GroupStatus, Site};
use lockstep_core::group::{BackendName, GroupId};
use std::collections::{BTreeMap, BTreeSet};

impl GroupTable {
    /// The last collective that a dump's rank called in each group, by its status: `ids` are the groups of
    /// its sites.
    pub(super) fn enqueued(&self, dump: &Dump, ids: &[GroupId]) -> BTreeMap<GroupId, u64> {
        let recorded = last_of_gloo(dump, ids);
        let known = self.statuses(dump, ids).map(|(group, status)| {
            // Numbers begin at 1, and -1 stands for never.
            let last = recorded.get(&group).copied().or(status.last_enqueued);
            (group, last.unwrap_or(0))
        });
        known.collect()
    }

    /// The number of calls that a dump's rank has made in gloo's groups beyond the last one that is
    /// recorded, as its status counts them.
    pub(super) fn unrecorded(&self, dump: &Dump, ids: &[GroupId]) -> BTreeMap<GroupId, u64> {
        let recorded = last_of_gloo(dump, ids);
        let known = self.statuses(dump, ids).filter_map(|(group, status)| {
            let beyond = status.last_enqueued?.checked_sub(*recorded.get(&group)?)?;
            (beyond > 0).then_some((group, beyond))
        });
        known.collect()
    }

    /// The numbers of the last calls of gloo's groups that a dump's rank retired and its status does not count
    /// as ended. gloo retires a call when it ends, also by failing, and counts it behind that
    /// (`ProcessGroupGloo::runLoop`): the dump was taken in between, as by a rank that the call raised in.
    pub(super) fn retired_uncounted(&self, dump: &Dump, ids: &[GroupId]) -> BTreeMap<GroupId, u64> {
        let recorded = last_of_gloo(dump, ids);
        let known = self.statuses(dump, ids).filter_map(|(group, status)| {
            let last = *recorded.get(&group)?;
            // If sends and receives are counted, too, the numbers differ.
            let same = status.last_enqueued == Some(last);
            (same && status.last_completed? < last).then_some((group, last))
        });
        known.collect()
    }

    /// The size of the group that a rank made last on gloo, if none of its calls were in a group of
    /// that size. gloo's recorder lists one group, the one that was made last, with as many ranks
    /// as it has (`ProcessGroupGloo`'s constructor).
    pub(super) fn group_without_calls(&self, dump: &Dump, ids: &[GroupId]) -> Option<u32> {
        let [listed] = dump.groups.as_slice() else { return None };
        let size = u32::try_from(listed.ranks.len()).ok().filter(|size| *size > 0)?;
        let called: BTreeSet<GroupId> = ids.iter().copied().collect();
        // The ring may have dropped all calls of a group that the status counts.
        let all_kept = dump.status.len() <= called.len() && !dump.is_cut();
        let of_size =
            |id: &GroupId| self.groups.get(id.index()).is_some_and(|it| it.size() == size);
        (listed.name.is_empty() && all_kept && !called.iter().any(of_size)).then_some(size)
    }

    /// The groups of NCCL's in which a rank's first collective that has not ended has been dropped by the
    /// ring, by its status: the number of the last one that did end.
    pub(super) fn unended(&self, dump: &Dump, ids: &[GroupId]) -> BTreeMap<GroupId, u64> {
        if !dump.is_cut() || !dump.sites.iter().all(is_followed_nccl) {
            return BTreeMap::new();
        }
        let known = self.statuses(dump, ids).filter_map(|(group, status)| {
            let of_it = |entry: &&Entry| ids.get(entry.site as usize) == Some(&group);
            let kept = || dump.entries.iter().filter(of_it);
            // The status may lag behind what the entries show.
            let seen = kept().filter(|entry| entry.completed).filter_map(|it| it.collective_seq);
            let ended = seen.fold(status.last_completed.unwrap_or(0), u64::max);
            let first = kept().filter_map(|entry| entry.collective_seq).min();
            let dropped = first.is_none_or(|first| first > ended.saturating_add(1));
            (status.last_enqueued? > ended && dropped).then_some((group, ended))
        });
        known.collect()
    }

    /// The progress of a dump's rank in each group.
    ///
    /// The status counts by the rank's own `pg_id`. If the entries do not have a group's id, the list of
    /// groups gives it: a rank numbers its groups in the order in which they were made, which is that of
    /// their names if those are numbers. Groups with point-to-point calls are left out: their status may be
    /// one of those calls' numbers (`ProcessGroupNCCL::workEnqueue`).
    fn statuses(
        &self,
        dump: &Dump,
        ids: &[GroupId],
    ) -> impl Iterator<Item = (GroupId, GroupStatus)> {
        let mut by_pg_id: BTreeMap<u64, GroupId> =
            dump.sites.iter().zip(ids).map(|(site, id)| (site.pg_id, *id)).collect();
        let mut listed: Vec<(u64, GroupId)> = Vec::new();
        for group in &dump.groups {
            let id = self.listed_id(dump.rank, &group.name, &group.desc);
            listed.extend(group.name.parse().ok().zip(id));
        }
        listed.sort_unstable();
        // Some numbers belong to groups that the recorder does not watch.
        let numbered = || dump.status.keys().copied().zip(listed.iter().map(|(_, id)| *id));
        let agrees = |(pg_id, id)| by_pg_id.get(&pg_id).is_none_or(|known| *known == id);
        if listed.len() == dump.status.len() && numbered().all(agrees) {
            by_pg_id.extend(numbered());
        }
        let known = dump.status.iter();
        let known = known.filter_map(move |(pg_id, status)| Some((*by_pg_id.get(pg_id)?, *status)));
        known.filter(|(group, _)| !self.with_p2p.contains(group))
    }
}

/// True if a dump of NCCL's gives for every group the last call that ended, and has all calls after that: the
/// calls that the ring has dropped hold nothing up.
///
/// The status counts by the rank's own `pg_id`. If a group has point-to-point calls as well, it is one of
/// their numbers or one of a collective's, whichever the rank called last (`ProcessGroupNCCL::workEnqueue`):
/// then the first call that is kept and has not ended must have the number that comes next, and be no batch,
/// whose parts have its number.
pub(super) fn dropped_ended(dump: &Dump) -> bool {
    #[derive(Default)]
    struct Kept {
        ended: u64,
        /// The number of the first that has not ended, 0 where the dump gives none.
        pending: Option<u64>,
        p2p: bool,
        /// The number of the first batch that has not ended.
        batch: Option<u64>,
    }
    if dump.status.is_empty() || !dump.sites.iter().all(is_followed_nccl) {
        return false;
    }
    let mut groups: BTreeMap<u64, Kept> = BTreeMap::new();
    for entry in &dump.entries {
        let Some(site) = dump.sites.get(entry.site as usize) else { return false };
        let number = if site.p2p { entry.p2p_seq } else { entry.collective_seq };
        let kept = groups.entry(site.pg_id).or_default();
        kept.p2p |= site.p2p || entry.p2p_seq > Some(0);
        if site.p2p && !entry.completed && call_name(&site.profiling_name).op.ends_with("coalesced")
        {
            kept.batch = kept.batch.or(number);
        }
        match (entry.completed, kept.pending) {
            (true, _) => kept.ended = kept.ended.max(number.unwrap_or(0)),
            (false, None) => kept.pending = Some(number.unwrap_or(0)),
            (false, Some(_)) => {}
        }
    }
    let all_kept = |(pg_id, status): (&u64, &GroupStatus)| {
        let kept = groups.get(pg_id);
        // The status may lag behind what the entries show.
        let seen = kept.filter(|kept| !kept.p2p).map_or(0, |kept| kept.ended);
        let ended = status.last_completed.unwrap_or(0).max(seen);
        let next = ended.saturating_add(1);
        match kept.and_then(|kept| Some((kept, kept.pending?))) {
            Some((kept, pending)) if kept.p2p => pending == next && kept.batch != Some(pending),
            Some((_, pending)) => pending > 0 && pending <= next,
            None => status.last_enqueued.unwrap_or(0) <= ended,
        }
    };
    groups.keys().all(|pg_id| dump.status.contains_key(pg_id)) && dump.status.iter().all(all_kept)
}

/// True of a call of NCCL's whose end the recorder follows: a status counts others as ended once they are issued.
fn is_followed_nccl(site: &Site) -> bool {
    let name = call_name(&site.profiling_name);
    name.backend == BackendName::Nccl && !name.ends_unseen
}

/// The last collective that is recorded of each of gloo's groups. gloo counts its sends and
/// receives in the status and does not record them; the ring drops the oldest calls first, so of a
/// group of which any is left the last one is.
fn last_of_gloo(dump: &Dump, ids: &[GroupId]) -> BTreeMap<GroupId, u64> {
    let of_gloo = |site: &Site| call_name(&site.profiling_name).backend == BackendName::Gloo;
    let of_gloo: Vec<bool> = dump.sites.iter().map(of_gloo).collect();
    let mut last = BTreeMap::new();
    if !of_gloo.contains(&true) {
        return last;
    }
    for entry in &dump.entries {
        let site = entry.site as usize;
        if let (Some(true), Some(group), Some(seq)) =
            (of_gloo.get(site), ids.get(site), entry.collective_seq)
        {
            let last = last.entry(*group).or_insert(seq);
            *last = seq.max(*last);
        }
    }
    last
}
