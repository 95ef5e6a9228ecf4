//! Models that programs can name or build: `models.resnet50()`, `models.mlp([…])`, `nn.Linear(…)`.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use super::arguments as take;
use super::module_value::Through;
use super::parameters::{ParametersValue, number_of};
use super::process::process;
use crate::ddp::model::{Model, known_models, linear, mlp, mlp_with_norms, named, sequence};
use crate::dtype::Dtype;
use allocative::Allocative;
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::dict::DictRef;
use starlark::values::none::NoneType;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
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

/// `torch.nn`'s modules, as far as they have parameters or pass on what they are given.
#[starlark_module]
pub(super) fn layers(builder: &mut GlobalsBuilder) {
    /// A model of one linear layer.
    fn Linear<'v>(
        in_features: u32,
        out_features: u32,
        #[starlark(default = true)] bias: bool,
        #[starlark(require = named, default = NoneType)] device: Value<'v>,
        #[starlark(require = named, default = NoneType)] dtype: Value<'v>,
    ) -> anyhow::Result<ModelValue> {
        let _ = device;
        anyhow::ensure!(in_features > 0 && out_features > 0, "a layer has features");
        let sizes = [u64::from(in_features), u64::from(out_features)];
        let dtype = take::dtype(dtype, Dtype::Float32)?;
        Ok(ModelValue(Arc::new(linear(sizes, bias, dtype))))
    }

    /// Modules one behind the other.
    fn Sequential<'v>(
        #[starlark(args)] modules: UnpackTuple<Value<'v>>,
    ) -> anyhow::Result<ModelValue> {
        let parts = modules.items.iter().enumerate().map(|(nth, module)| {
            let model = module.downcast_ref::<ModelValue>().map(|model| &*model.0);
            let model = model.ok_or_else(|| {
                take::type_error(format!("{} is not a Module subclass", take::class_of(*module)))
            })?;
            anyhow::Ok((nth.to_string(), model))
        });
        let parts: Vec<(String, &Model)> = parts.collect::<Result<_, _>>()?;
        Ok(ModelValue(Arc::new(sequence("Sequential", &parts))))
    }
}

/// What a class of models becomes.
#[starlark_module]
pub(super) fn classes(builder: &mut GlobalsBuilder) {
    /// The model of what a class keeps in `self`.
    fn _module<'v>(
        #[starlark(require = pos)] name: &str,
        #[starlark(require = pos)] kept: Value<'v>,
    ) -> anyhow::Result<ModelValue> {
        let kept = DictRef::from_value(kept).ok_or_else(|| anyhow::anyhow!("self is no dict"))?;
        let parts = kept.iter().filter_map(|(key, value)| {
            let model = &value.downcast_ref::<ModelValue>()?.0;
            Some((key.unpack_str()?.to_owned(), &**model))
        });
        let parts: Vec<(String, &Model)> = parts.collect();
        Ok(ModelValue(Arc::new(sequence(name, &parts))))
    }
}

/// Modules without parameters: `nn.ReLU()`.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct BareClass(&'static str);
starlark_simple_value!(BareClass);

impl fmt::Display for BareClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<class 'torch.nn.{}'>", self.0)
    }
}

#[starlark_value(type = "type")]
impl<'v> StarlarkValue<'v> for BareClass {
    fn invoke(
        &self,
        _me: Value<'v>,
        _args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        Ok(eval.heap().alloc(ModelValue(Arc::new(sequence(self.0, &[])))))
    }
}

/// Adds modules without parameters.
pub(super) fn bare(builder: &mut GlobalsBuilder) {
    for name in [
        "ReLU",
        "GELU",
        "Sigmoid",
        "Tanh",
        "SiLU",
        "LeakyReLU",
        "Dropout",
        "Flatten",
        "Identity",
        "Softmax",
        "LogSoftmax",
    ] {
        builder.set(name, BareClass(name));
    }
}

methods_static!(MODEL_METHODS = model_methods);

#[starlark_value(type = "Model")]
impl<'v> StarlarkValue<'v> for ModelValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(MODEL_METHODS.methods())
    }

    /// `models.resnet50()`: a model of its own; `model(batch)`: its forward pass.
    fn invoke(
        &self,
        me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let first = args.positions(heap)?.next();
        let given = |value: &Value<'v>| matches!(value.get_type(), "Tensor" | "Output");
        let Some(input) = first.filter(given) else {
            return Ok(heap.alloc(ModelValue(Arc::new((*self.0).clone()))));
        };
        // What has no parameters passes on what it is given.
        if self.0.params.is_empty() || input.get_type() == "Output" {
            return Ok(input);
        }
        let native = |error: anyhow::Error| starlark::Error::new_native(error);
        let at = process(eval).and_then(|process| number_of(me, process)).map_err(native)?;
        let output = super::module::forward(at, Through::Module, &[], eval).map_err(native)?;
        Ok(heap.alloc(output))
    }
}

/// The methods of a model that change nothing here.
pub(super) fn methods() -> &'static Methods {
    MODEL_METHODS.methods()
}

#[starlark_module]
pub(super) fn model_methods(builder: &mut MethodsBuilder) {
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

    fn parameters<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<ParametersValue> {
        super::parameters::parameters(this, false, eval)
    }

    fn named_parameters<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<ParametersValue> {
        super::parameters::parameters(this, true, eval)
    }

    fn train<'v>(
        this: Value<'v>,
        #[starlark(default = true)] mode: bool,
    ) -> anyhow::Result<Value<'v>> {
        let _ = mode;
        Ok(this)
    }

    fn eval<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }

    fn cpu<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }

    fn zero_grad<'v>(
        this: Value<'v>,
        #[starlark(default = true)] set_to_none: bool,
    ) -> anyhow::Result<Value<'v>> {
        let _ = set_to_none;
        Ok(this)
    }
}
