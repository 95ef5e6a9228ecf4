//! `torch.nn`'s losses: made from a model's output, and `backward()` is called on them.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::nn::output::like_of;
use crate::nn::results::scalar;
use crate::process::state::process;
use crate::python::type_error::type_error;
use crate::tensor::value::tensor;
use crate::tensor::{elementwise, graph};
use allocative::Allocative;
use lockstep_core::dtype::Dtype;
use lockstep_torch::c10d::Tensor;
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::tuple::UnpackTuple;
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value,
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
    /// `reduction="none"`: a loss for each sample.
    each: bool,
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

    /// A loss depends on the same models as the output; the kind of loss changes nothing here.
    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let named = args.names_map()?;
        let reduction = named.iter().find(|(name, _)| name.as_str() == "reduction");
        let each = reduction.map_or(self.each, |(_, kind)| kind.unpack_str() == Some("none"));
        if self.class {
            return Ok(heap.alloc(LossValue { class: false, each, ..self.clone() }));
        }
        let own = |name: &str| match name {
            "input" => Some(0),
            "target" => Some(1),
            _ => None,
        };
        let mut given: Vec<Value<'v>> = args.positions(heap)?.take(2).collect();
        let mut rest: Vec<(usize, Value<'v>)> =
            named.iter().filter_map(|(name, value)| Some((own(name.as_str())?, *value))).collect();
        rest.sort_by_key(|(place, _)| *place);
        given.extend(rest.into_iter().map(|(_, value)| value));
        loss_of(self.name, each, &given, eval).map_err(starlark::Error::new_native)
    }
}

/// A loss: one element, whose value is not followed, and which depends on the same models as its arguments.
fn loss_of<'v>(
    name: &str,
    each: bool,
    given: &[Value<'v>],
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    let tensors: Vec<Tensor> = given.iter().filter_map(|value| like_of(*value)).collect();
    let Some(first) = tensors.first() else {
        return Err(type_error(format!(
            "{name}() is taken of a model's output or a tensor: loss = loss_fn(model(batch), labels)"
        )));
    };
    let like = Tensor::nothing(first.device()).on_device(first.device_index());
    let like = like.with_grad_fn(graph::joined(&tensors));
    let crosses = matches!(name, "CrossEntropyLoss" | "cross_entropy" | "NLLLoss" | "nll_loss");
    // Those are of float32 under autocast as well.
    let half = matches!(first.dtype(), Dtype::Float16 | Dtype::Bfloat16);
    let dtype = if half || !first.dtype().is_float() { Dtype::Float32 } else { first.dtype() };
    if !each {
        return scalar(&like, dtype, eval);
    }
    let of = if crosses { given.get(1) } else { given.first() };
    let of = of.copied().unwrap_or_else(Value::new_none);
    let heap = eval.heap();
    match tensor(of) {
        Ok(of) => {
            let shape = of.shape().to_vec();
            let made = elementwise::made(process(eval)?, &like, dtype, &shape, None)?;
            Ok(heap.alloc(made))
        }
        Err(_) => Ok(given.first().copied().unwrap_or(of)),
    }
}

/// `torch.nn.MSELoss` and its like.
pub(crate) fn classes(builder: &mut GlobalsBuilder) {
    for name in [
        "MSELoss",
        "L1Loss",
        "SmoothL1Loss",
        "CrossEntropyLoss",
        "NLLLoss",
        "BCELoss",
        "BCEWithLogitsLoss",
        "KLDivLoss",
        "HuberLoss",
    ] {
        builder.set(name, LossValue { name, class: true, each: false });
    }
}

/// `torch.nn.functional.mse_loss` and its like.
pub(crate) fn functional(builder: &mut GlobalsBuilder) {
    for name in [
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "cross_entropy",
        "nll_loss",
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "kl_div",
        "huber_loss",
    ] {
        builder.set(name, LossValue { name, class: false, each: false });
    }
    crate::nn::functional::functional(builder);
}
