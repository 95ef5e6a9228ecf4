//! A model's parameters in a program's hands: `for p in model.parameters(): dist.all_reduce(p.grad)`. They
//! are tensors, which are made when something is done with them; a gradient is there once a backward
//! pass has been.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::values::TensorValue;
use crate::nn::modules::{Module, tensors};
use crate::nn::parameter::{Kind, Parameter, parameter_of};
use crate::process::state::{Process, process};
use crate::tensor::deferred::parameter;
use crate::tensor::value::tensor;
use allocative::Allocative;
use lockstep_core::plan::{Fill, TensorId};
use lockstep_torch::c10d::{Device, Tensor};
use starlark::eval::Evaluator;
use starlark::starlark_simple_value;
use starlark::values::dict::DictRef;
use starlark::values::tuple::{AllocTuple, TupleRef};
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark_derive::starlark_value;
use std::fmt;

/// The result of `model.parameters()` and its like.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct ParametersValue {
    #[allocative(skip)]
    all: Vec<(String, Parameter)>,
    /// True if the iterator yields their names with them.
    named: bool,
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
        let each = self.all.iter().map(|(name, own)| match self.named {
            true => heap.alloc(AllocTuple([heap.alloc(name.as_str()), tensor_of(own, heap)])),
            false => tensor_of(own, heap),
        });
        Ok(each.collect())
    }
}

/// A parameter as a tensor of the program.
pub(crate) fn tensor_of<'v>(own: &Parameter, heap: Heap<'v>) -> Value<'v> {
    heap.alloc(TensorValue(parameter(own.clone(), own.device())))
}

/// `tensor.grad`: `None` before a backward pass, and for a tensor that requires no grad.
pub(crate) fn grad<'v>(of: &Tensor, heap: Heap<'v>) -> Value<'v> {
    match parameter_of(of).filter(|own| own.has_grad() && own.kind() != Kind::Buffer) {
        Some(own) => heap.alloc(TensorValue(parameter(own.gradient(), of.device()))),
        None => Value::new_none(),
    }
}

/// `tensor.grad = value`: only whether there is one is followed.
pub(crate) fn set_grad(of: &Tensor, value: Value<'_>) {
    if let Some(own) = parameter_of(of) {
        own.set_grad(!value.is_none());
    }
}

/// True if a value is an `nn.Parameter`.
pub(crate) fn is_parameter(value: Value<'_>) -> bool {
    let own = tensor(value).ok().and_then(parameter_of);
    own.is_some_and(|own| own.kind() == Kind::Parameter && !own.grad)
}

/// A tensor of the program as a parameter or buffer of its own.
pub(crate) fn own<'v>(
    data: Value<'v>,
    kind: Kind,
    requires_grad: bool,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<TensorValue> {
    let data = tensor(data)?;
    let name = process(eval)?.assigned_name().unwrap_or_else(|| "parameter".to_owned());
    let own = Parameter::new(&name, kind, data.dtype(), data.shape());
    if kind == Kind::Buffer {
        own.is(data);
        return Ok(TensorValue(data.clone()));
    }
    own.train(requires_grad);
    Ok(TensorValue(parameter(own.clone(), own.device())))
}

impl ParametersValue {
    /// `named` is the prefix of their names, where they have some. Of the module alone, or of all in it.
    ///
    /// # Errors
    /// A model that is too large, or holds itself.
    pub(crate) fn of(
        model: Value<'_>,
        kind: Kind,
        named: Option<&str>,
        recurse: bool,
    ) -> anyhow::Result<ParametersValue> {
        let mut all = tensors(model, kind)?;
        if !recurse {
            all.retain(|(name, _)| !name.contains('.'));
        }
        if let Some(prefix) = named.filter(|prefix| !prefix.is_empty()) {
            all.iter_mut().for_each(|(name, _)| *name = format!("{prefix}.{name}"));
        }
        Ok(ParametersValue { all, named: named.is_some() })
    }
}

/// The device of parameters.
pub(crate) fn device_of(of: Value<'_>) -> Device {
    all_of(of).first().map_or(Device::Cpu, Parameter::device)
}

/// The parameters that an optimizer is given: a model's own, a list of parameters, or a list of groups
/// (`[{"params": …}]`).
pub(crate) fn all_of(of: Value<'_>) -> Vec<Parameter> {
    if let Some(own) = of.downcast_ref::<ParametersValue>() {
        return own.all.iter().map(|(_, own)| own.clone()).collect();
    }
    if Module::of(of).is_some() {
        let all = tensors(of, Kind::Parameter).unwrap_or_default();
        return all.into_iter().map(|(_, own)| own).collect();
    }
    if let Some(tensor) = of.downcast_ref::<TensorValue>() {
        return parameter_of(&tensor.0).into_iter().collect();
    }
    if let Some(group) = DictRef::from_value(of) {
        return group.get_str("params").map(all_of).unwrap_or_default();
    }
    if let Some(&[name, value]) = TupleRef::from_value(of).map(TupleRef::content)
        && name.unpack_str().is_some()
    {
        return all_of(value);
    }
    let items = crate::dist::arguments::items(of).unwrap_or_default();
    items.into_iter().flat_map(all_of).collect()
}

/// A parameter, or its gradient, as a tensor of the plan: the same one each time.
pub(crate) fn made(
    process: &mut Process<'_>,
    like: &Tensor,
    this: &Parameter,
) -> anyhow::Result<TensorId> {
    let key = (this.number(), this.grad);
    if let Some(known) = process.parameters.get(&key) {
        return Ok(*known);
    }
    let name = this.name().to_owned() + if this.grad { ".grad" } else { "" };
    // The values of buffers are not followed.
    let buffer = this.kind() == Kind::Buffer;
    let fill = if buffer { Fill::Unknown } else { Fill::Seeded { seed: 0 } };
    process.random |= !buffer;
    let dist = process.dist()?;
    let tensor = dist.tensor_on(like.device(), &name, like.dtype(), like.shape(), fill);
    let id = tensor.storage();
    process.parameters.insert(key, id);
    Ok(id)
}
