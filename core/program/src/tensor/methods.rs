//! A tensor's operators, attributes and methods.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::values::{DeviceValue, DtypeValue};
use crate::process::raised::refused;
use crate::python::type_error::type_error;
use crate::tensor::deferred::binary;
use crate::tensor::element_operation::Operation;
use crate::tensor::graph;
use crate::tensor::operators::loss_of;
use crate::tensor::size::SizeValue;
use crate::tensor::value::{TensorValue, tensor};
use lockstep_torch::c10d::{self, DistError, ErrorKind};
use starlark::environment::{Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::dict::UnpackDictEntries;
use starlark::values::none::{NoneOr, NoneType};
use starlark::values::tuple::UnpackTuple;
use starlark::values::{Heap, StarlarkValue, Value, ValueLike};
use starlark::{methods_static, starlark_module};
use starlark_derive::starlark_value;
use std::cmp::Ordering;

/// Rows of a tensor that a loop goes through at most.
const MAX_ROWS: u64 = 65_536;

methods_static!(TENSOR_METHODS = every_method);

fn every_method(builder: &mut MethodsBuilder) {
    tensor_methods(builder);
    crate::tensor::conversions::methods(builder);
    crate::tensor::reductions::methods(builder);
    crate::tensor::elementwise::methods(builder);
    crate::tensor::shapes::methods(builder);
    crate::tensor::products::methods(builder);
    crate::tensor::triangles::methods(builder);
    crate::tensor::hooks::methods(builder);
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
            "grad" => Some(crate::nn::parameters::grad(&self.0, heap)),
            "data" => Some(heap.alloc(TensorValue(self.0.clone().detached()))),
            "T" if self.0.shape().len() <= 2 => Some(heap.alloc(TensorValue(self.0.transposed()))),
            "requires_grad" => Some(Value::new_bool(graph::requires_grad(&self.0))),
            "is_leaf" => Some(Value::new_bool(self.0.grad_fn().is_none())),
            "is_cuda" => Some(Value::new_bool(self.0.device() == c10d::Device::Cuda)),
            _ => None,
        }
    }

    fn has_attr(&self, attribute: &str, _heap: Heap<'v>) -> bool {
        matches!(
            attribute,
            "shape"
                | "dtype"
                | "device"
                | "grad"
                | "data"
                | "T"
                | "requires_grad"
                | "is_leaf"
                | "is_cuda"
                | "ndim"
                | "itemsize"
                | "nbytes"
        )
    }

    /// `p.requires_grad = False`, `p.grad = None`; a parameter's values are not followed.
    fn set_attr(&self, attribute: &str, value: Value<'v>) -> starlark::Result<()> {
        match attribute {
            "requires_grad" => graph::train(&self.0, value.to_bool()),
            "grad" => crate::nn::parameters::set_grad(&self.0, value),
            "data" if crate::nn::parameter::parameter_of(&self.0).is_some() => {}
            other => {
                return Err(starlark::Error::new_native(anyhow::anyhow!(
                    "{other} of a tensor is not set here"
                )));
            }
        }
        Ok(())
    }

    // May not fail: the process is told, and refuses before anything else happens.
    fn to_bool(&self) -> bool {
        crate::process::undecided::by_values();
        false
    }

    fn compare(&self, _other: Value<'v>) -> starlark::Result<Ordering> {
        Err(crate::process::undecided::undecided(crate::process::undecided::VALUES))
    }

    /// `for row in tensor`.
    fn iterate_collect(&self, heap: Heap<'v>) -> starlark::Result<Vec<Value<'v>>> {
        let failed = |text: &str| Err(starlark::Error::new_native(type_error(text)));
        let Some(rows) = self.0.shape().first() else {
            return failed("iteration over a 0-d tensor");
        };
        if *rows > MAX_ROWS {
            return Err(starlark::Error::new_native(anyhow::anyhow!(
                "at most {MAX_ROWS} rows of a tensor are gone through"
            )));
        }
        (0..*rows).map(|at| self.at(heap.alloc(at), heap)).collect()
    }

    fn length(&self) -> starlark::Result<i32> {
        Ok(self.0.shape().first().map_or(0, |n| i32::try_from(*n).unwrap_or(i32::MAX)))
    }

    fn add(&self, rhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        binary(Operation::Add, &self.0, rhs, heap)
    }

    fn radd(&self, lhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        binary(Operation::Add, &self.0, lhs, heap)
    }

    fn sub(&self, other: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let outputs = || loss_of(&self.0, other, "-", heap);
        binary(Operation::Sub, &self.0, other, heap).unwrap_or_else(outputs)
    }

    fn mul(&self, rhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        binary(Operation::Mul, &self.0, rhs, heap)
    }

    fn rmul(&self, lhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        binary(Operation::Mul, &self.0, lhs, heap)
    }

    fn div(&self, other: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let outputs = || loss_of(&self.0, other, "/", heap);
        binary(Operation::Div, &self.0, other, heap).unwrap_or_else(outputs)
    }

    fn floor_div(&self, other: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let outputs = || loss_of(&self.0, other, "//", heap);
        binary(Operation::FloorDiv, &self.0, other, heap).unwrap_or_else(outputs)
    }

    fn percent(&self, other: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let outputs = || loss_of(&self.0, other, "%", heap);
        binary(Operation::Mod, &self.0, other, heap).unwrap_or_else(outputs)
    }

    /// `x is y`: the same tensor. The values of two tensors are not compared.
    fn equals(&self, other: Value<'v>) -> starlark::Result<bool> {
        let own = |tensor: &TensorValue| tensor.0.clone().detached();
        Ok(other.downcast_ref::<TensorValue>().is_some_and(|other| own(other) == own(self)))
    }

    fn minus(&self, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let by = heap.alloc(-1);
        binary(Operation::Mul, &self.0, by, heap).unwrap_or_else(|| loss_of(&self.0, by, "-", heap))
    }

    /// `x[0] = 3`. For `x[0] += 3`, the assigned value is the part that was changed in place.
    fn set_at(&self, index: Value<'v>, new: Value<'v>) -> starlark::Result<()> {
        let part = new.downcast_ref::<TensorValue>();
        if part.is_some_and(|part| part.0.storage() == self.0.storage()) {
            return Ok(());
        }
        let into = crate::tensor::indexing::at(&self.0, index);
        let done = into.and_then(|into| crate::tensor::deferred::assign(&into, new));
        done.map_err(starlark::Error::new_native)
    }

    /// `tensor[3]`: an element, or a row; `tensor[1:3, 0]`.
    fn at(&self, index: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        let found = crate::tensor::indexing::at(&self.0, index);
        Ok(heap.alloc(TensorValue(found.map_err(starlark::Error::new_native)?)))
    }

    fn slice(
        &self,
        start: Option<Value<'v>>,
        stop: Option<Value<'v>>,
        stride: Option<Value<'v>>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        let none = Value::new_none();
        let (start, stop) = (start.unwrap_or(none), stop.unwrap_or(none));
        let step = stride.unwrap_or(none);
        let cut = crate::tensor::transposed::in_a_row(&self.0)
            .and_then(|()| crate::tensor::indexing::sliced(&self.0, 0, start, stop))
            .and_then(|cut| crate::tensor::indexing::stepped(&cut, 0, step));
        Ok(heap.alloc(TensorValue(cut.map_err(starlark::Error::new_native)?)))
    }
}

/// True if a shape has the dimensions of another, some of them split.
fn splits(whole: &[u64], shape: &[u64]) -> bool {
    let mut left = shape.iter();
    let each = whole.iter().filter(|size| **size != 1).all(|size| {
        let mut product = 1;
        while product < *size
            && let Some(part) = left.next()
        {
            product *= *part;
        }
        product == *size
    });
    each && left.all(|size| *size == 1)
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

    fn view_as<'v>(this: Value<'v>, other: Value<'v>) -> anyhow::Result<TensorValue> {
        let (tensor, other) = (tensor(this)?, crate::tensor::value::like(other)?);
        crate::dist::arguments::fits(other.shape(), tensor.numel())?;
        crate::tensor::transposed::in_a_row(tensor)?;
        Ok(TensorValue(tensor.view(other.shape())))
    }

    fn view<'v>(
        this: Value<'v>,
        #[starlark(args)] sizes: UnpackTuple<Value<'v>>,
    ) -> anyhow::Result<TensorValue> {
        // `view(dtype)`.
        if let [dtype] = sizes.items[..]
            && dtype.downcast_ref::<DtypeValue>().is_some()
        {
            anyhow::bail!("a view of another type is not followed here: write x.to(dtype)");
        }
        let tensor = tensor(this)?;
        let shape = crate::dist::arguments::shape(&sizes.items, tensor.numel())?;
        anyhow::ensure!(
            !tensor.is_in_parts() || splits(tensor.shape(), &shape),
            "a view that joins dimensions of a part that does not lie in a row, which PyTorch may \
             refuse: write x.reshape(...)"
        );
        if shape != tensor.shape() {
            crate::tensor::transposed::in_a_row(tensor)?;
        }
        Ok(TensorValue(tensor.view(&shape[..])))
    }

    fn reshape<'v>(
        this: Value<'v>,
        #[starlark(args)] sizes: UnpackTuple<Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let tensor = tensor(this)?;
        let shape = crate::dist::arguments::shape(&sizes.items, tensor.numel())?;
        if shape == tensor.shape() {
            return Ok(TensorValue(tensor.clone()));
        }
        Ok(TensorValue(crate::tensor::transposed::contiguous(eval, tensor)?.0.view(&shape[..])))
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
        let made = crate::tensor::transposed::contiguous(eval, from)?;
        Ok(heap.alloc(made))
    }

    fn detach<'v>(this: Value<'v>) -> anyhow::Result<TensorValue> {
        Ok(TensorValue(tensor(this)?.clone().detached()))
    }

    fn backward<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let tensor = tensor(this)?;
        let given = named.entries.iter().any(|(name, _)| *name == "gradient");
        let given = !args.items.is_empty() || given;
        if tensor.numel() != 1 && graph::requires_grad(tensor) && !given {
            let text = "grad can be implicitly created only for scalar outputs";
            return Err(refused(DistError::new(ErrorKind::RuntimeError, text)));
        }
        crate::nn::backward::backward(graph::joined([tensor]), eval)?;
        Ok(NoneType)
    }

    fn flatten<'v>(
        this: Value<'v>,
        #[starlark(default = 0)] start_dim: i32,
        #[starlark(default = -1)] end_dim: i32,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let tensor = tensor(this)?;
        let shape = tensor.shape();
        let dims = shape.len().max(1);
        let (start, end) = (
            crate::tensor::indexing::dimension(i64::from(start_dim), dims)?,
            crate::tensor::indexing::dimension(i64::from(end_dim), dims)?,
        );
        let between = shape.get(start..=end).unwrap_or_default();
        let flat = between.iter().fold(1_u64, |all, size| all.saturating_mul(*size));
        let (before, behind) = (shape.get(..start), shape.get(end + 1..));
        let flattened = [before.unwrap_or_default(), &[flat], behind.unwrap_or_default()].concat();
        Ok(TensorValue(crate::tensor::transposed::contiguous(eval, tensor)?.0.view(&flattened[..])))
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

    fn clone<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<TensorValue> {
        let from = tensor(this)?.clone();
        let to = (from.device(), from.device_index());
        crate::tensor::converted::make_as(eval, &from, to, from.dtype())
    }
}
