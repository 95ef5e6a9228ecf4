//! The same call, as two sources write it.

use lockstep_core::trace::{CallRecord, Called, TensorShape};

/// Collectives that every source writes as one call. (A gather and an all_to_all are sends and
/// receives to NCCL, a coalesced call is several.)
pub(super) fn is_visible(record: &CallRecord) -> bool {
    matches!(
        record.call.op.as_str(),
        "all_reduce" | "broadcast" | "reduce" | "all_gather" | "reduce_scatter" | "barrier"
    )
}

/// True if two sources can mean the same call.
pub(super) fn agree(a: &CallRecord, b: &CallRecord) -> bool {
    let (a, b) = (&a.call, &b.call);
    if [a, b].iter().any(|call| call.op == "barrier") {
        // PyTorch's barrier is an all_reduce of one element to NCCL.
        let is_barrier = |call: &Called| {
            call.op == "barrier" || (call.op == "all_reduce" && numel(&call.inputs) <= 1)
        };
        return is_barrier(a) && is_barrier(b);
    }
    let sizes =
        |a: &[TensorShape], b: &[TensorShape]| a.is_empty() || b.is_empty() || numel(a) == numel(b);
    let inputs = !a.inputs.is_empty() && !b.inputs.is_empty();
    a.op == b.op
        && match inputs {
            true => sizes(&a.inputs, &b.inputs),
            false => sizes(&a.outputs, &b.outputs),
        }
}

fn numel(tensors: &[TensorShape]) -> u64 {
    tensors.iter().fold(0, |sum, tensor| sum.saturating_add(tensor.numel()))
}
