//! The pipelined chain: the root passes the tensor on segment by segment, and every rank passes a
//! segment on while it receives the next; a reduction runs the chain backwards (Pješivac-Grbović,
//! Angskun, Bosilca, Fagg, Gabriel, Dongarra 2007, "Performance analysis of MPI collective
//! operations"; Open MPI's `ompi_coll_base_bcast_intra_pipeline`). With k segments it takes
//! n + k - 2 steps of 1/k of the tensor each.

use super::{Action, Buffer, Slice};
use crate::collective::Collective;
use crate::rank::GroupRank;

/// Segments. The best number grows with the square root of the tensor's bytes; schedules know no
/// bytes, so this is one that still lets people see the pipeline.
pub(super) const SEGMENTS: u32 = 8;

pub(super) fn steps(n: u32) -> u32 {
    if n == 1 { 0 } else { (n - 2).saturating_add(SEGMENTS) }
}

pub(super) fn actions(
    collective: Collective,
    n: u32,
    rank: GroupRank,
    step: u32,
    actions: &mut Vec<Action>,
) {
    let Some(root) = collective.root() else { return };
    let (n, root, rank) = (u64::from(n), u64::from(root.0), u64::from(rank.0));
    let place = (rank + n - root) % n;
    let rank_at = |place: u64| GroupRank(((place + root) % n) as u32);
    let step = u64::from(step);
    let segment = |first_step: u64| {
        let segment = step.checked_sub(first_step)? as u32;
        (segment < SEGMENTS).then(|| Slice::one(Buffer::Output, segment))
    };
    // Places count from where the data comes from: the root, or the far end of a reduction.
    let reduces = collective.reduce_op().is_some();
    let (from_start, up, down) = match reduces {
        false => (place, place.checked_sub(1), place + 1),
        true => (n - 1 - place, Some(place + 1), place.wrapping_sub(1)),
    };
    if from_start + 1 < n
        && let Some(from) = segment(from_start)
    {
        actions.push(Action::Send { peer: rank_at(down), from });
    }
    if let (Some(first_step), Some(up)) = (from_start.checked_sub(1), up)
        && let Some(into) = segment(first_step)
    {
        let peer = rank_at(up);
        actions.push(match reduces {
            true => Action::ReceiveReduce { peer, local: into, into },
            false => Action::Receive { peer, into },
        });
    }
}
