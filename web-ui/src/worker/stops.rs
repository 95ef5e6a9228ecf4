//! Moments at which a debugger stops, and who waits at a moment.

use super::session::Held;
use crate::protocol::FoundStop;
use lockstep_core::diagnosis::{Wait, who_waits};
use lockstep_core::plan::Plan;
use lockstep_core::stop::{self, Direction, Stop};
use lockstep_core::trace::{CallLog, Trace};
use lockstep_sim::{Session, session::Moment};

/// Past so many events, who waits is told for the end only: each moment takes another look at all
/// events before it.
const MAX_EVENTS_LOOKED_AT: usize = 400_000;

const NOT_SIMULATED: &str = "only a simulation can be stepped";

impl Held {
    fn stepped(&self) -> Result<(&Session, &Plan), String> {
        let plan = self.trace.as_ref().and_then(|trace| trace.header.plan.as_ref());
        self.simulation.as_ref().zip(plan).ok_or_else(|| NOT_SIMULATED.to_owned())
    }

    /// The nearest moment, after this one or before it, at which a stop is met.
    pub(super) fn find_stop(
        &self,
        moment: usize,
        stops: &[Stop],
        direction: Direction,
    ) -> Result<Option<FoundStop>, String> {
        let (simulation, plan) = self.stepped()?;
        let (moments, events) = (simulation.moments(), simulation.events());
        // What this moment itself has brought was stopped at already.
        let happened = |moment: usize| moments.get(moment).map_or(events.len(), |m| m.events);
        let from = match direction {
            Direction::Forward => happened(moment),
            Direction::Back => moment.checked_sub(1).map_or(0, happened),
        };
        let found = stop::find(plan, events, stops, from, direction);
        Ok(found.and_then(|(event, stop)| {
            let rank = events.get(event)?.rank;
            Some(FoundStop { moment: moment_of(moments, event), stop, rank })
        }))
    }

    /// The moment of each stop, looked for from the one before it on; `None` for one that is never
    /// met.
    pub(super) fn follow_stops(&self, stops: &[Stop]) -> Result<Vec<Option<usize>>, String> {
        let (simulation, plan) = self.stepped()?;
        let (moments, events) = (simulation.moments(), simulation.events());
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
        Ok(stops.iter().map(&mut met).collect())
    }

    /// Who waits for whom at a moment.
    pub(super) fn waits_at(&self, moment: usize) -> Result<Vec<Wait>, String> {
        let (simulation, _) = self.stepped()?;
        let header = self.trace.as_ref().map(|trace| trace.header.clone()).ok_or(NOT_SIMULATED)?;
        let events = simulation.events();
        let happened = simulation.moments().get(moment).map_or(events.len(), |m| m.events);
        if happened > MAX_EVENTS_LOOKED_AT {
            return Err(format!(
                "after {MAX_EVENTS_LOOKED_AT} events, who waits for whom is told for the end only"
            ));
        }
        let events = events[..happened.min(events.len())].to_vec();
        Ok(who_waits(&CallLog::of(&Trace { header, events, end: None })))
    }
}

/// The first moment by which an event has happened.
fn moment_of(moments: &[Moment], event: usize) -> usize {
    let first = moments.partition_point(|moment| moment.events <= event);
    first.min(moments.len().saturating_sub(1))
}
