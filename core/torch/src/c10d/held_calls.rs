//! Calls that a coalescing manager holds back.

use super::tensor::Tensor;
use lockstep_core::reduce::ReduceOp;

/// Calls that a coalescing manager has held back so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Coalescing {
    pub(super) held: Vec<Held>,
}

/// A call held back by a coalescing manager. The first one's kind and operation are all of theirs.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) kind: HeldKind,
    pub(super) op: ReduceOp,
    pub(super) input: Tensor,
    pub(super) output: Option<Tensor>,
}

/// The kind of a call that is held back.
#[derive(Clone, Copy, Debug)]
pub(super) enum HeldKind {
    AllReduce,
    AllGather,
    ReduceScatter,
}
