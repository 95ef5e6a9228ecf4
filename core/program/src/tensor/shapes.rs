//! Tensors with their dimensions in another order or of other sizes: `transpose`, `permute`, `expand`,
//! `torch.eye`, `hstack`. Two swapped dimensions are a view; any other order is a copy here, which says that
//! it is not contiguous.

use crate::dist::arguments as take;
use crate::dist::values::TensorValue;
use crate::process::raised::runtime_error;
use crate::process::state::process;
use crate::python::numbers;
use crate::tensor::elementwise::known;
use crate::tensor::fresh::fresh;
use crate::tensor::indexing::dimension;
use crate::tensor::made::{Filled, WRITTEN_DOWN};
use crate::tensor::value::tensor;
use lockstep_core::plan::Fill;
use lockstep_torch::c10d::Tensor;
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::tuple::UnpackTuple;

/// Numbers of a call, in a list or one after the other.
pub(crate) fn numbers(args: &[Value<'_>]) -> anyhow::Result<Vec<i64>> {
    let entries = match args {
        [one] => take::items(*one).unwrap_or_else(|| vec![*one]),
        many => many.to_vec(),
    };
    entries.into_iter().map(|entry| numbers::whole(entry, "a dimension")).collect()
}

/// The dimensions in that order.
pub(crate) fn permuted(
    of: &Tensor,
    order: &[usize],
    eval: &mut Evaluator<'_, '_, '_>,
) -> anyhow::Result<TensorValue> {
    let moved = |order: &[usize]| order.iter().enumerate().any(|(at, dim)| at != *dim);
    if !moved(order) {
        return Ok(TensorValue(of.clone()));
    }
    if of.shape().len() == 2 {
        return Ok(TensorValue(of.transposed()));
    }
    let shape: Vec<u64> = order.iter().map(|dim| of.shape()[*dim]).collect();
    // Dimensions of one element may stand anywhere.
    let kept: Vec<usize> = order.iter().copied().filter(|dim| of.shape()[*dim] > 1).collect();
    if kept.is_sorted() {
        return Ok(TensorValue(of.view(&shape[..])));
    }
    let process = process(eval)?;
    let dist_fill = process.dist()?.fill_of(of);
    let alike = dist_fill.filter(|fill| !matches!(fill, Fill::Iota | Fill::Arange { .. }));
    if let Some(fill) = alike {
        let made = fresh(process, of, &shape, Filled::As(fill))?;
        return Ok(TensorValue(made.in_parts()));
    }
    let values = if of.numel() <= WRITTEN_DOWN { known(process, of)? } else { None };
    let strides: Vec<u64> =
        (0..of.shape().len()).map(|dim| of.shape()[dim + 1..].iter().product()).collect();
    let place = |mut index: u64| {
        let mut at = 0;
        for (size, dim) in shape.iter().zip(order).rev() {
            at += index % size * strides[*dim];
            index /= size;
        }
        at as usize
    };
    let made = match values {
        Some(values) => {
            let values: Vec<f64> = (0..of.numel())
                .map(|index| values.get(place(index)).copied().unwrap_or(0.0))
                .collect();
            let like = of.view(&shape[..]).in_a_row();
            crate::tensor::known_elements::made_of(process, &like, of.dtype(), &values)?
        }
        None => fresh(process, of, &shape, Filled::As(Fill::Unknown))?,
    };
    Ok(TensorValue(made.in_parts()))
}

/// Two dimensions swapped.
pub(crate) fn transposed(
    of: &Tensor,
    first: i64,
    second: i64,
    eval: &mut Evaluator<'_, '_, '_>,
) -> anyhow::Result<TensorValue> {
    let dims = of.shape().len();
    let (first, second) = (dimension(first, dims.max(1))?, dimension(second, dims.max(1))?);
    let mut order: Vec<usize> = (0..dims).collect();
    if first < dims && second < dims {
        order.swap(first, second);
    }
    permuted(of, &order, eval)
}

/// The same elements repeated: a copy here.
fn expanded(
    of: &Tensor,
    sizes: &[i64],
    eval: &mut Evaluator<'_, '_, '_>,
) -> anyhow::Result<TensorValue> {
    let skipped = sizes.len().checked_sub(of.shape().len()).ok_or_else(|| {
        runtime_error(format!(
            "expand(torch.{}{{{:?}}}, size={sizes:?}): the number of sizes provided ({}) must be \
             greater or equal to the number of dimensions in the tensor ({})",
            of.dtype(),
            of.shape(),
            sizes.len(),
            of.shape().len()
        ))
    })?;
    let mut shape = Vec::new();
    for (at, size) in sizes.iter().enumerate() {
        let own = at.checked_sub(skipped).and_then(|dim| of.shape().get(dim)).copied();
        let size = if *size < 0 { own } else { u64::try_from(*size).ok() };
        match (own, size) {
            (None | Some(1), Some(size)) => shape.push(size),
            (Some(own), Some(size)) if own == size => shape.push(size),
            (own, _) => {
                return Err(runtime_error(format!(
                    "The expanded size of the tensor ({}) must match the existing size ({}) at \
                     non-singleton dimension {at}.  Target sizes: {sizes:?}.  Tensor sizes: {:?}",
                    sizes[at],
                    own.unwrap_or(0),
                    of.shape()
                )));
            }
        }
    }
    if shape == of.shape() {
        return Ok(TensorValue(of.clone()));
    }
    let process = process(eval)?;
    let held = crate::tensor::fresh::uniform(process, of)?;
    let filled = held.map_or(Filled::As(Fill::Zeros), Filled::Number);
    let made = fresh(process, of, &shape, filled)?;
    if held.is_none() {
        crate::tensor::fresh::spread(process, of, &made)?;
    }
    Ok(TensorValue(made.in_parts()))
}

#[starlark_module]
pub(crate) fn methods(builder: &mut MethodsBuilder) {
    fn transpose<'v>(
        this: Value<'v>,
        dim0: i32,
        dim1: i32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        transposed(tensor(this)?, i64::from(dim0), i64::from(dim1), eval)
    }

    fn permute<'v>(
        this: Value<'v>,
        #[starlark(args)] dims: UnpackTuple<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let of = tensor(this)?;
        let dims = numbers(&dims.items)?;
        let count = of.shape().len();
        if dims.len() != count {
            return Err(runtime_error(format!(
                "permute(sparse_coo): number of dimensions in the tensor input does not match the \
                 length of the desired ordering of dimensions i.e. input.dim() = {count} is not \
                 equal to len(dims) = {}",
                dims.len()
            )));
        }
        let order: Vec<usize> =
            dims.iter().map(|dim| dimension(*dim, count)).collect::<anyhow::Result<_>>()?;
        let mut seen = order.clone();
        seen.sort_unstable();
        seen.dedup();
        if seen.len() != count {
            return Err(runtime_error("permute(): duplicate dims are not allowed."));
        }
        permuted(of, &order, eval)
    }

    /// The same elements repeated: a copy here.
    fn expand<'v>(
        this: Value<'v>,
        #[starlark(args)] sizes: UnpackTuple<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        expanded(tensor(this)?, &numbers(&sizes.items)?, eval)
    }

    fn expand_as<'v>(
        this: Value<'v>,
        other: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let sizes: Vec<i64> = tensor(other)?.shape().iter().map(|size| *size as i64).collect();
        expanded(tensor(this)?, &sizes, eval)
    }

    fn repeat<'v>(
        this: Value<'v>,
        #[starlark(args)] times: UnpackTuple<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let of = tensor(this)?;
        let times = numbers(&times.items)?;
        anyhow::ensure!(
            times.iter().all(|n| (0..=65536).contains(n)),
            "a tensor is repeated so often"
        );
        let skipped = times.len().checked_sub(of.shape().len()).ok_or_else(|| {
            runtime_error(
                "Number of dimensions of repeat dims can not be smaller than number of dimensions of \
                 tensor",
            )
        })?;
        let own = |at: usize| at.checked_sub(skipped).and_then(|dim| of.shape().get(dim)).copied();
        let shape: Vec<u64> = times
            .iter()
            .enumerate()
            .map(|(at, n)| own(at).unwrap_or(1).saturating_mul(*n as u64))
            .collect();
        let process = process(eval)?;
        let held = crate::tensor::fresh::uniform(process, of)?;
        let filled = held.map_or(Filled::As(Fill::Zeros), Filled::Number);
        let made = fresh(process, of, &shape, filled)?;
        crate::tensor::transposed::in_a_row(of)?;
        // Whole copies, one after the other, lie in a row.
        let rows = of.shape().len() <= 1 || times.iter().skip(1).all(|n| *n == 1);
        if held.is_none() && rows && of.numel() > 0 && made.numel() / of.numel() <= 256 {
            let flat = made.view(made.numel());
            for nth in 0..made.numel() / of.numel() {
                let from = of.view(of.numel());
                process.dist()?.copy_tensor(&from, &flat.narrow(nth * of.numel(), of.numel()));
            }
        } else if held.is_none() && made.numel() > 0 {
            process.dist()?.not_followed(&made);
        }
        Ok(TensorValue(made))
    }
}
