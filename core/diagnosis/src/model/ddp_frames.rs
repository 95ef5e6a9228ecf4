//! DistributedDataParallel's own functions, as they are seen in the stacks of calls.

use lockstep_core::trace::Frame;

/// The part of DDP that makes a call by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DdpPart {
    /// The constructor compares the number and the shapes of the parameters.
    Verify,
    /// The constructor copies the first rank's parameters and buffers.
    ModuleStates,
    /// The forward pass: buffers, the order of rebuilt buckets, `join()`.
    Forward,
    /// The backward pass reduces buckets.
    Backward,
}

impl DdpPart {
    /// The part whose functions are in the stack of a call; `None` for a call that DDP does not make.
    pub(crate) fn of_stack(stack: &[Frame]) -> Option<DdpPart> {
        if !is_ddp(stack) {
            return None;
        }
        let backward = stack.first().is_some_and(|frame| frame.function == "_engine_run_backward");
        Some(match () {
            () if backward => DdpPart::Backward,
            () if is_within(stack, VERIFY) => DdpPart::Verify,
            () if is_within(stack, SYNC_STATES) && !is_within(stack, FORWARD) => {
                DdpPart::ModuleStates
            }
            () => DdpPart::Forward,
        })
    }
}

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

/// The function in which DDP's constructor, and its forward pass, copy the first rank's states.
const SYNC_STATES: &str = "_sync_module_states";

/// The function in which DDP begins a forward pass: it shares buffers, and asks under `join()` who still has
/// inputs.
pub(crate) const FORWARD: &str = "_pre_forward";
