//! Programs as they are written, operation by operation, with a note on each.

use super::names::Names;
use super::script::script;
use super::subgroups::Subgroups;
use super::training::{Training, TrainingError};
use crate::ddp::call::{DdpCall, DdpOp, Purpose};
use crate::ddp::model::{Cost, Model};
use crate::ddp::notes::{
    CallNote, GradientNote, Half, LayerNote, Role, StepKind, StepNotes, TrainingRun,
};
use crate::ddp::wrapper::Ddp;
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::{Action, Call, Fill, Op, Plan, PlanError, SourceLine, Tensor, TensorId};
use lockstep_core::rank::GroupRank;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Programs that are being written: one, or one per subgroup where a hook uses subgroups.
pub(super) struct Writer<'a> {
    pub(super) model: &'a Model,
    pub(super) training: &'a Training,
    pub(super) plan: Plan,
    ops: Vec<Op>,
    at: Option<SourceLine>,
    via: Option<Arc<str>>,
    /// Per name and type, a tensor.
    tensors: BTreeMap<(String, &'static str, u64), TensorId>,
    subgroups: Subgroups,
    pub(super) names: Names,
    /// Steps of the optimizer.
    pub(super) optimized: u64,
    steps: Vec<StepNotes>,
    /// Per layer, whether the pass does not run it; none are where it is empty.
    pub(super) skipped: Vec<bool>,
    /// The gradient that launches the calls that are written now, and the pass that made it.
    pub(super) launching: Option<u32>,
    computed: Option<u32>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(model: &'a Model, training: &'a Training) -> Result<Writer<'a>, PlanError> {
        let world_size = training.world_size;
        if world_size > lockstep_core::rank::MAX_WORLD_SIZE {
            return Err(PlanError::WorldTooLarge(world_size));
        }
        let world =
            ProcessGroup::world(world_size, training.backend).map_err(|_| PlanError::EmptyWorld)?;
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
            callers: Vec::new(),
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
            skipped: Vec::new(),
            launching: None,
            computed: None,
        })
    }

    /// Another step begins.
    pub(super) fn step(&mut self, kind: StepKind, sync: bool, rebuilds: bool, ddp: &Ddp) {
        let (first_op, buckets) = (self.ops.len() as u32, ddp.buckets());
        let unused_parameter_size =
            ddp.reducer().and_then(|reducer| reducer.unused_parameter_size());
        let notes = StepNotes {
            first_op,
            kind,
            sync,
            rebuilds,
            buckets,
            unused_parameter_size,
            ..StepNotes::default()
        };
        self.steps.push(notes);
        self.computed = None;
    }

    /// A gradient is ready; the next calls are made because of it.
    pub(super) fn gradient(&mut self, param: u32) {
        let after = self.computed;
        if let Some(step) = self.steps.last_mut() {
            self.launching = Some(step.gradients.len() as u32);
            step.gradients.push(GradientNote { param, after });
        }
    }

    /// The reducer has marked parameters ready that nothing uses.
    pub(super) fn marked(&mut self, marked: Vec<u32>) {
        if let Some(step) = self.steps.last_mut().filter(|step| step.sync) {
            step.marked = marked;
        }
    }

    /// The step raises, and the program ends there.
    pub(super) fn raises(&mut self, half: Half) {
        if let Some(step) = self.steps.last_mut() {
            step.raises = Some(half);
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

    pub(super) fn at(&mut self, line: u32, via: &str) {
        self.at = Some(SourceLine { source: 0, line });
        self.via = Some(via.into());
    }

    pub(super) fn push(&mut self, action: Action) -> u32 {
        self.ops.push(Op { via: self.via.clone(), ..Op::new(action, self.at) });
        self.ops.len() as u32 - 1
    }

    pub(super) fn compute(&mut self, name: String, duration_ns: u64) {
        let via = self.via.take();
        self.push(Action::Compute { name: name.into(), duration_ns });
        self.via = via;
    }

    /// A call of DDP; `phase` distinguishes the buckets before the rebuild from those after.
    pub(super) fn call(&mut self, call: &DdpCall, phase: u32, async_op: bool) -> u32 {
        if let Some(size) = call.subgroup {
            self.subgroups.made_in(self.ops.len(), size, self.training.world_size);
        }
        self.call_in(GroupId::WORLD, call, phase, async_op)
    }

    /// A call in a group of the plan.
    pub(super) fn call_in(
        &mut self,
        group: GroupId,
        call: &DdpCall,
        phase: u32,
        async_op: bool,
    ) -> u32 {
        let (op, launched_by) = (self.ops.len() as u32, self.launching);
        if let Some(step) = self.steps.last_mut() {
            step.calls.push(CallNote { op, call: *call, launched_by });
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
            let size = self.plan.group(group).map_or(1, |group| group.size());
            let all = call.numel.saturating_mul(u64::from(size));
            input = Some(tensor);
            output = Some(self.tensor(&format!("{name}, gathered"), call.dtype, all, Fill::Zeros));
        }
        let call = Call::Collective {
            group,
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
        self.push(Action::call(call, async_op))
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

    /// Holds the process until its streams are empty, where it reads results of those calls itself:
    /// the number and shapes of parameters, and rank 0's buckets (a copy from device to host).
    pub(super) fn read_back(&mut self, calls: &[DdpCall]) {
        let read =
            |call: &DdpCall| matches!(call.purpose, Purpose::ParamShapes | Purpose::RebuiltSizes);
        if calls.iter().any(read) {
            self.read();
        }
    }

    /// The process reads a result: it waits until its device's streams are empty.
    pub(super) fn read(&mut self) {
        if self.training.backend == BackendName::Nccl {
            self.push(Action::Synchronize);
        }
    }

    /// The operations that have been written of one program, and its notes; another one may follow.
    pub(super) fn take(&mut self) -> (Vec<Op>, Vec<StepNotes>) {
        self.names = Names::default();
        (self.optimized, self.launching, self.computed) = (0, None, None);
        (std::mem::take(&mut self.ops), std::mem::take(&mut self.steps))
    }

    fn dtype_of(&self, layer: usize) -> Dtype {
        let param = self.model.layers.get(layer).and_then(|layer| layer.params.first());
        let param = param.and_then(|index| self.model.params.get(*index as usize));
        let param = param.or(self.model.params.first());
        let own = param.map_or(Dtype::Float32, |param| param.dtype);
        let mixed = self.training.options.mixed_precision.and_then(|mixed| mixed.param_dtype);
        if own.is_float() { mixed.unwrap_or(own) } else { own }
    }

    /// The cost of a layer in the type that it is computed in: mixed precision casts its parameters
    /// and inputs.
    fn cost_of(&self, layer: usize, dtype: Dtype) -> Cost {
        let Some(of) = self.model.layers.get(layer) else { return Cost::default() };
        let own = of.params.first().and_then(|index| self.model.params.get(*index as usize));
        let own = own.map_or(dtype, |param| param.dtype);
        let cast = |bytes: u64| match own.is_float() && own != dtype {
            true => bytes / own.size_bytes().max(1) * dtype.size_bytes(),
            false => bytes,
        };
        Cost {
            activation_bytes: cast(of.cost.activation_bytes),
            weight_bytes: cast(of.cost.weight_bytes),
            ..of.cost
        }
    }

    fn skips(&self, layer: usize) -> bool {
        self.skipped.get(layer).copied().unwrap_or(false)
    }

    pub(super) fn forward_pass(&mut self) {
        for (index, layer) in self.model.layers.iter().enumerate() {
            if self.skips(index) {
                continue;
            }
            let dtype = self.dtype_of(index);
            let cost = self.cost_of(index, dtype);
            let ns = self.training.device.forward_ns(&cost, dtype, self.training.batch);
            self.pass(index, true, ns);
            self.sync_batch_norm(&layer.name, true);
        }
    }

    pub(super) fn backward_of(&mut self, layer: Option<usize>) {
        let Some(index) = layer.filter(|index| !self.skips(*index)) else { return };
        let Some(of) = self.model.layers.get(index) else { return };
        let dtype = self.dtype_of(index);
        let cost = self.cost_of(index, dtype);
        let ns = self.training.device.backward_ns(&cost, dtype, self.training.batch);
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

    /// A plan of one program, or of one for each set of subgroups.
    pub(super) fn finish(mut self) -> Result<TrainingRun, TrainingError> {
        let (ops, steps) = self.take();
        self.subgroups.programs(ops, &mut self.plan)?;
        self.plan.check()?;
        let roles = vec![Role { rank: 0, steps, raised: None }];
        Ok(TrainingRun { plan: self.plan, roles, role_of: Vec::new() })
    }
}
