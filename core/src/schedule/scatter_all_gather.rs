//! Broadcast as a scatter and an all_gather (van de Geijn): the root scatters n chunks down a
//! binomial tree, then a ring gathers them everywhere (Barnett, Gupta, Payne, Shuler, van de Geijn,
//! Watts 1994, "Interprocessor collective communication library"; Thakur, Rabenseifner, Gropp
//! 2005, section 4, on broadcast). About two tensors' worth of time instead of the tree's log2 n,
//! for long messages.

use super::{Action, Buffer, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;

pub(super) fn steps(n: u32) -> u32 {
    super::tree::depth(n).saturating_add(n - 1)
}

/// Chunk i is the one that place i, counted from the root, gets from the scatter.
pub(super) fn actions(
    collective: Collective,
    n: u32,
    rank: GroupRank,
    step: u32,
    actions: &mut Vec<Action>,
) {
    let Some(root) = collective.root() else { return };
    let (size, root) = (u64::from(n), u64::from(root.0));
    let place = (u64::from(rank.0) + size - root) % size;
    let rank_at = |place: u64| GroupRank(((place + root) % size) as u32);
    let depth = super::tree::depth(n);
    if step < depth {
        // Who has 2 * distance places' chunks gives the upper half away.
        let distance = 1u64 << (depth - 1 - step);
        let half =
            |from: u64| Slice::run(Buffer::Output, from as u32..(from + distance).min(size) as u32);
        if place % (2 * distance) == 0 && place + distance < size {
            let upper = place + distance;
            actions.push(Action::Send { peer: rank_at(upper), from: half(upper) });
        } else if place % (2 * distance) == distance {
            actions.push(Action::Receive { peer: rank_at(place - distance), into: half(place) });
        }
        return;
    }
    let chunk = |back: u64| Slice::one(Buffer::Output, ((place + 2 * size - back) % size) as u32);
    let back = u64::from(step - depth);
    actions.push(Action::Send { peer: rank_at(place + 1), from: chunk(back) });
    actions.push(Action::Receive { peer: rank_at(place + size - 1), into: chunk(back + 1) });
}
