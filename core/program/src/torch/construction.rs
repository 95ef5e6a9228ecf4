//! `torch`: types, devices, and tensors as the program makes them.

#![allow(clippy::too_many_arguments, reason = "PyTorch's arguments")]

use crate::dist::arguments as take;
use crate::dist::values::{Context, ContextValue, DeviceValue, DtypeValue, TensorValue};
use crate::process::state::process;
use crate::python::numbers;
use crate::tensor::made::{On, make, on, sizes};
use lockstep_core::dtype::Dtype;
use lockstep_torch::c10d::Device;
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::Value;
use starlark::values::none::NoneType;
use starlark::values::tuple::UnpackTuple;

/// `torch.zeros(2, 3)` and `torch.zeros((2, 3))`.
fn sizes_of(args: &UnpackTuple<Value<'_>>) -> anyhow::Result<Vec<u64>> {
    match args.items[..] {
        [one] => sizes(one),
        ref many => many.iter().map(|size| Ok(sizes(*size)?.iter().product())).collect(),
    }
}

/// Makes a tensor of `torch`'s, with the program's name for it.
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

/// `requires_grad=True` of a new tensor.
fn trained(made: TensorValue, requires_grad: bool) -> anyhow::Result<TensorValue> {
    if requires_grad {
        crate::tensor::graph::train(&made.0, true);
    }
    Ok(made)
}

#[starlark_module]
pub(crate) fn functions(builder: &mut GlobalsBuilder) {
    fn zeros<'v>(
        #[starlark(args)] size: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = false)] requires_grad: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let none = Value::new_none();
        trained(of_torch(eval, sizes_of(&size)?, dtype, none, device)?, requires_grad)
    }

    fn empty<'v>(
        #[starlark(args)] size: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = false)] requires_grad: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let none = Value::new_none();
        trained(of_torch(eval, sizes_of(&size)?, dtype, none, device)?, requires_grad)
    }

    fn ones<'v>(
        #[starlark(args)] size: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = false)] requires_grad: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let one = eval.heap().alloc(1);
        trained(of_torch(eval, sizes_of(&size)?, dtype, one, device)?, requires_grad)
    }

    fn randn<'v>(
        #[starlark(args)] size: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] generator: Value<'v>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = false)] requires_grad: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        // Its numbers are known nowhere, whoever draws them.
        let _: Value<'v> = generator;
        let random = eval.heap().alloc("random");
        trained(of_torch(eval, sizes_of(&size)?, dtype, random, device)?, requires_grad)
    }

    fn rand<'v>(
        #[starlark(args)] size: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] generator: Value<'v>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = false)] requires_grad: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        // Its numbers are known nowhere, whoever draws them.
        let _: Value<'v> = generator;
        let random = eval.heap().alloc("random");
        trained(of_torch(eval, sizes_of(&size)?, dtype, random, device)?, requires_grad)
    }

    fn full<'v>(
        size: Value<'v>,
        fill_value: Value<'v>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = false)] requires_grad: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<TensorValue> {
        let whole = dtype.is_none() && fill_value.get_type() == "int";
        let dtype = if whole { eval.heap().alloc(DtypeValue(Dtype::Int64)) } else { dtype };
        trained(of_torch(eval, sizes(size)?, dtype, fill_value, device)?, requires_grad)
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
        let made = crate::tensor::indexing::of_data(eval, data, dtype, on(device, On::Torch)?)?;
        trained(made, requires_grad)
    }

    fn device<'v>(
        r#type: Value<'v>,
        #[starlark(default = NoneType)] index: Value<'v>,
    ) -> anyhow::Result<DeviceValue> {
        let given = numbers::whole_or_none(index, "index")?.and_then(|index| index.try_into().ok());
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
