//! One pass forward and backward: what happens when on a rank's two streams, and to each gradient
//! and bucket.

use super::agreement::Agreement;
use super::bucket_of;
use crate::ddp::call::{DdpCall, DdpOp, Purpose};
use crate::ddp::notes::{Half, StepKind};
use serde::{Deserialize, Serialize};

/// A pass. Times are picoseconds from its beginning.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pass {
    /// Its number, from 0.
    pub number: u32,
    /// The rank of the pass.
    pub rank: u32,
    /// The rank's part in it: it trains, or shadows the others.
    pub kind: StepKind,
    /// True if gradients are reduced: it is outside `no_sync()`.
    pub sync: bool,
    /// True if the buckets are rebuilt at its beginning.
    pub rebuilds: bool,
    /// True if the reducer reduces everything at the end, as in the first pass of a static graph.
    pub delayed: bool,
    /// The error that DDP raises in it, or in the forward pass of the next one.
    pub raised: Option<Raised>,
    /// A rank that raises in it, where this one does not: it waits for that one then.
    pub waits_for: Option<u32>,
    /// The agreement of the ranks behind it.
    pub agreement: Agreement,
    /// When its forward pass is over.
    pub forward_end_ps: u64,
    /// When its last layer's backward pass is over.
    pub backward_end_ps: u64,
    /// When it ends.
    pub end_ps: u64,
    /// Time that the compute stream waits for asynchronous communication.
    pub exposed_ps: u64,
    /// Per parameter that requires grad, what becomes of its gradient.
    pub params: Vec<ParamFate>,
    /// Its buckets, in the order in which they are launched.
    pub buckets: Vec<BucketFate>,
    /// Passes of layers on the compute stream, in order.
    pub layers: Vec<LayerSpan>,
    /// The optimizer on the compute stream, from and to; none inside `no_sync()`.
    pub optimizer: Option<(u64, u64)>,
    /// Collectives on the communication stream, in order.
    pub calls: Vec<CallSpan>,
    /// The events, in order.
    pub moments: Vec<Moment>,
}

/// An error that ends a rank's passes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raised {
    /// The half of this pass that raises it; none where the next one's forward does.
    pub here: Option<Half>,
    /// Class and text, as Python prints them.
    pub text: String,
}

/// The fate of a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParamFate {
    /// When it is ready; none if the backward pass does not reach it.
    pub ready_ps: Option<u64>,
    /// The bucket it is in; none if it is in none.
    pub bucket: Option<u32>,
    /// True if the reducer marks it ready because nothing uses it.
    pub marked: bool,
    /// The moment at which it is ready or marked so; past the last one if it never is.
    pub ready_moment: u32,
}

/// The fate of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketFate {
    /// Its gradients, in the order in which they lie in it, as indices among the parameters that
    /// require grad.
    pub params: Vec<u32>,
    /// Its size.
    pub bytes: u64,
    /// The size at which it was full; none where there was no limit.
    pub limit: Option<u64>,
    /// When its last gradient is ready; none if one never is.
    pub full_ps: Option<u64>,
    /// The gradient that it waits for.
    pub last: Option<u32>,
    /// The earlier bucket that it has to wait for, if it is full before that one, or that one never
    /// is.
    pub held_by: Option<u32>,
    /// When it is launched; none if it is not reduced.
    pub launch_ps: Option<u64>,
    /// The gradient that launched it; none at the end of a pass that reduces everything there.
    pub launched_by: Option<u32>,
    /// The call on the communication stream that it queues behind, as an index.
    pub behind: Option<u32>,
    /// When its first collective starts, and its last is done.
    pub span_ps: Option<(u64, u64)>,
    /// Time that the compute stream waits for it.
    pub exposed_ps: u64,
    /// The moments at which it is launched, starts and is done; past the last one if it never is.
    pub moments: [u32; 3],
}

/// A pass of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerSpan {
    /// Index into the model's layers.
    pub layer: u32,
    /// True if it is the forward pass.
    pub forward: bool,
    /// From.
    pub start_ps: u64,
    /// To.
    pub end_ps: u64,
}

/// A collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallSpan {
    /// The collective.
    pub kind: CallKind,
    /// The purpose.
    pub purpose: Purpose,
    /// Bytes of its tensor.
    pub bytes: u64,
    /// True if the compute stream waits for it at once.
    pub blocking: bool,
    /// When the compute stream has come to it.
    pub ready_ps: u64,
    /// When the communication stream begins it.
    pub start_ps: u64,
    /// Time that it then waits for other ranks to begin it too.
    pub peers_ps: u64,
    /// The number of ranks that make it.
    pub ranks: u32,
    /// When it is done.
    pub end_ps: u64,
    /// Its time without any bytes.
    pub latency_ps: u64,
    /// The gradient that launched it.
    pub launched_by: Option<u32>,
    /// Until when the compute stream waits for it, if it does.
    pub waited_ps: Option<(u64, u64)>,
}

/// The collectives that DDP uses, by PyTorch's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// `all_reduce`.
    AllReduce,
    /// `broadcast`.
    Broadcast,
    /// `all_gather`.
    AllGather,
}

impl CallKind {
    /// PyTorch's name.
    pub fn name(self) -> &'static str {
        match self {
            CallKind::AllReduce => "all_reduce",
            CallKind::Broadcast => "broadcast",
            CallKind::AllGather => "all_gather",
        }
    }

    pub(super) fn of(call: &DdpCall) -> CallKind {
        match call.op {
            DdpOp::AllReduce { .. } => CallKind::AllReduce,
            DdpOp::Broadcast { .. } => CallKind::Broadcast,
            DdpOp::AllGather => CallKind::AllGather,
        }
    }
}

impl CallSpan {
    /// The bucket whose gradients it reduces.
    pub fn of_bucket(&self) -> Option<u32> {
        bucket_of(self.purpose)
    }
}

impl Pass {
    /// True if any gradient is reduced: the first pass of a static graph does so even inside
    /// `no_sync()`, as its delayed reduction is queued with the first backward pass.
    pub fn reduces(&self) -> bool {
        self.sync || self.delayed
    }

    /// Time that the compute stream computes.
    pub fn compute_ps(&self) -> u64 {
        let optimizer = self.optimizer.map_or(0, |(from, to)| to - from);
        let layers = self.layers.iter().map(|layer| layer.end_ps - layer.start_ps);
        layers.fold(optimizer, u64::saturating_add)
    }

    /// The moment that a time is in.
    pub fn moment_at(&self, time_ps: u64) -> usize {
        self.moments.partition_point(|moment| moment.time_ps <= time_ps).saturating_sub(1)
    }
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// When, in picoseconds from the pass's beginning.
    pub time_ps: u64,
    /// The event.
    pub event: Event,
}

/// An event of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// The module is called.
    Begins,
    /// A call that is done, as an index into [`Pass::calls`].
    Done(u32),
    /// The forward pass is over.
    ForwardEnds,
    /// The reducer marks the parameters that nothing uses as ready.
    MarkedUnused,
    /// A gradient is ready, as an index among the parameters that require grad.
    Gradient(u32),
    /// A call that had to queue starts.
    Starts(u32),
    /// The last layer's backward pass is over.
    BackwardEnds,
    /// The optimizer has stepped.
    Optimized,
    /// The next pass may begin.
    Ends,
}
