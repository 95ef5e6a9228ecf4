//! Models that DDP wraps, in a program's hands: `ddp(batch)` and `ddp.module`.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::values::{Context, ContextValue};
use crate::nn::ddp_passes::{forward, unused_params};
use crate::nn::model_values::{DdpValue, InnerValue, ModelValue, ddp_of};
use crate::nn::output_methods::{input_of, returned};
use crate::nn::submodules;
use crate::process::state::Process;
use lockstep_torch::c10d::ForwardPass;
use starlark::environment::{Methods, MethodsBuilder};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::none::NoneType;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{Heap, StarlarkValue, Value, ValueLike};
use starlark::{methods_static, starlark_module};
use starlark_derive::starlark_value;
use std::sync::atomic::Ordering::Relaxed;

/// The attribute that `no_sync()` sets, and that some set themselves.
const SYNC: &str = "require_backward_grad_sync";

methods_static!(DDP_METHODS = wrapped_methods);

#[starlark_value(type = "DistributedDataParallel")]
impl<'v> StarlarkValue<'v> for DdpValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(DDP_METHODS.methods())
    }

    /// `ddp(batch)`.
    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let input = input_of(args, eval.heap())?;
        let output = forward(self.0, true, &[], eval);
        output.and_then(|pass| returned(pass, input, eval)).map_err(starlark::Error::new_native)
    }

    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        match attribute {
            "module" => Some(heap.alloc(InnerValue(self.0, self.2.clone()))),
            SYNC => Some(Value::new_bool(self.1.load(Relaxed))),
            "device_ids" => Some(self.device_ids(heap)),
            _ => None,
        }
    }

    fn has_attr(&self, attribute: &str, _heap: Heap<'v>) -> bool {
        matches!(attribute, "module" | "device_ids" | SYNC)
    }

    fn set_attr(&self, attribute: &str, value: Value<'v>) -> starlark::Result<()> {
        if attribute != SYNC {
            return Err(starlark::Error::new_native(anyhow::anyhow!(
                "of a DistributedDataParallel {SYNC} can be set, and no {attribute}"
            )));
        }
        self.1.store(value.to_bool(), Relaxed);
        Ok(())
    }
}

#[starlark_value(type = "Module")]
impl<'v> StarlarkValue<'v> for InnerValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(crate::nn::models::methods())
    }

    /// `ddp.module.fc`, `ddp.module.weight`.
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        submodules::named(&self.1, attribute.to_owned(), heap)
    }

    fn has_attr(&self, attribute: &str, heap: Heap<'v>) -> bool {
        self.get_attr(attribute, heap).is_some()
    }

    fn at(&self, index: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        submodules::item(&self.1, "", index, heap)
    }

    /// `ddp.module(batch)`: a forward pass that DDP knows nothing of.
    fn invoke(
        &self,
        _me: Value<'v>,
        args: &Arguments<'v, '_>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let input = input_of(args, eval.heap())?;
        let output = forward(self.0, false, &[], eval);
        output.and_then(|pass| returned(pass, input, eval)).map_err(starlark::Error::new_native)
    }
}

/// The bytes of the parameters of a model, wrapped or not; 0 of anything else.
pub(crate) fn param_bytes(model: Value<'_>, process: &Process<'_>) -> u64 {
    match model.downcast_ref::<DdpValue>() {
        Some(ddp) => process.modules.get(ddp.0).map_or(0, |own| own.model().param_bytes()),
        None => match model.downcast_ref::<ModelValue>() {
            Some(model) => model.0.param_bytes(),
            None => crate::nn::parameters::bytes(model),
        },
    }
}

/// DDP's own methods, and those of any model.
fn wrapped_methods(builder: &mut MethodsBuilder) {
    crate::nn::models::model_methods(builder);
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
    ) -> anyhow::Result<Value<'v>> {
        let at = ddp_of(this)?;
        let unused = unused_params(at, unused, eval)?;
        let pass = crate::nn::ddp_passes::forward(at, true, &unused, eval)?;
        returned(pass, args.items.first().copied(), eval)
    }

    /// The backward pass. `unused` names parameters that get no gradient.
    fn backward<'v>(
        this: Value<'v>,
        #[starlark(require = named, default = NoneType)] unused: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let at = ddp_of(this)?;
        let unused = unused_params(at, unused, eval)?;
        let pass = ForwardPass { model: at, ddp: true, grad: true };
        crate::nn::ddp_passes::backward(pass, &unused, eval)?;
        Ok(NoneType)
    }

    /// The context in which ranks without inputs shadow the others until all have none left.
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
