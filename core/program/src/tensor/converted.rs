//! A tensor's elements on another device, or as another type.

use crate::dist::values::TensorValue;
use crate::process::state::process;
use crate::tensor::graph::joined;
use crate::tensor::made::{Filled, On, filled_tensor};
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::Fill;
use lockstep_torch::c10d::{self, Device};
use starlark::eval::Evaluator;

/// A tensor's elements on that device and as that type, in a new one. A tensor that still has its initial
/// values is made the same way again; in another type, received values are not followed.
pub(crate) fn make_as(
    eval: &mut Evaluator<'_, '_, '_>,
    from: &c10d::Tensor,
    (device, index): (Device, u32),
    dtype: Dtype,
) -> anyhow::Result<TensorValue> {
    let fill = process(eval)?.dist()?.fill_of(from);
    let on = On::Device(device, Some(index));
    // Random numbers of another type are others.
    let again = |fill: &Fill| dtype == from.dtype() || !matches!(fill, Fill::Seeded { .. });
    if !fill.is_some_and(|fill| again(&fill)) && dtype != from.dtype() {
        let process = process(eval)?;
        if let Some(values) = crate::tensor::known_elements::held(process, from)? {
            let name = process.assigned_name().unwrap_or_else(|| "tensor".to_owned());
            return crate::tensor::known_elements::laid_out(
                process, name, from, dtype, &values, on,
            );
        }
    }
    let filled = Filled::As(fill.unwrap_or(Fill::Zeros));
    let made = filled_tensor(eval, from.shape(), dtype, filled, on, None)?;
    let made = TensorValue(made.0.laid_out_as(from));
    if fill.is_none() {
        process(eval)?.dist()?.copy_tensor(from, &made.0);
    }
    let grad_fn = joined([from]).filter(|_| dtype.is_float());
    Ok(TensorValue(made.0.with_grad_fn(grad_fn)))
}
