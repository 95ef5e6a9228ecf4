//! Merges the dumps of a job's ranks into one log of calls.
//!
//! The ranks' wall clocks are taken as they are.

use super::groups::GroupTable;
use super::names::call_name;
use super::retired;
use super::statuses::dropped_ended;
use super::{Dump, Entry, FlightRecorderError, Site};
use crate::job_calls::Merged;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::rank::{GlobalRank, GroupRank, MAX_WORLD_SIZE};
use lockstep_core::trace::{
    CallLog, CallRecord, CallState, Called, Origin, Outcome, RankLog, RankRecording, Trace,
    TraceHeader,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Merges the dumps of a job's ranks into one trace: [`merge`], as events.
///
/// # Errors
/// Those of [`merge`].
pub fn trace_of(dumps: Vec<Dump>) -> Result<Trace, FlightRecorderError> {
    Ok(merge(dumps)?.trace())
}

/// Merges the dumps of a job's ranks. Similar calls share their common part, over all ranks.
///
/// # Errors
/// There are no dumps, or two are of the same rank.
pub fn merge(mut dumps: Vec<Dump>) -> Result<Merged, FlightRecorderError> {
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
    let mut world_size = world_size(&dumps);
    let mut table = GroupTable::of(&dumps, world_size);
    if !table.deserted.is_empty() && dumps.len() == world_size as usize && hangs(&dumps) {
        // There is a rank above all that left a dump.
        world_size += 1;
        table = GroupTable::of(&dumps, world_size);
    }
    let entries = dumps.iter().flat_map(|dump| &dump.entries);
    let created = entries.map(|entry| entry.created_ns).filter(|ns| *ns > 0);
    let epoch_ns = created.min().unwrap_or(0);
    let header = TraceHeader {
        origin: Origin::Recorded {
            by: recorder(&dumps),
            files: dumps.iter().map(|dump| dump.file_name.clone()).collect(),
        },
        world_size,
        groups: table.groups.clone(),
        plan: None,
        epoch_ns,
    };
    let mut log = CallLog {
        world_size,
        groups: table.groups.clone(),
        ranks: Vec::new(),
        outcome: Outcome::Unknown,
        recorded: true,
        simulated: false,
        device_times: false,
        ended_ps: None,
        plan: None,
    };
    log.ranks.resize_with(world_size as usize, || None);
    let mut merger = Merger {
        all_there_ns: all_there(&dumps, &table),
        table,
        epoch_ns,
        known: BTreeSet::new(),
        end_ps: 0,
    };
    let mut last_uncounted = Vec::new();
    // One dump after the other is let go: they and the log are never there as a whole together.
    for dump in dumps {
        let rank = dump.rank;
        let uncounted = merger.retired_uncounted(&dump);
        let own = merger.take(dump);
        last_uncounted.extend(uncounted.into_iter().map(|(group, seq)| (rank, group, seq)));
        if let Some(slot) = log.ranks.get_mut(rank.index()) {
            *slot = Some(own);
        }
    }
    let end_ps = merger.end_ps;
    retired::compare(&mut log, &merger.table.ends_unseen);
    retired::take_back_without_dump(&mut log, &last_uncounted);
    Ok(Merged { header, log, end_ps })
}

/// True if a call is pending.
fn hangs(dumps: &[Dump]) -> bool {
    dumps.iter().flat_map(|dump| &dump.entries).any(|entry| !entry.completed)
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
        for site in dump.sites.iter().filter(|site| is_default(site)) {
            size = size.max(members_told(site));
        }
    }
    size.min(MAX_WORLD_SIZE)
}

/// The number of members that a call shows: an all_gather's result holds one input a member.
fn members_told(site: &Site) -> u32 {
    let name = call_name(&site.profiling_name);
    let sides = name.own.into_iter().chain(name.peer).map(|rank| rank.0.saturating_add(1));
    let numel = |tensors: &[lockstep_core::trace::TensorShape]| {
        tensors.iter().fold(0u64, |sum, tensor| sum.saturating_add(tensor.numel()))
    };
    let (inputs, outputs) = (numel(&site.inputs), numel(&site.outputs));
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

fn is_default(site: &Site) -> bool {
    site.group_desc.as_ref() == "default_pg" || (site.group.is_none() && site.pg_id == 0)
}

/// When the last recorded member made each collective of which it is not known when it ended: not
/// before that. Ascending by group and number.
fn all_there(dumps: &[Dump], table: &GroupTable) -> Vec<((GroupId, u64), u64)> {
    let untimed = |dump: &Dump| {
        dump.entries.iter().any(|entry| entry.completed && entry.completed_ns.is_none())
    };
    if !dumps.iter().any(untimed) {
        return Vec::new();
    }
    let mut latest = Vec::new();
    for dump in dumps {
        let ids = table.ids(dump);
        for entry in &dump.entries {
            let site = entry.site as usize;
            if let (Some(seq), Some(group), Some(site)) =
                (entry.collective_seq, ids.get(site), dump.sites.get(site))
                && !site.p2p
            {
                latest.push(((*group, seq), entry.created_ns));
            }
        }
    }
    // The latest first, so that it is the one that stays.
    latest.sort_unstable_by_key(|(key, ns)| (*key, std::cmp::Reverse(*ns)));
    latest.dedup_by_key(|(key, _)| *key);
    latest
}

/// For the sends and receives of a batch (`batch_isend_irecv`), the entry of the whole batch.
///
/// NCCL's recorder gives them no events of their own, so that they stay `scheduled` for ever; the
/// `coalesced` entry behind them, of the same number, says how far the batch got
/// (`ProcessGroupNCCL::pointToPoint`, `endCoalescing`).
fn batches<'d>(dump: &'d Dump, ids: &[GroupId]) -> BTreeMap<usize, &'d Entry> {
    let mut last: BTreeMap<GroupId, &Entry> = BTreeMap::new();
    let mut found = BTreeMap::new();
    for (at, entry) in dump.entries.iter().enumerate().rev() {
        let site = entry.site as usize;
        let (Some(group), Some(site)) = (ids.get(site), dump.sites.get(site)) else { continue };
        if !site.p2p {
            continue;
        }
        if call_name(&site.profiling_name).op == "coalesced" {
            last.insert(*group, entry);
        } else if !entry.completed
            && let Some(batch) = last.get(group).filter(|batch| batch.p2p_seq == entry.p2p_seq)
        {
            found.insert(at, *batch);
        }
    }
    found
}

struct Merger {
    table: GroupTable,
    all_there_ns: Vec<((GroupId, u64), u64)>,
    epoch_ns: u64,
    /// The common parts of calls, over all ranks.
    known: BTreeSet<Arc<Called>>,
    end_ps: u64,
}

impl Merger {
    fn take(&mut self, mut dump: Dump) -> RankLog {
        if dump.entries.iter().all(|entry| entry.record_id.is_some()) {
            dump.entries.sort_by_key(|entry| entry.record_id);
        }
        let ids = self.table.ids(&dump);
        let called: Vec<Arc<Called>> = dump
            .sites
            .iter()
            .zip(&ids)
            .map(|(site, group)| {
                let mut called = called(site, *group);
                if matches!(called.op.as_str(), "send" | "recv") && called.peer.is_none() {
                    called.peer = self.only_peer(dump.rank, *group);
                }
                self.shared(called)
            })
            .collect();
        let batches = batches(&dump, &ids);
        let mut calls = Vec::with_capacity(dump.entries.len());
        let mut created_ns = 0;
        for (at, entry) in dump.entries.iter().enumerate() {
            let Some(call) = called.get(entry.site as usize) else { continue };
            // Only a batch as a whole is watched.
            let seen = batches.get(&at).copied().unwrap_or(entry);
            // The order of the calls is certain, the clock is not: it may have been set back.
            created_ns = entry.created_ns.max(created_ns);
            let seq = if call.p2p { entry.p2p_seq } else { entry.collective_seq };
            let ended_ns = seen.completed_ns.or_else(|| {
                seen.completed.then(|| {
                    let key = seq.filter(|_| !call.p2p).map(|seq| (call.group, seq));
                    let known = |key| self.all_there_ns.binary_search_by_key(&key, |(key, _)| *key);
                    let found = key.and_then(|key| self.all_there_ns.get(known(key).ok()?));
                    found.map_or(0, |(_, ns)| *ns)
                })
            });
            let started = seen.started || seen.started_ns.is_some();
            let started_ns = seen.started_ns.unwrap_or(0).max(created_ns);
            let from_ns = if started { started_ns } else { created_ns };
            calls.push(CallRecord {
                work: calls.len() as u32,
                seq,
                record_id: entry.record_id,
                plan_op: None,
                state: match ended_ns {
                    Some(_) => CallState::Completed,
                    None if started => CallState::Started,
                    None => CallState::Scheduled,
                },
                scheduled_ps: self.time_ps(created_ns),
                started_ps: started.then(|| self.time_ps(started_ns)),
                completed_ps: ended_ns.map(|ended_ns| self.time_ps(ended_ns.max(from_ns))),
                call: Arc::clone(call),
            });
        }
        let recording = RankRecording {
            enqueued: self.table.enqueued(&dump, &ids),
            unrecorded: self.table.unrecorded(&dump, &ids),
            unended: self.table.unended(&dump, &ids),
            group_without_calls: self.table.group_without_calls(&dump, &ids),
            dropped_ended: dropped_ended(&dump),
            issued_only: ids.iter().any(|id| self.table.ends_unseen.contains(id)),
            ..RankRecording::default()
        };
        RankLog { calls, recording: recording.into(), ..RankLog::default() }
    }

    /// The other member of one of NCCL's groups of two: torch's hook records sends and receives without their
    /// peers, and NCCL has no receive from any source.
    fn only_peer(&self, rank: GlobalRank, group: GroupId) -> Option<GroupRank> {
        let group = self.table.groups.get(group.index())?;
        let own = group.group_rank(rank).filter(|own| own.0 < 2)?;
        (group.size() == 2 && group.backend() == BackendName::Nccl).then_some(GroupRank(1 - own.0))
    }

    fn retired_uncounted(&self, dump: &Dump) -> BTreeMap<GroupId, u64> {
        self.table.retired_uncounted(dump, &self.table.ids(dump))
    }

    fn time_ps(&mut self, time_ns: u64) -> u64 {
        let time_ps = time_ns.saturating_sub(self.epoch_ns).saturating_mul(1000);
        self.end_ps = self.end_ps.max(time_ps);
        time_ps
    }

    fn shared(&mut self, called: Called) -> Arc<Called> {
        if let Some(known) = self.known.get(&called) {
            return Arc::clone(known);
        }
        let called = Arc::new(called);
        self.known.insert(Arc::clone(&called));
        called
    }
}

fn called(site: &Site, group: GroupId) -> Called {
    let name = call_name(&site.profiling_name);
    Called {
        op: name.op.to_owned(),
        group,
        p2p: site.p2p,
        peer: name.peer,
        tag: 0,
        inputs: site.inputs.clone(),
        outputs: site.outputs.clone(),
        reduce_op: None,
        root: None,
        stack: Arc::clone(&site.stack),
    }
}
