//! The output of a model: a tensor whose values are not known, and which remembers the forward pass
//! that it comes of. Where its shape is not known either, it is an [`OutputValue`], of which a
//! loss, a sum or a `reshape` makes a tensor.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::values::TensorValue;
use crate::process::undecided::{Decided, Unknown, UnknownValue};
use crate::tensor::graph;
use allocative::Allocative;
use lockstep_core::dtype::Dtype;
use lockstep_torch::autograd::Node;
use lockstep_torch::c10d::Tensor;
use starlark::starlark_simple_value;
use starlark::values::{NoSerialize, ProvidesStaticType, StarlarkPagablePanic, Value, ValueLike};
use std::fmt;
use std::sync::Arc;

/// The output of a model, of a shape that is not known.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct OutputValue {
    /// A tensor of its type, on its device and of its pass.
    #[allocative(skip)]
    pub(crate) like: Tensor,
    #[allocative(skip)]
    pub(crate) decided: Decided,
}
starlark_simple_value!(OutputValue);

impl fmt::Display for OutputValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tensor(…, grad_fn=…)")
    }
}

impl OutputValue {
    /// An output of that type and operation, on the device of another tensor.
    pub(crate) fn new(
        like: &Tensor,
        dtype: Dtype,
        grad_fn: Option<Arc<Node>>,
        decided: &Decided,
    ) -> OutputValue {
        let like = Tensor::nothing(like.device()).on_device(like.device_index());
        let like = like.to_be_made(0, dtype, &[0]);
        let like = match grad_fn.filter(|_| dtype.is_float()) {
            Some(node) => like.with_grad_fn(Some(node)),
            None => like.detached(),
        };
        OutputValue { like, decided: decided.clone() }
    }

    /// The output as another type.
    pub(crate) fn as_type(&self, dtype: Option<Dtype>) -> OutputValue {
        let Some(dtype) = dtype else { return self.clone() };
        OutputValue::new(&self.like, dtype, self.like.grad_fn().cloned(), &self.decided)
    }

    /// The output computed with another value.
    pub(crate) fn with(&self, other: Value<'_>) -> OutputValue {
        let grad_fn = graph::joined([&self.like].into_iter().chain(like_of(other).as_ref()));
        OutputValue::new(&self.like, self.like.dtype(), grad_fn, &self.decided)
    }

    pub(crate) fn unknown(&self, what: Unknown) -> UnknownValue {
        UnknownValue::new(what, &self.decided)
    }

    pub(crate) fn no_shape<T>() -> starlark::Result<T> {
        Err(starlark::Error::new_native(anyhow::anyhow!(Unknown::Shape.to_string())))
    }
}

/// The tensor, or the stand-in for an output of unknown shape, that a new tensor is made like.
pub(crate) fn like_of(value: Value<'_>) -> Option<Tensor> {
    let tensor = value.downcast_ref::<TensorValue>().map(|tensor| tensor.0.clone());
    tensor.or_else(|| value.downcast_ref::<OutputValue>().map(|output| output.like.clone()))
}
