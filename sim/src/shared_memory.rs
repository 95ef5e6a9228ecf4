//! Ranks of one machine that read each other's memory: the cost of their calls.
//!
//! A message is a line that says where its bytes are, so sending costs nothing but the time until the
//! receiver sees it, and a copy if it is small. Bytes that are not copied are not overwritten before they
//! were read, which the sender waits for; bytes that no step writes are lent at once, whatever the steps, as
//! the host backend does. The remaining cost is the receiver's: it stores or adds bytes at the rate of the
//! cache that all of its call's bytes fit into, however many messages they come in, on a core that it may
//! share with other ranks. Hence one latency, one cost a call, and two rates (storing and adding) in each of
//! three memories: a core's own cache, the shared one, and the memory behind them. `lockstep calibrate`
//! measures them.

use crate::link::{Link, transmit_ps};
use lockstep_core::rank::GlobalRank;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes a second in a core's own cache, in the shared one, and in memory; 0 counts as 1.
pub type Rates = [u64; 3];

/// The costs of a machine whose ranks share its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SharedMemory {
    /// Cores that the ranks take turns on; 0 counts as 1.
    pub cores: u32,
    /// Time of a rank's work for a call before its first step, in picoseconds.
    pub call_ps: u64,
    /// From a message's publication until its receiver begins with it, in picoseconds.
    pub latency_ps: u64,
    /// The sizes of two caches in bytes: of the bytes that a rank stores and adds in one call, those up to
    /// the first number pass at the first rate, those up to the second number at the second, and the rest at
    /// the third.
    pub cached_bytes: [u64; 2],
    /// The rates of bytes that are stored as they come.
    pub store_bytes_per_second: Rates,
    /// The rates of bytes that are reduced into the receiver's values.
    pub reduce_bytes_per_second: Rates,
}

/// The ways in which a core touches bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    Store,
    Reduce,
}

impl SharedMemory {
    /// Time of a core for `bytes` of the `of_call` bytes that its rank touches in a call, in
    /// picoseconds: their share of the time that all of them take.
    pub(crate) fn touch_ps(&self, touch: Touch, bytes: u64, of_call: u64) -> u64 {
        let of_call = of_call.max(bytes).max(1);
        let all = u128::from(self.all_ps(touch, of_call)) * u128::from(bytes);
        u64::try_from(all / u128::from(of_call)).unwrap_or(u64::MAX)
    }

    fn all_ps(&self, touch: Touch, bytes: u64) -> u64 {
        let rates = match touch {
            Touch::Store => self.store_bytes_per_second,
            Touch::Reduce => self.reduce_bytes_per_second,
        };
        let own = bytes.min(self.cached_bytes[0]);
        let shared = bytes.min(self.cached_bytes[1]).saturating_sub(own);
        let rest = bytes - own - shared;
        let parts = [own, shared, rest].into_iter().zip(rates);
        parts.map(|(bytes, rate)| transmit_ps(bytes, rate)).fold(0, u64::saturating_add)
    }

    /// The link that says most about it, where only one can be shown: its latency, and its rate
    /// from memory.
    pub fn as_link(&self) -> Link {
        Link { latency_ps: self.latency_ps, bytes_per_second: self.store_bytes_per_second[2] }
    }
}

impl fmt::Display for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "shared memory of {} cores: {}", self.cores.max(1), self.as_link())
    }
}

/// The machine's cores, and until when ranks are busy on them, in picoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    machine: SharedMemory,
    free_at: Vec<u64>,
    busy_until: Vec<u64>,
}

impl Cores {
    pub(crate) fn new(machine: SharedMemory, participants: u32) -> Cores {
        // Never more than there are ranks to use them: a stranger's file may claim any number.
        let cores = machine.cores.clamp(1, participants.max(1));
        let busy_until = vec![0; participants as usize];
        Cores { machine, free_at: vec![0; cores as usize], busy_until }
    }

    pub(crate) fn machine(&self) -> SharedMemory {
        self.machine
    }

    /// When a rank has done all that it was given.
    pub(crate) fn free(&self, rank: GlobalRank) -> u64 {
        self.busy_until.get(rank.index()).copied().unwrap_or(0)
    }

    /// Keeps a rank busy for so long, from `now` or when it and a core are free. Returns when it
    /// is done.
    pub(crate) fn work(&mut self, now: u64, rank: GlobalRank, duration_ps: u64) -> u64 {
        let Some(busy) = self.busy_until.get_mut(rank.index()) else { return now };
        let ready = now.max(*busy);
        // The core that was free last before the rank is ready: one that idles already is left to
        // those who can begin sooner. If none is free by then, the first that will be.
        let key = |free_at: u64| (free_at > ready, free_at.abs_diff(ready));
        let Some(core) = self.free_at.iter_mut().min_by_key(|core| key(**core)) else {
            return now;
        };
        let done = ready.max(*core).saturating_add(duration_ps);
        *core = done;
        *busy = done;
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: SharedMemory = SharedMemory {
        cores: 2,
        call_ps: 7,
        latency_ps: 100,
        cached_bytes: [10, 30],
        store_bytes_per_second: [1_000_000_000_000, 500_000_000_000, 100_000_000_000],
        reduce_bytes_per_second: [100_000_000_000, 0, 1],
    };

    #[test]
    fn bytes_pass_at_the_rate_of_the_memory_they_are_in() {
        let stored = |bytes| MACHINE.touch_ps(Touch::Store, bytes, bytes);
        assert_eq!([stored(0), stored(10), stored(20), stored(30)], [0, 10, 30, 50]);
        assert_eq!(stored(35), 100);
        assert_eq!(MACHINE.touch_ps(Touch::Reduce, 10, 0), 100);
        assert_eq!(MACHINE.touch_ps(Touch::Reduce, u64::MAX, 0), u64::MAX);
        // A part of a call that fits no cache passes as slowly as the call.
        assert_eq!(MACHINE.touch_ps(Touch::Store, 7, 35), 20);
    }

    /// Three ranks on two cores: the third waits for the first core, and a rank for itself.
    #[test]
    fn ranks_take_turns_on_cores() {
        let mut cores = Cores::new(MACHINE, 3);
        let [a, b, c] = [0, 1, 2].map(GlobalRank);
        assert_eq!(
            [cores.work(0, a, 50), cores.work(0, b, 70), cores.work(0, c, 10)],
            [50, 70, 60]
        );
        assert_eq!(cores.work(0, c, 5), 65);
        assert_eq!((cores.work(500, a, 5), cores.free(a), cores.free(b)), (505, 505, 70));
    }

    /// Three pieces for one rank and then three for another: each has a core of its own.
    #[test]
    fn a_rank_that_is_busy_keeps_no_core_from_others() {
        let mut cores = Cores::new(MACHINE, 2);
        let [a, b] = [0, 1].map(GlobalRank);
        let mut thrice = |rank| [(); 3].map(|()| cores.work(0, rank, 10));
        assert_eq!([thrice(a), thrice(b)], [[10, 20, 30]; 2]);
    }
}
