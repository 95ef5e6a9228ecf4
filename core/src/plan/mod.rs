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
//! - the n-th collective that a rank calls on a group has sequence number n; ranks match by it;
//! - a call whose peers called something else at that number never completes, as with NCCL; the
//!   group's timeout ends the run.

mod binary;
mod builder;
mod call;
mod check;
mod json;

pub use binary::PLAN_MAGIC;
pub use builder::{PlanBuilder, ProgramBuilder};
pub use call::Signature;
pub use check::{MAX_WORLD_SIZE, PlanError};

use crate::collective::Collective;
use crate::dtype::Dtype;
use crate::group::{GroupId, ProcessGroup};
use crate::rank::{GlobalRank, GroupRank};
use crate::schedule::Algorithm;
use serde::{Deserialize, Serialize};

/// The version of the plan's format; readers refuse any other.
pub const PLAN_SCHEMA: &str = "lockstep.plan/1";

/// What every rank of a job does. Made by [`PlanBuilder`] or read from a file; both check it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// A few words that name the plan.
    pub name: String,
    /// The number of ranks.
    pub world_size: u32,
    /// The process groups; the first is the default group.
    pub groups: Vec<ProcessGroup>,
    /// The tensors that programs name; every rank that uses one has its own.
    pub tensors: Vec<Tensor>,
    /// The programs; see `program_of`.
    pub programs: Vec<Program>,
    /// Per rank, the index of its program.
    pub program_of: Vec<u32>,
    /// The texts that source lines point into; empty if there are none.
    pub sources: Vec<Source>,
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

/// The index of a tensor in [`Plan::tensors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TensorId(pub u32);

impl TensorId {
    /// The tensor as an index into the plan's table.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A one-dimensional tensor, as each rank makes its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tensor {
    /// What people call it: `grad`.
    pub name: String,
    /// Its element type.
    pub dtype: Dtype,
    /// Its number of elements.
    pub numel: u64,
    /// What it holds at the start.
    pub fill: Fill,
}

impl Tensor {
    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.numel.saturating_mul(self.dtype.size_bytes())
    }
}

/// What a tensor holds at the start, as a function of rank and element index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// Zeros, as `torch.zeros`.
    Zeros,
    /// The rank in every element, as `torch.full((n,), rank)`.
    Rank,
    /// `rank * numel + i`: every element of every rank is told apart.
    Iota,
    /// Seeded, different on every rank, and such that float sums round (the generator of
    /// [`crate::value`]).
    Seeded {
        /// The seed.
        seed: u64,
    },
}

/// What one rank does, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Program {
    /// The operations.
    pub ops: Vec<Op>,
}

/// One operation of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Op {
    /// What is done.
    pub action: Action,
    /// The line it came from.
    #[serde(default)]
    pub at: Option<SourceLine>,
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// A collective of a group that the rank is a member of.
    Collective {
        /// The group.
        group: GroupId,
        /// The call.
        collective: Collective,
        /// Elements a rank: those of the tensor of an in-place call, else those of one rank's
        /// part. 0 for a barrier.
        count: u64,
        /// The tensor passed in; none for in-place calls, a barrier, and ranks that pass none.
        #[serde(default)]
        input: Option<TensorId>,
        /// The tensor the result is in (and passed in, for in-place calls).
        #[serde(default)]
        output: Option<TensorId>,
        /// How it is carried out; the collective's default if absent.
        #[serde(default)]
        algorithm: Option<Algorithm>,
        /// Whether the program goes on at once.
        #[serde(default)]
        async_op: bool,
    },
    /// `dist.send` / `dist.isend`: completes when the peer has received it.
    Send {
        /// The group whose ranks `peer` counts in.
        group: GroupId,
        /// To whom.
        peer: GroupRank,
        /// What.
        tensor: TensorId,
        /// Matches a receive with the same tag.
        #[serde(default)]
        tag: u32,
        /// Whether the program goes on at once.
        #[serde(default)]
        async_op: bool,
    },
    /// `dist.recv` / `dist.irecv`.
    Recv {
        /// The group whose ranks `peer` counts in.
        group: GroupId,
        /// From whom.
        peer: GroupRank,
        /// Where to.
        tensor: TensorId,
        /// Matches a send with the same tag.
        #[serde(default)]
        tag: u32,
        /// Whether the program goes on at once.
        #[serde(default)]
        async_op: bool,
    },
    /// `work.wait()`: holds the program until an earlier asynchronous operation has completed.
    Wait {
        /// Index of that operation in the same program.
        op: u32,
    },
    /// Work that keeps the rank's processor busy.
    Compute {
        /// What people call it: `forward`.
        name: String,
        /// For how long, in nanoseconds.
        duration_ns: u64,
    },
    /// Idle time, called what it is: a data loader that stalls, a rank stuck in user code.
    Sleep {
        /// What people call it.
        name: String,
        /// For how long, in nanoseconds.
        duration_ns: u64,
    },
}

impl Action {
    /// PyTorch's name of the call, or what the operation is.
    pub fn name(&self) -> &str {
        match self {
            Action::Collective { collective, .. } => collective.name(),
            Action::Send { async_op: false, .. } => "send",
            Action::Send { async_op: true, .. } => "isend",
            Action::Recv { async_op: false, .. } => "recv",
            Action::Recv { async_op: true, .. } => "irecv",
            Action::Wait { .. } => "wait",
            Action::Compute { name, .. } | Action::Sleep { name, .. } => name,
        }
    }

    /// True for a call that goes on in the background.
    pub fn is_async(&self) -> bool {
        matches!(
            self,
            Action::Collective { async_op: true, .. }
                | Action::Send { async_op: true, .. }
                | Action::Recv { async_op: true, .. }
        )
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

    /// `train.py:88` for a place in the plan's sources.
    pub fn describe_line(&self, at: SourceLine) -> String {
        match self.sources.get(at.source as usize) {
            Some(source) => format!("{}:{}", source.path, at.line),
            None => format!("line {}", at.line),
        }
    }
}
