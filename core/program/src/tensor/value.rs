//! Tensors in a program's hands: only their shape is known.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::python::type_error::{class_of, type_error};
use allocative::Allocative;
use lockstep_torch::c10d;
use starlark::starlark_simple_value;
use starlark::values::{NoSerialize, ProvidesStaticType, StarlarkPagablePanic, Value, ValueLike};
use std::fmt;

/// A tensor of this rank.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct TensorValue(#[allocative(skip)] pub(crate) c10d::Tensor);
starlark_simple_value!(TensorValue);

impl fmt::Display for TensorValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.0.shape().iter().map(u64::to_string).collect();
        write!(f, "tensor(shape=[{}], dtype=torch.{})", sizes.join(", "), self.0.dtype())
    }
}

/// The tensor that a method is called on.
pub(crate) fn tensor<'v>(this: Value<'v>) -> anyhow::Result<&'v c10d::Tensor> {
    let value = this.downcast_ref::<TensorValue>().map(|value| &value.0);
    value.ok_or_else(|| anyhow::anyhow!("{} is no tensor", class_of(this)))
}

/// The tensor that a value is, if it is one.
pub(crate) fn tensor_in<'v>(value: Value<'v>) -> Option<&'v c10d::Tensor> {
    value.downcast_ref::<TensorValue>().map(|value| &value.0)
}

/// The tensor of an argument.
pub(crate) fn like<'v>(value: Value<'v>) -> anyhow::Result<c10d::Tensor> {
    let tensor = value.downcast_ref::<TensorValue>().map(|tensor| tensor.0.clone());
    tensor.ok_or_else(|| type_error(format!("{} is no tensor", class_of(value))))
}
