//! The calls of a trace, per rank: the input of the diagnosis, whatever the trace came from.

use super::rank_name::rank_of_file_name;
use super::{Call, Event, Frame, Origin, Outcome, TensorShape, Trace, What};
use crate::group::{BackendName, GroupId, ProcessGroup};
use crate::plan::{Action, Op, Plan};
use crate::rank::{GlobalRank, GroupRank};
use crate::reduce::ReduceOp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Every call of every rank that the trace knows of.
#[derive(Clone, Debug, PartialEq)]
pub struct CallLog {
    /// The number of ranks of the job.
    pub world_size: u32,
    /// The process groups.
    pub groups: Vec<ProcessGroup>,
    /// One per rank of the world, in rank order; `None` when nothing was recorded of it.
    pub ranks: Vec<Option<RankLog>>,
    /// The end of the job, as far as the trace knows.
    pub outcome: Outcome,
    /// True for a recording: something that it does not show may still have happened.
    pub recorded: bool,
    /// True for virtual time: no clock of another machine, no jitter.
    pub simulated: bool,
    /// True if the times of calls on devices are the devices' own: of simulations and profiles. A
    /// recorder sees a start and an end only when it looks.
    pub device_times: bool,
    /// When a real run ended, in picoseconds after its start: until then its ranks waited. `None` where that is
    /// not known.
    pub ended_ps: Option<u64>,
    /// The plan that was simulated or run; it gives the next calls of every rank.
    pub plan: Option<Arc<Plan>>,
}

/// The calls of one rank, in the order in which it made them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankLog {
    /// The calls.
    pub calls: Vec<CallRecord>,
    /// The number of the last collective that it called in a group, where that is known although
    /// the call may not be: a recorder drops old calls.
    pub enqueued: BTreeMap<GroupId, u64>,
    /// The groups in which its first collective that has not ended is one that a recorder has dropped:
    /// the number of the last one that did end, 0 for none.
    pub unended: BTreeMap<GroupId, u64>,
    /// True if the recorder's own count shows that every call that it has dropped had ended.
    pub dropped_ended: bool,
    /// The number of a group's calls that its status counts beyond the last one that is recorded:
    /// gloo counts its sends and receives and does not record them. Groups without such calls are
    /// left out.
    pub unrecorded: BTreeMap<GroupId, u64>,
    /// True if the recorder says of some group when its calls were issued, and not when they ended: those count as
    /// ended.
    pub issued_only: bool,
    /// The size of the group that the rank made last and called nothing in, if a recorder shows such a group:
    /// the rank may still be in `new_group`.
    pub group_without_calls: Option<u32>,
    /// The computations of its devices, by when they began: of a profile. Simulations and runs have them in
    /// their plan.
    pub computations: Vec<RecordedComputation>,
    /// The state of the rank at the end of the trace.
    pub state: RankState,
    /// The state of its process when it did not answer at the end of the run, in words.
    pub unresponsive: Option<String>,
    /// True if the other ranks' calls show that this one did more than was recorded of it: its
    /// dump was made before theirs.
    pub dumped_early: bool,
    /// Says if the other ranks' calls may show that the dump was early: they may also have failed, and the
    /// recording does not say which.
    pub maybe_early: MaybeEarly,
    /// Per call of a simulation, the time for which the rank's process had not waited for others when it made
    /// the call, in picoseconds. Empty if that is not known exactly.
    pub own_ps: Vec<u64>,
}

/// A computation that a profiler recorded: a kernel, or a copy by the device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordedComputation {
    /// Its begin, in picoseconds after the trace's start.
    pub from_ps: u64,
    /// Its end.
    pub to_ps: u64,
    /// The kernel's name, shortened.
    pub name: Arc<str>,
}

/// The reason that a rank's dump may be older than those of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MaybeEarly {
    /// Nothing says so.
    #[default]
    No,
    /// Others have come out of a call that this rank has not made, and their recorders hold too little to
    /// tell if they went on after it.
    Outrun,
    /// Some ranks that made such a call have come out of it and some have not. After a timeout all would have
    /// come out, by its error.
    OutrunBySome,
}

/// The time that a rank's process waited for others so far.
#[derive(Clone, Copy, Default)]
struct Waited {
    ps: u64,
    /// Since when it waits; none while it goes on.
    since_ps: Option<u64>,
}

impl Waited {
    fn take(&mut self, time_ps: u64, what: &What, program: &[Op]) {
        let op = match what {
            What::OpBegan { op } => Some(*op),
            What::Scheduled { call, .. } => call.plan_op,
            What::OpEnded { .. } => {
                let since_ps = self.since_ps.take().unwrap_or(time_ps);
                self.ps = self.ps.saturating_add(time_ps.saturating_sub(since_ps));
                return;
            }
            _ => return,
        };
        let Some(op) = op.and_then(|op| program.get(op as usize)) else { return };
        let waits = match &op.action {
            Action::Wait { .. } | Action::Synchronize => matches!(what, What::OpBegan { .. }),
            // A delay before the call itself is the rank's own time.
            Action::Call { async_op: false, .. } | Action::Coalesced { async_op: false, .. } => {
                matches!(what, What::Scheduled { .. })
            }
            _ => false,
        };
        if waits {
            self.since_ps = Some(time_ps);
        }
    }
}

/// The state of a rank at the end of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RankState {
    /// It finished its program.
    Finished,
    /// It died.
    Died {
        /// The end, in words.
        how: String,
    },
    /// Its program is at an operation of the plan.
    AtOp {
        /// Its index in the rank's program.
        op: u32,
        /// The name: `all_reduce`, or the label of a sleep.
        name: String,
        /// Its source line, `train.py:88`.
        line: Option<String>,
    },
    /// The trace does not say.
    #[default]
    Unknown,
}

/// One call and how far it got.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRecord {
    /// The call's number on its rank.
    pub work: u32,
    /// The progress of the call.
    pub state: CallState,
    /// Its number in the group on this rank; see [`Call::seq`].
    pub seq: Option<u64>,
    /// Its number in the recorder that wrote it, if there was one.
    pub record_id: Option<u64>,
    /// The plan operation that made it, if there is a plan.
    pub plan_op: Option<u32>,
    /// When it was made, in picoseconds after the trace's start.
    pub scheduled_ps: u64,
    /// When its stream began to carry it out, if that is known.
    pub started_ps: Option<u64>,
    /// When it completed.
    pub completed_ps: Option<u64>,
    /// The part that recordings share between calls that are alike.
    pub call: Arc<Called>,
}

/// The common part of calls that are made again and again; the fields are those of [`Call`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Called {
    /// PyTorch's name: `all_reduce`, `send`, …
    pub op: String,
    /// The group.
    pub group: GroupId,
    /// True for send and recv.
    pub p2p: bool,
    /// The other side of a point-to-point call, if known.
    pub peer: Option<GroupRank>,
    /// The tag of a point-to-point call.
    pub tag: u32,
    /// Tensors passed in.
    pub inputs: Vec<TensorShape>,
    /// Tensors for the result.
    pub outputs: Vec<TensorShape>,
    /// The reduction, if known.
    pub reduce_op: Option<ReduceOp>,
    /// The root, if known and the call has one.
    pub root: Option<GroupRank>,
    /// The Python stack, innermost frame first; empty if unknown.
    pub stack: Arc<[Frame]>,
}

impl CallRecord {
    /// The call in the form that events have.
    pub(crate) fn to_call(&self) -> Call {
        let called = &self.call;
        Call {
            op: called.op.clone(),
            group: called.group,
            seq: self.seq,
            p2p: called.p2p,
            peer: called.peer,
            tag: called.tag,
            inputs: called.inputs.clone(),
            outputs: called.outputs.clone(),
            reduce_op: called.reduce_op,
            root: called.root,
            plan_op: self.plan_op,
            stack: called.stack.to_vec(),
            record_id: self.record_id,
        }
    }
}

impl Called {
    /// True of the common part of a call.
    fn is_of(&self, call: &Call) -> bool {
        let Called { op, group, p2p, peer, tag, inputs, outputs, reduce_op, root, stack } = self;
        (*group, *p2p, *peer, *tag) == (call.group, call.p2p, call.peer, call.tag)
            && (*reduce_op, *root) == (call.reduce_op, call.root)
            && *op == call.op
            && (inputs, outputs) == (&call.inputs, &call.outputs)
            && **stack == *call.stack
    }

    /// The number of elements of the call's tensor, to decide if two calls are about the same tensor.
    pub fn payload(&self) -> u64 {
        let tensors = if self.inputs.is_empty() { &self.outputs } else { &self.inputs };
        tensors.iter().fold(0, |sum, tensor| sum.saturating_add(tensor.numel()))
    }

    /// True if the call comes straight from DDP's reducer, in a backward pass.
    pub fn is_ddp_bucket(&self) -> bool {
        self.stack.first().is_some_and(|frame| frame.function == "_engine_run_backward")
    }
}

/// The period of a sequence at its end: the smallest number of values that are repeated there; `None` if none
/// are.
pub fn period(values: &[u64]) -> Option<usize> {
    (1..=values.len() / 2).find(|period| {
        let (before, last) = values.split_at(values.len() - period);
        before.ends_with(last)
    })
}

impl From<&Call> for Called {
    fn from(call: &Call) -> Called {
        Called {
            op: call.op.clone(),
            group: call.group,
            p2p: call.p2p,
            peer: call.peer,
            tag: call.tag,
            inputs: call.inputs.clone(),
            outputs: call.outputs.clone(),
            reduce_op: call.reduce_op,
            root: call.root,
            stack: call.stack.as_slice().into(),
        }
    }
}

/// Calls of a rank are alike within so many calls, or not taken to be.
const LONGEST_LOOP: usize = 64;

/// The state of a rank that began an operation of its plan last.
fn at_op(plan: Option<&Plan>, rank: GlobalRank, op: u32) -> RankState {
    let found = plan.and_then(|plan| {
        let op = plan.program(rank)?.ops.get(op as usize)?;
        Some((op.action.name().to_owned(), op.at.map(|at| plan.describe_line(at))))
    });
    let (name, line) = found.unwrap_or_default();
    RankState::AtOp { op, name, line }
}

/// The progress of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallState {
    /// It waits for its stream.
    Scheduled,
    /// Its stream carries it out.
    Started,
    /// Done on this rank.
    Completed,
}

impl CallLog {
    /// Collects the calls of a trace. Events that refer to calls which the trace does not show
    /// (a ring buffer has dropped them) are passed over.
    pub fn of(trace: &Trace) -> CallLog {
        let header = &trace.header;
        // A stranger's header may claim any world size: the table grows with what is there.
        let recorded = matches!(header.origin, Origin::Recorded { .. });
        let mut log = CallLog {
            world_size: header.world_size,
            groups: header.groups.clone(),
            ranks: Vec::new(),
            outcome: trace.end.as_ref().map_or(Outcome::Unknown, |end| end.outcome.clone()),
            recorded,
            simulated: matches!(header.origin, Origin::Simulated { .. }),
            device_times: matches!(header.origin, Origin::Simulated { .. }),
            ended_ps: match (&header.origin, &trace.end) {
                (Origin::Run { .. }, Some(end)) => Some(end.time_ps),
                _ => None,
            },
            plan: header.plan.clone(),
        };
        log.ranks.resize_with(header.world_size as usize, || None);
        match &header.origin {
            // A dump without entries is of a rank that was recorded and called nothing.
            Origin::Recorded { files, .. } => {
                let ranks = files.iter().filter_map(|file| rank_of_file_name(file).ok());
                for rank in ranks {
                    if let Some(slot) = log.ranks.get_mut(rank.index()) {
                        *slot = Some(RankLog::default());
                    }
                }
            }
            // Simulations and runs show every rank, also one that did nothing.
            Origin::Simulated { .. } | Origin::Run { .. } => {
                log.ranks.fill_with(|| Some(RankLog::default()));
            }
        }
        let virtual_of = header.plan.as_deref().filter(|_| log.simulated);
        let mut waited = vec![Waited::default(); virtual_of.map_or(0, |_| log.ranks.len())];
        let mut loops = vec![0; log.ranks.len()];
        let mut last_called = None;
        // A profiler times NCCL's calls by their kernels; gloo's calls have no kernels.
        let without_gloo = log.groups.iter().all(|it| it.backend() != BackendName::Gloo);
        // The operations that ranks began last: each rank begins thousands, and only the last one has to be named.
        let mut at: Vec<Option<u32>> = vec![None; log.ranks.len()];
        for event in &trace.events {
            let Some(slot) = log.ranks.get_mut(event.rank.index()) else {
                continue;
            };
            let rank = slot.get_or_insert_with(RankLog::default);
            let plan = header.plan.as_deref();
            if let Some(waited) = waited.get_mut(event.rank.index()) {
                if matches!(event.what, What::Scheduled { .. }) {
                    // If several calls are made together, the first one waits already, and so do the others.
                    let now_ps = waited.since_ps.unwrap_or(event.time_ps);
                    if rank.own_ps.is_empty() {
                        rank.own_ps.reserve_exact(1);
                    }
                    rank.own_ps.push(now_ps.saturating_sub(waited.ps));
                }
                let program = plan.and_then(|plan| plan.program(event.rank));
                let ops = program.map_or(&[][..], |program| &program.ops);
                waited.take(event.time_ps, &event.what, ops);
            }
            log.device_times |= without_gloo && matches!(event.what, What::Kernel { .. });
            if let (Some(at), Some(distance)) =
                (at.get_mut(event.rank.index()), loops.get_mut(event.rank.index()))
            {
                match event.what {
                    What::OpBegan { op } => *at = Some(op),
                    What::Finished | What::Died { .. } => *at = None,
                    _ => {}
                }
                rank.take(event.time_ps, &event.what, (distance, &mut last_called));
            }
        }
        for ((rank, own), at) in (0..).map(GlobalRank).zip(&mut log.ranks).zip(at) {
            if let Some((own, op)) = own.as_mut().zip(at) {
                own.state = at_op(header.plan.as_deref(), rank, op);
            }
        }
        log
    }

    /// The ranks of which something was recorded, ascending.
    pub fn logs(&self) -> impl Iterator<Item = (GlobalRank, &RankLog)> {
        let ranks = (0..).map(GlobalRank).zip(&self.ranks);
        ranks.filter_map(|(rank, log)| Some((rank, log.as_ref()?)))
    }
}

impl RankLog {
    /// Everything but the calls.
    pub fn without_calls(&self) -> RankLog {
        RankLog {
            calls: Vec::new(),
            enqueued: self.enqueued.clone(),
            unended: self.unended.clone(),
            dropped_ended: self.dropped_ended,
            unrecorded: self.unrecorded.clone(),
            issued_only: self.issued_only,
            group_without_calls: self.group_without_calls,
            computations: self.computations.clone(),
            state: self.state.clone(),
            unresponsive: self.unresponsive.clone(),
            dumped_early: self.dumped_early,
            maybe_early: self.maybe_early,
            own_ps: self.own_ps.clone(),
        }
    }

    /// True if the recorder's ring has dropped calls of it: the first one that is kept was not its first.
    pub fn is_cut(&self) -> bool {
        self.calls.first().is_some_and(|first| first.record_id > Some(0))
    }

    /// The calls and computations as the events of a trace, in the order in which they happened.
    pub fn events(&self, rank: GlobalRank) -> Vec<Event> {
        let mut events = Vec::with_capacity(self.calls.len() * 3);
        for record in &self.calls {
            let work = record.work;
            let call = Arc::new(record.to_call());
            let mut push = |time_ps, what| events.push(Event { time_ps, rank, what });
            push(record.scheduled_ps, What::Scheduled { work, call });
            if let Some(started_ps) = record.started_ps {
                push(started_ps, What::Started { work });
            }
            if let Some(completed_ps) = record.completed_ps {
                push(completed_ps, What::Completed { work });
            }
        }
        events.extend(self.computations.iter().map(|one| Event {
            time_ps: one.from_ps,
            rank,
            what: What::Kernel {
                name: Arc::clone(&one.name),
                took_ps: one.to_ps.saturating_sub(one.from_ps),
            },
        }));
        // Stable: what happened to a call at one moment stays in order.
        events.sort_by_key(|event| event.time_ps);
        events
    }

    /// The part of the call that it shares with one of the last calls, if it is alike. `distance` is how far back the
    /// one before it found its like: in a loop that stays the same. `last` is that of the last call of any rank.
    fn shared(
        &self,
        call: &Call,
        (distance, last): (&mut usize, &mut Option<Arc<Called>>),
    ) -> Arc<Called> {
        let before = |back: usize| {
            let at = self.calls.len().checked_sub(back)?;
            self.calls.get(at).map(|record| &record.call).filter(|known| known.is_of(call))
        };
        if let Some(known) = before(*distance) {
            return Arc::clone(known);
        }
        if let Some(known) = last.as_ref().filter(|known| known.is_of(call)) {
            return Arc::clone(known);
        }
        for back in 1..=LONGEST_LOOP {
            if let Some(known) = before(back) {
                *distance = back;
                return Arc::clone(known);
            }
        }
        Arc::clone(last.insert(Arc::new(Called::from(call))))
    }

    fn take(&mut self, time_ps: u64, what: &What, known: (&mut usize, &mut Option<Arc<Called>>)) {
        match what {
            What::Scheduled { work, call } => {
                let shared = self.shared(call, known);
                if self.calls.is_empty() {
                    // Many ranks make few calls: no room for more than there are.
                    self.calls.reserve_exact(1);
                }
                self.calls.push(CallRecord {
                    work: *work,
                    state: CallState::Scheduled,
                    seq: call.seq,
                    record_id: call.record_id,
                    plan_op: call.plan_op,
                    scheduled_ps: time_ps,
                    started_ps: None,
                    completed_ps: None,
                    call: shared,
                });
            }
            What::Started { work } => {
                if let Some(call) = self.find(*work) {
                    call.state = CallState::Started;
                    call.started_ps = Some(time_ps);
                }
            }
            What::Completed { work } => {
                if let Some(call) = self.find(*work) {
                    call.state = CallState::Completed;
                    call.completed_ps = Some(time_ps);
                }
            }
            What::Finished => self.state = RankState::Finished,
            What::Died { how } => self.state = RankState::Died { how: how.clone() },
            What::Unresponsive { how } => self.unresponsive = Some(how.clone()),
            What::Kernel { name, took_ps } => self.computations.push(RecordedComputation {
                from_ps: time_ps,
                to_ps: time_ps.saturating_add(*took_ps),
                name: Arc::clone(name),
            }),
            What::OpBegan { .. }
            | What::OpEnded { .. }
            | What::TimedOut { .. }
            | What::Sent { .. }
            | What::Received { .. }
            | What::StreamBegan { .. }
            | What::StreamEnded { .. }
            | What::Answered { .. }
            | What::Result { .. } => {}
        }
    }

    fn find(&mut self, work: u32) -> Option<&mut CallRecord> {
        // Works are numbered in call order, so the index is right unless entries were dropped.
        let index = match self.calls.get(work as usize) {
            Some(call) if call.work == work => Some(work as usize),
            _ => self.calls.binary_search_by_key(&work, |call| call.work).ok(),
        };
        index.map(|index| &mut self.calls[index])
    }
}
