//! What of a simulation is written down.

use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Event, What};

/// Collects events in time order.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// False while a session replays what it has recorded before.
    pub(crate) on: bool,
    /// Whether messages are recorded, not only calls.
    pub(crate) messages: bool,
    pub(crate) events: Vec<Event>,
}

impl Recorder {
    pub(crate) fn record(&mut self, time_ps: u64, rank: GlobalRank, what: impl FnOnce() -> What) {
        if self.on {
            self.events.push(Event { time_ps, rank, what: what() });
        }
    }

    pub(crate) fn message(&mut self, time_ps: u64, rank: GlobalRank, what: impl FnOnce() -> What) {
        if self.messages {
            self.record(time_ps, rank, what);
        }
    }
}
