//! DistributedDataParallel's own functions, as they are seen in the stacks of calls.

use lockstep_core::trace::Frame;

/// True if one of the functions that made the call has this name.
pub(crate) fn is_within(stack: &[Frame], function: &str) -> bool {
    stack.iter().any(|frame| frame.function == function)
}

/// True if the stack is one of DDP's: its forward, or the backward that reduces its buckets.
pub(crate) fn is_ddp(stack: &[Frame]) -> bool {
    let in_file = |frame: &Frame, file: &str| frame.file.replace('\\', "/").ends_with(file);
    stack.iter().any(|frame| {
        in_file(frame, "torch/nn/parallel/distributed.py")
            || (frame.function == "_engine_run_backward"
                && in_file(frame, "torch/autograd/graph.py"))
    })
}

/// The function in which DDP's constructor compares the models.
pub(crate) const VERIFY: &str = "_verify_param_shape_across_processes";

/// The function in which DDP begins a forward pass: it shares buffers, and asks under `join()` who still has
/// inputs.
pub(crate) const FORWARD: &str = "_pre_forward";
