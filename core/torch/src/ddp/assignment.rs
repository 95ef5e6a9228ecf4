//! DDP's buckets before and after the rebuild.
//!
//! Before the first backward pass the order in which gradients become ready is unknown. 2.x then puts all
//! gradients of a type in one bucket (`distributed.py`, `_ddp_init_helper`: `bucket_size_limits =
//! [sys.maxsize]`) and builds the real buckets from the order that it saw (`reducer.cpp`, `rebuild_buckets`).
//! With `find_unused_parameters` it never rebuilds, and takes the reverse of registration for that order from
//! the start.

use super::buckets::{Bucket, ItemOrder, SizedTensor, assign_by_size};
use super::model::Model;
use super::options::{BucketCap, DEFAULT_FIRST_BUCKET_BYTES, DdpOptions, DdpVersion};
use lockstep_core::dtype::Dtype;

/// A parameter that requires grad, as the reducer sees it. Its index is its place among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketParam {
    /// Its element type.
    pub dtype: Dtype,
    /// Its number of elements.
    pub numel: u64,
    /// True if the parameter's gradient is sparse (`nn.Embedding(sparse=True)`).
    pub sparse: bool,
}

impl BucketParam {
    fn sized(&self, index: u32) -> SizedTensor {
        let bytes = self.numel.saturating_mul(self.dtype.size_bytes());
        SizedTensor { index, dtype: self.dtype, bytes, sparse: self.sparse }
    }
}

impl Model {
    /// The parameters that require grad, as the bucket assignment takes them.
    pub fn bucket_params(&self) -> Vec<BucketParam> {
        let params = self.trained();
        let params = params.map(|param| BucketParam {
            dtype: param.dtype,
            numel: param.numel(),
            sparse: param.sparse,
        });
        params.collect()
    }
}

/// The buckets of the constructor, in the order in which they are launched.
pub(crate) fn initial_buckets(params: &[BucketParam], options: &DdpOptions) -> Vec<Bucket> {
    let limits = match (options.version, &options.bucket_cap) {
        (DdpVersion::V1, cap) => vec![DEFAULT_FIRST_BUCKET_BYTES, cap.cap_bytes() as u64],
        (_, BucketCap::List(list)) if !list.is_empty() => limits_of(list),
        _ if options.rebuilds() => Vec::new(),
        (_, BucketCap::Bytes(bytes)) => vec![*bytes as u64],
        (_, cap) => vec![DEFAULT_FIRST_BUCKET_BYTES, cap.cap_bytes() as u64],
    };
    let tensors: Vec<_> = params.iter().zip(0..).map(|(param, index)| param.sized(index)).collect();
    let mut buckets = assign_by_size(&tensors, &limits, ItemOrder::Registration);
    // The last parameters' gradients come first.
    buckets.reverse();
    buckets
}

/// The buckets after the rebuild, in the order in which they are launched, for the order in which
/// rank 0's gradients became ready; `None` when they are never rebuilt. Indices past the last
/// parameter are left out.
pub(crate) fn rebuilt_buckets(
    params: &[BucketParam],
    ready_order: &[u32],
    options: &DdpOptions,
) -> Option<Vec<Bucket>> {
    if !options.rebuilds() {
        return None;
    }
    let limits = match (options.version, &options.bucket_cap) {
        (DdpVersion::V1, cap) => vec![DEFAULT_FIRST_BUCKET_BYTES, cap.cap_bytes() as u64],
        (_, BucketCap::List(list)) if !list.is_empty() => limits_of(list),
        (_, cap) => vec![cap.first_bytes() as u64, cap.cap_bytes() as u64],
    };
    let known = ready_order.iter().filter_map(|&index| {
        let param = params.get(index as usize)?;
        Some(param.sized(index))
    });
    let mut tensors: Vec<_> = known.collect();
    // The small bucket is to be the last one, so it is filled first, from the other end; the order
    // inside the buckets stays turned round.
    if options.set_last_bucket_cap {
        tensors.reverse();
    }
    let mut buckets = assign_by_size(&tensors, &limits, ItemOrder::GradReady);
    if options.set_last_bucket_cap {
        buckets.reverse();
    }
    Some(buckets)
}

/// Limits in bytes; a negative one wraps as in C++'s `size_t`.
fn limits_of(list: &[i64]) -> Vec<u64> {
    list.iter().map(|bytes| *bytes as u64).collect()
}
