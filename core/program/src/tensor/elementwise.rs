//! Operations on tensors element by element, comparisons, and numbers and lists of a tensor's
//! elements: where every element is known and PyTorch's answer follows from them to the last bit.

use crate::dist::values::TensorValue;
use crate::nn::output::OutputValue;
use crate::process::grad_mode;
use crate::process::raised::runtime_error;
use crate::process::state::{Process, process};
use crate::process::undecided::{Number, Unknown, UnknownValue};
use crate::python::numbers;
use crate::tensor::element_operation::rounded;
use crate::tensor::fresh::fresh;
use crate::tensor::graph::joined;
use crate::tensor::known_elements::{held, made_of};
use crate::tensor::made::{Filled, WRITTEN_DOWN};
use crate::tensor::value::tensor;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::Fill;
use lockstep_torch::c10d::{Device, Tensor};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::dict::UnpackDictEntries;
use starlark::values::list::AllocList;
use starlark::values::none::NoneType;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{Heap, Value, ValueLike};

/// True if a tensor may contain random numbers of this process. They differ from PyTorch's, so no value that
/// the program can read is computed from them.
fn made_up(process: &mut Process<'_>, of: &Tensor) -> anyhow::Result<bool> {
    let fill = process.dist()?.fill_of(of);
    Ok(match fill {
        Some(Fill::Seeded { .. }) => true,
        Some(_) => false,
        None => process.random,
    })
}

/// A tensor's elements as PyTorch has them, row by row, where that is known.
pub(crate) fn known(process: &mut Process<'_>, of: &Tensor) -> anyhow::Result<Option<Vec<f64>>> {
    if made_up(process, of)? {
        return Ok(None);
    }
    held(process, of)
}

/// A tensor of those elements on the same device, or one of which only the shape is known.
pub(crate) fn made(
    process: &mut Process<'_>,
    like: &Tensor,
    dtype: Dtype,
    shape: &[u64],
    values: Option<Vec<f64>>,
) -> anyhow::Result<TensorValue> {
    let grad_fn = joined([like]).filter(|_| dtype.is_float());
    if grad_fn.is_some() {
        grad_mode::saves()?;
    }
    let like =
        Tensor::nothing(like.device()).on_device(like.device_index()).to_be_made(0, dtype, shape);
    if let Some(values) = values.filter(|values| values.len() as u64 <= WRITTEN_DOWN) {
        let first = values.first().copied().unwrap_or(0.0);
        let alike = first.to_bits() != (-0.0_f64).to_bits()
            && values.iter().all(|value| value.to_bits() == first.to_bits());
        return Ok(TensorValue(match alike && !values.is_empty() {
            true => fresh(process, &like, shape, Filled::Number(first))?,
            false => made_of(process, &like, dtype, &values)?,
        }));
    }
    let made = fresh(process, &like, shape, Filled::As(Fill::Unknown))?;
    Ok(TensorValue(made.with_grad_fn(grad_fn)))
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
        return Ok(heap.alloc(output.as_type(dtype)));
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

/// A tensor whose elements become random numbers. Those of a parameter are not followed in any case.
fn randomized<'v>(of: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
    let into = tensor(of)?;
    if crate::nn::parameter::parameter_of(into).is_none() {
        let process = process(eval)?;
        process.random = true;
        process.dist()?.not_followed(into);
    }
    Ok(of)
}

/// A tensor of the same shape, of which nothing else is followed.
pub(crate) fn like_it<'v>(
    of: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    each(of, None, eval, |_| None)
}

/// Two tensors of one shape, or a tensor and a number, element by element.
pub(crate) fn pairwise<'v>(
    of: Value<'v>,
    other: Value<'v>,
    dtype: Option<Dtype>,
    eval: &mut Evaluator<'v, '_, '_>,
    with: impl Fn(f64, f64) -> Option<f64>,
) -> anyhow::Result<Value<'v>> {
    let Ok(right) = tensor(other) else {
        if let Some(output) = other.downcast_ref::<OutputValue>() {
            return Ok(eval.heap().alloc(output.as_type(dtype)));
        }
        if other.downcast_ref::<UnknownValue>().is_some_and(UnknownValue::is_value) {
            return each(of, dtype, eval, |_| None);
        }
        let number = numbers::number(other, "what a tensor is compared with")?;
        let own = tensor(of).map(Tensor::dtype).unwrap_or(Dtype::Float64);
        let number = if own.is_float() { rounded(own, number).unwrap_or(number) } else { number };
        return each(of, dtype, eval, |value| with(value, number));
    };
    let of = tensor(of)?;
    let shape = crate::tensor::promotion::broadcast(of.shape(), right.shape())?;
    let process = process(eval)?;
    let known = match (of.shape() == right.shape(), known(process, of)?, known(process, right)?) {
        (true, Some(a), Some(b)) => a.iter().zip(&b).map(|(a, b)| with(*a, *b)).collect(),
        _ => None,
    };
    let dtype =
        dtype.unwrap_or_else(|| crate::tensor::promotion::promote(of.dtype(), right.dtype()));
    let like = of.clone().detached().with_grad_fn(joined([of, right]));
    let made = made(process, &like, dtype, &shape, known)?;
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

/// The process reads elements: of a tensor on the GPU, it waits for what is on the stream before.
pub(crate) fn read(process: &mut Process<'_>, of: &Tensor) -> anyhow::Result<()> {
    if of.device() == Device::Cuda {
        process.dist()?.read_on_device();
    }
    Ok(())
}

/// `x.item()`, where the element is known.
pub(crate) fn item<'v>(
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
    read(process, of)?;
    Ok(match known(process, of)?.and_then(|values| values.first().copied()) {
        Some(value) => python(of.dtype(), value, heap),
        None => heap.alloc(process.unknown(Unknown::Value(Number::of(of.dtype())))),
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
    read(process, of)?;
    if of.numel() > WRITTEN_DOWN {
        return Ok(heap.alloc(process.unknown(Unknown::Value(Number::of(of.dtype())))));
    }
    let values: Vec<Value<'v>> = match known(process, of)? {
        Some(values) => values.into_iter().map(|value| python(of.dtype(), value, heap)).collect(),
        None => {
            let one = heap.alloc(process.unknown(Unknown::Value(Number::of(of.dtype()))));
            vec![one; of.numel() as usize]
        }
    };
    Ok(nested(of.shape(), &values, heap))
}

/// True if two tensors hold the same values, or nearly the same.
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
        _ => heap.alloc(process.unknown(Unknown::Value(Number::Bool))),
    })
}

/// Methods of tensors, and functions of `torch`'s.
#[starlark_module]
pub(crate) fn methods(builder: &mut MethodsBuilder) {
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

    /// A result that is known by its shape alone, as those of the next functions.
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

    fn log_softmax<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = dim;
        float_of_each(this, eval, |_| None)
    }

    /// Random numbers, as those of the next functions.
    fn normal_<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = (args, named);
        randomized(this, eval)
    }

    fn uniform_<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = (args, named);
        randomized(this, eval)
    }

    fn masked_fill<'v>(
        this: Value<'v>,
        mask: Value<'v>,
        value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = (mask, value);
        each(this, None, eval, |_| None)
    }

    fn clamp<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] min: Value<'v>,
        #[starlark(default = NoneType)] max: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let of = |bound: Value<'v>, none| match bound.is_none() {
            true => Ok(none),
            false => numbers::number(bound, "a bound of clamp"),
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
        crate::tensor::operators::power(this, exponent, heap)
    }

    fn add<'v>(this: Value<'v>, other: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        this.add(other, heap)
    }

    fn sub<'v>(this: Value<'v>, other: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        this.sub(other, heap)
    }

    fn mul<'v>(this: Value<'v>, other: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        this.mul(other, heap)
    }

    fn div<'v>(this: Value<'v>, other: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
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

    fn ge<'v>(
        this: Value<'v>,
        other: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        pairwise(this, other, Some(Dtype::Bool), eval, |a, b| yes(a >= b))
    }

    fn le<'v>(
        this: Value<'v>,
        other: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        pairwise(this, other, Some(Dtype::Bool), eval, |a, b| yes(a <= b))
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
            false => numbers::number(given, "a tolerance"),
        };
        let (rtol, atol) = (of(rtol, 1e-5)?, of(atol, 1e-8)?);
        alike(this, other, eval, |a, b| {
            a == b
                || (a - b).abs() <= atol + rtol * b.abs()
                || (equal_nan && a.is_nan() && b.is_nan())
        })
    }

    fn tolist<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        listed(tensor(this)?, eval)
    }

    fn item<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        self::item(this, eval)
    }
}
