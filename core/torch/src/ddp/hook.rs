//! Communication hooks: the calls that replace a bucket's `all_reduce`.
//!
//! Sources: `torch/distributed/algorithms/ddp_comm_hooks/*.py`. A hook gets the gradients as they are; only
//! the reducer's own `all_reduce` divides them beforehand.

use super::call::{DdpCall, HookPart, Purpose};
use super::error::{CallbackError, DdpError};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::BackendName;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A communication hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommHook {
    /// `fp16_compress_wrapper`, `bf16_compress_wrapper`: the hook finds the bucket cast to this type.
    #[serde(default)]
    pub wrapper: Option<Dtype>,
    /// The treatment of the bucket.
    pub algorithm: HookAlgorithm,
}

/// The treatment of a bucket by a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookAlgorithm {
    /// `allreduce_hook`.
    AllReduce,
    /// `fp16_compress_hook`, `bf16_compress_hook`, and DDP's own mixed precision: the bucket is cast
    /// to this type, whatever a wrapper has made of it.
    Compress(Dtype),
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
    /// `post_localSGD_hook`: all ranks for some iterations, then a subgroup, or no ranks.
    PostLocalSgd(PostLocalSgd),
}

/// `PowerSGDState`, as far as it decides the hook's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerSgd {
    /// `matrix_approximation_rank`.
    pub matrix_approximation_rank: u64,
    /// `start_powerSGD_iter`: iterations of plain `all_reduce` first.
    pub start_iter: u64,
    /// `min_compression_rate`.
    pub min_compression_rate: CompressionRate,
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
            min_compression_rate: CompressionRate(2.0),
            use_error_feedback: true,
            warm_start: true,
        }
    }
}

/// The factor by which the factors of a tensor have to be smaller than it is: any finite number, as
/// PyTorch takes it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct CompressionRate(f64);

/// Every finite number equals itself.
impl Eq for CompressionRate {}

impl CompressionRate {
    /// True if so many elements are worth sending in the place of so many, PyTorch's
    /// `compressed_size * min_compression_rate < uncompressed_size`.
    fn is_met(self, compressed: u64, whole: u64) -> bool {
        compressed as f64 * self.0 < whole as f64
    }
}

/// A rate that is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("min_compression_rate is a finite number, as 2 or 1.5")]
pub struct NoRate;

impl TryFrom<f64> for CompressionRate {
    type Error = NoRate;

    fn try_from(rate: f64) -> Result<CompressionRate, NoRate> {
        if rate.is_finite() { Ok(CompressionRate(rate)) } else { Err(NoRate) }
    }
}

impl From<CompressionRate> for f64 {
    fn from(rate: CompressionRate) -> f64 {
        rate.0
    }
}

impl FromStr for CompressionRate {
    type Err = NoRate;

    fn from_str(text: &str) -> Result<CompressionRate, NoRate> {
        text.trim().parse::<f64>().map_err(|_| NoRate)?.try_into()
    }
}

impl fmt::Display for CompressionRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
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
    /// True if the bucket is the single sparse gradient of a bucket of its own.
    pub(super) sparse: bool,
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
    /// The number of elements that became one; 0 before anything was compressed.
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
        CommHook { wrapper: None, algorithm }
    }

    /// The name of `lockstep ddp` and `docs/ddp_record.py` for it; a wrapper's type comes before.
    pub fn name(&self) -> String {
        let compress = |dtype| match dtype {
            Dtype::Float16 => "fp16-compress",
            _ => "bf16-compress",
        };
        let name = match self.algorithm {
            HookAlgorithm::AllReduce => "allreduce",
            HookAlgorithm::Compress(dtype) => compress(dtype),
            HookAlgorithm::Noop => "noop",
            HookAlgorithm::PowerSgd(_) => "power-sgd",
            HookAlgorithm::BatchedPowerSgd(_) => "batched-power-sgd",
            HookAlgorithm::QuantizationPerTensor => "quantization-pertensor",
            HookAlgorithm::QuantizationPerChannel => "quantization-perchannel",
            HookAlgorithm::PostLocalSgd(_) => "post-local-sgd",
        };
        match self.wrapper {
            None => name.to_owned(),
            Some(dtype) => format!("{} {name}", compress(dtype)),
        }
    }

    /// `fp16_compress_hook`, `bf16_compress_hook`.
    pub fn compress(dtype: Dtype) -> CommHook {
        CommHook::new(HookAlgorithm::Compress(dtype))
    }

    /// `fp16_compress_wrapper`, `bf16_compress_wrapper` around a hook.
    pub fn wrapping(dtype: Dtype, algorithm: HookAlgorithm) -> CommHook {
        CommHook { wrapper: Some(dtype), algorithm }
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

    /// Statistics of PowerSGD's compression; none for other hooks.
    pub(super) fn stats(&self) -> Option<CompressionStats> {
        let power = matches!(
            self.hook.algorithm,
            HookAlgorithm::PowerSgd(_) | HookAlgorithm::BatchedPowerSgd(_)
        );
        power.then_some(self.stats)
    }

    /// The calls that the hook issues for a bucket, in order, on a backend if it is known.
    ///
    /// # Errors
    /// The error that the hook raises, at once or in its callback.
    pub(super) fn run(
        &mut self,
        bucket: &GradBucket<'_>,
        backend: Option<BackendName>,
        calls: &mut Vec<DdpCall>,
    ) -> Result<(), HookError> {
        let gloo = backend == Some(BackendName::Gloo);
        let earlier = calls.len();
        let dtype = match self.hook.algorithm {
            HookAlgorithm::Compress(dtype) => dtype,
            _ => self.hook.wrapper.unwrap_or(bucket.dtype),
        };
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
            HookAlgorithm::AllReduce | HookAlgorithm::Compress(_) => calls.push(whole),
            HookAlgorithm::Noop => {}
            HookAlgorithm::QuantizationPerTensor if bucket.sparse => {
                return Err(dense_only("aten::aminmax", gloo));
            }
            HookAlgorithm::QuantizationPerChannel if bucket.sparse => {
                return Err(dense_only("aten::fill_.Scalar", gloo));
            }
            HookAlgorithm::PowerSgd(state) | HookAlgorithm::BatchedPowerSgd(state)
                if iter < state.start_iter =>
            {
                calls.push(whole);
            }
            HookAlgorithm::PowerSgd(state) => {
                // `bucket.gradients()` of a sparse bucket is empty: nothing of it is sent.
                let (shapes, before) = match bucket.sparse {
                    true => (&[][..], 0),
                    false => (bucket.shapes, numel),
                };
                if let Some(error) = shapes.iter().find_map(|shape| no_matrix(shape)) {
                    return Err(HookError::AtOnce(error));
                }
                let [uncompressed, p, q] = factors(&state, shapes);
                let after = uncompressed.saturating_add(p).saturating_add(q);
                self.stats.add(before, after);
                calls.push(part(HookPart::Uncompressed, uncompressed));
                calls.push(part(HookPart::P, p));
                calls.push(part(HookPart::Q, q));
            }
            HookAlgorithm::BatchedPowerSgd(state) => {
                // For a sparse tensor the first dimension is taken for the length.
                let rows = bucket.shapes.first().and_then(|shape| shape.first()).copied();
                let length = if bucket.sparse { rows.unwrap_or(1) } else { numel };
                let root = length.isqrt();
                let side = root + u64::from(root * root < length);
                let factor = side.saturating_mul(state.matrix_approximation_rank);
                self.stats.add(length, factor.saturating_mul(2));
                if bucket.sparse {
                    return Err(dense_only("aten::resize_", gloo));
                }
                calls.push(part(HookPart::P, factor));
                calls.push(part(HookPart::Q, factor));
            }
            HookAlgorithm::QuantizationPerTensor => {
                calls.push(gathered(Dtype::Float32, HookPart::Scales, 2));
                if gloo {
                    // The scales come back as a vector, of which it takes two indices.
                    return Err(self.in_callback(CallbackError::PerTensorScales));
                }
                calls.push(gathered(Dtype::Uint8, HookPart::Quantized, numel));
            }
            HookAlgorithm::QuantizationPerChannel => {
                // A bucket of whole channels is padded by one more.
                let channels = numel / CHANNEL + 1;
                calls.push(gathered(Dtype::Float32, HookPart::Scales, 2 * channels));
                if gloo {
                    return Err(self.in_callback(CallbackError::PerChannelScales));
                }
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
        let reduced = calls.iter().skip(earlier).any(|call| {
            matches!(call.purpose, Purpose::Bucket { .. }) && call.dtype == Dtype::Float16
        });
        if gloo && bucket.sparse && reduced {
            return Err(self.in_callback(CallbackError::SparseHalf));
        }
        Ok(())
    }

    fn in_callback(&self, error: CallbackError) -> HookError {
        let wrapped = self.hook.wrapper.is_some();
        HookError::InCallback(DdpError::Callback { error, wrapped })
    }
}

/// An error that a hook raises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HookError {
    /// As it is called: the backward pass ends there.
    AtOnce(DdpError),
    /// In its callback, which comes to light at the end of the backward pass.
    InCallback(DdpError),
}

/// PyTorch's error for an operation that sparse tensors do not have.
fn dense_only(operation: &'static str, cpu: bool) -> HookError {
    HookError::AtOnce(DdpError::SparseBucket { operation, cpu })
}

/// `tensor.view(tensor.shape[0], -1)`: PyTorch 2.7.1's error for a gradient that it cannot view as a matrix.
fn no_matrix(shape: &[u64]) -> Option<DdpError> {
    match shape.first() {
        None => Some(DdpError::ScalarGradient),
        Some(0) => Some(DdpError::EmptyMatrix),
        Some(_) => None,
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
        let compressed = rows.saturating_add(columns).saturating_mul(rank);
        if state.min_compression_rate.is_met(compressed, rows.saturating_mul(columns)) {
            p = p.saturating_add(rows.saturating_mul(rank));
            q = q.saturating_add(columns.saturating_mul(rank));
        } else {
            uncompressed = uncompressed.saturating_add(rows.saturating_mul(columns));
        }
    }
    [uncompressed, p, q]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers of `_should_compress` in PyTorch 2.7.1, for whole rates and others.
    #[test]
    fn what_is_worth_compressing() {
        let cases: [(u64, u64, u64, &str, bool); 12] = [
            (64, 64, 1, "32", false),
            (64, 64, 1, "31.9", true),
            (64, 64, 1, "32.5", false),
            (10, 7, 1, "4.1", true),
            (10, 7, 1, "4.2", false),
            (10, 7, 2, "2.05", true),
            (10, 7, 2, "2.06", false),
            (3, 3, 1, "1.5", false),
            (3, 3, 1, "1.49", true),
            (2, 2, 2, "0.49", true),
            (2, 2, 2, "0.5", false),
            (2, 2, 2, "-1", true),
        ];
        for (rows, columns, rank, rate, compressed) in cases {
            let state = PowerSgd {
                matrix_approximation_rank: rank,
                min_compression_rate: rate.parse().unwrap(),
                ..PowerSgd::default()
            };
            let [whole, p, q] = factors(&state, &[&[rows, columns]]);
            let told =
                if compressed { [0, rows * rank, columns * rank] } else { [rows * columns, 0, 0] };
            assert_eq!([whole, p, q], told, "{rows}x{columns}, rank {rank}, rate {rate}");
        }
        assert!("nan".parse::<CompressionRate>().is_err());
        assert!("two".parse::<CompressionRate>().is_err());
    }

    /// The behaviour of PyTorch 2.7.1 with a parameter of these shapes, in the third iteration.
    #[test]
    fn what_is_no_matrix_is_refused_when_it_is_first_compressed() {
        let run = |shape: &[u64]| {
            let state = PowerSgd { start_iter: 2, ..PowerSgd::default() };
            let mut hook = HookState::new(CommHook::new(HookAlgorithm::PowerSgd(state))).unwrap();
            let numel = 900 + shape.iter().product::<u64>();
            let shapes: [&[u64]; 2] = [&[30, 30], shape];
            let (index, dtype) = (0, Dtype::Float32);
            let bucket =
                GradBucket { index, is_last: true, dtype, numel, sparse: false, shapes: &shapes };
            let mut run = || hook.run(&bucket, Some(BackendName::Gloo), &mut Vec::new());
            assert_eq!([run(), run()], [Ok(()), Ok(())]);
            run()
        };
        assert_eq!(run(&[5, 0]), Ok(()));
        for (shape, class, about) in [
            (&[0][..], "RuntimeError", "cannot reshape tensor of 0 elements into shape [0, -1]"),
            (&[0, 5], "RuntimeError", "cannot reshape tensor of 0 elements into shape [0, -1]"),
            (&[], "IndexError", "tuple index out of range"),
        ] {
            let Err(HookError::AtOnce(error)) = run(shape) else { panic!("{shape:?}") };
            assert_eq!(error.class(), class);
            assert!(error.to_string().starts_with(about), "{error}");
        }
    }
}
