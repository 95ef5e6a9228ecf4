//! `torch.nn`'s losses: of the output of a model, what `backward()` is called on.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use super::arguments as take;
use super::module_value::OutputValue;
use super::torch::{Filled, On, filled_tensor};
use super::values::TensorValue;
use crate::c10d::Device;
use crate::dtype::Dtype;
use crate::plan::Fill;
use allocative::Allocative;
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::tuple::UnpackTuple;
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;

/// A loss, or the class that makes one.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct LossValue {
    name: &'static str,
    /// `nn.MSELoss` itself, whose call is a loss and no output.
    class: bool,
}
starlark_simple_value!(LossValue);

impl fmt::Display for LossValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}()", self.name)
    }
}

methods_static!(LOSS_METHODS = loss_methods);

/// `nn.MSELoss().to(device)`: it has no parameters.
#[starlark_module]
fn loss_methods(builder: &mut MethodsBuilder) {
    fn to<'v>(
        this: Value<'v>,
        #[starlark(args)] place: UnpackTuple<Value<'v>>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = place;
        Ok(this)
    }

    fn cuda<'v>(
        this: Value<'v>,
        #[starlark(args)] device: UnpackTuple<Value<'v>>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = device;
        Ok(this)
    }
}

#[starlark_value(type = "Loss")]
impl<'v> StarlarkValue<'v> for LossValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(LOSS_METHODS.methods())
    }

    /// A loss depends on what the output depends on; which loss it is changes nothing here.
    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        if self.class {
            return Ok(heap.alloc(LossValue { class: false, ..self.clone() }));
        }
        let named = args.names_map()?;
        let mut given = args.positions(heap)?.chain(named.values().copied());
        let output = given.find_map(|value| value.downcast_ref::<OutputValue>().cloned());
        let mut tensors = args.positions(heap)?.chain(named.values().copied());
        let tensor = tensors.find_map(|value| value.downcast_ref::<TensorValue>());
        match output {
            Some(output) => Ok(heap.alloc(output)),
            // Of tensors alone it is one, of which only the shape is followed.
            None if tensor.is_some() => {
                let on = On::Device(Device::Cpu, None);
                let zeros = Filled::As(Fill::Zeros);
                let made = filled_tensor(eval, &[], Dtype::Float32, zeros, on, None);
                Ok(heap.alloc(made.map_err(starlark::Error::new_native)?))
            }
            None => Err(starlark::Error::new_native(take::type_error(format!(
                "{}() is taken of a model's output or a tensor: loss = loss_fn(model(batch), labels)",
                self.name
            )))),
        }
    }
}

/// `torch.nn.MSELoss` and its like.
pub(super) fn classes(builder: &mut GlobalsBuilder) {
    for name in [
        "MSELoss",
        "L1Loss",
        "SmoothL1Loss",
        "CrossEntropyLoss",
        "NLLLoss",
        "BCELoss",
        "BCEWithLogitsLoss",
    ] {
        builder.set(name, LossValue { name, class: true });
    }
}

/// `torch.nn.functional.mse_loss` and its like.
pub(super) fn functional(builder: &mut GlobalsBuilder) {
    for name in [
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "cross_entropy",
        "nll_loss",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
    ] {
        builder.set(name, LossValue { name, class: false });
    }
    super::callable::add(builder, &["relu", "softmax", "log_softmax", "dropout"], passed_on);
}

/// A function of `torch.nn.functional` whose result depends on what its input does, and has its shape.
fn passed_on<'v>(
    name: &'static str,
    args: &Arguments<'v, '_>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> starlark::Result<Value<'v>> {
    take::first(args, "input", name, eval.heap())
}
