//! The other operand of a tensor's operation: another tensor, a number, or a number that only a run knows;
//! and the type and shape of the result.

use crate::process::undecided::UnknownValue;
use crate::python::float::float_of;
use crate::python::numbers;
use crate::tensor::element_operation::Operation;
use crate::tensor::promotion::{broadcast, category, promote};
use crate::tensor::value::tensor;
use lockstep_core::dtype::Dtype;
use lockstep_torch::c10d::Tensor;
use starlark::values::{Value, ValueLike};

#[derive(Clone, Debug)]
pub(crate) enum Operand {
    Tensor(Tensor),
    Number(f64),
    /// A number that only a run knows.
    Unknown,
}

/// A number of Python's, and the type that it has as a tensor.
pub(crate) fn number(value: Value<'_>) -> Option<(Operand, Dtype)> {
    if let Some(unknown) = value.downcast_ref::<UnknownValue>() {
        return Some((Operand::Unknown, unknown.number()?.dtype()));
    }
    if let Some(yes) = value.unpack_bool() {
        return Some((Operand::Number(f64::from(u8::from(yes))), Dtype::Bool));
    }
    if let Some(float) = float_of(value) {
        return Some((Operand::Number(float), Dtype::Float32));
    }
    Some((Operand::Number(numbers::whole(value, "a number").ok()? as f64), Dtype::Int64))
}

/// The other operand, the type of the result, and its shape; `None` if it is no operand.
pub(crate) fn with(
    operation: Operation,
    left: &Tensor,
    right: Value<'_>,
) -> Option<anyhow::Result<(Operand, Dtype, Vec<u64>)>> {
    let (operand, dtype, dims) = match tensor(right) {
        Ok(right) => (Operand::Tensor(right.clone()), right.dtype(), right.shape().len()),
        Err(_) => {
            let (value, dtype) = number(right)?;
            (value, dtype, 0)
        }
    };
    let own = left.dtype();
    // If only some operands have dimensions, those decide within a category.
    let dtype = match (dims == 0, left.shape().is_empty()) {
        (true, false) if category(dtype) <= category(own) => own,
        (false, true) if category(own) <= category(dtype) => dtype,
        (true, true)
            if !matches!(operand, Operand::Tensor(_)) && category(dtype) <= category(own) =>
        {
            own
        }
        _ => promote(own, dtype),
    };
    let dtype = match operation {
        operation if operation.divides() && category(dtype) < 2 => Dtype::Float32,
        _ => dtype,
    };
    let shape = match &operand {
        Operand::Tensor(right) => broadcast(left.shape(), right.shape()),
        Operand::Number(_) | Operand::Unknown => Ok(left.shape().to_vec()),
    };
    Some(shape.map(|shape| (operand, dtype, shape)))
}
