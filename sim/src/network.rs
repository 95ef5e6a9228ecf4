//! Message times: each rank sends one byte stream and receives one at a time, so that many messages into one
//! rank queue up there (incast), and many out of one queue up at its start. A switch has a port for each of
//! its neighbours, which its messages to and from them occupy.

use crate::link::Link;
use crate::shared_memory::{Cores, Touch};
use crate::topology::Topology;
use lockstep_core::plan::TransferTime;
use lockstep_core::rank::GlobalRank;
use lockstep_core::schedule::Algorithm;

/// The largest message that a sender copies before it goes on, in bytes.
const MOST_COPIED: u64 = Algorithm::MOST_COPIED_IN_SHARED_MEMORY;

/// The occupation of every rank's two ports.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    topology: Topology,
    ports: Vec<Port>,
    /// The cores of ranks that share a machine's memory: then messages occupy no ports, but cores.
    cores: Option<Cores>,
    /// The senders to each rank, where rings are worked out as a whole.
    heard: Option<Vec<Heard>>,
    /// True if two ranks have sent to one in an order that only single messages could show.
    ambiguous: bool,
    /// The last message's link and bytes, and how long it occupied the link: most messages are as long as the
    /// one before, and a division takes longer than to see that.
    last: (Link, u64, u64),
}

/// The senders to a rank.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    /// The last sender.
    last: Option<GlobalRank>,
    /// The time at which it sent.
    last_ps: u64,
    /// The rank that has begun a ring that is not worked out yet: it may be sending.
    ring: Option<GlobalRank>,
}

/// When a rank's ports are free, in picoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Port {
    pub(crate) sends_until: u64,
    pub(crate) receives_until: u64,
}

/// The times of one message, in picoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Passage {
    /// Its first byte leaves.
    pub(crate) departs: u64,
    /// Its last byte has left: the sender's memory is free again.
    pub(crate) left: u64,
    /// Its last byte has arrived.
    pub(crate) arrives: u64,
    /// It could have left: the time at which it was sent.
    pub(crate) ready: u64,
    pub(crate) latency_ps: u64,
    /// True if the message goes through the network between nodes.
    pub(crate) across: bool,
    /// True if one of the message's ends is a switch.
    pub(crate) by_switch: bool,
}

impl Passage {
    /// A message that takes no time, since its call's time is known as a whole.
    pub(crate) fn at_once(now: u64) -> Passage {
        Passage::over(now, 0)
    }

    /// A message that takes a part of its call's known time.
    pub(crate) fn over(now: u64, takes: u64) -> Passage {
        let (across, by_switch) = (false, false);
        let arrives = now.saturating_add(takes);
        Passage {
            departs: now,
            left: arrives,
            arrives,
            ready: now,
            latency_ps: 0,
            across,
            by_switch,
        }
    }

    /// Time that it waited while its sender's port was busy with others.
    pub(crate) fn waits_to_leave(&self) -> u64 {
        self.departs - self.ready
    }

    /// Time that it waited while its receiver's port was busy with others.
    pub(crate) fn waits_to_arrive(&self) -> u64 {
        let alone = self.left.saturating_add(self.latency_ps);
        self.arrives.saturating_sub(alone)
    }
}

impl Network {
    /// The network of so many ranks and, behind them, switches.
    pub(crate) fn new(topology: Topology, participants: u32) -> Network {
        let ports = vec![Port::default(); participants as usize];
        let cores = match topology {
            Topology::SharedMemory(machine) => Some(Cores::new(machine, participants)),
            Topology::Uniform(_) | Topology::Nodes { .. } => None,
        };
        let last = (Link::DEFAULT, 0, 0);
        Network { topology, ports, cores, heard: None, ambiguous: false, last }
    }

    /// From now on, watches whether the order of messages into a port is known.
    pub(crate) fn watch_order(&mut self) {
        self.heard = Some(vec![Heard::default(); self.ports.len()]);
    }

    /// True if an order was not known: the times since may be wrong.
    pub(crate) fn is_ambiguous(&self) -> bool {
        self.ambiguous
    }

    /// Something cannot be worked out as a whole.
    pub(crate) fn give_up(&mut self) {
        self.ambiguous = true;
    }

    /// A rank has begun a ring, in which it sends to another.
    pub(crate) fn expect_ring(&mut self, from: GlobalRank, to: GlobalRank, now: u64) {
        self.watch(from, to, now);
        if let Some(heard) = self.heard.as_mut().and_then(|heard| heard.get_mut(to.index())) {
            heard.ring = Some(from);
        }
    }

    /// The ring is worked out: its last message left then.
    pub(crate) fn end_ring(&mut self, from: GlobalRank, to: GlobalRank, last: u64) {
        if let Some(heard) = self.heard.as_mut().and_then(|heard| heard.get_mut(to.index())) {
            *heard = Heard { last: Some(from), last_ps: last, ring: None };
        }
    }

    /// Every rank has sent and received its last message at the same times, which are known.
    pub(crate) fn end_alike(&mut self, last: u64) {
        for heard in self.heard.iter_mut().flatten() {
            // Whoever sends from now on is another one.
            *heard = Heard { last: Some(GlobalRank(u32::MAX)), last_ps: last, ring: None };
        }
    }

    /// A rank sends to another.
    fn watch(&mut self, from: GlobalRank, to: GlobalRank, now: u64) {
        let Some(heard) = self.heard.as_mut().and_then(|heard| heard.get_mut(to.index())) else {
            return;
        };
        let is_other = heard.last.is_some_and(|before| before != from);
        let in_ring = heard.ring.is_some_and(|before| before != from);
        if in_ring || (is_other && now <= heard.last_ps) {
            self.ambiguous = true;
        }
        (heard.last, heard.last_ps) = (Some(from), now);
    }

    pub(crate) fn topology(&self) -> Topology {
        self.topology
    }

    pub(crate) fn ports_mut(&mut self) -> &mut [Port] {
        &mut self.ports
    }

    /// Puts a message on its way at `now` and occupies both ports for it.
    #[inline]
    pub(crate) fn send(
        &mut self,
        now: u64,
        from: GlobalRank,
        to: GlobalRank,
        bytes: u64,
    ) -> Passage {
        if let Some(cores) = &mut self.cores {
            return send_on_cores(cores, now, from, bytes);
        }
        let (link, across) = (self.topology.link(from, to), self.topology.is_across(from, to));
        self.watch(from, to, now);
        let times = self.times(link, bytes);
        self.pass(now, times, Some(from), Some(to), across)
    }

    /// Sends a rank's messages of one step, each with its receiver and bytes, and hands on when each arrives. Returns
    /// when the last one has left. On equal links, which most networks have, all but the receiver's port is the
    /// sender's own and stays at hand.
    #[inline]
    pub(crate) fn send_all<T>(
        &mut self,
        now: u64,
        from: GlobalRank,
        messages: impl Iterator<Item = (T, GlobalRank, u64)>,
        mut arrives: impl FnMut(T, u64),
    ) -> u64 {
        let link = match self.topology {
            Topology::Uniform(link) if self.cores.is_none() && self.heard.is_none() => link,
            _ => {
                let mut left = now;
                for (of, to, bytes) in messages {
                    let passage = self.send(now, from, to, bytes);
                    left = left.max(passage.left);
                    arrives(of, passage.arrives);
                }
                return left;
            }
        };
        let mut left = now.max(self.ports[from.index()].sends_until);
        let (mut last_bytes, mut transmit) = (None, 0);
        for (of, to, bytes) in messages {
            if last_bytes != Some(bytes) {
                (last_bytes, transmit) = (Some(bytes), self.times(link, bytes).1);
            }
            let reaches = left.saturating_add(link.latency_ps);
            let port = &mut self.ports[to.index()];
            port.receives_until = reaches.max(port.receives_until).saturating_add(transmit);
            arrives(of, port.receives_until);
            left = left.saturating_add(transmit);
        }
        if last_bytes.is_none() {
            return now;
        }
        self.ports[from.index()].sends_until = left;
        left
    }

    /// A message whose times are known: they occupy both ports as any message's do.
    pub(crate) fn send_timed(
        &mut self,
        now: u64,
        from: GlobalRank,
        to: GlobalRank,
        takes: TransferTime,
    ) -> Passage {
        let across = self.topology.is_across(from, to);
        self.pass(now, (takes.latency_ps, takes.transmit_ps), Some(from), Some(to), across)
    }

    /// The same for a tensor that nobody but the network receives.
    pub(crate) fn send_tensor(
        &mut self,
        now: u64,
        from: GlobalRank,
        to: GlobalRank,
        bytes: u64,
    ) -> Passage {
        let mut passage = self.send(now, from, to, bytes);
        if let Some(stored) = self.touch(passage.arrives, to, Touch::Store, bytes, bytes) {
            passage.left = stored;
            passage.arrives = stored;
        }
        passage
    }

    /// A rank stores or adds some of the bytes that it does in a call, from `now` on or when it and
    /// a core are free: when it is done. `None` where that costs nothing, because it is the
    /// network's work.
    pub(crate) fn touch(
        &mut self,
        now: u64,
        rank: GlobalRank,
        touch: Touch,
        bytes: u64,
        of_call: u64,
    ) -> Option<u64> {
        let cores = self.cores.as_mut()?;
        let takes = cores.machine().touch_ps(touch, bytes, of_call);
        Some(cores.work(now, rank, takes))
    }

    /// True if a message of so many bytes is read in the sender's memory, and the sender waits for that.
    pub(crate) fn lends(&self, bytes: u64) -> bool {
        self.cores.is_some() && bytes > MOST_COPIED
    }

    /// True if a rank's stores and additions take time of their own.
    pub(crate) fn has_cores(&self) -> bool {
        self.cores.is_some()
    }

    /// A rank begins a call: the time at which its work before the first step is done.
    pub(crate) fn begin_call(&mut self, now: u64, rank: GlobalRank) -> Option<u64> {
        let cores = self.cores.as_mut()?;
        let takes = cores.machine().call_ps;
        Some(cores.work(now, rank, takes))
    }

    /// The same for a message to or from a switch, whose numbers are above the ranks' and, of two
    /// switches, the higher above the lower's: the ports are those of the lower end.
    pub(crate) fn send_by_switch(
        &mut self,
        now: u64,
        from: GlobalRank,
        to: GlobalRank,
        bytes: u64,
        in_node: bool,
    ) -> Passage {
        let link = self.topology.hop_by_switch(in_node);
        let across = self.topology.ranks_per_node() > 0 && !in_node;
        let times = self.times(link, bytes);
        match from < to {
            true => self.pass(now, times, Some(from), None, across),
            false => self.pass(now, times, None, Some(to), across),
        }
    }

    /// Latency of a link, and how long a message occupies it, in picoseconds.
    fn times(&mut self, link: Link, bytes: u64) -> (u64, u64) {
        if (self.last.0, self.last.1) != (link, bytes) {
            self.last = (link, bytes, link.transmit_ps(bytes));
        }
        (link.latency_ps, self.last.2)
    }

    #[inline]
    fn pass(
        &mut self,
        now: u64,
        (latency_ps, transmit): (u64, u64),
        sends: Option<GlobalRank>,
        receives: Option<GlobalRank>,
        across: bool,
    ) -> Passage {
        let sends_until = sends.map_or(0, |port| self.ports[port.index()].sends_until);
        let receives_until = receives.map_or(0, |port| self.ports[port.index()].receives_until);
        let departs = now.max(sends_until);
        let left = departs.saturating_add(transmit);
        let reaches = departs.saturating_add(latency_ps);
        let arrives = reaches.max(receives_until).saturating_add(transmit);
        if let Some(port) = sends {
            self.ports[port.index()].sends_until = left;
        }
        if let Some(port) = receives {
            self.ports[port.index()].receives_until = arrives;
        }
        let by_switch = sends.is_none() || receives.is_none();
        Passage { departs, left, arrives, ready: now, latency_ps, across, by_switch }
    }
}

/// Sends a message between two ranks of one machine. The sender's core copies a small message; a large one is read
/// in place.
#[cold]
fn send_on_cores(cores: &mut Cores, now: u64, from: GlobalRank, bytes: u64) -> Passage {
    let machine = cores.machine();
    let latency_ps = machine.latency_ps;
    let copied = if bytes <= MOST_COPIED { bytes } else { 0 };
    let departs = match machine.touch_ps(Touch::Store, copied, copied) {
        0 => now.max(cores.free(from)),
        copying => cores.work(now, from, copying),
    };
    let arrives = departs.saturating_add(latency_ps);
    let (across, by_switch) = (false, false);
    Passage { departs, left: departs, arrives, ready: now, latency_ps, across, by_switch }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared_memory::SharedMemory;

    #[test]
    fn small_messages_are_their_senders_work_too() {
        let machine = SharedMemory {
            cores: 2,
            call_ps: 0,
            latency_ps: 100,
            cached_bytes: [0, 0],
            store_bytes_per_second: [1_000_000_000_000; 3],
            reduce_bytes_per_second: [1_000_000_000_000; 3],
        };
        let [a, b] = [0, 1].map(GlobalRank);
        let left = |bytes| {
            let passage = Network::new(Topology::SharedMemory(machine), 2).send(7, a, b, bytes);
            (passage.left, passage.arrives)
        };
        assert_eq!(left(MOST_COPIED), (7 + MOST_COPIED, 107 + MOST_COPIED));
        assert_eq!(left(MOST_COPIED + 1), (7, 107));
    }

    #[test]
    fn ports_are_shared_and_links_cost_latency_plus_bytes() {
        let link = Link { latency_ps: 100, bytes_per_second: 1_000_000_000_000 };
        let mut network = Network::new(Topology::Uniform(link), 3);
        let [a, b, c] = [0, 1, 2].map(GlobalRank);
        let times = |passage: Passage| (passage.departs, passage.left, passage.arrives);
        assert_eq!(times(network.send(0, a, b, 10)), (0, 10, 110));
        // The same sender waits for its port; the same receiver for its own.
        let second = network.send(0, a, c, 10);
        assert_eq!((times(second), second.waits_to_leave()), ((10, 20, 120), 10));
        let third = network.send(0, c, b, 10);
        assert_eq!((third.arrives, third.waits_to_arrive()), (120, 10));
        assert_eq!(network.send(500, a, b, 10).arrives, 610);
    }

    /// A switch takes from all ranks at once, and sends to all at once; each hop is half the way.
    #[test]
    fn switches_have_a_port_for_each_rank() {
        let link = Link { latency_ps: 100, bytes_per_second: 1_000_000_000_000 };
        let mut network = Network::new(Topology::Uniform(link), 3);
        let [a, b, switch] = [0, 1, 2].map(GlobalRank);
        for rank in [a, b] {
            assert_eq!(network.send_by_switch(0, rank, switch, 10, true).arrives, 60);
            assert_eq!(network.send_by_switch(0, switch, rank, 10, true).arrives, 60);
        }
        assert_eq!(network.send_by_switch(0, a, switch, 10, true).arrives, 70);
    }
}
