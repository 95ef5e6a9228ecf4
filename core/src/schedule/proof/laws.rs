//! The laws of one step on one participant: its slices are inside its buffers, and its actions do
//! not touch each other's memory; a message has a receiver.

use super::error::ProofError;
use crate::rank::GroupRank;
use crate::schedule::{Action, Buffer, Schedule, Slice};

/// Checks that all slices of a participant's actions are inside its buffers, and that those of an
/// action are of one length.
pub(super) fn check_slices(
    schedule: &Schedule,
    rank: GroupRank,
    step: u32,
    actions: &[Action],
) -> Result<(), ProofError> {
    // Most steps stay in one buffer: its length is asked for once.
    let mut known: Option<(Buffer, u32)> = None;
    for action in actions {
        let length = action.into_or_from().chunks;
        for slice in action.slices() {
            let chunks = match known {
                Some((buffer, chunks)) if buffer == slice.buffer => chunks,
                _ => schedule.chunks(rank, slice.buffer),
            };
            known = Some((slice.buffer, chunks));
            let end = u64::from(slice.chunk) + u64::from(slice.chunks);
            if slice.chunks == 0 || end > u64::from(chunks) {
                return Err(ProofError::OutOfBounds { rank, step, slice, chunks });
            }
            if slice.chunks != length {
                return Err(ProofError::Uneven { rank, step, slice });
            }
        }
    }
    Ok(())
}

/// A slice that an action of the step touches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Touch {
    slice: Slice,
    writes: bool,
    action: usize,
}

/// Finds two actions that touch the same memory, of which one writes it: walks over all slices in
/// the order of where they begin, so that a step of thousands of actions is no matter.
pub(super) fn check_hazards(
    rank: GroupRank,
    step: u32,
    actions: &[Action],
) -> Result<(), ProofError> {
    // Most steps have few actions: every pair of them, without a list.
    if actions.len() <= 8 {
        return check_pairs(rank, step, actions);
    }
    let mut touches = Vec::with_capacity(2 * actions.len());
    for (index, action) in actions.iter().enumerate() {
        let reads = action.reads().map(|slice| (slice, false));
        let all = reads.chain(action.writes().map(|slice| (slice, true)));
        touches.extend(all.map(|(slice, writes)| Touch { slice, writes, action: index }));
    }
    touches.sort_unstable();
    let end = |touch: Touch| u64::from(touch.slice.chunk) + u64::from(touch.slice.chunks);
    let clash = |before: Touch, now: Touch| {
        before.slice.buffer == now.slice.buffer
            && before.action != now.action
            && end(before) > u64::from(now.slice.chunk)
    };
    // Of the touches that began before: the last write (others end before it begins), and the two reads of
    // different actions that reach farthest.
    let (mut write, mut reads): (Option<Touch>, [Option<Touch>; 2]) = (None, [None; 2]);
    for now in touches {
        if let Some(write) = write.filter(|write| clash(*write, now)) {
            return Err(ProofError::Hazard { rank, step, slice: write.slice });
        }
        if now.writes {
            if reads.iter().flatten().any(|read| clash(*read, now)) {
                return Err(ProofError::Hazard { rank, step, slice: now.slice });
            }
            write = Some(now);
            continue;
        }
        let reach = |read: Option<Touch>| {
            read.filter(|read| read.slice.buffer == now.slice.buffer).map_or(0, end)
        };
        let same = reads.iter().position(|read| read.is_some_and(|r| r.action == now.action));
        let shorter = usize::from(reach(reads[1]) < reach(reads[0]));
        let replaced = same.unwrap_or(shorter);
        if reach(reads[replaced]) < end(now) {
            reads[replaced] = Some(now);
        }
    }
    Ok(())
}

fn check_pairs(rank: GroupRank, step: u32, actions: &[Action]) -> Result<(), ProofError> {
    for (index, action) in actions.iter().enumerate() {
        let Some(slice) = action.writes() else { continue };
        for (other_index, other) in actions.iter().enumerate() {
            let mut touched = other.slices();
            if index != other_index && touched.any(|other| other.overlaps(slice)) {
                return Err(ProofError::Hazard { rank, step, slice });
            }
        }
    }
    Ok(())
}

/// Checks that there is such a receiver, and that it is not the sender.
pub(super) fn check_peer(
    schedule: &Schedule,
    from: GroupRank,
    to: GroupRank,
    step: u32,
) -> Result<(), ProofError> {
    let why = if from == to {
        "nobody sends messages to itself"
    } else if to.0 >= schedule.participants() {
        "there is no such receiver"
    } else {
        return Ok(());
    };
    Err(ProofError::BadMessage { from, to, step, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Buffer;
    use proptest::prelude::*;

    fn action() -> impl Strategy<Value = Action> {
        let buffer = prop_oneof![Just(Buffer::Output), Just(Buffer::Scratch)];
        let slice = (buffer, 0u32..60, 1u32..4).prop_map(|(buffer, chunk, chunks)| Slice {
            buffer,
            chunk,
            chunks,
        });
        let peer = GroupRank(1);
        (0..5, slice.clone(), slice.clone(), slice).prop_map(move |(kind, from, local, into)| {
            match kind {
                0 => Action::Copy { from, into },
                1 => Action::Reduce { local, from, into },
                2 => Action::Send { peer, from },
                3 => Action::Receive { peer, into },
                _ => Action::ReceiveReduce { peer, local, into },
            }
        })
    }

    proptest! {
        /// Against the law itself: every pair of actions, compared.
        #[test]
        fn every_clash_is_found(actions in proptest::collection::vec(action(), 0..14)) {
            let clash = actions.iter().enumerate().any(|(i, one)| {
                actions.iter().enumerate().any(|(j, other)| {
                    let touches = |write| other.slices().any(|slice| slice.overlaps(write));
                    i != j && one.writes().is_some_and(touches)
                })
            });
            prop_assert_eq!(check_hazards(GroupRank(0), 0, &actions).is_err(), clash);
        }
    }
}
