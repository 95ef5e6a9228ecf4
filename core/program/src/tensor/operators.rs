//! Operators with a tensor on either side: `**`, and those of which the right side alone is one.

use crate::dist::arguments::no_operand;
use crate::nn::output::OutputValue;
use crate::process::undecided::UnknownValue;
use crate::tensor::deferred::binary;
use crate::tensor::element_operation::Operation;
use crate::tensor::value::TensorValue;
use lockstep_torch::c10d::Tensor;
use starlark::values::{Heap, Value, ValueLike};

/// `base ** exponent`, one of which is a tensor.
pub(crate) fn power<'v>(
    base: Value<'v>,
    exponent: Value<'v>,
    heap: Heap<'v>,
) -> starlark::Result<Value<'v>> {
    let found = match (base.downcast_ref::<TensorValue>(), exponent.downcast_ref::<TensorValue>()) {
        (Some(base), _) => binary(Operation::Pow, &base.0, exponent, heap),
        (None, Some(to)) => binary(Operation::RightPow, &to.0, base, heap),
        (None, None) => None,
    };
    found.unwrap_or_else(|| {
        let left = base.downcast_ref::<TensorValue>().map(|base| &base.0);
        match (left, base.downcast_ref::<OutputValue>()) {
            (Some(left), _) => loss_of(left, exponent, "** or pow()", heap),
            (None, Some(output)) => Ok(heap.alloc(output.with(exponent))),
            (None, None) => Err(starlark::Error::new_native(no_operand("** or pow()", exponent))),
        }
    })
}

/// `left - right` and `left / right`, of which the right one alone may be a tensor.
pub(crate) fn reflected<'v>(
    operator: &str,
    left: Value<'v>,
    right: Value<'v>,
    heap: Heap<'v>,
) -> starlark::Result<Value<'v>> {
    let operation = if operator == "-" { Operation::FromRight } else { Operation::RightBy };
    if left.get_type() != "Tensor" {
        if let Some(tensor) = right.downcast_ref::<TensorValue>() {
            return binary(operation, &tensor.0, left, heap)
                .unwrap_or_else(|| Err(starlark::Error::new_native(no_operand(operator, left))));
        }
        let unknown = right.downcast_ref::<UnknownValue>().is_some();
        if unknown || right.get_type() == "Output" {
            // Either way round it is as little known.
            return right.add(left, heap);
        }
    }
    if operator == "-" { left.sub(right, heap) } else { left.div(right, heap) }
}

/// The result of a tensor and a model's output, which is an output again.
pub(crate) fn loss_of<'v>(
    this: &Tensor,
    other: Value<'v>,
    operator: &str,
    heap: Heap<'v>,
) -> starlark::Result<Value<'v>> {
    match other.downcast_ref::<OutputValue>() {
        Some(output) => {
            let this = heap.alloc(TensorValue(this.clone()));
            Ok(heap.alloc(output.with(this)))
        }
        None => Err(starlark::Error::new_native(no_operand(operator, other))),
    }
}
