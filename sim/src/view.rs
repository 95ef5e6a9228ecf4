//! The state of a simulation at one moment: plain data for drawing.

use super::state::{Doing as EngineDoing, Due, Engine, Work};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::GroupId;
use lockstep_core::plan::{SourceLine, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::schedule::{Action, Algorithm, Buffer, RoundPlace, Rounds, Schedule, Slice};
use lockstep_core::trace::Outcome;
use serde::{Deserialize, Serialize};

/// The whole simulation at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// The index of the moment; 0 is before anything happened.
    pub moment: usize,
    /// The virtual time, in picoseconds.
    pub time_ps: u64,
    /// One per rank.
    pub ranks: Vec<RankView>,
    /// Messages that have left and not arrived, by arrival.
    pub messages: Vec<MessageView>,
    /// The end of the run, at the last moment.
    pub outcome: Option<Outcome>,
    /// False when the plan is too large to carry values.
    pub values: bool,
}

/// One rank at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankView {
    /// The operation that its program is at; past the last one when it is over.
    pub op: u32,
    /// The operation's source line.
    pub line: Option<SourceLine>,
    /// The state of its program.
    pub doing: Doing,
    /// Per group, the call that it carries out, or the last one that it did.
    pub calls: Vec<CallView>,
    /// Its compute stream, if it has a device.
    pub stream: Option<StreamView>,
    /// Its calls that have not completed, the newest first; at most
    /// [`RankView::SHOWN_PENDING`].
    pub pending: Vec<PendingWork>,
}

impl RankView {
    /// Pending works that a view carries.
    pub(crate) const SHOWN_PENDING: usize = 64;
}

/// A call that has not completed on its rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingWork {
    /// The call's number on its rank.
    pub work: u32,
    /// The operation that made it.
    pub op: u32,
    /// PyTorch's name of the call.
    pub name: String,
    /// Its group.
    pub group: GroupId,
    /// Its sequence number in its group; point-to-point calls are counted apart.
    pub seq: u64,
}

/// A rank's compute stream at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamView {
    /// The operation it carries out, if any.
    pub op: Option<u32>,
    /// True if the stream waits for that operation's calls, false if it computes.
    pub waits: bool,
    /// Items that have not ended: how far the program is ahead.
    pub queued: usize,
}

/// The state of a rank's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// It goes on at this very moment.
    Running,
    /// It computes or sleeps.
    Busy,
    /// Its process stands stopped by a signal.
    Stopped,
    /// It waits for a call of its own.
    Waiting {
        /// The call's number on this rank.
        work: u32,
    },
    /// It waits until its streams are empty.
    Synchronizing,
    /// Its program is over; its streams are not empty.
    Draining,
    /// It is done.
    Finished,
    /// Its process has ended before its program did.
    Died,
}

/// A collective call on one rank at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallView {
    /// The call's number on this rank.
    pub work: u32,
    /// Its group.
    pub group: GroupId,
    /// Its sequence number in the group.
    pub seq: u64,
    /// PyTorch's name of it.
    pub op: String,
    /// The algorithm that carries it out.
    pub algorithm: Option<Algorithm>,
    /// The schedule's step it is in; equal to `steps` when done.
    pub step: u32,
    /// The schedule's steps.
    pub steps: u32,
    /// The place of that step among the rounds, in which messages move.
    pub round: RoundPlace,
    /// The schedule's rounds.
    pub rounds: u32,
    /// The actions of its rank in this step; empty when done.
    pub actions: Vec<Action>,
    /// The ranks that it waits for in this step.
    pub waits_for: Vec<GlobalRank>,
    /// The chunks of the tensor passed in (empty for in-place calls).
    pub input: BufferView,
    /// The chunks of the tensor the result is in.
    pub output: BufferView,
    /// The chunks of the schedule's own memory.
    pub scratch: BufferView,
}

/// A buffer as its chunks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BufferView {
    /// The tensor, if it is one.
    pub tensor: Option<TensorId>,
    /// Its element type.
    pub dtype: Option<Dtype>,
    /// The chunks, in order.
    pub chunks: Vec<ChunkView>,
}

/// One chunk of a buffer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChunkView {
    /// Its first element.
    pub start: u64,
    /// Its number of elements.
    pub elements: u64,
    /// The group ranks whose data is in it, as a bit set: 0 for memory that nothing was written
    /// to, and for groups of more than 64 ranks.
    pub contributors: u64,
    /// Its first elements, little-endian; at most [`ChunkView::SHOWN_ELEMENTS`].
    pub shown: Vec<u8>,
}

impl ChunkView {
    /// Elements whose values a view carries; [`Session::tensor`](crate::Session::tensor) has all.
    pub(crate) const SHOWN_ELEMENTS: u64 = 4;
}

/// A message on its way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MessageView {
    /// The sender.
    pub from: GlobalRank,
    /// The receiver.
    pub to: GlobalRank,
    /// The message's group.
    pub group: GroupId,
    /// The collective's sequence number; `None` for point-to-point.
    pub seq: Option<u64>,
    /// The schedule's step.
    pub step: u32,
    /// The slice that was read at the sender; `None` for point-to-point.
    pub slice: Option<Slice>,
    /// Its size.
    pub bytes: u64,
    /// When its first byte left, in picoseconds.
    pub departs_ps: u64,
    /// When its last byte arrives.
    pub arrives_ps: u64,
}

impl Engine {
    /// The present state of the simulation; `counted` keeps the rounds of the schedules that are looked at.
    pub(crate) fn view(&self, moment: usize, counted: &mut Vec<(Schedule, Rounds)>) -> View {
        let ranks = (0..self.plan.world_size).map(GlobalRank);
        View {
            moment,
            time_ps: self.now,
            ranks: ranks.map(|rank| self.rank_view(rank, counted)).collect(),
            messages: self.messages_in_flight(),
            outcome: self.outcome().cloned(),
            values: self.prepared.values,
        }
    }

    fn rank_view(&self, rank: GlobalRank, counted: &mut Vec<(Schedule, Rounds)>) -> RankView {
        let state = &self.ranks[rank.index()];
        let op = self.plan.program(rank).and_then(|program| program.ops.get(state.pc as usize));
        let groups = self.plan.groups.iter().enumerate();
        let calls = groups.filter_map(|(id, group)| {
            let member = group.group_rank(rank)?;
            self.call_view(self.prepared.channel(GroupId(id as u32), member), counted)
        });
        RankView {
            op: state.pc,
            line: op.and_then(|op| op.at),
            doing: match state.doing {
                EngineDoing::Ready | EngineDoing::Holding | EngineDoing::Posting => Doing::Running,
                EngineDoing::Busy => Doing::Busy,
                EngineDoing::Stopped => Doing::Stopped,
                EngineDoing::Blocked { op } => {
                    let mut works = state.works_of(op);
                    let open = works.find(|work| !state.works[*work].completed);
                    open.map_or(Doing::Running, |work| Doing::Waiting { work: work as u32 })
                }
                EngineDoing::Synchronizing => Doing::Synchronizing,
                EngineDoing::Standing => Doing::Running,
                EngineDoing::Draining => Doing::Draining,
                EngineDoing::Finished => Doing::Finished,
                EngineDoing::Died => Doing::Died,
            },
            calls: calls.collect(),
            stream: state.stream.as_ref().map(|stream| StreamView {
                op: stream.current().map(|(op, _)| op),
                waits: stream.current().is_some_and(|(_, waits)| waits),
                queued: stream.len(),
            }),
            pending: state
                .works
                .iter()
                .enumerate()
                .rev()
                .filter(|(_, work)| !work.completed)
                .take((state.in_flight as usize).min(RankView::SHOWN_PENDING))
                .filter_map(|(number, work)| self.pending_work(rank, number as u32, work))
                .collect(),
        }
    }

    fn pending_work(&self, rank: GlobalRank, work: u32, of: &Work) -> Option<PendingWork> {
        let operation = self.plan.program(rank)?.ops.get(of.op as usize)?;
        let call = operation.action.calls().get(of.part as usize)?;
        let name = match operation.action.is_async() {
            true => call.async_name(),
            false => call.name(),
        };
        let (op, group, seq) = (of.op, call.group(), of.seq);
        Some(PendingWork { work, op, name: name.to_owned(), group, seq })
    }

    fn call_view(&self, index: u32, counted: &mut Vec<(Schedule, Rounds)>) -> Option<CallView> {
        let channel = self.channels.get(index as usize)?;
        let active = channel.active.as_ref()?;
        let schedule = &active.signature.schedule;
        let known = counted.iter().position(|(of, _)| of == schedule);
        let known = known.unwrap_or_else(|| {
            counted.push((schedule.clone(), Rounds::of(schedule)));
            counted.len() - 1
        });
        let (_, rounds) = counted.get(known)?;
        let mut actions = Vec::new();
        schedule.actions(channel.me, active.step, &mut actions);
        let group = self.plan.group(channel.group)?;
        let waits_for = active.waiting.iter().filter_map(|action| match action {
            Action::Receive { peer, .. } | Action::ReceiveReduce { peer, .. } => {
                group.global_rank(*peer)
            }
            _ => None,
        });
        Some(CallView {
            work: active.work,
            group: channel.group,
            seq: active.seq,
            op: schedule.collective().name().to_owned(),
            algorithm: schedule.algorithm(),
            step: active.step,
            steps: schedule.steps(),
            round: rounds.place(active.step),
            rounds: rounds.count(),
            actions,
            waits_for: waits_for.collect(),
            input: self.buffer_view(index, Buffer::Input),
            output: self.buffer_view(index, Buffer::Output),
            scratch: self.buffer_view(index, Buffer::Scratch),
        })
    }

    fn buffer_view(&self, index: u32, buffer: Buffer) -> BufferView {
        let channel = &self.channels[index as usize];
        let Some(active) = channel.active.as_ref() else {
            return BufferView::default();
        };
        let dtype = active.signature.dtype;
        let grid = active.grid(buffer);
        let memory = &self.ranks[channel.rank.index()].memory;
        let marks = active.marks_of(buffer);
        let chunks = (0..grid.chunks).map(|chunk| {
            let range = grid.range(chunk, 1);
            let bytes = active.read(memory, Slice::one(buffer, chunk));
            let shown = (ChunkView::SHOWN_ELEMENTS * dtype.size_bytes()) as usize;
            ChunkView {
                start: range.start,
                elements: range.end - range.start,
                contributors: marks.get(chunk as usize).copied().unwrap_or(0),
                shown: bytes.map(|b| b[..b.len().min(shown)].to_vec()).unwrap_or_default(),
            }
        });
        let tensor = match buffer {
            Buffer::Input => active.input,
            Buffer::Output => active.output,
            Buffer::Scratch => None,
        };
        BufferView { tensor, dtype: Some(dtype), chunks: chunks.collect() }
    }

    fn messages_in_flight(&self) -> Vec<MessageView> {
        let mut views: Vec<_> = self
            .queue
            .iter()
            .filter_map(|(arrives_ps, due)| match due {
                Due::Message(place) => {
                    let message = self.messages.get(*place)?;
                    let to = &self.channels[message.to as usize];
                    Some(MessageView {
                        from: self.prepared.participant(&self.plan, to.group, message.from)?,
                        to: to.rank,
                        group: to.group,
                        seq: Some(message.seq),
                        step: message.step,
                        slice: Some(message.slice),
                        bytes: message.bytes,
                        departs_ps: message.departs,
                        arrives_ps,
                    })
                }
                Due::Transfer(index) => {
                    let transfer = self.transfers.get(*index as usize)?;
                    if transfer.due() != Some(arrives_ps) {
                        return None;
                    }
                    Some(MessageView {
                        from: transfer.pair.from,
                        to: transfer.pair.to,
                        group: transfer.pair.group,
                        seq: None,
                        step: 0,
                        slice: None,
                        bytes: transfer.bytes,
                        departs_ps: transfer.departs,
                        arrives_ps: transfer.arrives()?,
                    })
                }
                Due::Rank(_)
                | Due::Sent(_)
                | Due::Step(_)
                | Due::Stream(_)
                | Due::Whole(_)
                | Due::Timed(_) => None,
            })
            .collect();
        views.sort_by_key(|m| (m.arrives_ps, m.from, m.to, m.group, m.seq, m.step));
        views
    }
}
