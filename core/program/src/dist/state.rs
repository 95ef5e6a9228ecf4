//! The state that a process keeps for torch.distributed's calls besides c10d's own.

use lockstep_torch::c10d::{Coalescer, Device, Group, Work};
use std::collections::BTreeMap;

/// A coalescing manager of a program: its arguments, whether a `with` is in it, and the work that resulted.
pub(crate) struct CoalescingManager {
    pub(crate) group: Option<Group>,
    pub(crate) device: Option<Device>,
    pub(crate) async_ops: bool,
    pub(crate) open: Option<Coalescer>,
    pub(crate) works: Vec<Work>,
}

/// The works that the names of one call of a function hold.
pub(crate) type NamedWorks = BTreeMap<String, Vec<Work>>;
