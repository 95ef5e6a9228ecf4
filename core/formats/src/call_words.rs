//! Properties of a call that writers of other tools' files state: its bytes, type, state and source line.

use crate::frames::{short_frame, user_frame};
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::Plan;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallRecord, CallState, Called, Origin, TensorShape};

/// Bytes of all tensors.
pub(crate) fn bytes_of(tensors: &[TensorShape]) -> u64 {
    tensors.iter().fold(0, |sum, tensor| {
        let bytes = tensor.numel().saturating_mul(tensor.dtype.size_bytes());
        sum.saturating_add(bytes)
    })
}

/// Elements of all tensors.
pub(crate) fn numel_of(tensors: &[TensorShape]) -> u64 {
    tensors.iter().fold(0, |sum, tensor| sum.saturating_add(tensor.numel()))
}

/// The tensors that a call was given, or those of its result where it was given none.
pub(crate) fn payload(call: &Called) -> &[TensorShape] {
    if call.inputs.is_empty() { &call.outputs } else { &call.inputs }
}

/// The element type of a call's first tensor.
pub(crate) fn dtype_of(call: &Called) -> Option<Dtype> {
    call.inputs.iter().chain(&call.outputs).map(|tensor| tensor.dtype).next()
}

/// The source line of a call, `train.py:88`: of its stack, else of its operation in the plan.
pub(crate) fn line_of(
    plan: Option<&Plan>,
    rank: GlobalRank,
    record: &CallRecord,
) -> Option<String> {
    let own = user_frame(&record.call.stack).map(short_frame);
    own.or_else(|| op_line(plan?, rank, record.plan_op?))
}

/// The source line of an operation of a rank's program.
pub(crate) fn op_line(plan: &Plan, rank: GlobalRank, op: u32) -> Option<String> {
    let at = plan.program(rank)?.ops.get(op as usize)?.at?;
    Some(plan.describe_line(at))
}

/// The state of a call, as the Flight Recorder names it.
pub(crate) fn state_name(state: CallState) -> &'static str {
    match state {
        CallState::Scheduled => "scheduled",
        CallState::Started => "started",
        CallState::Completed => "completed",
    }
}

/// True of a recorded collective without a number: the recording does not say of which group it is.
pub(crate) fn is_of_unknown_group(origin: &Origin, record: &CallRecord) -> bool {
    matches!(origin, Origin::Recorded { .. }) && record.seq.is_none() && !record.call.p2p
}
