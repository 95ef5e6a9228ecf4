//! Models and `DistributedDataParallel`: the collectives that its constructor, forward and backward passes
//! issue.

#![allow(clippy::too_many_arguments, reason = "PyTorch's arguments")]

use crate::dist::arguments as take;
use crate::dist::values::{Context, members};
use crate::nn::model_values::{DdpValue, ModelValue, with_module};
use crate::nn::state::{Unreduced, Wrapped, graded_of, raised};
use crate::process::raised::{Raised, refused};
use crate::process::state::{Process, process};
use crate::python::numbers;
use crate::python::type_error::{class_of, type_error};
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::remark::{BACKWARD as BACKWARD_PASS, BackwardPass};
use lockstep_torch::c10d::ForwardPass;
use lockstep_torch::ddp::model::{Device, Model};
use lockstep_torch::ddp::{BucketCap, Ddp, DdpError, DdpOptions, Forward, Purpose};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::dict::UnpackDictEntries;
use starlark::values::{Value, ValueLike};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

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
        let class = class_of(module);
        return Err(type_error(format!(
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
                let cap = numbers::number(*value, name)?;
                options.bucket_cap = BucketCap::from_mb(cap)?;
            }
            "find_unused_parameters" => options.find_unused_parameters = value.to_bool(),
            "static_graph" => options.static_graph = value.to_bool(),
            "broadcast_buffers" => options.broadcast_buffers = value.to_bool(),
            "gradient_as_bucket_view" => options.gradient_as_bucket_view = value.to_bool(),
            "init_sync" => options.init_sync = value.to_bool(),
            "process_group" => group = take::group(*value)?,
            "batch" => batch = u64::try_from(numbers::whole(*value, name)?)?,
            "gpu" => {
                let gpu = value.unpack_str().unwrap_or_default();
                device = Device::named(gpu);
                anyhow::ensure!(device.is_some(), "{gpu} is no known GPU: V100, A100, H100, H200");
            }
            "device_ids" => device_ids = *value,
            "output_device" | "dim" => {}
            other => {
                return Err(type_error(format!(
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

/// True if the constructor's refusal is found by the call with this purpose.
fn found_by(error: &DdpError, purpose: Purpose) -> bool {
    match error {
        DdpError::ParamCount { .. } => purpose == Purpose::ParamCount,
        _ => purpose == Purpose::ParamShapes,
    }
}

const FORWARD: &str = "DistributedDataParallel.forward";
const BACKWARD: &str = "DistributedDataParallel backward";

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
    let entries = take::items(unused).ok_or_else(|| type_error("unused is no list"))?;
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
            None => found.push(u32::try_from(numbers::whole(entry, "a parameter")?)?),
        }
    }
    Ok(found)
}
