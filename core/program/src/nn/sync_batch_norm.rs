//! `nn.SyncBatchNorm`: a batch norm whose statistics are those of all ranks of a group
//! (`torch/nn/modules/_functions.py`).

use crate::dist::arguments as take;
use crate::nn::batch_norm::batch_norm;
use crate::nn::layer_class::LayerClass;
use crate::nn::module_arguments::{Given, Rest};
use crate::nn::modules::{LayerValue, Module, SyncedOver, modules};
use crate::nn::state::BackwardCall;
use crate::process::raised::{raised, refused};
use crate::process::state::Process;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::Fill;
use lockstep_torch::c10d::{Device, Group, InGroup, Tensor};
use lockstep_torch::ddp::model::Layer;
use starlark::environment::GlobalsBuilder;
use starlark::eval::{Arguments, Evaluator};
use starlark::values::{Heap, Value};

/// Adds `nn.SyncBatchNorm`, with its class method.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    let class = LayerClass::new("SyncBatchNorm", new);
    builder.set("SyncBatchNorm", class.with_method("convert_sync_batchnorm", converted));
}

/// `SyncBatchNorm(num_features, eps, momentum, affine, track_running_stats, process_group)`.
fn new<'v>(_name: &'static str, args: &Rest<'_, 'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    let group = args.get("process_group", 5).map_or(Ok(None), take::group)?;
    let norm = batch_norm("BatchNorm", args, heap)?;
    if let Some(Module::Layer(layer)) = Module::of(norm) {
        layer.synced.set(Some(SyncedOver(group)));
    }
    Ok(norm)
}

/// `convert_sync_batchnorm(module, process_group=None)`: all batch norms in a module.
fn converted<'v>(
    _name: &'static str,
    args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    let native = starlark::Error::new_native;
    let heap = eval.heap();
    let given = Given::of(args, heap)?;
    let args = given.rest();
    let module = args.get("module", 0).unwrap_or_else(Value::new_none);
    if Module::of(module).is_none() {
        let class = crate::python::type_error::class_of(module);
        return Err(native(crate::nn::modules::no_attribute(class, "named_children")));
    }
    let group = args.get("process_group", 1).map_or(Ok(None), take::group).map_err(native)?;
    for (_, part) in modules(module).map_err(native)? {
        if let Some(Module::Layer(layer)) = Module::of(part) {
            layer.synced.set(Some(SyncedOver(group)));
        }
    }
    Ok(crate::nn::modules::whole(module, heap))
}

/// True if a module holds batch norms that share their statistics.
pub(crate) fn any_in(module: Value<'_>) -> anyhow::Result<bool> {
    let all = modules(module)?;
    let mut layers = all.iter().filter_map(|(_, part)| match Module::of(*part) {
        Some(Module::Layer(layer)) if layer.synced.get().is_some() => Some(layer),
        _ => None,
    });
    Ok(layers.any(|layer| layer.layers.iter().any(|part| is_batch_norm(layer, part))))
}

/// True if a part of a module is a batch norm.
fn is_batch_norm(layer: &LayerValue, part: &Layer) -> bool {
    layer.is_batch_norm() || channels(layer, part).is_some()
}

/// The channels of a batch norm, by its running statistics.
fn channels(layer: &LayerValue, part: &Layer) -> Option<u64> {
    let name = format!("{}.running_mean", part.name);
    let buffers = layer.buffers.try_borrow().ok()?;
    let own = buffers.iter().find(|(known, _)| known == name.trim_start_matches('.'));
    own.and_then(|(_, mean)| mean.shape().first().copied())
}

/// The statistics that a batch norm shares with the other ranks in a pass.
pub(crate) struct Statistics {
    channels: u64,
    dtype: Dtype,
    device: Device,
    group: Option<Group>,
    ranks: u64,
}

impl Statistics {
    /// Those of a part of a module in a pass with that input; `None` if it shares none: it is no such norm, is not
    /// trained, or is alone.
    ///
    /// # Errors
    /// The norm is on the CPU.
    pub(crate) fn of(
        layer: &LayerValue,
        part: &Layer,
        input: Option<&Tensor>,
        dtype: Dtype,
        like: &Tensor,
        process: &mut Process<'_>,
    ) -> anyhow::Result<Option<Statistics>> {
        let Some(SyncedOver(group)) = layer.synced.get().filter(|_| layer.training.get()) else {
            return Ok(None);
        };
        if !is_batch_norm(layer, part) || !process.is_rank() || !process.dist()?.is_initialized() {
            return Ok(None);
        }
        let device = like.device();
        if device != Device::Cuda {
            return Err(raised(
                "ValueError: SyncBatchNorm expected input tensor to be on GPU or XPU or \
                 privateuseone",
            ));
        }
        let ranks = process.dist()?.get_world_size(group).map_err(refused)?;
        let of_input = || input.and_then(|input| input.shape().get(1).copied());
        let channels = channels(layer, part).or_else(of_input).ok_or_else(|| {
            anyhow::anyhow!(
                "the channels of a SyncBatchNorm without running statistics are not known here"
            )
        })?;
        let dtype = if dtype == Dtype::Float64 { dtype } else { Dtype::Float32 };
        let ranks = u64::try_from(ranks).unwrap_or_default();
        Ok((ranks > 1).then_some(Statistics { channels, dtype, device, group, ranks }))
    }

    /// The forward pass gathers mean, deviation and count of all ranks.
    pub(crate) fn gather(&self, process: &mut Process<'_>) -> anyhow::Result<()> {
        let numel = self.channels.saturating_mul(2).saturating_add(1);
        let own = self.tensor("batch statistics", 0, numel, process)?;
        let Statistics { group, ranks, .. } = *self;
        let options = InGroup { group, async_op: false };
        let gloo = process.dist()?.get_backend(group).map_err(refused)? == "gloo";
        let gathered = match gloo {
            true => {
                let part = |rank| self.tensor("batch statistics of a rank", rank, numel, process);
                let parts = (0..ranks).map(part).collect::<anyhow::Result<Vec<Tensor>>>()?;
                process.dist()?.part_of(Some(FORWARD)).all_gather(parts, &own, options)
            }
            false => {
                let all = numel.saturating_mul(ranks);
                let all = self.tensor("batch statistics of all ranks", 0, all, process)?;
                let dist = process.dist()?.part_of(Some(FORWARD));
                dist.all_gather_into_tensor(&all, &own, options)
            }
        };
        process.dist()?.part_of(None);
        gathered.map_err(refused)?;
        Ok(())
    }

    /// The number of the call in which the backward pass sums up two numbers a channel.
    pub(crate) fn summed_in_backward(&self, process: &mut Process<'_>) -> anyhow::Result<u32> {
        let numel = self.channels.saturating_mul(2);
        let tensor = self.tensor("batch norm gradients", 0, numel, process)?;
        let call = BackwardCall { tensor, group: self.group, via: BACKWARD };
        let calls = &mut process.forward.backward_calls;
        let known = calls.iter().position(|known| *known == call);
        let at = known.unwrap_or_else(|| {
            calls.push(call);
            calls.len() - 1
        });
        Ok(u32::try_from(at)?)
    }

    /// A tensor of a call; the same in every step.
    fn tensor(
        &self,
        name: &'static str,
        of_rank: u64,
        numel: u64,
        process: &mut Process<'_>,
    ) -> anyhow::Result<Tensor> {
        let key = (name, of_rank, self.dtype, numel);
        if let Some(known) = process.forward.statistics.get(&key) {
            return Ok(known.clone());
        }
        let made = process.dist()?.tensor_on(self.device, name, self.dtype, numel, Fill::Zeros);
        process.forward.statistics.insert(key, made.clone());
        Ok(made)
    }
}

const FORWARD: &str = "SyncBatchNorm.forward";
const BACKWARD: &str = "SyncBatchNorm backward";
