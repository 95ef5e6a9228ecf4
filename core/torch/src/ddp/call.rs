//! The calls that DDP makes on its process group, one by one.

use lockstep_core::dtype::Dtype;
use lockstep_core::reduce::ReduceOp;
use serde::{Deserialize, Serialize};

/// A collective that DDP issues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct DdpCall {
    /// The collective that is called.
    #[serde(flatten)]
    pub op: DdpOp,
    /// Its element type.
    pub dtype: Dtype,
    /// Its number of elements; for an `all_gather`, of one rank's part.
    pub numel: u64,
    /// The purpose.
    pub purpose: Purpose,
    /// Ranks of the group it is made in, if that is not DDP's own: a subgroup of neighbours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subgroup: Option<u32>,
}

/// The collectives that DDP uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum DdpOp {
    /// `allreduce_`.
    AllReduce {
        /// The operation that combines elements.
        reduce_op: ReduceOp,
    },
    /// `broadcast_`.
    Broadcast {
        /// From which group rank.
        root: u32,
    },
    /// `allgather_`.
    AllGather,
}

/// The purpose of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// The constructor compares the numbers of parameters (`verify_params_across_processes`).
    ParamCount,
    /// The constructor compares sizes and strides.
    ParamShapes,
    /// The constructor, or the end of `join`, makes all models equal (`_sync_module_states`).
    ModuleStates,
    /// A forward pass makes buffers equal (`_sync_module_buffers`).
    Buffers,
    /// Rank 0's buckets: which bucket every parameter is in (`sync_bucket_indices`).
    RebuiltIndices,
    /// Rank 0's buckets: how many parameters each has.
    RebuiltSizes,
    /// The gradients of a bucket, whole.
    Bucket {
        /// The bucket.
        bucket: u32,
    },
    /// A part of a communication hook's work on a bucket.
    HookPart {
        /// The bucket.
        bucket: u32,
        /// The part of the hook's work.
        part: HookPart,
    },
    /// The flags of the parameters that any rank used (`all_reduce_local_used_map`).
    UsedMap,
    /// The gradients that `delay_all_reduce_named_params` took out of the reducer.
    Delayed,
    /// `SyncBatchNorm`: the statistics of all ranks, or the sums of its backward pass.
    BatchNorm,
    /// 1.x: parameters or buffers copied to all devices of a process.
    Replicate,
    /// A model averager: the parameters of all ranks, or of a subgroup's.
    Averaged,
    /// `ZeroRedundancyOptimizer`: parameters that a rank has updated.
    Shard,
    /// `join`: how many ranks still have inputs.
    JoinPresence,
    /// `join(throw_on_early_termination=True)`: whether any rank has none left.
    JoinThrow,
    /// `join`: whether this iteration reduces gradients.
    JoinSync,
    /// `join`: whose states are the right ones.
    JoinRank,
}

/// The part of a bucket that a communication hook communicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookPart {
    /// PowerSGD: the tensors that are too small to be worth it.
    Uncompressed,
    /// PowerSGD: the left factors.
    P,
    /// PowerSGD: the right factors.
    Q,
    /// Quantization: scales and zero points.
    Scales,
    /// Quantization: the quantized gradients.
    Quantized,
}

impl DdpCall {
    /// A sum over all ranks.
    pub fn all_reduce(dtype: Dtype, numel: u64, purpose: Purpose) -> DdpCall {
        let op = DdpOp::AllReduce { reduce_op: ReduceOp::Sum };
        DdpCall { op, dtype, numel, purpose, subgroup: None }
    }

    /// A broadcast from `root`.
    pub fn broadcast(dtype: Dtype, numel: u64, root: u32, purpose: Purpose) -> DdpCall {
        DdpCall { op: DdpOp::Broadcast { root }, dtype, numel, purpose, subgroup: None }
    }

    /// An `all_gather` of `numel` elements a rank.
    pub fn all_gather(dtype: Dtype, numel: u64, purpose: Purpose) -> DdpCall {
        DdpCall { op: DdpOp::AllGather, dtype, numel, purpose, subgroup: None }
    }

    /// Bytes of its tensor.
    pub fn bytes(&self) -> u64 {
        self.numel.saturating_mul(self.dtype.size_bytes())
    }

    /// PyTorch's name of the collective.
    pub fn name(&self) -> &'static str {
        match self.op {
            DdpOp::AllReduce { .. } => "all_reduce",
            DdpOp::Broadcast { .. } => "broadcast",
            DdpOp::AllGather => "all_gather",
        }
    }
}
