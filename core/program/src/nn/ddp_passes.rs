//! Models and `DistributedDataParallel`: what its constructor, forward and backward passes issue.

#![allow(clippy::too_many_arguments, reason = "PyTorch's arguments")]

use crate::dist::arguments as take;
use crate::dist::values::Context;
use crate::execute::process::{Process, Raised, process, refused};
use crate::nn::ddp_model::DdpValue;
use crate::nn::models::{ModelValue, zoo};
use crate::nn::output_shape::Shape;
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::remark::{BACKWARD as BACKWARD_PASS, BackwardPass};
use lockstep_core::plan::{Fill, TensorId};
use lockstep_torch::c10d::{
    self, Arg, Dist, ForwardPass, FromRank, Group, InGroup, Reduction, Tensor, Work,
};
use lockstep_torch::ddp::model::{Device, Model};
use lockstep_torch::ddp::{BucketCap, Ddp, DdpCall, DdpError, DdpOp, DdpOptions, Forward, Purpose};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::dict::UnpackDictEntries;
use starlark::values::{Value, ValueLike};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A model wrapped by DDP, or used without it.
pub(crate) struct Wrapped {
    model: Arc<Model>,
    shape: Arc<Shape>,
    device: Device,
    batch: u64,
    ddp: Option<Ddp>,
    group: Option<Group>,
    /// The tensors that DDP communicates, by name, type and size.
    tensors: BTreeMap<(String, Dtype, u64), Tensor>,
    /// True between a forward pass and its backward pass.
    forwarded: bool,
    /// The parameters that the last forward pass's outputs do not depend on: they get no gradient.
    unused: Vec<u32>,
    /// Whether the last backward pass left gradients in it that DDP has not reduced.
    unreduced: Option<Unreduced>,
    /// False if the last forward pass was inside `no_sync()`: its backward pass does not reduce.
    sync: bool,
    /// The program's own switch: `require_backward_grad_sync`.
    wanted: Arc<AtomicBool>,
    /// Its parameters and gradients that something was done with, by number.
    pub(crate) parameters: BTreeMap<(usize, bool), TensorId>,
    /// Whether a backward pass has been.
    graded: Arc<AtomicBool>,
}

/// The reason for which a backward pass left gradients that DDP has not reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unreduced {
    /// It ran under `no_sync()`.
    NoSync,
    /// It went through the model that DDP wraps.
    Past,
    /// An optimizer has stepped on such gradients before, and that is noted.
    Noted,
}

/// Adds `models`, `DDP` and the optimizers.
pub(crate) fn add(builder: &mut GlobalsBuilder) {
    builder.namespace("models", zoo);
    builder.namespace("torchvision", |builder| {
        builder.namespace("models", zoo);
        builder.namespace("datasets", crate::data::loaders::of_torchvision);
    });
    parallel(builder);
    crate::nn::user_modules::add(builder);
    builder.namespace("optim", |builder| {
        crate::nn::optimizer::optimizers(builder);
        builder.namespace("lr_scheduler", crate::nn::optimizer::schedulers);
    });
}

/// DDP's refusals as exceptions.
pub(crate) fn raised(error: &DdpError) -> anyhow::Error {
    anyhow::Error::new(Raised { text: format!("{}: {error}", error.class()), help: None })
}

#[starlark_module]
pub(crate) fn parallel(builder: &mut GlobalsBuilder) {
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
    let Some(ModelValue(model, shape)) = module.downcast_ref::<ModelValue>().cloned() else {
        let class = take::class_of(module);
        return Err(take::type_error(format!(
            "DDP wraps a model, such as models.resnet50() or models.mlp([64, 64]), not a {class}"
        )));
    };
    let mut options = DdpOptions::default();
    let mut device = Device::named("A100");
    let (mut batch, mut group, mut device_ids) = (32, None, Value::new_none());
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
            "device_ids" => device_ids = *value,
            "output_device" | "dim" => {}
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
    let graded = graded_of(&process.modules, &model);
    let dist = process.dist()?;
    let device = device.ok_or_else(|| anyhow::anyhow!("no device is known"))?;
    let tensors = BTreeMap::new();
    let mut wrapped = Wrapped {
        model,
        shape,
        device,
        batch,
        ddp: Some(ddp),
        group,
        tensors,
        forwarded: false,
        unused: Vec::new(),
        unreduced: None,
        sync: true,
        wanted: Arc::new(AtomicBool::new(true)),
        parameters: BTreeMap::new(),
        graded,
    };
    for call in &calls {
        wrapped.issue(dist, call, false, "DistributedDataParallel")?;
        if let Some(error) = refusal.as_ref().filter(|error| found_by(error, call.purpose)) {
            return Err(raised(error));
        }
    }
    let wanted = wrapped.wanted.clone();
    anyhow::ensure!(process.modules.len() < 1000, "a process has at most 1000 models");
    process.modules.push(wrapped);
    DdpValue::of(process, wanted, device_ids)
}

/// The global ranks of a model's group, by group rank.
pub(crate) fn members(
    dist: &Dist<'_>,
    group: Option<Group>,
) -> anyhow::Result<Vec<lockstep_core::rank::GlobalRank>> {
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

/// Whether a model's parameters have gradients: DDP's are those of the model that it wraps.
pub(crate) fn graded_of(modules: &[Wrapped], model: &Arc<Model>) -> Arc<AtomicBool> {
    let same = modules.iter().find(|own| Arc::ptr_eq(&own.model, model));
    same.map(|own| own.graded.clone()).unwrap_or_default()
}

impl Wrapped {
    /// A model that is used without DDP.
    pub(crate) fn plain(
        model: Arc<Model>,
        shape: Arc<Shape>,
        graded: Arc<AtomicBool>,
    ) -> anyhow::Result<Wrapped> {
        let device = Device::named("A100").ok_or_else(|| anyhow::anyhow!("no device is known"))?;
        Ok(Wrapped {
            model,
            shape,
            device,
            batch: 32,
            ddp: None,
            group: None,
            tensors: BTreeMap::new(),
            forwarded: false,
            unused: Vec::new(),
            unreduced: None,
            sync: true,
            wanted: Arc::new(AtomicBool::new(true)),
            parameters: BTreeMap::new(),
            graded,
        })
    }

    /// Whether it is used without DDP.
    pub(crate) fn is_plain(&self) -> bool {
        self.ddp.is_none()
    }

    /// Whether its parameters have gradients.
    pub(crate) fn graded(&self) -> Arc<AtomicBool> {
        self.graded.clone()
    }

    /// The group that it communicates in.
    pub(crate) fn group(&self) -> Option<Group> {
        self.group
    }

    /// The model.
    pub(crate) fn model(&self) -> Arc<Model> {
        self.model.clone()
    }

    /// The shape of its output for that of its input.
    pub(crate) fn shape(&self) -> Arc<Shape> {
        self.shape.clone()
    }

    /// The state of DDP, if it wraps the model.
    pub(crate) fn ddp(&mut self) -> Option<&mut Ddp> {
        self.ddp.as_mut()
    }

    /// Makes a call of DDP's, as a part of the user's call `via`.
    pub(crate) fn issue(
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

    /// The tensor of a call; the same in every step.
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
pub(crate) fn with_module<T>(
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

const FORWARD: &str = "DistributedDataParallel.forward";
const BACKWARD: &str = "DistributedDataParallel backward";
pub(crate) const JOIN: &str = "DistributedDataParallel.join";

/// The forward pass of a wrapped model, through DDP or past it.
pub(crate) fn forward(
    at: usize,
    through_ddp: bool,
    unused: &[u32],
    eval: &mut Evaluator<'_, '_, '_>,
) -> anyhow::Result<ForwardPass> {
    let process = process(eval)?;
    let wanted = process.modules.get(at).is_some_and(|module| module.wanted.load(Relaxed));
    let sync = wanted && !process.contexts.contains(&Context::NoSync(at));
    let grad = process.grad_enabled();
    let join = if through_ddp { crate::nn::join::input(process, at, sync) } else { None };
    let passes = crate::nn::join::passes(process, at);
    with_module(process, at, |process, module| {
        let mut calls = Vec::new();
        let mut ended = None;
        if let (Some(ddp), true) = (&mut module.ddp, through_ddp) {
            let rank0 = passes.map(|passes| ddp.rank0_order(&module.model, &passes));
            let rank0 = rank0.transpose().map_err(|error| raised(&error))?;
            let rank0_order = rank0.as_deref();
            let forward = Forward { grad_enabled: grad, sync, unused, rank0_order, join };
            ended = ddp.forward(&forward, &mut calls).err();
        }
        for call in &calls {
            module.issue(process.dist()?, call, false, FORWARD)?;
        }
        if let Some(error) = ended {
            return Err(raised(&error));
        }
        if grad {
            module.forwarded = true;
            module.unused = unused.to_vec();
        }
        module.sync = sync;
        let dtype = module.model.params.first().map_or(Dtype::Float32, |param| param.dtype);
        let slowness = process.slowness;
        let total: u64 = module
            .model
            .layers
            .iter()
            .map(|layer| module.device.forward_ns(&layer.cost, dtype, module.batch))
            .fold(0, u64::saturating_add);
        process.dist()?.compute("forward", (total as f64 * slowness) as u64);
        Ok(ForwardPass { model: at, ddp: through_ddp, grad })
    })
}

/// The backward pass: gradients in the model's order, each bucket reduced when it is full.
pub(crate) fn backward(
    ForwardPass { model: at, ddp: through_ddp, grad }: ForwardPass,
    unused: &[u32],
    eval: &mut Evaluator<'_, '_, '_>,
) -> anyhow::Result<()> {
    if !grad {
        let text = "RuntimeError: element 0 of tensors does not require grad and does not have a \
                    grad_fn";
        let help = "The output comes from a forward pass under torch.no_grad().";
        return Err(Raised { text: text.to_owned(), help: Some(help.to_owned()) }.into());
    }
    let process = process(eval)?;
    with_module(process, at, |process, module| {
        anyhow::ensure!(module.forwarded, "backward() before a forward pass");
        module.forwarded = module.ddp.is_none(); // Several passes of a pipeline may be under way.
        let left_out = [unused, module.unused.as_slice()].concat();
        module.graded.store(true, Relaxed);
        let dtype = module.model.params.first().map_or(Dtype::Float32, |param| param.dtype);
        let slowness = process.slowness;
        let pass = match (through_ddp, module.sync) {
            // Without DDP there is none that it could go past.
            _ if module.ddp.is_none() => BackwardPass::Reduces,
            (false, _) => BackwardPass::Past,
            (true, false) => BackwardPass::Unsynced,
            (true, true) => BackwardPass::Reduces,
        };
        module.unreduced = match (pass, module.unreduced) {
            (_, Some(Unreduced::Noted)) => Some(Unreduced::Noted),
            (BackwardPass::Reduces, _) => None,
            (BackwardPass::Unsynced, _) => Some(Unreduced::NoSync),
            (BackwardPass::Past, _) => Some(Unreduced::Past),
        };
        let mut works = Vec::new();
        let mut computed: u64 = 0;
        for (layer, ready) in module.model.backward() {
            let layer = layer.and_then(|layer| module.model.layers.get(layer));
            let ns = layer.map_or(0, |l| module.device.backward_ns(&l.cost, dtype, module.batch));
            computed = computed.saturating_add((ns as f64 * slowness) as u64);
            let mut calls = Vec::new();
            // Outside of its own pass DDP's hooks do nothing.
            if let (Some(ddp), true) = (&mut module.ddp, through_ddp) {
                for gradient in ready.iter().filter(|gradient| !left_out.contains(gradient)) {
                    ddp.gradient(*gradient, &mut calls).map_err(|error| raised(&error))?;
                }
            }
            if calls.is_empty() {
                continue;
            }
            pass_of(process, pass, std::mem::take(&mut computed))?;
            for call in &calls {
                works.extend(module.issue(process.dist()?, call, true, BACKWARD)?);
            }
        }
        if computed > 0 {
            pass_of(process, pass, computed)?;
        }
        let mut calls = Vec::new();
        if let (Some(ddp), true) = (&mut module.ddp, through_ddp) {
            ddp.end_backward(&mut calls).map_err(|error| raised(&error))?;
        }
        for call in &calls {
            works.extend(module.issue(process.dist()?, call, true, BACKWARD)?);
        }
        if works.is_empty() {
            return Ok(());
        }
        let dist = process.dist()?.part_of(Some(BACKWARD));
        let waited = works.into_iter().try_for_each(|work| dist.wait(work, None).map(|_| ()));
        dist.part_of(None);
        waited.map_err(refused)?;
        Ok(())
    })
}

/// Notes it where an optimizer of these models steps on gradients that DDP has not reduced, the first time.
pub(crate) fn note_step(models: &[Arc<Model>], process: &mut Process<'_>) -> anyhow::Result<()> {
    let steps = |own: &&mut Wrapped| {
        own.ddp.is_some() && models.iter().any(|model| Arc::ptr_eq(model, &own.model))
    };
    let mut past = None;
    for own in process.modules.iter_mut().filter(|own| steps(own)) {
        past = match own.unreduced {
            None | Some(Unreduced::Noted) => continue,
            Some(why) => Some(why == Unreduced::Past),
        };
        own.unreduced = Some(Unreduced::Noted);
    }
    if let Some(past) = past {
        process.dist()?.step_on_local_gradients(past);
    }
    Ok(())
}

/// A part of a backward pass is computed.
fn pass_of(process: &mut Process<'_>, pass: BackwardPass, duration_ns: u64) -> anyhow::Result<()> {
    let dist = process.dist()?.part_of(pass.via());
    dist.compute(BACKWARD_PASS, duration_ns);
    dist.part_of(None);
    Ok(())
}

/// Parameters that are named where one is asked for that is not there.
const MAX_NAMED: usize = 8;

/// Names or indices of parameters that a pass does not use.
pub(crate) fn unused_params<'v>(
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
                if found.len() == before {
                    let names: Vec<&str> =
                        model.trained().map(|p| p.name.as_str()).take(MAX_NAMED).collect();
                    let more = if model.trained().count() > MAX_NAMED { ", …" } else { "" };
                    let names = names.join(", ");
                    anyhow::bail!("the model has no parameter {prefix}; it has {names}{more}");
                }
            }
            None => found.push(u32::try_from(take::whole(entry, "a parameter")?)?),
        }
    }
    Ok(found)
}
