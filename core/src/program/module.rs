//! Models and `DistributedDataParallel`: what its constructor, forward and backward passes issue.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]
#![allow(clippy::too_many_arguments, reason = "PyTorch's arguments")]

use super::arguments as take;
use super::process::{Process, Raised, process, refused};
use super::values::{Context, ContextValue};
use crate::c10d::{self, Arg, Dist, FromRank, Group, InGroup, Reduction, Tensor, Work};
use crate::ddp::model::{Device, Model, known_models, mlp, mlp_with_norms, named};
use crate::ddp::{BucketCap, Ddp, DdpCall, DdpError, DdpOp, DdpOptions, Forward, Purpose};
use crate::dtype::Dtype;
use crate::plan::Fill;
use allocative::Allocative;
use starlark::environment::{GlobalsBuilder, Methods, MethodsBuilder};
use starlark::eval::{Arguments, Evaluator};
use starlark::values::dict::UnpackDictEntries;
use starlark::values::none::NoneType;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, StarlarkValue, Value, ValueLike,
};
use starlark::{methods_static, starlark_module, starlark_simple_value};
use starlark_derive::starlark_value;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A model wrapped by DDP, or used without it.
pub(super) struct Wrapped {
    model: Arc<Model>,
    device: Device,
    batch: u64,
    ddp: Option<Ddp>,
    group: Option<Group>,
    /// What DDP communicates, by name, type and size.
    tensors: BTreeMap<(String, Dtype, u64), Tensor>,
    /// What the last forward pass decided: whether this backward pass reduces.
    forwarded: bool,
}

/// A model that has not been wrapped.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct ModelValue(#[allocative(skip)] Arc<Model>);
starlark_simple_value!(ModelValue);

/// A wrapped one, by its number in the process.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct DdpValue(usize);
starlark_simple_value!(DdpValue);

/// What a model's forward pass returns: what `backward()` is called on.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct OutputValue {
    model: usize,
    through: Through,
}
starlark_simple_value!(OutputValue);

/// The model inside of a wrapped one: `ddp.module`.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct InnerValue(usize);
starlark_simple_value!(InnerValue);

/// Whether a pass goes through DDP, or through the model that it wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Allocative)]
enum Through {
    Ddp,
    Module,
}

/// An optimizer of a model.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct OptimizerValue(#[allocative(skip)] u64);
starlark_simple_value!(OptimizerValue);

impl fmt::Display for ModelValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({} parameters)", self.0.name, self.0.params.len())
    }
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

impl fmt::Display for OptimizerValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Optimizer(…)")
    }
}

/// Adds `models`, `DDP` and the optimizers.
pub(super) fn add(builder: &mut GlobalsBuilder) {
    builder.namespace("models", zoo);
    builder.namespace("torchvision", |builder| builder.namespace("models", zoo));
    parallel(builder);
    builder.namespace("optim", optimizers);
}

/// The models that ship, each as a function without arguments.
fn zoo(builder: &mut GlobalsBuilder) {
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

/// DDP's refusals as exceptions.
pub(super) fn raised(error: &DdpError) -> anyhow::Error {
    anyhow::Error::new(Raised { text: format!("{}: {error}", error.class()), help: None })
}

#[starlark_module]
pub(super) fn parallel(builder: &mut GlobalsBuilder) {
    fn DistributedDataParallel<'v>(
        module: Value<'v>,
        #[starlark(kwargs)] kwargs: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<DdpValue> {
        wrap(module, &kwargs, eval)
    }

    fn DDP<'v>(
        module: Value<'v>,
        #[starlark(kwargs)] kwargs: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<DdpValue> {
        wrap(module, &kwargs, eval)
    }
}

/// `DistributedDataParallel(module, …)`.
fn wrap<'v>(
    module: Value<'v>,
    kwargs: &UnpackDictEntries<&'v str, Value<'v>>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<DdpValue> {
    let Some(model) = module.downcast_ref::<ModelValue>().map(|model| model.0.clone()) else {
        let class = take::class_of(module);
        return Err(take::type_error(format!(
            "DDP wraps a model, such as models.resnet50() or models.mlp([64, 64]), not a {class}"
        )));
    };
    let mut options = DdpOptions::default();
    let mut device = Device::named("A100");
    let (mut batch, mut group) = (32, None);
    for (name, value) in &kwargs.entries {
        match *name {
            "bucket_cap_mb" if value.is_none() => {}
            "bucket_cap_mb" => {
                let cap = take::number(*value, name)?;
                options.bucket_cap = BucketCap::from_mb(cap)?;
            }
            "find_unused_parameters" => options.find_unused_parameters = value.to_bool(),
            "static_graph" => options.static_graph = value.to_bool(),
            "broadcast_buffers" => options.broadcast_buffers = value.to_bool(),
            "gradient_as_bucket_view" => options.gradient_as_bucket_view = value.to_bool(),
            "init_sync" => options.init_sync = value.to_bool(),
            "process_group" => group = take::group(*value)?,
            "batch" => batch = u64::try_from(take::whole(*value, name)?)?,
            "gpu" => {
                let gpu = value.unpack_str().unwrap_or_default();
                device = Device::named(gpu);
                anyhow::ensure!(device.is_some(), "{gpu} is no known GPU: V100, A100, H100, H200");
            }
            "device_ids" | "output_device" | "dim" => {}
            other => {
                return Err(take::type_error(format!(
                    "DistributedDataParallel.__init__() got an unexpected keyword argument '{other}'"
                )));
            }
        }
    }
    let process = process(eval)?;
    let dist = process.dist()?;
    let rank = dist.get_rank(group).map_err(refused)?;
    let rank = u32::try_from(rank).unwrap_or_default();
    let (ddp, calls) = Ddp::new(rank, &model, &options).map_err(|error| raised(&error))?;
    let members = members(dist, group)?;
    let me = dist.process();
    let nth = process.shown.wrap(members, model.clone());
    let refusal = process.known.refusal(me, nth).cloned();
    let dist = process.dist()?;
    let device = device.ok_or_else(|| anyhow::anyhow!("no device is known"))?;
    let tensors = BTreeMap::new();
    let mut wrapped =
        Wrapped { model, device, batch, ddp: Some(ddp), group, tensors, forwarded: false };
    for call in &calls {
        wrapped.issue(dist, call, false, "DistributedDataParallel")?;
        if let Some(error) = refusal.as_ref().filter(|error| found_by(error, call.purpose)) {
            return Err(raised(error));
        }
    }
    anyhow::ensure!(process.modules.len() < 1000, "a process has at most 1000 models");
    process.modules.push(wrapped);
    Ok(DdpValue(process.modules.len() - 1))
}

/// The global ranks of a model's group, by group rank.
pub(super) fn members(
    dist: &Dist<'_>,
    group: Option<Group>,
) -> anyhow::Result<Vec<crate::rank::GlobalRank>> {
    let group = group.or_else(|| dist.world());
    let group = group.ok_or_else(|| anyhow::anyhow!("there is no default group"))?;
    dist.get_process_group_ranks(group).map_err(refused)
}

/// Whether a refusal of the constructor comes of what that call brings.
fn found_by(error: &DdpError, purpose: Purpose) -> bool {
    match error {
        DdpError::ParamCount { .. } => purpose == Purpose::ParamCount,
        _ => purpose == Purpose::ParamShapes,
    }
}

impl Wrapped {
    /// The group that it communicates in.
    pub(super) fn group(&self) -> Option<Group> {
        self.group
    }

    /// What DDP keeps, if it wraps the model.
    pub(super) fn ddp(&mut self) -> Option<&mut Ddp> {
        self.ddp.as_mut()
    }

    /// Makes a call of DDP's, as a part of the user's call `via`.
    pub(super) fn issue(
        &mut self,
        dist: &mut Dist<'_>,
        call: &DdpCall,
        async_op: bool,
        via: &'static str,
    ) -> anyhow::Result<Option<Work>> {
        dist.part_of(Some(via));
        let work = self.make(dist, call, async_op);
        dist.part_of(None);
        work
    }

    fn make(
        &mut self,
        dist: &mut Dist<'_>,
        call: &DdpCall,
        async_op: bool,
    ) -> anyhow::Result<Option<Work>> {
        let group = self.group;
        let name = match call.purpose {
            Purpose::Bucket { bucket } => format!("bucket {bucket}"),
            Purpose::ModuleStates => "module states".to_owned(),
            Purpose::Buffers => "buffers".to_owned(),
            Purpose::UsedMap => "used parameters".to_owned(),
            _ => "ddp".to_owned(),
        };
        let tensor = self.tensor(dist, name.clone(), call.dtype, call.numel);
        let work = match call.op {
            DdpOp::AllReduce { reduce_op } => {
                let options = Reduction { op: Arg::Is(reduce_op), group, async_op };
                dist.all_reduce(&tensor, options)
            }
            DdpOp::Broadcast { root } => {
                let group_src = Some(i64::from(root));
                // `group_src` needs a group to count in.
                let group = group.or_else(|| dist.world());
                dist.broadcast(&tensor, FromRank { src: None, group_src, group, async_op })
            }
            DdpOp::AllGather => {
                let size = dist.get_world_size(group).map_err(refused)?;
                let numel = call.numel.saturating_mul(u64::try_from(size).unwrap_or(0));
                let all = self.tensor(dist, format!("{name}, gathered"), call.dtype, numel);
                dist.all_gather_into_tensor(&all, &tensor, InGroup { group, async_op })
            }
        };
        work.map_err(refused)
    }

    /// What a call communicates; the same tensor in every step.
    fn tensor(&mut self, dist: &mut Dist<'_>, name: String, dtype: Dtype, numel: u64) -> Tensor {
        let device = match dist.get_backend_config(self.group) {
            Ok(config) if config.contains("nccl") => c10d::Device::Cuda,
            _ => c10d::Device::Cpu,
        };
        let key = (name, dtype, numel);
        if let Some(known) = self.tensors.get(&key) {
            return known.clone();
        }
        let made = dist.tensor_on(device, &key.0, dtype, numel, Fill::Zeros);
        self.tensors.insert(key, made.clone());
        made
    }
}

/// The process's model of that number, taken out while it works.
pub(super) fn with_module<T>(
    process: &mut Process<'_>,
    at: usize,
    work: impl FnOnce(&mut Process<'_>, &mut Wrapped) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    anyhow::ensure!(at < process.modules.len(), "this process has no such model");
    let mut module = process.modules.swap_remove(at);
    let done = work(process, &mut module);
    // Back to its number.
    process.modules.push(module);
    let last = process.modules.len() - 1;
    process.modules.swap(at, last);
    done
}

/// What DDP's calls are a part of.
const FORWARD: &str = "DistributedDataParallel.forward";
const BACKWARD: &str = "DistributedDataParallel backward";
pub(super) const JOIN: &str = "DistributedDataParallel.join";

/// The forward pass of a wrapped model.
fn forward(
    at: usize,
    through: Through,
    unused: &[u32],
    eval: &mut Evaluator<'_, '_, '_>,
) -> anyhow::Result<OutputValue> {
    let process = process(eval)?;
    let sync = !process.contexts.contains(&Context::NoSync(at));
    let join = match through {
        Through::Ddp => super::join::input(process, at),
        Through::Module => None,
    };
    with_module(process, at, |process, module| {
        let mut calls = Vec::new();
        let mut ended = None;
        if let (Some(ddp), Through::Ddp) = (&mut module.ddp, through) {
            let forward = Forward { sync, unused, join, ..Forward::default() };
            ended = ddp.forward(&forward, &mut calls).err();
        }
        for call in &calls {
            module.issue(process.dist()?, call, false, FORWARD)?;
        }
        if let Some(error) = ended {
            return Err(raised(&error));
        }
        module.forwarded = true;
        let dtype = module.model.params.first().map_or(Dtype::Float32, |param| param.dtype);
        let slowness = process.slowness;
        let total: u64 = module
            .model
            .layers
            .iter()
            .map(|layer| module.device.forward_ns(&layer.cost, dtype, module.batch))
            .fold(0, u64::saturating_add);
        process.dist()?.compute("forward", (total as f64 * slowness) as u64);
        Ok(OutputValue { model: at, through })
    })
}

/// The backward pass: gradients in the model's order, each bucket reduced when it is full.
fn backward(
    OutputValue { model: at, through }: OutputValue,
    unused: &[u32],
    eval: &mut Evaluator<'_, '_, '_>,
) -> anyhow::Result<()> {
    let process = process(eval)?;
    with_module(process, at, |process, module| {
        anyhow::ensure!(module.forwarded, "backward() before a forward pass");
        module.forwarded = false;
        let dtype = module.model.params.first().map_or(Dtype::Float32, |param| param.dtype);
        let slowness = process.slowness;
        let mut works = Vec::new();
        let mut computed: u64 = 0;
        for (layer, ready) in module.model.backward() {
            let layer = layer.and_then(|layer| module.model.layers.get(layer));
            let ns = layer.map_or(0, |l| module.device.backward_ns(&l.cost, dtype, module.batch));
            computed = computed.saturating_add((ns as f64 * slowness) as u64);
            let mut calls = Vec::new();
            // Outside of its own pass DDP's hooks do nothing.
            if let (Some(ddp), Through::Ddp) = (&mut module.ddp, through) {
                for gradient in ready.iter().filter(|gradient| !unused.contains(gradient)) {
                    ddp.gradient(*gradient, &mut calls).map_err(|error| raised(&error))?;
                }
            }
            if calls.is_empty() {
                continue;
            }
            process.dist()?.compute("backward", std::mem::take(&mut computed));
            for call in &calls {
                works.extend(module.issue(process.dist()?, call, true, BACKWARD)?);
            }
        }
        if computed > 0 {
            process.dist()?.compute("backward", computed);
        }
        let mut calls = Vec::new();
        if let (Some(ddp), Through::Ddp) = (&mut module.ddp, through) {
            ddp.end_backward(&mut calls).map_err(|error| raised(&error))?;
        }
        for call in &calls {
            works.extend(module.issue(process.dist()?, call, true, BACKWARD)?);
        }
        let dist = process.dist()?.part_of(Some(BACKWARD));
        let waited = works.into_iter().try_for_each(|work| dist.wait(work, None).map(|_| ()));
        dist.part_of(None);
        waited.map_err(refused)?;
        Ok(())
    })
}

/// Names or indices of parameters that a pass does not use.
fn unused_params<'v>(
    at: usize,
    unused: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Vec<u32>> {
    if unused.is_none() {
        return Ok(Vec::new());
    }
    let entries = take::items(unused).ok_or_else(|| take::type_error("unused is no list"))?;
    let process = process(eval)?;
    let model = process.modules.get(at).map(|module| module.model.clone());
    let model = model.ok_or_else(|| anyhow::anyhow!("this process has no such model"))?;
    let mut found = Vec::new();
    for entry in entries {
        match entry.unpack_str() {
            Some(prefix) => {
                let named = (0..).zip(model.trained());
                let before = found.len();
                let of = |name: &str| name == prefix || name.starts_with(&format!("{prefix}."));
                found.extend(named.filter(|(_, p)| of(&p.name)).map(|(index, _)| index));
                anyhow::ensure!(found.len() > before, "the model has no parameter {prefix}");
            }
            None => found.push(u32::try_from(take::whole(entry, "a parameter")?)?),
        }
    }
    Ok(found)
}

methods_static!(DDP_METHODS = ddp_methods);
methods_static!(OUTPUT_METHODS = output_methods);
methods_static!(OPTIMIZER_METHODS = optimizer_methods);
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
        Some(MODEL_METHODS.methods())
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

#[starlark_value(type = "Output")]
impl<'v> StarlarkValue<'v> for OutputValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(OUTPUT_METHODS.methods())
    }
}

#[starlark_value(type = "Optimizer")]
impl<'v> StarlarkValue<'v> for OptimizerValue {
    fn get_methods() -> Option<&'static Methods> {
        Some(OPTIMIZER_METHODS.methods())
    }
}

/// The model that a method is called on.
pub(super) fn ddp_of(this: Value<'_>) -> anyhow::Result<usize> {
    let value = this.downcast_ref::<DdpValue>().map(|value| value.0);
    value.ok_or_else(|| anyhow::anyhow!("{} is no wrapped model", take::class_of(this)))
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
        let output = OutputValue { model: at, through: Through::Ddp };
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

    fn parameters<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }

    fn train<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }

    fn eval<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
        Ok(this)
    }
}

#[starlark_module]
fn output_methods(builder: &mut MethodsBuilder) {
    fn sum<'v>(this: Value<'v>) -> anyhow::Result<Value<'v>> {
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

/// How long an optimizer's step takes: it reads and writes every parameter a few times.
fn optimizer<'v>(
    model: Value<'v>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<OptimizerValue> {
    let bytes = match model.downcast_ref::<DdpValue>() {
        Some(ddp) => process(eval)?.modules.get(ddp.0).map_or(0, |m| m.model.param_bytes()),
        None => model.downcast_ref::<ModelValue>().map_or(0, |model| model.0.param_bytes()),
    };
    // Three passes over the parameters at 1 TB/s.
    Ok(OptimizerValue((bytes.saturating_mul(3) / 1000).max(1)))
}

#[starlark_module]
fn optimizers(builder: &mut GlobalsBuilder) {
    fn SGD<'v>(
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
