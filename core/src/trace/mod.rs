//! Traces: timed events of ranks.
//!
//! A trace comes from a simulation, a run or a recording and always says from which ([`Origin`]). It is a
//! *stream*: a header, then events, then an end; a file that was cut off can be read up to the cut. Events of
//! one rank are in time order; events of different ranks need not be, since a live run delivers them as they
//! come.
//!
//! A *work* is one call in flight, numbered per rank in call order (c10d's `Work`).

mod binary;
mod calls;
mod collector;
mod computations;
mod disjoint;
mod format;
mod json;
mod kernels;
mod plan_call;
mod rank_name;
mod rank_recording;
mod signature;

pub use binary::{MAX_FRAME_BYTES, TRACE_MAGIC, TraceReader, TraceWriter};
pub use calls::period;
pub use calls::{AtOp, CallLog, CallRecord, CallState, Called, RankLog, RankState};
pub use collector::CallCollector;
pub use computations::{Computation, RankOps, Span, rank_ops};
pub use disjoint::Disjoint;
pub use format::{TRACE_SCHEMA, TraceError};
pub use kernels::{OnRow, on_one_row};
pub use plan_call::PlanCalls;
pub use rank_name::{RankNameError, job_folder_of, rank_of_file_name};
pub use rank_recording::{
    LazyRankRecording, MaybeEarly, RankRecording, RecordedComputation, RecordedStep,
};
pub(crate) use signature::calls_differ;
pub use signature::{CallSignature, Difference, numel};

use crate::dtype::Dtype;
use crate::group::{GroupId, ProcessGroup};
use crate::plan::{NamedCluster, Plan, TensorId};
use crate::rank::{GlobalRank, GroupRank};
use crate::reduce::ReduceOp;
use crate::schedule::Slice;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A whole trace in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// The facts about the job that the events refer to.
    pub header: TraceHeader,
    /// The events.
    pub events: Vec<Event>,
    /// The end of the run; `None` while it still runs, or when the file was cut off.
    pub end: Option<TraceEnd>,
}

/// The facts about a job that the events of its trace refer to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceHeader {
    /// The source of the trace.
    pub origin: Origin,
    /// The number of ranks of the job (not of the ranks that were recorded).
    pub world_size: u32,
    /// The process groups; events refer to them by index. Element 0 is the default group.
    pub groups: Vec<ProcessGroup>,
    /// The plan that was simulated or run; a recording has none.
    pub plan: Option<Arc<Plan>>,
    /// Nanoseconds since 1970 at time 0 of the events; 0 for virtual time.
    pub epoch_ns: u64,
}

impl TraceHeader {
    /// A sentence that says that a run's plan names other backends than the one that carried it out, whose
    /// times were measured.
    pub fn stand_in(&self) -> Option<String> {
        let Origin::Run { backend, .. } = &self.origin else { return None };
        let mut others: Vec<&str> = Vec::new();
        for name in self.groups.iter().map(|group| group.backend().name()) {
            if name != backend && !others.contains(&name) {
                others.push(name);
            }
        }
        (!others.is_empty()).then(|| {
            format!(
                "The plan is for {}; {backend} carried it out, so values can be compared and times \
                 are {backend}'s own.",
                others.join(" and ")
            )
        })
    }
}

impl TraceHeader {
    /// Checks the header's numbers before readers size anything by them.
    fn check(&self) -> Result<(), TraceError> {
        let refuse = |why: String| Err(TraceError::NotATrace { why });
        if self.world_size > crate::rank::MAX_WORLD_SIZE {
            return refuse(format!("its world_size {} is over the limit", self.world_size));
        }
        let members = self.groups.iter().flat_map(ProcessGroup::ranks);
        if let Some(rank) = members.copied().find(|rank| rank.0 >= self.world_size) {
            return refuse(format!("a group has rank {rank} of {} ranks", self.world_size));
        }
        match &self.plan {
            Some(plan) if plan.world_size != self.world_size => {
                refuse("its plan has another world_size".into())
            }
            Some(plan) => plan.check().or_else(|error| refuse(error.to_string())),
            None => Ok(()),
        }
    }
}

/// The source of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Simulated in virtual time.
    Simulated {
        /// The simulator's version.
        version: String,
        /// The topology, in words: `latency 5 µs, 25 GB/s`.
        topology: String,
        /// The seed.
        seed: u64,
    },
    /// Run for real.
    Run {
        /// The backend: `host`, `nccl`.
        backend: String,
        /// The machine it ran on, in words: `4 processes on 2 CPU cores`.
        device: String,
    },
    /// Recorded by another tool.
    Recorded {
        /// The recorder: `PyTorch Flight Recorder 2.10`.
        by: String,
        /// From which files.
        files: Vec<String>,
    },
    /// Simulated in virtual time, with the times that calls take on a named cluster.
    SimulatedOnCluster {
        /// The simulator's version.
        version: String,
        /// The cluster in words, with its nodes, its faults, and calls whose times are extrapolated.
        topology: String,
        /// The seed.
        seed: u64,
        /// The cluster, so that the plan can be simulated there again.
        cluster: NamedCluster,
    },
}

impl Origin {
    /// The machine of a simulation, in words: its links, or a cluster. `None` of runs and recordings.
    pub fn simulated_on(&self) -> Option<&str> {
        match self {
            Origin::Simulated { topology, .. } | Origin::SimulatedOnCluster { topology, .. } => {
                Some(topology)
            }
            Origin::Run { .. } | Origin::Recorded { .. } => None,
        }
    }
}

/// The end of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceEnd {
    /// The time of the outcome, in picoseconds after the start. Events of processes that are ending may be
    /// later.
    pub time_ps: u64,
    /// The outcome.
    pub outcome: Outcome,
}

/// The end of a simulation, a run or a recorded job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every rank finished its program.
    Completed,
    /// A call did not complete within its group's timeout.
    TimedOut,
    /// A rank ended before its program did.
    RankDied {
        /// The rank that ended.
        rank: GlobalRank,
        /// The manner, in words: `killed by signal 9 (SIGKILL)`.
        how: String,
    },
    /// Somebody ended it.
    Cancelled,
    /// The executor itself failed.
    Failed {
        /// The reason, in words.
        why: String,
    },
    /// A recording of a job whose end was not recorded.
    Unknown,
    /// Every rank that has not finished is stopped by a signal, and nothing waits for it: nothing would ever
    /// happen again, and no timeout passes.
    RankStopped {
        /// The first of those ranks.
        rank: GlobalRank,
        /// The process's state, in words: `its process stands stopped by a signal (SIGSTOP)`.
        how: String,
    },
}

/// One thing that happened on one rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, in picoseconds after the start.
    pub time_ps: u64,
    /// The rank of the event.
    pub rank: GlobalRank,
    /// The content of the event.
    pub what: What,
}

/// The content of an event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The rank's program reached an operation of its plan.
    OpBegan {
        /// Its index in the rank's program.
        op: u32,
    },
    /// The program went on from an operation.
    OpEnded {
        /// Its index in the rank's program.
        op: u32,
    },
    /// A call was made; it now waits for its stream.
    Scheduled {
        /// The call's number on this rank, from 0.
        work: u32,
        /// The call, which ranks that make the same one may share.
        call: Arc<Call>,
    },
    /// The call's stream began to carry it out.
    Started {
        /// The call.
        work: u32,
    },
    /// The call completed on this rank.
    Completed {
        /// The call.
        work: u32,
    },
    /// The call's group timeout passed first.
    TimedOut {
        /// The call.
        work: u32,
    },
    /// A message of the call's schedule left.
    Sent {
        /// The call.
        work: u32,
        /// The schedule's step.
        step: u32,
        /// The receiver.
        peer: GlobalRank,
        /// The slice that was read; `None` for point-to-point calls, which send a whole tensor.
        slice: Option<Slice>,
        /// The bytes of the message.
        bytes: u64,
    },
    /// A message of the call's schedule arrived and was stored or reduced.
    Received {
        /// The call.
        work: u32,
        /// The schedule's step.
        step: u32,
        /// The sender.
        peer: GlobalRank,
        /// The slice that was written; `None` for point-to-point calls, which fill a whole tensor.
        slice: Option<Slice>,
        /// The bytes of the message.
        bytes: u64,
        /// True if the message was combined with the rank's own values.
        reduced: bool,
    },
    /// A tensor at the end of the rank's program.
    Result {
        /// The tensor that is reported.
        tensor: TensorId,
        /// The contents.
        value: TensorValue,
    },
    /// The rank's compute stream began an operation: a computation that the program has put on
    /// it, or to wait for the calls of the operation.
    StreamBegan {
        /// Its index in the rank's program.
        op: u32,
    },
    /// The compute stream went on from an operation.
    StreamEnded {
        /// Its index in the rank's program.
        op: u32,
    },
    /// A work answered a query ([`WorkQuery`](crate::plan::WorkQuery)).
    Answered {
        /// The query's index in the rank's program.
        op: u32,
        /// As Python prints it.
        answer: String,
    },
    /// The rank finished its program.
    Finished,
    /// The rank ended before its program did.
    Died {
        /// The manner, in words.
        how: String,
    },
    /// The rank's process did not answer when the run was ended: it was stopped, or its machine was.
    Unresponsive {
        /// The state it was found in, in words.
        how: String,
    },
    /// A computation of the rank's device that a profiler recorded: a kernel, or a copy. The event's time is its
    /// begin. Simulations and runs have their computations in their plan.
    Kernel {
        /// The kernel's name, shortened.
        name: Arc<str>,
        /// Its length, in picoseconds.
        took_ps: u64,
    },
}

/// The contents of a tensor: all of it while it is small, else a digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TensorValue {
    /// Little-endian elements.
    Bytes(Vec<u8>),
    /// XXH3-128 of the little-endian elements.
    Digest {
        /// The number of bytes that were digested.
        bytes: u64,
        /// The digest, high half first.
        xxh3: [u64; 2],
    },
}

impl TensorValue {
    /// Tensors up to this many bytes are kept whole.
    pub const MAX_WHOLE_BYTES: usize = 1 << 16;

    /// The value of a tensor of these bytes.
    pub fn of(bytes: &[u8]) -> TensorValue {
        if bytes.len() <= TensorValue::MAX_WHOLE_BYTES {
            return TensorValue::Bytes(bytes.to_vec());
        }
        let digest = xxhash_rust::xxh3::xxh3_128(bytes);
        let xxh3 = [(digest >> 64) as u64, digest as u64];
        TensorValue::Digest { bytes: bytes.len() as u64, xxh3 }
    }
}

/// A call as its rank made it: the fields of a Flight Recorder entry, and those that a plan adds to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// PyTorch's name: `all_reduce`, `send`, …
    pub op: String,
    /// The group.
    pub group: GroupId,
    /// The call's number in the group on this rank: collectives and point-to-point calls are
    /// counted apart. `None` when the recording does not say.
    pub seq: Option<u64>,
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
    /// The plan operation that made the call, if there is a plan.
    pub plan_op: Option<u32>,
    /// The Python stack, innermost frame first; empty if unknown.
    pub stack: Vec<Frame>,
    /// The call's number in the recorder that wrote it, if there was one.
    pub record_id: Option<u64>,
}

/// A tensor's shape and element type.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TensorShape {
    /// The sizes of its dimensions.
    pub shape: Vec<u64>,
    /// Its element type.
    pub dtype: Dtype,
}

impl TensorShape {
    /// The product of its dimensions.
    pub fn numel(&self) -> u64 {
        self.shape.iter().fold(1, |n, size| n.saturating_mul(*size))
    }
}

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// The function.
    pub function: String,
    /// The file.
    pub file: String,
    /// The line, counted from 1.
    pub line: u32,
}
