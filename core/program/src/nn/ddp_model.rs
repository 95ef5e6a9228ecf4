//! Models that DDP wraps, in a program's hands: `ddp(batch)` and `ddp.module`.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::arguments as take;
use crate::dist::values::{Context, ContextValue, DeviceValue};
use crate::execute::process::Process;
use crate::nn::ddp_passes::{forward, unused_params};
use crate::nn::models::ModelValue;
use crate::nn::output::{input_of, returned};
use crate::nn::parameters::Of;
use crate::nn::submodules;
use allocative::Allocative;
use lockstep_torch::c10d::ForwardPass;
use starlark::environment::{Methods, MethodsBuilder};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::list::AllocList;
use starlark::values::none::NoneType;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A wrapped one, by its number in the process.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct DdpValue(
    pub(crate) usize,
    /// `require_backward_grad_sync`.
    #[allocative(skip)]
    pub(crate) Arc<AtomicBool>,
    /// The model that it wraps.
    #[allocative(skip)]
    Of,
    /// `device_ids`, where it was given any.
    #[allocative(skip)]
    Option<Arc<[u32]>>,
);
starlark_simple_value!(DdpValue);

impl DdpValue {
    /// The model that the process has wrapped last, on those GPUs.
    pub(crate) fn of(
        process: &mut Process<'_>,
        sync: Arc<AtomicBool>,
        device_ids: Value<'_>,
    ) -> anyhow::Result<DdpValue> {
        let at = process.modules.len().saturating_sub(1);
        let ids = take::items(device_ids).map(|ids| {
            let index = |id: &Value<'_>| {
                let device = id.downcast_ref::<DeviceValue>().map(|device| device.0.1.unwrap_or(0));
                device.or_else(|| u32::try_from(id.unpack_i32()?).ok())
            };
            ids.iter().filter_map(index).collect::<Arc<[u32]>>()
        });
        Ok(DdpValue(at, sync, Of::numbered(at, process)?, ids))
    }

    fn device_ids<'v>(&self, heap: Heap<'v>) -> Value<'v> {
        match &self.3 {
            Some(ids) => heap.alloc(AllocList(ids.iter().copied())),
            None => Value::new_none(),
        }
    }
}

/// The model inside of a wrapped one: `ddp.module`.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct InnerValue(pub(crate) usize, #[allocative(skip)] Of);
starlark_simple_value!(InnerValue);

/// The attribute that `no_sync()` sets, and that some set themselves.
const SYNC: &str = "require_backward_grad_sync";

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

/// The model that a method is called on.
pub(crate) fn ddp_of(this: Value<'_>) -> anyhow::Result<usize> {
    let value = this.downcast_ref::<DdpValue>().map(|value| value.0);
    value.ok_or_else(|| anyhow::anyhow!("{} is no wrapped model", take::class_of(this)))
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
