//! New tensors of a plan that are filled with a number, or with another tensor's elements.

use crate::process::state::Process;
use crate::tensor::graph::joined;
use crate::tensor::known_elements;
use crate::tensor::made::{Filled, On, made_by};
use crate::tensor::operand::Operand;
use lockstep_core::plan::Fill;
use lockstep_torch::c10d::Tensor;

/// The most elements of a tensor whose values are followed; of larger ones only the shape is.
pub(crate) const FOLLOWED: u64 = 1 << 20;

/// Rows that are copied one by one where a shape is repeated.
pub(crate) const REPEATED: u64 = 256;

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

/// A tensor of a type and device, and of that shape.
pub(crate) fn fresh(
    process: &mut Process<'_>,
    like: &Tensor,
    shape: &[u64],
    filled: Filled,
) -> anyhow::Result<Tensor> {
    let grad_fn = joined([like]);
    let made = named(process, like, shape, filled, "computed".to_owned())?;
    Ok(made.with_grad_fn(grad_fn))
}

pub(crate) fn named(
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

/// `into.copy_(from)`, repeated along the dimensions that `from` lacks. If the types differ, or the copy has
/// too many parts, only known elements are followed.
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
