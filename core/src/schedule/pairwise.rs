//! Pairwise exchange: n - 1 steps, in each of which every rank sends to one rank and receives from
//! one (Thakur, Rabenseifner, Gropp 2005, section 4, on all-to-all and on reduce-scatter). With a
//! power of two of ranks these are the same rank, r XOR step; else r + step and r - step.

use super::{Action, Buffer, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;

/// One for a single rank, whose part is copied.
pub(super) fn steps(n: u32) -> u32 {
    (n - 1).max(1)
}

pub(super) fn actions(
    collective: Collective,
    n: u32,
    rank: GroupRank,
    step: u32,
    actions: &mut Vec<Action>,
) {
    let input = |rank: GroupRank| Slice::one(Buffer::Input, rank.0);
    let (to, from) = partners(n, rank.0, step + 1);
    match collective {
        Collective::AllToAll => {
            let output = |rank: GroupRank| Slice::one(Buffer::Output, rank.0);
            if step == 0 {
                actions.push(Action::Copy { from: input(rank), into: output(rank) });
            }
            if n > 1 {
                actions.push(Action::Send { peer: to, from: input(to) });
                actions.push(Action::Receive { peer: from, into: output(from) });
            }
        }
        Collective::ReduceScatter { .. } => {
            let result = Slice::one(Buffer::Output, 0);
            if n == 1 {
                actions.push(Action::Copy { from: input(rank), into: result });
                return;
            }
            let local = if step == 0 { input(rank) } else { result };
            actions.push(Action::Send { peer: to, from: input(to) });
            actions.push(Action::ReceiveReduce { peer: from, local, into: result });
        }
        _ => {}
    }
}

/// Whom `rank` sends to and receives from at `distance`.
fn partners(n: u32, rank: u32, distance: u32) -> (GroupRank, GroupRank) {
    if n.is_power_of_two() {
        return (GroupRank(rank ^ distance), GroupRank(rank ^ distance));
    }
    let (n, rank, distance) = (u64::from(n), u64::from(rank), u64::from(distance));
    let at = |place: u64| GroupRank((place % n) as u32);
    (at(rank + distance), at(rank + n - distance))
}
