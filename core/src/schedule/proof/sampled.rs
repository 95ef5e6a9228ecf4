//! Proofs of parts of a world, for worlds whose every step is too much: exact about the part that they cover,
//! and as cheap as the steps that this part depends on.

use super::Actions;
use super::error::ProofError;
use super::laws::{check_hazards, check_peer, check_slices};
use super::promise::{Content, Promise};
use crate::rank::GroupRank;
use crate::schedule::{Action, Buffer, Schedule, Slice};
use std::collections::BTreeSet;

/// Checks the laws of every step of one participant: its slices, its hazards, and that each message
/// to or from it has its other side. If they hold for all, no participant ever waits for ever.
///
/// # Errors
/// The first step that breaks one.
pub fn prove_steps(schedule: &Schedule, participant: GroupRank) -> Result<(), ProofError> {
    steps_of(schedule, participant, &|rank, step, list| schedule.actions(rank, step, list))
}

/// Proves the value of one chunk of a rank's result, by going back to everything that it was computed from.
/// Takes the laws of the steps for granted: [`prove_steps`].
///
/// # Errors
/// When the chunk does not have the value that the collective promises.
pub fn prove_chunk(schedule: &Schedule, rank: GroupRank, chunk: u32) -> Result<(), ProofError> {
    chunk_of(schedule, rank, chunk, &|rank, step, list| schedule.actions(rank, step, list))
}

pub(super) fn steps_of(
    schedule: &Schedule,
    me: GroupRank,
    actions: &Actions<'_>,
) -> Result<(), ProofError> {
    let (mut own, mut theirs) = (Vec::new(), Vec::new());
    for step in 0..schedule.steps() {
        actions(me, step, &mut own);
        check_slices(schedule, me, step, &own)?;
        check_hazards(me, step, &own)?;
        let peers: BTreeSet<GroupRank> = own.iter().filter_map(peer).collect();
        for peer in peers {
            check_peer(schedule, me, peer, step)?;
            actions(peer, step, &mut theirs);
            let stuck = |rank, peer| ProofError::Stuck { rank, step, peer };
            let bad = |from, to, why| ProofError::BadMessage { from, to, step, why };
            for (from, sender, to, receiver) in
                [(me, &own, peer, &theirs), (peer, &theirs, me, &own)]
            {
                let mut sends = sender.iter().filter_map(|action| sent(action, to));
                let mut receives = receiver.iter().filter_map(|action| received(action, from));
                loop {
                    match (sends.next(), receives.next()) {
                        (None, None) => break,
                        (None, Some(_)) => return Err(stuck(to, from)),
                        (Some(_), None) => {
                            return Err(bad(from, to, "nobody receives the message in its step"));
                        }
                        (Some(send), Some(receive)) if send.chunks != receive.chunks => {
                            return Err(bad(
                                from,
                                to,
                                "sender and receiver disagree on its length",
                            ));
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    Ok(())
}

fn peer(action: &Action) -> Option<GroupRank> {
    match action {
        Action::Send { peer, .. }
        | Action::Receive { peer, .. }
        | Action::ReceiveReduce { peer, .. } => Some(*peer),
        Action::Copy { .. } | Action::Reduce { .. } => None,
    }
}

/// The slice that the action sends to `to`.
fn sent(action: &Action, to: GroupRank) -> Option<Slice> {
    match action {
        Action::Send { peer, from } if *peer == to => Some(*from),
        _ => None,
    }
}

/// The slice that the action receives from `from`.
fn received(action: &Action, from: GroupRank) -> Option<Slice> {
    match action {
        Action::Receive { peer, into } | Action::ReceiveReduce { peer, into, .. }
            if *peer == from =>
        {
            Some(*into)
        }
        _ => None,
    }
}

/// A chunk as it is when a step begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    participant: GroupRank,
    buffer: Buffer,
    chunk: u32,
    step: u32,
}

pub(super) fn chunk_of(
    schedule: &Schedule,
    rank: GroupRank,
    chunk: u32,
    actions: &Actions<'_>,
) -> Result<(), ProofError> {
    let promise = Promise::of(schedule);
    let Some(buffer) = promise.result(rank) else { return Ok(()) };
    let Some(promised) = promise.ends_with(rank, chunk) else { return Ok(()) };
    let mut list = Vec::new();
    let mut sum: Option<Content> = None;
    // A barrier's signals come by several ways; nothing else does.
    let overlaps = schedule.collective().is_barrier();
    let mut seen = BTreeSet::new();
    let mut left = vec![Place { participant: rank, buffer, chunk, step: schedule.steps() }];
    while let Some(place) = left.pop() {
        let Some((step, index)) = last_write(place, actions, &mut list) else {
            let begins = promise.begins_with(place.participant, place.buffer, place.chunk);
            let (rank, step) = (place.participant, place.step);
            let slice = Slice::one(place.buffer, place.chunk);
            let begins = begins.ok_or(ProofError::Unwritten { rank, step, slice })?;
            let bad = |why| ProofError::BadReduction { rank, step, slice, why };
            sum = Some(match sum {
                None => begins,
                Some(sum) => promise.sum(&sum, &begins).map_err(bad)?,
            });
            continue;
        };
        let place = Place { step, ..place };
        if overlaps && !seen.insert(place) {
            continue;
        }
        let action = list[index];
        let nth = place.chunk - action.into_or_from().chunk;
        let own = |slice: Slice| Place {
            buffer: slice.buffer,
            chunk: slice.chunk.saturating_add(nth),
            ..place
        };
        let from = match action {
            Action::Copy { from, .. } => {
                left.push(own(from));
                continue;
            }
            Action::Reduce { local, from, .. } => {
                left.extend([own(local), own(from)]);
                continue;
            }
            Action::ReceiveReduce { peer, local, .. } => {
                left.push(own(local));
                peer
            }
            Action::Receive { peer, .. } => peer,
            Action::Send { .. } => continue,
        };
        let before = list[..index].iter().filter(|action| received(action, from).is_some()).count();
        actions(from, step, &mut list);
        let mut sends = list.iter().filter_map(|action| sent(action, place.participant));
        let stuck = ProofError::Stuck { rank: place.participant, step, peer: from };
        let slice = sends.nth(before).ok_or(stuck)?;
        left.push(Place { participant: from, ..own(slice) });
    }
    if sum.as_ref() == Some(&promised) {
        return Ok(());
    }
    let step = last_written(schedule, rank, buffer, chunk, actions);
    let (holds, promised) = (promise.words(sum.as_ref()), promise.words(Some(&promised)));
    Err(ProofError::WrongResult { rank, buffer, chunk, step, holds, promised })
}

/// The last step in which a participant writes a chunk.
pub(super) fn last_written(
    schedule: &Schedule,
    participant: GroupRank,
    buffer: Buffer,
    chunk: u32,
    actions: &Actions<'_>,
) -> Option<u32> {
    let place = Place { participant, buffer, chunk, step: schedule.steps() };
    last_write(place, actions, &mut Vec::new()).map(|(step, _)| step)
}

/// The step before the place's in which its chunk was written last, and which of the step's
/// actions did it; the list is left with that step's actions.
fn last_write(place: Place, actions: &Actions<'_>, list: &mut Vec<Action>) -> Option<(u32, usize)> {
    if place.buffer == Buffer::Input {
        return None;
    }
    (0..place.step).rev().find_map(|step| {
        actions(place.participant, step, list);
        let writes = |action: &Action| {
            let into = action.into_or_from();
            !matches!(action, Action::Send { .. })
                && into.buffer == place.buffer
                && (into.chunk..into.chunk.saturating_add(into.chunks)).contains(&place.chunk)
        };
        list.iter().position(writes).map(|index| (step, index))
    })
}
