//! The dissemination barrier: in step s rank r signals rank r + 2^s and waits for rank r - 2^s
//! (Hensgen, Finkel, Manber 1988, "Two algorithms for barrier synchronization"). The messages
//! carry no data; what a chunk stands for is "these ranks have come".

use super::{Action, Buffer, Slice};
use crate::rank::GroupRank;

/// ceil(log2 n) rounds; one for a single rank, so that it too has a last chunk to prove.
pub(super) fn rounds(n: u32) -> u32 {
    super::tree::depth(n).max(1)
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
