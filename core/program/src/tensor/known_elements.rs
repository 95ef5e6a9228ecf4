//! Tensors' elements that are known while the program is recorded: nothing has been received into them.
//! Results computed from them are worked out here as PyTorch computes them, in the type of the result, and
//! written into the plan.

use crate::dist::values::TensorValue;
use crate::process::state::Process;
use crate::tensor::element_operation::Operation;
use crate::tensor::made::{On, WRITTEN_DOWN, written_by};
use crate::tensor::operand::Operand;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::value::number;
use lockstep_torch::c10d::Tensor;

/// A tensor's elements, row by row.
pub(crate) fn held(process: &mut Process<'_>, of: &Tensor) -> anyhow::Result<Option<Vec<f64>>> {
    if of.is_transposed() {
        let stored = held(process, &of.transposed())?.filter(|_| of.shape().len() == 2);
        return Ok(stored.map(|stored| swapped(&stored, of.transposed().shape())));
    }
    let Some(bytes) = process.dist()?.bytes_of(of, WRITTEN_DOWN) else { return Ok(None) };
    let size = of.dtype().size_bytes().max(1) as usize;
    Ok(bytes.chunks(size).map(|element| number(of.dtype(), element)).collect())
}

/// The elements of rows, column by column.
fn swapped(values: &[f64], shape: &[u64]) -> Vec<f64> {
    let [rows, columns] = shape[..] else { return values.to_vec() };
    let (rows, columns) = (rows as usize, columns as usize);
    let places = (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
    places.filter_map(|at| values.get(at).copied()).collect()
}

/// The elements of a shape in one that it is broadcast to.
fn repeated(values: &[f64], from: &[u64], into: &[u64]) -> Option<Vec<f64>> {
    let numel = into.iter().fold(1_u64, |all, size| all.saturating_mul(*size));
    if numel > WRITTEN_DOWN {
        return None;
    }
    let place = |mut index: u64| {
        let (mut at, mut stride) = (0, 1);
        for (behind, size) in into.iter().rev().enumerate() {
            let nth = index % size;
            index /= size;
            let own = from.len().checked_sub(behind + 1).map_or(1, |dim| from[dim]);
            at += if own == 1 { 0 } else { nth * stride };
            stride *= own;
        }
        at as usize
    };
    (0..numel).map(|index| values.get(place(index)).copied()).collect()
}

/// `left op right` in the type and shape of a result, where both are known.
pub(crate) fn computed(
    process: &mut Process<'_>,
    operation: Operation,
    left: &Tensor,
    right: &Operand,
    result: &Tensor,
) -> anyhow::Result<Option<Vec<f64>>> {
    let Some(a) = held(process, left)? else { return Ok(None) };
    let (b, shape) = match right {
        Operand::Number(value) => (Some(vec![*value]), &[][..]),
        Operand::Unknown => return Ok(None),
        Operand::Tensor(right) => (held(process, right)?, right.shape()),
    };
    let into = result.shape();
    let both = repeated(&a, left.shape(), into).zip(b.and_then(|b| repeated(&b, shape, into)));
    let dtype = result.dtype();
    let of_python = matches!(right, Operand::Number(_));
    let Some((a, b)) = both else { return Ok(None) };
    Ok(a.iter().zip(&b).map(|(a, b)| operation.of(dtype, *a, *b, of_python)).collect())
}

/// A tensor of those elements, with another one's shape, layout and device.
pub(crate) fn made_of(
    process: &mut Process<'_>,
    like: &Tensor,
    dtype: Dtype,
    values: &[f64],
) -> anyhow::Result<Tensor> {
    let on = On::Device(like.device(), Some(like.device_index()));
    Ok(laid_out(process, "computed".to_owned(), like, dtype, values, on)?.0)
}

/// A named tensor of known values on a device, laid out as `like` is.
pub(crate) fn laid_out(
    process: &mut Process<'_>,
    name: String,
    like: &Tensor,
    dtype: Dtype,
    values: &[f64],
    on: On,
) -> anyhow::Result<TensorValue> {
    if !like.is_transposed() {
        return written_by(process, name, like.shape(), dtype, values, on);
    }
    let stored = swapped(values, like.shape());
    let made = written_by(process, name, like.shape(), dtype, &stored, on)?;
    Ok(TensorValue(made.0.laid_out_as(like)))
}

/// A tensor's known elements as a tensor of the type and shape of another, to which they are
/// broadcast.
pub(crate) fn as_another(
    process: &mut Process<'_>,
    from: &Tensor,
    like: &Tensor,
    with: impl Fn(f64) -> f64,
) -> anyhow::Result<Option<Tensor>> {
    let values = held(process, from)?;
    let values = values.and_then(|values| repeated(&values, from.shape(), like.shape()));
    let Some(values) = values else { return Ok(None) };
    let values: Vec<f64> = values.into_iter().map(with).collect();
    made_of(process, like, like.dtype(), &values).map(Some)
}
