//! The families of schedules, their names, and which collective each can carry out.

use crate::collective::Collective;
use crate::group::BackendName;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A family of schedules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Every rank sends to the next and receives from the previous; bandwidth-optimal.
    Ring,
    /// A binomial tree: half of the ranks drop out in each step; latency-optimal.
    Tree,
    /// Every rank talks to its partner in one step, without relays.
    Direct,
    /// Rank r signals rank r + 2^s in step s (Hensgen, Finkel, Manber 1988).
    Dissemination,
    /// Partners at distance 1, 2, 4, … exchange all they have.
    RecursiveDoubling,
    /// Partners at distance n/2, n/4, … 1 exchange half of what they still hold.
    RecursiveHalving,
    /// Rabenseifner's: reduce-scatter by halving, then all-gather by doubling, or a gather to the root.
    HalvingDoubling,
    /// Two rings in opposite directions, each for half of the data.
    BidirectionalRing,
    /// A direct reduce_scatter, then a direct all_gather.
    TwoShot,
    /// ceil(log2 n) rounds at distances 1, 2, 4, …, for any number of ranks (Bruck 1997).
    Bruck,
    /// n - 1 steps, in each of which a rank exchanges with one partner.
    Pairwise,
    /// Segments passed from rank to rank in a pipeline.
    Chain,
    /// A tree whose ranks have up to four children.
    KaryTree,
    /// A binomial tree by radix 4: up to three children a level.
    Knomial,
    /// Van de Geijn's broadcast: the root scatters, a ring gathers.
    ScatterAllGather,
    /// Every rank sends all it has to every other and sums by itself.
    OneShot,
    /// Two binary trees, each for half of the data; a rank inside one is a leaf of the other.
    DoubleBinaryTree,
    /// gloo's ring, which PyTorch's CPU jobs run: its chunks and its order of additions.
    GlooRing,
    /// Parallel aggregated trees (NCCL 2.23): Bruck's rounds, but the farthest exchange the least.
    Pat,
    /// Inside the nodes, then across them, then inside again.
    Hierarchical,
    /// One NVLink switch that adds up and multicasts (NVLink SHARP).
    Nvls,
    /// A tree of switches that add up: a leaf for each node and a spine (SHARP, NCCL's CollNet).
    Sharp,
}

impl Algorithm {
    /// Every family.
    pub const ALL: [Algorithm; 22] = [
        Algorithm::Ring,
        Algorithm::Tree,
        Algorithm::Direct,
        Algorithm::Dissemination,
        Algorithm::RecursiveDoubling,
        Algorithm::RecursiveHalving,
        Algorithm::HalvingDoubling,
        Algorithm::BidirectionalRing,
        Algorithm::TwoShot,
        Algorithm::Bruck,
        Algorithm::Pairwise,
        Algorithm::Chain,
        Algorithm::KaryTree,
        Algorithm::Knomial,
        Algorithm::ScatterAllGather,
        Algorithm::OneShot,
        Algorithm::DoubleBinaryTree,
        Algorithm::GlooRing,
        Algorithm::Pat,
        Algorithm::Hierarchical,
        Algorithm::Nvls,
        Algorithm::Sharp,
    ];

    /// The name in files and on the page.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Ring => "ring",
            Algorithm::Tree => "tree",
            Algorithm::Direct => "direct",
            Algorithm::Dissemination => "dissemination",
            Algorithm::RecursiveDoubling => "recursive_doubling",
            Algorithm::RecursiveHalving => "recursive_halving",
            Algorithm::HalvingDoubling => "halving_doubling",
            Algorithm::BidirectionalRing => "bidirectional_ring",
            Algorithm::TwoShot => "two_shot",
            Algorithm::Bruck => "bruck",
            Algorithm::Pairwise => "pairwise",
            Algorithm::Chain => "chain",
            Algorithm::KaryTree => "kary_tree",
            Algorithm::Knomial => "knomial",
            Algorithm::ScatterAllGather => "scatter_all_gather",
            Algorithm::OneShot => "one_shot",
            Algorithm::DoubleBinaryTree => "double_binary_tree",
            Algorithm::GlooRing => "gloo_ring",
            Algorithm::Pat => "pat",
            Algorithm::Hierarchical => "hierarchical",
            Algorithm::Nvls => "nvls",
            Algorithm::Sharp => "sharp",
        }
    }

    /// How a group on `backend` carries out `collective` where a plan does not say: the first of
    /// [`Algorithm::of`], but for NCCL's barrier. That is an all_reduce of one element
    /// (`ProcessGroupNCCL::barrier`): up a tree and down again, where gloo's and MPI's
    /// disseminates (gloo's `barrier.cc`).
    pub fn default_of(collective: Collective, backend: BackendName) -> Algorithm {
        match (collective, backend) {
            (Collective::Barrier, BackendName::Nccl) => Algorithm::Tree,
            _ => Algorithm::of(collective)[0],
        }
    }

    /// How ranks that share their memory, `size` of them, carry out `collective` with `bytes` a
    /// rank where a plan does not say, if not by [`Algorithm::default_of`].
    ///
    /// Each rank reads its peers' tensors where they are, so that a direct exchange moves no byte
    /// more than a ring or a tree: an all_reduce in two shots adds all ranks' parts in one pass
    /// through memory, where a ring takes one a step. And where ranks share cores a step costs a
    /// switch between processes, so few steps win however small the messages. Measured with
    /// `bench_collectives` (`docs/benchmarks.md`). Channels grow with the square of the ranks,
    /// hence not beyond [`Algorithm::MOST_IN_SHARED_MEMORY`].
    pub fn in_shared_memory(collective: Collective, size: u32, bytes: u64) -> Option<Algorithm> {
        if size > Algorithm::MOST_IN_SHARED_MEMORY {
            return None;
        }
        match collective {
            Collective::AllReduce { .. } if bytes <= Algorithm::MOST_IN_ONE_SHOT => {
                Some(Algorithm::OneShot)
            }
            Collective::AllReduce { .. } => Some(Algorithm::TwoShot),
            Collective::AllGather
            | Collective::ReduceScatter { .. }
            | Collective::Broadcast { .. }
            | Collective::Reduce { .. } => Some(Algorithm::Direct),
            // Two steps however many, and whoever is first out is the one that others hear from.
            Collective::Barrier if size > 2 => Some(Algorithm::Direct),
            _ => None,
        }
    }

    /// Ranks up to which [`Algorithm::in_shared_memory`] has direct exchanges.
    pub const MOST_IN_SHARED_MEMORY: u32 = 16;

    /// Bytes up to which an all_reduce in shared memory takes one shot.
    pub const MOST_IN_ONE_SHOT: u64 = 8 << 10;

    /// Bytes up to which the sender of a message in shared memory copies it, so that it need not wait
    /// until its receiver has read it; larger ones are read where they are. Measured as the above.
    pub const MOST_COPIED_IN_SHARED_MEMORY: u64 = 4 << 10;

    /// The families that can carry out `collective`, for every group size; the first is the
    /// default of most backends: [`Algorithm::default_of`].
    pub fn of(collective: Collective) -> &'static [Algorithm] {
        match collective {
            Collective::AllReduce { .. } => &[
                Algorithm::Ring,
                Algorithm::Tree,
                Algorithm::BidirectionalRing,
                Algorithm::RecursiveDoubling,
                Algorithm::HalvingDoubling,
                Algorithm::DoubleBinaryTree,
                Algorithm::TwoShot,
                Algorithm::OneShot,
                Algorithm::GlooRing,
                Algorithm::Hierarchical,
                Algorithm::KaryTree,
                Algorithm::Chain,
                Algorithm::Nvls,
                Algorithm::Sharp,
            ],
            Collective::AllGather => &[
                Algorithm::Ring,
                Algorithm::Direct,
                Algorithm::RecursiveDoubling,
                Algorithm::Bruck,
                Algorithm::BidirectionalRing,
                Algorithm::Pat,
                Algorithm::Hierarchical,
                Algorithm::Nvls,
            ],
            Collective::ReduceScatter { .. } => &[
                Algorithm::Ring,
                Algorithm::Direct,
                Algorithm::RecursiveHalving,
                Algorithm::Pairwise,
                Algorithm::BidirectionalRing,
                Algorithm::Pat,
                Algorithm::Hierarchical,
                Algorithm::Nvls,
            ],
            Collective::Broadcast { .. } => &[
                Algorithm::Tree,
                Algorithm::Direct,
                Algorithm::KaryTree,
                Algorithm::Chain,
                Algorithm::ScatterAllGather,
                Algorithm::Hierarchical,
                Algorithm::Nvls,
                Algorithm::Knomial,
                Algorithm::DoubleBinaryTree,
            ],
            Collective::Reduce { .. } => &[
                Algorithm::Tree,
                Algorithm::Direct,
                Algorithm::KaryTree,
                Algorithm::Chain,
                Algorithm::GlooRing,
                Algorithm::Hierarchical,
                Algorithm::Knomial,
                Algorithm::DoubleBinaryTree,
                Algorithm::HalvingDoubling,
            ],
            Collective::AllToAll => &[
                Algorithm::Direct,
                Algorithm::Pairwise,
                Algorithm::Bruck,
                Algorithm::Ring,
                Algorithm::Hierarchical,
            ],
            Collective::Gather { .. } | Collective::Scatter { .. } => {
                &[Algorithm::Direct, Algorithm::Tree, Algorithm::Knomial, Algorithm::Hierarchical]
            }
            Collective::MonitoredBarrier { .. } => &[Algorithm::Direct],
            Collective::Barrier => &[
                Algorithm::Dissemination,
                Algorithm::Tree,
                Algorithm::Direct,
                Algorithm::Hierarchical,
                Algorithm::Sharp,
            ],
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
