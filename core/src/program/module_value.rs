//! Models that DDP wraps, in a program's hands: `ddp(batch)`, its output, and `ddp.module`.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use super::arguments as take;
use super::models::ModelValue;
use super::module::{forward, unused_params};
use super::process::{Process, process};
use super::values::{Context, ContextValue};
use allocative::Allocative;
use starlark::environment::{Methods, MethodsBuilder};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::none::NoneType;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;

/// A wrapped one, by its number in the process.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct DdpValue(pub(super) usize);
starlark_simple_value!(DdpValue);

/// What a model's forward pass returns: what `backward()` is called on.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct OutputValue {
    pub(super) model: usize,
    pub(super) through: Through,
    /// False if the pass was made under `torch.no_grad()`.
    pub(super) grad: bool,
}
starlark_simple_value!(OutputValue);

/// The model inside of a wrapped one: `ddp.module`.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct InnerValue(pub(super) usize);
starlark_simple_value!(InnerValue);

/// Whether a pass goes through DDP, or through the model that it wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Allocative)]
pub(super) enum Through {
    Ddp,
    Module,
}

impl fmt::Display for DdpValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DistributedDataParallel(…)")
    }
}

impl fmt::Display for InnerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Model(…)")
    }
}

impl fmt::Display for OutputValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tensor(…, grad_fn=…)")
    }
}

methods_static!(DDP_METHODS = wrapped_methods);
methods_static!(OUTPUT_METHODS = output_methods);

#[starlark_value(type = "DistributedDataParallel")]
impl<'v> StarlarkValue<'v> for DdpValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(DDP_METHODS.methods())
    }

    /// `ddp(batch)`.
    fn invoke(
        &self,
        _me: Value<'v>,
        _args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let output = forward(self.0, Through::Ddp, &[], eval);
        Ok(eval.heap().alloc(output.map_err(starlark::Error::new_native)?))
    }

    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        (attribute == "module").then(|| heap.alloc(InnerValue(self.0)))
    }

    fn has_attr(&self, attribute: &str, _heap: Heap<'v>) -> bool {
        attribute == "module"
    }
}

#[starlark_value(type = "Module")]
impl<'v> StarlarkValue<'v> for InnerValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(super::models::methods())
    }

    /// `ddp.module(batch)`: a forward pass that DDP knows nothing of.
    fn invoke(
        &self,
        _me: Value<'v>,
        _args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let output = forward(self.0, Through::Module, &[], eval);
        Ok(eval.heap().alloc(output.map_err(starlark::Error::new_native)?))
    }
}

/// What is computed of an output depends on what the output depends on.
#[starlark_value(type = "Output")]
impl<'v> StarlarkValue<'v> for OutputValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(OUTPUT_METHODS.methods())
    }

    fn add(&self, _rhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(Ok(heap.alloc(self.clone())))
    }

    fn radd(&self, _lhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(Ok(heap.alloc(self.clone())))
    }

    fn sub(&self, _other: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        Ok(heap.alloc(self.clone()))
    }

    fn mul(&self, _rhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(Ok(heap.alloc(self.clone())))
    }

    fn rmul(&self, _lhs: Value<'v>, heap: Heap<'v>) -> Option<starlark::Result<Value<'v>>> {
        Some(Ok(heap.alloc(self.clone())))
    }

    fn div(&self, _other: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        Ok(heap.alloc(self.clone()))
    }

    fn minus(&self, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        Ok(heap.alloc(self.clone()))
    }
}

/// The bytes of the parameters of a model, wrapped or not; 0 of anything else.
pub(super) fn param_bytes(model: Value<'_>, process: &Process<'_>) -> u64 {
    match model.downcast_ref::<DdpValue>() {
        Some(ddp) => process.modules.get(ddp.0).map_or(0, |own| own.model().param_bytes()),
        None => match model.downcast_ref::<ModelValue>() {
            Some(model) => model.0.param_bytes(),
            None => super::parameters::bytes(model),
        },
    }
}

/// The model that a method is called on.
pub(super) fn ddp_of(this: Value<'_>) -> anyhow::Result<usize> {
    let value = this.downcast_ref::<DdpValue>().map(|value| value.0);
    value.ok_or_else(|| anyhow::anyhow!("{} is no wrapped model", take::class_of(this)))
}

/// DDP's own methods, and those of any model.
fn wrapped_methods(builder: &mut MethodsBuilder) {
    super::models::model_methods(builder);
    ddp_methods(builder);
}

#[starlark_module]
fn ddp_methods(builder: &mut MethodsBuilder) {
    /// The forward pass. `unused` names parameters that its outputs do not depend on.
    fn forward<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] unused: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<OutputValue> {
        let _ = args;
        let at = ddp_of(this)?;
        let unused = unused_params(at, unused, eval)?;
        super::module::forward(at, Through::Ddp, &unused, eval)
    }

    /// The backward pass. `unused` names parameters that get no gradient.
    fn backward<'v>(
        this: Value<'v>,
        #[starlark(require = named, default = NoneType)] unused: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let at = ddp_of(this)?;
        let unused = unused_params(at, unused, eval)?;
        let output = OutputValue { model: at, through: Through::Ddp, grad: true };
        super::module::backward(output, &unused, eval)?;
        Ok(NoneType)
    }

    /// What ranks without inputs do for the others until all have none left.
    fn join<'v>(
        this: Value<'v>,
        #[starlark(default = true)] divide_by_initial_world_size: bool,
        #[starlark(default = true)] enable: bool,
        #[starlark(default = false)] throw_on_early_termination: bool,
    ) -> anyhow::Result<ContextValue> {
        let _ = divide_by_initial_world_size;
        let model = ddp_of(this)?;
        Ok(ContextValue(match enable {
            true => Context::Join { model, throw: throw_on_early_termination },
            false => Context::Nothing,
        }))
    }

    fn no_sync(this: Value<'_>) -> anyhow::Result<ContextValue> {
        Ok(ContextValue(Context::NoSync(ddp_of(this)?)))
    }
}

#[starlark_module]
fn output_methods(builder: &mut MethodsBuilder) {
    fn sum<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }

    /// What a model computes is not followed.
    fn item<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<super::undecided::UnknownValue> {
        let _ = this;
        Ok(process(eval)?.unknown(super::undecided::Unknown::Value))
    }

    fn detach<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }

    fn cpu<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }

    fn to<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = args;
        Ok(this)
    }

    fn float<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }

    fn argmax<'v>(
        this: Value<'v>,
        #[starlark(default = NoneType)] dim: Value<'v>,
        #[starlark(default = false)] keepdim: bool,
    ) -> anyhow::Result<Value<'v>> {
        let _ = (dim, keepdim);
        Ok(this)
    }

    fn eq<'v>(this: Value<'v>, other: Value<'v>) -> anyhow::Result<Value<'v>> {
        let _ = other;
        Ok(this)
    }

    fn mean<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }

    fn backward<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<NoneType> {
        let output = this.downcast_ref::<OutputValue>().cloned();
        let output =
            output.ok_or_else(|| anyhow::anyhow!("{} is no output", take::class_of(this)))?;
        super::module::backward(output, &[], eval)?;
        Ok(NoneType)
    }
}
