//! The calls by which ranks with uneven inputs tell each other who still has some.

use super::call::{DdpCall, DdpOp, Purpose};
use super::error::DdpError;
use lockstep_core::dtype::Dtype;
use lockstep_core::reduce::ReduceOp;

/// `Join.notify_join_context`: a rank that has inputs says so.
pub(super) fn tell(throw: Option<bool>, calls: &mut Vec<DdpCall>) -> Result<(), DdpError> {
    calls.push(presence());
    if let Some(exhausted) = throw {
        calls.push(DdpCall::all_reduce(Dtype::Float32, 1, Purpose::JoinThrow));
        if exhausted {
            return Err(DdpError::OthersExhausted);
        }
    }
    Ok(())
}

/// Every rank says whether it still has inputs.
pub(super) fn presence() -> DdpCall {
    DdpCall::all_reduce(Dtype::Float32, 1, Purpose::JoinPresence)
}

/// `_find_common_rank`.
pub(super) fn common_rank() -> DdpCall {
    let op = DdpOp::AllReduce { reduce_op: ReduceOp::Max };
    DdpCall { op, dtype: Dtype::Int64, numel: 1, purpose: Purpose::JoinRank, subgroup: None }
}
