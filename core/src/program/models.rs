//! Models that programs can name or build: `models.resnet50()`, `models.mlp([…])`, `nn.Linear(…)`.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use super::arguments as take;
use crate::ddp::model::{Model, known_models, mlp, mlp_with_norms, named};
use crate::dtype::Dtype;
use allocative::Allocative;
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::tuple::UnpackTuple;
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;
use std::sync::Arc;

/// A model that has not been wrapped.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct ModelValue(#[allocative(skip)] pub(super) Arc<Model>);
starlark_simple_value!(ModelValue);

impl fmt::Display for ModelValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({} parameters)", self.0.name, self.0.params.len())
    }
}

/// The models that ship, each as a function without arguments.
pub(super) fn zoo(builder: &mut GlobalsBuilder) {
    for name in known_models() {
        if let Some(model) = named(name) {
            let python = name.replace(['-', '.'], "_");
            builder.set(&python, ModelValue(Arc::new(model)));
        }
    }
    builders(builder);
}

#[starlark_module]
fn builders(builder: &mut GlobalsBuilder) {
    /// Linear layers with these numbers of features, and norms with buffers between them.
    fn mlp<'v>(
        sizes: Value<'v>,
        #[starlark(default = false)] batch_norm: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<ModelValue> {
        let sizes = take::counts(sizes, "sizes", eval.heap())?.unwrap_or_default();
        anyhow::ensure!(
            (2..=1000).contains(&sizes.len()) && sizes.iter().all(|n| (1..=1 << 20).contains(n)),
            "an mlp has 2 to 1000 sizes between 1 and 1048576"
        );
        let model = if batch_norm { mlp_with_norms } else { mlp };
        Ok(ModelValue(Arc::new(model("mlp", &sizes, Dtype::Float32))))
    }
}

/// `torch.nn.Linear` and others stand for nothing here.
#[starlark_module]
pub(super) fn layers(builder: &mut GlobalsBuilder) {
    /// A model of one linear layer.
    fn Linear(in_features: u32, out_features: u32) -> anyhow::Result<ModelValue> {
        anyhow::ensure!(in_features > 0 && out_features > 0, "a layer has features");
        let sizes = [u64::from(in_features), u64::from(out_features)];
        Ok(ModelValue(Arc::new(mlp("Linear", &sizes, Dtype::Float32))))
    }
}

methods_static!(MODEL_METHODS = model_methods);

#[starlark_value(type = "Model")]
impl<'v> StarlarkValue<'v> for ModelValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(MODEL_METHODS.methods())
    }

    /// `models.resnet50()`: the model itself.
    fn invoke(
        &self,
        me: Value<'v>,
        _args: &Arguments<'v, '_>,
        _eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        Ok(me)
    }
}

/// The methods of a model that change nothing here.
pub(super) fn methods() -> &'static Methods {
    MODEL_METHODS.methods()
}

#[starlark_module]
fn model_methods(builder: &mut MethodsBuilder) {
    fn to<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = args;
        Ok(this)
    }

    fn cuda<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = args;
        Ok(this)
    }

    fn parameters<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }
}
