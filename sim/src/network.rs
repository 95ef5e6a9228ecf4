//! When a message arrives: each rank sends one byte stream and receives one at a time, so that
//! many messages into one rank queue up there (incast), and many out of one queue up at its start.

use crate::topology::Topology;
use lockstep_core::rank::GlobalRank;

/// The occupation of every rank's two ports.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    topology: Topology,
    /// Per rank, when its sending port is free, in picoseconds.
    sending_until: Vec<u64>,
    /// Per rank, when its receiving port is free, in picoseconds.
    receiving_until: Vec<u64>,
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
}

impl Network {
    pub(crate) fn new(topology: Topology, world_size: u32) -> Network {
        let idle = vec![0; world_size as usize];
        Network { topology, sending_until: idle.clone(), receiving_until: idle }
    }

    /// Puts a message on its way at `now` and occupies both ports for it.
    pub(crate) fn send(
        &mut self,
        now: u64,
        from: GlobalRank,
        to: GlobalRank,
        bytes: u64,
    ) -> Passage {
        let link = self.topology.link(from, to);
        let transmit = link.transmit_ps(bytes);
        let departs = now.max(self.sending_until[from.index()]);
        let left = departs.saturating_add(transmit);
        let reaches = departs.saturating_add(link.latency_ps);
        let arrives = reaches.max(self.receiving_until[to.index()]).saturating_add(transmit);
        self.sending_until[from.index()] = left;
        self.receiving_until[to.index()] = arrives;
        Passage { departs, left, arrives }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Link;

    #[test]
    fn ports_are_shared_and_links_cost_latency_plus_bytes() {
        let link = Link { latency_ps: 100, bytes_per_second: 1_000_000_000_000 };
        let mut network = Network::new(Topology::Uniform(link), 3);
        let [a, b, c] = [0, 1, 2].map(GlobalRank);
        let first = network.send(0, a, b, 10);
        assert_eq!(first, Passage { departs: 0, left: 10, arrives: 110 });
        // The same sender waits for its port; the same receiver for its own.
        assert_eq!(network.send(0, a, c, 10), Passage { departs: 10, left: 20, arrives: 120 });
        assert_eq!(network.send(0, c, b, 10).arrives, 120);
        assert_eq!(network.send(500, a, b, 10).arrives, 610);
    }
}
