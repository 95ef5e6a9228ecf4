//! Tensors as a program makes them: their device, name and values.

use crate::dist::arguments as take;
use crate::dist::values::TensorValue;
use crate::process::raised::Raised;
use crate::process::state::{Process, process};
use crate::process::undecided::{Number, UnknownValue};
use crate::python::numbers;
use crate::tensor::size::SizeValue;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::{Fill, Real};
use lockstep_torch::c10d::{self, Device};
use starlark::eval::Evaluator;
use starlark::values::{Value, ValueLike};

/// Sizes of a tensor: a number, or a list of them.
pub(crate) fn sizes(value: Value<'_>) -> anyhow::Result<Vec<u64>> {
    if let Some(size) = value.downcast_ref::<SizeValue>() {
        return Ok(size.0.clone());
    }
    let entries = take::items(value).unwrap_or_else(|| vec![value]);
    let size = |value: Value<'_>| {
        let size = numbers::whole(value, "a size")?;
        u64::try_from(size).map_err(|_| anyhow::anyhow!("a tensor has no negative size"))
    };
    entries.into_iter().map(size).collect()
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

/// The device that `device=` names for a tensor.
pub(crate) fn on(device: Value<'_>, else_on: On) -> anyhow::Result<On> {
    let of = take::device(device)?;
    Ok(of.map_or(else_on, |of| On::Device(of, take::device_index(device))))
}

/// Makes a tensor with the program's name for it.
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
        None => Filled::Number(numbers::number(fill, "fill")?),
    };
    let inferred = match unknown(fill) {
        Some(number) => number.dtype(),
        None if fill.get_type() == "bool" => Dtype::Bool,
        None => Dtype::Float32,
    };
    let dtype = take::dtype(dtype, inferred)?;
    filled_tensor(eval, &sizes, dtype, filled, on, name.unpack_str().map(str::to_owned))
}

/// The type of a number whose value only a run knows.
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

/// Makes the tensor for a caller that has the process already.
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

/// Writes the tensor for a caller that has the process already.
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

/// True if the default group's backends include this one.
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
