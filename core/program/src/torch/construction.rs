//! `torch`: types, devices, and tensors as the program makes them.

#![allow(clippy::too_many_arguments, reason = "PyTorch's arguments")]

use crate::dist::arguments as take;
use crate::dist::values::{Context, ContextValue, DeviceValue, DtypeValue, TensorValue};
use crate::execute::process::{Process, Raised, process};
use crate::execute::undecided::{Number, UnknownValue};
use crate::python::TypeValue;
use crate::tensor::size::SizeValue;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::{Fill, Real};
use lockstep_torch::c10d::{self, Device};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::none::NoneType;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{Value, ValueLike};

/// Adds `torch`.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
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
        crate::torch::joining::functions(builder);
        crate::tensor::functions::add(builder);
        crate::torch::settings::functions(builder);
        crate::python::exceptions::of_torch(builder);
        crate::torch::amp::functions(builder);
        builder.namespace("amp", crate::torch::amp::add);
        builder.namespace("cuda", |builder| {
            builder.namespace("amp", crate::torch::amp::cuda);
            crate::torch::cuda::add(builder);
            crate::torch::streams::functions(builder);
            crate::python::exceptions::of_torch(builder);
        });
        builder.set("backends", crate::python::standard_library::SettingsValue);
        builder.namespace("accelerator", crate::torch::cuda::accelerator);
        builder.namespace("distributed", crate::dist::functions);
        builder.namespace("multiprocessing", crate::execute::launched_processes::multiprocessing);
        builder.set("Tensor", TypeValue("Tensor".to_owned()));
        builder.set("Size", TypeValue("Size".to_owned()));
        builder.namespace("optim", |builder| {
            crate::nn::optimizer::optimizers(builder);
            builder.namespace("lr_scheduler", crate::nn::optimizer::schedulers);
        });
        builder.namespace("nn", |builder| {
            builder.namespace("parallel", crate::nn::ddp_passes::parallel);
            crate::nn::models::layers(builder);
            crate::nn::models::bare(builder);
            crate::nn::user_modules::of_nn(builder);
            crate::nn::losses::classes(builder);
            builder.namespace("functional", crate::nn::losses::functional);
            builder.namespace("utils", crate::nn::optimizer::utils);
        });
        builder.namespace("utils", |builder| builder.namespace("data", crate::data::loaders::add));
    });
}

/// Sizes of a tensor: a number, or a list of them.
pub(crate) fn sizes(value: Value<'_>) -> anyhow::Result<Vec<u64>> {
    if let Some(size) = value.downcast_ref::<SizeValue>() {
        return Ok(size.0.clone());
    }
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

/// The value of every element of a tensor.
#[derive(Clone, Copy)]
pub(crate) enum Filled {
    As(Fill),
    With(i64),
    /// A number that need not be whole.
    Number(f64),
}

/// Elements of a tensor that are written down one by one.
pub(crate) const WRITTEN_DOWN: u64 = 4096;

/// The device of a tensor.
#[derive(Clone, Copy)]
pub(crate) enum On {
    /// The device that it names, and its index.
    Device(Device, Option<u32>),
    /// `tensor(…)` without a device: on the one that the default group has.
    OfGroup,
    /// `torch.zeros(…)` without a device: PyTorch's are on the CPU. Where the default group serves
    /// the GPU only, such a tensor is taken for one on the GPU, since short programs leave it out.
    Torch,
}

/// Makes a tensor of `torch`'s, called what the program calls it.
fn of_torch(
    eval: &mut Evaluator<'_, '_, '_>,
    sizes: Vec<u64>,
    dtype: Value<'_>,
    fill: Value<'_>,
    device: Value<'_>,
) -> anyhow::Result<TensorValue> {
    let on = on(device, On::Torch)?;
    make(eval, sizes, dtype, fill, on, Value::new_none())
}

/// The device that `device=` names for a tensor.
pub(crate) fn on(device: Value<'_>, else_on: On) -> anyhow::Result<On> {
    let of = take::device(device)?;
    Ok(of.map_or(else_on, |of| On::Device(of, take::device_index(device))))
}

/// Makes a tensor, called what the program calls it.
pub(crate) fn make(
    eval: &mut Evaluator<'_, '_, '_>,
    sizes: Vec<u64>,
    dtype: Value<'_>,
    fill: Value<'_>,
    on: On,
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
        None if unknown(fill).is_some() => Filled::As(Fill::Unknown),
        None => Filled::Number(take::number(fill, "fill")?),
    };
    let inferred = match unknown(fill) {
        Some(number) => number.dtype(),
        None if fill.get_type() == "bool" => Dtype::Bool,
        None => Dtype::Float32,
    };
    let dtype = take::dtype(dtype, inferred)?;
    filled_tensor(eval, &sizes, dtype, filled, on, name.unpack_str().map(str::to_owned))
}

/// Which number it is that a run alone tells, if it is one.
fn unknown(value: Value<'_>) -> Option<Number> {
    value.downcast_ref::<UnknownValue>()?.number()
}

pub(crate) fn filled_tensor(
    eval: &mut Evaluator<'_, '_, '_>,
    sizes: &[u64],
    dtype: Dtype,
    filled: Filled,
    on: On,
    name: Option<String>,
) -> anyhow::Result<TensorValue> {
    made_by(process(eval)?, sizes, dtype, filled, on, name)
}

/// The same for who has the process.
pub(crate) fn made_by(
    process: &mut Process<'_>,
    sizes: &[u64],
    dtype: Dtype,
    filled: Filled,
    on: On,
    name: Option<String>,
) -> anyhow::Result<TensorValue> {
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
    let numel = sizes.iter().fold(1_u64, |product, size| product.saturating_mul(*size));
    let mut data = None;
    let filled = match filled {
        Filled::Number(value) => {
            let whole = value.is_finite() && value.trunc() == value && value.abs() < 1e15;
            match Real::new(value).zip(Real::new(0.0)) {
                _ if whole || !(dtype.is_float() || dtype.is_complex()) => {
                    Filled::With(value as i64)
                }
                Some((start, step)) if numel > WRITTEN_DOWN => {
                    Filled::As(Fill::Arange { start, step })
                }
                _ => {
                    let numel = numel.min(WRITTEN_DOWN * 256) as usize;
                    data =
                        Some(lockstep_core::plan::value::number_bytes(dtype, value).repeat(numel));
                    Filled::As(Fill::Zeros)
                }
            }
        }
        filled => filled,
    };
    let fill = match filled {
        Filled::As(fill) => fill,
        // Rank 0 cannot tell its number from zeros: like the others, if the line says so.
        Filled::With(0) if rank == 0 && !of_rank => Fill::Zeros,
        Filled::With(value) if value == rank => Fill::Rank,
        Filled::With(0) => Fill::Zeros,
        Filled::With(value) => Fill::Full { value },
        Filled::Number(_) => Fill::Zeros,
    };
    let device = on.device(dist);
    process.random |= matches!(fill, Fill::Seeded { .. });
    let dist = process.dist()?;
    let tensor = match data {
        Some(data) => dist.tensor_of_on(device, &name, dtype, sizes, &data),
        None => dist.tensor_on(device, &name, dtype, sizes, fill),
    };
    Ok(placed(process, tensor, on))
}

/// The tensor on the device of its kind that it is on.
fn placed(process: &mut Process<'_>, tensor: c10d::Tensor, on: On) -> TensorValue {
    let (device, index) = match on {
        On::Device(_, index) => (tensor.device(), index),
        On::OfGroup | On::Torch => (tensor.device(), None),
    };
    if matches!((on, device), (On::Torch, Device::Cuda)) {
        process.guessed.insert(tensor.storage(), process.line);
    }
    let index = index.unwrap_or_else(|| process.cuda_device());
    TensorValue(tensor.on_device(index))
}

/// A tensor of these values, one after the other.
pub(crate) fn written_down(
    eval: &mut Evaluator<'_, '_, '_>,
    sizes: &[u64],
    dtype: Dtype,
    values: &[f64],
    on: On,
) -> anyhow::Result<TensorValue> {
    let process = process(eval)?;
    let name = process.assigned_name().unwrap_or_else(|| "tensor".to_owned());
    written_by(process, name, sizes, dtype, values, on)
}

/// The same for who has the process.
pub(crate) fn written_by(
    process: &mut Process<'_>,
    name: String,
    sizes: &[u64],
    dtype: Dtype,
    values: &[f64],
    on: On,
) -> anyhow::Result<TensorValue> {
    let data: Vec<u8> = values
        .iter()
        .flat_map(|value| lockstep_core::plan::value::number_bytes(dtype, *value))
        .collect();
    let dist = process.dist()?;
    let tensor = dist.tensor_of_on(on.device(dist), &name, dtype, sizes, &data);
    Ok(placed(process, tensor, on))
}

impl On {
    fn device(self, dist: &c10d::Dist<'_>) -> Device {
        match self {
            On::Device(device, _) => device,
            On::OfGroup if serves(dist, "cuda:nccl") => Device::Cuda,
            On::Torch if serves(dist, "cuda:nccl") && !serves(dist, "cpu:") => Device::Cuda,
            On::OfGroup | On::Torch => Device::Cpu,
        }
    }
}

/// The remark about a tensor that names no device in a program that names devices elsewhere.
pub(crate) const TAKEN_FOR_CUDA: &str = "the tensor that is made here names no device, and is taken for one on \
    the GPU, because the job's backend serves no other. In PyTorch it is on the CPU, where nccl \
    refuses it (No backend type associated with device type cpu): add device = \"cuda\"";

/// Whether the default group's backends have that in their list.
fn serves(dist: &c10d::Dist<'_>, what: &str) -> bool {
    dist.get_backend_config(None).is_ok_and(|config| config.contains(what))
}

/// A new tensor of zeros like another.
pub(crate) fn make_like(
    eval: &mut Evaluator<'_, '_, '_>,
    like: &c10d::Tensor,
    filled: Filled,
    dtype: Value<'_>,
    device: Value<'_>,
) -> anyhow::Result<TensorValue> {
    let dtype = take::dtype(dtype, like.dtype())?;
    let own = On::Device(like.device(), Some(like.device_index()));
    let made = filled_tensor(eval, like.shape(), dtype, filled, on(device, own)?, None)?;
    Ok(TensorValue(made.0.laid_out_as(like)))
}

/// A tensor's elements on that device and as that type, in a new one. What is known to hold what it
/// was made with is made so again; of another type, the values of what was received are not followed.
pub(crate) fn make_as(
    eval: &mut Evaluator<'_, '_, '_>,
    from: &c10d::Tensor,
    (device, index): (Device, u32),
    dtype: Dtype,
) -> anyhow::Result<TensorValue> {
    let fill = process(eval)?.dist()?.fill_of(from);
    let on = On::Device(device, Some(index));
    // Random numbers of another type are others.
    let again = |fill: &Fill| dtype == from.dtype() || !matches!(fill, Fill::Seeded { .. });
    if !fill.is_some_and(|fill| again(&fill)) && dtype != from.dtype() {
        let process = process(eval)?;
        if let Some(values) = crate::tensor::known_elements::held(process, from)? {
            let name = process.assigned_name().unwrap_or_else(|| "tensor".to_owned());
            return crate::tensor::known_elements::laid_out(
                process, name, from, dtype, &values, on,
            );
        }
    }
    let filled = Filled::As(fill.unwrap_or(Fill::Zeros));
    let made = filled_tensor(eval, from.shape(), dtype, filled, on, None)?;
    let made = TensorValue(made.0.laid_out_as(from));
    if fill.is_none() {
        process(eval)?.dist()?.copy_tensor(from, &made.0);
    }
    let pass = from.pass().filter(|_| dtype.is_float());
    Ok(TensorValue(made.0.of_pass(pass)))
}

/// The tensor of an argument.
pub(crate) fn like<'v>(value: Value<'v>) -> anyhow::Result<c10d::Tensor> {
    let tensor = value.downcast_ref::<TensorValue>().map(|tensor| tensor.0.clone());
    tensor.ok_or_else(|| take::type_error(format!("{} is no tensor", take::class_of(value))))
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn zeros<'v>(
        #[starlark(args)] size: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = false)] requires_grad: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let _ = requires_grad;
        let none = Value::new_none();
        of_torch(eval, sizes_of(&size)?, dtype, none, device)
    }

    fn empty<'v>(
        #[starlark(args)] size: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = false)] requires_grad: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let _ = requires_grad;
        let none = Value::new_none();
        of_torch(eval, sizes_of(&size)?, dtype, none, device)
    }

    fn ones<'v>(
        #[starlark(args)] size: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = false)] requires_grad: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let _ = requires_grad;
        let one = eval.heap().alloc(1);
        of_torch(eval, sizes_of(&size)?, dtype, one, device)
    }

    fn randn<'v>(
        #[starlark(args)] size: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = false)] requires_grad: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let _ = requires_grad;
        let random = eval.heap().alloc("random");
        of_torch(eval, sizes_of(&size)?, dtype, random, device)
    }

    fn rand<'v>(
        #[starlark(args)] size: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = false)] requires_grad: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let _ = requires_grad;
        let random = eval.heap().alloc("random");
        of_torch(eval, sizes_of(&size)?, dtype, random, device)
    }

    fn full<'v>(
        size: Value<'v>,
        fill_value: Value<'v>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = false)] requires_grad: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let _ = requires_grad;
        let whole = dtype.is_none() && fill_value.get_type() == "int";
        let dtype = if whole { eval.heap().alloc(DtypeValue(Dtype::Int64)) } else { dtype };
        of_torch(eval, sizes(size)?, dtype, fill_value, device)
    }

    /// `torch.arange(n)`: whole numbers from 0; `torch.arange(2, 10, 2)`.
    fn arange<'v>(
        #[starlark(args)] bounds: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        crate::tensor::indexing::arange(eval, &bounds.items, dtype, on(device, On::Torch)?)
    }

    /// `torch.tensor(1.0)`, `torch.tensor([[1, 2], [3, 4]])`.
    fn tensor<'v>(
        data: Value<'v>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = false)] requires_grad: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let _ = requires_grad;
        crate::tensor::indexing::of_data(eval, data, dtype, on(device, On::Torch)?)
    }

    fn device<'v>(
        r#type: Value<'v>,
        #[starlark(default = NoneType)] index: Value<'v>,
    ) -> anyhow::Result<DeviceValue> {
        let given = take::whole_or_none(index, "index")?.and_then(|index| index.try_into().ok());
        let index = given.or_else(|| take::device_index(r#type));
        Ok(DeviceValue((take::device(r#type)?.unwrap_or(Device::Cpu), index)))
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

    /// A tensor of whole numbers on the CPU.
    fn LongTensor<'v>(
        data: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        crate::tensor::indexing::of_class(eval, data, Dtype::Int64)
    }

    fn IntTensor<'v>(
        data: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        crate::tensor::indexing::of_class(eval, data, Dtype::Int32)
    }

    fn FloatTensor<'v>(
        data: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        crate::tensor::indexing::of_class(eval, data, Dtype::Float32)
    }
}
