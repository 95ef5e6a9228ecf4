//! Tensors of another device or type, and of parts: their values are not known, but their shape,
//! device and type are.

use super::arguments as take;
use super::tensor_value::tensor;
use super::torch::make_as;
use super::values::{DtypeValue, TensorValue};
use crate::c10d::Device;
use crate::dtype::Dtype;
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::list::AllocList;
use starlark::values::none::NoneType;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{Value, ValueLike};

/// The tensor itself where it is there already, as PyTorch returns it, and a copy elsewhere.
fn moved<'v>(
    this: Value<'v>,
    device: Option<Device>,
    dtype: Option<Dtype>,
    copy: bool,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let from = tensor(this)?;
    let to = (device.unwrap_or(from.device()), dtype.unwrap_or(from.dtype()));
    if !copy && to == (from.device(), from.dtype()) {
        return Ok(this);
    }
    let heap = eval.heap();
    let made = make_as(eval, from, to.0, to.1)?;
    Ok(heap.alloc(made))
}

/// The parts of a tensor along its first dimension, of so many rows each.
pub(super) fn split_rows<'v>(
    this: Value<'v>,
    rows: &[u64],
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let whole = tensor(this)?;
    let all = whole.shape().first().copied().unwrap_or(0);
    let total = rows.iter().fold(0_u64, |sum, rows| sum.saturating_add(*rows));
    if total != all {
        return Err(anyhow::Error::new(super::process::Raised {
            text: format!(
                "RuntimeError: split_with_sizes expects split_sizes to sum exactly to {all} (input \
                 tensor's size at dimension 0), but got split_sizes={rows:?}"
            ),
            help: None,
        }));
    }
    let mut at = 0;
    let parts = rows.iter().map(|rows| {
        let part = whole.narrow(at, *rows);
        at += *rows;
        TensorValue(part)
    });
    Ok(eval.heap().alloc(AllocList(parts)))
}

/// `tensor.split(rows)` and `torch.split(tensor, [1, 2])`.
pub(super) fn split<'v>(
    this: Value<'v>,
    size: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let heap = eval.heap();
    if take::items(size).is_some() {
        let rows = take::counts(size, "split_size_or_sections", heap)?.unwrap_or_default();
        return split_rows(this, &rows, eval);
    }
    let all = tensor(this)?.shape().first().copied().unwrap_or(0);
    let each = u64::try_from(take::whole(size, "split_size")?).unwrap_or(0);
    anyhow::ensure!(each > 0, "a tensor is split into parts of at least one row");
    anyhow::ensure!(all / each <= 65536, "a tensor is split into at most 65536 parts");
    let rows: Vec<u64> = (0..all.div_ceil(each)).map(|at| each.min(all - at * each)).collect();
    split_rows(this, &rows, eval)
}

#[starlark_module]
pub(super) fn methods(builder: &mut MethodsBuilder) {
    /// `tensor.to(device)`, `to(dtype)`, `to(device, dtype)` and `to(other)`.
    fn to<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = false)] non_blocking: bool,
        #[starlark(require = named, default = false)] copy: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = non_blocking;
        let mut device = take::device(device)?;
        let mut to_dtype = match dtype.is_none() {
            true => None,
            false => Some(take::dtype(dtype, Dtype::Float32)?),
        };
        for arg in args.items {
            if let Some(dtype) = arg.downcast_ref::<DtypeValue>() {
                to_dtype = Some(dtype.0);
            } else if let Some(other) = arg.downcast_ref::<TensorValue>() {
                (device, to_dtype) = (Some(other.0.device()), Some(other.0.dtype()));
            } else if arg.get_type() != "bool" {
                device = take::device(arg)?.or(device);
            }
        }
        moved(this, device, to_dtype, copy, eval)
    }

    fn cuda<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = false)] non_blocking: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = (device, non_blocking);
        moved(this, Some(Device::Cuda), None, false, eval)
    }

    fn cpu<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        moved(this, Some(Device::Cpu), None, false, eval)
    }

    fn half<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        moved(this, None, Some(Dtype::Float16), false, eval)
    }

    fn bfloat16<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        moved(this, None, Some(Dtype::Bfloat16), false, eval)
    }

    fn float<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        moved(this, None, Some(Dtype::Float32), false, eval)
    }

    fn double<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        moved(this, None, Some(Dtype::Float64), false, eval)
    }

    fn long<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        moved(this, None, Some(Dtype::Int64), false, eval)
    }

    fn int<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        moved(this, None, Some(Dtype::Int32), false, eval)
    }

    /// In place; its values are not known here before and after.
    fn fill_<'v>(this: Value<'v>, value: Value<'v>) -> anyhow::Result<Value<'v>> {
        let _ = value;
        tensor(this).map(|_| this)
    }

    fn zero_<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        tensor(this).map(|_| this)
    }

    fn split<'v>(
        this: Value<'v>,
        split_size: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        split(this, split_size, eval)
    }
}
