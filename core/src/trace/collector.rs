//! From the events of a trace to its calls.

use super::rank_name::rank_of_file_name;
use super::{
    AtOp, Call, CallLog, CallRecord, CallState, Called, Event, Origin, Outcome, RankLog, RankState,
    RecordedComputation, Trace, TraceEnd, TraceHeader, What,
};
use crate::group::BackendName;
use crate::plan::{Action, Op, Plan};
use crate::rank::GlobalRank;
use std::sync::Arc;

/// Collects the calls of a trace, event by event: its events need not be kept, and they are many times
/// larger than its calls. Events that refer to calls which the trace does not show (a ring buffer has
/// dropped them) are passed over.
#[derive(Debug)]
pub struct CallCollector {
    log: CallLog,
    /// The waiting time of each rank of a simulation; empty for runs and recordings.
    waited: Vec<Waited>,
    /// For each rank, the distance from its last call back to an equal one.
    loops: Vec<u8>,
    /// The shared part of the last call of any rank.
    last_called: Option<Arc<Called>>,
    /// The operation that each rank began last. Ranks begin thousands, and only the last one is named.
    at: Vec<Option<u32>>,
    /// A profiler times NCCL's calls by their kernels; gloo's calls have no kernels.
    without_gloo: bool,
    is_run: bool,
}

impl CallCollector {
    /// A collector of the calls of a trace with this header.
    pub fn new(header: &TraceHeader) -> CallCollector {
        let recorded = matches!(header.origin, Origin::Recorded { .. });
        let simulated = header.origin.simulated_on().is_some();
        let mut log = CallLog {
            world_size: header.world_size,
            groups: header.groups.clone(),
            ranks: Vec::new(),
            outcome: Outcome::Unknown,
            recorded,
            simulated,
            device_times: simulated,
            ended_ps: None,
            plan: header.plan.clone(),
        };
        // A stranger's header may claim any world size: the table grows with what is there.
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
            Origin::Simulated { .. } | Origin::SimulatedOnCluster { .. } | Origin::Run { .. } => {
                log.ranks.fill_with(|| Some(RankLog::default()));
            }
        }
        let world = log.ranks.len();
        let has_own_times = simulated && header.plan.is_some();
        CallCollector {
            waited: vec![Waited::default(); if has_own_times { world } else { 0 }],
            loops: vec![0; world],
            last_called: None,
            at: vec![None; world],
            without_gloo: log.groups.iter().all(|it| it.backend() != BackendName::Gloo),
            is_run: matches!(header.origin, Origin::Run { .. }),
            log,
        }
    }

    /// Takes the next event.
    pub fn take(&mut self, event: &Event) {
        let (at, time_ps) = (event.rank.index(), event.time_ps);
        if let What::Scheduled { work, call } = &event.what {
            let Some(slot) = self.log.ranks.get_mut(at) else { return };
            let own = slot.get_or_insert_with(RankLog::default);
            let Some(distance) = self.loops.get_mut(at) else { return };
            let called = own.shared(call, (distance, &mut self.last_called));
            let record = CallRecord {
                seq: call.seq,
                record_id: call.record_id,
                plan_op: call.plan_op,
                ..CallRecord::made(*work, time_ps, called)
            };
            return self.take_call(event.rank, record);
        }
        let Some(slot) = self.log.ranks.get_mut(at) else { return };
        let rank = slot.get_or_insert_with(RankLog::default);
        if let Some(waited) = self.waited.get_mut(at) {
            match event.what {
                What::OpBegan { op } => {
                    let op = op_of(self.log.plan.as_deref(), event.rank, op);
                    if op.is_some_and(|op| waits_at_once(&op.action)) {
                        waited.since_ps = Some(time_ps);
                    }
                }
                What::OpEnded { .. } => waited.end(time_ps),
                _ => {}
            }
        }
        self.log.device_times |= self.without_gloo && matches!(event.what, What::Kernel { .. });
        if let Some(at) = self.at.get_mut(at) {
            match event.what {
                What::OpBegan { op } => *at = Some(op),
                What::Finished | What::Died { .. } => *at = None,
                _ => {}
            }
            rank.take(time_ps, &event.what);
        }
    }

    /// Takes a call that a rank has just made.
    pub fn take_call(&mut self, rank: GlobalRank, record: CallRecord) {
        let Some(slot) = self.log.ranks.get_mut(rank.index()) else { return };
        let own = slot.get_or_insert_with(RankLog::default);
        if let Some(waited) = self.waited.get_mut(rank.index()) {
            // If several calls are made together, the first one waits already, and so do the others.
            let now_ps = waited.since_ps.unwrap_or(record.scheduled_ps);
            if own.own_ps.is_empty() {
                own.own_ps.reserve_exact(1);
            }
            own.own_ps.push(now_ps.saturating_sub(waited.ps));
            let op = record.plan_op.and_then(|op| op_of(self.log.plan.as_deref(), rank, op));
            if op.is_some_and(|op| waits_for_calls(&op.action)) {
                waited.since_ps = Some(record.scheduled_ps);
            }
        }
        if own.calls.is_empty() {
            // Many ranks make few calls: no room for more than there are.
            own.calls.reserve_exact(1);
        }
        own.calls.push(record);
    }

    /// The calls. `end` is the trace's; `None` while it still runs, or when it was cut off.
    pub fn finish(self, end: Option<&TraceEnd>) -> CallLog {
        let CallCollector { mut log, at, is_run, .. } = self;
        for ((rank, own), at) in (0..).map(GlobalRank).zip(&mut log.ranks).zip(at) {
            if let Some((own, op)) = own.as_mut().zip(at) {
                own.state = at_op(log.plan.as_deref(), rank, op);
            }
        }
        log.outcome = end.map_or(Outcome::Unknown, |end| end.outcome.clone());
        log.ended_ps = end.filter(|_| is_run).map(|end| end.time_ps);
        log
    }
}

impl CallLog {
    /// The calls of a trace.
    pub fn of(trace: &Trace) -> CallLog {
        let mut calls = CallCollector::new(&trace.header);
        for event in &trace.events {
            calls.take(event);
        }
        calls.finish(trace.end.as_ref())
    }
}

/// The time that a rank's process waited for others so far.
#[derive(Clone, Copy, Debug, Default)]
struct Waited {
    ps: u64,
    /// Since when it waits; none while it goes on.
    since_ps: Option<u64>,
}

impl Waited {
    /// The rank's program goes on from an operation.
    fn end(&mut self, time_ps: u64) {
        let since_ps = self.since_ps.take().unwrap_or(time_ps);
        self.ps = self.ps.saturating_add(time_ps.saturating_sub(since_ps));
    }
}

fn op_of(plan: Option<&Plan>, rank: GlobalRank, op: u32) -> Option<&Op> {
    plan?.program(rank)?.ops.get(op as usize)
}

/// True of an operation in which a rank waits from its begin.
fn waits_at_once(action: &Action) -> bool {
    matches!(action, Action::Wait { .. } | Action::Synchronize)
}

/// True of an operation whose calls a rank waits for: a delay before them is the rank's own time.
fn waits_for_calls(action: &Action) -> bool {
    let own = matches!(action, Action::Call { .. } | Action::Coalesced { .. });
    own && !action.is_async()
}

impl Called {
    /// True if this is the shared part of the call.
    fn is_of(&self, call: &Call) -> bool {
        let Called { op, group, p2p, peer, tag, inputs, outputs, reduce_op, root, stack } = self;
        (*group, *p2p, *peer, *tag) == (call.group, call.p2p, call.peer, call.tag)
            && (*reduce_op, *root) == (call.reduce_op, call.root)
            && *op == call.op
            && (inputs, outputs) == (&call.inputs, &call.outputs)
            && **stack == *call.stack
    }
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

/// A call is compared with so many calls before it.
const LONGEST_LOOP: u8 = 64;

/// The state of a rank that began an operation of its plan last.
fn at_op(plan: Option<&Plan>, rank: GlobalRank, op: u32) -> RankState {
    let found = plan.and_then(|plan| {
        let op = plan.program(rank)?.ops.get(op as usize)?;
        Some((op.action.name().to_owned(), op.at.map(|at| plan.describe_line(at))))
    });
    let (name, line) = found.unwrap_or_default();
    RankState::AtOp(Box::new(AtOp { op, name, line }))
}

impl RankLog {
    /// The shared part of the call: that of an equal call before it, or a new one. `distance` is the distance back to
    /// the equal call of the call before; a loop keeps it the same. `last` is the shared part of the last call of any
    /// rank.
    fn shared(
        &self,
        call: &Call,
        (distance, last): (&mut u8, &mut Option<Arc<Called>>),
    ) -> Arc<Called> {
        let before = |back: u8| {
            let at = self.calls.len().checked_sub(back.into())?;
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

    /// Takes an event of the rank that is no new call.
    fn take(&mut self, time_ps: u64, what: &What) {
        match what {
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
            What::Kernel { name, took_ps } => {
                self.recording.computations.push(RecordedComputation {
                    from_ps: time_ps,
                    to_ps: time_ps.saturating_add(*took_ps),
                    name: Arc::clone(name),
                })
            }
            What::OpEnded { op } => self.ended_ops = self.ended_ops.max(op.saturating_add(1)),
            What::Scheduled { .. }
            | What::OpBegan { .. }
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
