//! The action of a program's operation, and the calls of torch.distributed among them.

use super::{Deadly, SignalKind, TensorId};
use crate::collective::{Collective, Splits};
use crate::group::GroupId;
use crate::rank::GroupRank;
use crate::reduce::ReduceOp;
use crate::schedule::Algorithm;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A call of torch.distributed: it becomes a work of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// A collective of a group that the rank is a member of.
    Collective {
        /// The group.
        group: GroupId,
        /// The call.
        collective: Collective,
        /// Elements a rank: those of the tensor of an in-place call, else those of one rank's
        /// part. 0 for a barrier, and for a call with `splits`.
        count: u64,
        /// The tensor passed in; none for in-place calls, a barrier, and ranks that pass none.
        #[serde(default)]
        input: Option<TensorId>,
        /// The tensor the result is in (and passed in, for in-place calls).
        #[serde(default)]
        output: Option<TensorId>,
        /// The algorithm that carries it out; the collective's default if absent.
        #[serde(default)]
        algorithm: Option<Algorithm>,
        /// The number of parallel copies of the schedule that share the work; 1 if absent.
        #[serde(default)]
        channels: Option<u32>,
        /// The number of pieces of the data that follow each other through the steps; the family's
        /// own number if absent.
        #[serde(default)]
        segments: Option<u32>,
        /// Carried out as a file says instead of by an algorithm: index into
        /// [`Plan::schedules`](super::Plan::schedules).
        #[serde(default)]
        schedule: Option<u32>,
        /// For an `all_to_all` of uneven parts.
        #[serde(default)]
        splits: Option<Box<Splits>>,
    },
    /// `dist.send` / `dist.isend`: completes when the peer has received it.
    Send {
        /// The group whose ranks `peer` counts in.
        group: GroupId,
        /// The receiver, as a rank of the group.
        peer: GroupRank,
        /// The tensor that is sent.
        tensor: TensorId,
        /// Matches a receive with the same tag.
        #[serde(default)]
        tag: u32,
    },
    /// `dist.recv` / `dist.irecv`.
    Recv {
        /// The group whose ranks `peer` counts in.
        group: GroupId,
        /// The sender, as a rank of the group; any rank, whichever sends first, if absent (`src=None`).
        #[serde(default)]
        peer: Option<GroupRank>,
        /// The tensor that is received into.
        tensor: TensorId,
        /// Matches a send with the same tag.
        #[serde(default)]
        tag: u32,
    },
}

/// An executor's words for a rank whose process is stopped when the run ends.
pub const STOPPED: &str = "its process stands stopped by a signal (SIGSTOP)";

/// The prefix of the exception that `sys.exit` raises with a status: its process's last words.
const LEFT_WITH: &str = "SystemExit: ";

/// The words for a program's `os._exit`, which says nothing itself.
const LEFT_AT_ONCE: &str = "os._exit(";

/// True if a rank's last words are a call of `os._exit`, which is no exception, and not an error that it
/// raised.
pub fn leaves_at_once(how: &str) -> bool {
    how.contains(LEFT_AT_ONCE)
}

/// The status that a process ends with whose last words these are, as Python's: its own if it left with a
/// number (of which a process keeps the lowest byte), else 1.
pub fn exit_status(how: &str) -> u8 {
    let at_once = how.strip_prefix(LEFT_AT_ONCE).and_then(|code| code.strip_suffix(')'));
    let number = how.strip_prefix(LEFT_WITH).or(at_once).and_then(|code| code.parse::<i64>().ok());
    number.map_or(1, |code| code.rem_euclid(256) as u8)
}

/// The action of an operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// A call.
    Call {
        /// The call that is made. The ranks of a large job make millions of calls, and few different ones: equal
        /// calls share one.
        call: Arc<Call>,
        /// True if the program goes on at once.
        #[serde(default)]
        async_op: bool,
    },
    /// Calls that are made together and started together, each a work of its own:
    /// `batch_isend_irecv`, `_coalescing_manager`, `all_reduce_coalesced`.
    Coalesced {
        /// The calls, at least one.
        #[serde(deserialize_with = "super::bounded::calls")]
        calls: Vec<Call>,
        /// True if the program goes on at once.
        #[serde(default)]
        async_op: bool,
    },
    /// `work.wait()`: holds the program until an earlier asynchronous operation, with all of its
    /// calls, has completed.
    Wait {
        /// Index of that operation in the same program.
        op: u32,
        /// `work.wait(timeout)`, in milliseconds: if it passes first, PyTorch raises, and the run
        /// ends as timed out. The group's own timeout holds besides. Not 0: PyTorch's `timedelta(0)`
        /// is its default, and waits without a limit of its own, as `None` does.
        #[serde(default)]
        timeout_ms: Option<u64>,
    },
    /// Asks for the state of an earlier asynchronous operation; the answer goes into the trace.
    Query {
        /// Index of that operation in the same program.
        op: u32,
        /// The question.
        what: WorkQuery,
    },
    /// A step among the rank's own tensors, as a backend makes it around a call: the parts of a
    /// list into one buffer and out of it again, a reduction over the rank's own devices. It takes
    /// no time. For a group on NCCL it is put on the compute stream.
    Copy(Box<TensorCopy>),
    /// `torch.cuda.synchronize()`: holds the program until the rank's streams are empty.
    Synchronize,
    /// Work that keeps the rank's processor busy, or its compute stream.
    Compute {
        /// The name for people: `forward`. Millions of computations have the same.
        name: Arc<str>,
        /// The duration in nanoseconds.
        duration_ns: u64,
    },
    /// Idle time, with a label: a data loader that stalls, a rank stuck in user code.
    Sleep {
        /// The name for people.
        name: Arc<str>,
        /// The duration in nanoseconds.
        duration_ns: u64,
    },
    /// The rank's process exits here with status 1: an exception that nothing catches. Its calls in flight
    /// never complete, and no rank is notified.
    Die {
        /// The last line of its log: `ValueError: …`.
        how: String,
    },
    /// A signal that the rank's process is sent here on purpose, as a fault of the run. In a
    /// simulation a rank that is killed ends, and one that is stopped idles.
    Signal(SignalKind),
}

/// A step among a rank's own tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TensorCopy {
    /// The group whose backend makes the step.
    pub group: GroupId,
    /// The tensor to read.
    pub from: TensorId,
    /// Its first element.
    #[serde(default)]
    pub from_offset: u64,
    /// The tensor to write, of the same type.
    pub into: TensorId,
    /// Its first element.
    #[serde(default)]
    pub into_offset: u64,
    /// The number of elements.
    pub count: u64,
    /// Reduces into the existing values (`into = into op from`) instead of replacing them.
    #[serde(default)]
    pub reduce: Option<ReduceOp>,
}

/// A question to a work (`torch.distributed.Work`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkQuery {
    /// `work.is_completed()`.
    IsCompleted,
    /// `work.is_success()`.
    IsSuccess,
    /// `work.exception()`.
    Exception,
    /// `work.result()`: refused before the work has completed.
    Result,
    /// `work.get_future().done()`.
    FutureDone,
}

impl WorkQuery {
    /// PyTorch's name of the call.
    pub fn name(self) -> &'static str {
        match self {
            WorkQuery::IsCompleted => "is_completed",
            WorkQuery::IsSuccess => "is_success",
            WorkQuery::Exception => "exception",
            WorkQuery::Result => "result",
            WorkQuery::FutureDone => "get_future().done",
        }
    }

    /// The work's answer, as Python prints it, when it has or has not completed. A work that has
    /// not completed has not succeeded, and has no exception yet.
    pub fn answer(self, completed: bool) -> &'static str {
        match (self, completed) {
            (WorkQuery::Exception, _) => "None",
            (WorkQuery::Result, true) => "[tensor]",
            (WorkQuery::Result, false) => "not ready",
            (_, true) => "True",
            (_, false) => "False",
        }
    }

    /// The answer for a work on a CUDA stream: its future is completed as soon as the call is enqueued, since
    /// callbacks run behind it on the stream, and `WorkNCCL::isSuccess` only raises (`ProcessGroupNCCL.cpp`).
    pub fn answer_on_stream(self, completed: bool) -> &'static str {
        match self {
            WorkQuery::FutureDone => "True",
            WorkQuery::IsSuccess => "NotImplementedError: WorkNCCL::isSuccess() is deprecated",
            _ => self.answer(completed),
        }
    }
}

impl Call {
    /// PyTorch's name of the call, when it holds the program.
    pub fn name(&self) -> &'static str {
        match self {
            Call::Collective { collective, .. } => collective.name(),
            Call::Send { .. } => "send",
            Call::Recv { .. } => "recv",
        }
    }

    /// A collective by its default algorithm, with equal parts.
    pub fn collective_of(
        group: GroupId,
        collective: Collective,
        count: u64,
        input: Option<TensorId>,
        output: Option<TensorId>,
    ) -> Call {
        Call::Collective {
            group,
            collective,
            count,
            input,
            output,
            algorithm: None,
            channels: None,
            segments: None,
            schedule: None,
            splits: None,
        }
    }

    /// PyTorch's name of the call, when the program goes on at once.
    pub fn async_name(&self) -> &'static str {
        match self {
            Call::Collective { collective, .. } => collective.name(),
            Call::Send { .. } => "isend",
            Call::Recv { .. } => "irecv",
        }
    }

    /// True for `Send` and `Recv`.
    pub fn is_p2p(&self) -> bool {
        matches!(self, Call::Send { .. } | Call::Recv { .. })
    }

    /// The collective, if it is one.
    pub fn collective(&self) -> Option<Collective> {
        match self {
            Call::Collective { collective, .. } => Some(*collective),
            _ => None,
        }
    }

    /// The tensors that it names: input and output, or a point-to-point call's one.
    pub fn tensors(&self) -> [Option<TensorId>; 2] {
        match self {
            Call::Collective { input, output, .. } => [*input, *output],
            Call::Send { tensor, .. } | Call::Recv { tensor, .. } => [Some(*tensor), None],
        }
    }

    /// Its group.
    pub fn group(&self) -> GroupId {
        match self {
            Call::Collective { group, .. }
            | Call::Send { group, .. }
            | Call::Recv { group, .. } => *group,
        }
    }
}

impl Action {
    /// PyTorch's name of the call, or the kind of the operation.
    pub fn name(&self) -> &str {
        match self {
            Action::Call { call, async_op: false } => call.name(),
            Action::Call { call, async_op: true } => call.async_name(),
            Action::Coalesced { calls, .. } if calls.iter().all(Call::is_p2p) => {
                "batch_isend_irecv"
            }
            Action::Coalesced { .. } => "coalesced",
            Action::Wait { .. } => "wait",
            Action::Query { what, .. } => what.name(),
            Action::Copy(copy) if copy.reduce.is_some() => "reduce on this rank",
            Action::Copy(_) => "copy",
            Action::Synchronize => "synchronize",
            Action::Compute { name, .. } | Action::Sleep { name, .. } => name,
            Action::Die { .. } => "die",
            Action::Signal(signal) => signal.deadly().map_or("SIGSTOP", Deadly::name),
        }
    }

    /// The end of the rank's process by it, if there is one: its last words, or the signal.
    pub fn ends_by(&self) -> Option<&str> {
        match self {
            Action::Die { how } => Some(how),
            Action::Signal(signal) => signal.deadly().map(Deadly::how_it_ends),
            _ => None,
        }
    }

    /// Time until the rank's next operation in a simulation, in nanoseconds: busy or idle time;
    /// `None` for an action whose time depends on others, `u64::MAX` of a stop without an end.
    pub fn duration_ns(&self) -> Option<u64> {
        match self {
            Action::Compute { duration_ns, .. } | Action::Sleep { duration_ns, .. } => {
                Some(*duration_ns)
            }
            Action::Signal(SignalKind::Stop { for_ms }) => {
                Some(for_ms.map_or(u64::MAX, |ms| ms.saturating_mul(1_000_000)))
            }
            _ => None,
        }
    }

    /// The action that makes one call.
    pub fn call(call: Call, async_op: bool) -> Action {
        Action::Call { call: Arc::new(call), async_op }
    }

    /// Goes through all tensors that it names.
    pub fn each_tensor(&mut self, mut with: impl FnMut(&mut TensorId)) {
        if let Action::Copy(copy) = self {
            with(&mut copy.from);
            with(&mut copy.into);
        }
        for call in self.calls_mut() {
            match call {
                Call::Collective { input, output, .. } => {
                    input.iter_mut().chain(output).for_each(&mut with);
                }
                Call::Send { tensor, .. } | Call::Recv { tensor, .. } => with(tensor),
            }
        }
    }

    /// True for calls that go on in the background.
    pub fn is_async(&self) -> bool {
        matches!(
            self,
            Action::Call { async_op: true, .. } | Action::Coalesced { async_op: true, .. }
        )
    }

    /// The calls that the operation makes, each of which becomes a work; empty if it makes none.
    pub fn calls(&self) -> &[Call] {
        match self {
            Action::Call { call, .. } => std::slice::from_ref(&**call),
            Action::Coalesced { calls, .. } => calls,
            _ => &[],
        }
    }

    /// The same calls, to be changed in this operation alone: a call that others share is copied first.
    pub fn calls_mut(&mut self) -> &mut [Call] {
        match self {
            Action::Call { call, .. } => std::slice::from_mut(Arc::make_mut(call)),
            Action::Coalesced { calls, .. } => calls,
            _ => &mut [],
        }
    }
}
