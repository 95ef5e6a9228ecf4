//! The cost of each family, against the closed forms of the literature.

use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::reduce::ReduceOp;
use crate::schedule::proof::{Proof, prove};
use crate::schedule::{Algorithm, Rounds, Schedule};

pub(super) const ALL_REDUCE: Collective = Collective::AllReduce { op: ReduceOp::Sum };
pub(super) const REDUCE_SCATTER: Collective = Collective::ReduceScatter { op: ReduceOp::Sum };
pub(super) const BROADCAST: Collective = Collective::Broadcast { root: GroupRank(0) };
pub(super) const REDUCE: Collective = Collective::Reduce { op: ReduceOp::Sum, root: GroupRank(0) };

pub(super) const GATHER: Collective = Collective::Gather { root: GroupRank(0) };
pub(super) const SCATTER: Collective = Collective::Scatter { root: GroupRank(0) };

pub(super) fn schedule(collective: Collective, algorithm: Algorithm, n: u64) -> Schedule {
    Schedule::new(collective, algorithm, n as u32).unwrap()
}

pub(super) fn cost(collective: Collective, algorithm: Algorithm, n: u64) -> Proof {
    prove(&schedule(collective, algorithm, n)).unwrap()
}

/// Messages and chunks in them.
pub(super) fn moved(collective: Collective, algorithm: Algorithm, n: u64) -> (u64, u64) {
    let cost = cost(collective, algorithm, n);
    (cost.messages, cost.chunks_moved)
}

fn steps(collective: Collective, algorithm: Algorithm, n: u64) -> u64 {
    u64::from(schedule(collective, algorithm, n).steps())
}

/// The largest power of two that is at most `n`, its logarithm, and the rest of `n`.
fn folded(n: u64) -> (u64, u64, u64) {
    let places = 1 << n.ilog2();
    (places, u64::from(n.ilog2()), n - places)
}

/// ceil(log2 n).
pub(super) fn rounds(n: u64) -> u64 {
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

/// Thakur, Rabenseifner, Gropp 2005, section 4: log2 p rounds, in which all_reduce sends the whole tensor and
/// all_gather all parts that it has. An extra rank costs two messages.
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

/// Bruck et al. 1997, sections 3 and 4: ceil(log2 n) rounds. all_gather moves the minimum; all_to_all moves a
/// part that goes i ranks as often as i has bits (n / 2 log2 n parts a rank for powers of two).
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
            let chain = schedule(call, Algorithm::Chain, n).with_segments(8).unwrap();
            let proof = prove(&chain).unwrap();
            assert_eq!((proof.messages, proof.chunks_moved), (8 * (n - 1), 8 * (n - 1)));
            assert_eq!(u64::from(chain.steps()), n + 8 - 2);
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
/// goes up and down every edge of its tree once, in four steps for every level and segment.
#[test]
fn double_binary_trees() {
    for n in 2..=64 {
        let segments = 4;
        let messages = 2 * (n - 1) * 2 * segments;
        let trees = schedule(ALL_REDUCE, Algorithm::DoubleBinaryTree, n);
        let proof = prove(&trees.with_segments(segments as u32).unwrap()).unwrap();
        assert_eq!((proof.messages, proof.chunks_moved), (messages, messages));
        let most = 4 * (rounds(n) + segments - 1);
        let trees = schedule(ALL_REDUCE, Algorithm::DoubleBinaryTree, n);
        let trees = trees.with_segments(segments as u32).unwrap();
        assert!(u64::from(Rounds::of(&trees).count()) <= most);
    }
}

/// Rings for the calls beyond all_reduce: twice the messages, of half parts, in two directions; and
/// in all_to_all part i of a rank travels i hops (Thakur, Rabenseifner, Gropp 2005, section 4, on the
/// ring all-to-all).
#[test]
fn other_rings() {
    for n in 2..=64 {
        let pairs = n * (n - 1);
        for call in [Collective::AllGather, REDUCE_SCATTER] {
            assert_eq!(moved(call, Algorithm::BidirectionalRing, n), (2 * pairs, 2 * pairs));
            assert_eq!(steps(call, Algorithm::BidirectionalRing, n), n - 1);
        }
        assert_eq!(moved(Collective::AllToAll, Algorithm::Ring, n), (pairs, n * pairs / 2));
    }
}

/// gloo's `allreduce.cc` moves as much as any ring does; `reduce.cc` ends with a message to the root from
/// every other rank.
#[test]
fn gloo_rings() {
    for n in 2..=64 {
        let pairs = n * (n - 1);
        assert_eq!(moved(ALL_REDUCE, Algorithm::GlooRing, n), (2 * pairs, 2 * pairs));
        assert_eq!(moved(REDUCE, Algorithm::GlooRing, n), (pairs + n - 1, pairs + n - 1));
    }
}

/// Jeaugey 2025: ceil(log2 n) rounds of one message a rank when all is aggregated, and every part
/// crosses to every rank once; a step between the rounds moves parts inside the rank.
#[test]
fn parallel_aggregated_trees() {
    for n in 2..=64 {
        for call in [Collective::AllGather, REDUCE_SCATTER] {
            assert_eq!(moved(call, Algorithm::Pat, n), (n * rounds(n), n * (n - 1)));
            assert_eq!(steps(call, Algorithm::Pat, n), 2 * rounds(n) + 1);
        }
        assert_eq!(cost(REDUCE_SCATTER, Algorithm::Pat, n).chunks_reduced, n * (n - 1));
    }
}

/// MPICH's binomial gather and scatter: one message for each rank but the root, in which its whole
/// subtree's parts are; the part of place i takes as many hops as i has bits.
#[test]
fn binomial_gather_and_scatter() {
    for n in 2..=64 {
        let hops: u64 = (0..n).map(|i: u64| u64::from(i.count_ones())).sum();
        for call in [GATHER, SCATTER] {
            assert_eq!(moved(call, Algorithm::Tree, n), (n - 1, hops));
            assert_eq!(steps(call, Algorithm::Tree, n), rounds(n) + 1);
        }
    }
}

/// Down and up: the sum of a reduction's and a broadcast's (Pješivac-Grbović et al. 2007).
#[test]
fn all_reduce_there_and_back() {
    for n in 2..=64 {
        for (by, segments) in [(Algorithm::Chain, 8), (Algorithm::KaryTree, 1)] {
            let messages = 2 * segments * (n - 1);
            let schedule = schedule(ALL_REDUCE, by, n).with_segments(segments as u32).unwrap();
            let proof = prove(&schedule).unwrap();
            assert_eq!((proof.messages, proof.chunks_moved), (messages, messages));
            if by == Algorithm::Chain {
                assert_eq!(u64::from(schedule.steps()), 2 * (n - 1) + segments - 1);
            }
        }
    }
}

/// `ProcessGroupGloo::monitoredBarrier`: one message from and one to each rank but the first.
#[test]
fn barriers_at_rank_0() {
    for n in 2..=64 {
        assert_eq!(cost(Collective::Barrier, Algorithm::Direct, n).messages, 2 * (n - 1));
    }
}

/// c channels move c times the messages, of a c-th each; k segments as well, in k - 1 steps more.
#[test]
fn lanes_multiply_messages_and_not_bytes() {
    for n in 2..=64 {
        let ring = schedule(ALL_REDUCE, Algorithm::Ring, n);
        let pairs = n * (n - 1);
        let proof = prove(&ring.clone().with_channels(3).unwrap()).unwrap();
        assert_eq!((proof.messages, proof.chunks_moved), (6 * pairs, 6 * pairs));
        let pipelined = ring.with_segments(5).unwrap();
        assert_eq!(u64::from(pipelined.steps()), 2 * (n - 1) + 4);
        assert_eq!(prove(&pipelined).unwrap().messages, 10 * pairs);
    }
}

/// Sanders, Speck, Träff 2009, section 3: each half goes over the n - 1 edges of its tree once, in
/// k segments.
#[test]
fn two_trees_one_way() {
    for n in 2..=64 {
        for call in [BROADCAST, REDUCE] {
            assert_eq!(moved(call, Algorithm::DoubleBinaryTree, n), (2 * (n - 1), 2 * (n - 1)));
            let cut = schedule(call, Algorithm::DoubleBinaryTree, n).with_segments(5).unwrap();
            assert_eq!(prove(&cut).unwrap().messages, 5 * 2 * (n - 1));
        }
        let levels = rounds(n);
        assert_eq!(steps(BROADCAST, Algorithm::DoubleBinaryTree, n), 2 * levels);
        assert_eq!(steps(REDUCE, Algorithm::DoubleBinaryTree, n), 2 * levels);
    }
}

/// Thakur, Rabenseifner, Gropp 2005, section 4, on reduce: a reduce-scatter in which a place sends
/// p - 1 chunks of p, and a binomial gather of p - 1 messages, half of the chunks a level. Extra ranks
/// hand in the whole tensor; an extra root gets the whole back.
#[test]
fn rabenseifners_reduce() {
    for n in 2..=64 {
        let (places, log, extra) = folded(n);
        for root in [0, n as u32 - 1] {
            let call = Collective::Reduce { op: ReduceOp::Sum, root: GroupRank(root) };
            // Rank 0 is an extra one where there are any; the last rank never is.
            let back = u64::from(root == 0 && extra > 0);
            let messages = extra + places * log + places - 1 + back;
            let gathered = places / 2 * log;
            let chunks = extra * places + places * (places - 1) + gathered + back * places;
            assert_eq!(moved(call, Algorithm::HalvingDoubling, n), (messages, chunks), "{n}");
            let steps = u64::from(extra > 0) + 2 * log + back;
            assert_eq!(self::steps(call, Algorithm::HalvingDoubling, n), steps);
        }
    }
}

/// ceil(log4 n).
fn rounds_of_four(n: u64) -> u64 {
    (0..).find(|rounds| 4u64.pow(*rounds) >= n).map_or(0, u64::from)
}

/// UCC's k-nomial trees, k = 4: ceil(log_k n) rounds of n - 1 messages; a reduction takes up to k - 1
/// children of a level in turn. In gather and scatter, the part of place i takes as many hops as i
/// has digits by k that are not 0.
#[test]
fn knomial_trees() {
    for n in 2..=64u64 {
        let by = Algorithm::Knomial;
        for call in [BROADCAST, REDUCE] {
            assert_eq!(moved(call, by, n), (n - 1, n - 1));
        }
        let levels = rounds_of_four(n);
        assert_eq!(steps(BROADCAST, by, n), levels);
        let top = ((n - 1) / 4u64.pow(levels as u32 - 1)).min(3);
        assert_eq!(steps(REDUCE, by, n), 3 * (levels - 1) + top);
        let is_zero = |i: u64, digit: u64| (i / 4u64.pow(digit as u32)).is_multiple_of(4);
        let digits = |i: u64| (0..levels).filter(|digit| !is_zero(i, *digit)).count() as u64;
        let hops: u64 = (0..n).map(digits).sum();
        for call in [GATHER, SCATTER] {
            assert_eq!(moved(call, by, n), (n - 1, hops));
            assert_eq!(steps(call, by, n), levels + 1);
        }
    }
}

/// Rounds: the steps in which messages move, as the works cited above count them; in the others,
/// ranks copy or add by themselves, so that a switch's additions and an algorithm's turns of memory
/// cost none.
#[test]
fn rounds_are_the_literatures() {
    let count = |call, by, n: u64| u64::from(Rounds::of(&schedule(call, by, n)).count());
    for n in 2..=64 {
        let (_, log, extra) = folded(n);
        let folding = if extra > 0 { 2 } else { 0 };
        let all_to_all = Collective::AllToAll;
        let all_gather = Collective::AllGather;
        for (call, by, rounds) in [
            (ALL_REDUCE, Algorithm::Ring, 2 * (n - 1)),
            (ALL_REDUCE, Algorithm::Tree, 2 * rounds(n)),
            (ALL_REDUCE, Algorithm::RecursiveDoubling, log + folding),
            (ALL_REDUCE, Algorithm::HalvingDoubling, 2 * log + folding),
            (ALL_REDUCE, Algorithm::OneShot, 1),
            (ALL_REDUCE, Algorithm::Nvls, 4),
            (ALL_REDUCE, Algorithm::Sharp, 2),
            (all_gather, Algorithm::Ring, n - 1),
            (all_gather, Algorithm::RecursiveDoubling, log + folding),
            (all_gather, Algorithm::Bruck, rounds(n)),
            (all_gather, Algorithm::Pat, rounds(n)),
            (all_gather, Algorithm::Nvls, 2),
            (REDUCE_SCATTER, Algorithm::RecursiveHalving, log + folding),
            (REDUCE_SCATTER, Algorithm::Pat, rounds(n)),
            (REDUCE_SCATTER, Algorithm::Nvls, 2),
            (all_to_all, Algorithm::Bruck, rounds(n)),
            (all_to_all, Algorithm::Pairwise, n - 1),
            (all_to_all, Algorithm::Direct, 1),
            (GATHER, Algorithm::Tree, rounds(n)),
            (SCATTER, Algorithm::Knomial, rounds_of_four(n)),
            (Collective::Barrier, Algorithm::Dissemination, rounds(n)),
            (Collective::Barrier, Algorithm::Sharp, 2),
        ] {
            assert_eq!(count(call, by, n), rounds, "{by} {call} of {n}");
        }
        // A spine above several leaves is two hops more, whatever n is.
        let sharp = schedule(ALL_REDUCE, Algorithm::Sharp, n).with_ranks_per_node(1).unwrap();
        assert_eq!(Rounds::of(&sharp).count(), 4);
    }
}
