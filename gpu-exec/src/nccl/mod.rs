//! The `nccl` backend's place: what it needs, where that was looked for, what was found.

mod probe;

pub use probe::{LibraryProbe, NcclProbe, probe, refusal};
