//! The output of a model: a tensor whose values are not known, and which remembers the forward pass
//! that it comes of. Where its shape is not known either, it is an [`OutputValue`], of which a
//! loss, a sum or a `reshape` makes a tensor.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::values::TensorValue;
use crate::process::undecided::{Decided, Unknown, UnknownValue};
use allocative::Allocative;
use lockstep_core::dtype::Dtype;
use lockstep_torch::c10d::Tensor;
use starlark::starlark_simple_value;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, Value, ValueLike,
};
use std::fmt;

/// The output of a model, of a shape that is not known.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct OutputValue {
    /// A tensor of its type, on its device and of its pass.
    #[allocative(skip)]
    pub(crate) like: Tensor,
    /// The number of values it is: 1, or those that `forward` returns side by side.
    pub(crate) values: usize,
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
    /// The output as another type.
    pub(crate) fn as_type(&self, dtype: Option<Dtype>) -> OutputValue {
        let Some(dtype) = dtype else { return self.clone() };
        let pass = self.like.pass();
        let like = self.like.to_be_made(0, dtype, &[0]).of_pass(pass);
        OutputValue { like, ..self.clone() }
    }

    pub(crate) fn own<'v>(&self, heap: Heap<'v>) -> Value<'v> {
        heap.alloc(OutputValue { values: 1, ..self.clone() })
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
