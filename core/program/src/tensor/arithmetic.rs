//! `x + y`, `x * 2`, `x /= world_size`: what tensors are computed to, as steps of the plan, so that a
//! simulation shows the values. What holds one number throughout is worked out here.
//!
//! An operator of the interpreter is not told whose program it is in. Its result has a number in
//! place of the plan's tensor, and is made as soon as the program calls anything: the operations that
//! wait for that belong to the program that the thread executes.

use crate::dist::arguments as take;
use crate::execute::process::{Process, process, refused};
use crate::nn::parameters::{self, Parameter};
use crate::tensor::element_operation::Operation;
use crate::tensor::in_place::change;
use crate::tensor::known_elements;
use crate::tensor::operand::{Operand, number, with};
use crate::tensor::promotion::{broadcast, category};
use crate::tensor::value::{TensorValue, tensor};
use crate::torch::construction::{Filled, On, made_by};
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::{Fill, TensorId};
use lockstep_torch::c10d::{Device, DistError, ErrorKind, Tensor};
use starlark::eval::Evaluator;
use starlark::values::{Heap, Value};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Of larger tensors only the shape is followed.
pub(crate) const FOLLOWED: u64 = 1 << 20;
/// Rows that are copied one by one where a shape is repeated.
const REPEATED: u64 = 256;

/// A result that is still to be made.
#[derive(Debug)]
struct Waiting {
    result: Tensor,
    left: Tensor,
    what: What,
}

#[derive(Debug)]
enum What {
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
    /// Nothing is made: what is computed of is written into.
    Assign(Operand),
}

thread_local! {
    static WAITING: Cell<Vec<Waiting>> = const { Cell::new(Vec::new()) };
    static NUMBER: Cell<u32> = const { Cell::new(0) };
    static PARAMETERS: RefCell<BTreeMap<TensorId, Parameter>> =
        const { RefCell::new(BTreeMap::new()) };
}

/// Another program begins on this thread.
pub(crate) fn begin() {
    WAITING.take();
    NUMBER.set(0);
    PARAMETERS.take();
}

/// Makes the results that wait.
pub(crate) fn work_off(process: &mut Process<'_>) -> anyhow::Result<()> {
    for one in WAITING.take() {
        let made = match &one.what {
            What::Binary { operation, right } => {
                compute(process, &one, *operation, right)?.storage()
            }
            What::Runs { start, length, step, times } => {
                runs(process, &one, [*start, *length, *step, *times])?.storage()
            }
            What::Parameter(this) => parameters::made(process, &one.result, this)?,
            What::Batch(of) => rows(process, &one.result, *of)?.storage(),
            What::Assign(value) => {
                write(process, &one.left, value)?;
                one.left.storage()
            }
        };
        process.dist()?.stands_for(&one.result, made);
    }
    Ok(())
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
    let pass = tensors.into_iter().flatten().find_map(Tensor::pass);
    let what = What::Binary { operation, right };
    let result = later(left, dtype, &shape, what, laid_out.as_ref());
    Some(Ok(heap.alloc(TensorValue(result.of_pass(pass)))))
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
    let mut result = left.to_be_made(number, dtype, shape);
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
                let class = take::class_of(value);
                let text = format!("can't assign a {class} to a tensor");
                return Err(take::type_error(text));
            }
        },
    };
    later(into, into.dtype(), into.shape(), What::Assign(value), None);
    Ok(())
}

/// A value into every element, as far as that can be followed.
fn write(process: &mut Process<'_>, into: &Tensor, value: &Operand) -> anyhow::Result<()> {
    if into.numel() > FOLLOWED {
        return Ok(());
    }
    match (value, value_of(process, value)?) {
        (_, Some(value)) => {
            let from = constant(process, into, value)?;
            process.dist()?.copy_tensor(&from, into);
            Ok(())
        }
        (Operand::Tensor(from), None) => spread(process, from, into),
        (Operand::Number(_) | Operand::Unknown, None) => {
            process.dist()?.not_followed(into);
            Ok(())
        }
    }
}

/// A parameter as a tensor.
pub(crate) fn parameter(of: Parameter, dtype: Dtype, shape: &[u64], device: Device) -> Tensor {
    let like = Tensor::nothing(device);
    let result = later(&like, dtype, shape, What::Parameter(of.clone()), None);
    PARAMETERS.with(|known| {
        if let Ok(mut known) = known.try_borrow_mut() {
            known.insert(result.storage(), of);
        }
    });
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

/// Rows of a data set that ships, on the CPU: what is in them is not known.
pub(crate) fn shipped(dtype: Dtype, shape: &[u64]) -> Tensor {
    let like = Tensor::nothing(Device::Cpu);
    later(&like, dtype, shape, What::Batch(Batch { random: false }), None)
}

fn rows(process: &mut Process<'_>, like: &Tensor, of: Batch) -> anyhow::Result<Tensor> {
    // Which rows they are is not followed.
    let fill = if of.random { Fill::Seeded { seed: 0 } } else { Fill::Unknown };
    named(process, like, like.shape(), Filled::As(fill), "batch".to_owned())
}

/// The parameter that a tensor is.
pub(crate) fn parameter_of(tensor: &Tensor) -> Option<Parameter> {
    PARAMETERS.with(|known| known.try_borrow().ok()?.get(&tensor.storage()).cloned())
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

/// The parts, one behind the other.
fn runs(
    process: &mut Process<'_>,
    one: &Waiting,
    [start, length, step, times]: [u64; 4],
) -> anyhow::Result<Tensor> {
    let held = uniform(process, &one.left)?;
    let filled = held.map_or(Filled::As(Fill::Zeros), Filled::Number);
    let made = fresh(process, &one.result, one.result.shape(), filled)?;
    if held.is_none() && times > REPEATED {
        process.dist()?.not_followed(&made);
    } else if held.is_none() {
        let (from, into) = (one.left.view(one.left.numel()), made.view(made.numel()));
        for nth in 0..times {
            let run = from.narrow(start + nth * step, length);
            process.dist()?.copy_tensor(&run, &into.narrow(nth * length, length));
        }
    }
    Ok(made)
}

/// `this += other` and its like.
pub(crate) fn in_place<'v>(
    operator: &str,
    this: Value<'v>,
    other: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let operation = Operation::named(operator)
        .ok_or_else(|| anyhow::anyhow!("{operator}= of a tensor is not followed here"))?;
    let process = process(eval)?;
    let into = tensor(this)?;
    let Some(found) = with(operation, into, other) else {
        return Err(take::no_operand(&format!("{operator}="), other));
    };
    let (right, dtype, shape) = found?;
    let refusal = |text: String| Err(refused(DistError::new(ErrorKind::RuntimeError, text)));
    if category(dtype) > category(into.dtype()) {
        return refusal(format!(
            "result type {} can't be cast to the desired output type {}",
            dtype.scalar_type(),
            into.dtype().scalar_type()
        ));
    }
    if shape != into.shape() {
        return refusal(format!(
            "output with shape {:?} doesn't match the broadcast shape {shape:?}",
            into.shape()
        ));
    }
    change(process, operation, into, &right)?;
    let pass = match &right {
        Operand::Tensor(right) if into.pass().is_none() => right.pass(),
        _ => None,
    };
    // The name that it is assigned to holds what a backward pass can go through.
    Ok(match pass {
        Some(pass) => eval.heap().alloc(TensorValue(into.clone().of_pass(Some(pass)))),
        None => this,
    })
}

/// The one number that a tensor holds in all of its elements, where that is known.
pub(crate) fn uniform(process: &mut Process<'_>, tensor: &Tensor) -> anyhow::Result<Option<f64>> {
    let dist = process.dist()?;
    Ok(match dist.fill_of(tensor) {
        Some(Fill::Zeros) => Some(0.0),
        Some(Fill::Full { value }) => Some(value as f64),
        Some(Fill::Arange { start, step }) if step.get() == 0.0 => Some(start.get()),
        Some(Fill::Rank) => Some(f64::from(dist.process().0)),
        _ => None,
    })
}

pub(crate) fn value_of(
    process: &mut Process<'_>,
    operand: &Operand,
) -> anyhow::Result<Option<f64>> {
    match operand {
        Operand::Number(value) => Ok(Some(*value)),
        Operand::Unknown => Ok(None),
        Operand::Tensor(tensor) => uniform(process, tensor),
    }
}

fn compute(
    process: &mut Process<'_>,
    one: &Waiting,
    operation: Operation,
    right: &Operand,
) -> anyhow::Result<Tensor> {
    let Waiting { result, left, .. } = one;
    let dist = process.dist()?;
    let known = match right {
        Operand::Tensor(right) => dist.is_followed(right),
        Operand::Number(_) => true,
        Operand::Unknown => false,
    };
    if !known || !dist.is_followed(left) {
        let made = fresh(process, result, result.shape(), Filled::As(Fill::Unknown))?;
        return Ok(made.laid_out_as(result));
    }
    let (a, b) = (uniform(process, left)?, value_of(process, right)?);
    let of_python = matches!(right, Operand::Number(_));
    let of = |(a, b)| operation.of(result.dtype(), a, b, of_python);
    let exact = a.zip(b).and_then(of);
    if exact.is_none()
        && let Some(values) = known_elements::computed(process, operation, left, right, result)?
    {
        return known_elements::made_of(process, result, result.dtype(), &values);
    }
    let filled = exact.map_or(Filled::As(Fill::Zeros), Filled::Number);
    let made = fresh(process, result, result.shape(), filled)?.laid_out_as(result);
    if exact.is_none() {
        spread(process, left, &made)?;
        change(process, operation, &made, right)?;
    }
    Ok(made)
}

/// A tensor of a type and device, and of that shape.
pub(crate) fn fresh(
    process: &mut Process<'_>,
    like: &Tensor,
    shape: &[u64],
    filled: Filled,
) -> anyhow::Result<Tensor> {
    named(process, like, shape, filled, "computed".to_owned())
}

fn named(
    process: &mut Process<'_>,
    like: &Tensor,
    shape: &[u64],
    filled: Filled,
    name: String,
) -> anyhow::Result<Tensor> {
    let on = On::Device(like.device(), Some(like.device_index()));
    Ok(made_by(process, shape, like.dtype(), filled, on, Some(name))?.0)
}

/// A number in every element of a tensor like another. It is never written into, and made once.
pub(crate) fn constant(
    process: &mut Process<'_>,
    like: &Tensor,
    value: f64,
) -> anyhow::Result<Tensor> {
    let key = (like.dtype(), like.numel(), value.to_bits());
    if let Some(known) = process.constants.get(&key) {
        return Ok(known.clone());
    }
    // Alike on every rank, also where it is the rank's number.
    let filled = match value.is_finite() && value.trunc() == value && value.abs() < 1e15 {
        true => Filled::As(Fill::Full { value: value as i64 }),
        false => Filled::Number(value),
    };
    let made = named(process, like, &[like.numel()], filled, value.to_string())?;
    process.constants.insert(key, made.clone());
    Ok(made)
}

/// `into.copy_(from)`, repeated along the dimensions that `from` lacks. What has other types, or would
/// be copied in too many parts, is followed where its elements are known.
pub(crate) fn spread(
    process: &mut Process<'_>,
    from: &Tensor,
    into: &Tensor,
) -> anyhow::Result<()> {
    let unlike = from.dtype() != into.dtype();
    if unlike && let Some(from) = known_elements::as_another(process, from, into, |value| value)? {
        process.dist()?.copy_tensor(&from, into);
        return Ok(());
    }
    if from.numel() == into.numel() {
        crate::tensor::transposed::copy(process.dist()?, from, into);
        return Ok(());
    }
    let each = from.numel();
    let suffix = from.shape().iter().skip_while(|size| **size == 1);
    let suffix: Vec<u64> = suffix.copied().collect();
    let fits = into.shape().ends_with(&suffix) && !into.is_transposed() && !from.is_transposed();
    let times = into.numel().checked_div(each).unwrap_or(0);
    if fits && times <= REPEATED {
        let flat = into.view(into.numel());
        for nth in 0..times {
            process.dist()?.copy_tensor(from, &flat.narrow(nth * each, each));
        }
    } else if let Some(from) = known_elements::as_another(process, from, into, |value| value)? {
        process.dist()?.copy_tensor(&from, into);
    } else {
        process.dist()?.not_followed(into);
    }
    Ok(())
}
