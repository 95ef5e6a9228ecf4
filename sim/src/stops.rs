//! The places where a debugger stops in a simulation: conditions on events ([`stop`]), as moments
//! of a [`Session`].

use crate::session::{Moment, Session};
use lockstep_core::plan::Plan;
use lockstep_core::rank::GlobalRank;
use lockstep_core::stop::{self, Direction, Stop};

/// A moment at which a stop is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Met {
    /// The moment.
    pub moment: usize,
    /// The index of the stop.
    pub stop: usize,
    /// The rank that meets the stop.
    pub rank: GlobalRank,
}

impl Session {
    /// The nearest moment, after this one or before it, at which one of the stops is met.
    pub fn find_stop(
        &self,
        plan: &Plan,
        moment: usize,
        stops: &[Stop],
        direction: Direction,
    ) -> Option<Met> {
        let (moments, events) = (self.moments(), self.events());
        // The stops of this moment itself were reported already.
        let happened = |moment: usize| moments.get(moment).map_or(events.len(), |m| m.events);
        let from = match direction {
            Direction::Forward => happened(moment),
            Direction::Back => moment.checked_sub(1).map_or(0, happened),
        };
        let (event, stop) = stop::find(plan, events, stops, from, direction)?;
        Some(Met { moment: moment_of(moments, event), stop, rank: events.get(event)?.rank })
    }

    /// The moment of each stop, looked for from the one before it on; `None` for one that is never
    /// met.
    pub fn follow_stops(&self, plan: &Plan, stops: &[Stop]) -> Vec<Option<usize>> {
        let (moments, events) = (self.moments(), self.events());
        let mut from = 0;
        let mut met = |stop: &Stop| match stop {
            Stop::Start => Some(0),
            Stop::End => moments.len().checked_sub(1),
            stop => {
                let (event, _) =
                    stop::find(plan, events, std::slice::from_ref(stop), from, Direction::Forward)?;
                from = event + 1;
                Some(moment_of(moments, event))
            }
        };
        stops.iter().map(&mut met).collect()
    }
}

/// The first moment by which an event has happened.
fn moment_of(moments: &[Moment], event: usize) -> usize {
    let first = moments.partition_point(|moment| moment.events <= event);
    first.min(moments.len().saturating_sub(1))
}
