//! From the files of NCCL's log to the calls of a job: which process is which rank, which
//! communicators of the processes are one, and which calls belong together.

use super::line::{Call, From, Verb};
use super::{Comm, NcclLog, Process, ProcessId};
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::rank::MAX_WORLD_SIZE;
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::trace::rank_of_file_name;
use lockstep_core::trace::{
    CallLog, CallRecord, CallState, Called, Origin, Outcome, RankLog, TensorShape, TraceHeader,
};
use lockstep_core::words::rank_list;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The calls in NCCL's log.
#[derive(Clone, Debug, PartialEq)]
pub struct Calls {
    /// The header of their trace.
    pub header: TraceHeader,
    /// The calls. Their times are their order only: a nanosecond a call. A call is completed that
    /// every member has made, with the same arguments.
    pub log: CallLog,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

/// Splits of splits go no deeper than this.
const MAX_DEPTH: usize = 32;

/// Picoseconds between calls.
const STEP_PS: u64 = 1000;

/// The key that makes communicators of different processes one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Id { id: u64, nranks: u32 },
    Split { parent: Arc<Key>, count: u32, color: i64 },
    Nameless { nranks: u32, nth: usize },
}

/// A process that is a rank of the job.
struct Member<'a> {
    process: &'a Process,
    keys: Vec<Arc<Key>>,
    /// The index of the process's communicator with each key.
    by_key: BTreeMap<Arc<Key>, usize>,
    /// The calls of each communicator, by number.
    of_comm: Vec<Vec<u32>>,
    file: &'a str,
}

impl<'a> Member<'a> {
    fn of(process: &'a Process, file: &'a str) -> Member<'a> {
        let keys = keys(process);
        let by_key = keys.iter().cloned().zip(0..).collect();
        let mut of_comm = vec![Vec::new(); keys.len()];
        for (number, (comm, _)) in (0..).zip(&process.calls) {
            if let Some(calls) = of_comm.get_mut(*comm as usize) {
                calls.push(number);
            }
        }
        Member { process, keys, by_key, of_comm, file }
    }

    /// The calls of the communicator of a key; `None` if it is no member.
    fn calls(&self, key: &Arc<Key>) -> Option<Vec<&'a Call>> {
        let numbers = self.of_comm.get(*self.by_key.get(key)?)?;
        let call = |number: &u32| Some(&self.process.calls.get(*number as usize)?.1);
        Some(numbers.iter().filter_map(call).collect())
    }
}

/// The calls of a job's logs; `None` if there are none. The order of the files does not matter.
pub fn calls_of(logs: &[NcclLog]) -> Option<Calls> {
    let mut notes = Vec::new();
    if logs.iter().any(|log| log.cut) {
        notes.push(format!(
            "NCCL's log has more than {} calls: the rest was left out.",
            super::MAX_CALLS
        ));
    }
    let mut members = members(logs);
    let world = world(&members)?;
    let before = members.len();
    members.retain(|member| member.by_key.contains_key(&world));
    if members.len() < before {
        notes.push(format!(
            "{} of the {before} processes in NCCL's log are not in the largest communicator, and were \
             left out: are they of another run?",
            before - members.len()
        ));
    }
    let (ranks, guessed) = ranks(&members, &world);
    if guessed {
        notes.push(
            "NCCL's log does not say which rank a process is: they are numbered by host, device and \
             process. With NCCL_DEBUG_SUBSYS=INIT,COLL it says so."
                .to_owned(),
        );
    }
    let highest = ranks.iter().map(|rank| rank.0.saturating_add(1)).max().unwrap_or(1);
    let world_size = nranks(&world).max(highest).clamp(1, MAX_WORLD_SIZE);
    let (groups, ids) = groups(&members, &ranks, &world, world_size, &mut notes);
    let mut log = CallLog {
        world_size,
        groups,
        ranks: Vec::new(),
        outcome: Outcome::Unknown,
        recorded: true,
        simulated: false,
        device_times: false,
        ended_ps: None,
        plan: None,
    };
    log.ranks.resize_with(world_size as usize, || None);
    // Looked up from the members' side: groups times members is a square where each rank has groups of its own.
    let mut lists: BTreeMap<GroupId, Vec<Vec<&Call>>> = BTreeMap::new();
    for member in &members {
        for key in member.by_key.keys() {
            if let (Some(group), Some(calls)) = (ids.get(key), member.calls(key)) {
                lists.entry(*group).or_default().push(calls);
            }
        }
    }
    let rows: BTreeMap<GroupId, Rows> =
        lists.into_iter().map(|(group, lists)| (group, Rows::of(&lists))).collect();
    let mut known = BTreeSet::new();
    for (member, rank) in members.iter().zip(&ranks) {
        let own = rank_log(member, &ids, &rows, &mut known);
        if let Some(slot) = log.ranks.get_mut(rank.index()) {
            *slot = Some(own);
        }
    }
    notes.push(
        "NCCL's log has no clock and no end of a call: the timeline shows the order of the calls \
         alone, and a call counts as complete when every member has made it."
            .to_owned(),
    );
    let mut files: Vec<String> = logs.iter().map(|log| log.file_name.clone()).collect();
    files.sort();
    let header = TraceHeader {
        origin: Origin::Recorded { by: "NCCL_DEBUG=INFO".to_owned(), files },
        world_size,
        groups: log.groups.clone(),
        plan: None,
        epoch_ns: 0,
    };
    Some(Calls { header, log, notes })
}

/// Every process once: of several files about one, the one with the most information.
fn members(logs: &[NcclLog]) -> Vec<Member<'_>> {
    let mut found: BTreeMap<&ProcessId, (&Process, &str)> = BTreeMap::new();
    for log in logs {
        for (id, process) in &log.processes {
            let other = found.entry(id).or_insert((process, &log.file_name));
            let more = (process.calls.len(), process.comms.len());
            let same = (other.0.calls.len(), other.0.comms.len());
            if more > same || (more == same && log.file_name.as_str() < other.1) {
                *other = (process, &log.file_name);
            }
        }
    }
    found.into_values().map(|(process, file)| Member::of(process, file)).collect()
}

fn keys(process: &Process) -> Vec<Arc<Key>> {
    let mut keys: Vec<Arc<Key>> = Vec::with_capacity(process.comms.len());
    let mut nameless: BTreeMap<u32, usize> = BTreeMap::new();
    let mut splits: BTreeMap<usize, u32> = BTreeMap::new();
    let mut depths: Vec<usize> = Vec::with_capacity(process.comms.len());
    for comm in &process.comms {
        let nranks = comm.nranks;
        let depth = comm.parent.and_then(|at| depths.get(at)).map_or(0, |depth| depth + 1);
        depths.push(depth);
        let parent = comm.parent.filter(|_| depth <= MAX_DEPTH);
        let parent = parent.and_then(|at| Some((at, Arc::clone(keys.get(at)?))));
        let key = match (comm.init.map(|init| init.from), parent) {
            (Some(From::Id(id)), _) => Key::Id { id, nranks },
            (Some(From::Split { count, color, .. }), Some((at, parent))) => {
                let nth = splits.entry(at).or_default();
                *nth += 1;
                Key::Split { parent, count: count.unwrap_or(*nth), color }
            }
            _ => {
                let nth = nameless.entry(nranks).or_default();
                *nth += 1;
                Key::Nameless { nranks, nth: *nth }
            }
        };
        keys.push(Arc::new(key));
    }
    keys
}

fn nranks(key: &Key) -> u32 {
    match key {
        Key::Id { nranks, .. } | Key::Nameless { nranks, .. } => *nranks,
        Key::Split { parent, .. } => nranks(parent),
    }
}

/// The communicator of all: the largest, of several the one with the most processes, then calls,
/// then the one that was made first.
fn world(members: &[Member<'_>]) -> Option<Arc<Key>> {
    let mut found: BTreeMap<&Arc<Key>, (u32, usize, std::cmp::Reverse<usize>)> = BTreeMap::new();
    for member in members {
        for (at, (key, comm)) in member.keys.iter().zip(&member.process.comms).enumerate() {
            let entry = found.entry(key).or_insert((comm.nranks, 0, std::cmp::Reverse(at)));
            entry.1 += 1;
            entry.2 = entry.2.max(std::cmp::Reverse(at));
        }
    }
    // Of equals the first key, so that the order of the files does not matter.
    let best = found.iter().rev().max_by_key(|(_, score)| **score)?;
    Some(Arc::clone(best.0))
}

/// The global rank of every process, and whether it had to be guessed.
fn ranks(members: &[Member<'_>], world: &Arc<Key>) -> (Vec<GlobalRank>, bool) {
    let distinct = |ranks: Option<Vec<GlobalRank>>| {
        ranks.filter(|ranks| {
            ranks.iter().collect::<BTreeSet<_>>().len() == ranks.len()
                && ranks.iter().all(|rank| rank.0 < MAX_WORLD_SIZE)
        })
    };
    let by_world = members.iter().map(|member| {
        let at = *member.by_key.get(world)?;
        Some(GlobalRank(member.process.comms.get(at)?.init?.rank))
    });
    if let Some(ranks) = distinct(by_world.collect()) {
        return (ranks, false);
    }
    if let Some(ranks) = distinct(members.iter().map(|it| it.process.said_rank).collect()) {
        return (ranks, false);
    }
    let of_file = |member: &Member<'_>| {
        // `NCCL_DEBUG_FILE=nccl.%h.%p.log` ends in the process, which is no rank.
        let says_so = member.file.to_ascii_lowercase().contains("rank");
        rank_of_file_name(member.file).ok().filter(|_| says_so)
    };
    if let Some(ranks) = distinct(members.iter().map(of_file).collect()) {
        return (ranks, false);
    }
    // Members are sorted by host, device and process.
    ((0..members.len() as u32).map(GlobalRank).collect(), true)
}

type GroupIds = BTreeMap<Arc<Key>, GroupId>;

fn groups(
    members: &[Member<'_>],
    ranks: &[GlobalRank],
    world: &Arc<Key>,
    world_size: u32,
    notes: &mut Vec<String>,
) -> (Vec<ProcessGroup>, GroupIds) {
    /// A communicator's index in its process, and its members, each with its place there, if known.
    type Seen<'a> = (usize, &'a Comm, Vec<(Option<u32>, GlobalRank)>);
    let mut seen: BTreeMap<&Arc<Key>, Seen<'_>> = BTreeMap::new();
    for (member, rank) in members.iter().zip(ranks) {
        for (at, (key, comm)) in member.keys.iter().zip(&member.process.comms).enumerate() {
            let entry = seen.entry(key).or_insert_with(|| (at, comm, Vec::new()));
            entry.0 = entry.0.min(at);
            entry.2.push((comm.init.map(|init| init.rank), *rank));
        }
    }
    let mut found: Vec<_> = seen
        .into_iter()
        .map(|(key, (at, comm, mut list))| {
            list.sort_unstable();
            let list: Vec<GlobalRank> = list.into_iter().map(|(_, rank)| rank).collect();
            (key != world, at, list, Arc::clone(key), comm.nranks)
        })
        .collect();
    found.sort();
    let mut groups = Vec::new();
    let mut ids = GroupIds::new();
    let mut unclear = 0;
    for (not_world, _, mut list, key, nranks) in found {
        list.sort();
        list.dedup();
        if list.len() > nranks as usize {
            // Without INIT's lines the communicators of one size cannot be told apart.
            unclear += 1;
            continue;
        }
        let group = match not_world {
            false => ProcessGroup::world(world_size, BackendName::Nccl),
            true => {
                let name = groups.len().to_string();
                let desc = format!("communicator {name} (ranks {})", rank_list(&list));
                ProcessGroup::new(name, BackendName::Nccl, list).map(|group| group.with_desc(desc))
            }
        };
        if let Ok(group) = group {
            ids.insert(key, GroupId(groups.len() as u32));
            groups.push(group);
        }
    }
    if unclear > 0 {
        notes.push(format!(
            "{unclear} communicators of NCCL's log cannot be told apart and were left out: set \
             NCCL_DEBUG_SUBSYS=INIT,COLL, whose lines name them."
        ));
    }
    (groups, ids)
}

/// The collectives of one communicator, over all processes.
struct Rows {
    /// True if its own count numbers them, also where a log begins late.
    by_op_count: bool,
    /// Every member has made the calls up to this one, and with the same arguments.
    done: u64,
}

impl Rows {
    /// Lines up the calls of the members, one list a member.
    fn of(lists: &[Vec<&Call>]) -> Rows {
        let one_by_one = |calls: &Vec<&Call>| {
            calls.iter().all(|call| !call.what.is_p2p())
                && calls.windows(2).all(|pair| match pair {
                    [a, b] => a.op_count.checked_add(1) == Some(b.op_count),
                    _ => true,
                })
        };
        let by_op_count = lists.iter().all(one_by_one);
        let mut first: BTreeMap<u64, &Call> = BTreeMap::new();
        let mut done = u64::MAX;
        for list in lists {
            let mut last = 0;
            for (seq, call) in numbered(list.iter().copied(), by_op_count) {
                let Some(seq) = seq else { continue };
                last = seq;
                let other = first.entry(seq).or_insert(call);
                if !alike(other, call) {
                    done = done.min(seq.saturating_sub(1));
                }
            }
            done = done.min(last);
        }
        Rows { by_op_count, done }
    }
}

fn alike(a: &Call, b: &Call) -> bool {
    let of = |call: &Call| (call.what, call.count, call.dtype, call.reduce_op(), call.root());
    of(a) == of(b)
}

/// The calls of one communicator by one process, with the numbers of the collectives.
fn numbered<'a>(
    calls: impl Iterator<Item = &'a Call>,
    by_op_count: bool,
) -> impl Iterator<Item = (Option<u64>, &'a Call)> {
    calls.scan(0u64, move |seq, call| {
        if call.what.is_p2p() {
            return Some((None, call));
        }
        *seq = if by_op_count { call.op_count.saturating_add(1) } else { *seq + 1 };
        Some((Some(*seq), call))
    })
}

fn rank_log(
    member: &Member<'_>,
    ids: &GroupIds,
    rows: &BTreeMap<GroupId, Rows>,
    known: &mut BTreeSet<Arc<Called>>,
) -> RankLog {
    let mut log = RankLog::default();
    let mut seqs: BTreeMap<u32, u64> = BTreeMap::new();
    let groups: Vec<Option<(GroupId, &Rows)>> = member
        .keys
        .iter()
        .map(|key| ids.get(key).and_then(|group| Some((*group, rows.get(group)?))))
        .collect();
    for (comm, call) in &member.process.calls {
        let Some((group, rows)) = groups.get(*comm as usize).copied().flatten() else { continue };
        let seq = (!call.what.is_p2p()).then(|| {
            let seq = seqs.entry(*comm).or_default();
            *seq = if rows.by_op_count { call.op_count.saturating_add(1) } else { *seq + 1 };
            *seq
        });
        let called = called(call, group);
        let called = match known.get(&called) {
            Some(known) => Arc::clone(known),
            None => {
                let called = Arc::new(called);
                known.insert(Arc::clone(&called));
                called
            }
        };
        // It is unknown if a send met its receive.
        let completed = seq.is_none_or(|seq| seq <= rows.done);
        let work = log.calls.len() as u32;
        let at_ps = u64::from(work) * STEP_PS;
        log.calls.push(CallRecord {
            work,
            state: if completed { CallState::Completed } else { CallState::Scheduled },
            seq,
            record_id: None,
            plan_op: None,
            scheduled_ps: at_ps,
            started_ps: None,
            completed_ps: completed.then_some(at_ps + STEP_PS / 2),
            call: called,
        });
    }
    log
}

fn called(call: &Call, group: GroupId) -> Called {
    let tensor = |numel: u64| vec![TensorShape { shape: vec![numel], dtype: call.dtype }];
    let all = call.count.saturating_mul(u64::from(call.nranks));
    let (inputs, outputs) = match call.what {
        Verb::AllReduce | Verb::Broadcast | Verb::Reduce => {
            (tensor(call.count), tensor(call.count))
        }
        Verb::AllGather | Verb::Gather => (tensor(call.count), tensor(all)),
        Verb::ReduceScatter | Verb::Scatter => (tensor(all), tensor(call.count)),
        Verb::AllToAll => (tensor(all), tensor(all)),
        Verb::Send => (tensor(call.count), Vec::new()),
        Verb::Recv => (Vec::new(), tensor(call.count)),
    };
    Called {
        op: call.what.op().to_owned(),
        group,
        p2p: call.what.is_p2p(),
        peer: call.what.is_p2p().then_some(GroupRank(call.root)),
        tag: 0,
        inputs,
        outputs,
        reduce_op: call.reduce_op(),
        root: call.root().map(GroupRank),
        stack: Arc::from([]),
    }
}
