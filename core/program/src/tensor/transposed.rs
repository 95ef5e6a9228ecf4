//! Tensors whose rows and columns are swapped: their elements are not contiguous, which some calls require.

use crate::dist::values::TensorValue;
use crate::process::state::process;
use crate::tensor::graph::joined;
use crate::tensor::made::{Filled, On, filled_tensor};
use lockstep_core::plan::Fill;
use lockstep_torch::c10d::{Dist, Tensor};
use starlark::eval::Evaluator;

/// Elements that are copied one by one. Of larger tensors only the shape is followed.
const ONE_BY_ONE: u64 = 64;

/// `tensor.contiguous()`.
pub(crate) fn contiguous(
    eval: &mut Evaluator<'_, '_, '_>,
    from: &Tensor,
) -> anyhow::Result<TensorValue> {
    if !from.is_transposed() {
        return Ok(TensorValue(from.clone().in_a_row()));
    }
    let fill = process(eval)?.dist()?.fill_of(from);
    let on = On::Device(from.device(), Some(from.device_index()));
    if fill.is_none() {
        let process = process(eval)?;
        if let Some(values) = crate::tensor::known_elements::held(process, from)? {
            let name = process.assigned_name().unwrap_or_else(|| "tensor".to_owned());
            let (shape, dtype) = (from.shape(), from.dtype());
            return crate::tensor::made::written_by(process, name, shape, dtype, &values, on);
        }
    }
    // If all elements are alike, their order does not matter.
    let fill = fill.filter(|fill| !matches!(fill, Fill::Iota | Fill::Arange { .. }));
    let filled = Filled::As(fill.unwrap_or(Fill::Zeros));
    let made = filled_tensor(eval, from.shape(), from.dtype(), filled, on, None)?;
    if fill.is_none() {
        copy(process(eval)?.dist()?, from, &made.0);
    }
    Ok(TensorValue(made.0.with_grad_fn(joined([from]))))
}

/// `into.copy_(from)` of tensors of one shape, either of which may be transposed.
pub(crate) fn copy(dist: &mut Dist<'_>, from: &Tensor, into: &Tensor) {
    let swapped = from.is_transposed() != into.is_transposed();
    let ([rows, columns], true) = (from.shape(), swapped && from.numel() <= ONE_BY_ONE) else {
        dist.copy_tensor(from, into);
        if swapped && dist.fill_of(from).is_none_or(|fill| fill == Fill::Iota) {
            dist.not_followed(into);
        }
        return;
    };
    let at = |tensor: &Tensor, row: u64, column: u64| {
        let at = if tensor.is_transposed() { column * rows + row } else { row * columns + column };
        tensor.view(tensor.numel()).narrow(at, 1)
    };
    for row in 0..*rows {
        for column in 0..*columns {
            dist.copy_tensor(&at(from, row, column), &at(into, row, column));
        }
    }
}

/// Refuses an operation on a tensor's parts, if they are not contiguous.
pub(crate) fn in_a_row(tensor: &Tensor) -> anyhow::Result<()> {
    anyhow::ensure!(
        !tensor.is_transposed(),
        "parts and views of a transposed tensor are not followed here: take them of its \
         contiguous()"
    );
    Ok(())
}
