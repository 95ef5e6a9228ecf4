//! `torch`: types, devices, and tensors as the program makes them.

#![allow(clippy::too_many_arguments, reason = "PyTorch's arguments")]

use super::arguments as take;
use super::process::{Raised, process};
use super::python::TypeValue;
use super::values::{Context, ContextValue, DeviceValue, DtypeValue, TensorValue};
use crate::c10d::{self, Device};
use crate::dtype::Dtype;
use crate::plan::Fill;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::none::NoneType;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{Value, ValueLike};

/// Adds `torch`.
pub(super) fn add(builder: &mut GlobalsBuilder) {
    builder.namespace("torch", |builder| {
        for dtype in Dtype::COMPUTABLE {
            builder.set(dtype.name(), DtypeValue(dtype));
        }
        for (name, dtype) in [
            ("float", Dtype::Float32),
            ("double", Dtype::Float64),
            ("half", Dtype::Float16),
            ("long", Dtype::Int64),
            ("int", Dtype::Int32),
        ] {
            builder.set(name, DtypeValue(dtype));
        }
        functions(builder);
        super::exceptions::of_torch(builder);
        builder.namespace("cuda", |builder| {
            cuda(builder);
            super::streams::functions(builder);
            super::exceptions::of_torch(builder);
        });
        builder.namespace("distributed", super::dist::functions);
        builder.namespace("multiprocessing", super::job::multiprocessing);
        builder.set("Tensor", TypeValue("Tensor".to_owned()));
        builder.namespace("optim", super::optimizer::optimizers);
        builder.namespace("nn", |builder| {
            builder.namespace("parallel", super::module::parallel);
            super::models::layers(builder);
            super::losses::classes(builder);
            builder.namespace("functional", super::losses::functional);
        });
    });
}

/// Sizes of a tensor: a number, or a list of them.
pub(super) fn sizes(value: Value<'_>) -> anyhow::Result<Vec<u64>> {
    let entries = take::items(value).unwrap_or_else(|| vec![value]);
    let size = |value: Value<'_>| {
        let size = take::whole(value, "a size")?;
        u64::try_from(size).map_err(|_| anyhow::anyhow!("a tensor has no negative size"))
    };
    entries.into_iter().map(size).collect()
}

/// `torch.zeros(2, 3)` and `torch.zeros((2, 3))`.
fn sizes_of(args: &UnpackTuple<Value<'_>>) -> anyhow::Result<Vec<u64>> {
    match args.items[..] {
        [one] => sizes(one),
        ref many => many.iter().map(|size| Ok(sizes(*size)?.iter().product())).collect(),
    }
}

/// What every element of a tensor is.
enum Filled {
    As(Fill),
    With(i64),
}

/// Makes a tensor, called what the program calls it.
pub(super) fn make(
    eval: &mut Evaluator<'_, '_, '_>,
    sizes: Vec<u64>,
    dtype: Value<'_>,
    fill: Value<'_>,
    device: Value<'_>,
    name: Value<'_>,
) -> anyhow::Result<TensorValue> {
    let filled = match fill.unpack_str() {
        Some("rank") => Filled::As(Fill::Rank),
        Some("iota") => Filled::As(Fill::Iota),
        Some("random") => Filled::As(Fill::Seeded { seed: 0 }),
        Some("zeros") => Filled::As(Fill::Zeros),
        Some(other) => {
            anyhow::bail!("fill is a number, \"rank\", \"iota\" or \"random\", not {other}")
        }
        None if fill.is_none() => Filled::As(Fill::Zeros),
        None => Filled::With(take::number(fill, "fill").map(|value| value as i64)?),
    };
    let dtype = take::dtype(dtype, Dtype::Float32)?;
    let device = take::device(device)?;
    filled_tensor(eval, &sizes, dtype, filled, device, name.unpack_str().map(str::to_owned))
}

fn filled_tensor(
    eval: &mut Evaluator<'_, '_, '_>,
    sizes: &[u64],
    dtype: Dtype,
    filled: Filled,
    device: Option<Device>,
    name: Option<String>,
) -> anyhow::Result<TensorValue> {
    let process = process(eval)?;
    let name = name.or_else(|| process.assigned_name()).unwrap_or_else(|| "tensor".to_owned());
    let of_rank = process.line_text().contains("rank");
    // `torch.float8_e4m3fn` and its like came with 2.1.
    let float8 = matches!(dtype, Dtype::Float8E4m3fn | Dtype::Float8E5m2);
    if float8 && process.torch_before((2, 1)) {
        let text = format!("AttributeError: module 'torch' has no attribute '{dtype}'");
        return Err(anyhow::Error::new(Raised { text, help: None }));
    }
    let dist = process.dist()?;
    let rank = i64::from(dist.process().0);
    let fill = match filled {
        Filled::As(fill) => fill,
        // Rank 0 cannot tell its number from zeros: like the others, if the line says so.
        Filled::With(0) if rank == 0 && !of_rank => Fill::Zeros,
        Filled::With(value) if value == rank => Fill::Rank,
        Filled::With(0) => Fill::Zeros,
        Filled::With(value) => Fill::Full { value },
    };
    let device = device.unwrap_or_else(|| default_device(dist));
    Ok(TensorValue(dist.tensor_on(device, &name, dtype, sizes, fill)))
}

/// Where a program's tensors are unless it says: on the device that its default group serves.
fn default_device(dist: &c10d::Dist<'_>) -> Device {
    match dist.get_backend_config(None) {
        Ok(config) if config.contains("cuda:nccl") || config == "nccl" => Device::Cuda,
        _ => Device::Cpu,
    }
}

/// A new tensor like another.
pub(super) fn make_like(
    eval: &mut Evaluator<'_, '_, '_>,
    like: &c10d::Tensor,
) -> anyhow::Result<TensorValue> {
    let (sizes, dtype, device) = (like.shape().to_vec(), like.dtype(), like.device());
    filled_tensor(eval, &sizes, dtype, Filled::As(Fill::Zeros), Some(device), None)
}

/// A tensor's elements on that device and as that type: of what it was filled with, where it is the
/// whole of one.
pub(super) fn make_as(
    eval: &mut Evaluator<'_, '_, '_>,
    from: &c10d::Tensor,
    device: Device,
    dtype: Dtype,
) -> anyhow::Result<TensorValue> {
    let sizes = from.shape().to_vec();
    let fill = process(eval)?.dist()?.fill_of(from).unwrap_or(Fill::Zeros);
    filled_tensor(eval, &sizes, dtype, Filled::As(fill), Some(device), None)
}

/// The tensor of an argument.
fn like<'v>(value: Value<'v>) -> anyhow::Result<c10d::Tensor> {
    let tensor = value.downcast_ref::<TensorValue>().map(|tensor| tensor.0.clone());
    tensor.ok_or_else(|| take::type_error(format!("{} is no tensor", take::class_of(value))))
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn zeros<'v>(
        #[starlark(args)] size: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let none = Value::new_none();
        make(eval, sizes_of(&size)?, dtype, none, device, none)
    }

    fn empty<'v>(
        #[starlark(args)] size: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let none = Value::new_none();
        make(eval, sizes_of(&size)?, dtype, none, device, none)
    }

    fn ones<'v>(
        #[starlark(args)] size: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let one = eval.heap().alloc(1);
        make(eval, sizes_of(&size)?, dtype, one, device, Value::new_none())
    }

    fn randn<'v>(
        #[starlark(args)] size: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let random = eval.heap().alloc("random");
        make(eval, sizes_of(&size)?, dtype, random, device, Value::new_none())
    }

    fn full<'v>(
        size: Value<'v>,
        fill_value: Value<'v>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        make(eval, sizes(size)?, dtype, fill_value, device, Value::new_none())
    }

    /// `torch.arange(n)`: whole numbers from 0.
    fn arange<'v>(
        end: Value<'v>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let heap = eval.heap();
        let dtype = match dtype.is_none() && end.get_type() == "int" {
            true => heap.alloc(DtypeValue(Dtype::Int64)),
            false => dtype,
        };
        let count = take::number(end, "end")?.ceil().max(0.0);
        let size = heap.alloc(count as i64);
        let iota = heap.alloc("iota");
        make(eval, sizes(size)?, dtype, iota, device, Value::new_none())
    }

    /// `torch.tensor(1.0)`, `torch.tensor([1, 2])`: the values do not matter here, but the first.
    fn tensor<'v>(
        data: Value<'v>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let none = Value::new_none();
        let entries = take::items(data);
        let (sizes, first) = match &entries {
            Some(entries) => (vec![entries.len() as u64], entries.first().copied()),
            None => (Vec::new(), Some(data)),
        };
        let whole = first.is_none_or(|first| first.get_type() == "int");
        let heap = eval.heap();
        let dtype = match (dtype.is_none(), whole) {
            (true, true) => heap.alloc(DtypeValue(Dtype::Int64)),
            _ => dtype,
        };
        make(eval, sizes, dtype, first.unwrap_or(none), device, none)
    }

    fn zeros_like<'v>(
        input: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        make_like(eval, &like(input)?)
    }

    fn empty_like<'v>(
        input: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        make_like(eval, &like(input)?)
    }

    fn device<'v>(
        r#type: Value<'v>,
        #[starlark(default = NoneType)] index: Value<'v>,
    ) -> anyhow::Result<DeviceValue> {
        let _ = index;
        Ok(DeviceValue(take::device(r#type)?.unwrap_or(Device::Cpu)))
    }

    fn no_grad() -> anyhow::Result<ContextValue> {
        Ok(ContextValue(Context::Grad(false)))
    }

    fn inference_mode(#[starlark(default = true)] mode: bool) -> anyhow::Result<ContextValue> {
        Ok(ContextValue(if mode { Context::Grad(false) } else { Context::Nothing }))
    }

    fn enable_grad() -> anyhow::Result<ContextValue> {
        Ok(ContextValue(Context::Grad(true)))
    }

    fn is_grad_enabled(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<bool> {
        Ok(process(eval)?.grad_enabled())
    }

    fn manual_seed<'v>(seed: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = seed;
        Ok(NoneType)
    }
}

#[starlark_module]
fn cuda(builder: &mut GlobalsBuilder) {
    fn synchronize<'v>(
        #[starlark(default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let _ = device;
        process(eval)?.dist()?.synchronize();
        Ok(NoneType)
    }

    fn set_device<'v>(device: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = device;
        Ok(NoneType)
    }

    fn is_available() -> anyhow::Result<bool> {
        Ok(true)
    }

    fn current_device(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<i64> {
        let local = process(eval)?.dist()?.environ("LOCAL_RANK");
        Ok(local.and_then(|local| local.parse().ok()).unwrap_or(0))
    }

    fn device_count(eval: &mut Evaluator<'_, '_, '_>) -> anyhow::Result<i64> {
        let local = process(eval)?.dist()?.environ("LOCAL_WORLD_SIZE");
        Ok(local.and_then(|local| local.parse().ok()).unwrap_or(1))
    }
}
