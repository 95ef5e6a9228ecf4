//! What each family costs, against the closed forms of the literature.

use super::{Proof, prove};
use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::reduce::ReduceOp;
use crate::schedule::{Algorithm, Schedule};

const ALL_REDUCE: Collective = Collective::AllReduce { op: ReduceOp::Sum };
const REDUCE_SCATTER: Collective = Collective::ReduceScatter { op: ReduceOp::Sum };
const BROADCAST: Collective = Collective::Broadcast { root: GroupRank(0) };
const REDUCE: Collective = Collective::Reduce { op: ReduceOp::Sum, root: GroupRank(0) };

fn schedule(collective: Collective, algorithm: Algorithm, n: u64) -> Schedule {
    Schedule::new(collective, algorithm, n as u32).unwrap()
}

fn cost(collective: Collective, algorithm: Algorithm, n: u64) -> Proof {
    prove(&schedule(collective, algorithm, n)).unwrap()
}

/// Messages and chunks in them.
fn moved(collective: Collective, algorithm: Algorithm, n: u64) -> (u64, u64) {
    let cost = cost(collective, algorithm, n);
    (cost.messages, cost.chunks_moved)
}

fn steps(collective: Collective, algorithm: Algorithm, n: u64) -> u64 {
    u64::from(schedule(collective, algorithm, n).steps())
}

/// The largest power of two that is at most `n`, its logarithm, and what is left of `n`.
fn folded(n: u64) -> (u64, u64, u64) {
    let places = 1 << n.ilog2();
    (places, u64::from(n.ilog2()), n - places)
}

/// ceil(log2 n).
fn rounds(n: u64) -> u64 {
    u64::from(n.next_power_of_two().trailing_zeros())
}

/// Patarasuk, Yuan 2009; Thakur, Rabenseifner, Gropp 2005, section 4.
#[test]
fn rings() {
    for n in 2..=64 {
        let pairs = n * (n - 1);
        assert_eq!(moved(ALL_REDUCE, Algorithm::Ring, n), (2 * pairs, 2 * pairs));
        assert_eq!(moved(Collective::AllGather, Algorithm::Ring, n), (pairs, pairs));
        assert_eq!(moved(REDUCE_SCATTER, Algorithm::Ring, n), (pairs, pairs));
    }
}

/// Thakur, Rabenseifner, Gropp 2005, section 4; Hensgen, Finkel, Manber 1988.
#[test]
fn trees_direct_and_dissemination() {
    for n in 2..=64 {
        assert_eq!(moved(BROADCAST, Algorithm::Tree, n), (n - 1, n - 1));
        assert_eq!(moved(REDUCE, Algorithm::Tree, n), (n - 1, n - 1));
        let pairs = n * (n - 1);
        assert_eq!(moved(Collective::AllToAll, Algorithm::Direct, n), (pairs, pairs));
        let signals = n * rounds(n);
        assert_eq!(cost(Collective::Barrier, Algorithm::Dissemination, n).messages, signals);
    }
}

/// Thakur, Rabenseifner, Gropp 2005, section 4: log2 p rounds, in which all_reduce sends
/// the whole tensor and all_gather what it has. An extra rank costs two messages.
#[test]
fn recursive_doubling() {
    for n in 2..=64 {
        let (places, log, extra) = folded(n);
        let messages = places * log + 2 * extra;
        let by = Algorithm::RecursiveDoubling;
        assert_eq!(moved(ALL_REDUCE, by, n), (messages, messages));
        let parts = n * (places - 1) + extra * (n + 1);
        assert_eq!(moved(Collective::AllGather, by, n), (messages, parts));
    }
}

/// Thakur, Rabenseifner, Gropp 2005, section 4, and Rabenseifner 2004: log2 p rounds in which a
/// rank sends (p - 1) / p of the tensor in all; all_reduce makes the same way back.
#[test]
fn recursive_halving() {
    for n in 2..=64 {
        let (places, log, extra) = folded(n);
        let messages = places * log + 2 * extra;
        let parts = n * (places - 1) + extra * (n + 1);
        assert_eq!(moved(REDUCE_SCATTER, Algorithm::RecursiveHalving, n), (messages, parts));
        let messages = 2 * places * log + 2 * extra;
        let chunks = 2 * places * (places - 1) + 2 * extra * places;
        assert_eq!(moved(ALL_REDUCE, Algorithm::HalvingDoubling, n), (messages, chunks));
        let before_and_after = if extra > 0 { 2 } else { 0 };
        let there_and_back = 2 * log + before_and_after;
        assert_eq!(steps(ALL_REDUCE, Algorithm::HalvingDoubling, n), there_and_back);
    }
}

/// Two mirrored rings of half chunks: twice the messages of one ring, the same bytes. Two ranks
/// have one neighbour, and one message carries both halves.
#[test]
fn bidirectional_rings() {
    for n in 2..=64 {
        let halves = 4 * n * (n - 1);
        let messages = if n == 2 { halves / 2 } else { halves };
        assert_eq!(moved(ALL_REDUCE, Algorithm::BidirectionalRing, n), (messages, halves));
    }
}

/// Every ordered pair of ranks exchanges one chunk of n in each shot.
#[test]
fn two_shots() {
    for n in 2..=64 {
        let pairs = n * (n - 1);
        assert_eq!(moved(ALL_REDUCE, Algorithm::TwoShot, n), (2 * pairs, 2 * pairs));
    }
}

/// Bruck et al. 1997, sections 3 and 4: ceil(log2 n) rounds. all_gather moves what it must;
/// all_to_all moves a part that goes i ranks as often as i has bits (n / 2 log2 n parts a rank for
/// powers of two).
#[test]
fn bruck() {
    for n in 2..=64 {
        let messages = n * rounds(n);
        let by = Algorithm::Bruck;
        assert_eq!(moved(Collective::AllGather, by, n), (messages, n * (n - 1)));
        let hops: u64 = (0..n).map(|i: u64| u64::from(i.count_ones())).sum();
        assert_eq!(moved(Collective::AllToAll, by, n), (messages, n * hops));
        if n.is_power_of_two() {
            assert_eq!(hops, n / 2 * rounds(n));
        }
    }
}

/// Thakur, Rabenseifner, Gropp 2005, section 4: n - 1 steps, nothing sent twice.
#[test]
fn pairwise_exchange() {
    for n in 2..=64 {
        let pairs = n * (n - 1);
        for call in [REDUCE_SCATTER, Collective::AllToAll] {
            assert_eq!(moved(call, Algorithm::Pairwise, n), (pairs, pairs));
            assert_eq!(steps(call, Algorithm::Pairwise, n), n - 1);
        }
    }
}

/// Pješivac-Grbović et al. 2007: n + k - 2 steps of 1/k of the tensor.
#[test]
fn pipelined_chains() {
    for n in 2..=64 {
        for call in [BROADCAST, REDUCE] {
            assert_eq!(moved(call, Algorithm::Chain, n), (8 * (n - 1), 8 * (n - 1)));
            assert_eq!(steps(call, Algorithm::Chain, n), n + 8 - 2);
        }
    }
}

/// Every rank but the root has one edge to its parent; l levels hold (4^(l+1) - 1) / 3 ranks.
#[test]
fn kary_trees() {
    for n in 2..=64 {
        for call in [BROADCAST, REDUCE] {
            assert_eq!(moved(call, Algorithm::KaryTree, n), (n - 1, n - 1));
        }
        let levels = steps(BROADCAST, Algorithm::KaryTree, n) as u32;
        let holds = |levels: u32| (4u64.pow(levels + 1) - 1) / 3;
        assert!(holds(levels - 1) < n && n <= holds(levels), "{n} ranks, {levels} levels");
    }
    assert_eq!(steps(REDUCE, Algorithm::KaryTree, 5), 4);
    assert_eq!(steps(REDUCE, Algorithm::KaryTree, 7), 4 + 2);
}

/// Thakur, Rabenseifner, Gropp 2005, section 4: log2 p + p - 1 steps. In the scatter, the chunk
/// of place i takes as many hops as i has bits; the ring moves n - 1 chunks a rank.
#[test]
fn scatter_and_all_gather() {
    for n in 2..=64 {
        let by = Algorithm::ScatterAllGather;
        let hops: u64 = (0..n).map(|i: u64| u64::from(i.count_ones())).sum();
        let ring = n * (n - 1);
        assert_eq!(moved(BROADCAST, by, n), (n - 1 + ring, hops + ring));
        assert_eq!(steps(BROADCAST, by, n), rounds(n) + n - 1);
    }
}

/// Up and down a tree of n - 1 edges, log2 n levels each way.
#[test]
fn tree_barriers() {
    for n in 2..=64 {
        assert_eq!(cost(Collective::Barrier, Algorithm::Tree, n).messages, 2 * (n - 1));
        assert_eq!(steps(Collective::Barrier, Algorithm::Tree, n), 2 * rounds(n));
    }
}

/// Every ordered pair of ranks exchanges the whole tensor; every rank adds n - 1 times.
#[test]
fn one_shots() {
    for n in 2..=64 {
        let cost = cost(ALL_REDUCE, Algorithm::OneShot, n);
        let pairs = n * (n - 1);
        assert_eq!((cost.messages, cost.chunks_moved, cost.chunks_reduced), (pairs, pairs, pairs));
    }
}

/// Sanders, Speck, Träff 2009: both trees have n - 1 edges, and each of the k segments
/// goes up and down every edge of its tree once.
#[test]
fn double_binary_trees() {
    for n in 2..=64 {
        let segments = 4;
        let messages = 2 * (n - 1) * 2 * segments;
        assert_eq!(moved(ALL_REDUCE, Algorithm::DoubleBinaryTree, n), (messages, messages));
    }
}
