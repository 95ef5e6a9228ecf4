//! `sum`, `mean`, `max` and the like of tensors, what is computed element by element, and comparisons:
//! values where every element is known and PyTorch's answer follows from them to the last bit, and else
//! a shape.

use super::arguments as take;
use super::elements::{held, made_of};
use super::module_value::OutputValue;
use super::operation::{exact_sum, rounded};
use super::process::{Process, process};
use super::tensor_math::fresh;
use super::tensor_parts::{dimension, runtime_error};
use super::tensor_value::tensor;
use super::torch::{Filled, WRITTEN_DOWN};
use super::undecided::Unknown;
use super::values::TensorValue;
use crate::c10d::Tensor;
use crate::dtype::Dtype;
use crate::plan::Fill;
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::list::AllocList;
use starlark::values::none::NoneType;
use starlark::values::tuple::AllocTuple;
use starlark::values::{Heap, Value, ValueLike};

/// What is made of several elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fold {
    Sum,
    Mean,
    Prod,
    Max,
    Min,
    ArgMax,
    ArgMin,
    All,
    Any,
}

impl Fold {
    /// The type of the result.
    fn dtype(self, of: Dtype) -> anyhow::Result<Dtype> {
        let whole = !of.is_float() && !of.is_complex();
        Ok(match self {
            Fold::Sum | Fold::Prod if whole => Dtype::Int64,
            Fold::ArgMax | Fold::ArgMin => Dtype::Int64,
            Fold::All | Fold::Any => Dtype::Bool,
            Fold::Mean if whole => {
                return Err(runtime_error(format!(
                    "mean(): could not infer output dtype. Input dtype must be either a floating \
                     point or complex dtype. Got: {}",
                    of.scalar_type()
                )));
            }
            _ => of,
        })
    }

    /// The element that comes of those, in a result of that type; `None` where its last bit is not known.
    fn of(self, dtype: Dtype, values: &[f64]) -> Option<f64> {
        let best = |better: fn(f64, f64) -> bool| {
            let nan = values.iter().position(|value| value.is_nan());
            let first = |at: usize, (nth, value): (usize, &f64)| {
                if better(*value, *values.get(at).unwrap_or(value)) { nth } else { at }
            };
            nan.unwrap_or_else(|| values.iter().enumerate().fold(0, first))
        };
        let (max, min) = (|| best(|a, b| a > b), || best(|a, b| a < b));
        let at = |nth: usize| values.get(nth).copied();
        match self {
            Fold::Sum => exact_sum(dtype, values),
            Fold::Mean if matches!(dtype, Dtype::Float32 | Dtype::Float64) => {
                Some(exact_sum(dtype, values)? / values.len() as f64)
            }
            Fold::Mean => None,
            Fold::Prod if matches!(dtype, Dtype::Float16 | Dtype::Bfloat16) => None,
            Fold::Prod => values.iter().try_fold(1.0, |product, value| {
                let next = product * value;
                let exact = libm::floor(next) == next && next.abs() < 2048.0;
                exact.then_some(next)
            }),
            Fold::Max => at(max()),
            Fold::Min => at(min()),
            Fold::ArgMax => Some(max() as f64),
            Fold::ArgMin => Some(min() as f64),
            Fold::All => Some(f64::from(u8::from(values.iter().all(|value| *value != 0.0)))),
            Fold::Any => Some(f64::from(u8::from(values.iter().any(|value| *value != 0.0)))),
        }
    }
}

/// Whether the random numbers of this process may have come into a tensor: they are others than
/// PyTorch's, so that nothing that can be read is computed of them.
fn made_up(process: &mut Process<'_>, of: &Tensor) -> anyhow::Result<bool> {
    let fill = process.dist()?.fill_of(of);
    Ok(match fill {
        Some(Fill::Seeded { .. }) => true,
        Some(_) => false,
        None => process.random,
    })
}

/// A tensor's elements as PyTorch has them, row by row, where that is known.
pub(super) fn known(process: &mut Process<'_>, of: &Tensor) -> anyhow::Result<Option<Vec<f64>>> {
    if made_up(process, of)? {
        return Ok(None);
    }
    held(process, of)
}

/// A tensor of those elements on the same device, or one of which only the shape is known.
fn made(
    process: &mut Process<'_>,
    like: &Tensor,
    dtype: Dtype,
    shape: &[u64],
    values: Option<Vec<f64>>,
) -> anyhow::Result<TensorValue> {
    let like = Tensor::nothing(like.device()).on_device(like.device_index()).to_be_made(0, dtype, shape);
    if let Some(values) = values.filter(|values| values.len() as u64 <= WRITTEN_DOWN) {
        let first = values.first().copied().unwrap_or(0.0);
        let alike = first.to_bits() != (-0.0_f64).to_bits()
            && values.iter().all(|value| value.to_bits() == first.to_bits());
        return Ok(TensorValue(match alike && !values.is_empty() {
            true => fresh(process, &like, shape, Filled::Number(first))?,
            false => made_of(process, &like, dtype, &values)?,
        }));
    }
    let made = fresh(process, &like, shape, Filled::As(Fill::Zeros))?;
    if made.numel() > 0 {
        process.dist()?.not_followed(&made, "what is computed here is not followed");
    }
    Ok(TensorValue(made))
}

/// The dimensions that are meant: all where none is named.
fn dims_of(dim: Value<'_>, dims: usize) -> anyhow::Result<Vec<usize>> {
    let entries = match take::items(dim) {
        Some(entries) if entries.is_empty() => return Ok((0..dims).collect()),
        Some(entries) => entries,
        None if dim.is_none() => return Ok((0..dims).collect()),
        None => vec![dim],
    };
    // A tensor without dimensions has one, as far as that goes.
    let of = |dim: Value<'_>| dimension(take::whole(dim, "dim")?, dims.max(1));
    let mut found: Vec<usize> = entries.into_iter().map(of).collect::<anyhow::Result<_>>()?;
    found.sort_unstable();
    found.retain(|dim| *dim < dims);
    Ok(found)
}

/// For each element of what is left, the elements that it comes of, by their places.
fn places(shape: &[u64], over: &[usize]) -> Vec<Vec<usize>> {
    let numel: u64 = shape.iter().product();
    let left = shape.iter().enumerate().filter(|(dim, _)| !over.contains(dim));
    let count: u64 = left.map(|(_, size)| *size).product();
    let mut groups = vec![Vec::new(); count as usize];
    for index in 0..numel {
        let (mut rest, mut group, mut stride) = (index, 0, 1);
        for (dim, size) in shape.iter().enumerate().rev() {
            let nth = rest % size;
            rest /= size;
            if !over.contains(&dim) {
                group += nth * stride;
                stride *= size;
            }
        }
        if let Some(group) = groups.get_mut(group as usize) {
            group.push(index as usize);
        }
    }
    groups
}

fn folded<'v>(
    fold: Fold,
    of: Value<'v>,
    dim: Value<'v>,
    keepdim: bool,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    if let Some(output) = of.downcast_ref::<OutputValue>() {
        return Ok(heap.alloc(output.clone()));
    }
    let of = tensor(of)?;
    let dtype = fold.dtype(of.dtype())?;
    let over = dims_of(dim, of.shape().len())?;
    let shape: Vec<u64> = of
        .shape()
        .iter()
        .enumerate()
        .filter(|(dim, _)| keepdim || !over.contains(dim))
        .map(|(dim, size)| if over.contains(&dim) { 1 } else { *size })
        .collect();
    let picks = matches!(fold, Fold::Max | Fold::Min | Fold::ArgMax | Fold::ArgMin);
    let none = over.iter().any(|dim| of.shape().get(*dim) == Some(&0));
    if none && (picks || fold == Fold::Mean) {
        let name = format!("{fold:?}").to_lowercase();
        anyhow::ensure!(!picks, "{name}() of a tensor without elements");
    }
    let process = process(eval)?;
    let values = known(process, of)?.and_then(|values| {
        let groups = places(of.shape(), &over);
        let each = |group: &Vec<usize>| {
            let values: Option<Vec<f64>> = group.iter().map(|at| values.get(*at).copied()).collect();
            fold.of(dtype, &values?)
        };
        groups.iter().map(each).collect()
    });
    Ok(heap.alloc(made(process, of, dtype, &shape, values)?))
}

/// `x.max(dim)`: values and where they are.
fn best<'v>(
    folds: [Fold; 2],
    of: Value<'v>,
    dim: Value<'v>,
    keepdim: bool,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    if dim.is_none() {
        return folded(folds[0], of, dim, false, eval);
    }
    if tensor(dim).is_ok() {
        let fold = folds[0];
        return pairwise(of, dim, None, eval, |a, b| {
            let first = if fold == Fold::Max { a >= b } else { a <= b };
            Some(if a.is_nan() || (first && !b.is_nan()) { a } else { b })
        });
    }
    let both = [folded(folds[0], of, dim, keepdim, eval)?, folded(folds[1], of, dim, keepdim, eval)?];
    Ok(eval.heap().alloc(AllocTuple(both)))
}

/// Every element for itself.
fn each<'v>(
    of: Value<'v>,
    dtype: Option<Dtype>,
    eval: &mut Evaluator<'v, '_, '_>,
    with: impl Fn(f64) -> Option<f64>,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    if let Some(output) = of.downcast_ref::<OutputValue>() {
        return Ok(heap.alloc(output.clone()));
    }
    let of = tensor(of)?;
    let process = process(eval)?;
    let values = known(process, of)?;
    let values = values.and_then(|values| values.into_iter().map(with).collect());
    let made = made(process, of, dtype.unwrap_or(of.dtype()), of.shape(), values)?;
    Ok(heap.alloc(made))
}

/// A float of every element, of which whole numbers make float32.
fn float_of_each<'v>(
    of: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
    with: impl Fn(f64) -> Option<f64>,
) -> anyhow::Result<Value<'v>> {
    let whole = tensor(of).is_ok_and(|of| !of.dtype().is_float() && !of.dtype().is_complex());
    each(of, whole.then_some(Dtype::Float32), eval, with)
}

/// Two tensors of one shape, or a tensor and a number, element by element.
fn pairwise<'v>(
    of: Value<'v>,
    other: Value<'v>,
    dtype: Option<Dtype>,
    eval: &mut Evaluator<'v, '_, '_>,
    with: impl Fn(f64, f64) -> Option<f64>,
) -> anyhow::Result<Value<'v>> {
    let Ok(right) = tensor(other) else {
        if let Some(output) = other.downcast_ref::<OutputValue>() {
            return Ok(eval.heap().alloc(output.clone()));
        }
        let number = take::number(other, "what a tensor is compared with")?;
        let own = tensor(of).map(Tensor::dtype).unwrap_or(Dtype::Float64);
        let number = if own.is_float() { rounded(own, number).unwrap_or(number) } else { number };
        return each(of, dtype, eval, |value| with(value, number));
    };
    let of = tensor(of)?;
    let shape = super::promotion::broadcast(of.shape(), right.shape())?;
    let process = process(eval)?;
    let known = match (of.shape() == right.shape(), known(process, of)?, known(process, right)?) {
        (true, Some(a), Some(b)) => a.iter().zip(&b).map(|(a, b)| with(*a, *b)).collect(),
        _ => None,
    };
    let dtype = dtype.unwrap_or_else(|| super::promotion::promote(of.dtype(), right.dtype()));
    let made = made(process, of, dtype, &shape, known)?;
    Ok(eval.heap().alloc(made))
}

fn yes(value: bool) -> Option<f64> {
    Some(f64::from(u8::from(value)))
}

/// An element as a number of Python's.
fn python<'v>(dtype: Dtype, value: f64, heap: Heap<'v>) -> Value<'v> {
    match dtype {
        Dtype::Bool => Value::new_bool(value != 0.0),
        dtype if dtype.is_float() => heap.alloc(value),
        _ => heap.alloc(value as i64),
    }
}

/// `x.item()`, where the element is known.
pub(super) fn item<'v>(
    of: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    let of = tensor(of)?;
    if of.numel() != 1 {
        return Err(runtime_error(format!(
            "a Tensor with {} elements cannot be converted to Scalar",
            of.numel()
        )));
    }
    let process = process(eval)?;
    Ok(match known(process, of)?.and_then(|values| values.first().copied()) {
        Some(value) => python(of.dtype(), value, heap),
        None => heap.alloc(process.unknown(Unknown::Value)),
    })
}

/// `x.tolist()`, where the elements are known.
fn listed<'v>(of: &Tensor, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
    fn nested<'v>(shape: &[u64], values: &[Value<'v>], heap: Heap<'v>) -> Value<'v> {
        let [size, inner @ ..] = shape else {
            return values.first().copied().unwrap_or_else(Value::new_none);
        };
        let each = inner.iter().product::<u64>() as usize;
        let part = |nth: u64| {
            let at = nth as usize * each;
            nested(inner, values.get(at..at + each).unwrap_or_default(), heap)
        };
        heap.alloc(AllocList((0..*size).map(part)))
    }
    let heap = eval.heap();
    let process = process(eval)?;
    Ok(match known(process, of)? {
        Some(values) => {
            let values: Vec<Value<'v>> =
                values.into_iter().map(|value| python(of.dtype(), value, heap)).collect();
            nested(of.shape(), &values, heap)
        }
        None => heap.alloc(process.unknown(Unknown::Value)),
    })
}

/// Whether two tensors hold the same, or nearly.
fn alike<'v>(
    a: Value<'v>,
    b: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
    near: impl Fn(f64, f64) -> bool,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    let (a, b) = (tensor(a)?, tensor(b)?);
    if a.shape() != b.shape() {
        return Ok(Value::new_bool(false));
    }
    let process = process(eval)?;
    Ok(match (known(process, a)?, known(process, b)?) {
        (Some(a), Some(b)) => Value::new_bool(a.iter().zip(&b).all(|(a, b)| near(*a, *b))),
        _ => heap.alloc(process.unknown(Unknown::Value)),
    })
}

/// Methods of tensors, and functions of `torch`'s.
#[starlark_module]
pub(super) fn methods(builder: &mut MethodsBuilder) {
    fn sum<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        folded(Fold::Sum, this, dim, keepdim, eval)
    }

    fn mean<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        folded(Fold::Mean, this, dim, keepdim, eval)
    }

    fn prod<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        folded(Fold::Prod, this, dim, keepdim, eval)
    }

    fn max<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        best([Fold::Max, Fold::ArgMax], this, dim, keepdim, eval)
    }

    fn min<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        best([Fold::Min, Fold::ArgMin], this, dim, keepdim, eval)
    }

    fn argmax<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        folded(Fold::ArgMax, this, dim, keepdim, eval)
    }

    fn argmin<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        folded(Fold::ArgMin, this, dim, keepdim, eval)
    }

    fn all<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        folded(Fold::All, this, dim, keepdim, eval)
    }

    fn any<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        folded(Fold::Any, this, dim, keepdim, eval)
    }

    fn abs<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        each(this, None, eval, |value| Some(value.abs()))
    }

    fn neg<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        this.minus(heap).map_err(starlark::Error::into_anyhow)
    }

    fn sqrt<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        float_of_each(this, eval, |value| Some(libm::sqrt(value)))
    }

    fn square<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        each(this, None, eval, |value| Some(value * value))
    }

    fn relu<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        each(this, None, eval, |value| (!value.is_nan()).then(|| value.max(0.0)))
    }

    /// What follows is known by its shape alone.
    fn exp<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        float_of_each(this, eval, |_| None)
    }

    fn log<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        float_of_each(this, eval, |_| None)
    }

    fn sin<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        float_of_each(this, eval, |_| None)
    }

    fn cos<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        float_of_each(this, eval, |_| None)
    }

    fn tanh<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        float_of_each(this, eval, |_| None)
    }

    fn sigmoid<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        float_of_each(this, eval, |_| None)
    }

    fn softmax<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = dim;
        float_of_each(this, eval, |_| None)
    }

    fn clamp<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] min: Value<'v>,
        #[starlark(default = NoneType)] max: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let of = |bound: Value<'v>, none| match bound.is_none() {
            true => Ok(none),
            false => take::number(bound, "a bound of clamp"),
        };
        let (low, high) = (of(min, f64::NEG_INFINITY)?, of(max, f64::INFINITY)?);
        let whole = tensor(this).is_ok_and(|of| !of.dtype().is_float());
        anyhow::ensure!(
            !whole || [low, high].iter().all(|b| b.is_infinite() || libm::floor(*b) == *b),
            "whole numbers are clamped between whole numbers here"
        );
        each(this, None, eval, |value| (!value.is_nan()).then(|| value.max(low).min(high)))
    }

    fn pow<'v>(
        this: Value<'v>,
        exponent: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        super::tensor_value::power(this, exponent, heap)
    }

    fn add<'v>(
        this: Value<'v>,
        other: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        this.add(other, heap)
    }

    fn sub<'v>(
        this: Value<'v>,
        other: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        this.sub(other, heap)
    }

    fn mul<'v>(
        this: Value<'v>,
        other: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        this.mul(other, heap)
    }

    fn div<'v>(
        this: Value<'v>,
        other: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        this.div(other, heap)
    }

    fn eq<'v>(
        this: Value<'v>,
        other: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        pairwise(this, other, Some(Dtype::Bool), eval, |a, b| yes(a == b))
    }

    fn ne<'v>(
        this: Value<'v>,
        other: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        pairwise(this, other, Some(Dtype::Bool), eval, |a, b| yes(a != b))
    }

    fn gt<'v>(
        this: Value<'v>,
        other: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        pairwise(this, other, Some(Dtype::Bool), eval, |a, b| yes(a > b))
    }

    fn lt<'v>(
        this: Value<'v>,
        other: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        pairwise(this, other, Some(Dtype::Bool), eval, |a, b| yes(a < b))
    }

    fn equal<'v>(
        this: Value<'v>,
        other: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        alike(this, other, eval, |a, b| a == b)
    }

    fn allclose<'v>(
        this: Value<'v>,
        other: Value<'v>,
        #[starlark(default = NoneType)] rtol: Value<'v>,
        #[starlark(default = NoneType)] atol: Value<'v>,
        #[starlark(default = false)] equal_nan: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let of = |given: Value<'v>, none: f64| match given.is_none() {
            true => Ok(none),
            false => take::number(given, "a tolerance"),
        };
        let (rtol, atol) = (of(rtol, 1e-5)?, of(atol, 1e-8)?);
        alike(this, other, eval, |a, b| {
            a == b || (a - b).abs() <= atol + rtol * b.abs() || (equal_nan && a.is_nan() && b.is_nan())
        })
    }

    fn tolist<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        listed(tensor(this)?, eval)
    }

    fn item<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        self::item(this, eval)
    }
}
