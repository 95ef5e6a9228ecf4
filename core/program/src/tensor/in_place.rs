//! `x += y` and its like, as steps of the plan where a run alone knows the elements.

use crate::process::state::Process;
use crate::tensor::element_operation::Operation;
use crate::tensor::fresh::{FOLLOWED, constant, fresh, spread, value_of};
use crate::tensor::known_elements;
use crate::tensor::made::Filled;
use crate::tensor::operand::Operand;
use lockstep_core::plan::Fill;
use lockstep_core::reduce::ReduceOp;
use lockstep_torch::c10d::Tensor;

/// `into = into op right`, element by element, as far as that can be followed.
pub(crate) fn change(
    process: &mut Process<'_>,
    operation: Operation,
    into: &Tensor,
    right: &Operand,
) -> anyhow::Result<()> {
    if into.numel() > FOLLOWED {
        return Ok(());
    }
    if let Some(values) = known_elements::computed(process, operation, into, right, into)? {
        let made = known_elements::made_of(process, into, into.dtype(), &values)?;
        process.dist()?.copy_tensor(&made, into);
        return Ok(());
    }
    let dist = process.dist()?;
    let known = match right {
        Operand::Tensor(right) => dist.is_followed(right),
        Operand::Number(_) => true,
        Operand::Unknown => false,
    };
    if !known || !dist.is_followed(into) {
        dist.not_followed(into);
        return Ok(());
    }
    let op = match operation {
        Operation::Add | Operation::Sub | Operation::FromRight => ReduceOp::Sum,
        _ => ReduceOp::Product,
    };
    if !op.supports(into.dtype()) {
        process.dist()?.not_followed(into);
        return Ok(());
    }
    let known = value_of(process, right)?;
    match (operation, known) {
        (Operation::Pow, Some(exponent)) if [1.0, 2.0, 3.0].contains(&exponent) => {
            let once = fresh(process, into, into.shape(), Filled::As(Fill::Zeros))?;
            process.dist()?.copy_tensor(into, &once.clone().laid_out_as(into));
            for _ in 1..exponent as u32 {
                process.dist()?.combine_into(&once, into, op);
            }
            return Ok(());
        }
        (
            Operation::Add
            | Operation::Sub
            | Operation::Mul
            | Operation::Div
            | Operation::FromRight,
            _,
        ) => {}
        _ => {
            process.dist()?.not_followed(into);
            return Ok(());
        }
    }
    if operation == Operation::FromRight {
        let minus = constant(process, into, -1.0)?;
        process.dist()?.combine_into(&minus, into, ReduceOp::Product);
    }
    // The operand of the addition or multiplication that replaces the operation.
    let by = |value: f64| match operation {
        Operation::Sub => -value,
        Operation::Div => 1.0 / value,
        _ => value,
    };
    let from = match (known, right) {
        (Some(value), _) => Some(constant(process, into, by(value))?),
        (None, Operand::Tensor(right)) => {
            match known_elements::as_another(process, right, into, by)? {
                Some(known) => Some(known),
                None if into.is_transposed() => alike(process, operation, into, right)?,
                None => received(process, operation, into, right)?,
            }
        }
        (None, Operand::Number(_) | Operand::Unknown) => None,
    };
    if let Some(from) = from {
        process.dist()?.combine_into(&from, into, op);
    }
    Ok(())
}

/// The operand of an addition or multiplication where rows and columns are swapped: one that lies alike.
fn alike(
    process: &mut Process<'_>,
    operation: Operation,
    into: &Tensor,
    right: &Tensor,
) -> anyhow::Result<Option<Tensor>> {
    let same = right.is_transposed() && right.shape() == into.shape();
    let plain = !matches!(operation, Operation::Sub | Operation::Div);
    if same && plain && right.dtype() == into.dtype() {
        return Ok(Some(right.clone()));
    }
    process.dist()?.not_followed(into);
    Ok(None)
}

/// The operand of an addition or multiplication for a tensor whose elements a run alone knows;
/// `None` where that is not followed.
fn received(
    process: &mut Process<'_>,
    operation: Operation,
    into: &Tensor,
    right: &Tensor,
) -> anyhow::Result<Option<Tensor>> {
    if operation == Operation::Div || right.dtype() != into.dtype() {
        process.dist()?.not_followed(into);
        return Ok(None);
    }
    let plain = right.shape() == into.shape() && !right.is_transposed();
    if plain && operation != Operation::Sub {
        return Ok(Some(right.clone()));
    }
    let own = fresh(process, into, into.shape(), Filled::As(Fill::Zeros))?;
    spread(process, right, &own)?;
    if operation == Operation::Sub {
        let minus = constant(process, &own, -1.0)?;
        process.dist()?.combine_into(&minus, &own, ReduceOp::Product);
    }
    Ok(Some(own))
}
