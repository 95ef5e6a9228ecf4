//! The steps of a call whose time is known as a whole, laid over that time for whoever looks: in the simulator's own
//! account its messages take no time ([`super::timed`]).
//!
//! A step takes the part of the call's time that its bytes are of all steps': in each step, those of the rank that
//! sends most. A chain of messages passes each step once, so that none is over later than the call. When the call is
//! done stays what it is without this: each message carries the time at which it would have left if
//! messages took none, and the call is done so long after that as the table says.

use crate::call_time::Timed;
use lockstep_core::rank::GroupRank;
use lockstep_core::schedule::{Action, Layout};
use std::sync::Arc;

/// The most steps of participants that are looked at to find a step's bytes.
const MOST_LOOKED_AT: u32 = 1 << 22;

/// A call's steps laid over its time, on one rank.
#[derive(Clone, Debug)]
pub(crate) struct Laid {
    /// Per step, when it ends, in picoseconds after the call began.
    ends: Arc<[u64]>,
    /// The time at which the rank would be at this step if messages took none.
    pub(crate) reached: u64,
}

impl Laid {
    /// `None` where the call's time is not known.
    pub(crate) fn ends(layout: &Layout, timed: Option<Timed>) -> Option<Arc<[u64]>> {
        let Some(Timed::Takes(takes)) = timed else { return None };
        let bytes = bytes_of_steps(layout);
        let all: u128 = bytes.iter().map(|bytes| u128::from(*bytes)).sum();
        let mut so_far = 0;
        let end = |bytes: &u64| {
            so_far += u128::from(*bytes);
            let end = u128::from(takes) * so_far / all.max(1);
            u64::try_from(end).unwrap_or(takes)
        };
        Some(bytes.iter().map(end).collect())
    }

    pub(crate) fn new(ends: Arc<[u64]>, begins: u64) -> Laid {
        Laid { ends, reached: begins }
    }

    /// The time that a step's messages take.
    pub(crate) fn takes(&self, step: u32) -> u64 {
        let end = |step: Option<u32>| step.and_then(|step| self.ends.get(step as usize));
        let from = end(step.checked_sub(1)).copied().unwrap_or(0);
        end(Some(step)).map_or(0, |end| end.saturating_sub(from))
    }
}

/// Per step, the bytes of the participant that sends most in it; at least 1 if there is a message.
fn bytes_of_steps(layout: &Layout) -> Vec<u64> {
    let schedule = layout.schedule();
    let steps = schedule.steps();
    let mut bytes = vec![0_u64; steps as usize];
    let participants = schedule.size().saturating_add(schedule.switches());
    let looked_at = participants.min(MOST_LOOKED_AT / steps.max(1)).max(1);
    let mut actions = Vec::new();
    for me in (0..looked_at).map(GroupRank) {
        for (step, most) in (0..steps).zip(&mut bytes) {
            schedule.actions(me, step, &mut actions);
            let sent = actions.iter().filter_map(|action| match action {
                Action::Send { from, .. } => {
                    let range = layout.grid(me, from.buffer).range(from.chunk, from.chunks);
                    let elements = range.end.saturating_sub(range.start);
                    Some(elements.saturating_mul(layout.element_bytes()).max(1))
                }
                _ => None,
            });
            *most = sent.fold(0, u64::saturating_add).max(*most);
        }
    }
    bytes
}
