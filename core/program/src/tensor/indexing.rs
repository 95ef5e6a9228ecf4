//! Parts of a tensor (`x[1:3, 0]`, `x.chunk(2, dim=1)`, `x.unbind()`), and tensors of written-down values
//! (`torch.tensor([[1, 2], [3, 4]])`).
//!
//! A contiguous part is a view, as in PyTorch. Any other part is a copy here: if a call writes into it, the
//! whole tensor does not change.

use crate::dist::arguments as take;
use crate::dist::values::TensorValue;
use crate::process::raised::{refused, runtime_error};
use crate::process::undecided::{Number, UnknownValue};
use crate::python::float::float_of;
use crate::python::numbers;
use crate::python::type_error::type_error;
use crate::tensor::deferred::{every, part};
use crate::tensor::made::{Filled, On, WRITTEN_DOWN, filled_tensor, sizes, written_down};
use crate::tensor::transposed::in_a_row;
use crate::tensor::value::tensor;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::{Fill, Real};
use lockstep_torch::c10d::{Device, DistError, ErrorKind, Tensor};
use starlark::eval::Evaluator;
use starlark::values::tuple::{AllocTuple, TupleRef};
use starlark::values::{Heap, Value, ValueLike};

/// The mark of a tuple that is a slice: `_slice(1, 3, None)`.
pub(crate) const SLICE: &str = "\u{0}slice";

fn index_error(text: String) -> anyhow::Error {
    refused(DistError::new(ErrorKind::IndexError, text))
}

/// The dimension that is meant, of so many.
pub(crate) fn dimension(dim: i64, dims: usize) -> anyhow::Result<usize> {
    let at = if dim < 0 { dim + dims as i64 } else { dim };
    let found = usize::try_from(at).ok().filter(|at| *at < dims);
    found.ok_or_else(|| {
        index_error(format!(
            "Dimension out of range (expected to be in range of [-{dims}, {}], but got {dim})",
            dims.saturating_sub(1)
        ))
    })
}

/// A start or an end of a slice, in rows.
fn bound(value: Value<'_>, none: i64, rows: i64) -> anyhow::Result<i64> {
    if value.is_none() {
        return Ok(none);
    }
    let at = numbers::whole(value, "an index of a tensor")?;
    Ok(if at < 0 { at + rows } else { at }.clamp(0, rows))
}

/// `tensor[start:stop]` along a dimension.
pub(crate) fn sliced(
    of: &Tensor,
    dim: usize,
    start: Value<'_>,
    stop: Value<'_>,
) -> anyhow::Result<Tensor> {
    let rows = of.shape().get(dim).copied().unwrap_or(1) as i64;
    let (from, to) = (bound(start, 0, rows)?, bound(stop, rows, rows)?);
    Ok(part(of, dim, from as u64, (to - from).max(0) as u64))
}

/// `tensor[::step]` along a dimension.
pub(crate) fn stepped(of: &Tensor, dim: usize, step: Value<'_>) -> anyhow::Result<Tensor> {
    if step.is_none() || step.unpack_i32() == Some(1) {
        return Ok(of.clone());
    }
    let step = numbers::whole(step, "a step of a slice")?;
    let Some(step) = u64::try_from(step).ok().filter(|step| *step > 0) else {
        let text = match step {
            0 => "slice step cannot be zero",
            _ => "step must be greater than zero",
        };
        return Err(refused(DistError::new(ErrorKind::ValueError, text)));
    };
    anyhow::ensure!(dim == 0, "steps are taken along the first dimension only here");
    Ok(every(of, step))
}

/// The element or row of a number along a dimension.
fn taken(of: &Tensor, dim: usize, index: i64) -> anyhow::Result<Tensor> {
    let Some(rows) = of.shape().get(dim).copied() else {
        return Err(index_error(match dim {
            0 => "invalid index of a 0-dim tensor. Use `tensor.item()` in Python or \
                  `tensor.item<T>()` in C++ to convert a 0-dim tensor to a number"
                .to_owned(),
            _ => format!("too many indices for tensor of dimension {dim}"),
        }));
    };
    let at = if index < 0 { index + rows as i64 } else { index };
    let at = u64::try_from(at).ok().filter(|at| *at < rows).ok_or_else(|| {
        index_error(format!("index {index} is out of bounds for dimension {dim} with size {rows}"))
    })?;
    let one = part(of, dim, at, 1);
    let mut shape = one.shape().to_vec();
    shape.remove(dim);
    Ok(one.view(&shape[..]))
}

/// `tensor[index]`: a number, a slice, `None`, or several of them.
pub(crate) fn at(of: &Tensor, index: Value<'_>) -> anyhow::Result<Tensor> {
    in_a_row(of)?;
    let items: Vec<Value<'_>> = match TupleRef::from_value(index) {
        Some(tuple) if slice_of(index).is_none() => tuple.content().to_vec(),
        _ => vec![index],
    };
    let mut found = of.clone();
    let mut dim = 0;
    for item in items {
        if item.is_none() {
            let mut shape = found.shape().to_vec();
            shape.insert(dim.min(shape.len()), 1);
            found = found.view(&shape[..]);
            dim += 1;
        } else if let Some([start, stop, step]) = slice_of(item) {
            if dim >= found.shape().len() {
                return Err(index_error(format!("too many indices for tensor of dimension {dim}")));
            }
            found = stepped(&sliced(&found, dim, start, stop)?, dim, step)?;
            dim += 1;
        } else {
            found = taken(&found, dim, numbers::whole(item, "an index of a tensor")?)?;
        }
    }
    Ok(found)
}

fn slice_of(value: Value<'_>) -> Option<[Value<'_>; 3]> {
    match TupleRef::from_value(value)?.content() {
        [mark, start, stop, step] if mark.unpack_str() == Some(SLICE) => {
            Some([*start, *stop, *step])
        }
        _ => None,
    }
}

/// The parts of a tensor along a dimension, of so many rows each.
pub(crate) fn split_rows<'v>(
    whole: &Tensor,
    rows: &[u64],
    dim: usize,
    heap: Heap<'v>,
) -> anyhow::Result<Value<'v>> {
    in_a_row(whole)?;
    let all = whole.shape().get(dim).copied().unwrap_or(0);
    let total = rows.iter().fold(0_u64, |sum, rows| sum.saturating_add(*rows));
    if total != all {
        return Err(runtime_error(format!(
            "split_with_sizes expects split_sizes to sum exactly to {all} (input tensor's size at \
             dimension {dim}), but got split_sizes={rows:?}"
        )));
    }
    let mut at = 0;
    let parts = rows.iter().map(|rows| {
        let one = part(whole, dim, at, *rows);
        at += *rows;
        TensorValue(one)
    });
    let parts: Vec<TensorValue> = parts.collect();
    Ok(heap.alloc(AllocTuple(parts)))
}

/// `tensor.split(size, dim)` and `torch.split(tensor, [1, 2], dim)`.
pub(crate) fn split<'v>(
    this: Value<'v>,
    size: Value<'v>,
    dim: i64,
    heap: Heap<'v>,
) -> anyhow::Result<Value<'v>> {
    let whole = tensor(this)?;
    let dim = dimension(dim, whole.shape().len())?;
    if take::items(size).is_some() {
        let rows = take::counts(size, "split_size_or_sections", heap)?.unwrap_or_default();
        return split_rows(whole, &rows, dim, heap);
    }
    let all = whole.shape().get(dim).copied().unwrap_or(0);
    let each = numbers::whole(size, "split_size")?;
    let each = u64::try_from(each).map_err(|_| {
        runtime_error(format!(
            "split expects split_size be non-negative, but got split_size={each}"
        ))
    })?;
    if each == 0 {
        return Err(runtime_error(format!(
            "split_size can only be 0 if dimension size is 0, but got dimension size of {all}"
        )));
    }
    anyhow::ensure!(all / each <= 65536, "a tensor is split into at most 65536 parts");
    let rows: Vec<u64> = (0..all.div_ceil(each)).map(|at| each.min(all - at * each)).collect();
    split_rows(whole, &rows, dim, heap)
}

/// `tensor.chunk(chunks, dim)`: of `ceil(rows / chunks)` rows each; the last may be smaller, and there
/// may be fewer.
pub(crate) fn chunk<'v>(
    this: Value<'v>,
    chunks: i64,
    dim: i64,
    heap: Heap<'v>,
) -> anyhow::Result<Value<'v>> {
    let whole = tensor(this)?;
    if chunks < 1 {
        return Err(runtime_error(format!(
            "chunk expects `chunks` to be greater than 0, got: {chunks}"
        )));
    }
    let dim = dimension(dim, whole.shape().len())?;
    let all = whole.shape().get(dim).copied().unwrap_or(0);
    let each = all.div_ceil(chunks as u64).max(1);
    anyhow::ensure!(all / each <= 65536, "a tensor is cut into at most 65536 chunks");
    let rows: Vec<u64> =
        (0..all.div_ceil(each).max(1)).map(|at| each.min(all - at * each)).collect();
    split_rows(whole, &rows, dim, heap)
}

/// `tensor.unbind(dim)`: the rows, each without the dimension.
pub(crate) fn unbind<'v>(this: Value<'v>, dim: i64, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    let whole = tensor(this)?;
    in_a_row(whole)?;
    let dim = dimension(dim, whole.shape().len())?;
    let rows = whole.shape().get(dim).copied().unwrap_or(0);
    anyhow::ensure!(rows <= 65536, "a tensor is cut into at most 65536 parts");
    let parts: anyhow::Result<Vec<TensorValue>> =
        (0..rows as i64).map(|row| taken(whole, dim, row).map(TensorValue)).collect();
    Ok(heap.alloc(AllocTuple(parts?)))
}

/// The values of nested lists, and their shape.
#[derive(Default)]
struct Data {
    shape: Vec<u64>,
    values: Vec<f64>,
    count: u64,
    float: bool,
    whole: bool,
    /// True if one of the values is known only when the program runs.
    unknown: bool,
}

impl Data {
    fn take<'v>(
        &mut self,
        value: Value<'v>,
        depth: usize,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<()> {
        if let Some(items) = take::items(value) {
            let length = items.len() as u64;
            match self.shape.get(depth) {
                None if self.count == 0 => self.shape.push(length),
                Some(known) if *known == length => {}
                Some(known) => {
                    return Err(refused(DistError::new(
                        ErrorKind::ValueError,
                        format!(
                            "expected sequence of length {known} at dim {depth} (got {length})"
                        ),
                    )));
                }
                None => return Err(anyhow::anyhow!("the lists of a tensor are of one depth")),
            }
            return items.into_iter().try_for_each(|item| self.take(item, depth + 1, eval));
        }
        self.count += 1;
        let value = match tensor(value) {
            Ok(_) => crate::tensor::elementwise::item(value, eval)?,
            Err(_) => value,
        };
        if let Some(number) = value.downcast_ref::<UnknownValue>().and_then(UnknownValue::number) {
            self.unknown = true;
            self.float |= number == Number::Real;
            self.whole |= number == Number::Whole;
            return Ok(());
        }
        let number = match (value.unpack_bool(), float_of(value)) {
            (Some(yes), _) => f64::from(u8::from(yes)),
            (None, Some(float)) => {
                self.float = true;
                float
            }
            (None, None) => {
                self.whole = true;
                numbers::whole(value, "a tensor's value")? as f64
            }
        };
        if self.count <= WRITTEN_DOWN {
            self.values.push(number);
        }
        Ok(())
    }
}

/// `torch.tensor(data)`.
pub(crate) fn of_data<'v>(
    eval: &mut Evaluator<'v, '_, '_>,
    value: Value<'v>,
    dtype: Value<'v>,
    on: On,
) -> anyhow::Result<TensorValue> {
    if let Ok(from) = tensor(value) {
        let from = from.clone();
        let to = (from.device(), from.device_index());
        let dtype = take::dtype(dtype, from.dtype())?;
        return crate::tensor::converted::make_as(eval, &from, to, dtype);
    }
    let mut data = Data::default();
    data.take(value, 0, eval)?;
    let inferred = match (data.count == 0 || data.float, data.whole) {
        (true, _) => Dtype::Float32,
        (false, true) => Dtype::Int64,
        (false, false) => Dtype::Bool,
    };
    let dtype = take::dtype(dtype, inferred)?;
    if data.unknown {
        return filled_tensor(eval, &data.shape, dtype, Filled::As(Fill::Unknown), on, None);
    }
    let first = data.values.first().copied().unwrap_or(0.0);
    let alike = data.values.iter().all(|value| *value == first);
    if alike && data.count <= WRITTEN_DOWN {
        return filled_tensor(eval, &data.shape, dtype, Filled::Number(first), on, None);
    }
    let made = written_down(eval, &data.shape, dtype, &data.values, on)?;
    if data.count > WRITTEN_DOWN {
        crate::process::state::process(eval)?.dist()?.not_followed(&made.0);
    }
    Ok(made)
}

/// `torch.LongTensor([1, 2])`, and `torch.LongTensor(2)`, which holds two elements.
pub(crate) fn of_class<'v>(
    eval: &mut Evaluator<'v, '_, '_>,
    value: Value<'v>,
    dtype: Dtype,
) -> anyhow::Result<TensorValue> {
    let on = On::Device(Device::Cpu, None);
    if take::items(value).is_none() {
        let zeros = Filled::As(Fill::Zeros);
        return filled_tensor(eval, &sizes(value)?, dtype, zeros, on, None);
    }
    let dtype = eval.heap().alloc(crate::dist::values::DtypeValue(dtype));
    of_data(eval, value, dtype, on)
}

/// `torch.arange(end)`, `torch.arange(start, end, step)`.
pub(crate) fn arange<'v>(
    eval: &mut Evaluator<'v, '_, '_>,
    bounds: &[Value<'v>],
    dtype: Value<'v>,
    on: On,
) -> anyhow::Result<TensorValue> {
    let number = |value: &Value<'v>| numbers::number(*value, "a bound of arange");
    let (start, end, step) = match bounds {
        [end] => (0.0, number(end)?, 1.0),
        [start, end] => (number(start)?, number(end)?, 1.0),
        [start, end, step] => (number(start)?, number(end)?, number(step)?),
        _ => {
            return Err(type_error("arange() takes an end, or a start, an end and a step"));
        }
    };
    if step == 0.0 {
        return Err(runtime_error("step must be nonzero"));
    }
    let count = ((end - start) / step).ceil();
    if count < 0.0 {
        return Err(runtime_error("upper bound and lower bound inconsistent with step sign"));
    }
    let whole = bounds.iter().all(|bound| bound.get_type() == "int");
    let dtype = take::dtype(dtype, if whole { Dtype::Int64 } else { Dtype::Float32 })?;
    let count = count as u64;
    let real = |value: f64| match dtype.is_float() {
        true => Real::new(value),
        false => Real::new(value.trunc()),
    };
    let Some((start, step)) = real(start).zip(real(step)) else {
        return Err(runtime_error("unsupported range: its bounds are finite"));
    };
    let filled = Filled::As(Fill::Arange { start, step });
    filled_tensor(eval, &[count], dtype, filled, on, None)
}
