//! The recorder of a simulation: it decides which events are written down.

use crate::config::SimConfig;
use lockstep_core::plan::Plan;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallCollector, CallRecord, Event, PlanCalls, What};

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
    /// Collects calls instead of `events`, where only calls are kept.
    pub(crate) collector: Option<CallCollector>,
    /// The number of events that the collector has taken.
    pub(crate) collected: usize,
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

    /// The number of events so far.
    pub(crate) fn recorded(&self) -> usize {
        self.collected + self.events.len()
    }

    /// True if the events of a rank are recorded.
    pub(crate) fn wants(&self, rank: GlobalRank) -> bool {
        self.on && self.ranks.as_ref().is_none_or(|ranks| ranks.binary_search(&rank.0).is_ok())
    }

    pub(crate) fn record(&mut self, time_ps: u64, rank: GlobalRank, what: impl FnOnce() -> What) {
        if !self.wants(rank) {
            return;
        }
        let event = Event { time_ps, rank, what: what() };
        match &mut self.collector {
            None => self.events.push(event),
            Some(collector) => {
                self.collected += 1;
                collector.take(&event);
            }
        }
    }

    /// A rank has made the `part`-th call of an operation as its `work`, number `seq` of its group.
    pub(crate) fn scheduled(
        &mut self,
        time_ps: u64,
        (plan, rank): (&Plan, GlobalRank),
        (op, part): (u32, u32),
        (work, seq): (u32, u64),
    ) {
        if !self.wants(rank) {
            return;
        }
        let Some(collector) = &mut self.collector else {
            if let Some(call) = self.calls.call(plan, rank, (op, part), seq) {
                let what = What::Scheduled { work, call };
                self.events.push(Event { time_ps, rank, what });
            }
            return;
        };
        if let Some(call) = self.calls.called(plan, rank, (op, part)) {
            self.collected += 1;
            let record = CallRecord {
                seq: Some(seq),
                plan_op: Some(op),
                ..CallRecord::made(work, time_ps, call)
            };
            collector.take_call(rank, record);
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
