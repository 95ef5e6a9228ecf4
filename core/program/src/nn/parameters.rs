//! A model's parameters in a program's hands: `for p in model.parameters(): dist.all_reduce(p.grad)`. They
//! are tensors, which are made when something is done with them; a gradient is there once a backward
//! pass has been.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::values::TensorValue;
use crate::execute::process::{Process, process};
use crate::nn::ddp_model::{DdpValue, InnerValue};
use crate::nn::ddp_passes::{Wrapped, graded_of};
use crate::nn::models::ModelValue;
use crate::tensor::arithmetic::{parameter, parameter_of};
use allocative::Allocative;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::{Fill, TensorId};
use lockstep_torch::c10d::{Device, Tensor};
use lockstep_torch::ddp::model::Model;
use starlark::eval::Evaluator;
use starlark::starlark_simple_value;
use starlark::values::dict::DictRef;
use starlark::values::tuple::AllocTuple;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark_derive::starlark_value;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The result of `model.parameters()`.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct ParametersValue {
    #[allocative(skip)]
    of: Of,
    /// The prefix of the names, where they are named.
    #[allocative(skip)]
    named: Option<&'static str>,
    /// Whether it is the buffers that are gone through.
    buffers: bool,
}
starlark_simple_value!(ParametersValue);

/// The model of the parameters.
#[derive(Clone, Debug)]
pub(crate) struct Of {
    /// The model's number in the process.
    at: usize,
    model: Arc<Model>,
    device: Device,
    graded: Arc<AtomicBool>,
}

/// One of them.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) at: usize,
    pub(crate) index: usize,
    pub(crate) grad: bool,
    /// Whether it is a buffer, numbered behind the parameters.
    buffer: bool,
    graded: Arc<AtomicBool>,
}

impl fmt::Display for ParametersValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<generator object Module.parameters at 0xADDR>")
    }
}

#[starlark_value(type = "generator")]
impl<'v> StarlarkValue<'v> for ParametersValue {
    fn iterate_collect(&self, heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        let Of { at, model, device, graded } = &self.of;
        let made = |(index, name, dtype, shape): (usize, &str, Dtype, &[u64])| {
            let (buffer, graded) = (self.buffers, graded.clone());
            let this = Parameter { at: *at, index, grad: false, buffer, graded };
            let tensor = heap.alloc(TensorValue(parameter(this, dtype, shape, *device)));
            match self.named {
                Some(before) => {
                    let name = heap.alloc(format!("{before}{name}"));
                    heap.alloc(AllocTuple([name, tensor]))
                }
                None => tensor,
            }
        };
        if self.buffers {
            // They are numbered behind the parameters.
            let all = model.buffers.iter().zip(model.params.len()..);
            let all = all.map(|(own, at)| (at, own.name.as_str(), own.dtype, &own.shape[..]));
            return Ok(all.map(made).collect());
        }
        let all = model.params.iter().enumerate();
        let all = all.map(|(at, own)| (at, own.name.as_str(), own.dtype, &own.shape[..]));
        Ok(all.map(made).collect())
    }
}

/// `parameter.grad`: `None` before a backward pass, and of what is no parameter.
pub(crate) fn grad<'v>(of: &Tensor, heap: Heap<'v>) -> Value<'v> {
    let graded = |this: &Parameter| this.graded.load(Relaxed) && !this.buffer;
    let Some(this) = parameter_of(of).filter(graded) else {
        return Value::new_none();
    };
    let this = Parameter { grad: true, ..this };
    heap.alloc(TensorValue(parameter(this, of.dtype(), of.shape(), of.device())))
}

/// The number of a model in the process, which it gets where it is used without DDP.
pub(crate) fn number_of(model: Value<'_>, process: &mut Process<'_>) -> anyhow::Result<usize> {
    if let Some(ddp) = model.downcast_ref::<DdpValue>() {
        return Ok(ddp.0);
    }
    if let Some(inner) = model.downcast_ref::<InnerValue>() {
        return Ok(inner.0);
    }
    let model = model.downcast_ref::<ModelValue>();
    let ModelValue(model, shape) = model.ok_or_else(|| anyhow::anyhow!("this is no model"))?;
    let known = |own: &Wrapped| own.is_plain() && Arc::ptr_eq(&own.model(), model);
    if let Some(at) = process.modules.iter().position(known) {
        return Ok(at);
    }
    anyhow::ensure!(process.modules.len() < 1000, "a process has at most 1000 models");
    let graded = graded_of(&process.modules, model);
    process.modules.push(Wrapped::plain(model.clone(), shape.clone(), graded)?);
    Ok(process.modules.len() - 1)
}

/// `model.parameters()` and `named_parameters()`.
pub(crate) fn parameters(
    model_value: Value<'_>,
    named: bool,
    eval: &mut Evaluator<'_, '_, '_>,
) -> anyhow::Result<ParametersValue> {
    let process = process(eval)?;
    let at = number_of(model_value, process)?;
    let of = Of::numbered(at, process)?;
    let of_ddp = model_value.downcast_ref::<DdpValue>().is_some();
    let named = named.then_some(if of_ddp { "module." } else { "" });
    Ok(ParametersValue { of, named, buffers: false })
}

impl Of {
    /// Those of the process's model of that number.
    pub(crate) fn numbered(at: usize, process: &mut Process<'_>) -> anyhow::Result<Of> {
        let wrapped =
            process.modules.get(at).ok_or_else(|| anyhow::anyhow!("there is no model"))?;
        let (model, graded) = (wrapped.model(), wrapped.graded());
        let group = wrapped.group();
        // With DDP and without it they are the same tensors.
        let same = process.modules.iter().position(|own| Arc::ptr_eq(&own.model(), &model));
        let at = same.unwrap_or(at);
        let device = match process.dist()?.get_backend_config(group) {
            Ok(config) if config.contains("nccl") => Device::Cuda,
            _ => Device::Cpu,
        };
        Ok(Of { at, model, device, graded })
    }

    /// The parameter or buffer of that name.
    pub(crate) fn tensor<'v>(&self, name: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        let params = self.model.params.iter().position(|own| own.name == name);
        let found = params.and_then(|at| {
            let own = self.model.params.get(at)?;
            Some((at, false, own.dtype, &own.shape[..]))
        });
        let (index, buffer, dtype, shape) = found.or_else(|| {
            let at = self.model.buffers.iter().position(|own| own.name == name)?;
            let own = self.model.buffers.get(at)?;
            Some((self.model.params.len() + at, true, own.dtype, &own.shape[..]))
        })?;
        let graded = self.graded.clone();
        let this = Parameter { at: self.at, index, grad: false, buffer, graded };
        Some(heap.alloc(TensorValue(parameter(this, dtype, shape, self.device))))
    }

    /// Whether the names of some of them begin so.
    pub(crate) fn has_below(&self, front: &str) -> bool {
        let params = self.model.params.iter().map(|own| &own.name);
        let mut all = params.chain(self.model.buffers.iter().map(|own| &own.name));
        all.any(|name| name.starts_with(front))
    }
}

impl ParametersValue {
    /// The buffers of the same model.
    pub(crate) fn buffers(self) -> ParametersValue {
        ParametersValue { buffers: true, ..self }
    }
}

/// The device of parameters.
pub(crate) fn device_of(of: Value<'_>) -> Device {
    if let Some(own) = of.downcast_ref::<ParametersValue>() {
        return own.of.device;
    }
    let first = crate::dist::arguments::items(of).and_then(|items| items.first().copied());
    let first = first.unwrap_or(of).downcast_ref::<TensorValue>();
    first.map_or(Device::Cpu, |tensor| tensor.0.device())
}

/// The bytes of the parameters that an optimizer was given.
pub(crate) fn bytes(of: Value<'_>) -> u64 {
    if let Some(own) = of.downcast_ref::<ParametersValue>() {
        return own.of.model.param_bytes();
    }
    let items = crate::dist::arguments::items(of).unwrap_or_default();
    let tensors = items.into_iter().filter_map(|item| item.downcast_ref::<TensorValue>());
    tensors.map(|tensor| tensor.0.numel() * tensor.0.dtype().size_bytes()).sum()
}

/// The models that an optimizer's parameters are of: a model's own, a list of parameters, or a list of groups
/// (`[{"params": …}]`).
pub(crate) fn models_of(of: Value<'_>, process: &Process<'_>) -> Vec<Arc<Model>> {
    let at = |at: usize| process.modules.get(at).map(Wrapped::model);
    if let Some(ddp) = of.downcast_ref::<DdpValue>() {
        return at(ddp.0).into_iter().collect();
    }
    if let Some(ModelValue(model, _)) = of.downcast_ref::<ModelValue>() {
        return vec![model.clone()];
    }
    if let Some(own) = of.downcast_ref::<ParametersValue>() {
        return vec![own.of.model.clone()];
    }
    let mut models: Vec<Arc<Model>> = Vec::new();
    for item in crate::dist::arguments::items(of).unwrap_or_default() {
        let group = DictRef::from_value(item).and_then(|group| group.get_str("params"));
        let found = match (group, item.downcast_ref::<TensorValue>()) {
            (Some(params), _) => models_of(params, process),
            (None, Some(tensor)) => {
                let parameter = parameter_of(&tensor.0);
                parameter.and_then(|own| at(own.at)).into_iter().collect()
            }
            (None, None) => Vec::new(),
        };
        for model in found {
            if !models.iter().any(|known| Arc::ptr_eq(known, &model)) {
                models.push(model);
            }
        }
    }
    models
}

/// A parameter, or its gradient, as a tensor of the plan: the same one each time.
pub(crate) fn made(
    process: &mut Process<'_>,
    like: &Tensor,
    this: &Parameter,
) -> anyhow::Result<TensorId> {
    let key = (this.index, this.grad);
    let own = process.modules.get(this.at).ok_or_else(|| anyhow::anyhow!("there is no model"))?;
    if let Some(known) = own.parameters.get(&key) {
        return Ok(*known);
    }
    let model = own.model();
    let param = model.params.get(this.index).map(|param| param.name.clone());
    let buffer = this.index.checked_sub(model.params.len()).and_then(|at| model.buffers.get(at));
    let name = param.or_else(|| Some(buffer?.name.clone()));
    let name = name.unwrap_or_default() + if this.grad { ".grad" } else { "" };
    // What is in buffers is not followed.
    let fill = if this.buffer { Fill::Unknown } else { Fill::Seeded { seed: 0 } };
    process.random |= !this.buffer;
    let dist = process.dist()?;
    let tensor = dist.tensor_on(like.device(), &name, like.dtype(), like.shape(), fill);
    let id = tensor.storage();
    if let Some(own) = process.modules.get_mut(this.at) {
        own.parameters.insert(key, id);
    }
    Ok(id)
}
