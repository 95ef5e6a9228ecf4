//! The two-shot all_reduce: a direct reduce_scatter, then a direct all_gather, as in the kernels for
//! fully connected nodes (TensorRT-LLM's `customAllReduceKernels.cu`, `twoShotAllReduceKernel`).

use super::direct::ahead;
use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::explained::{Explain, Explained, Formula, Holds, right};
use crate::schedule::family::{Call, Family, Step};
use crate::schedule::{Action, Buffer, Slice};

/// A direct reduce_scatter, then a direct all_gather.
pub(super) struct TwoShot;

impl Family for TwoShot {
    fn carries_out(&self, collective: Collective) -> bool {
        matches!(collective, Collective::AllReduce { .. })
    }

    /// One sender a step for the first shot, one step for the second.
    fn steps(&self, call: Call) -> u32 {
        if call.size == 1 { 0 } else { call.size }
    }

    fn chunks_per_part(&self, call: Call) -> u32 {
        call.size
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, actions: &mut Vec<Action>) {
        two_shot(call.size, participant, step, actions);
    }

    fn phase(&self, _call: Call, step: Step) -> &'static str {
        if step.is_last() { ", all-gather phase" } else { ", reduce-scatter phase" }
    }

    fn is_rotation(&self, _call: Call) -> bool {
        true
    }

    fn step_text(&self, _call: Call, step: Step) -> String {
        if step.is_last() {
            return "every rank sends the chunk it finished to every other rank.".to_owned();
        }
        let right = right(u64::from(step.at) + 1);
        format!("every rank sends {right} that one's chunk, which it adds to its own.")
    }
}

impl Explain for TwoShot {
    fn explained(&self, _collective: Collective) -> Explained {
        Explained {
            formula: Formula::new("n", "(3n − 4)/n", Holds::Always),
            idea: "Every rank sums one chunk that all others send it; then it sends the result to \
                all.",
            used_by: "The custom all_reduce of vLLM and TensorRT-LLM inside a node, for middle \
                sizes.",
            cost: "About the ring's bytes with half of its latencies, given links between all \
                pairs: NVSwitch, not a network. Drawn as messages, a rank adds what comes in the \
                order of the ranks, one after the other; the kernels read all peers' memory at \
                once and take two latencies for it all, which is why they win there.",
        }
    }
}

/// all_reduce in place, over n chunks; rank r finishes chunk r, so all ranks get the same bits.
fn two_shot(n: u32, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let chunk = |of: GroupRank| Slice::one(Buffer::Output, of.0);
    let own = chunk(rank);
    if step + 1 < n {
        let to = GroupRank(ahead(rank.0, step + 1, n));
        let peer = GroupRank(ahead(rank.0, n - step - 1, n));
        actions.push(Action::Send { peer: to, from: chunk(to) });
        actions.push(Action::ReceiveReduce { peer, local: own, into: own });
        return;
    }
    let others = || (1..n).map(|i| GroupRank(ahead(rank.0, i, n)));
    actions.extend(others().map(|peer| Action::Send { peer, from: own }));
    actions.extend(others().map(|peer| Action::Receive { peer, into: chunk(peer) }));
}
