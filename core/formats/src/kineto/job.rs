//! From the profiles of a job's ranks to its calls.

use super::Profile;
use super::call::{Call, Group};
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{
    CallLog, CallRecord, CallState, Called, Origin, Outcome, RankLog, TraceHeader,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The calls that the profiles of a job tell of.
#[derive(Clone, Debug, PartialEq)]
pub struct Calls {
    /// What a trace of them is about.
    pub header: TraceHeader,
    /// The calls.
    pub log: CallLog,
    /// When the last thing happened, in picoseconds after the first.
    pub end_ps: u64,
    /// What the reader should know.
    pub notes: Vec<String>,
}

/// The calls of a job's profiles; `None` if there are none. The order of the files does not matter.
pub fn calls_of(profiles: &[Profile]) -> Option<Calls> {
    let mut notes = Vec::new();
    let profiles = one_a_rank(profiles, &mut notes);
    let world_size = profiles.iter().map(|profile| profile.world_size).max()?;
    let (groups, ids) = groups(&profiles, world_size);
    let unnamed = unnamed(&profiles, groups.len() > 1, &mut notes);
    let times = profiles.iter().flat_map(|profile| &profile.calls);
    let epoch_ns = times.map(|call| call.made_ns).min().unwrap_or(0);
    let mut log = CallLog {
        world_size,
        groups: groups.clone(),
        ranks: Vec::new(),
        outcome: Outcome::Unknown,
        recorded: true,
        simulated: false,
        device_times: profiles.iter().all(|profile| profile.on_device),
        ended_ps: None,
        plan: None,
    };
    log.ranks.resize_with(world_size as usize, || None);
    let mut known = BTreeSet::new();
    for profile in &profiles {
        let own = rank_log(profile, &ids, unnamed, epoch_ns, &mut known);
        if let Some(slot) = log.ranks.get_mut(profile.rank.index()) {
            *slot = Some(own);
        }
    }
    finish_windows(&mut log);
    let missing = log.ranks.iter().filter(|rank| rank.is_none()).count();
    if missing > 0 {
        notes.push(format!(
            "{} of the job's {world_size} ranks have a profile; a profiler writes only where it is \
             asked to, so that the others say nothing.",
            profiles.len()
        ));
    }
    if profiles.iter().any(|profile| profile.backend == BackendName::Nccl && !profile.on_device) {
        notes.push(
            "The profiles hold nothing of the devices: the calls' times are those of the processes. \
             Profile ProfilerActivity.CUDA as well."
                .to_owned(),
        );
    }
    let ends = log.logs().flat_map(|(_, log)| &log.calls);
    let end_ps = ends.map(|it| it.completed_ps.unwrap_or(it.scheduled_ps)).max().unwrap_or(0);
    let header = TraceHeader {
        origin: Origin::Recorded {
            by: "PyTorch's profiler".to_owned(),
            files: profiles.iter().map(|profile| profile.file_name.clone()).collect(),
        },
        world_size,
        groups,
        plan: None,
        epoch_ns,
    };
    Some(Calls { header, log, end_ps, notes })
}

/// The profiles by rank; of several of one rank the one with the most calls.
fn one_a_rank<'a>(profiles: &'a [Profile], notes: &mut Vec<String>) -> Vec<&'a Profile> {
    let mut sorted: Vec<&Profile> = profiles.iter().collect();
    sorted.sort_by(|a, b| {
        let order = |it: &Profile| (it.rank, std::cmp::Reverse(it.calls.len()));
        order(a).cmp(&order(b)).then_with(|| a.file_name.cmp(&b.file_name))
    });
    let mut kept: Vec<&Profile> = Vec::with_capacity(sorted.len());
    for profile in sorted {
        match kept.last() {
            Some(last) if last.rank == profile.rank => notes.push(format!(
                "{} and {} are both profiles of rank {}: the one with more calls, {}, is used.",
                last.file_name, profile.file_name, profile.rank, last.file_name
            )),
            _ => kept.push(profile),
        }
    }
    kept
}

fn groups(
    profiles: &[&Profile],
    world_size: u32,
) -> (Vec<ProcessGroup>, BTreeMap<String, GroupId>) {
    let mut seen: BTreeMap<&str, (&Group, BTreeSet<GlobalRank>)> = BTreeMap::new();
    for profile in profiles {
        for group in &profile.groups {
            let entry = seen.entry(&group.name).or_insert_with(|| (group, BTreeSet::new()));
            if entry.0.ranks.len() < group.ranks.len() {
                entry.0 = group;
            }
            entry.1.insert(profile.rank);
        }
    }
    let backend = profiles.first().map_or(BackendName::Unknown, |profile| profile.backend);
    let is_world = |group: &Group| group.desc == "default_pg" || group.name == "0";
    let mut groups: Vec<ProcessGroup> =
        ProcessGroup::world(world_size, backend).into_iter().collect();
    let mut ids = BTreeMap::new();
    for (name, (group, users)) in seen {
        if is_world(group) {
            ids.insert(name.to_owned(), GroupId::WORLD);
            continue;
        }
        let ranks = match group.ranks.is_empty() {
            true => users.into_iter().collect(),
            false => group.ranks.iter().copied().filter(|rank| rank.0 < world_size).collect(),
        };
        if let Ok(made) = ProcessGroup::new(name, backend, ranks) {
            ids.insert(name.to_owned(), GroupId(groups.len() as u32));
            groups.push(made.with_desc(group.desc.as_str()));
        }
    }
    (groups, ids)
}

/// What calls without a group are: gloo's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unnamed {
    /// Calls of the default group, in order.
    World,
    /// Of which group is not known: they are shown, and not held against each other.
    Unknown,
}

fn unnamed(profiles: &[&Profile], several: bool, notes: &mut Vec<String>) -> Unnamed {
    let unnamed = |profile: &&Profile| -> Vec<(String, Vec<Vec<u64>>)> {
        let calls = profile.calls.iter().filter(|call| call.group.is_none() && !is_p2p(&call.op));
        let sizes = |call: &Call| call.inputs.iter().map(|it| it.shape.clone()).collect();
        calls.map(|call| (call.op.clone(), sizes(call))).collect()
    };
    let mut lists = profiles.iter().map(unnamed);
    let first = lists.next().unwrap_or_default();
    if !several || lists.all(|list| list == first) {
        return Unnamed::World;
    }
    notes.push(
        "PyTorch's profiler does not say of which group gloo's calls are, the job has several \
         groups, and its ranks call different things: the calls are shown, and not held against each \
         other. Add the Flight Recorder dumps, which name the groups."
            .to_owned(),
    );
    Unnamed::Unknown
}

fn is_p2p(op: &str) -> bool {
    matches!(op, "send" | "recv")
}

fn rank_log(
    profile: &Profile,
    ids: &BTreeMap<String, GroupId>,
    unnamed: Unnamed,
    epoch_ns: u64,
    known: &mut BTreeSet<Arc<Called>>,
) -> RankLog {
    let mut log = RankLog::default();
    let mut seqs: BTreeMap<(GroupId, bool), u64> = BTreeMap::new();
    let ps = |ns: u64| ns.saturating_sub(epoch_ns).saturating_mul(1000);
    // Calls of a coalesced batch share what they are recorded with: one stands for them.
    for call in &profile.calls {
        let group = match &call.group {
            Some(name) => ids.get(name).copied().unwrap_or(GroupId::WORLD),
            None => GroupId::WORLD,
        };
        let p2p = is_p2p(&call.op);
        let next = seqs.entry((group, p2p)).or_default();
        *next = call.seq.unwrap_or(*next + 1);
        let hidden = call.group.is_none() && unnamed == Unnamed::Unknown;
        let seq = (!hidden).then_some(*next);
        let called = Called {
            op: call.op.clone(),
            group,
            p2p,
            peer: call.peer,
            tag: call.tag,
            inputs: call.inputs.clone(),
            outputs: call.outputs.clone(),
            reduce_op: None,
            root: call.root,
            stack: Arc::from([]),
        };
        let called = match known.get(&called) {
            Some(known) => Arc::clone(known),
            None => {
                let called = Arc::new(called);
                known.insert(Arc::clone(&called));
                called
            }
        };
        // Without a device's records nothing tells when a call ended: that it was made is all.
        let ran = call.ran_ns.or((!profile.on_device).then_some((call.made_ns, call.made_ns)));
        let made_ps = ps(call.made_ns);
        let started_ps = ran.map(|(from, _)| ps(from).max(made_ps));
        log.calls.push(CallRecord {
            work: log.calls.len() as u32,
            state: if ran.is_some() { CallState::Completed } else { CallState::Scheduled },
            seq,
            record_id: None,
            plan_op: None,
            scheduled_ps: made_ps,
            started_ps,
            completed_ps: ran.map(|(_, to)| ps(to).max(started_ps.unwrap_or(made_ps))),
            call: called,
        });
    }
    log
}

/// Calls whose end was not recorded because the profile was over: where every profiled member made
/// the call, or one is seen to have ended it, or made a later one, it has ended.
fn finish_windows(log: &mut CallLog) {
    let mut rows: BTreeMap<(GroupId, u64), (usize, bool)> = BTreeMap::new();
    let mut last: BTreeMap<GroupId, u64> = BTreeMap::new();
    for (_, rank) in log.logs() {
        for record in rank.calls.iter().filter(|record| !record.call.p2p) {
            let Some(seq) = record.seq else { continue };
            let group = record.call.group;
            let row = rows.entry((group, seq)).or_default();
            row.0 += 1;
            row.1 |= record.state == CallState::Completed;
            if row.1 {
                let last = last.entry(group).or_default();
                *last = seq.max(*last);
            }
        }
    }
    let profiled = |group: GroupId| -> usize {
        let members = log.groups.get(group.index()).map(ProcessGroup::ranks).unwrap_or_default();
        members
            .iter()
            .filter(|rank| log.ranks.get(rank.index()).is_some_and(Option::is_some))
            .count()
    };
    let sizes: Vec<usize> = (0..log.groups.len() as u32).map(|at| profiled(GroupId(at))).collect();
    for rank in log.ranks.iter_mut().flatten() {
        for record in rank.calls.iter_mut().filter(|it| it.state != CallState::Completed) {
            let group = record.call.group;
            let ended = record.seq.is_none_or(|seq| {
                let (made, ended) = rows.get(&(group, seq)).copied().unwrap_or_default();
                let all = sizes.get(group.index()).is_some_and(|size| made >= *size);
                ended || all || last.get(&group).is_some_and(|last| *last > seq)
            });
            if ended || record.call.p2p {
                record.state = CallState::Completed;
                record.completed_ps = Some(record.started_ps.unwrap_or(record.scheduled_ps));
            }
        }
    }
}
