//! `torch.optim`: an optimizer's step takes time.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use super::module_value::param_bytes;
use super::process::process;
use allocative::Allocative;
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::dict::UnpackDictEntries;
use starlark::values::none::NoneType;
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;

/// An optimizer of a model.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct OptimizerValue(#[allocative(skip)] u64);
starlark_simple_value!(OptimizerValue);

impl fmt::Display for OptimizerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Optimizer(…)")
    }
}

methods_static!(OPTIMIZER_METHODS = optimizer_methods);

#[starlark_value(type = "Optimizer")]
impl<'v> StarlarkValue<'v> for OptimizerValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(OPTIMIZER_METHODS.methods())
    }
}

/// How long an optimizer's step takes: it reads and writes every parameter a few times.
fn optimizer<'v>(
    model: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<OptimizerValue> {
    let bytes = param_bytes(model, process(eval)?);
    // Three passes over the parameters at 1 TB/s.
    Ok(OptimizerValue((bytes.saturating_mul(3) / 1000).max(1)))
}

#[starlark_module]
pub(super) fn optimizers(builder: &mut GlobalsBuilder) {
    fn SGD<'v>(
        params: Value<'v>,
        #[starlark(kwargs)] kwargs: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<OptimizerValue> {
        let _ = kwargs;
        optimizer(params, eval)
    }

    fn Adam<'v>(
        params: Value<'v>,
        #[starlark(kwargs)] kwargs: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<OptimizerValue> {
        let _ = kwargs;
        optimizer(params, eval)
    }

    fn AdamW<'v>(
        params: Value<'v>,
        #[starlark(kwargs)] kwargs: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<OptimizerValue> {
        let _ = kwargs;
        optimizer(params, eval)
    }
}

#[starlark_module]
fn optimizer_methods(builder: &mut MethodsBuilder) {
    fn step<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<NoneType> {
        let ns = this.downcast_ref::<OptimizerValue>().map_or(1, |value| value.0);
        let process = process(eval)?;
        let slowed = (ns as f64 * process.slowness) as u64;
        process.dist()?.compute("optimizer.step", slowed);
        Ok(NoneType)
    }

    fn zero_grad<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }
}
