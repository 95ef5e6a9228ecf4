//! The dissemination barrier: in step s rank r signals rank r + 2^s and waits for rank r - 2^s
//! (Hensgen, Finkel, Manber 1988, "Two algorithms for barrier synchronization"). The messages
//! carry no data; what a chunk stands for is "these ranks have come".

use super::tree;
use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::explained::{Explain, Explained, Formula, Holds, left, right};
use crate::schedule::family::{Call, Family, Step};
use crate::schedule::{Action, Buffer, Slice};

/// Signals to ranks 1, 2, 4, … places away.
pub(super) struct Dissemination;

impl Family for Dissemination {
    fn carries_out(&self, collective: Collective) -> bool {
        collective == Collective::Barrier
    }

    fn steps(&self, call: Call) -> u32 {
        rounds(call.size)
    }

    fn scratch(&self, call: Call, _participant: GroupRank) -> u32 {
        rounds(call.size)
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, list: &mut Vec<Action>) {
        actions(call.size, participant, step, list);
    }

    fn step_text(&self, _call: Call, step: Step) -> String {
        let distance = 1u64 << step.at.min(32);
        format!("every rank signals {} and waits for {}.", right(distance), left(distance))
    }

    fn is_rotation(&self, _call: Call) -> bool {
        true
    }

    fn keeps_all_ranks_busy(&self) -> bool {
        true
    }
}

impl Explain for Dissemination {
    fn explained(&self, _collective: Collective) -> Explained {
        Explained {
            formula: Formula::new(Formula::LOG_UP, "0", Holds::Always),
            idea: "In round s every rank signals the one 2ˢ places to its right: what it knows \
                doubles each round.",
            used_by: "gloo's and MPICH's barrier; NCCL's is an all_reduce of one element, the tree \
                here. monitored_barrier is not: there rank 0 hears every rank by itself, so that \
                it can name who is missing.",
            cost: "No barrier has fewer rounds; n messages in each of them.",
        }
    }
}

/// ceil(log2 n) rounds; one for a single rank, so that it too has a last chunk to prove.
pub(super) fn rounds(n: u32) -> u32 {
    tree::depth(n).max(1)
}

pub(super) fn actions(n: u32, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let local = match step {
        0 => Slice::one(Buffer::Input, 0),
        _ => Slice::one(Buffer::Scratch, step - 1),
    };
    let into = Slice::one(Buffer::Scratch, step);
    if n == 1 {
        actions.push(Action::Copy { from: local, into });
        return;
    }
    let (n, r, distance) = (u64::from(n), u64::from(rank.0), 1u64 << step);
    let to = GroupRank(((r + distance) % n) as u32);
    let peer = GroupRank(((r + n - distance) % n) as u32);
    actions.push(Action::Send { peer: to, from: local });
    actions.push(Action::ReceiveReduce { peer, local, into });
}
