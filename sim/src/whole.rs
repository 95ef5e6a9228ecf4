//! Collectives as a whole: what a ring takes, and what a schedule takes whose ranks all do alike,
//! without an event a message.
//!
//! If all ranks do alike ([`ranks_are_alike`](lockstep_core::schedule::Schedule::ranks_are_alike)), begin together and have equal links and
//! chunks, they stay in lock step: a step takes its message's latency and bytes, and one rank tells
//! for all.
//!
//! In a ring every rank hears from one rank only, so when its messages arrive follows from when the
//! ranks began, whatever order events are handled in:
//!
//! ```text
//! arrives[r][s] = max(begins[r-1][s] + latency, arrives[r][s-1]) + transmit(r-1, s)
//! begins[r][s+1] = max(arrives[r][s], begins[r][s] + transmit(r, s))
//! ```
//!
//! No rank is done with an `all_reduce`, `all_gather` or `reduce_scatter` before all have begun it,
//! so the last one to begin works out when each is done: n ranks and s steps are n·s maxima in place
//! of n·s queue entries, and n sums where all began at the same time with equal chunks. The times are
//! those of [`crate::channel`], to the picosecond.
//!
//! That holds as long as no port receives from two ranks in an order that only the messages' own
//! events would decide. [`Network`](crate::network::Network) watches for that; then the whole
//! simulation is made again, message by message. Only plans whose calls are all of one group take
//! this way, and only where nobody looks at values or messages.

use super::active::Active;
use super::link::Link;
use super::network::Port;
use super::rings::{Begun, is_alike, is_ring};
use super::state::{Due, Engine};
use super::topology::Topology;
use lockstep_core::collective::Collective;
use lockstep_core::rank::GlobalRank;
use lockstep_core::schedule::{Action, Buffer};

impl Engine {
    /// Leaves a call that a channel has begun to this file, if it is a ring or its ranks do alike.
    pub(crate) fn begin_whole(&mut self, index: u32) -> bool {
        let Some(whole) = &mut self.whole else { return false };
        let channel = &mut self.channels[index as usize];
        let Some(active) = channel.active.as_mut() else { return false };
        let schedule = &active.signature.schedule;
        let ring = is_ring(schedule);
        if !ring && !is_alike(schedule) {
            return false;
        }
        active.whole = true;
        let (size, me) = (schedule.size(), channel.me);
        let key = (active.seq, active.signature_number);
        let begun = whole
            .begun
            .entry(key)
            .or_insert_with(|| Begun { at: vec![None; size as usize], ranks: 0 });
        if let Some(at) = begun.at.get_mut(me.index())
            && at.replace(self.now).is_none()
        {
            begun.ranks += 1;
        }
        let next = GlobalRank((me.0 + 1) % size);
        if ring {
            self.network.expect_ring(GlobalRank(me.0), next, self.now);
        }
        if begun.ranks == size
            && let Some(begun) = whole.begun.remove(&key)
        {
            let begun: Vec<u64> = begun.at.into_iter().flatten().collect();
            match ring {
                true => self.carry_out_whole(index, begun),
                false => self.carry_out_alike(index, &begun),
            }
        }
        true
    }

    /// All ranks have begun a call in which all act alike. If one begins later than others, the lock step is
    /// broken, and the messages are simulated.
    fn carry_out_alike(&mut self, index: u32, begun: &[u64]) {
        let channel = &self.channels[index as usize];
        let Some(active) = &channel.active else { return };
        let grids = [Buffer::Input, Buffer::Output, Buffer::Scratch].map(|it| active.grid(it));
        let even = grids.iter().all(|grid| grid.elements.is_multiple_of(grid.chunks.max(1).into()));
        let uniform = match self.network.topology() {
            Topology::Uniform(link) => Some(link),
            Topology::Nodes { .. } | Topology::SharedMemory(_) => None,
        };
        let together = begun.iter().all(|at| *at == self.now);
        let schedule = &active.signature.schedule;
        let (mut actions, mut now, mut last) = (Vec::new(), Some(self.now), self.now);
        let (mut sends_until, mut receives_until) = (self.now, self.now);
        for step in 0..active.steps {
            schedule.actions(channel.me, step, &mut actions);
            for action in &actions {
                if let (Action::Send { from, .. }, Some(begins), Some(link)) =
                    (action, now, uniform)
                {
                    let range = active.byte_range(*from);
                    let transmit = link.transmit_ps(range.end - range.start);
                    last = begins;
                    sends_until = begins.saturating_add(transmit);
                    now = sends_until.checked_add(link.latency_ps);
                    receives_until = sends_until.saturating_add(link.latency_ps);
                }
            }
        }
        let size = schedule.size();
        let first = index - channel.me.0;
        let from = self.now;
        let ports = self.network.ports_mut();
        let idle = ports.iter().all(|port| port.sends_until <= from && port.receives_until <= from);
        let Some(done) = now.filter(|_| even && together && idle && uniform.is_some()) else {
            self.network.give_up();
            return;
        };
        ports.iter_mut().take(size as usize).for_each(|port| {
            *port = Port { sends_until, receives_until };
        });
        self.network.end_alike(last);
        for rank in 0..size {
            self.queue.push(done, Due::Whole(first + rank));
        }
    }

    /// All ranks have begun: works out when each is done, and when its ports are free.
    fn carry_out_whole(&mut self, index: u32, begun: Vec<u64>) {
        let channel = &self.channels[index as usize];
        let Some(active) = &channel.active else { return };
        let first = index - channel.me.0;
        let chunk_bytes = chunk_bytes(active);
        let steps = active.signature.schedule.steps();
        let ring = Ring::new(&self.network.topology(), begun, chunk_bytes, steps);
        let ports = self.network.ports_mut();
        let Some(ring) = ring.carry_out(ports) else {
            self.network.give_up();
            return;
        };
        for (rank, done) in (0u32..).zip(ring.begins) {
            let next = GlobalRank((rank + 1) % ring.size);
            self.network.end_ring(GlobalRank(rank), next, ring.last_sends[rank as usize]);
            self.queue.push(done, Due::Whole(first + rank));
        }
    }

    /// A call as a whole is done on a rank.
    pub(crate) fn finish_whole(&mut self, index: u32) {
        if let Some(active) = self.channels[index as usize].active.as_mut() {
            active.whole = false;
            active.step = active.signature.schedule.steps();
        }
    }
}

/// Bytes of each chunk that goes round; one number where they are all equal.
fn chunk_bytes(active: &Active) -> Vec<u64> {
    let size = active.signature.dtype.size_bytes();
    let count = match active.signature.schedule.collective() {
        Collective::AllReduce { .. } => {
            let grid = active.grid(Buffer::Output);
            let chunks = 0..active.signature.schedule.size();
            let bytes = chunks.map(|chunk| {
                let range = grid.range(chunk, 1);
                (range.end - range.start).saturating_mul(size)
            });
            let bytes: Vec<u64> = bytes.collect();
            if bytes.windows(2).any(|pair| pair[0] != pair[1]) {
                return bytes;
            }
            return bytes.into_iter().take(1).collect();
        }
        _ => active.signature.count,
    };
    vec![count.saturating_mul(size)]
}

/// A ring that is being worked out.
struct Ring {
    size: u32,
    steps: u32,
    /// Per rank, when it begins its step; at the end, when it is done.
    begins: Vec<u64>,
    /// Per rank, when it began its last step.
    last_sends: Vec<u64>,
    /// Per rank, the link to the next; one where they are all the same.
    links: Vec<Link>,
    chunk_bytes: Vec<u64>,
}

impl Ring {
    fn new(
        topology: &crate::topology::Topology,
        begins: Vec<u64>,
        chunk_bytes: Vec<u64>,
        steps: u32,
    ) -> Ring {
        let size = begins.len() as u32;
        let next = |rank: u32| topology.link(GlobalRank(rank), GlobalRank((rank + 1) % size));
        let mut links: Vec<Link> = (0..size).map(next).collect();
        if links.windows(2).all(|pair| pair[0] == pair[1]) {
            links.truncate(1);
        }
        Ring { size, steps, last_sends: begins.clone(), begins, links, chunk_bytes }
    }

    /// Carries the ring out; `None` where times would not fit their type.
    fn carry_out(mut self, ports: &mut [Port]) -> Option<Ring> {
        let most = |of: &dyn Fn(&Link) -> u64| self.links.iter().map(of).max().unwrap_or(0);
        let largest = self.chunk_bytes.iter().copied().max().unwrap_or(0);
        let hop = most(&|link| link.latency_ps).checked_add(most(&|l| l.transmit_ps(largest)))?;
        let latest = self.begins.iter().copied().max().unwrap_or(0);
        let busy = ports.iter().map(|port| port.receives_until.max(port.sends_until)).max();
        // From here on no sum overflows.
        latest.max(busy.unwrap_or(0)).checked_add(hop.checked_mul(u64::from(self.steps) + 1)?)?;
        let earliest = self.begins.iter().copied().min().unwrap_or(0);
        let idle = busy.unwrap_or(0) <= earliest;
        match (&self.links[..], &self.chunk_bytes[..]) {
            ([link], [bytes]) if idle && earliest == latest => {
                let transmit = link.transmit_ps(*bytes);
                let hop = link.latency_ps + transmit;
                let last = earliest + u64::from(self.steps - 1) * hop;
                self.last_sends.fill(last);
                self.begins.fill(last + hop);
                ports.iter_mut().take(self.begins.len()).for_each(|port| {
                    port.sends_until = last + transmit;
                    port.receives_until = last + hop;
                });
            }
            _ => self.step_by_step(ports),
        }
        Some(self)
    }

    fn step_by_step(&mut self, ports: &mut [Port]) {
        let n = self.size as usize;
        // A rank's first message waits until its port is free; its later ones never do.
        let mut begins: Vec<u64> = self.begins.clone();
        let mut departs: Vec<u64> =
            begins.iter().zip(ports.iter()).map(|(at, port)| (*at).max(port.sends_until)).collect();
        let mut arrives: Vec<u64> = ports.iter().take(n).map(|port| port.receives_until).collect();
        // By the rank that receives, so that all slices run the same way.
        let from = |rank: usize| self.links[((rank + n - 1) % n) % self.links.len()];
        let latency: Vec<u64> = (0..n).map(|rank| from(rank).latency_ps).collect();
        // Twice around, so that a step's chunks are one slice. Where links differ, a table a kind.
        let mut kinds: Vec<Link> = Vec::new();
        let kind_of: Vec<usize> = (0..n)
            .map(|rank| {
                let link = from(rank);
                kinds.iter().position(|kind| *kind == link).unwrap_or_else(|| {
                    kinds.push(link);
                    kinds.len() - 1
                })
            })
            .collect();
        let chunk = |chunk: usize| self.chunk_bytes[(chunk % n) % self.chunk_bytes.len()];
        let tables: Vec<Vec<u64>> = kinds
            .iter()
            .map(|link| (0..2 * n).map(|place| link.transmit_ps(chunk(place))).collect())
            .collect();
        let mut transmit = vec![0u64; n];
        for step in 0..self.steps as usize {
            // Rank r hears chunk r - 1 - step from its neighbour.
            let first = (2 * n - 1 - step % n) % n;
            match &tables[..] {
                [table] => transmit.copy_from_slice(&table[first..first + n]),
                _ => {
                    let places = transmit.iter_mut().zip(&kind_of).enumerate();
                    places.for_each(|(rank, (time, kind))| *time = tables[*kind][first + rank]);
                }
            }
            self.last_sends.copy_from_slice(&begins);
            let hear = |departs: u64, latency: u64, transmit: u64, arrives: u64| {
                (departs + latency).max(arrives) + transmit
            };
            let [last, first_heard] = [departs[n - 1], arrives[0]];
            arrives[0] = hear(last, latency[0], transmit[0], first_heard);
            let rest = arrives[1..].iter_mut().zip(&departs).zip(&latency[1..]).zip(&transmit[1..]);
            for (((arrives, departs), latency), transmit) in rest {
                *arrives = hear(*departs, *latency, *transmit, *arrives);
            }
            // Rank r's sent bytes are those that its neighbour receives.
            let sent = departs.iter_mut().zip(transmit[1..].iter().chain(&transmit[..1]));
            sent.for_each(|(departs, transmit)| *departs += transmit);
            if step + 1 == self.steps as usize {
                for ((port, departs), arrives) in ports.iter_mut().zip(&departs).zip(&arrives) {
                    port.sends_until = *departs;
                    port.receives_until = *arrives;
                }
            }
            let left = departs.iter_mut().zip(&arrives).zip(&mut begins);
            for ((departs, arrives), begins) in left {
                *begins = (*departs).max(*arrives);
                *departs = *begins;
            }
        }
        self.begins = begins;
    }
}
