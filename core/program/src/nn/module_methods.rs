//! The methods that every module has, and those of containers and of DDP.

use crate::dist::arguments as take;
use crate::dist::values::{Context, ContextValue, DtypeValue};
use crate::nn::modules::{ContainerValue, DdpValue, Module, checked, modules, tensors, whole};
use crate::nn::parameter::Kind;
use crate::nn::parameters::{ParametersValue, own};
use crate::nn::{backward, calls, ddp_passes};
use crate::process::state::process;
use crate::python::type_error::class_of;
use crate::tensor::hooks::{HandleValue, unfollowed};
use crate::torch::checkpoint::{CheckpointValue, loaded};
use lockstep_torch::c10d::Device;
use starlark::environment::MethodsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::dict::UnpackDictEntries;
use starlark::values::list::AllocList;
use starlark::values::none::NoneType;
use starlark::values::tuple::{AllocTuple, UnpackTuple};
use starlark::values::{Heap, Value, ValueLike};

/// Moves a module's parameters to a device.
fn moved<'v>(this: Value<'v>, device: Device, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    for kind in [Kind::Parameter, Kind::Buffer] {
        tensors(this, kind)?.iter().for_each(|(_, own)| own.move_to(device));
    }
    Ok(whole(this, heap))
}

/// A list of `(name, module)`, or of modules alone.
fn listed<'v>(all: Vec<(String, Value<'v>)>, names: bool, heap: Heap<'v>) -> Value<'v> {
    let each = all.into_iter().map(|(name, module)| match names {
        true => heap.alloc(AllocTuple([heap.alloc(name), whole(module, heap)])),
        false => whole(module, heap),
    });
    heap.alloc(AllocList(each.collect::<Vec<_>>()))
}

fn children<'v>(of: Value<'v>) -> Vec<(String, Value<'v>)> {
    Module::of(of).map(|own| own.children()).unwrap_or_default()
}

/// Sets `self.name` of an object of a program's class.
fn keep<'v>(this: Value<'v>, name: &str, value: Value<'v>) -> anyhow::Result<()> {
    match Module::of(this) {
        Some(Module::Own(state)) => crate::classes::objects::put(&state.attributes, name, value)
            .map_err(starlark::Error::into_anyhow),
        Some(Module::Container(container)) => {
            let value = checked(value)?;
            if let Ok(mut parts) = container.parts.try_borrow_mut() {
                parts.insert(name.to_owned(), value);
            }
            Ok(())
        }
        _ => anyhow::bail!("{name} is added to a module that is no class of the program's"),
    }
}

#[starlark_module]
pub(crate) fn module_methods(builder: &mut MethodsBuilder) {
    fn to<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let mut given = args.items.iter().chain(named.entries.iter().map(|(_, value)| value));
        let device = given.find(|value| {
            value.downcast_ref::<DtypeValue>().is_none() && value.unpack_bool().is_none()
        });
        match device.and_then(|device| take::device(*device).ok().flatten()) {
            Some(device) => moved(this, device, heap),
            None => Ok(whole(this, heap)),
        }
    }

    fn cuda<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let _ = args;
        moved(this, Device::Cuda, heap)
    }

    fn cpu<'v>(this: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        moved(this, Device::Cpu, heap)
    }

    fn parameters<'v>(
        this: Value<'v>,
        #[starlark(default = true)] recurse: bool,
    ) -> anyhow::Result<ParametersValue> {
        ParametersValue::of(this, Kind::Parameter, None, recurse)
    }

    fn named_parameters<'v>(
        this: Value<'v>,
        #[starlark(default = "")] prefix: &str,
        #[starlark(default = true)] recurse: bool,
    ) -> anyhow::Result<ParametersValue> {
        ParametersValue::of(this, Kind::Parameter, Some(prefix), recurse)
    }

    fn buffers<'v>(
        this: Value<'v>,
        #[starlark(default = true)] recurse: bool,
    ) -> anyhow::Result<ParametersValue> {
        ParametersValue::of(this, Kind::Buffer, None, recurse)
    }

    fn named_buffers<'v>(
        this: Value<'v>,
        #[starlark(default = "")] prefix: &str,
        #[starlark(default = true)] recurse: bool,
    ) -> anyhow::Result<ParametersValue> {
        ParametersValue::of(this, Kind::Buffer, Some(prefix), recurse)
    }

    fn children<'v>(this: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        Ok(listed(self::children(this), false, heap))
    }

    fn named_children<'v>(this: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        Ok(listed(self::children(this), true, heap))
    }

    fn modules<'v>(this: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        Ok(listed(self::modules(this)?, false, heap))
    }

    fn named_modules<'v>(this: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        Ok(listed(self::modules(this)?, true, heap))
    }

    fn apply<'v>(
        this: Value<'v>,
        r#fn: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        let heap = eval.heap();
        let all = self::modules(this).map_err(starlark::Error::new_native)?;
        // The innermost first.
        for (_, module) in all.into_iter().rev() {
            eval.eval_function(r#fn, &[whole(module, heap)], &[])?;
        }
        Ok(whole(this, heap))
    }

    fn train<'v>(
        this: Value<'v>,
        #[starlark(default = true)] mode: bool,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        for (_, module) in self::modules(this).map_err(starlark::Error::new_native)? {
            Module::of(module).map_or(Ok(()), |own| own.set_training(mode))?;
        }
        Ok(whole(this, heap))
    }

    fn eval<'v>(this: Value<'v>, heap: Heap<'v>) -> starlark::Result<Value<'v>> {
        for (_, module) in self::modules(this).map_err(starlark::Error::new_native)? {
            Module::of(module).map_or(Ok(()), |own| own.set_training(false))?;
        }
        Ok(whole(this, heap))
    }

    fn requires_grad_<'v>(
        this: Value<'v>,
        #[starlark(default = true)] requires_grad: bool,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        tensors(this, Kind::Parameter)?.iter().for_each(|(_, own)| own.train(requires_grad));
        Ok(whole(this, heap))
    }

    fn zero_grad<'v>(
        this: Value<'v>,
        #[starlark(default = true)] set_to_none: bool,
    ) -> anyhow::Result<NoneType> {
        if set_to_none {
            tensors(this, Kind::Parameter)?.iter().for_each(|(_, own)| own.set_grad(false));
        }
        Ok(NoneType)
    }

    /// The parameters by their names; their values are not followed.
    fn state_dict<'v>(
        this: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<CheckpointValue> {
        let _ = (this, process(eval)?);
        Ok(CheckpointValue)
    }

    /// The parameters' values are not followed, so that they may become anything.
    fn load_state_dict<'v>(
        this: Value<'v>,
        state_dict: Value<'v>,
        #[starlark(default = true)] strict: bool,
        #[starlark(default = false)] assign: bool,
    ) -> anyhow::Result<NoneType> {
        let _ = (this, strict, assign);
        loaded(state_dict)
    }

    /// The type of parameters is not changed by this.
    fn half<'v>(this: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        Ok(whole(this, heap))
    }

    fn float<'v>(this: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        Ok(whole(this, heap))
    }

    fn register_buffer<'v>(
        this: Value<'v>,
        name: &str,
        tensor: Value<'v>,
        #[starlark(default = true)] persistent: bool,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let _ = persistent;
        let value = match tensor.is_none() {
            true => tensor,
            false => eval.heap().alloc(own(tensor, Kind::Buffer, false, eval)?),
        };
        keep(this, name, value)?;
        Ok(NoneType)
    }

    fn register_parameter<'v>(
        this: Value<'v>,
        name: &str,
        param: Value<'v>,
    ) -> anyhow::Result<NoneType> {
        keep(this, name, param)?;
        Ok(NoneType)
    }

    fn add_module<'v>(this: Value<'v>, name: &str, module: Value<'v>) -> anyhow::Result<NoneType> {
        keep(this, name, module)?;
        Ok(NoneType)
    }

    fn register_module<'v>(
        this: Value<'v>,
        name: &str,
        module: Value<'v>,
    ) -> anyhow::Result<NoneType> {
        keep(this, name, module)?;
        Ok(NoneType)
    }

    fn get_submodule<'v>(
        this: Value<'v>,
        target: &str,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let found = self::modules(this)?.into_iter().find(|(name, _)| name == target);
        let class = Module::of(this).map_or("Module", |own| own.class());
        let found = found.ok_or_else(|| crate::nn::modules::no_attribute(class, target))?;
        Ok(whole(found.1, heap))
    }

    fn register_forward_hook<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<HandleValue> {
        let _ = (this, args, named);
        unfollowed("register_forward_hook", eval)
    }

    fn register_forward_pre_hook<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<HandleValue> {
        let _ = (this, args, named);
        unfollowed("register_forward_pre_hook", eval)
    }

    fn register_full_backward_hook<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<HandleValue> {
        let _ = (this, args, named);
        unfollowed("register_full_backward_hook", eval)
    }

    /// The forward pass. Of DDP, `unused` names parameters that its outputs do not depend on.
    fn forward<'v>(
        this: Value<'v>,
        #[starlark(args)] args: UnpackTuple<Value<'v>>,
        #[starlark(require = named, default = NoneType)] unused: Value<'v>,
        #[starlark(kwargs)] named: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> starlark::Result<Value<'v>> {
        if let Some(Module::Ddp(ddp)) = Module::of(this) {
            let unused = ddp_passes::unused_params(ddp.at, unused, eval);
            let unused = unused.map_err(starlark::Error::new_native)?;
            return calls::through_ddp(ddp, &args.items, &named.entries, &unused, eval);
        }
        calls::call(this, &args.items, &named.entries, eval)
    }
}

/// Methods of `torch.nn`'s own modules.
#[starlark_module]
pub(crate) fn layer_methods(builder: &mut MethodsBuilder) {
    /// Of recurrent layers: puts their weights behind each other in memory.
    fn flatten_parameters(this: Value<'_>) -> anyhow::Result<NoneType> {
        let _ = this;
        Ok(NoneType)
    }
}

fn container_of<'v>(this: Value<'v>) -> anyhow::Result<&'v ContainerValue<'v>> {
    let own = this.downcast_ref::<ContainerValue<'v>>();
    own.ok_or_else(|| anyhow::anyhow!("{} is no container of modules", class_of(this)))
}

fn put<'v>(own: &ContainerValue<'v>, name: String, part: Value<'v>) -> anyhow::Result<()> {
    let part = checked(part)?;
    let mut parts = own.parts.try_borrow_mut()?;
    anyhow::ensure!(parts.len() < 10_000, "a ModuleList has at most 10000 modules");
    parts.insert(name, part);
    Ok(())
}

#[starlark_module]
pub(crate) fn container_methods(builder: &mut MethodsBuilder) {
    fn append<'v>(this: Value<'v>, module: Value<'v>) -> anyhow::Result<Value<'v>> {
        let own = container_of(this)?;
        put(own, own.all().len().to_string(), module)?;
        Ok(this)
    }

    fn extend<'v>(
        this: Value<'v>,
        modules: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<Value<'v>> {
        for module in modules.iterate(heap)?.collect::<Vec<_>>() {
            let own = container_of(this).map_err(starlark::Error::new_native)?;
            put(own, own.all().len().to_string(), module).map_err(starlark::Error::new_native)?;
        }
        Ok(this)
    }

    fn update<'v>(
        this: Value<'v>,
        modules: Value<'v>,
        heap: Heap<'v>,
    ) -> starlark::Result<NoneType> {
        for name in modules.iterate(heap)?.collect::<Vec<_>>() {
            let part = modules.at(name, heap)?;
            container_of(this)
                .and_then(|own| put(own, name.to_str(), part))
                .map_err(starlark::Error::new_native)?;
        }
        Ok(NoneType)
    }

    fn keys<'v>(this: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        let names = container_of(this)?.all().into_iter().map(|(name, _)| heap.alloc(name));
        Ok(heap.alloc(AllocList(names)))
    }

    fn values<'v>(this: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        Ok(listed(container_of(this)?.all(), false, heap))
    }

    fn items<'v>(this: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        Ok(listed(container_of(this)?.all(), true, heap))
    }
}

/// The model that a method of DDP's is called on.
fn ddp_of<'v>(this: Value<'v>) -> anyhow::Result<&'v DdpValue<'v>> {
    let own = this.downcast_ref::<DdpValue<'v>>();
    own.ok_or_else(|| anyhow::anyhow!("{} is no wrapped model", class_of(this)))
}

#[starlark_module]
pub(crate) fn ddp_methods(builder: &mut MethodsBuilder) {
    /// The backward pass of the last output. `unused` names parameters that get no gradient.
    fn backward<'v>(
        this: Value<'v>,
        #[starlark(require = named, default = NoneType)] unused: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let at = ddp_of(this)?.at;
        let unused = ddp_passes::unused_params(at, unused, eval)?;
        let output = ddp_passes::last_output(at, &unused, eval)?;
        backward::backward(output, eval)?;
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
        let model = ddp_of(this)?.at;
        Ok(ContextValue(match enable {
            true => Context::Join { model, throw: throw_on_early_termination },
            false => Context::Nothing,
        }))
    }

    /// The calls of a hook are not those of DDP's reducer, which are assumed here.
    fn register_comm_hook<'v>(
        this: Value<'v>,
        state: Value<'v>,
        hook: Value<'v>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<NoneType> {
        let _ = (ddp_of(this)?, state, hook);
        unfollowed("register_comm_hook", eval)?;
        Ok(NoneType)
    }

    fn no_sync(this: Value<'_>) -> anyhow::Result<ContextValue> {
        Ok(ContextValue(Context::NoSync(ddp_of(this)?.at)))
    }
}
