//! Communication hooks: what is communicated in place of a bucket's `all_reduce`.
//!
//! Sources: `torch/distributed/algorithms/ddp_comm_hooks/*.py`. A hook gets the gradients as they
//! are; only the reducer's own `all_reduce` divides them beforehand.

use super::call::{DdpCall, HookPart, Purpose};
use super::error::DdpError;
use crate::dtype::Dtype;
use serde::{Deserialize, Serialize};

/// A communication hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommHook {
    /// `fp16_compress_hook` and `bf16_compress_hook` with their wrappers, and DDP's own mixed
    /// precision: the bucket is cast to this type first.
    #[serde(default)]
    pub compress: Option<Dtype>,
    /// What is done with the bucket.
    pub algorithm: HookAlgorithm,
}

/// What a hook does with a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookAlgorithm {
    /// `allreduce_hook`.
    AllReduce,
    /// `noop_hook`: nothing.
    Noop,
    /// `powerSGD_hook`: the tensors that are worth it as two narrow factors each.
    PowerSgd(PowerSgd),
    /// `batched_powerSGD_hook`: the whole bucket as one square.
    BatchedPowerSgd(PowerSgd),
    /// `quantization_pertensor_hook`.
    QuantizationPerTensor,
    /// `quantization_perchannel_hook`, in channels of 512 elements.
    QuantizationPerChannel,
    /// `post_localSGD_hook`: all ranks for some iterations, then a subgroup, or nobody.
    PostLocalSgd(PostLocalSgd),
}

/// `PowerSGDState`, as far as it decides what is communicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerSgd {
    /// `matrix_approximation_rank`.
    pub matrix_approximation_rank: u64,
    /// `start_powerSGD_iter`: iterations of plain `all_reduce` first.
    pub start_iter: u64,
    /// `min_compression_rate`.
    pub min_compression_rate: u64,
    /// `use_error_feedback`.
    pub use_error_feedback: bool,
    /// `warm_start`.
    pub warm_start: bool,
}

impl Default for PowerSgd {
    fn default() -> PowerSgd {
        PowerSgd {
            matrix_approximation_rank: 1,
            start_iter: 1000,
            min_compression_rate: 2,
            use_error_feedback: true,
            warm_start: true,
        }
    }
}

/// `PostLocalSGDState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostLocalSgd {
    /// `start_localSGD_iter`.
    pub start_iter: u64,
    /// Ranks of a subgroup: those of a node, as `new_subgroups` makes them.
    pub subgroup: u32,
    /// `post_local_gradient_allreduce`: whether the subgroup reduces gradients at all.
    pub post_local_gradient_allreduce: bool,
}

/// A bucket as a hook sees it (`GradBucket`).
#[derive(Clone, Copy, Debug)]
pub(super) struct GradBucket<'a> {
    pub(super) index: u32,
    pub(super) is_last: bool,
    pub(super) dtype: Dtype,
    pub(super) numel: u64,
    /// The shapes of its gradients, in order.
    pub(super) shapes: &'a [&'a [u64]],
}

/// A hook with its state.
#[derive(Clone, Debug)]
pub(super) struct HookState {
    hook: CommHook,
    iter: u64,
    stats: CompressionStats,
}

/// Elements before and after compression, over all iterations that compressed
/// (`PowerSGDState.compression_stats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompressionStats {
    /// `total_numel_before_compression`.
    pub before: u64,
    /// `total_numel_after_compression`.
    pub after: u64,
}

impl CompressionStats {
    /// How many elements became one; 0 before anything was compressed.
    pub fn rate(&self) -> f64 {
        if self.after > 0 { self.before as f64 / self.after as f64 } else { 0.0 }
    }

    fn add(&mut self, before: u64, after: u64) {
        self.before = self.before.saturating_add(before);
        self.after = self.after.saturating_add(after);
    }
}

const CHANNEL: u64 = 512;

impl CommHook {
    /// A hook without a cast.
    pub fn new(algorithm: HookAlgorithm) -> CommHook {
        CommHook { compress: None, algorithm }
    }

    /// `fp16_compress_hook`, `bf16_compress_hook`.
    pub fn compress(dtype: Dtype) -> CommHook {
        CommHook { compress: Some(dtype), algorithm: HookAlgorithm::AllReduce }
    }
}

impl HookState {
    /// # Errors
    /// When `PowerSGDState` would refuse its arguments.
    pub(super) fn new(hook: CommHook) -> Result<HookState, DdpError> {
        if let HookAlgorithm::PowerSgd(state) | HookAlgorithm::BatchedPowerSgd(state) =
            hook.algorithm
            && (state.use_error_feedback || state.warm_start)
            && state.start_iter <= 1
        {
            return Err(DdpError::PowerSgdStart);
        }
        Ok(HookState { hook, iter: 0, stats: CompressionStats::default() })
    }

    /// What PowerSGD has compressed; none for other hooks.
    pub(super) fn stats(&self) -> Option<CompressionStats> {
        let power = matches!(
            self.hook.algorithm,
            HookAlgorithm::PowerSgd(_) | HookAlgorithm::BatchedPowerSgd(_)
        );
        power.then_some(self.stats)
    }

    /// What the hook issues for a bucket, in order.
    pub(super) fn run(&mut self, bucket: &GradBucket<'_>, calls: &mut Vec<DdpCall>) {
        let dtype = self.hook.compress.unwrap_or(bucket.dtype);
        let (index, numel) = (bucket.index, bucket.numel);
        let whole = DdpCall::all_reduce(dtype, numel, Purpose::Bucket { bucket: index });
        let part = |part, numel| {
            DdpCall::all_reduce(dtype, numel, Purpose::HookPart { bucket: index, part })
        };
        let gathered = |dtype, part, numel| {
            DdpCall::all_gather(dtype, numel, Purpose::HookPart { bucket: index, part })
        };
        let iter = self.iter;
        self.iter += u64::from(bucket.is_last);
        match self.hook.algorithm {
            HookAlgorithm::AllReduce => calls.push(whole),
            HookAlgorithm::Noop => {}
            HookAlgorithm::PowerSgd(state) | HookAlgorithm::BatchedPowerSgd(state)
                if iter < state.start_iter =>
            {
                calls.push(whole);
            }
            HookAlgorithm::PowerSgd(state) => {
                let [uncompressed, p, q] = factors(&state, bucket.shapes);
                let after = uncompressed.saturating_add(p).saturating_add(q);
                self.stats.add(numel, after);
                calls.push(part(HookPart::Uncompressed, uncompressed));
                calls.push(part(HookPart::P, p));
                calls.push(part(HookPart::Q, q));
            }
            HookAlgorithm::BatchedPowerSgd(state) => {
                let root = numel.isqrt();
                let side = root + u64::from(root * root < numel);
                let factor = side.saturating_mul(state.matrix_approximation_rank);
                self.stats.add(numel, factor.saturating_mul(2));
                calls.push(part(HookPart::P, factor));
                calls.push(part(HookPart::Q, factor));
            }
            HookAlgorithm::QuantizationPerTensor => {
                calls.push(gathered(Dtype::Float32, HookPart::Scales, 2));
                calls.push(gathered(Dtype::Uint8, HookPart::Quantized, numel));
            }
            HookAlgorithm::QuantizationPerChannel => {
                // A bucket of whole channels is padded by one more.
                let channels = numel / CHANNEL + 1;
                calls.push(gathered(Dtype::Float32, HookPart::Scales, 2 * channels));
                calls.push(gathered(Dtype::Uint8, HookPart::Quantized, channels * CHANNEL));
            }
            HookAlgorithm::PostLocalSgd(state) => {
                if iter < state.start_iter {
                    calls.push(whole);
                } else if state.post_local_gradient_allreduce {
                    calls.push(DdpCall { subgroup: Some(state.subgroup), ..whole });
                }
            }
        }
    }
}

/// Elements that PowerSGD communicates of a bucket: as they are, as left and as right factors
/// (`_should_compress`).
fn factors(state: &PowerSgd, shapes: &[&[u64]]) -> [u64; 3] {
    let [mut uncompressed, mut p, mut q] = [0u64; 3];
    for shape in shapes {
        let rows = shape.first().copied().unwrap_or(1);
        let columns = shape.iter().skip(1).copied().fold(1, u64::saturating_mul);
        let rank = state.matrix_approximation_rank.min(rows).min(columns);
        let compressed = u128::from(rows + columns) * u128::from(rank);
        let whole = u128::from(rows) * u128::from(columns);
        if compressed * u128::from(state.min_compression_rate) < whole {
            p = p.saturating_add(rows.saturating_mul(rank));
            q = q.saturating_add(columns.saturating_mul(rank));
        } else {
            uncompressed = uncompressed.saturating_add(rows.saturating_mul(columns));
        }
    }
    [uncompressed, p, q]
}
