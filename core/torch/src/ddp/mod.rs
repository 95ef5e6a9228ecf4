//! `torch.nn.parallel.DistributedDataParallel`, bucket for bucket.
//!
//! `buckets` is c10d's assignment of gradients to buckets and `assignment` what DDP asks of it at
//! construction and after the first backward pass. All of it is a pure function of the parameters,
//! the options and the order in which gradients become ready.
//!
//! `Ddp` is the wrapper of one rank: its constructor, its forward passes and, through `Reducer`, its
//! backward passes, each as the collectives it issues. `join` runs several ranks with uneven inputs,
//! `averaging` says how the mean is formed, to the bit, `plan` writes a training run as a plan, and
//! `values` trains with numbers.
//!
//! Sources: PyTorch's `torch/csrc/distributed/c10d/reducer.cpp`, `reducer.hpp` and
//! `torch/nn/parallel/distributed.py`, and what real runs of PyTorch 2.7.1 and 2.15.0 did
//! (`tests/data/pytorch`).

mod after_step;
mod against;
mod assignment;
mod averager;
pub mod averaging;
mod buckets;
mod call;
mod error;
mod hook;
mod indices;
pub mod join;
mod join_calls;
pub mod lab;
mod left_out;
mod links;
pub mod model;
mod notes;
mod options;
mod pipeline;
pub mod plan;
mod reducer;
pub mod replicas;
mod report;
mod sparse;
pub mod timeline;
mod trouble;
pub mod values;
mod verify;
mod wrapper;
pub mod zero;

pub use after_step::{AfterSteps, AveragedStep, ShardedStep};
pub use against::{RecordedRun, RecordedRunError};
pub use assignment::BucketParam;
pub(crate) use averager::check_subgroups;
pub use averager::{AveragerTextError, ModelAverager};
pub use buckets::{Bucket, SizedTensor};
pub use call::{DdpCall, DdpOp, HookPart, Purpose};
pub use error::{CallbackError, DdpError, Unfinished};
pub use hook::{
    CommHook, CompressionRate, CompressionStats, HookAlgorithm, NoRate, PostLocalSgd, PowerSgd,
};
pub use indices::{IndexListError, format_indices, parse_indices};
pub use left_out::{NamingArgument, UnknownName};
pub use links::{Links, RingLink};
pub use notes::{CallNote, GradientNote, Half, LayerNote, Role, StepKind, StepNotes, TrainingRun};
pub use options::{BucketCap, BucketCapError, DdpOptions, DdpVersion, MixedPrecision};
pub use reducer::Reducer;
pub use report::{DdpReport, ErrorAt, Phase, ReportedCall};
pub use trouble::known_trouble;
pub use verify::{
    verify_device_ids, verify_params, verify_sync_batch_norm, verify_types, verify_zero_overlap,
};
pub use wrapper::{Ddp, Forward, InJoin, broadcast_coalesced};

#[cfg(test)]
mod tests;
