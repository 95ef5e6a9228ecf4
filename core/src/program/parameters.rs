//! A model's parameters in a program's hands: `for p in model.parameters(): dist.all_reduce(p.grad)`. They
//! are tensors, which are made when something is done with them; a gradient is there once a backward
//! pass has been.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use super::models::ModelValue;
use super::module::{Wrapped, graded_of};
use super::module_value::{DdpValue, InnerValue};
use super::process::{Process, process};
use super::tensor_math::{parameter, parameter_of};
use super::values::TensorValue;
use crate::c10d::{Device, Tensor};
use crate::ddp::model::Model;
use crate::plan::{Fill, TensorId};
use allocative::Allocative;
use starlark::eval::Evaluator;
use starlark::starlark_simple_value;
use starlark::values::tuple::AllocTuple;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark_derive::starlark_value;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// What `model.parameters()` returns.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct ParametersValue {
    #[allocative(skip)]
    of: Of,
    /// What stands before the names, where they are named.
    #[allocative(skip)]
    named: Option<&'static str>,
}
starlark_simple_value!(ParametersValue);

/// Whose parameters they are.
#[derive(Clone, Debug)]
pub(super) struct Of {
    /// The model's number in the process.
    at: usize,
    model: Arc<Model>,
    device: Device,
    graded: Arc<AtomicBool>,
}

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Parameter {
    pub(super) at: usize,
    pub(super) index: usize,
    pub(super) grad: bool,
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
        let made = model.params.iter().enumerate().map(|(index, param)| {
            let this = Parameter { at: *at, index, grad: false, graded: graded.clone() };
            let tensor = parameter(this, param.dtype, &param.shape, *device);
            let tensor = heap.alloc(TensorValue(tensor));
            match self.named {
                Some(before) => {
                    let name = heap.alloc(format!("{before}{}", param.name));
                    heap.alloc(AllocTuple([name, tensor]))
                }
                None => tensor,
            }
        });
        Ok(made.collect())
    }
}

/// `parameter.grad`: `None` before a backward pass, and of what is no parameter.
pub(super) fn grad<'v>(of: &Tensor, heap: Heap<'v>) -> Value<'v> {
    let Some(this) = parameter_of(of).filter(|this| this.graded.load(Relaxed)) else {
        return Value::new_none();
    };
    let this = Parameter { grad: true, ..this };
    heap.alloc(TensorValue(parameter(this, of.dtype(), of.shape(), of.device())))
}

/// The number of a model in the process, which it gets where it is used without DDP.
pub(super) fn number_of(model: Value<'_>, process: &mut Process<'_>) -> anyhow::Result<usize> {
    if let Some(DdpValue(at, _)) = model.downcast_ref::<DdpValue>() {
        return Ok(*at);
    }
    if let Some(InnerValue(at)) = model.downcast_ref::<InnerValue>() {
        return Ok(*at);
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
pub(super) fn parameters(
    model_value: Value<'_>,
    named: bool,
    eval: &mut Evaluator<'_, '_, '_>,
) -> anyhow::Result<ParametersValue> {
    let process = process(eval)?;
    let at = number_of(model_value, process)?;
    let wrapped = process.modules.get(at).ok_or_else(|| anyhow::anyhow!("there is no model"))?;
    let (model, graded) = (wrapped.model(), wrapped.graded());
    let group = wrapped.group();
    // With DDP and without it they are the same tensors.
    let same = process.modules.iter().position(|own| Arc::ptr_eq(&own.model(), &model));
    let at = same.unwrap_or(at);
    let device = match process.dist()?.get_backend_config(group) {
        Ok(config) if config.contains("nccl") => Device::Cuda,
        _ => Device::Cpu,
    };
    let of_ddp = model_value.downcast_ref::<DdpValue>().is_some();
    let named = named.then_some(if of_ddp { "module." } else { "" });
    Ok(ParametersValue { of: Of { at, model, device, graded }, named })
}

/// Where parameters are.
pub(super) fn device_of(of: Value<'_>) -> Device {
    if let Some(own) = of.downcast_ref::<ParametersValue>() {
        return own.of.device;
    }
    let first = super::arguments::items(of).and_then(|items| items.first().copied());
    let first = first.unwrap_or(of).downcast_ref::<TensorValue>();
    first.map_or(Device::Cpu, |tensor| tensor.0.device())
}

/// The bytes of the parameters that an optimizer was given.
pub(super) fn bytes(of: Value<'_>) -> u64 {
    if let Some(own) = of.downcast_ref::<ParametersValue>() {
        return own.of.model.param_bytes();
    }
    let items = super::arguments::items(of).unwrap_or_default();
    let tensors = items.into_iter().filter_map(|item| item.downcast_ref::<TensorValue>());
    tensors.map(|tensor| tensor.0.numel() * tensor.0.dtype().size_bytes()).sum()
}

/// A parameter, or its gradient, as a tensor of the plan: the same one each time.
pub(super) fn made(
    process: &mut Process<'_>,
    like: &Tensor,
    this: &Parameter,
) -> anyhow::Result<TensorId> {
    let key = (this.index, this.grad);
    let own = process.modules.get(this.at).ok_or_else(|| anyhow::anyhow!("there is no model"))?;
    if let Some(known) = own.parameters.get(&key) {
        return Ok(*known);
    }
    let param = own.model().params.get(this.index).map(|param| param.name.clone());
    let name = param.unwrap_or_default() + if this.grad { ".grad" } else { "" };
    let fill = Fill::Seeded { seed: 0 };
    process.random = true;
    let dist = process.dist()?;
    let tensor = dist.tensor_on(like.device(), &name, like.dtype(), like.shape(), fill);
    let id = tensor.storage();
    if let Some(own) = process.modules.get_mut(this.at) {
        own.parameters.insert(key, id);
    }
    Ok(id)
}
