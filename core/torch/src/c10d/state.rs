//! The state that the ranks of a job share, and the state of each of them so far.

use super::Environment;
use super::backend::Machine;
use super::error::DistError;
use super::fingerprint::VARIABLE;
use super::group_table::GroupTable;
use super::pairs::Pair;
use super::process_group::World;
use super::recorded::Recorded;
use super::sizes::SizeTable;
use super::tensor::Tensor;
use super::tensors::TensorTable;
use super::work::WorkState;
use lockstep_core::plan::{Source, SourceLine, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::ReduceOp;
use std::collections::{BTreeMap, BTreeSet};

/// The state that all ranks of a job share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) world_size: u32,
    pub(super) ranks_per_node: u32,
    pub(super) machine: Machine,
    pub(super) groups: GroupTable,
    pub(super) tensors: TensorTable,
    pub(super) sizes: SizeTable,
    pub(super) sources: Vec<Source>,
    pub(super) environment: BTreeMap<String, Option<String>>,
    pub(super) timeout_ms: Option<u64>,
}

/// The state of one rank so far.
#[derive(Debug, Default)]
pub(super) struct RankState {
    pub(super) world: World,
    pub(super) recorded: Vec<Recorded>,
    pub(super) works: Vec<WorkState>,
    pub(super) warnings: Vec<String>,
    pub(super) at: Option<SourceLine>,
    /// Per call that learns sizes from other ranks, how often this rank has made it.
    pub(super) sized_calls: BTreeMap<super::sizes::SizeKey, u64>,
    pub(super) tensors: super::tensors::OwnTensors,
    /// The checks that `TORCH_DISTRIBUTED_DEBUG=DETAIL` compares with the other ranks, in order.
    pub(super) checks: Vec<super::fingerprint::Check>,
    pub(super) streams: super::stream::Streams,
    /// The number of operations that were recorded when an element on the GPU was read last.
    pub(super) read_to: usize,
    /// NCCL's communicators of two ranks that this one has come to.
    pub(super) pairs: BTreeSet<Pair>,
    /// The user's call that the following calls are a part of: DDP's passes.
    pub(super) part_of: Option<&'static str>,
    /// Barriers of all ranks that it has passed.
    pub(super) barriers: u32,
    /// The time since all ranks last met.
    pub(super) clock: super::clock::Clock,
    /// Calls that are to be made together.
    pub(super) batch: Option<super::issue::Issue>,
    /// Tensors that a call was handed.
    pub(super) used: BTreeSet<TensorId>,
    /// Tensors that something has written into.
    pub(super) written: BTreeSet<TensorId>,
    /// The contents of tensors that only copies of known elements have written into.
    pub(super) holds: BTreeMap<TensorId, Vec<u8>>,
    /// Tensors whose values are not known.
    pub(super) unknown: BTreeSet<TensorId>,
    /// Copies that wait for the default group.
    pub(super) early: Vec<(Tensor, Tensor, Option<ReduceOp>)>,
    /// Tensors that were numbered before they were made.
    pub(super) made: BTreeMap<TensorId, TensorId>,
    pub(super) outcome: Option<DistError>,
    /// True if a mesh of CPUs has made the default group: the program is written for a machine without GPUs, which is
    /// what PyTorch asks for a backend that nobody names.
    pub(super) without_gpus: bool,
}

impl Shared {
    /// True if PyTorch's wrapper compares the ranks' calls.
    pub(super) fn debug_detail(&self) -> bool {
        let level = self.environment.get(VARIABLE).and_then(Option::as_deref);
        level == Some("DETAIL")
    }

    /// The environment of a rank's process.
    pub(super) fn environment(&self, rank: GlobalRank) -> Environment {
        let local = rank.0 % self.ranks_per_node.max(1);
        let node_first = rank.0 - local;
        let local_world = self.ranks_per_node.min(self.world_size - node_first);
        let mut environment: Environment = [
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", self.world_size.to_string()),
            ("LOCAL_RANK", local.to_string()),
            ("LOCAL_WORLD_SIZE", local_world.to_string()),
            ("MASTER_ADDR", "127.0.0.1".to_owned()),
            ("MASTER_PORT", "29500".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        for (name, value) in &self.environment {
            match value {
                Some(value) => environment.insert(name.clone(), value.clone()),
                None => environment.remove(name),
            };
        }
        environment
    }
}
