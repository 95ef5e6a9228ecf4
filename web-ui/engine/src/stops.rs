//! Moments at which a debugger stops, and who waits at a moment.

use super::session::Held;
use lockstep_core::plan::Plan;
use lockstep_core::stop::{Direction, Stop};
use lockstep_core::trace::{CallLog, Trace};
use lockstep_diagnosis::{Wait, WaitGroup, wait_causes, who_waits};
use lockstep_sim::Session;
use lockstep_sim::stops::Met;
use lockstep_web_protocol::FoundStop;

/// Past so many events, who waits is told for the end only: each moment takes another look at all
/// events before it.
const MAX_EVENTS_LOOKED_AT: usize = 400_000;

const NOT_SIMULATED: &str = "only a simulation can be stepped";

impl Held {
    fn stepped(&self) -> Result<(&Session, &Plan), String> {
        let plan = self.trace.as_ref().and_then(|trace| trace.header.plan.as_deref());
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
        let found = simulation.find_stop(plan, moment, stops, direction);
        Ok(found.map(|Met { moment, stop, rank }| FoundStop { moment, stop, rank }))
    }

    /// The moment of each stop, looked for from the one before it on; `None` for one that is never
    /// met.
    pub(super) fn follow_stops(&self, stops: &[Stop]) -> Result<Vec<Option<usize>>, String> {
        let (simulation, plan) = self.stepped()?;
        Ok(simulation.follow_stops(plan, stops))
    }

    /// The waits at a moment: each rank, and the ranks it waits for; and the same by their cause.
    pub(super) fn waits_at(&self, moment: usize) -> Result<(Vec<Wait>, Vec<WaitGroup>), String> {
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
        let log = CallLog::of(&Trace { header, events, end: None });
        let waits = who_waits(&log);
        // Nobody is to blame before the end.
        let causes = wait_causes(&log, &waits, &[]);
        Ok((waits, causes))
    }
}
