//! `torch.cat`, `stack`, `split` and functions that make a tensor like another. Joined tensors are copied run
//! by run, so that the result has the values of its parts.

use crate::dist::arguments as take;
use crate::dist::values::{DtypeValue, TensorValue};
use crate::process::raised::runtime_error;
use crate::process::state::process;
use crate::python::numbers;
use crate::python::type_error::{class_of, type_error};
use crate::tensor::graph;
use crate::tensor::indexing::{self, dimension};
use crate::tensor::made::{Filled, On, filled_tensor, make_like, sizes};
use crate::tensor::promotion::promote;
use crate::tensor::value::like;
use crate::torch::checkpoint::CheckpointValue;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::Fill;
use lockstep_torch::c10d;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::none::NoneType;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{Heap, Value, ValueLike};

/// The tensors of a list, of which there is at least one.
fn parts(tensors: Value<'_>, call: &str) -> anyhow::Result<Vec<c10d::Tensor>> {
    let entries = take::items(tensors).ok_or_else(|| {
        let class = class_of(tensors);
        let text = format!("{call}(): argument 'tensors' (position 1) must be tuple of Tensors");
        type_error(format!("{text}, not {class}"))
    })?;
    if entries.is_empty() {
        return Err(runtime_error(match call {
            "stack" => "stack expects a non-empty TensorList",
            _ => "torch.cat(): expected a non-empty list of Tensors",
        }));
    }
    entries.into_iter().map(like).collect()
}

/// The type that holds all of them, as PyTorch promotes them.
fn common(parts: &[c10d::Tensor]) -> Dtype {
    let dtypes = parts.iter().map(c10d::Tensor::dtype);
    dtypes.reduce(promote).unwrap_or(Dtype::Float32)
}

/// Runs of elements that are copied one by one.
const RUNS: u64 = 1024;

/// A tensor of that shape, into which the parts are copied, one after the other along a dimension.
fn joined(
    eval: &mut Evaluator<'_, '_, '_>,
    parts: &[c10d::Tensor],
    shape: &[u64],
    dim: usize,
) -> anyhow::Result<TensorValue> {
    let Some(first) = parts.first() else { return Err(runtime_error("nothing to join")) };
    let on = On::Device(first.device(), Some(first.device_index()));
    let dtype = common(parts);
    let grad_fn = graph::joined(parts).filter(|_| dtype.is_float());
    let dist = process(eval)?.dist()?;
    let known = parts.iter().all(|part| dist.is_followed(part));
    let filled = Filled::As(if known { Fill::Zeros } else { Fill::Unknown });
    let made = filled_tensor(eval, shape, dtype, filled, on, None)?;
    let made = TensorValue(made.0.with_grad_fn(grad_fn));
    if !known {
        return Ok(made);
    }
    let dist = process(eval)?.dist()?;
    if parts.iter().all(|part| dist.fill_of(part) == Some(Fill::Zeros)) {
        return Ok(made);
    }
    let flat = made.0.view(made.0.numel());
    let times = shape.iter().take(dim).fold(1_u64, |all, size| all.saturating_mul(*size));
    if times.saturating_mul(parts.len() as u64) > RUNS {
        dist.not_followed(&flat);
        return Ok(made);
    }
    let row = flat.numel().checked_div(times).unwrap_or(0);
    let mut at = 0;
    for part in parts {
        let mut from = part.clone();
        if part.is_transposed() || part.dtype() != dtype {
            let on = (part.device(), part.device_index());
            let whole = crate::tensor::transposed::contiguous(eval, part)?;
            from = crate::tensor::converted::make_as(eval, &whole.0, on, dtype)?.0;
        }
        let from = from.view(from.numel());
        let run = from.numel().checked_div(times).unwrap_or(0);
        let dist = crate::process::state::process(eval)?.dist()?;
        for nth in 0..times {
            let piece = from.narrow(nth * run, run);
            dist.copy_tensor(&piece, &flat.narrow(nth * row + at, run));
        }
        at += run;
    }
    Ok(made)
}

/// `torch.cat(tensors, dim)`.
pub(crate) fn cat(
    eval: &mut Evaluator<'_, '_, '_>,
    tensors: Value<'_>,
    dim: i32,
) -> anyhow::Result<TensorValue> {
    let parts = parts(tensors, "cat")?;
    // Empty tensors of one dimension are passed over, whatever the others are.
    let full = || parts.iter().enumerate().filter(|(_, part)| part.shape() != [0]);
    let Some((_, first)) = full().next().or(parts.first().map(|first| (0, first))) else {
        return Err(runtime_error("nothing to join"));
    };
    let mut shape = first.shape().to_vec();
    if shape.is_empty() {
        let text = "zero-dimensional tensor (at position 0) cannot be concatenated";
        return Err(runtime_error(text));
    }
    let at = dimension(i64::from(dim), shape.len())?;
    for (number, part) in full().skip(1) {
        let of = part.shape();
        if of.len() != shape.len() {
            return Err(runtime_error(format!(
                "Tensors must have same number of dimensions: got {} and {}",
                shape.len(),
                of.len()
            )));
        }
        for (dim, (size, expected)) in of.iter().zip(first.shape()).enumerate() {
            if dim != at && size != expected {
                return Err(runtime_error(format!(
                    "Sizes of tensors must match except in dimension {at}. Expected size \
                     {expected} but got size {size} for tensor number {number} in the list."
                )));
            }
        }
        shape[at] = shape[at].saturating_add(of[at]);
    }
    joined(eval, &parts, &shape, at)
}

#[starlark_module]
pub(crate) fn functions(builder: &mut GlobalsBuilder) {
    /// A checkpoint is not written.
    fn save<'v>(
        obj: Value<'v>,
        f: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let _ = (obj, f, process(eval)?);
        Ok(NoneType)
    }

    /// `torch.load(path)`, as the dialect writes it.
    fn _load<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] kwargs: starlark::values::dict::DictRef<'v>,
    ) -> anyhow::Result<CheckpointValue> {
        let _ = (args, kwargs);
        Ok(CheckpointValue)
    }

    /// Values from `start` to `end`, whose last bits are the machine's.
    fn linspace<'v>(
        start: Value<'v>,
        end: Value<'v>,
        steps: i32,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = false)] requires_grad: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let _ = (start, end, requires_grad);
        let steps = u64::try_from(steps);
        let steps = steps.map_err(|_| runtime_error("number of steps must be non-negative"))?;
        let dtype = take::dtype(dtype, Dtype::Float32)?;
        let on = crate::tensor::made::on(device, On::Torch)?;
        filled_tensor(eval, &[steps], dtype, Filled::As(Fill::Unknown), on, None)
    }

    fn cat<'v>(
        tensors: Value<'v>,
        #[starlark(default = 0)] dim: i32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        self::cat(eval, tensors, dim)
    }

    fn concat<'v>(
        tensors: Value<'v>,
        #[starlark(default = 0)] dim: i32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        self::cat(eval, tensors, dim)
    }

    fn stack<'v>(
        tensors: Value<'v>,
        #[starlark(default = 0)] dim: i32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let parts = parts(tensors, "stack")?;
        let Some(first) = parts.first() else { return Err(runtime_error("nothing to join")) };
        let differs = parts.iter().position(|part| part.shape() != first.shape());
        if let Some(at) = differs {
            return Err(runtime_error(format!(
                "stack expects each tensor to be equal size, but got {:?} at entry 0 and {:?} at \
                 entry {at}",
                first.shape(),
                parts[at].shape()
            )));
        }
        let mut shape = first.shape().to_vec();
        let at = dimension(i64::from(dim), shape.len() + 1)?;
        shape.insert(at, parts.len() as u64);
        joined(eval, &parts, &shape, at)
    }

    fn chunk<'v>(
        input: Value<'v>,
        chunks: i32,
        #[starlark(default = 0)] dim: i32,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        like(input)?;
        indexing::chunk(input, i64::from(chunks), i64::from(dim), heap)
    }

    fn split<'v>(
        tensor: Value<'v>,
        split_size_or_sections: Value<'v>,
        #[starlark(default = 0)] dim: i32,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        like(tensor)?;
        indexing::split(tensor, split_size_or_sections, i64::from(dim), heap)
    }

    fn unbind<'v>(
        input: Value<'v>,
        #[starlark(default = 0)] dim: i32,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        like(input)?;
        indexing::unbind(input, i64::from(dim), heap)
    }

    fn zeros_like<'v>(
        input: Value<'v>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        make_like(eval, &like(input)?, Filled::As(Fill::Zeros), dtype, device)
    }

    fn empty_like<'v>(
        input: Value<'v>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        make_like(eval, &like(input)?, Filled::As(Fill::Zeros), dtype, device)
    }

    fn ones_like<'v>(
        input: Value<'v>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        make_like(eval, &like(input)?, Filled::With(1), dtype, device)
    }

    fn full_like<'v>(
        input: Value<'v>,
        fill_value: Value<'v>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let fill = numbers::number(fill_value, "fill_value")?;
        make_like(eval, &like(input)?, Filled::Number(fill), dtype, device)
    }

    fn randn_like<'v>(
        input: Value<'v>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let random = Filled::As(Fill::Seeded { seed: 0 });
        make_like(eval, &like(input)?, random, dtype, device)
    }

    fn rand_like<'v>(
        input: Value<'v>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let random = Filled::As(Fill::Seeded { seed: 0 });
        make_like(eval, &like(input)?, random, dtype, device)
    }

    /// Whole numbers up to a bound: which ones is not followed.
    fn randint<'v>(
        #[starlark(args)] bounds_and_size: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] size: Value<'v>,
        #[starlark(require = named, default = NoneType)] generator: Value<'v>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        // Its numbers are known nowhere, whoever draws them.
        let _: Value<'v> = generator;
        let given = bounds_and_size.items.last().copied().filter(|_| size.is_none());
        let sizes = sizes(given.unwrap_or(size))?;
        let dtype = match dtype.downcast_ref::<DtypeValue>() {
            Some(dtype) => dtype.0,
            None => Dtype::Int64,
        };
        let on = crate::tensor::made::on(device, On::Torch)?;
        filled_tensor(eval, &sizes, dtype, Filled::As(Fill::Seeded { seed: 0 }), on, None)
    }
}
