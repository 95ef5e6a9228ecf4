//! Works: the result of an asynchronous call (`torch.distributed.Work`), and the state that its rank knows.

use super::error::DistError;
use super::tensor::Tensor;
use super::tensors::Temporary;
use lockstep_core::plan::Action;

/// The work of an asynchronous call of one rank. `all_reduce_coalesced` and `all_gather_coalesced`
/// return a `Future` in PyTorch; it is this work's, and `future.wait()` is [`Dist::wait`](super::Dist::wait).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Work(pub(super) u32);

/// A rank's knowledge of a work of its own.
#[derive(Clone, Debug)]
pub(super) struct WorkState {
    /// The call that returned it.
    pub(super) via: &'static str,
    /// Its operations in the program.
    pub(super) ops: Vec<u32>,
    /// Copies that follow its completion.
    pub(super) after: Vec<Action>,
    pub(super) temporaries: Vec<Temporary>,
    /// The error that it ends with, if the backend refuses it.
    pub(super) fault: Option<DistError>,
    pub(super) waited: bool,
    /// True if the program no longer holds the work.
    pub(super) dropped: bool,
    /// True if NCCL carries out the call.
    pub(super) on_nccl: bool,
    /// Elements of the first tensor that it reads.
    pub(super) given: u64,
    /// The user's tensors that it writes.
    pub(super) writes: Vec<Tensor>,
}
