//! The parts of a time: the chain of messages that ends last, message by message.
//!
//! A message leaves when what it carries is there and its sender's port is free, takes its link's
//! latency, and then its bytes pass the receiver's port, once that is free. So every time that the
//! network makes is a sum of latencies, of bytes on their way and of waiting for ports, along the
//! chain of messages each of which sent what the one before brought. The engine keeps that sum
//! beside the time, for whoever asks; it always adds up to it.

use crate::network::Passage;
use serde::{Deserialize, Serialize};

/// The messages of a chain that took one kind of link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leg {
    /// Messages from rank to rank.
    pub messages: u64,
    /// Messages to or from a switch, which have half of a link's latency.
    pub switch_hops: u64,
    /// Their latencies, in picoseconds.
    pub latency_ps: u64,
    /// Bytes in them.
    pub bytes: u64,
    /// Time that those bytes were on their way, in picoseconds.
    pub transmit_ps: u64,
}

/// A chain of messages, each of which is sent because the one before arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Path {
    /// On links inside a node; on all of them when there are no nodes.
    pub inside: Leg,
    /// On links between nodes.
    pub across: Leg,
    /// Waiting for a port that sends or receives another message, in picoseconds.
    pub waiting_ps: u64,
    /// Time outside the messages of collectives: computations, pauses, point-to-point calls.
    pub other_ps: u64,
}

impl Path {
    /// The latencies, in picoseconds.
    pub fn latency_ps(&self) -> u64 {
        self.inside.latency_ps.saturating_add(self.across.latency_ps)
    }

    /// The bytes on their way, in picoseconds.
    pub fn transmit_ps(&self) -> u64 {
        self.inside.transmit_ps.saturating_add(self.across.transmit_ps)
    }

    /// The sum of all parts, in picoseconds.
    pub fn time_ps(&self) -> u64 {
        let parts = [self.transmit_ps(), self.waiting_ps, self.other_ps];
        parts.into_iter().fold(self.latency_ps(), u64::saturating_add)
    }

    fn leg(&mut self, across: bool) -> &mut Leg {
        if across { &mut self.across } else { &mut self.inside }
    }

    /// The chain up to when a message's last byte has left, which began at the chain's end.
    fn left(mut self, passage: &Passage, bytes: u64) -> Path {
        self.waiting_ps = self.waiting_ps.saturating_add(passage.waits_to_leave());
        let transmit_ps = passage.left - passage.departs;
        let leg = self.leg(passage.across);
        leg.bytes = leg.bytes.saturating_add(bytes);
        leg.transmit_ps = leg.transmit_ps.saturating_add(transmit_ps);
        self
    }

    /// The chain with a message that began at its end and has arrived.
    fn arrived(self, passage: &Passage, bytes: u64) -> Path {
        let mut path = self.left(passage, bytes);
        path.waiting_ps = path.waiting_ps.saturating_add(passage.waits_to_arrive());
        let leg = path.leg(passage.across);
        leg.messages += u64::from(!passage.by_switch);
        leg.switch_hops += u64::from(passage.by_switch);
        leg.latency_ps = leg.latency_ps.saturating_add(passage.latency_ps);
        path
    }
}

/// The chains that led to the events in progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paths {
    /// To the event that is being handled.
    cause: Path,
    /// By message.
    messages: Vec<Path>,
    /// By channel: to when the last send of its step has left.
    left: Vec<(u64, Path)>,
    /// To the end of the rank that ended last.
    pub(crate) end: Path,
}

fn place<T: Clone + Default>(list: &mut Vec<T>, at: u32) -> &mut T {
    let at = at as usize;
    if list.len() <= at {
        list.resize(at + 1, T::default());
    }
    &mut list[at]
}

impl Paths {
    /// A channel has put a message on its way, now.
    pub(crate) fn sent(&mut self, channel: u32, message: u32, passage: &Passage, bytes: u64) {
        let cause = self.cause;
        *place(&mut self.messages, message) = cause.arrived(passage, bytes);
        let left = place(&mut self.left, channel);
        if passage.left >= left.0 {
            *left = (passage.left, cause.left(passage, bytes));
        }
    }

    /// Notes that the arrival of a message is handled now.
    pub(crate) fn message_came(&mut self, now: u64, message: u32) {
        let path = self.messages.get(message as usize).copied();
        self.begin(now, path);
    }

    /// A channel's sends have all left, now.
    pub(crate) fn sends_left(&mut self, now: u64, channel: u32) {
        let path = self.left.get(channel as usize).map(|(_, path)| *path);
        self.begin(now, path);
    }

    /// Something else happens now.
    pub(crate) fn other(&mut self, now: u64) {
        self.begin(now, None);
    }

    fn begin(&mut self, now: u64, path: Option<Path>) {
        self.cause = match path {
            Some(path) if path.time_ps() == now => path,
            // Time went by that no message took.
            _ => {
                let gone = now.saturating_sub(self.cause.time_ps());
                let other_ps = self.cause.other_ps.saturating_add(gone);
                Path { other_ps, ..self.cause }
            }
        };
    }

    /// A rank has ended.
    pub(crate) fn ended(&mut self) {
        self.end = self.cause;
    }
}
