//! The recorder of a simulation: it decides which events are written down.

use crate::config::SimConfig;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Event, PlanCalls, What};

/// Collects events in time order.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    /// False while a session replays events that it has recorded before.
    pub(crate) on: bool,
    /// True if messages are recorded, not only calls.
    pub(crate) messages: bool,
    /// The ranks whose events are recorded, in increasing order; all if none are named.
    pub(crate) ranks: Option<Vec<u32>>,
    pub(crate) events: Vec<Event>,
    /// Per step of the schedules, when its first message was sent, by a rank or a switch;
    /// `u64::MAX` for a step without messages.
    pub(crate) step_begins: Vec<u64>,
    /// The calls that are recorded.
    pub(crate) calls: PlanCalls,
}

impl Recorder {
    /// A recorder of the events that a configuration asks for.
    pub(crate) fn new(config: &SimConfig) -> Recorder {
        let (messages, ranks) = (config.record_messages, config.record_ranks.clone());
        Recorder { on: true, messages, ranks, ..Recorder::default() }
    }

    /// True if the events of a rank are recorded.
    pub(crate) fn wants(&self, rank: GlobalRank) -> bool {
        self.on && self.ranks.as_ref().is_none_or(|ranks| ranks.binary_search(&rank.0).is_ok())
    }

    pub(crate) fn record(&mut self, time_ps: u64, rank: GlobalRank, what: impl FnOnce() -> What) {
        if self.wants(rank) {
            self.events.push(Event { time_ps, rank, what: what() });
        }
    }

    /// A message of a schedule's step has been sent.
    pub(crate) fn sent_in(&mut self, step: u32, time_ps: u64) {
        if !self.on || !self.messages {
            return;
        }
        let step = step as usize;
        if self.step_begins.len() <= step {
            self.step_begins.resize(step + 1, u64::MAX);
        }
        self.step_begins[step] = self.step_begins[step].min(time_ps);
    }

    pub(crate) fn message(&mut self, time_ps: u64, rank: GlobalRank, what: impl FnOnce() -> What) {
        if self.messages {
            self.record(time_ps, rank, what);
        }
    }
}
