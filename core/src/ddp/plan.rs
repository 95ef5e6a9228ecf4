//! A DDP training run as a plan: forward and backward passes layer by layer on the compute stream,
//! and the reducer's collectives beside them.
//!
//! A bucket's `all_reduce` is asynchronous and starts when the compute stream has come to it; the
//! waits for all buckets stand at the end of the backward pass, as in `finalize_backward`. On a CPU
//! backend the same plan holds the process where a device's would hold the stream.
//!
//! Tensors hold what is communicated. Gradients are seeded per rank and stand for gradients that
//! the reducer has scaled already, so that the sum is the mean; a bucket's tensor is the same in
//! every step.

mod names;
mod optimizer;
mod subgroups;

use super::averager::ModelAverager;
use super::call::{DdpCall, DdpOp, Purpose};
use super::error::DdpError;
use super::model::{Device, Model};
use super::notes::{CallNote, GradientNote, LayerNote, StepNotes, TrainingRun};
use super::options::DdpOptions;
use super::wrapper::{Ddp, Forward};
use crate::collective::Collective;
use crate::dtype::Dtype;
use crate::group::{BackendName, GroupId, ProcessGroup};
use crate::plan::{Action, Call, Fill, Op, Plan, PlanError, Source, SourceLine, Tensor, TensorId};
use crate::rank::GroupRank;
use names::Names;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use subgroups::Subgroups;

/// A training run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Training {
    /// DDP's arguments.
    pub options: DdpOptions,
    /// The number of ranks.
    pub world_size: u32,
    /// Ranks a node; 0 when one node holds all.
    pub ranks_per_node: u32,
    /// `nccl` for a compute stream beside the communication, `gloo` or `host` for processes.
    pub backend: BackendName,
    /// What computes.
    pub device: Device,
    /// Samples a rank and pass.
    pub batch: u64,
    /// Passes forward and backward.
    pub steps: u32,
    /// Passes that accumulate gradients before one reduces them: all but the last of so many are
    /// inside `no_sync()`. 0 counts as 1.
    pub accumulate: u32,
    /// What averages the parameters after some of the optimizer's steps.
    pub averager: Option<ModelAverager>,
    /// `SyncBatchNorm.convert_sync_batchnorm`: every BatchNorm takes the statistics of all ranks.
    pub sync_batch_norm: bool,
    /// `ZeroRedundancyOptimizer`: every rank updates its share and broadcasts it, one by one or,
    /// with `Some(true)`, as one buffer (`parameters_as_bucket_view`).
    pub zero: Option<bool>,
}

impl Training {
    /// Three steps of DDP on `nccl` with the default arguments.
    pub fn new(world_size: u32, device: Device) -> Training {
        Training {
            options: DdpOptions::default(),
            world_size,
            ranks_per_node: 0,
            backend: BackendName::Nccl,
            device,
            batch: 32,
            steps: 3,
            accumulate: 1,
            averager: None,
            sync_batch_norm: false,
            zero: None,
        }
    }
}

/// Why a training run is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrainingError {
    /// DDP itself raises.
    #[error("{}: {_0}", _0.class())]
    Ddp(DdpError),
    /// The plan cannot be run.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Steps past what a plan should hold.
    #[error("{steps} steps of {layers} layers are more than {MAX_OPS} operations; take fewer")]
    TooLong {
        /// The steps.
        steps: u32,
        /// The model's layers.
        layers: usize,
    },
}

// Not its source: the text would be told twice.
impl From<DdpError> for TrainingError {
    fn from(error: DdpError) -> TrainingError {
        TrainingError::Ddp(error)
    }
}

/// The most operations of a rank: a stranger's arguments stay bounded.
const MAX_OPS: u64 = 1 << 22;

/// Lines of the script that a plan shows.
const CONSTRUCTOR: u32 = 5;
const FORWARD: u32 = 7;
const BACKWARD: u32 = 8;
const OPTIMIZER: u32 = 9;

/// The plan of a training run.
///
/// # Errors
/// When DDP would raise, or the plan cannot be run.
pub fn training_plan(model: &Model, training: &Training) -> Result<Plan, TrainingError> {
    Ok(training_run(model, training)?.plan)
}

/// The plan of a training run, and what its operations are.
///
/// # Errors
/// As [`training_plan`].
pub fn training_run(model: &Model, training: &Training) -> Result<TrainingRun, TrainingError> {
    let steps = u64::from(training.steps);
    let each = 4 * model.layers.len() as u64 + 4 * model.params.len() as u64 + 64;
    if steps.saturating_mul(each) > MAX_OPS {
        let layers = model.layers.len();
        return Err(TrainingError::TooLong { steps: training.steps, layers });
    }
    if training.options.zero_overlap.is_some() && training.backend != BackendName::Nccl {
        return Err(DdpError::ZeroOverlapBackend.into());
    }
    training.options.check(training.world_size)?;
    if let Some(averager) = &training.averager {
        averager.check(training.world_size)?;
    }
    let mut writer = Writer::new(model, training)?;
    let (mut ddp, calls) = Ddp::new(0, model, &training.options)?;
    writer.at(CONSTRUCTOR, "DistributedDataParallel");
    for call in &calls {
        writer.call(call, 0, false);
    }
    writer.read_back(&calls);
    let backward = model.backward();
    let unused = unused(model, &backward);
    for step in 0..training.steps {
        let accumulate = training.accumulate.max(1);
        let sync = (step + 1) % accumulate == 0 || step + 1 == training.steps;
        let mut calls = Vec::new();
        let rebuilt = |ddp: &Ddp| ddp.reducer().is_some_and(|reducer| reducer.has_rebuilt());
        let before = rebuilt(&ddp);
        ddp.forward(&Forward { sync, unused: &unused, ..Forward::default() }, &mut calls)?;
        writer.step(sync, rebuilt(&ddp) && !before, &ddp);
        writer.at(FORWARD, "DistributedDataParallel.forward");
        for call in &calls {
            writer.call(call, 0, false);
        }
        writer.read_back(&calls);
        writer.forward_pass();
        let phase = 1 + u32::from(rebuilt(&ddp));
        writer.at(BACKWARD, "DistributedDataParallel.backward");
        writer.names.restart();
        let mut launched = Vec::new();
        for (layer, ready) in &backward {
            writer.backward_of(*layer);
            for &gradient in ready {
                let mut calls = Vec::new();
                ddp.gradient(gradient, &mut calls)?;
                writer.gradient(gradient);
                launched.extend(calls.iter().map(|call| writer.call(call, phase, true)));
            }
            writer.launching = None;
        }
        let mut calls = Vec::new();
        ddp.end_backward(&mut calls)?;
        launched.extend(calls.iter().map(|call| writer.call(call, phase, true)));
        for op in launched {
            writer.push(Action::Wait { op, timeout_ms: None });
        }
        if sync {
            writer.at(OPTIMIZER, "optimizer.step");
            writer.optimizer();
        }
    }
    Ok(writer.finish()?)
}

/// The gradients that no backward pass makes ready.
fn unused(model: &Model, backward: &[(Option<usize>, Vec<u32>)]) -> Vec<u32> {
    let mut used = vec![false; model.trained().count()];
    for &gradient in backward.iter().flat_map(|(_, ready)| ready) {
        if let Some(used) = used.get_mut(gradient as usize) {
            *used = true;
        }
    }
    (0..).zip(used).filter(|(_, used)| !used).map(|(index, _)| index).collect()
}

/// Programs that are being written: one, or one per subgroup where a hook uses subgroups.
struct Writer<'a> {
    model: &'a Model,
    training: &'a Training,
    plan: Plan,
    ops: Vec<Op>,
    at: Option<SourceLine>,
    via: Option<String>,
    /// Per name and type, a tensor.
    tensors: BTreeMap<(String, &'static str, u64), TensorId>,
    subgroups: Subgroups,
    names: Names,
    /// Steps of the optimizer.
    optimized: u64,
    steps: Vec<StepNotes>,
    /// The gradient that launches what is written now, and the pass that made it.
    launching: Option<u32>,
    computed: Option<u32>,
}

impl<'a> Writer<'a> {
    fn new(model: &'a Model, training: &'a Training) -> Result<Writer<'a>, PlanError> {
        let world_size = training.world_size;
        let world =
            ProcessGroup::world(world_size, training.backend).map_err(|_| PlanError::EmptyWorld)?;
        if world_size > crate::plan::MAX_WORLD_SIZE {
            return Err(PlanError::WorldTooLarge(world_size));
        }
        let mut groups = vec![world];
        let subgroups = Subgroups::new(training, &mut groups)?;
        let plan = Plan {
            name: format!("DDP, {}, {world_size} ranks", model.name),
            world_size,
            ranks_per_node: training.ranks_per_node,
            groups,
            tensors: Vec::new(),
            programs: Vec::new(),
            program_of: Vec::new(),
            sources: vec![script(model, training)],
            schedules: Vec::new(),
        };
        Ok(Writer {
            model,
            training,
            plan,
            ops: Vec::new(),
            at: None,
            via: None,
            tensors: BTreeMap::new(),
            subgroups,
            names: Names::default(),
            optimized: 0,
            steps: Vec::new(),
            launching: None,
            computed: None,
        })
    }

    /// Another step begins.
    fn step(&mut self, sync: bool, rebuilds: bool, ddp: &Ddp) {
        let buckets = ddp.reducer().map(|reducer| reducer.buckets().to_vec()).unwrap_or_default();
        self.steps.push(StepNotes { sync, rebuilds, buckets, ..StepNotes::default() });
        self.computed = None;
    }

    /// A gradient is ready; what is called next is called because of it.
    fn gradient(&mut self, param: u32) {
        let after = self.computed;
        if let Some(step) = self.steps.last_mut() {
            self.launching = Some(step.gradients.len() as u32);
            step.gradients.push(GradientNote { param, after });
        }
    }

    fn pass(&mut self, layer: usize, forward: bool, ns: u64) {
        let name = self.model.layers.get(layer).map_or("", |layer| layer.name.as_str());
        let direction = if forward { "forward" } else { "backward" };
        self.compute(format!("{direction} {name}"), ns);
        let op = self.ops.len() as u32 - 1;
        self.computed = Some(op);
        if let Some(step) = self.steps.last_mut() {
            step.layers.push(LayerNote { op, layer: layer as u32, forward });
        }
    }

    fn at(&mut self, line: u32, via: &str) {
        self.at = Some(SourceLine { source: 0, line });
        self.via = Some(via.to_owned());
    }

    fn push(&mut self, action: Action) -> u32 {
        self.ops.push(Op { action, at: self.at, via: self.via.clone() });
        self.ops.len() as u32 - 1
    }

    fn compute(&mut self, name: String, duration_ns: u64) {
        let via = self.via.take();
        self.push(Action::Compute { name, duration_ns });
        self.via = via;
    }

    /// A call of DDP; `phase` tells the buckets before the rebuild from those after.
    fn call(&mut self, call: &DdpCall, phase: u32, async_op: bool) -> u32 {
        let (op, launched_by) = (self.ops.len() as u32, self.launching);
        if let Some(step) = self.steps.last_mut() {
            step.calls.push(CallNote { op, call: *call, launched_by });
        }
        if let Some(size) = call.subgroup {
            self.subgroups.made_in(self.ops.len(), size, self.training.world_size);
        }
        let (name, fill) = self.names.of(call, phase);
        let tensor = self.tensor(&name, call.dtype, call.numel, fill);
        let collective = match call.op {
            DdpOp::AllReduce { reduce_op } => Collective::AllReduce { op: reduce_op },
            DdpOp::Broadcast { root } => Collective::Broadcast { root: GroupRank(root) },
            DdpOp::AllGather => Collective::AllGather,
        };
        let (mut input, mut output) = (None, Some(tensor));
        if call.op == DdpOp::AllGather {
            let all = call.numel.saturating_mul(u64::from(self.training.world_size));
            input = Some(tensor);
            output = Some(self.tensor(&format!("{name}, gathered"), call.dtype, all, Fill::Zeros));
        }
        let call = Call::Collective {
            group: GroupId::WORLD,
            collective,
            count: call.numel,
            input,
            output,
            algorithm: None,
            channels: None,
            segments: None,
            schedule: None,
            splits: None,
        };
        self.push(Action::Call { call, async_op })
    }

    fn tensor(&mut self, name: &str, dtype: Dtype, numel: u64, fill: Fill) -> TensorId {
        let key = (name.to_owned(), dtype.name(), numel);
        let next = TensorId(self.plan.tensors.len() as u32);
        let id = *self.tensors.entry(key).or_insert(next);
        if id == next {
            self.plan.tensors.push(Tensor {
                name: name.to_owned(),
                dtype,
                numel,
                fill,
                data: Default::default(),
            });
        }
        id
    }

    /// What the process itself reads of those results holds it until its streams are empty: the
    /// number and shapes of parameters, and rank 0's buckets (a copy from device to host).
    fn read_back(&mut self, calls: &[DdpCall]) {
        let read =
            |call: &DdpCall| matches!(call.purpose, Purpose::ParamShapes | Purpose::RebuiltSizes);
        if self.training.backend == BackendName::Nccl && calls.iter().any(read) {
            self.push(Action::Synchronize);
        }
    }

    fn dtype_of(&self, layer: usize) -> Dtype {
        let param = self.model.layers.get(layer).and_then(|layer| layer.params.first());
        let param = param.and_then(|index| self.model.params.get(*index as usize));
        let param = param.or(self.model.params.first());
        param.map_or(Dtype::Float32, |param| param.dtype)
    }

    fn forward_pass(&mut self) {
        for (index, layer) in self.model.layers.iter().enumerate() {
            let dtype = self.dtype_of(index);
            let ns = self.training.device.forward_ns(&layer.cost, dtype, self.training.batch);
            self.pass(index, true, ns);
            self.sync_batch_norm(&layer.name, true);
        }
    }

    fn backward_of(&mut self, layer: Option<usize>) {
        let Some(index) = layer else { return };
        let Some(of) = self.model.layers.get(index) else { return };
        let dtype = self.dtype_of(index);
        let ns = self.training.device.backward_ns(&of.cost, dtype, self.training.batch);
        self.pass(index, false, ns);
        self.sync_batch_norm(&of.name, false);
    }

    /// `SyncBatchNorm` (`torch/nn/modules/_functions.py`): forward gathers mean, inverse deviation
    /// and count, backward sums two numbers a channel. The stream waits for both, behind whatever
    /// buckets the group has in flight.
    fn sync_batch_norm(&mut self, layer: &str, forward: bool) {
        if !self.training.sync_batch_norm {
            return;
        }
        let statistics = format!("{layer}.running_mean");
        let Some(mean) = self.model.buffers.iter().find(|buffer| buffer.name == statistics) else {
            return;
        };
        let (dtype, channels) = (mean.dtype, mean.numel());
        let call = match forward {
            true => DdpCall::all_gather(dtype, 2 * channels + 1, Purpose::BatchNorm),
            false => DdpCall::all_reduce(dtype, 2 * channels, Purpose::BatchNorm),
        };
        // The layer's own gradients follow from it.
        self.computed = Some(self.call(&call, 0, false));
    }

    fn finish(mut self) -> Result<TrainingRun, PlanError> {
        let ops = std::mem::take(&mut self.ops);
        self.subgroups.programs(ops, &mut self.plan);
        self.plan.check()?;
        Ok(TrainingRun { plan: self.plan, steps: self.steps })
    }
}

/// The script that the plan's lines point into.
fn script(model: &Model, training: &Training) -> Source {
    let Training { backend, steps, .. } = training;
    let name = &model.name;
    let text = format!(
        "import torch, torch.distributed as dist\n\
         from torch.nn.parallel import DistributedDataParallel\n\
         \n\
         dist.init_process_group(\"{backend}\")\n\
         model = DistributedDataParallel(build({name:?}))\n\
         for step in range({steps}):\n    \
             loss = model(inputs(step)).sum()\n    \
             loss.backward()\n    \
             optimizer.step(); optimizer.zero_grad()\n"
    );
    Source { path: "train.py".into(), text }
}
