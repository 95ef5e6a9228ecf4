//! Gather and scatter by a k-nomial tree: a rank passes on, in one message, what its whole subtree
//! gets or gives (for k = 2, the binomial tree, MPICH's `MPIR_Scatter_intra_binomial` and
//! `MPIR_Gather_intra_binomial`; Thakur, Rabenseifner, Gropp 2005; for other k UCC's
//! `ucc_tl_ucp_gather_knomial` and `ucc_tl_ucp_scatter_knomial`). log_k n rounds of up to k - 1
//! messages at the root instead of n - 1 messages, but parts travel several times.
//!
//! Places count from the root, so that a subtree is a run of places: place p has the parts of
//! places p to p + d - 1, where d is the largest power of k that divides p. The root's tensor is in rank order, so the root turns it by a
//! copy inside the rank, as MPICH does.

use super::{Action, Buffer, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;

/// The tree's levels, and one step for the copies at the root.
pub(super) fn steps(n: u32, radix: u32) -> u32 {
    depth(n, radix) + 1
}

/// Levels of the tree: ceil(log_k n).
pub(super) fn depth(n: u32, radix: u32) -> u32 {
    let (mut levels, mut reached) = (0, 1u64);
    while reached < u64::from(n) {
        reached *= u64::from(radix);
        levels += 1;
    }
    levels
}

/// The distance of a level's edges: k to the level.
pub(super) fn distance(radix: u32, level: u32) -> u64 {
    u64::from(radix).saturating_pow(level)
}

fn place_of(n: u32, root: u32, rank: u32) -> u32 {
    if rank >= root { rank - root } else { rank + (n - root) }
}

/// Places of the subtree below and with `place`.
fn subtree(n: u32, radix: u32, place: u32) -> u32 {
    if place == 0 {
        return n;
    }
    let mut span = 1;
    while place.is_multiple_of(span * radix) {
        span *= radix;
    }
    span.min(n - place)
}

/// Scratch chunks: a rank's subtree, if it is not alone in it.
pub(super) fn scratch(collective: Collective, n: u32, radix: u32, rank: GroupRank) -> u32 {
    let root = collective.root().unwrap_or(GroupRank(0));
    match subtree(n, radix, place_of(n, root.0, rank.0)) {
        1 => 0,
        parts => parts,
    }
}

pub(super) fn actions(
    collective: Collective,
    (n, radix): (u32, u32),
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
    let depth = depth(n, radix);
    let subtree = |place| subtree(n, radix, place);
    // The child that is so many edges of a level away, if there is one.
    let child = |distance: u64, edge: u32| {
        let place = u64::from(place) + distance * u64::from(edge);
        (place < u64::from(n)).then_some(place as u32)
    };
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
            let distance = distance(radix, depth - 1 - level);
            let (above, parts) = (distance * u64::from(radix), subtree(place));
            let offset = u64::from(place) % above;
            if offset > 0 && offset.is_multiple_of(distance) {
                let into = if parts == 1 { output } else { kept(place, parts) };
                actions.push(Action::Receive { peer: rank_at(place - offset as u32), into });
            } else if offset == 0 {
                // Its own part is there since the step before.
                let came_before = u64::from(place) % (above * u64::from(radix)) > 0;
                if parts > 1 && came_before {
                    actions.push(Action::Copy { from: kept(place, 1), into: output });
                }
                for child in (1..radix).filter_map(|edge| child(distance, edge)) {
                    let from = kept(child, subtree(child));
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
            let (distance, parts) = (distance(radix, step), subtree(place));
            if step == 0 && parts > 1 {
                actions.push(Action::Copy { from: input, into: kept(place, 1) });
            }
            let offset = u64::from(place) % (distance * u64::from(radix));
            if offset > 0 && offset.is_multiple_of(distance) {
                let from = if parts == 1 { input } else { kept(place, parts) };
                actions.push(Action::Send { peer: rank_at(place - offset as u32), from });
            } else if offset == 0 {
                for child in (1..radix).filter_map(|edge| child(distance, edge)) {
                    let into = kept(child, subtree(child));
                    actions.push(Action::Receive { peer: rank_at(child), into });
                }
            }
        }
        _ => {}
    }
}
