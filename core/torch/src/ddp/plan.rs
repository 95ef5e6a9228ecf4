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
mod raising;
mod replicas;
mod subgroups;
mod uneven;
mod writer;

use super::averager::ModelAverager;
use super::error::DdpError;
use super::join::JoinOptions;
use super::left_out::UnknownName;
use super::model::{Device, Model, ModelError, UnknownParameter};
use super::notes::{Half, StepKind, TrainingRun};
use super::options::DdpOptions;
use super::verify::{verify_sync_batch_norm, verify_types, verify_zero_overlap, verify_zero_types};
use super::wrapper::{Ddp, Forward};
use lockstep_core::group::BackendName;
use lockstep_core::plan::{Action, Plan, PlanError, Source};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use writer::Writer;

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
    /// Uneven inputs, inside `join()`; then the number of steps is theirs.
    pub uneven: Option<Uneven>,
    /// Devices of each process with a replica of the module on each, as in 1.x; 0 counts as 1. A
    /// rank of the plan is a device then.
    pub devices: u32,
    /// Parameters, or modules with all of theirs, that get no gradient in any pass.
    pub unused: Vec<String>,
    /// The order in which gradients become ready, as indices among the parameters that require
    /// grad, in place of the model's own.
    #[serde(default)]
    pub grad_ready_order: Option<Vec<u32>>,
}

/// Ranks that run out of inputs at different times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uneven {
    /// Inputs of each rank; ranks past the last have as many as it.
    pub inputs: Vec<u32>,
    /// `join`'s arguments.
    pub options: JoinOptions,
}

impl Uneven {
    /// Inputs of a rank.
    pub fn of(&self, rank: u32) -> u32 {
        self.inputs.get(rank as usize).or(self.inputs.last()).copied().unwrap_or(0)
    }

    /// The most inputs of any of so many ranks.
    pub fn most(&self, world_size: u32) -> u32 {
        let named = self.inputs.iter().take(world_size as usize);
        named.copied().max().unwrap_or(0)
    }

    /// The highest rank, of so many, that still has inputs in an iteration.
    fn authoritative(&self, world_size: u32, iteration: u32) -> u32 {
        let last = world_size.saturating_sub(1);
        if self.of(last) > iteration {
            return last;
        }
        let mut named = self.inputs.iter().take(world_size as usize);
        named.rposition(|inputs| *inputs > iteration).map_or(0, |rank| rank as u32)
    }
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
            uneven: None,
            devices: 1,
            unused: Vec::new(),
            grad_ready_order: None,
        }
    }

    /// The model as it is trained: without what gets no gradient, and in the order that was asked
    /// for.
    ///
    /// # Errors
    /// When a name is no parameter's or module's, or the order is none.
    pub fn trained<'a>(&self, model: &'a Model) -> Result<Cow<'a, Model>, TrainingError> {
        let model = match &self.grad_ready_order {
            None => Cow::Borrowed(model),
            Some(order) => Cow::Owned(model.in_order(order)?),
        };
        match self.unused.is_empty() {
            true => Ok(model),
            false => Ok(Cow::Owned(model.without(&model.find(&self.unused)?))),
        }
    }

    /// What a sharded optimizer says of the model's parameters, if there is one.
    ///
    /// # Errors
    /// What PyTorch raises.
    pub fn check_zero(&self, model: &Model) -> Result<(), DdpError> {
        match self.zero.is_some() || self.options.zero_overlap.is_some() {
            true => verify_zero_types(model, self.backend),
            false => Ok(()),
        }
    }

    /// Ranks of the plan: processes, or their devices.
    pub fn ranks(&self) -> u32 {
        self.world_size.saturating_mul(self.devices.max(1))
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
    /// A parameter that is none.
    #[error(transparent)]
    Unknown(#[from] UnknownParameter),
    /// A parameter or buffer in DDP's arguments that is none.
    #[error(transparent)]
    Unnamed(#[from] UnknownName),
    /// A ready order that is none of the model's.
    #[error(transparent)]
    Order(#[from] ModelError),
    /// Options that PyTorch refuses together, or that do not go together here.
    #[error("{0}")]
    Together(&'static str),
    /// Programs past what a plan should hold: one for every group of neighbours.
    #[error(
        "{programs} groups of ranks with programs of {ops} operations each are more than {MAX_OPS} \
         operations; take fewer ranks or larger groups"
    )]
    TooMany {
        /// The programs.
        programs: u64,
        /// Operations of each.
        ops: usize,
    },
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
    let run = training_run_as_far(model, training)?;
    match run.roles.iter().find_map(|role| role.raised.clone()) {
        Some(error) => Err(error.into()),
        None => Ok(run),
    }
}

/// The same up to where DDP raises, if it does in a step.
///
/// # Errors
/// When DDP raises before the first one's backward pass, or the plan cannot be run.
pub fn training_run_as_far(
    model: &Model,
    training: &Training,
) -> Result<TrainingRun, TrainingError> {
    training.options.check_names(model)?;
    let trained = training.trained(model)?;
    let alike = training.uneven.is_some() || training.devices > 1;
    let model = match alike {
        false => Some(Cow::Borrowed(&*trained)),
        true => trained.with_equal_passes(),
    };
    let model = &*model.ok_or(TrainingError::Together(
        "passes that use different parameters (\"unused\" of the model) are followed on ranks that \
         all do the same: without join() and replicas, please",
    ))?;
    let steps = match &training.uneven {
        Some(uneven) => uneven.most(training.world_size).saturating_add(1),
        None => training.steps,
    };
    let mut each = 4 * model.layers.len() as u64 + 4 * model.params.len() as u64 + 64;
    each += model.recorded_ready_order.as_ref().map_or(0, |order| order.len() as u64);
    if training.zero == Some(true) {
        // A broadcast of each rank's bucket, and the wait for it.
        each += 2 * u64::from(training.world_size);
    }
    if u64::from(steps).saturating_mul(each) > MAX_OPS {
        let layers = model.layers.len();
        return Err(TrainingError::TooLong { steps, layers });
    }
    verify_zero_overlap(&training.options, training.backend)?;
    training.options.check(training.world_size)?;
    verify_types(model, &training.options, training.backend)?;
    training.check_zero(model)?;
    if training.sync_batch_norm {
        verify_sync_batch_norm(model, training.backend)?;
    }
    if let Some(averager) = &training.averager {
        averager.check(training.world_size)?;
    }
    match &training.uneven {
        _ if training.devices > 1 => replicas::replicated_run(model, training),
        Some(uneven) => uneven::uneven_run(model, training, uneven),
        None => even_run(model, training),
    }
}

fn even_run(model: &Model, training: &Training) -> Result<TrainingRun, TrainingError> {
    let mut writer = Writer::new(model, training)?;
    let (ddp, calls) = Ddp::new(0, model, &training.options)?;
    let mut ddp = ddp.on(training.backend);
    writer.at(CONSTRUCTOR, "DistributedDataParallel");
    for call in &calls {
        writer.call(call, 0, false);
    }
    writer.read_back(&calls);
    let mut raised = None;
    for step in 0..training.steps {
        let backward = model.backward_in(step);
        let unused = unused(model, &backward);
        writer.skipped = model.skipped_in(step);
        let accumulate = training.accumulate.max(1);
        let sync = (step + 1) % accumulate == 0 || step + 1 == training.steps;
        let mut calls = Vec::new();
        let before = rebuilt(&ddp);
        let forward = Forward { sync, unused: &unused, ..Forward::default() };
        if let Err(error) = ddp.forward(&forward, &mut calls) {
            if step == 0 {
                return Err(error.into());
            }
            raised = Some(error);
            break;
        }
        writer.step(StepKind::Training, sync, rebuilt(&ddp) && !before, &ddp);
        writer.at(FORWARD, "DistributedDataParallel.forward");
        for call in &calls {
            writer.call(call, 0, false);
        }
        writer.read_back(&calls);
        writer.forward_pass();
        if let Err(error) = backward_pass(&mut writer, &mut ddp, &backward, Vec::new()) {
            writer.raises(Half::Backward);
            raised = Some(error);
            break;
        }
        if sync {
            writer.at(OPTIMIZER, "optimizer.step");
            writer.optimizer();
        }
    }
    let mut run = writer.finish()?;
    if let Some(role) = run.roles.first_mut() {
        role.raised = raised;
    }
    Ok(run)
}

fn rebuilt(ddp: &Ddp) -> bool {
    ddp.reducer().is_some_and(|reducer| reducer.has_rebuilt())
}

/// The layers in reverse, what their gradients launch, and the waits for it and for what was
/// `launched` before. Where a bucket is left over, the end of the pass waits for none: DDP then
/// raises in the forward pass that follows.
fn backward_pass(
    writer: &mut Writer<'_>,
    ddp: &mut Ddp,
    backward: &[(Option<usize>, Vec<u32>)],
    mut launched: Vec<u32>,
) -> Result<(), DdpError> {
    let phase = 1 + u32::from(rebuilt(ddp));
    writer.at(BACKWARD, "DistributedDataParallel.backward");
    writer.names.restart();
    let (mut first, mut passed) = (true, Ok(()));
    'layers: for (layer, ready) in backward {
        writer.backward_of(*layer);
        for &gradient in ready {
            let mut calls = Vec::new();
            passed = ddp.gradient(gradient, &mut calls);
            writer.gradient(gradient);
            if first {
                writer.marked(ddp.marked_unused());
                first = false;
            }
            launched.extend(calls.iter().map(|call| writer.call(call, phase, true)));
            if passed.is_err() {
                break 'layers;
            }
        }
        writer.launching = None;
    }
    writer.launching = None;
    let finalizes = passed.is_ok() && ddp.finalizes();
    if passed.is_ok() {
        let mut calls = Vec::new();
        passed = ddp.end_backward(&mut calls);
        launched.extend(calls.iter().map(|call| writer.call(call, phase, true)));
    }
    for op in launched.into_iter().filter(|_| finalizes) {
        writer.push(Action::Wait { op, timeout_ms: None });
    }
    passed
}

/// What a walk of the graph finds unused: the gradients that the backward pass does not make ready,
/// or that reentrant ones make ready inside it.
pub(super) fn unused(model: &Model, backward: &[(Option<usize>, Vec<u32>)]) -> Vec<u32> {
    let mut used = vec![false; model.trained().count()];
    for &gradient in backward.iter().flat_map(|(_, ready)| ready) {
        if let Some(used) = used.get_mut(gradient as usize) {
            *used = true;
        }
    }
    for &hidden in &model.reentrant {
        if let Some(used) = used.get_mut(hidden as usize) {
            *used = false;
        }
    }
    (0..).zip(used).filter(|(_, used)| !used).map(|(index, _)| index).collect()
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
