//! One family's schedule of one lane: which module carries it out, and how large its memory is.

use super::nodes::Nodes;
use super::{
    Action, Algorithm, Buffer, binomial, bruck, chain, direct, dissemination, double_tree, fold,
    gloo_ring, hierarchical, kary_tree, knomial, nvls, one_shot, pairwise, pat, recursive_doubling,
    recursive_halving, ring, scatter_all_gather, sharp, tree,
};
use crate::collective::Collective;
use crate::rank::GroupRank;
use crate::rank::MAX_WORLD_SIZE;
use crate::reduce::ReduceOp;

/// What a pipeline moves at once: 512 KiB, a slot of NCCL's buffers (`NCCL_BUFFSIZE` of 4 MiB in
/// `NCCL_STEPS`, 8), which is the chunk of its trees and of the ring of its broadcast
/// (`src/enqueue.cc`, `calcCollChunking`: `stepSize * chunkSteps`).
const PIPELINE_CHUNK_BYTES: u64 = 512 << 10;

/// The most segments that a size alone asks for: more make a pipeline hardly faster.
const MAX_PIPELINE_SEGMENTS: u64 = 256;

/// A collective by a family, among so many ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Family {
    pub(super) collective: Collective,
    pub(super) algorithm: Algorithm,
    pub(super) size: u32,
    pub(super) ranks_per_node: u32,
}

impl Family {
    /// The number of steps, the same for every participant.
    pub(super) fn steps(self) -> u32 {
        let n = self.size;
        match (self.algorithm, self.collective) {
            (Algorithm::Ring, Collective::AllReduce { .. }) => 2 * (n - 1),
            (Algorithm::BidirectionalRing, Collective::AllReduce { .. }) => 2 * (n - 1),
            (Algorithm::Ring, Collective::AllToAll) => ring::all_to_all_steps(n),
            (Algorithm::BidirectionalRing | Algorithm::Ring, _) => (n - 1).max(1),
            (Algorithm::Tree, Collective::AllReduce { .. }) => 2 * tree::depth(n),
            (Algorithm::Tree, Collective::Barrier) => tree::barrier_steps(n),
            (
                Algorithm::Tree | Algorithm::Knomial,
                Collective::Gather { .. } | Collective::Scatter { .. },
            ) => binomial::steps(n, self.radix()),
            (Algorithm::Knomial, collective) => knomial::steps(collective, n),
            (Algorithm::Tree, _) => tree::depth(n),
            (Algorithm::Dissemination, _) => dissemination::rounds(n),
            (Algorithm::Direct, collective) => direct::steps(collective, n),
            (Algorithm::RecursiveDoubling, collective) => recursive_doubling::steps(collective, n),
            (Algorithm::RecursiveHalving | Algorithm::HalvingDoubling, collective) => {
                recursive_halving::steps(collective, n)
            }
            (Algorithm::TwoShot, _) => direct::two_shot_steps(n),
            (Algorithm::OneShot, _) => one_shot::steps(n),
            (Algorithm::DoubleBinaryTree, collective) => double_tree::steps(collective, n),
            (Algorithm::Bruck, collective) => bruck::steps(collective, n),
            (Algorithm::Pairwise, _) => pairwise::steps(n),
            (Algorithm::KaryTree | Algorithm::Chain, Collective::AllReduce { op }) => {
                let (there, back) = self.there_and_back(op);
                there.steps() + back.steps()
            }
            (Algorithm::Chain, _) => chain::steps(n),
            (Algorithm::KaryTree, collective) => kary_tree::steps(collective, n),
            (Algorithm::ScatterAllGather, _) => scatter_all_gather::steps(n),
            (Algorithm::GlooRing, collective) => gloo_ring::steps(collective, n),
            (Algorithm::Pat, _) => pat::steps(n),
            (Algorithm::Hierarchical, collective) => hierarchical::steps(collective, self.nodes()),
            (Algorithm::Nvls, collective) => nvls::steps(collective, self.nodes()),
            (Algorithm::Sharp, collective) => sharp::steps(collective, self.nodes()),
        }
    }

    /// How many chunks a part is cut into: the one tensor of an in-place call, or a rank's part of
    /// the others' tensors.
    pub(super) fn pieces(self) -> u32 {
        match self.algorithm {
            Algorithm::BidirectionalRing if !self.collective.in_place() => 2,
            _ if !self.collective.in_place() => 1,
            Algorithm::Nvls if matches!(self.collective, Collective::AllReduce { .. }) => {
                nvls::pieces(self.nodes())
            }
            Algorithm::Hierarchical => hierarchical::pieces(self.collective, self.nodes()),
            Algorithm::Ring
            | Algorithm::TwoShot
            | Algorithm::ScatterAllGather
            | Algorithm::GlooRing => self.size,
            Algorithm::BidirectionalRing => self.size.saturating_mul(2),
            Algorithm::DoubleBinaryTree => double_tree::PIECES,
            Algorithm::HalvingDoubling => fold::Fold::new(self.size).places,
            _ => 1,
        }
    }

    /// Participants beyond the ranks: switches, numbered from `size` on.
    pub(super) fn switches(self) -> u32 {
        match self.algorithm {
            Algorithm::Nvls => nvls::switches(self.nodes()),
            Algorithm::Sharp => sharp::switches(self.nodes()),
            _ => 0,
        }
    }

    /// Whether the family can be in its nodes.
    pub(super) fn takes_nodes(self) -> bool {
        self.algorithm != Algorithm::Nvls || nvls::takes(self.collective, self.nodes())
    }

    /// Children of a level and one: of the binomial tree, or of the k-nomial.
    fn radix(self) -> u32 {
        if self.algorithm == Algorithm::Knomial { knomial::RADIX } else { 2 }
    }

    fn nodes(self) -> Nodes {
        Nodes { size: self.size, per_node: self.ranks_per_node.clamp(1, self.size) }
    }

    /// An all_reduce as a reduction to rank 0 and a broadcast from it.
    fn there_and_back(self, op: ReduceOp) -> (Family, Family) {
        let root = GroupRank(0);
        let there = Family { collective: Collective::Reduce { op, root }, ..self };
        (there, Family { collective: Collective::Broadcast { root }, ..self })
    }

    /// The most ranks that the family can number the chunks of.
    pub(super) fn most_ranks(algorithm: Algorithm) -> u32 {
        match algorithm {
            // The switch keeps a chunk for each rank of what each rank sends.
            Algorithm::Nvls => 1 << 15,
            _ => MAX_WORLD_SIZE,
        }
    }

    /// Chunks of `buffer` on `participant`.
    pub(super) fn chunks(self, participant: GroupRank, buffer: Buffer) -> u32 {
        match buffer {
            Buffer::Scratch => self.scratch(participant),
            _ => super::tensor_parts(self.collective, self.size, participant, buffer)
                .saturating_mul(self.pieces()),
        }
    }

    /// Scratch chunks of a participant.
    fn scratch(self, participant: GroupRank) -> u32 {
        let n = self.size;
        if participant.0 >= n.saturating_add(self.switches()) {
            return 0;
        }
        match (self.algorithm, self.collective) {
            (Algorithm::Ring, Collective::ReduceScatter { .. }) => 2,
            (Algorithm::Ring, Collective::AllToAll) => 2 * (n - 1),
            (Algorithm::BidirectionalRing, Collective::ReduceScatter { .. }) => 4,
            (
                Algorithm::Tree | Algorithm::Knomial,
                collective @ (Collective::Gather { .. } | Collective::Scatter { .. }),
            ) => binomial::scratch(collective, n, self.radix(), participant),
            (Algorithm::Pat, collective) => pat::scratch(collective, n),
            (Algorithm::Hierarchical, collective) => {
                hierarchical::scratch(collective, self.nodes(), participant)
            }
            (Algorithm::Nvls, collective) => nvls::scratch(collective, self.nodes(), participant),
            (Algorithm::Sharp, collective) => sharp::scratch(collective, self.nodes(), participant),
            (Algorithm::Dissemination, _) => self.steps(),
            (Algorithm::Tree, Collective::Barrier) => tree::BARRIER_SIGNALS,
            (Algorithm::Direct, collective) if collective.is_barrier() => 1,
            (Algorithm::OneShot, _) => one_shot::scratch(n),
            (Algorithm::Bruck, collective) => bruck::scratch(collective, n),
            (Algorithm::RecursiveDoubling, collective) => {
                recursive_doubling::scratch(collective, n)
            }
            (Algorithm::RecursiveHalving | Algorithm::HalvingDoubling, collective) => {
                recursive_halving::scratch(collective, n)
            }
            _ => 0,
        }
    }

    /// The largest scratch of a rank, in chunks: that of the root, or of the first rank of the
    /// first, largest node or of the last, smallest one.
    pub(super) fn most_rank_scratch(self) -> u32 {
        let root = self.collective.root().unwrap_or(GroupRank(0));
        let nodes = self.nodes();
        let of_last_node = GroupRank(nodes.first(nodes.count() - 1));
        [root, GroupRank(0), of_last_node]
            .map(|rank| self.scratch(rank))
            .into_iter()
            .max()
            .unwrap_or(0)
    }

    /// Scratch chunks of all switches together.
    pub(super) fn switch_scratch(self) -> u32 {
        match self.algorithm {
            Algorithm::Nvls => nvls::all_scratch(self.collective, self.nodes()),
            Algorithm::Sharp => sharp::all_scratch(self.nodes()),
            _ => 0,
        }
    }

    /// Adds what `participant` does in `step`.
    pub(super) fn actions(self, participant: GroupRank, step: u32, actions: &mut Vec<Action>) {
        let (collective, n, rank) = (self.collective, self.size, participant);
        if let (Algorithm::KaryTree | Algorithm::Chain, Collective::AllReduce { op }) =
            (self.algorithm, collective)
        {
            let (there, back) = self.there_and_back(op);
            match step.checked_sub(there.steps()) {
                None => there.actions(rank, step, actions),
                Some(step) => back.actions(rank, step, actions),
            }
            return;
        }
        match self.algorithm {
            Algorithm::Ring => ring::actions(collective, n, rank, step, actions),
            Algorithm::Tree | Algorithm::Knomial
                if matches!(collective, Collective::Gather { .. } | Collective::Scatter { .. }) =>
            {
                binomial::actions(collective, (n, self.radix()), rank, step, actions);
            }
            Algorithm::Knomial => knomial::actions(collective, n, rank, step, actions),
            Algorithm::Tree => tree::actions(collective, n, rank, step, actions),
            Algorithm::Direct => direct::actions(collective, n, rank, step, actions),
            Algorithm::Dissemination => dissemination::actions(n, rank, step, actions),
            Algorithm::RecursiveDoubling => {
                recursive_doubling::actions(collective, n, rank, step, actions);
            }
            Algorithm::RecursiveHalving | Algorithm::HalvingDoubling => {
                recursive_halving::actions(collective, n, rank, step, actions);
            }
            Algorithm::BidirectionalRing => ring::bidirectional(collective, n, rank, step, actions),
            Algorithm::TwoShot => direct::two_shot(n, rank, step, actions),
            Algorithm::OneShot => one_shot::actions(n, rank, step, actions),
            Algorithm::DoubleBinaryTree => {
                double_tree::actions(collective, n, rank, step, actions);
            }
            Algorithm::Bruck => bruck::actions(collective, n, rank, step, actions),
            Algorithm::Pairwise => pairwise::actions(collective, n, rank, step, actions),
            Algorithm::Chain => chain::actions(collective, n, rank, step, actions),
            Algorithm::KaryTree => kary_tree::actions(collective, n, rank, step, actions),
            Algorithm::ScatterAllGather => {
                scatter_all_gather::actions(collective, n, rank, step, actions);
            }
            Algorithm::GlooRing => gloo_ring::actions(collective, n, rank, step, actions),
            Algorithm::Pat => pat::actions(collective, n, rank, step, actions),
            Algorithm::Hierarchical => {
                hierarchical::actions(collective, self.nodes(), rank, step, actions);
            }
            Algorithm::Nvls => nvls::actions(collective, self.nodes(), rank, step, actions),
            Algorithm::Sharp => sharp::actions(collective, self.nodes(), rank, step, actions),
        }
    }

    /// False where lanes make no sense: a barrier carries nothing, and gloo's chunks are its own.
    pub(super) fn can_be_sliced(self) -> bool {
        !self.collective.is_barrier() && self.algorithm != Algorithm::GlooRing
    }

    /// Elements of every chunk but the last; `None` for even chunks.
    pub(super) fn chunk_elements(self, count: u64, element_bytes: u64) -> Option<u64> {
        let uneven = self.algorithm == Algorithm::GlooRing;
        uneven.then(|| gloo_ring::chunk_elements(self.collective, self.size, count, element_bytes))
    }

    /// How many segments follow each other through the family's steps unless the caller chooses,
    /// for so many bytes in a channel: pipelines cut them into chunks of NCCL's size.
    pub(super) fn segments_for(self, bytes: u64) -> u32 {
        let each = match self.algorithm {
            Algorithm::Chain => PIPELINE_CHUNK_BYTES,
            // A half goes through either tree.
            Algorithm::DoubleBinaryTree => 2 * PIPELINE_CHUNK_BYTES,
            _ => return 1,
        };
        bytes.div_ceil(each).clamp(1, MAX_PIPELINE_SEGMENTS) as u32
    }

    /// How many steps a segment is behind the one before it: in the two trees, every edge moves
    /// one in between.
    pub(super) fn stagger(self) -> u32 {
        match self.algorithm {
            Algorithm::DoubleBinaryTree => double_tree::stagger(self.collective),
            _ => 1,
        }
    }
}
