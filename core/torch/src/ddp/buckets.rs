//! The assignment of tensors to buckets: c10d's `compute_bucket_assignment_by_size` (`reducer.cpp`).
//!
//! The same function decides about gradients and about the coalesced broadcasts of the module's states
//! (`comm.cpp`, `broadcast_coalesced`).

use lockstep_core::dtype::Dtype;

/// A tensor to be put in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizedTensor {
    /// Its index, as the buckets list it.
    pub index: u32,
    /// Its element type: tensors of different types never share a bucket.
    pub dtype: Dtype,
    /// Its size in bytes.
    pub bytes: u64,
    /// True if DDP expects a sparse gradient of the parameter, which then has a bucket of its own.
    pub sparse: bool,
}

/// The meaning of the tensors' order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemOrder {
    /// The order of registration: buckets are sorted by their smallest index
    /// (`tensor_indices` is empty in PyTorch).
    Registration,
    /// The order in which gradients become ready: buckets stay in the order in which they filled.
    GradReady,
}

/// Tensors that are communicated in one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Indices of the tensors, in the order in which they lie in the bucket.
    pub indices: Vec<u32>,
    /// Their size in bytes.
    pub bytes: u64,
    /// The size at which it was full, in bytes; 0 for a sparse gradient's, which has none.
    pub limit: u64,
}

/// Assigns tensors to buckets. A bucket is closed when its size has *reached* the limit after a
/// tensor was added, so that buckets overshoot; no tensor is split. The first bucket of a type is
/// held to `limits[0]`, the next to `limits[1]` and so on; the last limit repeats. Without limits
/// there is one bucket per type.
///
/// Buckets that are still open at the end follow in the reverse order in which their types were
/// first seen, which is how libstdc++ iterates the map that PyTorch keeps them in (recorded:
/// `leftover_order.json`), unless [`ItemOrder::Registration`] sorts them.
pub(crate) fn assign_by_size(
    tensors: &[SizedTensor],
    limits: &[u64],
    order: ItemOrder,
) -> Vec<Bucket> {
    let mut closed: Vec<Bucket> = Vec::new();
    let mut open: Vec<OpenBucket> = Vec::new();
    for tensor in tensors {
        if tensor.sparse {
            closed.push(Bucket { indices: vec![tensor.index], bytes: tensor.bytes, limit: 0 });
            continue;
        }
        let place = match open.iter().position(|bucket| bucket.dtype == tensor.dtype) {
            Some(place) => place,
            None => {
                open.push(OpenBucket::new(tensor.dtype));
                open.len() - 1
            }
        };
        let bucket = &mut open[place];
        bucket.indices.push(tensor.index);
        bucket.bytes = bucket.bytes.saturating_add(tensor.bytes);
        let limit = bucket.limit(limits);
        if bucket.bytes >= limit {
            closed.push(bucket.close(limit));
            bucket.closed += 1;
        }
    }
    for bucket in open.iter_mut().rev().filter(|bucket| !bucket.indices.is_empty()) {
        let limit = bucket.limit(limits);
        closed.push(bucket.close(limit));
    }
    if order == ItemOrder::Registration {
        closed.sort_by_key(|bucket| bucket.indices.iter().copied().min());
    }
    closed
}

/// The bucket of a type that is being filled.
struct OpenBucket {
    dtype: Dtype,
    indices: Vec<u32>,
    bytes: u64,
    /// Buckets of the type that have been closed: how far the type is in the list of limits.
    closed: usize,
}

impl OpenBucket {
    fn new(dtype: Dtype) -> OpenBucket {
        OpenBucket { dtype, indices: Vec::new(), bytes: 0, closed: 0 }
    }

    fn limit(&self, limits: &[u64]) -> u64 {
        limits.get(self.closed).or(limits.last()).copied().unwrap_or(u64::MAX)
    }

    fn close(&mut self, limit: u64) -> Bucket {
        let indices = std::mem::take(&mut self.indices);
        Bucket { indices, bytes: std::mem::take(&mut self.bytes), limit }
    }
}
