//! The settings of a program that nothing here asks for: seeds of random numbers, threads of a
//! process, precision.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::Truth;
use crate::dist::values::{Context, ContextValue};
use crate::process::state::process;
use allocative::Allocative;
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::Evaluator;
use starlark::values::none::NoneType;
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;

/// `torch.Generator()`: its numbers are others than PyTorch's, and known nowhere.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
struct GeneratorValue;
starlark_simple_value!(GeneratorValue);

impl fmt::Display for GeneratorValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<torch._C.Generator object at 0xADDR>")
    }
}

methods_static!(GENERATOR_METHODS = generator_methods);

#[starlark_value(type = "Generator")]
impl<'v> StarlarkValue<'v> for GeneratorValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(GENERATOR_METHODS.methods())
    }
}

#[starlark_module]
fn generator_methods(builder: &mut MethodsBuilder) {
    fn manual_seed<'v>(this: Value<'v>, seed: Value<'v>) -> anyhow::Result<Value<'v>> {
        let _ = seed;
        Ok(this)
    }
}

/// The version of PyTorch whose documents are followed first.
const VERSION: &str = "2.7.1";

#[starlark_module]
pub(crate) fn functions(builder: &mut GlobalsBuilder) {
    const __version__: &'static str = VERSION;

    fn Generator<'v>(
        #[starlark(default = NoneType)] device: Value<'v>,
    ) -> anyhow::Result<GeneratorValue> {
        let _ = device;
        Ok(GeneratorValue)
    }

    fn manual_seed<'v>(seed: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = seed;
        Ok(NoneType)
    }

    /// As a statement of its own it takes effect at once; elsewhere it is a context for `with`.
    fn set_grad_enabled(
        mode: Truth,
        eval: &mut Evaluator<'_, '_, '_>,
    ) -> anyhow::Result<ContextValue> {
        let process = process(eval)?;
        let line = process.line_text().trim_start();
        let path = line.split_once("set_grad_enabled(").map(|(path, _)| path);
        if path.is_some_and(|path| path.chars().all(|c| c.is_alphanumeric() || "._".contains(c))) {
            process.set_grad(mode.0);
        }
        Ok(ContextValue(Context::Grad(mode.0)))
    }

    /// The model or the function itself: what a compiler makes of it calls the same.
    fn compile<'v>(
        #[starlark(default = NoneType)] model: Value<'v>,
        #[starlark(kwargs)] options: Value<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = options;
        anyhow::ensure!(
            !model.is_none(),
            "torch.compile is called with the model here, not as a decorator with options"
        );
        Ok(model)
    }

    fn use_deterministic_algorithms<'v>(
        mode: Value<'v>,
        #[starlark(require = named, default = false)] warn_only: bool,
    ) -> anyhow::Result<NoneType> {
        let _ = (mode, warn_only);
        Ok(NoneType)
    }

    fn set_num_threads<'v>(int: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = int;
        Ok(NoneType)
    }

    fn set_num_interop_threads<'v>(int: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = int;
        Ok(NoneType)
    }

    fn set_float32_matmul_precision<'v>(precision: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = precision;
        Ok(NoneType)
    }
}
