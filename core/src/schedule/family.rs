//! One family's schedule of one lane: which module carries it out, and how large its memory is.

use super::{
    Action, Algorithm, Buffer, bruck, chain, direct, dissemination, double_tree, fold, gloo_ring,
    kary_tree, one_shot, pairwise, recursive_doubling, recursive_halving, ring, scatter_all_gather,
    tree,
};
use crate::collective::Collective;
use crate::rank::GroupRank;

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
            (Algorithm::BidirectionalRing, _) => 2 * (n - 1),
            (Algorithm::Ring, _) => (n - 1).max(1),
            (Algorithm::Tree, Collective::AllReduce { .. }) => 2 * tree::depth(n),
            (Algorithm::Tree, Collective::Barrier) => tree::barrier_steps(n),
            (Algorithm::Tree, _) => tree::depth(n),
            (Algorithm::Dissemination, _) => dissemination::rounds(n),
            (Algorithm::Direct, collective) => direct::steps(collective, n),
            (Algorithm::RecursiveDoubling, collective) => recursive_doubling::steps(collective, n),
            (Algorithm::RecursiveHalving | Algorithm::HalvingDoubling, collective) => {
                recursive_halving::steps(collective, n)
            }
            (Algorithm::TwoShot, _) => direct::two_shot_steps(n),
            (Algorithm::OneShot, _) => one_shot::steps(n),
            (Algorithm::DoubleBinaryTree, _) => double_tree::steps(n),
            (Algorithm::Bruck, collective) => bruck::steps(collective, n),
            (Algorithm::Pairwise, _) => pairwise::steps(n),
            (Algorithm::Chain, _) => chain::steps(n),
            (Algorithm::KaryTree, collective) => kary_tree::steps(collective, n),
            (Algorithm::ScatterAllGather, _) => scatter_all_gather::steps(n),
            (Algorithm::GlooRing, collective) => gloo_ring::steps(collective, n),
        }
    }

    /// How many chunks the one tensor of an in-place call is cut into; the parts of other calls
    /// stay whole.
    pub(super) fn pieces(self) -> u32 {
        if !self.collective.in_place() {
            return 1;
        }
        match self.algorithm {
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
        0
    }

    /// Chunks of `buffer` on `participant`.
    pub(super) fn chunks(self, participant: GroupRank, buffer: Buffer) -> u32 {
        match buffer {
            Buffer::Scratch => self.scratch(),
            _ => super::tensor_parts(self.collective, self.size, participant, buffer)
                .saturating_mul(self.pieces()),
        }
    }

    /// Scratch chunks on every rank.
    fn scratch(self) -> u32 {
        let n = self.size;
        match (self.algorithm, self.collective) {
            (Algorithm::Ring, Collective::ReduceScatter { .. }) => 2,
            (Algorithm::Dissemination, _) => self.steps(),
            (Algorithm::Tree, Collective::Barrier) => tree::BARRIER_SIGNALS,
            (Algorithm::Direct, Collective::MonitoredBarrier { .. }) => 1,
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

    /// The largest scratch of a participant, in chunks.
    pub(super) fn most_scratch(self) -> u32 {
        self.scratch()
    }

    /// Adds what `participant` does in `step`.
    pub(super) fn actions(self, participant: GroupRank, step: u32, actions: &mut Vec<Action>) {
        let (collective, n, rank) = (self.collective, self.size, participant);
        match self.algorithm {
            Algorithm::Ring => ring::actions(collective, n, rank, step, actions),
            Algorithm::Tree => tree::actions(collective, n, rank, step, actions),
            Algorithm::Direct => direct::actions(collective, n, rank, step, actions),
            Algorithm::Dissemination => dissemination::actions(n, rank, step, actions),
            Algorithm::RecursiveDoubling => {
                recursive_doubling::actions(collective, n, rank, step, actions);
            }
            Algorithm::RecursiveHalving | Algorithm::HalvingDoubling => {
                recursive_halving::actions(collective, n, rank, step, actions);
            }
            Algorithm::BidirectionalRing => ring::bidirectional(n, rank, step, actions),
            Algorithm::TwoShot => direct::two_shot(n, rank, step, actions),
            Algorithm::OneShot => one_shot::actions(n, rank, step, actions),
            Algorithm::DoubleBinaryTree => double_tree::actions(n, rank, step, actions),
            Algorithm::Bruck => bruck::actions(collective, n, rank, step, actions),
            Algorithm::Pairwise => pairwise::actions(collective, n, rank, step, actions),
            Algorithm::Chain => chain::actions(collective, n, rank, step, actions),
            Algorithm::KaryTree => kary_tree::actions(collective, n, rank, step, actions),
            Algorithm::ScatterAllGather => {
                scatter_all_gather::actions(collective, n, rank, step, actions);
            }
            Algorithm::GlooRing => gloo_ring::actions(collective, n, rank, step, actions),
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

    /// Segments that follow each other through the family's steps unless the caller chooses.
    pub(super) fn default_segments(self) -> u32 {
        match self.algorithm {
            Algorithm::Chain => 8,
            Algorithm::DoubleBinaryTree => 4,
            _ => 1,
        }
    }

    /// How many steps a segment is behind the one before it: a tree's rank takes its two children
    /// in turn, and the two trees take turns as well.
    pub(super) fn stagger(self) -> u32 {
        match self.algorithm {
            Algorithm::DoubleBinaryTree => double_tree::STAGGER,
            _ => 1,
        }
    }
}
