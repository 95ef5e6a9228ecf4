//! The calls of a trace, per rank: the input of the diagnosis, whatever the trace came from.

use super::rank_recording::LazyRankRecording;
use super::{Call, Event, Frame, Outcome, TensorShape, What};
use crate::group::{GroupId, ProcessGroup};
use crate::plan::Plan;
use crate::rank::{GlobalRank, GroupRank};
use crate::reduce::ReduceOp;
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
    /// The recording's statements beside its calls.
    pub recording: LazyRankRecording,
    /// The number of operations of its program that it has gone on from; 0 in a recording.
    pub ended_ops: u32,
    /// The state of the rank at the end of the trace.
    pub state: RankState,
    /// The state of its process when it did not answer at the end of the run, in words.
    pub unresponsive: Option<String>,
    /// Per call of a simulation, the time for which the rank's process had not waited for others when it made
    /// the call, in picoseconds. Empty if that is not known exactly.
    pub own_ps: Vec<u64>,
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
    AtOp(Box<AtOp>),
    /// The trace does not say.
    #[default]
    Unknown,
}

/// An operation that a rank's program is at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtOp {
    /// Its index in the rank's program.
    pub op: u32,
    /// The name: `all_reduce`, or the label of a sleep.
    pub name: String,
    /// Its source line, `train.py:88`.
    pub line: Option<String>,
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
    /// A call that was just made, as `work` of its rank: it waits for its stream.
    pub fn made(work: u32, scheduled_ps: u64, call: Arc<Called>) -> CallRecord {
        CallRecord {
            work,
            state: CallState::Scheduled,
            seq: None,
            record_id: None,
            plan_op: None,
            scheduled_ps,
            started_ps: None,
            completed_ps: None,
            call,
        }
    }

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
    /// By rank, how many operations of its program it has gone on from.
    pub fn ended_ops(&self) -> Vec<u32> {
        self.ranks.iter().map(|own| own.as_ref().map_or(0, |own| own.ended_ops)).collect()
    }

    /// The ranks of which something was recorded, ascending.
    pub fn logs(&self) -> impl Iterator<Item = (GlobalRank, &RankLog)> {
        let ranks = (0..).map(GlobalRank).zip(&self.ranks);
        ranks.filter_map(|(rank, log)| Some((rank, log.as_ref()?)))
    }
}

impl RankLog {
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
        events.extend(self.recording.computations.iter().map(|one| Event {
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
}
