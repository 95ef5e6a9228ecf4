//! The one-shot all_reduce: every rank sends its whole tensor to every other in one step, then adds
//! all of them up by itself in rank order, so that all ranks get the same bits (TensorRT-LLM's
//! `customAllReduceKernels.cu`, `oneShotAllReduceKernel`; vLLM's `custom_all_reduce.cuh`,
//! `cross_device_reduce_1stage`). One latency, n - 1 tensors through each link: for short messages
//! between fully connected ranks.

use super::{Action, Buffer, Slice};
use crate::rank::GroupRank;

/// One step to send, then n - 1 additions inside the rank.
pub(super) fn steps(n: u32) -> u32 {
    if n == 1 { 0 } else { n }
}

/// Scratch chunks: one for each rank's tensor; the rank's own place stays empty.
pub(super) fn scratch(n: u32) -> u32 {
    if n == 1 { 0 } else { n }
}

pub(super) fn actions(n: u32, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let result = Slice::one(Buffer::Output, 0);
    let tensor_of = |other: u32| match other == rank.0 {
        true => result,
        false => Slice::one(Buffer::Scratch, other),
    };
    if step == 0 {
        let others = || (0..n).filter(|other| *other != rank.0);
        actions.extend(others().map(|o| Action::Send { peer: GroupRank(o), from: result }));
        let receive = |o| Action::Receive { peer: GroupRank(o), into: tensor_of(o) };
        actions.extend(others().map(receive));
        return;
    }
    // The sum so far lies where rank 0's tensor was; the last addition leaves the result.
    let sum = tensor_of(0);
    let into = if step + 1 == n { result } else { sum };
    actions.push(Action::Reduce { local: sum, from: tensor_of(step), into });
}
