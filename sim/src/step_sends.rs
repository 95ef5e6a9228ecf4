//! The messages of one step of a rotation
//! ([`Schedule::is_rotation`](lockstep_core::schedule::Schedule::is_rotation)) with equal chunks. The first rank that
//! begins the step works them out, and the next ranks use them.

use super::active::Active;
use lockstep_core::rank::GroupRank;
use lockstep_core::schedule::{Action, Grid};
use std::sync::Arc;

/// The messages that each rank sends and receives in one step of a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct StepSends {
    /// The step, its signature and the cuts of the call's buffers; `None` before the first step.
    of: Option<(u32, u32, Arc<[Grid; 3]>)>,
    /// For each message, the distance from sender to receiver in group ranks, and its bytes.
    pub(crate) sends: Vec<(u32, u64)>,
    /// The number of messages that are received.
    pub(crate) receives: u32,
    actions: Vec<Action>,
}

impl StepSends {
    /// Works the messages out, if those of another step or call are here.
    #[inline]
    pub(crate) fn become_that_of(&mut self, active: &Active, me: GroupRank) {
        let is_of = |(step, signature, grids): &(u32, u32, Arc<[Grid; 3]>)| {
            (*step, *signature) == (active.step, active.signature_number)
                && Arc::ptr_eq(grids, &active.grids)
        };
        if !self.of.as_ref().is_some_and(is_of) {
            self.work_out(active, me);
        }
    }

    #[cold]
    fn work_out(&mut self, active: &Active, me: GroupRank) {
        let schedule = &active.signature.schedule;
        schedule.actions(me, active.step, &mut self.actions);
        self.sends.clear();
        self.receives = 0;
        for action in &self.actions {
            match action {
                Action::Send { peer, from } => {
                    let further_on = match peer.0.checked_sub(me.0) {
                        Some(places) => places,
                        None => schedule.size() - (me.0 - peer.0),
                    };
                    let range = active.byte_range(*from);
                    self.sends.push((further_on, range.end - range.start));
                }
                Action::Receive { .. } | Action::ReceiveReduce { .. } => self.receives += 1,
                Action::Copy { .. } | Action::Reduce { .. } => {}
            }
        }
        self.of = Some((active.step, active.signature_number, Arc::clone(&active.grids)));
    }
}
