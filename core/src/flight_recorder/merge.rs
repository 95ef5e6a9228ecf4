//! Merges the dumps of a job's ranks into one trace.
//!
//! The same group has the same name on every rank, while `pg_id` is each rank's own count. The
//! ranks' wall clocks are taken as they are.

use super::members::{RankHint, Unlisted, members};
use super::names::{CallName, call_name};
use super::{Dump, Entry, FlightRecorderError};
use crate::group::{BackendName, GroupId, ProcessGroup};
use crate::plan::MAX_WORLD_SIZE;
use crate::rank::GlobalRank;
use crate::trace::{Call, Event, Origin, Outcome, Trace, TraceEnd, TraceHeader, What};
use std::collections::{BTreeMap, BTreeSet};

/// Stacks may take this many times the files' size in the trace, where every call has its own.
const MAX_STACK_GROWTH: usize = 64;

/// Merges the dumps of a job's ranks into one trace. A rank without a dump has no events.
///
/// # Errors
/// When there are no dumps, or two are of the same rank.
pub fn trace_of(mut dumps: Vec<Dump>) -> Result<Trace, FlightRecorderError> {
    dumps.sort_by(|a, b| (a.rank, &a.file_name).cmp(&(b.rank, &b.file_name)));
    for pair in dumps.windows(2) {
        if let [a, b] = pair
            && a.rank == b.rank
        {
            let (other, file) = (a.file_name.clone(), b.file_name.clone());
            return Err(FlightRecorderError::SameRank { file, other, rank: a.rank });
        }
    }
    if dumps.is_empty() {
        return Err(FlightRecorderError::NoDumps { files: 0 });
    }
    let world_size = world_size(&dumps);
    let table = GroupTable::of(&dumps, world_size);
    let epoch_ns = dumps
        .iter()
        .flat_map(|dump| &dump.entries)
        .map(|entry| entry.created_ns)
        .filter(|ns| *ns > 0)
        .min()
        .unwrap_or(0);
    let mut merger = Merger {
        all_there_ns: all_there(&dumps, &table),
        table,
        epoch_ns,
        stack_budget: dumps.iter().fold(1 << 20, |sum: usize, dump| {
            sum.saturating_add(dump.bytes.saturating_mul(MAX_STACK_GROWTH))
        }),
        events: Vec::new(),
    };
    for dump in &dumps {
        merger.take(dump);
    }
    let events = merger.events;
    let time_ps = events.iter().map(|event| event.time_ps).max().unwrap_or(0);
    Ok(Trace {
        header: TraceHeader {
            origin: Origin::Recorded {
                by: recorder(&dumps),
                files: dumps.iter().map(|dump| dump.file_name.clone()).collect(),
            },
            world_size,
            groups: merger.table.groups,
            plan: None,
            epoch_ns,
        },
        events,
        end: Some(TraceEnd { time_ps, outcome: Outcome::Unknown }),
    })
}

fn recorder(dumps: &[Dump]) -> String {
    let newest = dumps.iter().max_by_key(|dump| dump.version_pair());
    match newest.and_then(|dump| dump.version.as_deref()) {
        Some(version) => format!("PyTorch Flight Recorder {version}"),
        None => "PyTorch Flight Recorder of torch 2.2".to_owned(),
    }
}

/// The smallest world that holds every rank that any dump names.
fn world_size(dumps: &[Dump]) -> u32 {
    let mut size = 1;
    for dump in dumps {
        size = size.max(dump.rank.0.saturating_add(1));
        // Group ranks where gloo lists them, global ranks elsewhere: none is above the world's.
        let listed = dump.groups.iter().flat_map(|group| &group.ranks);
        size = listed.fold(size, |size, rank| size.max(rank.0.saturating_add(1)));
        for entry in dump.entries.iter().filter(|entry| is_default(entry)) {
            size = size.max(members_told(entry));
        }
    }
    size.min(MAX_WORLD_SIZE)
}

/// How many members a call tells of: an all_gather's result holds one input a member.
fn members_told(entry: &Entry) -> u32 {
    let name = call_name(&entry.profiling_name);
    let sides = name.own.into_iter().chain(name.peer).map(|rank| rank.0.saturating_add(1));
    let numel = |tensors: &[crate::trace::TensorShape]| {
        tensors.iter().fold(0u64, |sum, tensor| sum.saturating_add(tensor.numel()))
    };
    let (inputs, outputs) = (numel(&entry.inputs), numel(&entry.outputs));
    // NCCL lists its groups; gloo leaves only this to tell a world whose last rank left no dump.
    let gloo = name.backend == BackendName::Gloo;
    let gathered = match (name.op, inputs, outputs) {
        ("all_gather", 1.., _) if gloo && outputs % inputs == 0 => {
            u32::try_from(outputs / inputs).ok()
        }
        _ => None,
    };
    // A damaged size must not blow up the world.
    sides.chain(gathered).filter(|size| *size <= 1 << 16).max().unwrap_or(0)
}

fn is_default(entry: &Entry) -> bool {
    entry.group_desc.as_ref() == "default_pg" || (entry.group.is_none() && entry.pg_id == 0)
}

/// A group by what all ranks agree on: its name, and its members where listed (names that were
/// hashed from a subset may be there twice).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey {
    /// The default group first, then by number, then by name.
    order: (bool, u64, String),
    listed: Vec<GlobalRank>,
}

#[derive(Default)]
struct GroupDraft {
    desc: String,
    callers: BTreeSet<GlobalRank>,
    timeout_ms: Option<u64>,
    backend: Option<BackendName>,
    /// The pending calls, and those that somebody saw end, by their number.
    pending: BTreeMap<u64, BTreeSet<GlobalRank>>,
    ended: BTreeSet<u64>,
}

struct GroupTable {
    groups: Vec<ProcessGroup>,
    ids: BTreeMap<GroupKey, GroupId>,
    /// Per dump, its lists of members that can be relied on, by the group's name.
    listed: BTreeMap<(GlobalRank, String), Vec<GlobalRank>>,
}

impl GroupTable {
    fn of(dumps: &[Dump], world_size: u32) -> GroupTable {
        let mut table =
            GroupTable { groups: Vec::new(), ids: BTreeMap::new(), listed: BTreeMap::new() };
        let mut hints: BTreeMap<GlobalRank, RankHint> = BTreeMap::new();
        for dump in dumps {
            let hint = hints.entry(dump.rank).or_default();
            for group in &dump.groups {
                let mut seen = BTreeSet::new();
                let sound =
                    group.ranks.iter().all(|rank| rank.0 < world_size && seen.insert(*rank));
                if group.name.is_empty() {
                    hint.last_size = Some(group.ranks.len()).filter(|size| *size > 0);
                } else if sound && seen.contains(&dump.rank) {
                    table.listed.insert((dump.rank, group.name.clone()), group.ranks.clone());
                }
            }
        }
        let mut drafts: BTreeMap<GroupKey, GroupDraft> = BTreeMap::new();
        for dump in dumps {
            // A group that is listed and was never called is still worth its row.
            for group in dump.groups.iter().filter(|group| !group.name.is_empty()) {
                let key = table.key(dump.rank, &group.name, &group.desc);
                let draft = drafts.entry(key).or_default();
                if draft.desc.is_empty() {
                    draft.desc.clone_from(&group.desc);
                }
            }
            // A dump has thousands of entries and a few groups.
            let mut own: BTreeMap<EntryGroup<'_>, GroupDraft> = BTreeMap::new();
            for entry in &dump.entries {
                own.entry(EntryGroup::of(entry)).or_default().take(dump.rank, entry);
            }
            for (group, draft) in own {
                let key = table.key_of(dump.rank, group);
                if let Some(hint) = hints.get_mut(&dump.rank) {
                    hint.numbers.insert(group.pg_id, key.order.1);
                }
                drafts.entry(key).or_default().merge(draft);
            }
        }
        let world: Vec<GlobalRank> = (0..world_size).map(GlobalRank).collect();
        if drafts.first_key_value().is_none_or(|(key, _)| !key.is_default()) {
            let order = (false, 0, "0".to_owned());
            let key = GroupKey { order, listed: world.clone() };
            drafts
                .insert(key, GroupDraft { desc: "default_pg".to_owned(), ..GroupDraft::default() });
        }
        for (key, draft) in drafts {
            let ranks = if !key.listed.is_empty() {
                key.listed.clone()
            } else if key.is_default() {
                world.clone()
            } else {
                let stalled = draft.stalled();
                let number = (key.order.1 < u64::MAX).then_some(key.order.1);
                let unlisted = Unlisted { number, callers: &draft.callers, stalled };
                members(&unlisted, &hints)
            };
            let backend = draft.backend.unwrap_or(BackendName::Unknown);
            let id = GroupId(table.groups.len() as u32);
            let name = key.order.2.clone();
            // Groups without a member, or with one twice, cannot come this far.
            if let Ok(group) = ProcessGroup::new(name, backend, ranks) {
                let timeout_ms = draft.timeout_ms.unwrap_or(group.timeout_ms());
                table.groups.push(group.with_desc(draft.desc).with_timeout_ms(timeout_ms));
                table.ids.insert(key, id);
            }
        }
        table
    }

    fn key(&self, rank: GlobalRank, name: &str, desc: &str) -> GroupKey {
        let listed = self.listed.get(&(rank, name.to_owned())).cloned().unwrap_or_default();
        let other = !(desc == "default_pg" || (desc.is_empty() && name == "0"));
        let number = name.parse().unwrap_or(u64::MAX);
        GroupKey { order: (other, number, name.to_owned()), listed }
    }

    fn key_of(&self, rank: GlobalRank, group: EntryGroup<'_>) -> GroupKey {
        match group.name {
            Some(name) => self.key(rank, name, group.desc),
            // Before torch 2.4 a group is known by each rank's own number only.
            None => self.key(rank, &group.pg_id.to_string(), ""),
        }
    }

    /// The groups of a dump's entries, in order.
    fn ids(&self, dump: &Dump) -> Vec<GroupId> {
        let mut known: BTreeMap<EntryGroup<'_>, GroupId> = BTreeMap::new();
        let id = |entry| {
            let group = EntryGroup::of(entry);
            *known.entry(group).or_insert_with(|| {
                let found = self.ids.get(&self.key_of(dump.rank, group));
                found.copied().unwrap_or(GroupId::WORLD)
            })
        };
        dump.entries.iter().map(id).collect()
    }
}

/// A group as an entry names it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct EntryGroup<'a> {
    pg_id: u64,
    name: Option<&'a str>,
    desc: &'a str,
}

impl<'a> EntryGroup<'a> {
    fn of(entry: &'a Entry) -> EntryGroup<'a> {
        let (name, desc) = (entry.group.as_deref(), entry.group_desc.as_ref());
        EntryGroup { pg_id: entry.pg_id, name, desc }
    }
}

impl GroupKey {
    fn is_default(&self) -> bool {
        !self.order.0
    }
}

impl GroupDraft {
    fn take(&mut self, rank: GlobalRank, entry: &Entry) {
        let CallName { backend, .. } = call_name(&entry.profiling_name);
        if self.desc.is_empty() {
            self.desc = entry.group_desc.to_string();
        }
        self.callers.insert(rank);
        self.timeout_ms = self.timeout_ms.max(entry.timeout_ms);
        if backend != BackendName::Unknown {
            self.backend = self.backend.max(Some(backend));
        }
        if let (Some(seq), false) = (entry.collective_seq, entry.p2p) {
            if entry.completed {
                self.ended.insert(seq);
            } else {
                self.pending.entry(seq).or_default().insert(rank);
            }
        }
    }

    fn merge(&mut self, other: GroupDraft) {
        if self.desc.is_empty() {
            self.desc = other.desc;
        }
        self.callers.extend(other.callers);
        self.timeout_ms = self.timeout_ms.max(other.timeout_ms);
        self.backend = self.backend.max(other.backend);
        self.ended.extend(other.ended);
        for (seq, ranks) in other.pending {
            self.pending.entry(seq).or_default().extend(ranks);
        }
    }

    /// True if all who called the group wait in one call: somebody unseen must be missing.
    fn stalled(&self) -> bool {
        let all_wait = |(seq, ranks): (&u64, &BTreeSet<GlobalRank>)| {
            !self.ended.contains(seq) && ranks.len() == self.callers.len()
        };
        self.pending.iter().any(all_wait)
    }
}

/// When the last recorded member made each collective: it cannot have ended before.
fn all_there(dumps: &[Dump], table: &GroupTable) -> BTreeMap<(GroupId, u64), u64> {
    let mut latest = BTreeMap::new();
    for dump in dumps {
        for (entry, group) in dump.entries.iter().zip(table.ids(dump)) {
            if let (Some(seq), false) = (entry.collective_seq, entry.p2p) {
                let at = latest.entry((group, seq)).or_insert(0);
                *at = entry.created_ns.max(*at);
            }
        }
    }
    latest
}

/// For the sends and receives of a batch (`batch_isend_irecv`), the entry of the whole batch.
///
/// NCCL's recorder gives them no events of their own, so that they stay `scheduled` for ever; the
/// `coalesced` entry behind them, of the same number, says how far the batch got
/// (`ProcessGroupNCCL::pointToPoint`, `endCoalescing`).
fn batches<'a>(entries: &[(&'a Entry, GroupId)]) -> Vec<Option<&'a Entry>> {
    let mut last: BTreeMap<GroupId, &'a Entry> = BTreeMap::new();
    let mut found = vec![None; entries.len()];
    for ((entry, group), found) in entries.iter().zip(&mut found).rev() {
        if !entry.p2p {
            continue;
        }
        if call_name(&entry.profiling_name).op == "coalesced" {
            last.insert(*group, entry);
        } else if !entry.completed {
            let batch = last.get(group).copied();
            *found = batch.filter(|batch| batch.p2p_seq == entry.p2p_seq);
        }
    }
    found
}

struct Merger {
    table: GroupTable,
    all_there_ns: BTreeMap<(GroupId, u64), u64>,
    epoch_ns: u64,
    stack_budget: usize,
    events: Vec<Event>,
}

impl Merger {
    fn take(&mut self, dump: &Dump) {
        let groups = self.table.ids(dump);
        let mut entries: Vec<(&Entry, GroupId)> = dump.entries.iter().zip(groups).collect();
        if entries.iter().all(|(entry, _)| entry.record_id.is_some()) {
            entries.sort_by_key(|(entry, _)| entry.record_id);
        }
        let from = self.events.len();
        let mut created_ns = 0;
        let batches = batches(&entries);
        for (work, ((entry, group), batch)) in (0u32..).zip(entries.iter().copied().zip(batches)) {
            // Of a batch only the batch as a whole is watched.
            let seen = batch.unwrap_or(entry);
            // The order of the calls is certain, the clock is not: it may have been set back.
            created_ns = entry.created_ns.max(created_ns);
            let call = self.call(entry, group);
            let ended_ns = seen.completed_ns.or_else(|| {
                seen.completed.then(|| {
                    let key = call.seq.filter(|_| !call.p2p).map(|seq| (call.group, seq));
                    key.and_then(|key| self.all_there_ns.get(&key).copied()).unwrap_or(0)
                })
            });
            self.push(dump.rank, created_ns, What::Scheduled { work, call: Box::new(call) });
            let mut started_ns = created_ns;
            if seen.started || seen.started_ns.is_some() {
                started_ns = seen.started_ns.unwrap_or(0).max(created_ns);
                self.push(dump.rank, started_ns, What::Started { work });
            }
            if let Some(ended_ns) = ended_ns {
                self.push(dump.rank, ended_ns.max(started_ns), What::Completed { work });
            }
        }
        if let Some(own) = self.events.get_mut(from..) {
            // Stable: what happened to a call at one moment stays in order.
            own.sort_by_key(|event| event.time_ps);
        }
    }

    fn push(&mut self, rank: GlobalRank, time_ns: u64, what: What) {
        let time_ps = time_ns.saturating_sub(self.epoch_ns).saturating_mul(1000);
        self.events.push(Event { time_ps, rank, what });
    }

    fn call(&mut self, entry: &Entry, group: GroupId) -> Call {
        let name = call_name(&entry.profiling_name);
        let stack_bytes = entry.stack.iter().fold(0usize, |sum, frame| {
            sum + frame.function.len() + frame.file.len() + size_of_val(frame)
        });
        let stack = match self.stack_budget.checked_sub(stack_bytes) {
            Some(rest) => {
                self.stack_budget = rest;
                entry.stack.to_vec()
            }
            None => Vec::new(),
        };
        Call {
            op: name.op.to_owned(),
            group,
            seq: if entry.p2p { entry.p2p_seq } else { entry.collective_seq },
            p2p: entry.p2p,
            peer: name.peer,
            tag: 0,
            inputs: entry.inputs.clone(),
            outputs: entry.outputs.clone(),
            reduce_op: None,
            root: None,
            plan_op: None,
            stack,
            record_id: entry.record_id,
        }
    }
}
