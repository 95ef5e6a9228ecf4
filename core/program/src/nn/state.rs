//! The state that a process keeps of its models: DDP's state of each, and the joins that are open.

use crate::process::raised::{Raised, refused};
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::Fill;
use lockstep_torch::autograd::Node;
use lockstep_torch::c10d::{self, Arg, Dist, FromRank, Group, InGroup, Reduction, Tensor, Work};
use lockstep_torch::ddp::join::JoinPasses;
use lockstep_torch::ddp::model::{Device, Model};
use lockstep_torch::ddp::{Ddp, DdpCall, DdpError, DdpOp, Purpose};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A model that DDP wraps.
pub(crate) struct Wrapped {
    pub(crate) model: Arc<Model>,
    /// The number of each parameter, in the model's order.
    pub(crate) parameters: Vec<u32>,
    pub(crate) device: Device,
    pub(crate) batch: u64,
    pub(crate) ddp: Ddp,
    pub(crate) group: Option<Group>,
    /// Its number among the models that the rank has wrapped.
    pub(crate) nth: usize,
    /// The tensors that DDP communicates, by name, type and size.
    pub(crate) tensors: BTreeMap<(String, Dtype, u64), Tensor>,
    /// The forward passes that a backward pass may still go through, the oldest first.
    pub(crate) passes: VecDeque<ForwardPass>,
    /// The gradients that the last backward pass left in the model and DDP has not reduced, if any.
    pub(crate) unreduced: Option<Unreduced>,
    /// The program's own switch: `require_backward_grad_sync`.
    pub(crate) wanted: Arc<AtomicBool>,
}

/// A forward pass through DDP.
#[derive(Clone, Debug)]
pub(crate) struct ForwardPass {
    /// The numbers of the operations that autograd has put into the graph in it.
    pub(crate) operations: Range<u64>,
    /// False if it was inside `no_sync()`: its backward pass does not reduce.
    pub(crate) syncs: bool,
    /// The parameters that the program says it leaves unused, by their numbers.
    pub(crate) left_out: Vec<u32>,
    /// The operation that its outputs come of.
    pub(crate) output: Option<Arc<Node>>,
}

/// The forward passes of a process.
#[derive(Default)]
pub(crate) struct ForwardState {
    /// The number of forward passes of the program's classes that it is in, one in the other.
    pub(crate) depth: u32,
    /// The line of the outermost.
    pub(crate) line: u32,
    /// The number of operations of the plan after its last computation.
    pub(crate) computed_to: Option<usize>,
    /// The GPUs, and the samples a pass, of the DDP models that it is in.
    pub(crate) of_ddp: Vec<(Device, u64)>,
    /// The forward passes that were not followed, each with its line.
    pub(crate) unfollowed: BTreeSet<(String, u32)>,
    /// The parts that run again in a backward pass.
    pub(crate) parts: u32,
    /// The calls that backward passes make, each once in the list.
    pub(crate) backward_calls: Vec<BackwardCall>,
    /// The tensors in which batch norms share their statistics: by name, rank, type and elements.
    pub(crate) statistics: BTreeMap<(&'static str, u64, Dtype, u64), Tensor>,
}

/// A sum over all ranks of a group that an operation's backward pass makes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BackwardCall {
    pub(crate) tensor: Tensor,
    pub(crate) group: Option<Group>,
    /// The call that it is a part of.
    pub(crate) via: &'static str,
}

impl ForwardState {
    /// The GPU that a pass runs on, and the samples that it takes.
    ///
    /// # Errors
    /// No GPU is known.
    pub(crate) fn costs(&self) -> anyhow::Result<(Device, u64)> {
        let innermost = self.of_ddp.last().cloned();
        let found = innermost.or_else(|| Some((Device::named("A100")?, SAMPLES)));
        found.ok_or_else(|| anyhow::anyhow!("no device is known"))
    }
}

/// The samples of a pass where nothing says it.
pub(crate) const SAMPLES: u64 = 32;

/// The reason for which a backward pass left gradients that DDP has not reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreduced {
    /// It ran under `no_sync()`.
    NoSync,
    /// It went through the model that DDP wraps.
    Past,
    /// An optimizer has stepped on such gradients before, and that is noted.
    Noted,
}

/// DDP's refusals as exceptions.
pub(crate) fn raised(error: &DdpError) -> anyhow::Error {
    anyhow::Error::new(Raised { text: format!("{}: {error}", error.class()), help: None })
}

impl Wrapped {
    /// The parameters that DDP trains, by their numbers.
    pub(crate) fn trained(&self) -> impl Iterator<Item = u32> {
        let all = self.model.params.iter().zip(&self.parameters);
        all.filter(|(own, _)| own.requires_grad).map(|(_, number)| *number)
    }

    /// The forward pass in which the operation of that number was put into the graph.
    pub(crate) fn pass_of(&self, operation: u64) -> Option<&ForwardPass> {
        self.passes.iter().rev().find(|pass| pass.operations.contains(&operation))
    }

    /// The group that it communicates in.
    pub(crate) fn group(&self) -> Option<Group> {
        self.group
    }

    /// Makes a call of DDP's, as a part of the user's call `via`.
    pub(crate) fn issue(
        &mut self,
        dist: &mut Dist<'_>,
        call: &DdpCall,
        async_op: bool,
        via: &'static str,
    ) -> anyhow::Result<Option<Work>> {
        dist.part_of(Some(via));
        let work = self.make(dist, call, async_op);
        dist.part_of(None);
        work
    }

    /// Makes calls of DDP's for which it waits itself, as parts of the user's call `via`; `then` hears of each.
    ///
    /// Broadcasts of several buffers overlap: `broadcast_coalesced` (`comm.cpp`) has at most two in flight.
    pub(crate) fn issue_all(
        &mut self,
        dist: &mut Dist<'_>,
        calls: &[DdpCall],
        via: &'static str,
        mut then: impl FnMut(&mut Dist<'_>, &DdpCall) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let coalesced =
            |call: &DdpCall| matches!(call.purpose, Purpose::ModuleStates | Purpose::Buffers);
        for run in calls.chunk_by(|one, next| coalesced(one) && one.purpose == next.purpose) {
            let overlaps = run.len() > 1;
            let mut in_flight: VecDeque<Work> = VecDeque::new();
            for call in run {
                if in_flight.len() == MOST_BROADCASTS {
                    wait_for_first(dist, &mut in_flight, via)?;
                }
                in_flight.extend(self.issue(dist, call, overlaps, via)?);
                then(dist, call)?;
            }
            while !in_flight.is_empty() {
                wait_for_first(dist, &mut in_flight, via)?;
            }
        }
        Ok(())
    }

    fn make(
        &mut self,
        dist: &mut Dist<'_>,
        call: &DdpCall,
        async_op: bool,
    ) -> anyhow::Result<Option<Work>> {
        let group = self.group;
        let name = match call.purpose {
            Purpose::Bucket { bucket } => format!("bucket {bucket}"),
            Purpose::ModuleStates => "module states".to_owned(),
            Purpose::Buffers => "buffers".to_owned(),
            Purpose::UsedMap => "used parameters".to_owned(),
            _ => "ddp".to_owned(),
        };
        let tensor = self.tensor(dist, name.clone(), call.dtype, call.numel);
        let work = match call.op {
            DdpOp::AllReduce { reduce_op } => {
                let options = Reduction { op: Arg::Is(reduce_op), group, async_op };
                dist.all_reduce(&tensor, options)
            }
            DdpOp::Broadcast { root } => {
                let group_src = Some(i64::from(root));
                // `group_src` needs a group to count in.
                let group = group.or_else(|| dist.world());
                dist.broadcast(&tensor, FromRank { src: None, group_src, group, async_op })
            }
            DdpOp::AllGather => {
                let size = dist.get_world_size(group).map_err(refused)?;
                let numel = call.numel.saturating_mul(u64::try_from(size).unwrap_or(0));
                let all = self.tensor(dist, format!("{name}, gathered"), call.dtype, numel);
                dist.all_gather_into_tensor(&all, &tensor, InGroup { group, async_op })
            }
        };
        work.map_err(refused)
    }

    /// The tensor of a call; the same in every step.
    fn tensor(&mut self, dist: &mut Dist<'_>, name: String, dtype: Dtype, numel: u64) -> Tensor {
        let device = match dist.get_backend_config(self.group) {
            Ok(config) if config.contains("nccl") => c10d::Device::Cuda,
            _ => c10d::Device::Cpu,
        };
        let key = (name, dtype, numel);
        if let Some(known) = self.tensors.get(&key) {
            return known.clone();
        }
        let made = dist.tensor_on(device, &key.0, dtype, numel, Fill::Zeros);
        self.tensors.insert(key, made.clone());
        made
    }
}

/// The broadcasts of `broadcast_coalesced` that are in flight at most.
const MOST_BROADCASTS: usize = 2;

fn wait_for_first(
    dist: &mut Dist<'_>,
    in_flight: &mut VecDeque<Work>,
    via: &'static str,
) -> anyhow::Result<()> {
    let Some(work) = in_flight.pop_front() else { return Ok(()) };
    dist.part_of(Some(via));
    let waited = dist.wait(work, None);
    dist.part_of(None);
    waited.map(|_| ()).map_err(refused)
}

/// A `join()` that is open on a rank.
#[derive(Clone, Debug)]
pub(crate) struct OpenJoin {
    pub(crate) model: usize,
    pub(crate) throw: bool,
    /// The number of the join among the rank's.
    pub(crate) nth: usize,
    /// The passes of all members, once they are known.
    pub(crate) passes: Option<Arc<JoinPasses>>,
    /// The rank in the model's group.
    pub(crate) me: u32,
}
