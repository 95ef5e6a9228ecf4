//! `torch.optim`: an optimizer's step takes time.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::arguments as take;
use crate::nn::parameter::Parameter;
use crate::nn::parameters::{all_of, device_of};
use crate::nn::results::scalar;
use crate::process::raised::Left;
use crate::process::state::process;
use crate::process::undecided::{Decided, Number, Unknown, UnknownValue};
use crate::torch::checkpoint::{CheckpointValue, loaded};
use allocative::Allocative;
use lockstep_core::dtype::Dtype;
use lockstep_torch::c10d::Tensor;
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::dict::{AllocDict, UnpackDictEntries};
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
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// An optimizer of a model: how long its step takes.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct OptimizerValue {
    ns: u64,
    /// The parameters that it steps.
    #[allocative(skip)]
    parameters: Arc<[Parameter]>,
    /// The steps that it has taken.
    #[allocative(skip)]
    steps: Arc<AtomicU32>,
    #[allocative(skip)]
    decided: Decided,
}
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

    /// `optimizer.param_groups[0]["lr"]`: the rates are not followed, so that any may be set.
    fn get_attr(&self, attribute: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        let rate = || UnknownValue::new(Unknown::Value(Number::Real), &self.decided);
        let names = ["lr", "momentum", "weight_decay", "initial_lr"];
        let group = || heap.alloc(AllocDict(names.map(|name| (name, rate()))));
        (attribute == "param_groups").then(|| heap.alloc(AllocList([group()])))
    }

    fn has_attr(&self, attribute: &str, _heap: Heap<'v>) -> bool {
        attribute == "param_groups"
    }
}

/// An optimizer with the time of its step: it reads and writes every parameter a few times.
fn optimizer<'v>(
    model: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<OptimizerValue> {
    let process = process(eval)?;
    let parameters = all_of(model);
    let bytes = parameters.iter().map(Parameter::bytes).fold(0, u64::saturating_add);
    // Three passes over the parameters at 1 TB/s.
    let ns = (bytes.saturating_mul(3) / 1000).max(1);
    let (parameters, decided) = (parameters.into(), process.decided.clone());
    Ok(OptimizerValue { ns, parameters, steps: Arc::default(), decided })
}

/// `torch.optim`: which class it is changes nothing here, nor do its rates.
pub(crate) fn optimizers(builder: &mut GlobalsBuilder) {
    let names =
        ["SGD", "Adam", "AdamW", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "RMSprop"];
    crate::torch::callable::add(builder, &names, |name, args, eval| {
        let params = take::first(args, "params", &format!("{name}.__init__"), eval.heap())?;
        let made = optimizer(params, eval).map_err(starlark::Error::new_native)?;
        Ok(eval.heap().alloc(made))
    });
}

/// A scheduler of an optimizer's rate, which changes nothing here.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct SchedulerValue;
starlark_simple_value!(SchedulerValue);

impl fmt::Display for SchedulerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LRScheduler(…)")
    }
}

methods_static!(SCHEDULER_METHODS = scheduler_methods);

#[starlark_value(type = "LRScheduler")]
impl<'v> StarlarkValue<'v> for SchedulerValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(SCHEDULER_METHODS.methods())
    }

    /// `StepLR(optimizer, 1)`: the class acts like the object that it makes.
    fn invoke(
        &self,
        me: Value<'v>,
        _args: &Arguments<'v, '_>,
        _eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        Ok(me)
    }
}

#[starlark_module]
fn scheduler_methods(builder: &mut MethodsBuilder) {
    fn state_dict<'v>(this: Value<'v>) -> anyhow::Result<CheckpointValue> {
        let _ = this;
        Ok(CheckpointValue)
    }

    fn load_state_dict<'v>(this: Value<'v>, state_dict: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = this;
        loaded(state_dict)
    }

    fn step<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
    ) -> anyhow::Result<NoneType> {
        let _ = (this, args);
        Ok(NoneType)
    }

    /// The rates, which are not worked out.
    fn get_last_lr<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = this;
        let heap = eval.heap();
        let rate = process(eval)?.unknown(Unknown::Value(Number::Real));
        Ok(heap.alloc(AllocList([rate])))
    }
}

/// `torch.optim.lr_scheduler`.
pub(crate) fn schedulers(builder: &mut GlobalsBuilder) {
    for name in [
        "StepLR",
        "MultiStepLR",
        "ExponentialLR",
        "CosineAnnealingLR",
        "LambdaLR",
        "LinearLR",
        "OneCycleLR",
        "ReduceLROnPlateau",
    ] {
        builder.set(name, SchedulerValue);
    }
}

/// `torch.nn.utils`.
#[starlark_module]
pub(crate) fn utils(builder: &mut GlobalsBuilder) {
    /// Gradients stay as they are: their values are not followed, nor is their norm.
    fn clip_grad_norm_<'v>(
        parameters: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] kwargs: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = (args, kwargs);
        let device = device_of(parameters);
        scalar(&Tensor::nothing(device), Dtype::Float32, eval)
    }

    fn clip_grad_value_<'v>(
        parameters: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] kwargs: UnpackDictEntries<&'v str, Value<'v>>,
    ) -> anyhow::Result<NoneType> {
        let _ = (parameters, args, kwargs);
        Ok(NoneType)
    }
}

#[starlark_module]
fn optimizer_methods(builder: &mut MethodsBuilder) {
    fn step<'v>(this: Value<'v>, eval: &mut Evaluator<'v, '_, '_>) -> anyhow::Result<NoneType> {
        let own = this.downcast_ref::<OptimizerValue>();
        let ns = own.map_or(1, |value| value.ns);
        let process = process(eval)?;
        let numbers: Vec<u32> =
            own.iter().flat_map(|own| own.parameters.iter()).map(Parameter::number).collect();
        crate::nn::backward::note_step(&numbers, process)?;
        let slowed = (ns as f64 * process.slowness) as u64;
        process.dist()?.compute("optimizer.step", slowed);
        let taken = own.map_or(0, |own| own.steps.fetch_add(1, Relaxed) + 1);
        if process.steps.is_some_and(|steps| taken >= steps) {
            return Err(anyhow::Error::new(Left));
        }
        Ok(NoneType)
    }

    fn state_dict<'v>(this: Value<'v>) -> anyhow::Result<CheckpointValue> {
        let _ = this;
        Ok(CheckpointValue)
    }

    fn load_state_dict<'v>(this: Value<'v>, state_dict: Value<'v>) -> anyhow::Result<NoneType> {
        let _ = this;
        loaded(state_dict)
    }

    fn zero_grad<'v>(
        this: Value<'v>,
        #[starlark(default = true)] set_to_none: bool,
    ) -> anyhow::Result<NoneType> {
        let own = this.downcast_ref::<OptimizerValue>().filter(|_| set_to_none);
        own.iter().flat_map(|own| own.parameters.iter()).for_each(|own| own.set_grad(false));
        Ok(NoneType)
    }
}
