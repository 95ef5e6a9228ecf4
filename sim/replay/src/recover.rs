//! From the calls of a recording to a plan.

use crate::answers::answers;
use crate::assumption::Assumption;
use crate::between::{Between, Names, Open};
use crate::operation::{OfRow, RowFacts, Tensors, call_of, row_facts, uneven_exchanges};
use crate::window::{Window, is_groupless};
use lockstep_core::group::{BackendName, GroupError, GroupId, ProcessGroup};
use lockstep_core::plan::remark::Remark;
use lockstep_core::plan::{
    Action, Call, CallersId, MAX_OPS, Op, Plan, PlanBuilder, PlanError, Program, SourceLine,
};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, CallRecord, CallState, Called, Disjoint, Frame, RankState};
use lockstep_diagnosis::{Kind, Report};
use lockstep_formats::frames::{own_frames, user_frame};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Sleep of a rank that never goes on in the recording: for ever.
const FOR_EVER_NS: u64 = u64::MAX;

/// Names the operation at which a rank stays whose recording ends outside of a call.
const STAYS: &str = "where the recording of this rank ends";

/// A plan that was recovered from a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Recovered {
    /// The plan.
    pub plan: Plan,
    /// The assumptions beyond the recording, in order.
    pub assumed: Vec<Assumption>,
    /// The recorded calls that its operations are.
    pub calls: RecordedCalls,
}

/// The recorded calls of which a recovered plan's operations are made, per rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordedCalls(BTreeMap<GlobalRank, Vec<MadeOf>>);

/// The recorded call of a call of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MadeOf {
    op: u32,
    /// The call's index among the rank's recorded ones.
    record: u32,
}

/// The end of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordingEnd {
    /// The job hung: who is in no call stays where it is, if others wait.
    Hung,
    /// The job went on: calls that not all had come out of are left out.
    WentOn,
}

impl RecordingEnd {
    /// By what the diagnosis says of the recording: a job with no finding, or with slow ranks only, went on.
    pub fn of(report: &Report) -> RecordingEnd {
        let hangs = report.findings.iter().any(|finding| finding.kind != Kind::Straggler);
        if hangs { RecordingEnd::Hung } else { RecordingEnd::WentOn }
    }
}

impl Recovered {
    /// The plan of a trace that has one.
    pub fn of_plan(plan: Plan) -> Recovered {
        Recovered { plan, assumed: Vec::new(), calls: RecordedCalls::default() }
    }
}

impl RecordedCalls {
    /// The operation of the plan that a recorded call is, by its index among the rank's recorded calls.
    pub(crate) fn op_of_record(&self, rank: GlobalRank, record: usize) -> Option<u32> {
        let made = self.0.get(&rank)?;
        let at = made.binary_search_by_key(&record, |of| of.record as usize).ok()?;
        made.get(at).map(|of| of.op)
    }

    /// The recorded calls with the states and times that a simulation of the plan gave them: the recording that
    /// the replayed job would have left. `log` is the recording that the plan was recovered from.
    pub(crate) fn recorded_again(&self, mut log: CallLog, simulated: &CallLog) -> CallLog {
        for (rank, before) in (0..).map(GlobalRank).zip(&mut log.ranks) {
            let after = simulated.ranks.get(rank.index()).and_then(Option::as_ref);
            let Some(((made, after), before)) = self.0.get(&rank).zip(after).zip(before.as_mut())
            else {
                continue;
            };
            before.recording.unended.clear();
            // An operation's calls have their works in their order, and so have they been recorded.
            let mut own = made.iter().copied().peekable();
            let mut made_again = after.calls.iter().filter_map(|call| {
                let op = call.plan_op?;
                while own.next_if(|of| of.op < op).is_some() {}
                Some((own.next_if(|of| of.op == op)?.record, call))
            });
            let (mut next, mut at) = (made_again.next(), 0u32);
            before.calls.retain_mut(|record| {
                let again = next.take_if(|(of, _)| *of == at);
                at += 1;
                let Some((_, call)) = again else { return false };
                record.state = call.state;
                record.scheduled_ps = call.scheduled_ps;
                record.started_ps = call.started_ps;
                record.completed_ps = call.completed_ps;
                next = made_again.next();
                true
            });
        }
        log
    }
}

/// The reason that no plan can be recovered.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The recording holds no calls.
    #[error("the recording holds no calls: there is nothing to replay")]
    NoCalls,
    /// Two ranks' recordings have no call in common.
    #[error(
        "{0}, and make no plan together. Record the same steps on every rank (torch.profiler's schedule counts steps \
         from the same one), or replay one rank's recording alone"
    )]
    DifferentSteps(Disjoint),
    /// The plan would have more operations than one may have.
    #[error(
        "what was recorded makes a plan of more than {MAX_OPS} operations: record fewer steps, or shorten the ring of \
         the recorder (TORCH_FR_BUFFER_SIZE). lockstep diagnose and lockstep analyze read it as it is"
    )]
    TooLarge,
    /// The recorded calls make no plan that could be run.
    #[error("what was recorded makes no plan: {0}")]
    Plan(#[from] PlanError),
    /// A group of the recording is none.
    #[error("what was recorded makes no plan: {0}")]
    Group(#[from] GroupError),
}

/// The plan of a recording, named `name`. Of a trace that has its plan it is that one.
///
/// # Errors
/// When there are no calls, or they make no plan.
pub fn recover(name: &str, log: &CallLog, end: RecordingEnd) -> Result<Recovered, RecoverError> {
    if let Some(plan) = &log.plan {
        return Ok(Recovered::of_plan(Plan::clone(plan)));
    }
    if log.logs().all(|(_, own)| own.calls.is_empty()) {
        return Err(RecoverError::NoCalls);
    }
    let mut recovery = Recovery::new(name, log)?;
    let went_on = end == RecordingEnd::WentOn;
    let window = Window::of(log, went_on, &mut recovery.assumed);
    if log.logs().any(|(_, own)| own.recording.groups_assumed) {
        recovery.assumed.insert(Assumption::Groups);
    }
    let hangs = !went_on && log.logs().any(|(_, own)| own.calls.iter().any(pending));
    let (mut left_out, mut groupless, mut ops) = (0, 0, 0);
    for (rank, own) in log.logs() {
        let at = window.calls(log, rank, &own.calls);
        let calls: Vec<&CallRecord> = at.iter().filter_map(|at| own.calls.get(*at)).collect();
        let between = Between::of(&own.recording.computations, log.device_times);
        let (mut program, made) = recovery.program(&calls, between, &own.recording.device_timed);
        let made = made.into_iter().filter_map(|(op, call)| {
            Some(MadeOf { op, record: u32::try_from(*at.get(call)?).ok()? })
        });
        recovery.made.insert(rank, made.collect());
        left_out += own.calls.iter().filter(|record| window.is_left_out(record)).count() as u64;
        if own.recording.groups_assumed {
            groupless += own.calls.iter().filter(|record| is_groupless(record)).count() as u64;
        }
        match &own.state {
            RankState::Died { how } => program.push(plain(Action::Die { how: how.clone() })),
            _ if hangs && !calls.iter().any(|call| pending(call)) => {
                recovery.stays.push(rank);
                program.push(plain(stay()));
            }
            _ => {}
        }
        ops += weight(&program);
        if ops > MAX_OPS {
            return Err(RecoverError::TooLarge);
        }
        // A large job has millions of operations: room for twice as many would be half of the memory.
        program.shrink_to_fit();
        recovery.programs.insert(rank, Program { ops: program });
    }
    if recovery.made.values().all(Vec::is_empty)
        && let Some(disjoint) = log.disjoint()
    {
        return Err(RecoverError::DifferentSteps(disjoint));
    }
    if left_out > 0 {
        recovery.assumed.insert(Assumption::LeftOut { calls: left_out });
    }
    if groupless > 0 {
        recovery.assumed.insert(Assumption::UnknownGroup { calls: groupless });
    }
    recovery.add_calls_behind_stays();
    recovery.add_unrecorded(hangs);
    if recovery.programs.values().map(|program| weight(&program.ops)).sum::<usize>() > MAX_OPS {
        return Err(RecoverError::TooLarge);
    }
    Ok(recovery.finish()?)
}

fn pending(record: &CallRecord) -> bool {
    record.state != CallState::Completed
}

/// The number that operations count as in a plan's bound.
fn weight(ops: &[Op]) -> usize {
    ops.iter().map(|op| op.action.calls().len().max(1)).sum()
}

fn plain(action: Action) -> Op {
    Op::new(action, None)
}

fn stay() -> Action {
    Action::Sleep { name: STAYS.into(), duration_ns: FOR_EVER_NS }
}

/// True of the operation that stands for where a rank's recording ends.
pub(crate) fn is_stay(op: &Op) -> bool {
    matches!(&op.action, Action::Sleep { name, .. } if **name == *STAYS)
}

/// The place of a call in the user's code: its line, and the callers of that line's function.
type Origin = (Option<SourceLine>, Option<CallersId>);

/// A call of the plan, and its place.
type PlacedCall = (Arc<Call>, Origin);

/// A plan on its way.
struct Recovery<'a> {
    log: &'a CallLog,
    plan: PlanBuilder,
    /// The plan's groups, and where those of the recording are among them.
    groups: Vec<ProcessGroup>,
    group_of: Vec<GroupId>,
    tensors: Tensors,
    uneven: BTreeMap<(GroupId, u64), u64>,
    facts: BTreeMap<(GroupId, u64), RowFacts>,
    sources: BTreeMap<String, u32>,
    /// The calls and lines of the plan, by where the recording keeps the part that alike calls share: it has a few
    /// hundred such parts, and millions of calls.
    known: HashMap<(*const Called, OfRow), Option<PlacedCall>>,
    names: Names,
    programs: BTreeMap<GlobalRank, Program>,
    made: BTreeMap<GlobalRank, Vec<MadeOf>>,
    stays: Vec<GlobalRank>,
    assumed: BTreeSet<Assumption>,
    /// The time at which the first rank began to compute, if the computations of all ranks are known: every program
    /// begins then.
    begin_ps: Option<u64>,
}

impl<'a> Recovery<'a> {
    fn new(name: &str, log: &'a CallLog) -> Result<Recovery<'a>, RecoverError> {
        let world: Vec<GlobalRank> = (0..log.world_size).map(GlobalRank).collect();
        let backend = |group: &ProcessGroup| match group.backend() {
            BackendName::Unknown => BackendName::Host,
            backend => backend,
        };
        let is_world = |group: &ProcessGroup| group.ranks() == world;
        let world_at = log.groups.iter().position(is_world);
        let of_world = world_at.and_then(|at| log.groups.get(at)).or_else(|| log.groups.first());
        let own = of_world.map_or(BackendName::Host, backend);
        let mut plan = PlanBuilder::new(name, log.world_size, own)?;
        let mut groups = vec![ProcessGroup::world(log.world_size, own)?];
        let mut group_of = Vec::with_capacity(log.groups.len());
        let mut assumed = BTreeSet::new();
        let callers = callers(log);
        for (at, group) in log.groups.iter().enumerate() {
            let mut ranks = group.ranks().to_vec();
            ranks.retain(|rank| rank.0 < log.world_size);
            let callers = callers.get(at).map(Vec::as_slice).unwrap_or_default();
            let unlisted: Vec<GlobalRank> =
                callers.iter().copied().filter(|rank| group.group_rank(*rank).is_none()).collect();
            if !unlisted.is_empty() {
                assumed.insert(Assumption::Member { group: group.label().to_owned() });
                ranks.extend(unlisted);
                ranks.sort_unstable();
            }
            if world_at == Some(at) {
                let timeout_ms = group.timeout_ms();
                plan.timeout_ms(timeout_ms);
                group_of.push(GroupId::WORLD);
            } else if ranks.is_empty() {
                // Nobody calls in it.
                group_of.push(GroupId::WORLD);
            } else {
                let made = ProcessGroup::new(group.name(), backend(group), ranks)?;
                let made = made.with_desc(group.desc()).with_timeout_ms(group.timeout_ms());
                group_of.push(plan.group(made.clone()));
                groups.push(made);
            }
        }
        Ok(Recovery {
            log,
            plan,
            groups,
            group_of,
            tensors: Tensors::default(),
            uneven: uneven_exchanges(log),
            facts: row_facts(log),
            sources: BTreeMap::new(),
            known: HashMap::new(),
            names: Names::default(),
            programs: BTreeMap::new(),
            made: BTreeMap::new(),
            stays: Vec::new(),
            assumed,
            begin_ps: common_begin(log),
        })
    }

    /// The operations of a rank, without its end, and which of its calls are of which operation. `device_timed` are
    /// the works whose times are the device's although the others' are the process's: those of a profile beside dumps.
    fn program(
        &mut self,
        calls: &[&CallRecord],
        between: Between<'_>,
        device_timed: &BTreeSet<u32>,
    ) -> (Vec<Op>, Vec<(u32, usize)>) {
        let mut made_of = Vec::with_capacity(calls.len());
        let mut ops: Vec<Op> = Vec::with_capacity(calls.len());
        // A process runs ahead of its device: a profile's device says when the rank came to a call.
        let all_on_device = self.log.device_times;
        let on_device = |record: &CallRecord| all_on_device || device_timed.contains(&record.work);
        let made_ps = |record: &CallRecord| {
            record.started_ps.filter(|_| on_device(record)).unwrap_or(record.scheduled_ps)
        };
        // Until when the rank was busy with its last call; it is not known what was done before the first one, unless
        // all ranks have their computations.
        let mut busy_ps: Option<u64> = self.begin_ps;
        let mut open: Vec<Open> = Vec::new();
        let mut at = 0;
        while let Some(first) = calls.get(at) {
            let together = self.batch(calls.get(at..).unwrap_or_default());
            let next = calls.get(at + together);
            let first_ps = made_ps(first);
            let gap = (busy_ps.unwrap_or(first_ps), first_ps);
            if between.add(gap, &mut open, (&mut self.names, &mut ops)) {
                self.assumed.insert(Assumption::Computes);
            }
            let of_op = calls.get(at..at + together).unwrap_or_default();
            let waits = of_op.iter().any(|call| pending(call));
            let ended_ps = of_op.iter().map(|call| call.completed_ps).max().flatten();
            // The rank went on before the call had ended.
            let goes_on = next.is_some_and(|next| {
                waits || ended_ps.is_some_and(|ended_ps| made_ps(next) < ended_ps)
            }) || (on_device(first) && !waits)
                && ended_ps.is_some_and(|ended_ps| between.computes_in(first_ps, ended_ps));
            let Some((action, (line, called_from))) = self.action(of_op, goes_on) else {
                at += together;
                continue;
            };
            made_of.extend((at..at + together).map(|call| (ops.len() as u32, call)));
            ops.push(Op { called_from, ..Op::new(action, line) });
            if goes_on {
                open.push((ended_ps.filter(|_| !waits), ops.len() as u32 - 1));
            }
            busy_ps = match goes_on {
                true => Some(first_ps),
                false => Some(ended_ps.unwrap_or(first_ps)),
            };
            at += together;
        }
        // The device's computations after the last call.
        if let Some(((_, last_ps), busy_ps)) = between.ends().zip(busy_ps).filter(|_| all_on_device)
        {
            between.add((busy_ps, last_ps), &mut open, (&mut self.names, &mut ops));
        }
        for (_, op) in open {
            ops.push(plain(Action::Wait { op, timeout_ms: None }));
        }
        (ops, made_of)
    }

    /// The number of next calls that were made together: those of a batch share a number.
    fn batch(&self, calls: &[&CallRecord]) -> usize {
        let Some((first, rest)) = calls.split_first() else { return 0 };
        let group = self.log.groups.get(first.call.group.index());
        let nccl = group.is_some_and(|group| group.backend() == BackendName::Nccl);
        if !first.call.p2p || !nccl || first.seq.is_none() {
            return 1;
        }
        let same = |other: &&&CallRecord| {
            other.call.p2p && (other.call.group, other.seq) == (first.call.group, first.seq)
        };
        1 + rest.iter().take_while(same).count()
    }

    /// The action that makes some calls together, with the place of the first; `None` if their groups are none that
    /// the recording has.
    fn action(&mut self, records: &[&CallRecord], async_op: bool) -> Option<(Action, Origin)> {
        if let [only] = records {
            let (call, origin) = self.call(only)?;
            return Some((Action::Call { call, async_op }, origin));
        }
        let made = records.iter().filter_map(|record| self.call(record));
        let made = made.map(|(call, origin)| (Call::clone(&call), origin));
        let (calls, origins): (Vec<Call>, Vec<Origin>) = made.unzip();
        let origin = origins.first().copied()?;
        match <[Call; 1]>::try_from(calls) {
            Ok([call]) => Some((Action::call(call, async_op), origin)),
            Err(calls) => Some((Action::Coalesced { calls, async_op }, origin)),
        }
    }

    /// The call in the plan's groups, and its place; `None` of a group that the recording does not have.
    fn call(&mut self, record: &CallRecord) -> Option<PlacedCall> {
        let row = record.seq.map(|seq| (record.call.group, seq)).filter(|_| !record.call.p2p);
        let lacks_facts = record.call.root.is_none() || record.call.reduce_op.is_none();
        let uneven = row.filter(|_| !self.uneven.is_empty());
        let facts = row.filter(|_| lacks_facts && !self.facts.is_empty());
        let of_row = OfRow {
            uneven: uneven.and_then(|row| self.uneven.get(&row)).copied(),
            facts: facts.and_then(|row| self.facts.get(&row)).copied().unwrap_or_default(),
        };
        let key = (Arc::as_ptr(&record.call), of_row);
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let call = self.new_call(record, of_row);
        let call = call.map(|call| (Arc::new(call), self.new_origin(record)));
        self.known.insert(key, call.clone());
        call
    }

    fn new_call(&mut self, record: &CallRecord, of_row: OfRow) -> Option<Call> {
        let id = *self.group_of.get(record.call.group.index())?;
        let members = self.groups.get(id.index())?;
        let mut call = call_of(
            &record.call,
            (id, members),
            (&mut self.plan, &mut self.tensors),
            of_row,
            &mut self.assumed,
        );
        // Members may have other places in the plan's group than in the recording's.
        let theirs = self.log.groups.get(record.call.group.index());
        let moved = |peer| {
            let global = theirs.and_then(|group| group.global_rank(peer))?;
            members.group_rank(global)
        };
        match &mut call {
            Call::Send { peer, .. } => *peer = moved(*peer).unwrap_or(*peer),
            Call::Recv { peer: Some(peer), .. } => *peer = moved(*peer).unwrap_or(*peer),
            _ => {}
        }
        Some(call)
    }

    fn new_origin(&mut self, record: &CallRecord) -> Origin {
        let stack = &record.call.stack;
        let line = user_frame(stack).map(|frame| self.line(frame));
        let callers = own_frames(stack).skip(1).map(|frame| self.line(frame));
        let callers: Vec<SourceLine> = callers.collect();
        (line, self.plan.callers(callers))
    }

    fn line(&mut self, frame: &Frame) -> SourceLine {
        let path = frame.file.rsplit('/').next().unwrap_or(&frame.file).to_owned();
        let plan = &mut self.plan;
        let source =
            *self.sources.entry(path.clone()).or_insert_with(|| plan.source(path, String::new()));
        SourceLine { source, line: frame.line }
    }

    /// Behind where ranks stay stand the calls in which others wait for them: they would have come to these.
    fn add_calls_behind_stays(&mut self) {
        let mut awaited: Vec<Op> = Vec::new();
        for (rank, program) in &self.programs {
            let at = waits_at(self.log, *rank, program);
            let Some(op) = at.and_then(|at| program.ops.get(at)) else { continue };
            let mut op = op.clone();
            if let Action::Call { async_op, .. } | Action::Coalesced { async_op, .. } =
                &mut op.action
            {
                *async_op = false;
            }
            let known = awaited.iter().any(|known| known.action == op.action);
            if !known && !op.action.calls().iter().any(Call::is_p2p) {
                awaited.push(op);
            }
        }
        for rank in &self.stays {
            let is_in = |op: &&Op| {
                op.action.calls().iter().all(|call| {
                    let group = self.groups.get(call.group().index());
                    group.is_some_and(|group| group.group_rank(*rank).is_some())
                })
            };
            if let Some(program) = self.programs.get_mut(rank) {
                program.ops.extend(awaited.iter().filter(is_in).cloned());
            }
        }
    }

    /// Programs of the ranks of which nothing was recorded: those of another rank, in the groups that both are
    /// in, and no further than where it waits.
    fn add_unrecorded(&mut self, hangs: bool) {
        let missing = (0..self.log.world_size).map(GlobalRank);
        let missing: Vec<GlobalRank> =
            missing.filter(|rank| !self.programs.contains_key(rank)).collect();
        let mut like: BTreeMap<GlobalRank, Vec<GlobalRank>> = BTreeMap::new();
        let (mut ended, mut answering) = (Vec::new(), Vec::new());
        let recorded: Vec<GlobalRank> = self.programs.keys().copied().collect();
        for rank in missing {
            let groups: Vec<bool> =
                self.groups.iter().map(|group| group.group_rank(rank).is_some()).collect();
            let is_in = |group: GroupId| groups.get(group.index()) == Some(&true);
            let shared = |other: &GlobalRank| {
                self.programs.get(other).map_or(0, |program| {
                    program.ops.iter().filter(|op| shared_call(op, is_in)).count()
                })
            };
            let model =
                recorded.iter().max_by_key(|other| (shared(other), std::cmp::Reverse(**other)));
            let Some(model) = model.copied() else { continue };
            let own = self.programs.get(&model).cloned().unwrap_or_default();
            let waits = waits_at(self.log, model, &own);
            let upto = waits.unwrap_or(own.ops.len());
            let mut ops: Vec<Op> = own.ops.into_iter().take(upto).collect();
            // What is left out moves what waits name: calls of a model are copied as calls that hold.
            ops.retain(|op| match &op.action {
                Action::Wait { .. } => false,
                _ => op.action.calls().is_empty() || shared_call(op, is_in),
            });
            for op in &mut ops {
                match &mut op.action {
                    Action::Call { async_op, .. } | Action::Coalesced { async_op, .. } => {
                        *async_op = false;
                    }
                    _ => {}
                }
            }
            let peers = recorded.iter().filter_map(|other| {
                let program = self.programs.get(other)?;
                let upto = waits_at(self.log, *other, program).unwrap_or(program.ops.len());
                Some((*other, program.ops.get(..upto)?))
            });
            let answered = answers(ops, (rank, &self.groups), peers, |op| shared_call(op, is_in));
            if answered.any {
                answering.push(rank);
            }
            let mut ops = answered.ops;
            if hangs && waits.is_some() {
                ops.push(plain(Action::Die { how: "nothing of it was recorded".to_owned() }));
                ended.push(rank);
            }
            like.entry(model).or_default().push(rank);
            self.programs.insert(rank, Program { ops });
        }
        for (like, ranks) in like {
            self.assumed.insert(Assumption::LikeAnother { ranks, like });
        }
        if !answering.is_empty() {
            self.assumed.insert(Assumption::Answers { ranks: answering });
        }
        if !ended.is_empty() {
            self.assumed.insert(Assumption::Ended { ranks: ended });
        }
    }

    fn finish(mut self) -> Result<Recovered, PlanError> {
        if !self.stays.is_empty() {
            self.assumed.insert(Assumption::Stays { ranks: self.stays });
        }
        let (mut programs, made) = (self.programs, self.made);
        let assumed: Vec<Assumption> = self.assumed.into_iter().collect();
        let about_calls = assumed.iter().filter(|one| one.is_about_calls());
        let remarks: Vec<Op> =
            about_calls.map(|one| Remark::Assumed { what: one.to_string() }.to_op(None)).collect();
        let plan = self.plan.with_programs(|rank| {
            let mut program = programs.remove(&rank).unwrap_or_default();
            let ends = program.ops.last().is_some_and(|op| op.action.ends_by().is_some());
            program.ops.extend(remarks.iter().filter(|_| !ends).cloned());
            program.ops.shrink_to_fit();
            program
        })?;
        Ok(Recovered { plan, assumed, calls: RecordedCalls(made) })
    }
}

/// Per group, the ranks that call in it, ascending.
fn callers(log: &CallLog) -> Vec<Vec<GlobalRank>> {
    let mut callers: Vec<Vec<GlobalRank>> = vec![Vec::new(); log.groups.len()];
    for (rank, own) in log.logs() {
        for record in &own.calls {
            if let Some(known) = callers.get_mut(record.call.group.index())
                && known.last() != Some(&rank)
            {
                known.push(rank);
            }
        }
    }
    callers
}

/// The time by which all ranks have begun to compute, by the devices' clocks; `None` if not all computations are
/// known.
fn common_begin(log: &CallLog) -> Option<u64> {
    let begins = log.logs().map(|(_, own)| Some(own.recording.computations.first()?.from_ps));
    let begins: Vec<u64> = begins.collect::<Option<_>>().filter(|_| log.device_times)?;
    begins.into_iter().max()
}

/// True if all calls of an operation are collectives in groups that another rank is in as well: to whom it sends
/// is not known of another rank.
fn shared_call(op: &Op, is_in: impl Fn(GroupId) -> bool) -> bool {
    let calls = op.action.calls();
    !calls.is_empty() && calls.iter().all(|call| !call.is_p2p() && is_in(call.group()))
}

/// The operation in which a rank waits at the end of its recording.
fn waits_at(log: &CallLog, rank: GlobalRank, program: &Program) -> Option<usize> {
    let own = log.ranks.get(rank.index())?.as_ref()?;
    let after = own.calls.iter().rev().take_while(|record| pending(record)).count();
    if after == 0 {
        return None;
    }
    let calls: Vec<usize> = (0..program.ops.len())
        .filter(|at| program.ops.get(*at).is_some_and(|op| !op.action.calls().is_empty()))
        .collect();
    calls.get(calls.len().checked_sub(after)?).copied()
}
