//! Tensors in a program's hands: what is known of them is their shape.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use super::arguments::{class_of, whole};
use super::process::refused;
use super::size_value::SizeValue;
use super::values::{DeviceValue, DtypeValue};
use crate::c10d::{self, DistError, ErrorKind};
use allocative::Allocative;
use starlark::environment::{Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::none::{NoneOr, NoneType};
use starlark::values::tuple::AllocTuple;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;

/// A tensor of this rank.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct TensorValue(#[allocative(skip)] pub(crate) c10d::Tensor);
starlark_simple_value!(TensorValue);

impl fmt::Display for TensorValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes: Vec<String> = self.0.shape().iter().map(u64::to_string).collect();
        write!(f, "tensor(shape=[{}], dtype=torch.{})", sizes.join(", "), self.0.dtype())
    }
}

methods_static!(TENSOR_METHODS = every_method);

fn every_method(builder: &mut MethodsBuilder) {
    tensor_methods(builder);
    super::tensor_moves::methods(builder);
}

#[starlark_value(type = "Tensor")]
impl<'v> StarlarkValue<'v> for TensorValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(TENSOR_METHODS.methods())
    }

    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "shape" => Some(heap.alloc(SizeValue(self.0.shape().to_vec()))),
            "dtype" => Some(heap.alloc(DtypeValue(self.0.dtype()))),
            "device" => {
                let cuda = self.0.device() != c10d::Device::Cpu;
                let index = cuda.then_some(self.0.device_index());
                Some(heap.alloc(DeviceValue((self.0.device(), index))))
            }
            "ndim" => Some(heap.alloc(self.0.shape().len() as u64)),
            "itemsize" => Some(heap.alloc(self.0.dtype().size_bytes())),
            "nbytes" => {
                let bytes = self.0.numel().saturating_mul(self.0.dtype().size_bytes());
                Some(heap.alloc(bytes))
            }
            "grad" => Some(Value::new_none()),
            "is_cuda" => Some(Value::new_bool(self.0.device() == c10d::Device::Cuda)),
            _ => None,
        }
    }

    fn has_attr(&self, attribute: &str, _heap: Heap<'v>) -> bool {
        matches!(
            attribute,
            "shape" | "dtype" | "device" | "grad" | "is_cuda" | "ndim" | "itemsize" | "nbytes"
        )
    }

    fn length(&self) -> starlark::Result<i32> {
        Ok(self.0.shape().first().map_or(0, |n| i32::try_from(*n).unwrap_or(i32::MAX)))
    }

    /// `x[0] = 3`, `x[:] += y`.
    fn set_at(&self, _index: Value<'v>, _new: Value<'v>) -> starlark::Result<()> {
        Err(starlark::Error::new_native(anyhow::anyhow!(NOT_COMPUTED)))
    }

    /// `tensor[3]`: an element, or a row.
    fn at(&self, index: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let native = |error: anyhow::Error| starlark::Error::new_native(error);
        super::transposed::in_a_row(&self.0).map_err(native)?;
        let index = whole(index, "an index of a tensor").map_err(native)?;
        let Some((rows, rest)) = self.0.shape().split_first() else {
            let text = "invalid index of a 0-dim tensor";
            return Err(native(refused(DistError::new(ErrorKind::IndexError, text))));
        };
        let at = if index < 0 { index + *rows as i64 } else { index };
        let Some(at) = u64::try_from(at).ok().filter(|at| at < rows) else {
            let text = format!("index {index} is out of bounds for dimension 0 with size {rows}");
            return Err(native(refused(DistError::new(ErrorKind::IndexError, text))));
        };
        Ok(heap.alloc(TensorValue(self.0.narrow(at, 1).view(rest))))
    }

    fn slice(
        &self,
        start: Option<Value<'v>>,
        stop: Option<Value<'v>>,
        stride: Option<Value<'v>>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let numel = self.0.numel() as i64;
        let of = |value: Option<Value<'v>>, none: i64| -> anyhow::Result<i64> {
            let Some(value) = value.filter(|value| !value.is_none()) else { return Ok(none) };
            let at = whole(value, "an index of a tensor")?;
            Ok(if at < 0 { at + numel } else { at }.clamp(0, numel))
        };
        if self.0.shape().len() != 1 || stride.is_some_and(|stride| !stride.is_none()) {
            let why = "only a tensor of one dimension is cut here, and without a stride";
            return Err(starlark::Error::new_native(anyhow::anyhow!(why)));
        }
        let from = of(start, 0).map_err(starlark::Error::new_native)?;
        let to = of(stop, numel).map_err(starlark::Error::new_native)?;
        let length = (to - from).max(0) as u64;
        Ok(heap.alloc(TensorValue(self.0.narrow(from as u64, length))))
    }
}

/// Why nothing is written into a tensor.
pub(super) const NOT_COMPUTED: &str = "tensors are not computed with here: they hold no values while \
     the program is recorded. Make what a call takes with torch.full((n,), value), leave out what \
     only changes values, and compute(\"add\", us = 20) takes the time that it would";

/// The tensor that a method is called on.
pub(super) fn tensor<'v>(this: Value<'v>) -> anyhow::Result<&'v c10d::Tensor> {
    let value = this.downcast_ref::<TensorValue>().map(|value| &value.0);
    value.ok_or_else(|| anyhow::anyhow!("{} is no tensor", class_of(this)))
}

#[starlark_module]
fn tensor_methods(builder: &mut MethodsBuilder) {
    fn numel(this: Value<'_>) -> anyhow::Result<u64> {
        Ok(tensor(this)?.numel())
    }

    fn nelement(this: Value<'_>) -> anyhow::Result<u64> {
        Ok(tensor(this)?.numel())
    }

    fn dim(this: Value<'_>) -> anyhow::Result<u64> {
        Ok(tensor(this)?.shape().len() as u64)
    }

    fn element_size(this: Value<'_>) -> anyhow::Result<u64> {
        Ok(tensor(this)?.dtype().size_bytes())
    }

    fn size<'v>(
        this: Value<'v>,
        #[starlark(default = NoneOr::None)] dim: NoneOr<i32>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let shape = tensor(this)?.shape();
        let Some(dim) = dim.into_option() else {
            return Ok(heap.alloc(SizeValue(shape.to_vec())));
        };
        let at = if dim < 0 { dim + shape.len() as i32 } else { dim };
        let size = usize::try_from(at).ok().and_then(|at| shape.get(at));
        let size = size.ok_or_else(|| anyhow::anyhow!("IndexError: Dimension out of range"))?;
        Ok(heap.alloc(*size))
    }

    fn view<'v>(
        this: Value<'v>,
        #[starlark(args)] sizes: starlark::values::tuple::UnpackTuple<i32>,
    ) -> anyhow::Result<TensorValue> {
        let tensor = tensor(this)?;
        let shape = super::arguments::shape(&sizes.items, tensor.numel())?;
        if shape != tensor.shape() {
            super::transposed::in_a_row(tensor)?;
        }
        Ok(TensorValue(tensor.view(&shape[..])))
    }

    fn reshape<'v>(
        this: Value<'v>,
        #[starlark(args)] sizes: starlark::values::tuple::UnpackTuple<i32>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let tensor = tensor(this)?;
        let shape = super::arguments::shape(&sizes.items, tensor.numel())?;
        if shape == tensor.shape() {
            return Ok(TensorValue(tensor.clone()));
        }
        Ok(TensorValue(super::transposed::contiguous(eval, tensor)?.0.view(&shape[..])))
    }

    fn chunk<'v>(this: Value<'v>, chunks: u32, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        anyhow::ensure!((1..=65536).contains(&chunks), "a tensor is cut into 1 to 65536 chunks");
        super::transposed::in_a_row(tensor(this)?)?;
        let parts = tensor(this)?.chunk(u64::from(chunks)).into_iter().map(TensorValue);
        let parts: Vec<TensorValue> = parts.collect();
        Ok(heap.alloc(AllocTuple(parts)))
    }

    fn contiguous<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let heap = eval.heap();
        let from = tensor(this)?;
        if from.is_contiguous() {
            return Ok(this);
        }
        let made = super::transposed::contiguous(eval, from)?;
        Ok(heap.alloc(made))
    }

    fn detach<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }

    fn flatten<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let tensor = tensor(this)?;
        Ok(TensorValue(super::transposed::contiguous(eval, tensor)?.0.view(tensor.numel())))
    }

    fn t<'v>(this: Value<'v>) -> anyhow::Result<TensorValue> {
        let tensor = tensor(this)?;
        let dims = tensor.shape().len();
        if dims > 2 {
            let text = format!("t() expects a tensor with <= 2 dimensions, but self is {dims}D");
            return Err(refused(DistError::new(ErrorKind::RuntimeError, text)));
        }
        Ok(TensorValue(tensor.transposed()))
    }

    fn item(this: Value<'_>) -> anyhow::Result<NoneType> {
        let _ = tensor(this)?;
        Err(anyhow::anyhow!(
            "a tensor's values are not known while the program is recorded: nothing can be \
             decided by them"
        ))
    }

    fn clone<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<TensorValue> {
        let from = tensor(this)?.clone();
        let to = (from.device(), from.device_index());
        super::torch::make_as(eval, &from, to, from.dtype())
    }
}
