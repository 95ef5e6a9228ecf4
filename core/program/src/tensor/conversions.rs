//! Tensors on another device or of another type, their parts, and the functions that write into them as a
//! whole. Copies are operations of the plan, so that a simulation shows the values.

use crate::dist::arguments as take;
use crate::dist::values::{DtypeValue, TensorValue};
use crate::process::raised::{self, refused};
use crate::process::state::process;
use crate::process::undecided::UnknownValue;
use crate::python::numbers;
use crate::tensor::converted::make_as;
use crate::tensor::made::{Filled, On, filled_tensor};
use crate::tensor::promotion::broadcast;
use crate::tensor::value::tensor;
use crate::tensor::{arithmetic, deferred, fresh, graph, indexing};
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::Fill;
use lockstep_torch::c10d::{Device, DistError, ErrorKind};
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::none::{NoneOr, NoneType};
use starlark::values::tuple::UnpackTuple;
use starlark::values::{Heap, Value, ValueLike};

/// The tensor itself where it is there already, as PyTorch returns it, and a copy elsewhere.
fn moved<'v>(
    this: Value<'v>,
    device: Option<(Device, Option<u32>)>,
    dtype: Option<Dtype>,
    copy: bool,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let from = tensor(this)?;
    if device.is_some() {
        // It says where it is now.
        process(eval)?.guessed.remove(&from.storage());
    }
    let own = (from.device(), from.device_index());
    let to = match device {
        None => own,
        Some((Device::Cpu, _)) => (Device::Cpu, 0),
        Some((device, Some(index))) => (device, index),
        // A tensor that is on one of them stays there.
        Some((device, None)) if device == own.0 => own,
        Some((device, None)) => (device, process(eval)?.cuda_device()),
    };
    let dtype = dtype.unwrap_or(from.dtype());
    if !copy && (to, dtype) == (own, from.dtype()) {
        return Ok(this);
    }
    if to.0 == Device::Cpu {
        crate::tensor::elementwise::read(process(eval)?, from)?;
    }
    let heap = eval.heap();
    let made = make_as(eval, from, to, dtype)?;
    Ok(heap.alloc(made))
}

/// The tensor with every element replaced, in place: a new one is copied into it.
fn refilled<'v>(
    this: Value<'v>,
    filled: Filled,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let into = tensor(this)?;
    let on = On::Device(into.device(), Some(into.device_index()));
    let name = Some("filled".to_owned());
    let from = filled_tensor(eval, into.shape(), into.dtype(), filled, on, name)?;
    process(eval)?.dist()?.copy_tensor(&from.0, into);
    Ok(this)
}

fn refusal_of_copy(into: &[u64], from: &[u64]) -> anyhow::Error {
    let dims = into.len();
    let text = match from.len() > dims {
        true => format!(
            "output with shape {into:?} doesn't match the broadcast shape {:?}",
            broadcast(into, from).unwrap_or_else(|_| from.to_vec())
        ),
        false => {
            let skipped = dims - from.len();
            let differs = |(_, (into, from)): &(usize, (&u64, &u64))| into != from && **from != 1;
            let pairs = into.iter().skip(skipped).zip(from).enumerate();
            let (at, (a, b)) = pairs.rev().find(differs).unwrap_or((0, (&0, &0)));
            format!(
                "The size of tensor a ({a}) must match the size of tensor b ({b}) at \
                 non-singleton dimension {}",
                at + skipped
            )
        }
    };
    refused(DistError::new(ErrorKind::RuntimeError, text))
}

pub(crate) fn methods(builder: &mut MethodsBuilder) {
    moves(builder);
    in_place(builder);
    shapes(builder);
}

/// Other devices and types.
#[starlark_module]
fn moves(builder: &mut MethodsBuilder) {
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
        let named = |device: Value<'v>| -> anyhow::Result<_> {
            Ok(take::device(device)?.map(|of| (of, take::device_index(device))))
        };
        let mut device = named(device)?;
        let mut to_dtype = match dtype.is_none() {
            true => None,
            false => Some(take::dtype(dtype, Dtype::Float32)?),
        };
        for arg in args.items {
            if let Some(dtype) = arg.downcast_ref::<DtypeValue>() {
                to_dtype = Some(dtype.0);
            } else if let Some(other) = arg.downcast_ref::<TensorValue>() {
                let on = (other.0.device(), Some(other.0.device_index()));
                (device, to_dtype) = (Some(on), Some(other.0.dtype()));
            } else if arg.get_type() != "bool" {
                device = named(arg)?.or(device);
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
        let _ = non_blocking;
        let index = take::device_index(device);
        moved(this, Some((Device::Cuda, index)), None, false, eval)
    }

    fn cpu<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        moved(this, Some((Device::Cpu, None)), None, false, eval)
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
}

/// Changes in place.
#[starlark_module]
fn in_place(builder: &mut MethodsBuilder) {
    fn fill_<'v>(
        this: Value<'v>,
        value: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        if let Ok(from) = tensor(value) {
            // A tensor without dimensions.
            let process = process(eval)?;
            return match fresh::uniform(process, from)? {
                Some(value) => refilled(this, Filled::Number(value), eval),
                None => fresh::spread(process, from, tensor(this)?).map(|()| this),
            };
        }
        if value.downcast_ref::<UnknownValue>().is_some_and(UnknownValue::is_value) {
            process(eval)?.dist()?.not_followed(tensor(this)?);
            return Ok(this);
        }
        let value = numbers::number(value, "a tensor's value")?;
        refilled(this, Filled::Number(value), eval)
    }

    /// `this += alpha * other`.
    fn add_<'v>(
        this: Value<'v>,
        other: Value<'v>,
        #[starlark(require = named, default = NoneType)] alpha: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let other = match alpha.is_none() {
            true => other,
            false => other.mul(alpha, heap).map_err(starlark::Error::into_anyhow)?,
        };
        arithmetic::in_place("+", this, other, eval)
    }

    fn sub_<'v>(
        this: Value<'v>,
        other: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        arithmetic::in_place("-", this, other, eval)
    }

    fn mul_<'v>(
        this: Value<'v>,
        other: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        arithmetic::in_place("*", this, other, eval)
    }

    fn div_<'v>(
        this: Value<'v>,
        other: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        arithmetic::in_place("/", this, other, eval)
    }

    fn zero_<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<Value<'v>> {
        refilled(this, Filled::As(Fill::Zeros), eval)
    }

    fn copy_<'v>(
        this: Value<'v>,
        src: Value<'v>,
        #[starlark(default = false)] non_blocking: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = non_blocking;
        let (from, into) = (tensor(src)?, tensor(this)?);
        let fits = broadcast(into.shape(), from.shape());
        if !fits.is_ok_and(|shape| shape == into.shape()) {
            return Err(refusal_of_copy(into.shape(), from.shape()));
        }
        if from.numel() != into.numel() {
            let process = process(eval)?;
            return match fresh::uniform(process, from)? {
                Some(value) => refilled(this, Filled::Number(value), eval),
                None => fresh::spread(process, from, into).map(|()| this),
            };
        }
        fresh::spread(process(eval)?, from, into).map(|()| this)
    }

    fn is_contiguous<'v>(this: Value<'v>) -> anyhow::Result<bool> {
        tensor(this).map(lockstep_torch::c10d::Tensor::is_contiguous)
    }

    fn requires_grad_<'v>(
        this: Value<'v>,
        #[starlark(default = true)] requires_grad: bool,
    ) -> anyhow::Result<Value<'v>> {
        graph::train(tensor(this)?, requires_grad);
        Ok(this)
    }
}

/// Parts and other shapes.
#[starlark_module]
fn shapes(builder: &mut MethodsBuilder) {
    fn split<'v>(
        this: Value<'v>,
        split_size: Value<'v>,
        #[starlark(default = 0)] dim: i32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        indexing::split(this, split_size, i64::from(dim), eval.heap())
    }

    fn chunk<'v>(
        this: Value<'v>,
        chunks: i32,
        #[starlark(default = 0)] dim: i32,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        indexing::chunk(this, i64::from(chunks), i64::from(dim), heap)
    }

    fn unsqueeze<'v>(this: Value<'v>, dim: i32) -> anyhow::Result<TensorValue> {
        let tensor = tensor(this)?;
        crate::tensor::transposed::in_a_row(tensor)?;
        let mut shape = tensor.shape().to_vec();
        let at = indexing::dimension(i64::from(dim), shape.len() + 1)?;
        shape.insert(at, 1);
        Ok(TensorValue(tensor.view(&shape[..])))
    }

    fn squeeze<'v>(
        this: Value<'v>,
        #[starlark(default = NoneOr::None)] dim: NoneOr<i32>,
    ) -> anyhow::Result<TensorValue> {
        let tensor = tensor(this)?;
        crate::tensor::transposed::in_a_row(tensor)?;
        let mut shape = tensor.shape().to_vec();
        match dim.into_option() {
            None => shape.retain(|size| *size != 1),
            Some(dim) => {
                let at = indexing::dimension(i64::from(dim), shape.len())?;
                if shape.get(at) == Some(&1) {
                    shape.remove(at);
                }
            }
        }
        Ok(TensorValue(tensor.view(&shape[..])))
    }

    fn narrow<'v>(
        this: Value<'v>,
        dim: i32,
        start: u32,
        length: u32,
    ) -> anyhow::Result<TensorValue> {
        let tensor = tensor(this)?;
        crate::tensor::transposed::in_a_row(tensor)?;
        let dim = indexing::dimension(i64::from(dim), tensor.shape().len())?;
        let rows = tensor.shape().get(dim).copied().unwrap_or(0);
        let (start, length) = (u64::from(start), u64::from(length));
        if start + length > rows {
            return Err(raised::runtime_error(format!(
                "start ({start}) + length ({length}) exceeds dimension size ({rows})."
            )));
        }
        Ok(TensorValue(deferred::part(tensor, dim, start, length)))
    }

    fn unbind<'v>(
        this: Value<'v>,
        #[starlark(default = 0)] dim: i32,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        indexing::unbind(this, i64::from(dim), heap)
    }
}
