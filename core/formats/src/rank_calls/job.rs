//! From the files of a job's ranks to its calls.

use super::RankCalls;
use super::call::{Call, Group, MAX_COMPUTED, MarkedStep, is_p2p};
use super::numbers::calls_before;
use super::unnamed::Unnamed;
use super::untimed::take_times_of_others;
use crate::problem::{FileProblem, ProblemKind};
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{
    CallLog, CallRecord, CallState, Called, Origin, Outcome, RankLog, RecordedComputation,
    RecordedStep, TensorShape, TraceHeader,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The words for the files of a format, in notes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    /// The writer of the files: `PyTorch's profiler`.
    pub(crate) by: &'static str,
    /// One of them: `a profile`.
    pub(crate) file: &'static str,
    /// Several: `profiles`.
    pub(crate) files: &'static str,
    /// The reason why ranks may have none, as the second half of a sentence.
    pub(crate) missing: &'static str,
}

/// The calls in the files of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Calls {
    /// The header of their trace.
    pub header: TraceHeader,
    /// The calls.
    pub log: CallLog,
    /// When the last thing happened, in picoseconds after the first.
    pub end_ps: u64,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// Flaws of files that are used.
    pub problems: Vec<FileProblem>,
}

/// The calls of a job's files; `None` if there are none. The order of the files does not matter.
pub(crate) fn join(files: &[RankCalls], words: Words) -> Option<Calls> {
    let mut notes = Vec::new();
    let mut problems: Vec<FileProblem> = Vec::new();
    let files = one_a_rank(files, words, &mut problems);
    for file in &files {
        let flaws = file.flaws.notes(&file.file_name, file.calls.len());
        problems.extend(flaws.into_iter().map(|why| FileProblem::flaw(&file.file_name, why)));
    }
    let world_size = files.iter().map(|file| file.world_size).max()?;
    let (groups, ids) = groups(&files, world_size);
    let unnamed = Unnamed::of(&files, &groups);
    notes.extend(unnamed.note(words.by));
    let all_untimed = files.iter().all(|file| file.untimed);
    let timed = || files.iter().filter(move |file| all_untimed || !file.untimed);
    let made = timed().flat_map(|file| &file.calls).map(|call| call.made_ns);
    let computed = files.iter().filter_map(|file| file.computed.first()).map(|one| one.from_ns);
    let begun = files.iter().filter_map(|file| file.steps.first()).map(|step| step.in_process.0);
    let epoch_ns = made.chain(computed).chain(begun).min().unwrap_or(0);
    let mut log = CallLog {
        world_size,
        groups: groups.clone(),
        ranks: Vec::new(),
        outcome: Outcome::Unknown,
        recorded: true,
        simulated: false,
        device_times: timed().all(|file| file.on_device),
        ended_ps: None,
        plan: None,
    };
    log.ranks.resize_with(world_size as usize, || None);
    let before = calls_before(&files, |call| !is_p2p(&call.op));
    if before.values().any(|before| *before > 0) {
        notes.push(format!(
            "The ranks' {} number no calls and begin at different ones: they are laid over each other so that \
             equal calls meet.",
            words.files
        ));
    }
    let mut known = BTreeSet::new();
    let computing = files.iter().filter(|file| !file.computed.is_empty()).count();
    let kept = MAX_COMPUTED / computing.max(1);
    if files.iter().any(|file| file.computed.len() > kept) {
        let why = format!(
            "The {} hold more than {MAX_COMPUTED} computations: of each rank the first {kept} are kept, and later ones \
             count as idle time. Record fewer steps.",
            words.files
        );
        problems.push(FileProblem::flaw("", why));
    }
    for file in &files {
        let mut own = rank_log(file, (&groups, &ids), (&unnamed, &before), epoch_ns, &mut known);
        own.recording.computations.truncate(kept);
        if let Some(slot) = log.ranks.get_mut(file.rank.index()) {
            *slot = Some(own);
        }
    }
    finish_windows(&mut log, &files);
    let untimed: BTreeSet<GlobalRank> =
        files.iter().filter(|file| file.untimed && !all_untimed).map(|file| file.rank).collect();
    take_times_of_others(&mut log, &untimed);
    let disjoint = log.disjoint().map(|disjoint| {
        let disjoint = disjoint.to_string();
        let (first, rest) = disjoint.split_at(1);
        format!(
            "{}{rest}. Their calls cannot be held against each other: record the same steps on every rank.",
            first.to_uppercase()
        )
    });
    let apart = disjoint.into_iter().chain(apart_in_time(&files, words));
    problems.extend(apart.map(|why| FileProblem::flaw("", why)));
    let missing = log.ranks.iter().filter(|rank| rank.is_none()).count();
    if missing > 0 {
        notes.push(format!(
            "{} of the job's {world_size} ranks have {}; {}, so that the others say nothing.",
            files.len(),
            words.file,
            words.missing,
        ));
    }
    let ends = log.logs().flat_map(|(_, log)| &log.calls);
    let ends = ends.map(|it| it.completed_ps.unwrap_or(it.scheduled_ps));
    let computed = log.logs().flat_map(|(_, log)| &log.recording.computations).map(|one| one.to_ps);
    let end_ps = ends.chain(computed).max().unwrap_or(0);
    let header = TraceHeader {
        origin: Origin::Recorded {
            by: words.by.to_owned(),
            files: files.iter().map(|file| file.file_name.clone()).collect(),
        },
        world_size,
        groups,
        plan: None,
        epoch_ns,
    };
    Some(Calls { header, log, end_ps, notes, problems })
}

/// A sentence about files that number no calls and of which one ends before another begins; `None` if there are none.
fn apart_in_time(files: &[&RankCalls], words: Words) -> Option<String> {
    let span = |file: &&RankCalls| {
        let unnumbered = !file.untimed && file.calls.iter().all(|call| call.seq.is_none());
        let made = file.calls.iter().map(|call| call.made_ns);
        let (first, last) = made.clone().min().zip(made.max()).filter(|_| unnumbered)?;
        (last > first).then_some((first, last, file.file_name.clone()))
    };
    let spans: Vec<(u64, u64, String)> = files.iter().filter_map(span).collect();
    let (_, ends, earlier) = spans.iter().min_by_key(|(_, last, _)| *last)?;
    let (begins, _, later) = spans.iter().max_by_key(|(first, _, _)| *first)?;
    let apart_ns = begins.checked_sub(*ends).filter(|apart_ns| *apart_ns > 0)?;
    Some(format!(
        "The last call in {earlier} was made {:.3} s before the first one in {later}: these {} are of different steps, \
         or the clocks of their machines differ. They are laid over each other by their order; record the same steps \
         on every rank.",
        apart_ns as f64 / 1e9,
        words.files
    ))
}

/// The files by rank; of several of one rank the one with the most calls.
fn one_a_rank<'a>(
    files: &'a [RankCalls],
    words: Words,
    problems: &mut Vec<FileProblem>,
) -> Vec<&'a RankCalls> {
    let mut sorted: Vec<&RankCalls> = files.iter().collect();
    sorted.sort_by(|a, b| {
        let order = |it: &RankCalls| (it.rank, std::cmp::Reverse(it.calls.len()));
        order(a).cmp(&order(b)).then_with(|| a.file_name.cmp(&b.file_name))
    });
    let mut kept: Vec<&RankCalls> = Vec::with_capacity(sorted.len());
    for file in sorted {
        match kept.last() {
            Some(last) if last.rank == file.rank => {
                let why = format!(
                    "{} and {} are both {} of rank {}: the one with more calls, {}, is used.",
                    last.file_name, file.file_name, words.files, file.rank, last.file_name
                );
                let (file_name, kind) = (file.file_name.clone(), ProblemKind::SameRank);
                problems.push(FileProblem { file_name, kind, why });
            }
            _ => kept.push(file),
        }
    }
    kept
}

fn groups(files: &[&RankCalls], world_size: u32) -> (Vec<ProcessGroup>, BTreeMap<String, GroupId>) {
    let mut seen: BTreeMap<&str, (&Group, BTreeSet<GlobalRank>)> = BTreeMap::new();
    for file in files {
        for group in &file.groups {
            let entry = seen.entry(&group.name).or_insert_with(|| (group, BTreeSet::new()));
            if entry.0.ranks.len() < group.ranks.len() {
                entry.0 = group;
            }
            entry.1.insert(file.rank);
        }
    }
    let mut backends = files.iter().map(|file| file.backend);
    let backend = backends.find(|it| *it != BackendName::Unknown).unwrap_or(BackendName::Unknown);
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

/// The results of a call. Those of gloo's all_gather are in no profile: each is as large as what the rank gave.
fn outputs_of(call: &Call, group: Option<&ProcessGroup>) -> Vec<TensorShape> {
    let size = group.map_or(0, |group| group.size() as usize);
    let unrecorded = call.op == "all_gather" && call.group.is_none() && call.outputs.is_empty();
    match call.inputs.as_slice() {
        [one] if unrecorded && size <= MOST_RESULTS => vec![one.clone(); size],
        [one] if unrecorded => {
            let numel = one.numel().saturating_mul(size as u64);
            vec![TensorShape { shape: vec![numel], dtype: one.dtype }]
        }
        _ => call.outputs.clone(),
    }
}

/// The results of a call in a larger group are one tensor.
const MOST_RESULTS: usize = 16;

fn rank_log(
    file: &RankCalls,
    (groups, ids): (&[ProcessGroup], &BTreeMap<String, GroupId>),
    (unnamed, before): (&Unnamed<'_>, &BTreeMap<(GlobalRank, Option<String>), u64>),
    epoch_ns: u64,
    known: &mut BTreeSet<Arc<Called>>,
) -> RankLog {
    let mut log = RankLog::default();
    log.recording.groups_assumed = unnamed.is_assumed();
    let mut seqs: BTreeMap<(GroupId, bool), u64> = BTreeMap::new();
    let ps = |ns: u64| ns.saturating_sub(epoch_ns).saturating_mul(1000);
    log.recording.computations.reserve_exact(file.computed.len());
    log.recording.computations.extend(file.computed.iter().map(|one| RecordedComputation {
        from_ps: ps(one.from_ns),
        to_ps: ps(one.to_ns),
        name: Arc::clone(&one.name),
    }));
    log.recording.steps.extend(file.steps.iter().map(|step| {
        let MarkedStep { number, in_process: (from_ns, to_ns), on_device } = *step;
        RecordedStep {
            number,
            from_ps: ps(from_ns),
            to_ps: ps(to_ns),
            on_device: on_device.map(|(from_ns, to_ns)| (ps(from_ns), ps(to_ns))),
        }
    }));
    // Calls of a coalesced batch share what they are recorded with: one stands for them.
    for call in &file.calls {
        let p2p = is_p2p(&call.op);
        let known_group = match &call.group {
            Some(name) => Some(ids.get(name).copied().unwrap_or(GroupId::WORLD)),
            None if p2p => Some(GroupId::WORLD),
            None => unnamed.group_of(file.rank, call),
        };
        let hidden = known_group.is_none();
        let group = known_group.unwrap_or(GroupId::WORLD);
        let begins_apart = !p2p && (call.group.is_some() || unnamed.may_begin_apart());
        let before = || before.get(&(file.rank, call.group.clone())).filter(|_| begins_apart);
        let next = || {
            let next = seqs.entry((group, p2p)).or_insert_with(|| before().copied().unwrap_or(0));
            *next = call.seq.unwrap_or(*next + 1);
            *next
        };
        let seq = (!hidden).then(next);
        let called = Called {
            op: call.op.clone(),
            group,
            p2p,
            peer: call.peer,
            tag: call.tag,
            inputs: call.inputs.clone(),
            outputs: outputs_of(call, groups.get(group.index())),
            reduce_op: call.reduce_op,
            root: call.root,
            stack: Arc::clone(&call.stack),
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
        let unseen = !file.on_device && call.unfinished.is_none();
        let ran = call.ran_ns.or(unseen.then_some((call.made_ns, call.made_ns)));
        let made_ps = ps(call.made_ns);
        let started_ps = ran.map(|(from, _)| ps(from).max(made_ps));
        let ran = ran.filter(|_| call.unfinished.is_none());
        log.calls.push(CallRecord {
            work: log.calls.len() as u32,
            state: match (call.unfinished, ran) {
                (Some(state), _) => state,
                (None, Some(_)) => CallState::Completed,
                (None, None) => CallState::Scheduled,
            },
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

/// Calls whose end was not recorded because the file was over: where every filed member made
/// the call, or one is seen to have ended it, or made a later one, it has ended.
fn finish_windows(log: &mut CallLog, files: &[&RankCalls]) {
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
    let filed = |group: GroupId| -> usize {
        let members = log.groups.get(group.index()).map(ProcessGroup::ranks).unwrap_or_default();
        members
            .iter()
            .filter(|rank| log.ranks.get(rank.index()).is_some_and(Option::is_some))
            .count()
    };
    let sizes: Vec<usize> = (0..log.groups.len() as u32).map(|at| filed(GroupId(at))).collect();
    for file in files {
        let Some(Some(rank)) = log.ranks.get_mut(file.rank.index()) else { continue };
        // The calls of a file are the rank's, in their order.
        let open = rank.calls.iter_mut().zip(&file.calls).filter(|(record, call)| {
            record.state != CallState::Completed && call.unfinished.is_none()
        });
        for (record, _) in open {
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
