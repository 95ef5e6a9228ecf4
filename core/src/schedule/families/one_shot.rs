//! The one-shot all_reduce: every rank sends its whole tensor to every other in one step, then adds
//! all of them up by itself in rank order, so that all ranks get the same bits (TensorRT-LLM's
//! `customAllReduceKernels.cu`, `oneShotAllReduceKernel`; vLLM's `custom_all_reduce.cuh`,
//! `cross_device_reduce_1stage`). One latency, n - 1 tensors through each link: for short messages
//! between fully connected ranks.

use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::explained::{Explain, Explained, Formula, Holds};
use crate::schedule::family::{Call, Family, Step};
use crate::schedule::{Action, Buffer, Slice};

/// Everything to everybody.
pub(super) struct OneShot;

impl Family for OneShot {
    fn carries_out(&self, collective: Collective) -> bool {
        matches!(collective, Collective::AllReduce { .. })
    }

    /// One step to send, then n - 1 additions inside the rank.
    fn steps(&self, call: Call) -> u32 {
        if call.size == 1 { 0 } else { call.size }
    }

    /// One chunk for each rank's tensor; the rank's own place stays empty.
    fn scratch(&self, call: Call, _participant: GroupRank) -> u32 {
        if call.size == 1 { 0 } else { call.size }
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, list: &mut Vec<Action>) {
        actions(call.size, participant, step, list);
    }

    fn phase(&self, _call: Call, step: Step) -> &'static str {
        if step.at > 0 { ", summing" } else { "" }
    }

    fn step_text(&self, _call: Call, step: Step) -> String {
        match step.at {
            0 => "every rank sends its whole tensor to every other rank, all at once.".to_owned(),
            from => {
                format!("every rank adds rank {from}'s tensor to the sum so far; nothing is sent.")
            }
        }
    }
}

impl Explain for OneShot {
    fn explained(&self, _collective: Collective) -> Explained {
        Explained {
            formula: Formula::new("1", "2n − 3", Holds::Always),
            idea: "Every rank sends its whole tensor to every other, and each sums for itself.",
            used_by: "The custom all_reduce of vLLM and TensorRT-LLM inside a node, for a few \
                hundred KiB at most: a token's activations.",
            cost: "One latency, the least that ranks can do by themselves; only a switch that adds \
                up does as well. The bytes grow with n, so it loses soon.",
        }
    }
}

fn actions(n: u32, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
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
