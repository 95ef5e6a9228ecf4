//! The process groups of a job, from every rank's dump of its own groups.
//!
//! The same group has the same name on every rank, while `pg_id` is each rank's own count.

use super::members::{RankHint, Unlisted, members};
use super::names::{CallName, call_name, needs_all};
use super::{Dump, Entry, Site};
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::rank::GlobalRank;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A group by the properties that all ranks agree on: its name, and its members if listed (names that were
/// hashed from a subset may be there twice).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey {
    /// The default group first, then by number, then by name.
    order: (bool, u64, String),
    listed: Vec<GlobalRank>,
    /// True of the later one of two groups that gloo's dumps give one name.
    namesake: bool,
}

#[derive(Default)]
struct GroupDraft {
    desc: String,
    callers: BTreeSet<GlobalRank>,
    timeout_ms: Option<u64>,
    backend: Option<BackendName>,
    p2p: bool,
    /// True if any rank saw a call of it end.
    any_ended: bool,
    /// The pending calls, and the ranks that saw each of them end, by their number; of groups whose members
    /// are worked out.
    pending: BTreeMap<u64, BTreeSet<GlobalRank>>,
    ended: BTreeSet<u64>,
    /// Pending calls that are not alike.
    differ: BTreeSet<u64>,
    /// The pending call of each number and its element count, as its first caller called it.
    called: BTreeMap<u64, (Arc<str>, u64)>,
}

/// The groups of a job.
pub(super) struct GroupTable {
    pub(super) groups: Vec<ProcessGroup>,
    ids: BTreeMap<GroupKey, GroupId>,
    /// Groups with sends or receives.
    pub(super) with_p2p: BTreeSet<GroupId>,
    /// Groups whose recorder says when a call was issued, and not when it ended.
    pub(super) ends_unseen: BTreeSet<GroupId>,
    /// Ranks that called a group whose other members, not listed, left no dump; empty if every rank
    /// has such a group, which is then likely one of a single member.
    pub(super) deserted: BTreeSet<GlobalRank>,
    /// Per dump, its lists of members that can be relied on, by the group's name.
    listed: BTreeMap<(GlobalRank, String), Vec<GlobalRank>>,
    /// Ranks that mean another group by a name than those that made one of that name before.
    namesakes: BTreeSet<(GlobalRank, String)>,
}

impl GroupTable {
    pub(super) fn of(dumps: &[Dump], world_size: u32) -> GroupTable {
        let mut table = GroupTable {
            groups: Vec::new(),
            ids: BTreeMap::new(),
            with_p2p: BTreeSet::new(),
            ends_unseen: BTreeSet::new(),
            deserted: BTreeSet::new(),
            listed: BTreeMap::new(),
            namesakes: BTreeSet::new(),
        };
        let mut hints = table.read_listed(dumps, world_size);
        let mut drafts = table.drafts(dumps, &mut hints);
        table.see_pending(dumps, &mut drafts);
        table.part_namesakes(dumps, &mut drafts);
        let world: Vec<GlobalRank> = (0..world_size).map(GlobalRank).collect();
        let recorded: BTreeSet<GlobalRank> = dumps.iter().map(|dump| dump.rank).collect();
        table.deserted = deserted(&drafts, &recorded);
        let absent: BTreeSet<GlobalRank> =
            world.iter().filter(|rank| !recorded.contains(rank)).copied().collect();
        if drafts.first_key_value().is_none_or(|(key, _)| !key.is_default()) {
            let order = (false, 0, "0".to_owned());
            let key = GroupKey { order, listed: world.clone(), namesake: false };
            drafts
                .insert(key, GroupDraft { desc: "default_pg".to_owned(), ..GroupDraft::default() });
        }
        let kin = kin(&drafts);
        for ((key, draft), kin) in drafts.into_iter().zip(kin) {
            let ranks = match () {
                () if !key.listed.is_empty() => key.listed.clone(),
                () if key.is_default() => world.clone(),
                () => table.unlisted_members(&key, &draft, &kin, &absent, &hints),
            };
            table.add(key, draft, ranks);
        }
        table.ends_unseen = table.groups_without_ends(dumps);
        table
    }

    /// Takes the members that dumps list, and their hints on groups whose members they do not list.
    fn read_listed(&mut self, dumps: &[Dump], world_size: u32) -> BTreeMap<GlobalRank, RankHint> {
        let mut hints: BTreeMap<GlobalRank, RankHint> = BTreeMap::new();
        for dump in dumps {
            let hint = hints.entry(dump.rank).or_default();
            for group in &dump.groups {
                let mut ranks = group.ranks.clone();
                ranks.sort_unstable();
                let within = ranks.last().is_none_or(|rank| rank.0 < world_size);
                let sound = within && ranks.windows(2).all(|pair| pair[0] != pair[1]);
                if group.name.is_empty() {
                    hint.last_size = Some(group.ranks.len()).filter(|size| *size > 0);
                } else if sound && ranks.binary_search(&dump.rank).is_ok() {
                    self.listed.insert((dump.rank, group.name.clone()), group.ranks.clone());
                }
            }
        }
        hints
    }

    /// The groups that dumps list or call.
    fn drafts(
        &self,
        dumps: &[Dump],
        hints: &mut BTreeMap<GlobalRank, RankHint>,
    ) -> BTreeMap<GroupKey, GroupDraft> {
        let mut drafts: BTreeMap<GroupKey, GroupDraft> = BTreeMap::new();
        for dump in dumps {
            // A group that is listed and was never called is still worth its row.
            for group in dump.groups.iter().filter(|group| !group.name.is_empty()) {
                let key = self.key(dump.rank, &group.name, &group.desc);
                let draft = drafts.entry(key).or_default();
                if draft.desc.is_empty() {
                    draft.desc.clone_from(&group.desc);
                }
            }
            // A dump has thousands of entries, few sites and fewer groups.
            let mut own: BTreeMap<SiteGroup<'_>, GroupDraft> = BTreeMap::new();
            for site in &dump.sites {
                own.entry(SiteGroup::of(site)).or_default().take(dump.rank, site);
            }
            for (group, draft) in own {
                let key = self.key_of(dump.rank, group);
                if let Some(hint) = hints.get_mut(&dump.rank) {
                    hint.numbers.insert(group.pg_id, key.order.1);
                }
                drafts.entry(key).or_default().merge(draft);
            }
        }
        drafts
    }

    /// The members of a group that no dump lists, as far as they can be worked out.
    fn unlisted_members(
        &self,
        key: &GroupKey,
        draft: &GroupDraft,
        Kin { size, strangers, whole }: &Kin,
        absent: &BTreeSet<GlobalRank>,
        hints: &BTreeMap<GlobalRank, RankHint>,
    ) -> Vec<GlobalRank> {
        // In a job that runs, calls are under way too. A rank without a dump may be missing in them.
        let stalled = draft.stalled() && !(*whole && absent.is_empty());
        let unlisted = Unlisted {
            number: (key.order.1 < u64::MAX).then_some(key.order.1),
            callers: &draft.callers,
            stalled,
            strangers,
            absent,
            kin_size: *size,
        };
        let mut ranks = members(&unlisted, hints);
        // A call that ended had all its members: the only rank without a dump is the other one.
        let only_absent = absent.first().filter(|_| absent.len() == 1);
        let deserted = draft.is_alone() && draft.callers.is_subset(&self.deserted);
        ranks.extend(only_absent.filter(|absent| deserted && !ranks.contains(absent)));
        ranks
    }

    /// Adds a group, unless it has no members or one twice, which cannot come this far.
    fn add(&mut self, key: GroupKey, draft: GroupDraft, ranks: Vec<GlobalRank>) {
        let backend = draft.backend.unwrap_or(BackendName::Unknown);
        let id = GroupId(self.groups.len() as u32);
        if let Ok(group) = ProcessGroup::new(key.order.2.clone(), backend, ranks) {
            let timeout_ms = draft.timeout_ms.unwrap_or(group.timeout_ms());
            self.groups.push(group.with_desc(draft.desc).with_timeout_ms(timeout_ms));
            self.ids.insert(key, id);
            if draft.p2p {
                self.with_p2p.insert(id);
            }
        }
    }

    /// Notes which calls of groups without a list of members are pending, and which ranks saw them end.
    fn see_pending(&self, dumps: &[Dump], drafts: &mut BTreeMap<GroupKey, GroupDraft>) {
        for ended in [false, true] {
            for dump in dumps {
                let keys: Vec<GroupKey> = dump
                    .sites
                    .iter()
                    .map(|site| self.key_of(dump.rank, SiteGroup::of(site)))
                    .collect();
                for entry in &dump.entries {
                    let site = entry.site as usize;
                    let (Some(key), Some(site)) = (keys.get(site), dump.sites.get(site)) else {
                        continue;
                    };
                    let worked_out = key.listed.is_empty() && !key.is_default();
                    let Some(seq) = entry.collective_seq.filter(|_| worked_out && !site.p2p) else {
                        continue;
                    };
                    let Some(draft) = drafts.get_mut(key) else { continue };
                    match (ended, entry.completed) {
                        (false, false) => {
                            draft.pending.entry(seq).or_default().insert(dump.rank);
                            let name = &site.profiling_name;
                            let called = (Arc::clone(name), agreed_numel(site));
                            let first = draft.called.entry(seq).or_insert_with(|| called.clone());
                            if *first != called {
                                draft.differ.insert(seq);
                            }
                        }
                        (false, true) => draft.any_ended = true,
                        // The first time over, not all that is pending is known.
                        (true, true) if draft.pending.contains_key(&seq) => {
                            draft.ended.insert(seq);
                        }
                        _ => {}
                    }
                }
            }
        }
    }

    /// The groups of backends that need not report the end of a call, as far as their recorders did not.
    fn groups_without_ends(&self, dumps: &[Dump]) -> BTreeSet<GroupId> {
        let mut found = BTreeSet::new();
        for dump in dumps {
            let unseen = |site: &Site| call_name(&site.profiling_name).ends_unseen;
            let unseen: Vec<bool> = dump.sites.iter().map(unseen).collect();
            if !unseen.contains(&true) {
                continue;
            }
            let ids = self.ids(dump);
            let only_retired = dump.entries.iter().filter(|entry| entry.is_only_retired());
            let sites = only_retired.map(|entry| entry.site as usize);
            let sites = sites.filter(|site| unseen.get(*site) == Some(&true));
            found.extend(sites.filter_map(|site| ids.get(site).copied()));
        }
        found
    }

    fn key(&self, rank: GlobalRank, name: &str, desc: &str) -> GroupKey {
        let listed = self.listed.get(&(rank, name.to_owned())).cloned().unwrap_or_default();
        let other = !(desc == "default_pg" || (desc.is_empty() && name == "0"));
        let number = name.parse().unwrap_or(u64::MAX);
        let namesake =
            !self.namesakes.is_empty() && self.namesakes.contains(&(rank, name.to_owned()));
        GroupKey { order: (other, number, name.to_owned()), listed, namesake }
    }

    /// Parts groups that gloo's dumps give one name although they cannot be one: some members have
    /// come out of its first collective, which needs all, and others wait in a first one that is
    /// another. Where not every rank calls new_group, the ranks' counts of groups, by which they are
    /// named, are out of step.
    fn part_namesakes(&mut self, dumps: &[Dump], drafts: &mut BTreeMap<GroupKey, GroupDraft>) {
        let unlisted = drafts.iter().filter(|(key, draft)| {
            key.listed.is_empty()
                && !key.is_default()
                && draft.pending.contains_key(&1)
                && draft.ended.contains(&1)
        });
        let keys: Vec<GroupKey> = unlisted.map(|(key, _)| key.clone()).collect();
        for key in keys {
            let Some(later) = self.later_namesakes(dumps, &key) else { continue };
            let Some(draft) = drafts.get_mut(&key) else { continue };
            draft.callers.retain(|rank| !later.contains(rank));
            for ranks in draft.pending.values_mut() {
                ranks.retain(|rank| !later.contains(rank));
            }
            draft.pending.retain(|_, ranks| !ranks.is_empty());
            let (_, _, name) = &key.order;
            self.namesakes.extend(later.iter().map(|rank| (*rank, name.clone())));
            let namesake = GroupDraft {
                desc: draft.desc.clone(),
                timeout_ms: draft.timeout_ms,
                backend: draft.backend,
                p2p: draft.p2p,
                pending: BTreeMap::from([(1, later.clone())]),
                callers: later,
                ..GroupDraft::default()
            };
            drafts.insert(GroupKey { namesake: true, ..key }, namesake);
        }
    }

    /// The ranks that wait in the first call of a group while others have come out of a first call
    /// that was another; `None` where that may be a mismatch within one group.
    fn later_namesakes(&self, dumps: &[Dump], key: &GroupKey) -> Option<BTreeSet<GlobalRank>> {
        let mut ended: Vec<(&Site, bool)> = Vec::new();
        let mut waiting: Vec<(&Site, GlobalRank)> = Vec::new();
        for dump in dumps {
            let of_it: Vec<bool> = dump
                .sites
                .iter()
                .map(|site| !site.p2p && self.key_of(dump.rank, SiteGroup::of(site)) == *key)
                .collect();
            let calls = || {
                let own = |entry: &&Entry| of_it.get(entry.site as usize) == Some(&true);
                dump.entries.iter().filter(own)
            };
            let Some(first) = calls().find(|entry| entry.collective_seq == Some(1)) else {
                continue;
            };
            let site = dump.site(first)?;
            let goes_on = calls().any(|entry| entry.completed && entry.collective_seq > Some(1));
            match first.completed {
                true => ended.push((site, goes_on)),
                false => waiting.push((site, dump.rank)),
            }
        }
        let all_differ = waiting.iter().all(|(site, _)| {
            ended.iter().all(|(other, goes_on)| {
                let another =
                    site.profiling_name != other.profiling_name || site.inputs != other.inputs;
                let lines = !site.stack.is_empty() && site.stack != other.stack;
                another && (lines || *goes_on)
            })
        });
        let together = ended.len() > 1
            && ended.iter().all(|(site, _)| needs_all(call_name(&site.profiling_name).op));
        let later = waiting.iter().map(|(_, rank)| *rank).collect();
        (all_differ && together && !waiting.is_empty()).then_some(later)
    }

    fn key_of(&self, rank: GlobalRank, group: SiteGroup<'_>) -> GroupKey {
        match group.name {
            Some(name) => self.key(rank, name, group.desc),
            // Before torch 2.4 a group is known by each rank's own number only.
            None => self.key(rank, &group.pg_id.to_string(), ""),
        }
    }

    /// A group that a rank's dump lists.
    pub(super) fn listed_id(&self, rank: GlobalRank, name: &str, desc: &str) -> Option<GroupId> {
        self.ids.get(&self.key(rank, name, desc)).copied()
    }

    /// The groups of a dump's sites, in order.
    pub(super) fn ids(&self, dump: &Dump) -> Vec<GroupId> {
        let id = |site| self.ids.get(&self.key_of(dump.rank, SiteGroup::of(site))).copied();
        dump.sites.iter().map(|site| id(site).unwrap_or(GroupId::WORLD)).collect()
    }
}

/// A group as an entry names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SiteGroup<'a> {
    pg_id: u64,
    name: Option<&'a str>,
    desc: &'a str,
}

impl<'a> SiteGroup<'a> {
    fn of(site: &'a Site) -> SiteGroup<'a> {
        let (name, desc) = (site.group.as_deref(), site.group_desc.as_ref());
        SiteGroup { pg_id: site.pg_id, name, desc }
    }
}

impl GroupKey {
    fn is_default(&self) -> bool {
        !self.order.0
    }
}

impl GroupDraft {
    fn take(&mut self, rank: GlobalRank, site: &Site) {
        let CallName { backend, .. } = call_name(&site.profiling_name);
        if self.desc.is_empty() {
            self.desc = site.group_desc.to_string();
        }
        self.callers.insert(rank);
        self.timeout_ms = self.timeout_ms.max(site.timeout_ms);
        self.p2p |= site.p2p;
        if backend != BackendName::Unknown {
            self.backend = self.backend.max(Some(backend));
        }
    }

    fn merge(&mut self, other: GroupDraft) {
        if self.desc.is_empty() {
            self.desc = other.desc;
        }
        self.callers.extend(other.callers);
        self.timeout_ms = self.timeout_ms.max(other.timeout_ms);
        self.backend = self.backend.max(other.backend);
        self.p2p |= other.p2p;
    }

    /// True if one rank made calls, and saw some end, that no other recorded rank made.
    fn is_alone(&self) -> bool {
        self.callers.len() == 1 && self.any_ended
    }

    /// True if all callers of the group wait in one call: another rank must be missing.
    fn stalled(&self) -> bool {
        let all_wait = |(seq, ranks): (&u64, &BTreeSet<GlobalRank>)| {
            let alike = !self.ended.contains(seq) && !self.differ.contains(seq);
            alike && ranks.len() == self.callers.len()
        };
        self.pending.iter().any(all_wait)
    }
}

/// The number of elements of a call, where all of its ranks have as many; else 0.
fn agreed_numel(site: &Site) -> u64 {
    match call_name(&site.profiling_name).op {
        "all_reduce" | "broadcast" | "reduce" => {
            site.inputs.iter().fold(0, |sum, tensor| sum.saturating_add(tensor.numel()))
        }
        _ => 0,
    }
}

/// Evidence from the other groups of a job about the members of one.
#[derive(Clone, Default)]
struct Kin {
    /// The size of the groups that are called like it but for the digits, as a mesh's are.
    size: Option<usize>,
    /// Ranks that are in another one of its name or its description.
    strangers: BTreeSet<GlobalRank>,
    /// True if a group of the same name goes on with as many ranks as called this one: no rank is missing.
    whole: bool,
}

/// The ranks that alone called a group that lists no members; none if that is every rank with a dump.
fn deserted(
    drafts: &BTreeMap<GroupKey, GroupDraft>,
    recorded: &BTreeSet<GlobalRank>,
) -> BTreeSet<GlobalRank> {
    let alone = drafts
        .iter()
        .filter(|(key, draft)| draft.is_alone() && key.listed.is_empty() && !key.is_default());
    let callers: BTreeSet<GlobalRank> =
        alone.flat_map(|(_, draft)| draft.callers.iter().copied()).collect();
    if callers.len() == recorded.len() { BTreeSet::new() } else { callers }
}

/// The kin of each group, in the groups' order.
fn kin(drafts: &BTreeMap<GroupKey, GroupDraft>) -> Vec<Kin> {
    let unlisted: Vec<(&GroupKey, &GroupDraft)> =
        drafts.iter().filter(|(key, _)| key.listed.is_empty() && !key.is_default()).collect();
    let family = |desc: &str| desc.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
    let mut named: BTreeMap<&str, BTreeSet<GlobalRank>> = BTreeMap::new();
    let mut numbered: BTreeMap<&str, BTreeSet<GlobalRank>> = BTreeMap::new();
    let mut going_on: BTreeSet<(String, usize)> = BTreeSet::new();
    let said = |desc: &str| !desc.is_empty() && desc != "undefined";
    for (key, draft) in &unlisted {
        if said(&draft.desc) {
            let size = sizes.entry(family(&draft.desc)).or_default();
            *size = draft.callers.len().max(*size);
            named.entry(&draft.desc).or_default().extend(&draft.callers);
            if !draft.stalled() {
                going_on.insert((family(&draft.desc), draft.callers.len()));
            }
        }
        numbered.entry(&key.order.2).or_default().extend(&draft.callers);
    }
    let of = |(key, draft): (&GroupKey, &GroupDraft)| {
        if !key.listed.is_empty() || key.is_default() {
            return Kin::default();
        }
        let alike = numbered.get(key.order.2.as_str());
        let called = named.get(draft.desc.as_str());
        let all = alike.into_iter().chain(called).flatten();
        Kin {
            size: sizes.get(&family(&draft.desc)).copied(),
            strangers: all.filter(|rank| !draft.callers.contains(rank)).copied().collect(),
            whole: going_on.contains(&(family(&draft.desc), draft.callers.len())),
        }
    };
    drafts.iter().map(of).collect()
}
