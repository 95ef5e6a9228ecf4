//! Plans: what every rank does, in order.
//!
//! A plan is the one thing that the simulator, the host executor and NCCL all run. Ranks that do
//! the same share a program, so that a plan for 512 ranks is as small as one for 2. Every
//! operation can carry the source line it came from.
//!
//! Rules of execution, the same for every way to run a plan:
//! - a rank's program runs in order on its *compute stream*; a collective runs on the
//!   communication stream of its group, so the calls of one group run one after the other and
//!   different groups side by side (c10d keeps one stream a communicator);
//! - a call with `async_op: false` holds the program until it has completed; `async_op: true`
//!   goes on at once, and [`Action::Wait`] holds the program until that call has completed;
//! - on a group whose backend is [`Nccl`](crate::group::BackendName::Nccl) a call holds the rank's
//!   *compute stream* instead, and the program goes on (c10d's `WorkNCCL::wait` makes the current
//!   stream wait, not the process). On a rank that is a member of such a group, computing too is
//!   put on the compute stream. A call begins when the compute stream has come to it. The program
//!   itself waits for its streams only at [`Action::Synchronize`], in a barrier, and at its end.
//!   An executor without such a stream holds the program, which computes the same;
//! - the n-th collective that a rank calls on a group has sequence number n; ranks match by it;
//! - a call whose peers called something else at that number never completes, as with NCCL; the
//!   group's timeout ends the run.

mod action;
mod binary;
mod bounded;
mod builder;
mod call;
mod call_times;
mod check;
mod collective_lab;
mod data;
mod error;
mod fault;
mod json;
mod real;
pub mod remark;
mod signal;
mod tensor;
mod unknown;
pub mod value;

pub use action::{Action, Call, STOPPED, TensorCopy, WorkQuery, exit_status, leaves_at_once};
pub use bounded::MAX_OPS;
pub use builder::{PlanBuilder, ProgramBuilder};
pub use call::Signature;
pub use call_times::{CallTimes, LinkLoad, NamedCluster, TimedCall, TimedTransfer, TransferTime};
pub use collective_lab::{CollectiveLab, patience_ms};
pub use data::TensorData;
pub use error::{OpProblem, PlanError, TensorProblem};
pub use fault::{Fault, FaultError, FaultKind, Injected, MAX_FAULTS, Moment, Signal};
pub use real::Real;
pub use signal::{Deadly, SignalKind};
pub use tensor::{Fill, Tensor, TensorId};

use crate::group::{GroupId, ProcessGroup};
use crate::rank::GlobalRank;
use crate::schedule::ProvedTable;
use serde::{Deserialize, Serialize};
use std::num::{NonZeroU32, TryFromIntError};
use std::sync::Arc;

/// The version of the plan's format; readers refuse any other.
pub const PLAN_SCHEMA: &str = "lockstep.plan/2";

/// The programs of every rank of a job. Made by [`PlanBuilder`] or read from a file; both check it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// A few words that name the plan.
    pub name: String,
    /// The number of ranks.
    pub world_size: u32,
    /// Ranks a node, in rank order (torchrun's `LOCAL_WORLD_SIZE`); the last node may have fewer.
    /// 0 for one node that holds all.
    #[serde(default)]
    pub ranks_per_node: u32,
    /// The process groups; the first is the default group.
    pub groups: Vec<ProcessGroup>,
    /// The tensors that programs name; every rank that uses one has its own.
    #[serde(deserialize_with = "bounded::tensors")]
    pub tensors: Vec<Tensor>,
    /// The programs; see `program_of`.
    #[serde(deserialize_with = "bounded::programs")]
    pub programs: Vec<Program>,
    /// Per rank, the index of its program.
    #[serde(deserialize_with = "bounded::program_of")]
    pub program_of: Vec<u32>,
    /// The texts that source lines point into; empty if there are none.
    pub sources: Vec<Source>,
    /// Schedules that are no family's but a file's, which calls name by their index.
    #[serde(default)]
    pub schedules: Vec<ProvedTable>,
    /// The callers that operations point into; each list once.
    #[serde(default, deserialize_with = "bounded::callers")]
    pub callers: Vec<Callers>,
}

/// A text that operations point into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The file's name as a stack trace would print it: `train.py`.
    pub path: String,
    /// Its text; empty if only the name is known.
    pub text: String,
}

/// A place in a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SourceLine {
    /// Index into [`Plan::sources`].
    pub source: u32,
    /// The line, counted from 1.
    pub line: u32,
}

/// The lines of the calls that led to the function that an operation's line is in: the first is the call of that
/// function, the next the call of the function around the first, and so on. At most 32 lines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Callers(#[serde(deserialize_with = "bounded::caller_lines")] pub Vec<SourceLine>);

/// Index into [`Plan::callers`]. Kept as the index and 1, so that an operation without callers is not larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "u32", try_from = "u32")]
pub struct CallersId(NonZeroU32);

impl CallersId {
    /// The place in [`Plan::callers`].
    pub fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl From<CallersId> for u32 {
    fn from(id: CallersId) -> u32 {
        id.0.get() - 1
    }
}

impl TryFrom<u32> for CallersId {
    type Error = TryFromIntError;

    fn try_from(index: u32) -> Result<CallersId, TryFromIntError> {
        NonZeroU32::try_from(index.wrapping_add(1)).map(CallersId)
    }
}

/// The program of one rank: its operations, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// The operations.
    #[serde(deserialize_with = "bounded::ops")]
    pub ops: Vec<Op>,
}

/// One operation of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Op {
    /// The action.
    pub action: Action,
    /// The line it came from.
    #[serde(default)]
    pub at: Option<SourceLine>,
    /// The user's call that it is a part of, if that is another than the operation itself:
    /// `all_gather_object`, `new_group`.
    #[serde(default)]
    pub via: Option<Arc<str>>,
    /// The calls that led to `at`, if `at` is in a function and they are known. A helper that several lines call
    /// makes the same call for each: only its callers tell these calls apart.
    #[serde(default)]
    pub called_from: Option<CallersId>,
}

impl Op {
    /// An operation that is no part of another call; nothing is known of its callers.
    pub fn new(action: Action, at: Option<SourceLine>) -> Op {
        Op { action, at, via: None, called_from: None }
    }
}

impl Plan {
    /// The program of `rank`, or `None` outside the world.
    pub fn program(&self, rank: GlobalRank) -> Option<&Program> {
        self.programs.get(*self.program_of.get(rank.index())? as usize)
    }

    /// The group, or `None` if the plan has no such group.
    pub fn group(&self, id: GroupId) -> Option<&ProcessGroup> {
        self.groups.get(id.index())
    }

    /// The tensor, or `None` if the plan has no such tensor.
    pub fn tensor(&self, id: TensorId) -> Option<&Tensor> {
        self.tensors.get(id.index())
    }

    /// The lines of an operation, innermost first: its own, then its callers'. Empty if its line is not known.
    pub fn lines_of<'a>(&'a self, op: &'a Op) -> impl Iterator<Item = SourceLine> + 'a {
        let callers = op.called_from.and_then(|id| self.callers.get(id.index()));
        let callers = callers.into_iter().flat_map(|callers| &callers.0);
        op.at.into_iter().flat_map(move |at| std::iter::once(at).chain(callers.clone().copied()))
    }

    /// `train.py:88` for a place in the plan's sources.
    pub fn describe_line(&self, at: SourceLine) -> String {
        match self.sources.get(at.source as usize) {
            Some(source) => format!("{}:{}", source.path, at.line),
            None => format!("line {}", at.line),
        }
    }
}
