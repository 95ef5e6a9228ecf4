//! `x + y`, `x * 2`, `x /= world_size`: results of computing with tensors, as steps of the plan, so that a
//! simulation shows the values. A tensor with the same number throughout is computed here.
//!
//! An operator of the interpreter does not know its program. Its result has a number in place of the plan's
//! tensor, and is made as soon as the program calls anything: the pending operations belong to the program
//! that the thread executes.

use crate::dist::arguments as take;
use crate::nn::parameters;
use crate::process::raised::refused;
use crate::process::state::{Process, process};
use crate::tensor::deferred::{Batch, Waiting, What, take_waiting};
use crate::tensor::element_operation::Operation;
use crate::tensor::fresh::{FOLLOWED, REPEATED, constant, fresh, named, spread, uniform, value_of};
use crate::tensor::graph::joined;
use crate::tensor::in_place::change;
use crate::tensor::known_elements;
use crate::tensor::made::Filled;
use crate::tensor::operand::{Operand, with};
use crate::tensor::promotion::category;
use crate::tensor::value::{TensorValue, tensor};
use lockstep_core::plan::Fill;
use lockstep_torch::c10d::{DistError, ErrorKind, Tensor};
use starlark::eval::Evaluator;
use starlark::values::Value;

/// Makes the results that wait.
pub(crate) fn work_off(process: &mut Process<'_>) -> anyhow::Result<()> {
    for one in take_waiting() {
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

fn rows(process: &mut Process<'_>, like: &Tensor, of: Batch) -> anyhow::Result<Tensor> {
    // The chosen rows are not followed.
    let fill = if of.random { Fill::Seeded { seed: 0 } } else { Fill::Unknown };
    named(process, like, like.shape(), Filled::As(fill), "batch".to_owned())
}

/// The parts, one behind the other.
fn runs(
    process: &mut Process<'_>,
    one: &Waiting,
    [start, length, step, times]: [u64; 4],
) -> anyhow::Result<Tensor> {
    if !process.dist()?.is_followed(&one.left) {
        return fresh(process, &one.result, one.result.shape(), Filled::As(Fill::Unknown));
    }
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
    let grad_fn = match &right {
        Operand::Tensor(right) => joined([into, right]),
        _ => None,
    };
    // The name that it is assigned to holds what a backward pass can go through.
    Ok(match grad_fn {
        Some(node) => eval.heap().alloc(TensorValue(into.clone().with_grad_fn(Some(node)))),
        None => this,
    })
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
