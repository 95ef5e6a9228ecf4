//! The backends that carry a call out, by PyTorch's table of them.

/// Every backend.
pub(super) const ANY: &[&str] = &["gloo", "nccl", "host"];
/// Every backend but NCCL.
pub(super) const NO_NCCL: &[&str] = &["gloo", "host"];
/// Every backend but gloo.
pub(super) const NO_GLOO: &[&str] = &["nccl", "host"];
