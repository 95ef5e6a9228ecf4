//! A model's parameters in a program's hands: `for p in model.parameters(): dist.all_reduce(p.grad)`. They
//! are tensors, which are made when something is done with them; a gradient is there once a backward
//! pass has been.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::values::TensorValue;
use crate::nn::model_values::{DdpValue, ModelValue, Of, number_of};
use crate::nn::parameter::Parameter;
use crate::nn::state::Wrapped;
use crate::process::state::{Process, process};
use crate::tensor::deferred::{parameter, parameter_of};
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
use std::sync::atomic::Ordering::Relaxed;

/// The result of `model.parameters()`.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct ParametersValue {
    #[allocative(skip)]
    of: Of,
    /// The prefix of the names, where they are named.
    #[allocative(skip)]
    named: Option<&'static str>,
    /// True if the iterator yields buffers instead of parameters.
    buffers: bool,
}
starlark_simple_value!(ParametersValue);

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

/// `parameter.grad`: `None` before a backward pass, and for a tensor that is not a parameter.
pub(crate) fn grad<'v>(of: &Tensor, heap: Heap<'v>) -> Value<'v> {
    let graded = |this: &Parameter| this.graded.load(Relaxed) && !this.buffer;
    let Some(this) = parameter_of(of).filter(graded) else {
        return Value::new_none();
    };
    let this = Parameter { grad: true, ..this };
    heap.alloc(TensorValue(parameter(this, of.dtype(), of.shape(), of.device())))
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
    // The values of buffers are not followed.
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
