//! From a plan to the commands of a device: every operation of a rank's program as a list of actions on
//! streams. A pure function; no device has to be there.
//!
//! A rank has a compute stream, and a stream for each communicator that it is a member of. Calls of a group
//! run on its communicator; a single send or receive runs on one that only its two ranks share, as c10d's do
//! (`ProcessGroupNCCL::pointToPoint`, `getKeySendRecv`), so that pairs do not wait for each other. On a group
//! of NCCL's a call blocks the compute stream, on others the program (`lockstep_core::plan`).

mod calls;
mod communicators;
mod elements;
mod schedule;
#[cfg(test)]
mod tests;

pub(super) use communicators::{CommunicatorId, Communicators};
pub(super) use elements::{Element, Operation, Reduction};

use super::options::Collectives;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, SequenceNumbers};
use lockstep_core::plan::{Action, Call, Plan, TensorCopy, TensorId, WorkQuery};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::{ReduceOp, Refused};
use lockstep_core::schedule::Slice;
use std::collections::BTreeMap;
use std::ops::Range;

/// A stream of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// The stream of the program's computations.
    Compute,
    /// The stream of a communicator.
    Of(CommunicatorId),
}

/// Memory on a rank's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Memory {
    /// A tensor of the plan.
    Tensor(TensorId),
    /// The scratch of a schedule on that communicator.
    Scratch(CommunicatorId),
    /// Messages from peers that are to be reduced.
    Incoming(CommunicatorId),
    /// An input, premultiplied.
    Scaled(CommunicatorId),
    /// Bytes without meaning, which a barrier sends.
    Token(CommunicatorId),
}

/// A run of bytes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) memory: Memory,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// An event on a stream, recorded with the time at which the stream reaches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mark {
    Started { work: u32 },
    Completed { work: u32 },
    StreamBegan { op: u32 },
    StreamEnded { op: u32 },
    Sent(Message),
    Received { message: Message, reduced: bool },
}

/// A message of a call's schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) work: u32,
    pub(super) step: u32,
    pub(super) peer: GlobalRank,
    pub(super) slice: Option<Slice>,
    pub(super) bytes: u64,
}

/// A step of a rank: its own act, or an order to its device.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// The program makes a call.
    Make { work: u32, part: u32, seq: u64, group: GroupId },
    /// `lane` waits for all that was put on `on` so far.
    Follow { lane: Lane, on: Lane },
    /// `lane` waits for a work.
    Await { lane: Lane, work: u32 },
    /// Notes the time at which `lane` comes here.
    Mark { lane: Lane, marks: Vec<Mark> },
    /// Copies; both spans are as long.
    Copy { lane: Lane, from: Span, into: Span },
    /// `into = local op from`.
    Combine { lane: Lane, dtype: Dtype, op: ReduceOp, local: Span, from: Span, into: Span },
    /// `into = from * factor`.
    Premultiply { lane: Lane, dtype: Dtype, factor: f64, from: Span, into: Span },
    /// `span = span / by`.
    Divide { lane: Lane, dtype: Dtype, by: u32, span: Span },
    /// Sends and receives, all at once, with ranks of the communicator.
    Exchange { communicator: CommunicatorId, sends: Vec<(u32, Span)>, receives: Vec<(u32, Span)> },
    /// A collective of NCCL's own.
    Collective {
        communicator: CommunicatorId,
        operation: Operation,
        element: Element,
        count: u64,
        input: Span,
        output: Span,
    },
    /// A kernel that takes so long.
    Compute { lane: Lane, duration_ns: u64 },
    /// The program waits for works.
    HoldFor { works: Range<u32>, timeout_ms: Option<u64> },
    /// The program waits for all streams.
    HoldForAll,
    /// The program is idle.
    Sleep { duration_ns: u64 },
    /// The program asks for the state of works.
    Answer { works: Range<u32>, what: WorkQuery, on_stream: bool },
    /// The rank's process ends.
    Die { how: String },
}

/// A rank's program for a device.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lowered {
    /// The steps of each operation.
    pub(super) ops: Vec<Vec<Step>>,
    /// Bytes of the memory that is no tensor.
    pub(super) extra: BTreeMap<Memory, u64>,
    /// Works in all.
    pub(super) works: u32,
}

/// A call that NCCL or this executor cannot do.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Unsupported {
    /// NCCL has no such reduction; the text is PyTorch's.
    #[error(
        "operation {op}: {refused}. NCCL's own collectives lack it; the plan's schedules have it \
         (--collectives schedules)"
    )]
    Reduction { op: u32, refused: Refused },
    /// c10d refuses it too.
    #[error("operation {op}: NCCL has no receive from any source; name the source")]
    AnySource { op: u32 },
    /// A gloo call.
    #[error("operation {op}: NCCL has no monitored_barrier, only gloo has; call barrier")]
    MonitoredBarrier { op: u32 },
    /// A logical rank has no process of its own.
    #[error(
        "operation {op} ends its rank's process, which logical ranks of one process do not have; \
         run the plan with a GPU a rank or on the host backend"
    )]
    Dies { op: u32 },
    /// A plan that was not checked.
    #[error("operation {op}: {why}")]
    Broken { op: u32, why: &'static str },
}

/// The settings for lowering a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub(super) collectives: Collectives,
    /// True if the messages of schedules are recorded.
    pub(super) messages: bool,
    /// True if ranks have processes of their own.
    pub(super) processes: bool,
}

/// The works of an operation, with the way they are waited for.
#[derive(Clone, Debug, Default)]
struct Made {
    works: Range<u32>,
    /// On groups of NCCL's.
    on_stream: bool,
}

/// A lowering under way.
struct Lowering<'a> {
    plan: &'a Plan,
    rank: GlobalRank,
    way: Way,
    communicators: &'a Communicators,
    steps: Vec<Step>,
    extra: BTreeMap<Memory, u64>,
    works: u32,
    op: u32,
    collectives: SequenceNumbers,
    p2p: SequenceNumbers,
}

/// A rank's program of a checked plan.
///
/// # Errors
/// When NCCL, or this executor, has no such thing.
pub(super) fn lower(
    plan: &Plan,
    rank: GlobalRank,
    communicators: &Communicators,
    way: Way,
) -> Result<Lowered, Unsupported> {
    let ops = plan.program(rank).map_or(&[][..], |program| &program.ops);
    let has_device = plan
        .groups
        .iter()
        .any(|group| group.backend() == BackendName::Nccl && group.group_rank(rank).is_some());
    let mut lowering = Lowering {
        plan,
        rank,
        way,
        communicators,
        steps: Vec::new(),
        extra: BTreeMap::new(),
        works: 0,
        op: 0,
        collectives: SequenceNumbers::default(),
        p2p: SequenceNumbers::default(),
    };
    let mut made: Vec<Made> = Vec::with_capacity(ops.len());
    let mut lowered = Vec::with_capacity(ops.len());
    for (op, operation) in (0..).zip(ops) {
        lowering.op = op;
        let first = lowering.works;
        let made_at = |op: u32| made.get(op as usize).cloned().unwrap_or_default();
        let mut on_stream = false;
        match &operation.action {
            action @ (Action::Call { .. } | Action::Coalesced { .. }) => {
                on_stream = lowering.calls(action)?;
            }
            Action::Wait { op: waited, timeout_ms } => {
                let Made { works, on_stream } = made_at(*waited);
                // A wait with a timeout holds the program (c10d's `WorkNCCL::wait`, blocking).
                if on_stream && timeout_ms.is_none() {
                    lowering.hold_stream(op, works);
                } else {
                    lowering.steps.push(Step::HoldFor { works, timeout_ms: *timeout_ms });
                }
            }
            Action::Query { op: asked, what } => {
                let Made { works, on_stream } = made_at(*asked);
                lowering.steps.push(Step::Answer { works, what: *what, on_stream });
            }
            Action::Copy(copy) => {
                let on_stream = lowering.on_stream(copy.group);
                lowering.copy(copy);
                if !on_stream {
                    lowering.steps.push(Step::HoldForAll);
                }
            }
            Action::Synchronize => lowering.steps.push(Step::HoldForAll),
            Action::Compute { duration_ns, .. } => {
                let lane = Lane::Compute;
                lowering.steps.extend([
                    Step::Mark { lane, marks: vec![Mark::StreamBegan { op }] },
                    Step::Compute { lane, duration_ns: *duration_ns },
                    Step::Mark { lane, marks: vec![Mark::StreamEnded { op }] },
                ]);
                if !has_device {
                    lowering.steps.push(Step::HoldForAll);
                }
            }
            Action::Sleep { duration_ns, .. } => {
                lowering.steps.push(Step::Sleep { duration_ns: *duration_ns });
            }
            // Refused before: only the host backend sends any.
            Action::Signal(_) => return Err(lowering.broken("a signal, which no device is sent")),
            Action::Die { .. } if !way.processes => return Err(Unsupported::Dies { op }),
            Action::Die { how } => lowering.steps.push(Step::Die { how: how.clone() }),
        }
        made.push(Made { works: first..lowering.works, on_stream });
        lowered.push(std::mem::take(&mut lowering.steps));
    }
    Ok(Lowered { ops: lowered, extra: lowering.extra, works: lowering.works })
}

impl Lowering<'_> {
    fn on_stream(&self, group: GroupId) -> bool {
        self.plan.group(group).is_some_and(|group| group.backend() == BackendName::Nccl)
    }

    fn broken(&self, why: &'static str) -> Unsupported {
        Unsupported::Broken { op: self.op, why }
    }

    /// The compute stream waits for works.
    fn hold_stream(&mut self, op: u32, works: Range<u32>) {
        let lane = Lane::Compute;
        self.steps.push(Step::Mark { lane, marks: vec![Mark::StreamBegan { op }] });
        self.steps.extend(works.map(|work| Step::Await { lane, work }));
        self.steps.push(Step::Mark { lane, marks: vec![Mark::StreamEnded { op }] });
    }

    /// Memory that is no tensor, as large as its hungriest user wants it.
    fn reserve(&mut self, memory: Memory, bytes: u64) {
        let most = self.extra.entry(memory).or_default();
        *most = bytes.max(*most);
    }

    /// The bytes of a tensor.
    fn tensor(&self, id: TensorId) -> Result<Span, Unsupported> {
        let tensor = self.plan.tensor(id).ok_or(self.broken("a tensor that the plan has not"))?;
        Ok(Span { memory: Memory::Tensor(id), offset: 0, bytes: tensor.bytes() })
    }

    fn copy(&mut self, copy: &TensorCopy) {
        let TensorCopy { from, from_offset, into, into_offset, count, reduce, .. } = copy;
        let dtype = self.plan.tensor(*from).map_or(Dtype::Unknown, |tensor| tensor.dtype);
        let size = dtype.size_bytes();
        let part = |tensor: TensorId, offset: u64| Span {
            memory: Memory::Tensor(tensor),
            offset: offset.saturating_mul(size),
            bytes: count.saturating_mul(size),
        };
        let (from, into) = (part(*from, *from_offset), part(*into, *into_offset));
        let lane = Lane::Compute;
        self.steps.push(match reduce {
            None => Step::Copy { lane, from, into },
            Some(op) => Step::Combine { lane, dtype, op: *op, local: into, from, into },
        });
    }

    fn member(&self, call: &Call) -> Result<u32, Unsupported> {
        let group = self.plan.group(call.group());
        let me = group.and_then(|group| group.group_rank(self.rank));
        me.map(|me| me.0).ok_or(self.broken("a call on a group that the rank is no member of"))
    }
}
