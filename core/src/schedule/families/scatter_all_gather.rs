//! Broadcast as a scatter and an all_gather (van de Geijn): the root scatters n chunks down a
//! binomial tree, then a ring gathers them everywhere (Barnett, Gupta, Payne, Shuler, van de Geijn,
//! Watts 1994, "Interprocessor collective communication library"; Thakur, Rabenseifner, Gropp
//! 2005, section 4, on broadcast). About two tensors' worth of time instead of the tree's log2 n,
//! for long messages.

use super::tree;
use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::schedule::explained::{Explain, Explained, Formula, Holds};
use crate::schedule::family::{Call, Family, Step};
use crate::schedule::{Action, Buffer, Slice};

/// Van de Geijn's broadcast.
pub(super) struct ScatterAllGather;

impl Family for ScatterAllGather {
    fn carries_out(&self, collective: Collective) -> bool {
        matches!(collective, Collective::Broadcast { .. })
    }

    fn steps(&self, call: Call) -> u32 {
        tree::depth(call.size).saturating_add(call.size - 1)
    }

    fn chunks_per_part(&self, call: Call) -> u32 {
        call.size
    }

    fn actions(&self, call: Call, participant: GroupRank, step: u32, list: &mut Vec<Action>) {
        actions(call, participant, step, list);
    }

    fn phase(&self, call: Call, step: Step) -> &'static str {
        match step.at < tree::depth(call.size) {
            true => ", scatter phase",
            false => ", all-gather phase",
        }
    }

    fn step_text(&self, call: Call, step: Step) -> String {
        let text = match step.at < tree::depth(call.size) {
            true => "every rank that holds several ranks' chunks sends half of them down the tree.",
            false => "every rank passes on to its right neighbour the chunk it got last.",
        };
        text.to_owned()
    }
}

impl Explain for ScatterAllGather {
    fn explained(&self, _collective: Collective) -> Explained {
        Explained {
            formula: Formula::new("(log₂(n) + n − 1)", Formula::RING_VOLUME, Holds::PowersOfTwo),
            idea: "Van de Geijn's: the root scatters the chunks down a tree, then a ring gathers \
                them everywhere.",
            used_by: "MPICH's broadcast for long messages.",
            cost: "Two tensors' worth of bytes whatever n is, where a tree sends log₂ n; the \
                ring's latencies come on top.",
        }
    }
}

/// Chunk i is the one that place i, counted from the root, gets from the scatter.
fn actions(call: Call, rank: GroupRank, step: u32, actions: &mut Vec<Action>) {
    let Some(root) = call.collective.root() else { return };
    let (size, root) = (u64::from(call.size), u64::from(root.0));
    let place = (u64::from(rank.0) + size - root) % size;
    let rank_at = |place: u64| GroupRank(((place + root) % size) as u32);
    let depth = tree::depth(call.size);
    if step < depth {
        // A place with 2 * distance places' chunks gives the upper half away.
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
