//! The reasons that a rank on a device ends.

use crate::nccl::error::DeviceError;

/// The reason that a rank ends: its device or the plan.
#[derive(Debug, thiserror::Error)]
pub(super) enum RankError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Unsupported(#[from] crate::nccl::lower::Unsupported),
    #[error("cannot meet the other ranks: {0}")]
    Store(#[from] crate::store::StoreError),
    #[error("{0}")]
    Other(String),
}
