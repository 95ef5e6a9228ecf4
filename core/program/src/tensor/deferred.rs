//! Results of a tensor's operators, which are made as soon as the program calls anything: an operator of the
//! interpreter does not know its program. Until then a result has a number in place of the plan's tensor;
//! pending results belong to the program that the thread executes.

use crate::nn::parameter::Parameter;
use crate::process::grad_mode;
use crate::process::raised::refused;
use crate::python::type_error::{class_of, type_error};
use crate::tensor::element_operation::Operation;
use crate::tensor::graph::joined;
use crate::tensor::operand::{Operand, number, with};
use crate::tensor::promotion::{broadcast, category};
use crate::tensor::value::{TensorValue, tensor};
use lockstep_core::dtype::Dtype;
use lockstep_torch::c10d::{Device, DistError, ErrorKind, Tensor};
use starlark::values::{Heap, Value};
use std::cell::Cell;

/// A result that is still to be made.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) result: Tensor,
    pub(crate) left: Tensor,
    pub(crate) what: What,
}

#[derive(Debug)]
pub(crate) enum What {
    Binary {
        operation: Operation,
        right: Operand,
    },
    /// Every `step`th elements from `start` on, so many, `times` times.
    Runs {
        start: u64,
        length: u64,
        step: u64,
        times: u64,
    },
    /// A model's parameter, or its gradient.
    Parameter(Parameter),
    /// Rows of a data set.
    Batch(Batch),
    /// Nothing is made: the operand is written into the tensor.
    Assign(Operand),
}

/// The number of the first result. A tensor of nothing is numbered 0.
const FIRST: u32 = 1;

thread_local! {
    static WAITING: Cell<Vec<Waiting>> = const { Cell::new(Vec::new()) };
    static NUMBER: Cell<u32> = const { Cell::new(FIRST) };
}

/// Another program begins on this thread.
pub(crate) fn begin() {
    WAITING.take();
    NUMBER.set(FIRST);
}

/// Takes the results that are still to be made.
pub(crate) fn take_waiting() -> Vec<Waiting> {
    WAITING.take()
}

/// `left + right` and its like; `None` if the right one is no operand of a tensor.
pub(crate) fn binary<'v>(
    operation: Operation,
    left: &Tensor,
    right: Value<'v>,
    heap: Heap<'v>,
) -> Option<starlark::Result<Value<'v>>> {
    let (right, dtype, shape) = match with(operation, left, right)? {
        Ok(found) => found,
        Err(error) => return Some(Err(starlark::Error::new_native(error))),
    };
    if operation == Operation::Pow
        && category(dtype) < 2
        && matches!(right, Operand::Number(value) if value < 0.0)
    {
        let text = "Integers to negative integer powers are not allowed.";
        let error = refused(DistError::new(ErrorKind::RuntimeError, text));
        return Some(Err(starlark::Error::new_native(error)));
    }
    let tensors = match &right {
        Operand::Tensor(right) => [Some(left), Some(right)],
        Operand::Number(_) | Operand::Unknown => [Some(left), None],
    };
    let decides = |of: &&Tensor| of.shape() == shape;
    let laid_out = tensors.into_iter().flatten().find(decides).cloned();
    let grad_fn = joined(tensors.into_iter().flatten()).filter(|_| dtype.is_float());
    let multiplies = !matches!(operation, Operation::Add | Operation::Sub | Operation::FromRight);
    if multiplies
        && grad_fn.is_some()
        && let Err(stopped) = grad_mode::saves()
    {
        return Some(Err(starlark::Error::new_native(anyhow::Error::from(stopped))));
    }
    let what = What::Binary { operation, right };
    let result = later(left, dtype, &shape, what, laid_out.as_ref());
    Some(Ok(heap.alloc(TensorValue(result.with_grad_fn(grad_fn)))))
}

/// A result that is made as soon as the program calls something. Its elements lie as those of the
/// first operand of its shape, as PyTorch's iterator lays them out.
fn later(
    left: &Tensor,
    dtype: Dtype,
    shape: &[u64],
    what: What,
    laid_out: Option<&Tensor>,
) -> Tensor {
    let number = NUMBER.get();
    NUMBER.set(number.wrapping_add(1));
    let mut result = left.to_be_made(number, dtype, shape).with_grad_fn(joined([left]));
    if let Some(like) = laid_out {
        result = result.laid_out_as(like);
    }
    let mut waiting = WAITING.take();
    waiting.push(Waiting { result: result.clone(), left: left.clone(), what });
    WAITING.set(waiting);
    result
}

/// `into[…] = value`, as soon as the program calls something.
pub(crate) fn assign(into: &Tensor, value: Value<'_>) -> anyhow::Result<()> {
    anyhow::ensure!(
        !into.is_in_parts(),
        "a part that does not lie in a row is a copy here, and nothing is assigned to it: assign to \
         whole rows"
    );
    let value = match tensor(value) {
        Ok(from) => {
            if !broadcast(into.shape(), from.shape()).is_ok_and(|shape| shape == into.shape()) {
                let text = format!(
                    "shape mismatch: value tensor of shape {:?} cannot be broadcast to indexing \
                     result of shape {:?}",
                    from.shape(),
                    into.shape()
                );
                return Err(refused(DistError::new(ErrorKind::RuntimeError, text)));
            }
            Operand::Tensor(from.clone())
        }
        Err(_) => match number(value) {
            Some((value, _)) => value,
            None => {
                let class = class_of(value);
                let text = format!("can't assign a {class} to a tensor");
                return Err(type_error(text));
            }
        },
    };
    later(into, into.dtype(), into.shape(), What::Assign(value), None);
    Ok(())
}

/// A parameter, a buffer or a gradient as a tensor.
pub(crate) fn parameter(of: Parameter, device: Device) -> Tensor {
    let like = Tensor::nothing(device);
    let (dtype, shape) = (of.dtype(), of.shape().to_vec());
    let result = later(&like, dtype, &shape, What::Parameter(of.clone()), None);
    of.is(&result);
    result
}

/// The contents of a data set's rows: random numbers like all of it, or values that are not followed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) random: bool,
}

/// Rows of a data set's tensor.
pub(crate) fn batch(of: &Tensor, shape: &[u64], what: Batch) -> Tensor {
    let like = Tensor::nothing(of.device());
    later(&like, of.dtype(), shape, What::Batch(what), None)
}

/// Rows of a data set that ships, on the CPU; their contents are not known.
pub(crate) fn shipped(dtype: Dtype, shape: &[u64]) -> Tensor {
    let like = Tensor::nothing(Device::Cpu);
    later(&like, dtype, shape, What::Batch(Batch { random: false }), None)
}

/// The part of a tensor from `start` to before `start + length` along a dimension: a view where
/// that lies in a row, and else a copy.
pub(crate) fn part(of: &Tensor, dim: usize, start: u64, length: u64) -> Tensor {
    let product = |sizes: &[u64]| sizes.iter().fold(1, |all: u64, size| all.saturating_mul(*size));
    let mut shape = of.shape().to_vec();
    let (before, behind) = (product(&shape[..dim]), product(&shape[dim + 1..]));
    let rows = std::mem::replace(&mut shape[dim], length);
    if before <= 1 || length == rows {
        let flat = of.view(of.numel()).narrow(start * behind, length * behind);
        return if length == rows { of.clone() } else { flat.view(&shape[..]) };
    }
    let (start, length) = (start * behind, length * behind);
    let what = What::Runs { start, length, step: rows * behind, times: before };
    later(of, of.dtype(), &shape, what, None).in_parts()
}

/// Every so many rows, as a copy.
pub(crate) fn every(of: &Tensor, step: u64) -> Tensor {
    let mut shape = of.shape().to_vec();
    let Some(rows) = shape.first_mut() else { return of.clone() };
    let row = of.numel().checked_div(*rows).unwrap_or(0);
    *rows = rows.div_ceil(step);
    let times = *rows;
    if times <= 1 {
        return of.narrow(0, times);
    }
    let what = What::Runs { start: 0, length: row, step: row.saturating_mul(step), times };
    later(of, of.dtype(), &shape, what, None).in_parts()
}
