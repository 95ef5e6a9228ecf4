//! `torch.amp`: a model's output under `autocast` has the type that `autocast` names; a `GradScaler` scales
//! values that are not followed, and steps its optimizer.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::arguments as take;
use crate::dist::values::{Context, ContextValue};
use crate::process::state::process;
use crate::process::undecided::{Number, Unknown, UnknownValue};
use crate::torch::checkpoint::{CheckpointValue, loaded};
use allocative::Allocative;
use lockstep_core::dtype::Dtype;
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::dict::UnpackDictEntries;
use starlark::values::none::NoneType;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;

/// A gradient scaler.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct ScalerValue;
starlark_simple_value!(ScalerValue);

impl fmt::Display for ScalerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<torch.amp.grad_scaler.GradScaler object at 0xADDR>")
    }
}

methods_static!(SCALER_METHODS = scaler_methods);

#[starlark_value(type = "GradScaler")]
impl<'v> StarlarkValue<'v> for ScalerValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(SCALER_METHODS.methods())
    }
}

#[starlark_module]
fn scaler_methods(builder: &mut MethodsBuilder) {
    fn scale<'v>(this: Value<'v>, outputs: Value<'v>) -> anyhow::Result<Value<'v>> {
        let _ = this;
        Ok(outputs)
    }

    fn step<'v>(
        this: Value<'v>,
        optimizer: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let _ = this;
        let step = optimizer.get_attr_error("step", eval.heap())?;
        eval.eval_function(step, &[], &[])
    }

    fn update<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] new_scale: Value<'v>,
    ) -> anyhow::Result<NoneType> {
        let _ = (this, new_scale);
        Ok(NoneType)
    }

    fn unscale_<'v>(this: Value<'v>, optimizer: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = (this, optimizer);
        Ok(NoneType)
    }

    /// It changes with the gradients.
    fn get_scale<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<UnknownValue> {
        let _ = this;
        Ok(process(eval)?.unknown(Unknown::Value(Number::Real)))
    }

    fn state_dict<'v>(this: Value<'v>) -> anyhow::Result<CheckpointValue> {
        let _ = this;
        Ok(CheckpointValue)
    }

    fn load_state_dict<'v>(this: Value<'v>, state_dict: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = this;
        loaded(state_dict)
    }
}

/// `torch.autocast` of a device, with the type that it takes where none is named.
fn autocast<'v>(
    device: &str,
    named: &UnpackDictEntries<&'v str, Value<'v>>,
    args: &[Value<'v>],
) -> anyhow::Result<ContextValue> {
    let get = |name: &str| named.entries.iter().find(|(own, _)| *own == name).map(|(_, of)| *of);
    let none = if device == "cuda" { Dtype::Float16 } else { Dtype::Bfloat16 };
    let dtype = get("dtype").or(args.first().copied()).unwrap_or_else(Value::new_none);
    let enabled = get("enabled").or(args.get(1).copied()).is_none_or(Value::to_bool);
    let dtype = take::dtype(dtype, none)?;
    Ok(ContextValue(Context::Autocast(enabled.then_some(dtype))))
}

/// `torch.autocast`, `torch.amp.autocast`.
#[starlark_module]
pub(crate) fn functions(builder: &mut GlobalsBuilder) {
    fn autocast<'v>(
        device_type: &str,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
    ) -> anyhow::Result<ContextValue> {
        crate::torch::amp::autocast(device_type, &named, &args.items)
    }
}

#[starlark_module]
fn of_cuda(builder: &mut GlobalsBuilder) {
    fn autocast<'v>(
        #[starlark(default = true)] enabled: bool,
        #[starlark(default = NoneType)] dtype: Value<'v>,
        #[starlark(default = true)] cache_enabled: bool,
    ) -> anyhow::Result<ContextValue> {
        let _ = cache_enabled;
        let dtype = take::dtype(dtype, Dtype::Float16)?;
        Ok(ContextValue(Context::Autocast(enabled.then_some(dtype))))
    }
}

#[starlark_module]
fn scalers(builder: &mut GlobalsBuilder) {
    fn GradScaler<'v>(
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
    ) -> anyhow::Result<ScalerValue> {
        let _ = (args, named);
        Ok(ScalerValue)
    }
}

/// `torch.amp`.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    functions(builder);
    scalers(builder);
}

/// `torch.cuda.amp`.
pub(crate) fn cuda(builder: &mut GlobalsBuilder) {
    of_cuda(builder);
    scalers(builder);
}
