//! The cost of families that know of nodes and switches, against the closed forms of the literature.

use super::closed_forms::{
    ALL_REDUCE, BROADCAST, GATHER, REDUCE, REDUCE_SCATTER, SCATTER, cost, moved, rounds, schedule,
};
use crate::collective::Collective;
use crate::schedule::Algorithm;
use crate::schedule::proof::{Proof, prove};

fn in_nodes(collective: Collective, nodes: u64, ranks: u64) -> Proof {
    let schedule = schedule(collective, Algorithm::Hierarchical, nodes * ranks);
    prove(&schedule.with_ranks_per_node(ranks as u32).unwrap()).unwrap()
}

/// Jia et al. 2018, on hierarchical all-reduce, of m nodes of k ranks: each rank sends 2 (k - 1) / k
/// of the tensor inside the node and 2 (m - 1) / m of a k-th across. Of k m chunks these are
/// 2 (k - 1) m and 2 (m - 1). Broadcast and reduce cross with one tree of m nodes a shard, and
/// all_gather and reduce_scatter move each part to each rank once. Tutel's 2DH (Hwang et al. 2023): k - 1 messages of m parts and m - 1 of k.
#[test]
fn hierarchies_of_equal_nodes() {
    for (m, k) in (1..=8).flat_map(|m| (1..=8).map(move |k| (m, k))) {
        let n = m * k;
        let both = |proof: Proof| (proof.messages, proof.chunks_moved);
        let inside = 2 * n * (k - 1);
        let across = 2 * n * (m - 1);
        assert_eq!(both(in_nodes(ALL_REDUCE, m, k)), (inside + across, inside * m + across));
        for call in [BROADCAST, REDUCE] {
            // The root's k - 1 shards, a tree of m nodes for each of k, and rings in the nodes.
            let chunks = (k - 1) + k * (m - 1) + n * (k - 1);
            assert_eq!(both(in_nodes(call, m, k)), (chunks, chunks));
        }
        for call in [Collective::AllGather, REDUCE_SCATTER] {
            assert_eq!(in_nodes(call, m, k).chunks_moved, n * (n - 1));
        }
        let exchange = in_nodes(Collective::AllToAll, m, k);
        assert_eq!(both(exchange), (n * (k + m - 2), n * ((k - 1) * m + (m - 1) * k)));
        // Zhu et al. 2009: trees of k - 1 edges twice, and m log2 m signals among the nodes.
        let signals = 2 * m * (k - 1) + if m > 1 { m * rounds(m) } else { 0 };
        assert_eq!(in_nodes(Collective::Barrier, m, k).messages, signals);
    }
}

/// By leaders, with a last node of one rank: a tree in each node there and back, and a ring of the
/// leaders over m chunks.
#[test]
fn hierarchies_of_ragged_nodes() {
    for (m, k) in (2..=8u64).flat_map(|m| (2..=8u64).map(move |k| (m, k))) {
        let n = (m - 1) * k + 1;
        let schedule = schedule(ALL_REDUCE, Algorithm::Hierarchical, n);
        let proof = prove(&schedule.with_ranks_per_node(k as u32).unwrap()).unwrap();
        let (inside, across) = (2 * (m - 1) * (k - 1), 2 * m * (m - 1));
        assert_eq!((proof.messages, proof.chunks_moved), (inside + across, inside * m + across));
    }
}

/// NCCL's NVLS (`src/device/all_reduce.h`): in an all_reduce a rank's whole tensor is read and its
/// chunk of n multicast, so n + 1 chunks leave each rank and n + 1 come.
#[test]
fn one_switch() {
    for n in 2..=64 {
        let by = Algorithm::Nvls;
        assert_eq!(moved(ALL_REDUCE, by, n), (4 * n, 2 * n * (n + 1)));
        assert_eq!(moved(REDUCE_SCATTER, by, n), (2 * n, n * n + n));
        assert_eq!(moved(Collective::AllGather, by, n), (2 * n, n + n * n));
        assert_eq!(moved(BROADCAST, by, n), (n, n));
        assert_eq!(cost(ALL_REDUCE, by, n).chunks_reduced, n * (n - 1));
    }
}

/// NCCL's NVLSTree in m nodes of k ranks: inside, each rank is head of a k-th, in two halves, as if
/// its node were all; across, both trees of the m nodes have m - 1 edges, and each head goes up and
/// down each of them once. The additions are those of any reduction.
#[test]
fn a_switch_a_node_and_trees_across() {
    for (m, k) in (2..=8u64).flat_map(|m| (1..=8u64).map(move |k| (m, k))) {
        let n = m * k;
        let schedule = schedule(ALL_REDUCE, Algorithm::Nvls, n);
        let schedule = schedule.with_ranks_per_node(k as u32).unwrap();
        let proof = prove(&schedule).unwrap();
        let (inside, chunks) = if k > 1 { (4 * n, 2 * n * 2 * (k + 1)) } else { (0, 0) };
        let across = 4 * k * (m - 1);
        assert_eq!((proof.messages, proof.chunks_moved), (inside + across, chunks + across));
        assert_eq!(proof.chunks_reduced, 2 * k * (n - 1));
    }
}

/// Graham et al. 2016: one message up and one down every edge of the aggregation tree, which has
/// the ranks and, if there are several, the leaves below the spine.
#[test]
fn trees_of_switches() {
    for (n, k) in (2..=32u64).flat_map(|n| (1..=n).map(move |k| (n, k))) {
        let leaves = n.div_ceil(k);
        let edges = n + if leaves > 1 { leaves } else { 0 };
        for call in [ALL_REDUCE, Collective::Barrier] {
            let schedule = schedule(call, Algorithm::Sharp, n).with_ranks_per_node(k as u32);
            let proof = prove(&schedule.unwrap()).unwrap();
            assert_eq!((proof.messages, proof.chunks_moved), (2 * edges, 2 * edges));
            assert_eq!(proof.chunks_reduced, n - 1);
        }
    }
}

/// Zhu et al. 2009: a message for each rank but the root, and the parts of a node cross together:
/// those of others than its leader take two hops.
#[test]
fn hierarchical_gather_and_scatter() {
    for (n, k) in (2..=32u64).flat_map(|n| (1..=n).map(move |k| (n, k))) {
        let nodes = n.div_ceil(k);
        for call in [GATHER, SCATTER] {
            let schedule = schedule(call, Algorithm::Hierarchical, n);
            let schedule = schedule.with_ranks_per_node(k as u32).unwrap();
            let proof = prove(&schedule).unwrap();
            let elsewhere = n - k.min(n);
            let inside = n - nodes;
            assert_eq!((proof.messages, proof.chunks_moved), (n - 1, inside + elsewhere));
        }
    }
}
