//! `torch.nn.parallel.DistributedDataParallel`, bucket for bucket.
//!
//! `buckets` is c10d's assignment of gradients to buckets and `assignment` what DDP asks of it at
//! construction and after the first backward pass. All of it is a pure function of the parameters,
//! the options and the order in which gradients become ready.
//!
//! Sources: PyTorch's `torch/csrc/distributed/c10d/reducer.cpp`, `reducer.hpp` and
//! `torch/nn/parallel/distributed.py`, and what real runs of PyTorch 2.7.1 and 2.15.0 did
//! (`tests/data/pytorch`).

mod assignment;
mod buckets;
mod indices;
pub mod model;
mod options;

pub use assignment::{BucketParam, initial_buckets, rebuilt_buckets};
pub use buckets::{Bucket, ItemOrder, SizedTensor, assign_by_size};
pub use indices::{IndexListError, format_indices, parse_indices};
pub use options::{
    BucketCap, BucketCapError, DEFAULT_BUCKET_CAP_BYTES, DEFAULT_FIRST_BUCKET_BYTES, DdpOptions,
    DdpVersion,
};

#[cfg(test)]
mod truth;
