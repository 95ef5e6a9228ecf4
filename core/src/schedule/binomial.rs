//! Gather and scatter by a binomial tree: a rank passes on, in one message, what its whole subtree
//! gets or gives (MPICH's `MPIR_Scatter_intra_binomial` and `MPIR_Gather_intra_binomial`; Thakur,
//! Rabenseifner, Gropp 2005). log2 n messages in turn at the root instead of n - 1, but parts
//! travel several times.
//!
//! Places count from the root, so that a subtree is a run of places: place p has the parts of
//! places p to p + lowbit(p) - 1. The root's tensor is in rank order, so the root turns it by a
//! copy inside the rank, as MPICH does.

use super::{Action, Buffer, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;

/// The tree's levels, and one step for the copies at the root.
pub(super) fn steps(n: u32) -> u32 {
    super::tree::depth(n) + 1
}

fn place_of(n: u32, root: u32, rank: u32) -> u32 {
    if rank >= root { rank - root } else { rank + (n - root) }
}

/// Places of the subtree below and with `place`.
fn subtree(n: u32, place: u32) -> u32 {
    match place {
        0 => n,
        _ => (1 << place.trailing_zeros()).min(n - place),
    }
}

/// Scratch chunks: a rank's subtree, if it is not alone in it.
pub(super) fn scratch(collective: Collective, n: u32, rank: GroupRank) -> u32 {
    let root = collective.root().unwrap_or(GroupRank(0));
    match subtree(n, place_of(n, root.0, rank.0)) {
        1 => 0,
        parts => parts,
    }
}

pub(super) fn actions(
    collective: Collective,
    n: u32,
    rank: GroupRank,
    step: u32,
    actions: &mut Vec<Action>,
) {
    let Some(root) = collective.root() else { return };
    let place = place_of(n, root.0, rank.0);
    let rank_at = |place: u32| {
        let rank = u64::from(place) + u64::from(root.0);
        GroupRank((rank % u64::from(n)) as u32)
    };
    // Scratch holds the subtree, from the rank's own place on.
    let kept =
        |from: u32, parts: u32| Slice::run(Buffer::Scratch, from - place..from - place + parts);
    let depth = super::tree::depth(n);
    let (input, output) = (Slice::one(Buffer::Input, 0), Slice::one(Buffer::Output, 0));
    // The two runs of ranks that the places are, from the root or the one after it on.
    let turned = |buffer, skip: u32| {
        let (first, second) = (root.0 + skip..n, 0..root.0);
        [first, second].into_iter().filter(|run| !run.is_empty()).map(move |ranks| {
            let from = place_of(n, root.0, ranks.start);
            let places = from..from + (ranks.end - ranks.start);
            (Slice::run(buffer, ranks), Slice::run(Buffer::Scratch, places))
        })
    };
    match collective {
        Collective::Scatter { .. } => {
            if place == 0 && step == 0 {
                let own = Slice::one(Buffer::Input, root.0);
                actions.push(Action::Copy { from: own, into: output });
                if n > 1 {
                    let copy = |(from, into)| Action::Copy { from, into };
                    actions.extend(turned(Buffer::Input, 1).map(copy));
                }
            }
            let Some(level) = step.checked_sub(1) else { return };
            let distance = 1u32 << (depth - 1 - level);
            let parts = subtree(n, place);
            if place % (2 * distance) == distance {
                let into = if parts == 1 { output } else { kept(place, parts) };
                actions.push(Action::Receive { peer: rank_at(place - distance), into });
            } else if place.is_multiple_of(distance) {
                // Its own part is there since the step before.
                if place > 0 && parts > 1 && 2 * distance == 1 << place.trailing_zeros() {
                    actions.push(Action::Copy { from: kept(place, 1), into: output });
                }
                if place + distance < n {
                    let child = place + distance;
                    let from = kept(child, subtree(n, child));
                    actions.push(Action::Send { peer: rank_at(child), from });
                }
            }
        }
        Collective::Gather { .. } => {
            if step == depth {
                if n == 1 {
                    actions.push(Action::Copy { from: input, into: output });
                } else if place == 0 {
                    let copy = |(into, from)| Action::Copy { from, into };
                    actions.extend(turned(Buffer::Output, 0).map(copy));
                }
                return;
            }
            let (distance, parts) = (1u32 << step, subtree(n, place));
            if step == 0 && parts > 1 {
                actions.push(Action::Copy { from: input, into: kept(place, 1) });
            }
            if place % (2 * distance) == distance {
                let from = if parts == 1 { input } else { kept(place, parts) };
                actions.push(Action::Send { peer: rank_at(place - distance), from });
            } else if place.is_multiple_of(distance) && place + distance < n {
                let child = place + distance;
                let into = kept(child, subtree(n, child));
                actions.push(Action::Receive { peer: rank_at(child), into });
            }
        }
        _ => {}
    }
}
