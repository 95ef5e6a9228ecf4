//! Ranks of one machine read each other's memory, as the host backend's do (`gpu-exec`'s `in_place` and
//! `collective`): what nothing writes is lent at once, and who lends waits until it was read.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must fail")]

use crate::semantics::one;
use lockstep_core::collective::Collective;
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::Algorithm;
use lockstep_core::trace::{Trace, What};
use lockstep_sim::{SharedMemory, SimConfig, Topology, simulate};

const SUM: ReduceOp = ReduceOp::Sum;

/// A machine on which only messages take time, a picosecond each.
pub(crate) const LATENCIES: Topology = Topology::SharedMemory(SharedMemory {
    cores: 64,
    call_ps: 0,
    latency_ps: 1,
    cached_bytes: [0, 0],
    store_bytes_per_second: [u64::MAX; 3],
    reduce_bytes_per_second: [u64::MAX; 3],
});

fn on_it(collective: Collective, algorithm: Algorithm, ranks: u32, count: u64) -> Trace {
    let config = SimConfig { topology: LATENCIES, ..SimConfig::default() };
    simulate(&one(collective, algorithm, ranks, count), &config).unwrap()
}

fn time_ps(collective: Collective, algorithm: Algorithm, ranks: u32, count: u64) -> u64 {
    on_it(collective, algorithm, ranks, count).end.unwrap().time_ps
}

/// All parts are there at once, however many there are; sums that travel on are not.
#[test]
fn what_nothing_writes_is_lent_at_once() {
    let all_reduce = Collective::AllReduce { op: SUM };
    let reduce_scatter = Collective::ReduceScatter { op: SUM };
    for ranks in [2, 4, 7] {
        assert_eq!(time_ps(all_reduce, Algorithm::TwoShot, ranks, 4096), 2);
        assert_eq!(time_ps(reduce_scatter, Algorithm::Direct, ranks, 4096), 1);
        let ring = u64::from(2 * (ranks - 1));
        assert_eq!(time_ps(all_reduce, Algorithm::Ring, ranks, 4096), ring);
    }
}

/// Up to 4 KB are copied, and their sender goes on; more is read where it is.
#[test]
fn who_lends_waits_until_it_was_read() {
    let broadcast = Collective::Broadcast { root: GroupRank(0) };
    let ends = |count| {
        let trace = on_it(broadcast, Algorithm::Direct, 4, count);
        let ended = |rank: u32| {
            let mut events = trace.events.iter().filter(|event| event.rank.0 == rank);
            events.find(|event| matches!(event.what, What::Completed { .. })).unwrap().time_ps
        };
        [ended(0), ended(3)]
    };
    // Of 8 bytes.
    assert_eq!(ends(512), [0, 1]);
    assert_eq!(ends(513), [1, 1]);
}
