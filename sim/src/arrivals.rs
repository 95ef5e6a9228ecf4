//! Messages without a viewer: each is sent and occupies its ports as ever, but its arrival is only counted,
//! so that a step costs one queue entry and not one a message.
//!
//! A message's arrival time is known when it is sent, and a rank goes on when the last message of its step
//! has arrived. That event takes the place in the queue that the last message's own event would have
//! ([`EventQueue::reserve`](crate::queue::EventQueue::reserve)), so that everything happens in the same
//! order, and at the same times, as with all of them.
//!
//! Values, sizes on which ranks disagree, switches and ranks that end in the middle of a call need the
//! messages themselves. So do ranks whose messages are recorded: each message that they receive is an event,
//! while those of the others are counted.

use super::config::SimConfig;
use super::prepared::Prepared;
use super::topology::Topology;
use lockstep_core::group::GroupId;
use lockstep_core::plan::{Call, Plan};
use lockstep_core::rank::GlobalRank;
use std::collections::VecDeque;

/// A step of a call: sequence number, step and signature.
pub(crate) type StepOfCall = (u64, u32, u32);

/// Time of arrival and place in the queue.
pub(crate) type Arrival = (u64, u64);

/// The messages of one step that have been sent to a channel.
#[derive(Clone, Copy, Debug)]
struct Counted {
    step: StepOfCall,
    messages: u32,
    last: Arrival,
}

/// The state of a channel's wait for its step's messages.
#[derive(Clone, Copy, Debug, Default)]
enum Waits {
    #[default]
    Nothing,
    /// So many messages, of which some have not been sent.
    Messages(Counted, u32),
    /// The last arrival, which is an event of the queue.
    Arrival,
}

/// The messages that have been sent to a channel for its step and for later ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Arrivals {
    waits: Waits,
    /// The messages of the first of the later steps that some were sent for. Ranks in lock step are never further
    /// ahead than that.
    next: Option<Counted>,
    /// Those of the steps behind it, in order.
    later: VecDeque<Counted>,
}

impl Counted {
    fn add(&mut self, arrival: Arrival) {
        self.messages += 1;
        self.last = self.last.max(arrival);
    }
}

impl Arrivals {
    /// Counts a message; the last arrival of its step if that is complete now.
    pub(crate) fn count(&mut self, step: StepOfCall, arrival: Arrival) -> Option<Arrival> {
        if let Waits::Messages(counted, needed) = &mut self.waits
            && counted.step == step
        {
            counted.add(arrival);
            let last = (counted.messages == *needed).then_some(counted.last)?;
            self.waits = Waits::Arrival;
            return Some(last);
        }
        let first = Counted { step, messages: 1, last: arrival };
        match &mut self.next {
            None => self.next = Some(first),
            Some(next) if next.step == step => next.add(arrival),
            Some(next) if next.step > step => {
                self.later.push_front(std::mem::replace(next, first));
            }
            Some(_) => {
                let place = self.later.partition_point(|counted| counted.step < step);
                match self.later.get_mut(place).filter(|counted| counted.step == step) {
                    Some(counted) => counted.add(arrival),
                    None => self.later.insert(place, first),
                }
            }
        }
        None
    }

    /// The channel begins a step that needs so many messages: the last arrival if all have been
    /// sent.
    pub(crate) fn begin(&mut self, step: StepOfCall, needed: u32) -> Option<Arrival> {
        let sent = match self.next {
            Some(next) if next.step == step => {
                self.next = self.later.pop_front();
                Some(next)
            }
            // Messages of calls that the rank never made stay.
            Some(next) if next.step < step => {
                let place = self.later.partition_point(|counted| counted.step < step);
                let is_there = self.later.get(place).is_some_and(|counted| counted.step == step);
                is_there.then(|| self.later.remove(place)).flatten()
            }
            _ => None,
        };
        let counted = sent.unwrap_or(Counted { step, messages: 0, last: (0, 0) });
        if counted.messages == needed {
            self.waits = Waits::Arrival;
            return Some(counted.last);
        }
        self.waits = Waits::Messages(counted, needed);
        None
    }

    /// True if the channel waits for messages of its step.
    pub(crate) fn waits(&self) -> bool {
        !matches!(self.waits, Waits::Nothing)
    }

    /// The messages of the channel's step have arrived.
    pub(crate) fn end(&mut self) {
        self.waits = Waits::Nothing;
    }
}

/// Per channel, its counted messages.
#[derive(Clone, Debug)]
pub(crate) struct CountedMessages {
    channels: Vec<Arrivals>,
    /// The number of channels: lists are made when the first message is counted.
    all: usize,
    /// The ranks whose messages are recorded, in increasing order.
    looked_at: Vec<u32>,
}

impl CountedMessages {
    /// `None` where a plan needs all of its messages.
    pub(crate) fn new(
        plan: &Plan,
        prepared: &Prepared,
        config: &SimConfig,
    ) -> Option<CountedMessages> {
        let on_cores = matches!(config.topology, Topology::SharedMemory(_));
        if prepared.values || prepared.half_done || on_cores {
            return None;
        }
        let looked_at = match (config.record_messages, &config.record_ranks) {
            (false, _) => Vec::new(),
            (true, Some(ranks)) => ranks.clone(),
            (true, None) => return None,
        };
        let mut groups = (0..).map(GroupId).take(plan.groups.len());
        let ops = plan.programs.iter().flat_map(|program| &program.ops);
        let mut calls = ops.flat_map(|op| op.action.calls());
        let uneven = calls.any(|call| matches!(call, Call::Collective { splits: Some(_), .. }));
        if uneven || groups.any(|group| prepared.switches(group) > 0) {
            return None;
        }
        Some(CountedMessages { channels: Vec::new(), all: prepared.channels as usize, looked_at })
    }

    /// The counted messages to a channel.
    pub(crate) fn of(&mut self, channel: u32) -> &mut Arrivals {
        if self.channels.is_empty() {
            self.make_lists();
        }
        &mut self.channels[channel as usize]
    }

    #[cold]
    fn make_lists(&mut self) {
        self.channels.resize(self.all, Arrivals::default());
    }

    /// True if a channel waits for messages that are counted.
    pub(crate) fn wait(&self, channel: u32) -> bool {
        self.channels.get(channel as usize).is_some_and(Arrivals::waits)
    }

    /// True if no messages are events of their own.
    pub(crate) fn looks_at_none(&self) -> bool {
        self.looked_at.is_empty()
    }

    /// True if the messages to a rank are events of their own.
    pub(crate) fn looks_at(&self, rank: GlobalRank) -> bool {
        self.looked_at.binary_search(&rank.0).is_ok()
    }
}
