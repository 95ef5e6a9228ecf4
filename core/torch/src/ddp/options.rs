//! DDP's arguments, as far as they decide the communication.

use super::hook::CommHook;
use super::zero::ZeroOverlap;
use lockstep_core::dtype::Dtype;
use serde::{Deserialize, Serialize};

/// `dist._DEFAULT_FIRST_BUCKET_BYTES` (`kDefaultFirstBucketBytes` in `reducer.hpp`): 1 MiB.
pub(crate) const DEFAULT_FIRST_BUCKET_BYTES: u64 = 1 << 20;
/// The cap when `bucket_cap_mb` is left out (`kDefaultBucketBytesCap`): 25 MiB.
pub(crate) const DEFAULT_BUCKET_CAP_BYTES: u64 = 25 << 20;

/// The PyTorch whose rules are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DdpVersion {
    /// The 1.x source: the first bucket is 1 MiB whatever the cap, also before the rebuild.
    #[serde(rename = "1.x")]
    V1,
    /// 2.7: one bucket per type before the rebuild, and an explicit cap holds for the first bucket.
    #[default]
    #[serde(rename = "2.7")]
    V2_7,
    /// 2.15: as 2.7, and `bucket_cap_mb_list`.
    #[serde(rename = "2.15")]
    V2_15,
}

impl DdpVersion {
    /// Every version, oldest first.
    pub const ALL: [DdpVersion; 3] = [DdpVersion::V1, DdpVersion::V2_7, DdpVersion::V2_15];

    /// Its name: `1.x`, `2.7`, `2.15`.
    pub fn name(self) -> &'static str {
        match self {
            DdpVersion::V1 => "1.x",
            DdpVersion::V2_7 => "2.7",
            DdpVersion::V2_15 => "2.15",
        }
    }
}

/// `bucket_cap_mb`, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BucketCap {
    /// Left out: 25 MiB, and 1 MiB for the first bucket.
    #[default]
    Default,
    /// An explicit cap in bytes, also of 25 MiB: it holds for the first bucket too. 0 gives every
    /// parameter a bucket; a negative one is read as an unsigned number, so that nothing reaches it.
    Bytes(i64),
    /// `bucket_cap_mb_list` of 2.15, in bytes: it holds before the rebuild too. An empty list is
    /// [`BucketCap::Default`].
    List(Vec<i64>),
}

/// The reason that a number of MB is no cap.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "bucket_cap_mb is {mb}, which is no number of bytes that DDP's reducer takes (a signed 64-bit \
     integer: Python raises); give a number of MiB below 8796093022208"
)]
pub struct BucketCapError {
    mb: String,
}

impl BucketCap {
    /// `int(bucket_cap_mb * 1024 * 1024)`: MiB, towards zero.
    ///
    /// # Errors
    /// When `mb` is not finite or its bytes do not fit 63 bits.
    pub fn from_mb(mb: f64) -> Result<BucketCap, BucketCapError> {
        Ok(BucketCap::Bytes(bytes_of_mb(mb)?))
    }

    /// `bucket_cap_mb_list`, each entry as in [`BucketCap::from_mb`].
    ///
    /// # Errors
    /// As [`BucketCap::from_mb`].
    pub fn from_mb_list(mb: &[f64]) -> Result<BucketCap, BucketCapError> {
        Ok(BucketCap::List(mb.iter().map(|mb| bytes_of_mb(*mb)).collect::<Result<_, _>>()?))
    }

    /// The cap that DDP's log shows (`bucket_cap_bytes`): the largest of a list.
    pub fn cap_bytes(&self) -> i64 {
        let default = DEFAULT_BUCKET_CAP_BYTES as i64;
        match self {
            BucketCap::Default => default,
            BucketCap::Bytes(bytes) => *bytes,
            BucketCap::List(list) => list.iter().copied().max().unwrap_or(default),
        }
    }

    /// The limit of the first bucket: 1 MiB if the cap was left out, else the cap.
    pub fn first_bytes(&self) -> i64 {
        match self {
            BucketCap::Bytes(bytes) => *bytes,
            BucketCap::List(list) if !list.is_empty() => list[0],
            _ => DEFAULT_FIRST_BUCKET_BYTES as i64,
        }
    }
}

fn bytes_of_mb(mb: f64) -> Result<i64, BucketCapError> {
    // A power of two: the product is exact.
    let bytes = mb * 1_048_576.0;
    // 2^63 itself is the first float that is too large.
    match bytes.is_finite() && bytes.abs() < 9_223_372_036_854_775_808.0 {
        true => Ok(bytes as i64),
        false => Err(BucketCapError { mb: mb.to_string() }),
    }
}

/// `_MixedPrecision`: the types in which DDP computes, reduces and keeps buffers. Buckets are filled by the
/// sizes of the full parameters. (`keep_low_precision_grads` is a wish in a comment of PyTorch 2.7: gradients
/// are cast back behind each reduction.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MixedPrecision {
    /// `param_dtype`: parameters in the passes, and so their gradients.
    pub param_dtype: Option<Dtype>,
    /// `reduce_dtype`: gradients as they are reduced; `param_dtype` if absent.
    pub reduce_dtype: Option<Dtype>,
    /// `buffer_dtype`: every buffer behind the constructor's broadcast, also those of integers,
    /// whatever PyTorch's documentation says.
    pub buffer_dtype: Option<Dtype>,
}

impl MixedPrecision {
    /// The hook that DDP registers for itself (`_reducer_allreduce_and_upcast_hook`).
    pub fn hook(&self) -> CommHook {
        match self.reduce_dtype.or(self.param_dtype) {
            Some(dtype) => CommHook::compress(dtype),
            None => CommHook::new(super::hook::HookAlgorithm::AllReduce),
        }
    }
}

/// `DistributedDataParallel`'s arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DdpOptions {
    /// `bucket_cap_mb` or `bucket_cap_mb_list`.
    pub bucket_cap: BucketCap,
    /// `find_unused_parameters`.
    pub find_unused_parameters: bool,
    /// `static_graph`.
    pub static_graph: bool,
    /// `gradient_as_bucket_view`: changes how the mean is formed, not the communication.
    pub gradient_as_bucket_view: bool,
    /// `broadcast_buffers`.
    pub broadcast_buffers: bool,
    /// `init_sync`: whether the constructor verifies and broadcasts the module.
    pub init_sync: bool,
    /// The environment variable `DDP_SET_LAST_BUCKET_CAP=1`: the small bucket is the last one.
    pub set_last_bucket_cap: bool,
    /// The PyTorch whose rules are followed.
    pub version: DdpVersion,
    /// `_ddp_params_and_buffers_to_ignore`: names of parameters and buffers that DDP leaves alone.
    pub ignored: Vec<String>,
    /// `delay_all_reduce_named_params`: names of parameters that the reducer leaves to one
    /// `all_reduce` of their own.
    pub delay_all_reduce_named_params: Option<Vec<String>>,
    /// `param_to_hook_all_reduce`: the parameter whose gradient launches that `all_reduce`.
    pub param_to_hook_all_reduce: Option<String>,
    /// The communication hook, if one is registered.
    pub comm_hook: Option<CommHook>,
    /// `mixed_precision`, which brings a hook of its own.
    pub mixed_precision: Option<MixedPrecision>,
    /// `ZeroRedundancyOptimizer(overlap_with_ddp=True)` in the hook.
    pub zero_overlap: Option<ZeroOverlap>,
    /// `TORCH_DISTRIBUTED_DEBUG` is INFO or DETAIL: errors name parameters.
    pub debug: bool,
}

impl Default for DdpOptions {
    fn default() -> DdpOptions {
        DdpOptions {
            bucket_cap: BucketCap::Default,
            find_unused_parameters: false,
            static_graph: false,
            gradient_as_bucket_view: false,
            broadcast_buffers: true,
            init_sync: true,
            set_last_bucket_cap: false,
            version: DdpVersion::default(),
            ignored: Vec::new(),
            delay_all_reduce_named_params: None,
            param_to_hook_all_reduce: None,
            comm_hook: None,
            mixed_precision: None,
            zero_overlap: None,
            debug: false,
        }
    }
}

impl DdpOptions {
    /// Checks the arguments that depend on the number of ranks.
    ///
    /// # Errors
    /// The error that PyTorch raises when the groups that a hook needs are made.
    pub fn check(&self, world_size: u32) -> Result<(), super::DdpError> {
        match self.comm_hook.map(|hook| hook.algorithm) {
            Some(super::HookAlgorithm::PostLocalSgd(state)) => {
                super::check_subgroups(state.subgroup, world_size)
            }
            _ => Ok(()),
        }
    }

    /// The limit of the first bucket in bytes: 1.x has its 1 MiB whatever the cap.
    pub fn first_bytes(&self) -> i64 {
        match self.version {
            DdpVersion::V1 => DEFAULT_FIRST_BUCKET_BYTES as i64,
            _ => self.bucket_cap.first_bytes(),
        }
    }

    /// True if the buckets are built anew from the order in which gradients became ready
    /// (`Reducer::should_rebuild_buckets`).
    pub fn rebuilds(&self) -> bool {
        self.static_graph || !self.find_unused_parameters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mb_become_bytes_as_pythons_int_does() {
        assert_eq!(BucketCap::from_mb(0.001), Ok(BucketCap::Bytes(1048)));
        assert_eq!(BucketCap::from_mb(-1.0), Ok(BucketCap::Bytes(-1_048_576)));
        assert_eq!(BucketCap::from_mb(-0.0000001), Ok(BucketCap::Bytes(0)));
        for bad in [f64::NAN, f64::INFINITY, 1e13] {
            assert!(BucketCap::from_mb(bad).is_err(), "{bad}");
        }
        assert_eq!(BucketCap::Default.first_bytes(), 1 << 20);
        assert_eq!(BucketCap::from_mb(25.0).unwrap().first_bytes(), 25 << 20);
        let bucket_cap = BucketCap::from_mb(35.0).unwrap();
        let of =
            |version| DdpOptions { version, bucket_cap: bucket_cap.clone(), ..Default::default() };
        // #48880: 1.x kept 1 MiB for the first bucket.
        assert_eq!(of(DdpVersion::V1).first_bytes(), 1 << 20);
        assert_eq!(of(DdpVersion::V2_7).first_bytes(), 35 << 20);
    }
}
