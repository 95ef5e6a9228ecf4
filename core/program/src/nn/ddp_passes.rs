//! Models and `DistributedDataParallel`: the collectives that its constructor, forward and backward passes
//! issue.

#![allow(clippy::too_many_arguments, reason = "PyTorch's arguments")]

use crate::dist::arguments as take;
use crate::dist::values::{Context, DeviceValue, members};
use crate::nn::modules::{DdpValue, Module, tensors};
use crate::nn::parameter::Kind;
use crate::nn::state::{ForwardPass, SAMPLES, Wrapped, raised};
use crate::nn::wrapped_models::with_module;
use crate::process::grad_mode;
use crate::process::raised::refused;
use crate::process::state::{Process, process};
use crate::python::numbers;
use crate::python::type_error::{class_of, type_error};
use lockstep_torch::autograd::Node;
use lockstep_torch::c10d;
use lockstep_torch::ddp::model::{Buffer, Cost, Device, Layer, Model, Parameter, sequence};
use lockstep_torch::ddp::{BucketCap, Ddp, DdpError, DdpOptions, Forward, Purpose};
use starlark::environment::GlobalsBuilder;
use starlark::eval::Evaluator;
use starlark::starlark_module;
use starlark::values::dict::UnpackDictEntries;
use starlark::values::{Value, ValueLike};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

#[starlark_module]
pub(crate) fn parallel(builder: &mut GlobalsBuilder) {
    fn DistributedDataParallel<'v>(
        module: Value<'v>,
        #[starlark(kwargs)] kwargs: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        wrap(module, &kwargs, eval)
    }

    fn DDP<'v>(
        module: Value<'v>,
        #[starlark(kwargs)] kwargs: UnpackDictEntries<&'v str, Value<'v>>,
        eval: &mut Evaluator<'v, '_, '_>,
    ) -> anyhow::Result<Value<'v>> {
        wrap(module, &kwargs, eval)
    }
}

/// `DistributedDataParallel(module, …)`.
fn wrap<'v>(
    module: Value<'v>,
    kwargs: &UnpackDictEntries<&'v str, Value<'v>>,
    eval: &mut Evaluator<'v, '_, '_>,
) -> anyhow::Result<Value<'v>> {
    if Module::of(module).is_none() {
        let class = class_of(module);
        return Err(type_error(format!(
            "DDP wraps a model, such as models.resnet50() or an object of a class of nn.Module, not a {class}"
        )));
    }
    let mut options = DdpOptions::default();
    let mut device = Device::named("A100");
    let (mut batch, mut group, mut device_ids) = (SAMPLES, None, Value::new_none());
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
    let (model, parameters) = flattened(module)?;
    let model = Arc::new(model);
    let heap = eval.heap();
    let process = process(eval)?;
    let dist = process.dist()?;
    let rank = dist.get_rank(group).map_err(refused)?;
    let rank = u32::try_from(rank).unwrap_or_default();
    let (ddp, calls) = Ddp::new(rank, &model, &options).map_err(|error| raised(&error))?;
    let members = members(dist, group)?;
    let me = dist.process();
    let nth = process.shown.wrap(members, model.clone());
    let refusal = process.known.refusal(me, nth).cloned();
    let device = device.ok_or_else(|| anyhow::anyhow!("no device is known"))?;
    let sync = Arc::new(AtomicBool::new(true));
    let mut wrapped = Wrapped {
        model,
        parameters,
        device,
        batch,
        ddp,
        group,
        nth,
        tensors: BTreeMap::new(),
        passes: VecDeque::new(),
        unreduced: None,
        wanted: sync.clone(),
    };
    wrapped.issue_all(
        process.dist()?,
        &calls,
        "DistributedDataParallel",
        |_, call| match refusal.as_ref().filter(|error| found_by(error, call.purpose)) {
            Some(error) => Err(raised(error)),
            None => Ok(()),
        },
    )?;
    let on_cpu = || {
        let all = tensors(module, Kind::Parameter)?;
        anyhow::Ok(all.iter().any(|(_, own)| own.device() == c10d::Device::Cpu))
    };
    if crate::nn::sync_batch_norm::any_in(module)? && on_cpu()? {
        return Err(raised(&DdpError::SyncBatchNormOnCpu));
    }
    let at = process.modules.len();
    anyhow::ensure!(at < 1000, "a process has at most 1000 models");
    process.modules.push(wrapped);
    let ids = take::items(device_ids).map(|ids| {
        let index = |id: &Value<'_>| {
            let device = id.downcast_ref::<DeviceValue>().map(|device| device.0.1.unwrap_or(0));
            device.or_else(|| u32::try_from(id.unpack_i32()?).ok())
        };
        ids.iter().filter_map(index).collect()
    });
    let module = crate::nn::modules::whole(module, heap);
    Ok(heap.alloc_complex_no_freeze(DdpValue { at, module, sync, device_ids: ids }))
}

/// A module as DDP sees it, and the numbers of its parameters.
fn flattened(module: Value<'_>) -> anyhow::Result<(Model, Vec<u32>)> {
    let own = Module::of(module).map_or("Module", |own| own.class());
    let mut model = sequence(own, &[]);
    let parameters = tensors(module, Kind::Parameter)?;
    let numbers: Vec<u32> = parameters.iter().map(|(_, own)| own.number()).collect();
    model.params = parameters
        .into_iter()
        .map(|(name, own)| {
            let (shape, dtype) = (own.shape().to_vec(), own.dtype());
            let requires_grad = own.is_trained();
            let (sparse, unexpected, uninitialized) = (false, false, false);
            Parameter { name, shape, dtype, requires_grad, sparse, unexpected, uninitialized }
        })
        .collect();
    let buffers = tensors(module, Kind::Buffer)?.into_iter();
    model.buffers = buffers
        .map(|(name, own)| Buffer { name, shape: own.shape().to_vec(), dtype: own.dtype() })
        .collect();
    // The order in which a pass makes gradients ready is that of what it runs. Until one has run, the layers'.
    for (_, part) in crate::nn::modules::modules(module)? {
        let Some(Module::Layer(layer)) = Module::of(part) else { continue };
        let own = layer.parameters.try_borrow()?;
        let place = |at: &u32| {
            let number = own.get(*at as usize)?.1.number();
            numbers.iter().position(|known| *known == number).map(|at| at as u32)
        };
        model.layers.extend(layer.layers.iter().map(|layer| Layer {
            params: layer.params.iter().filter_map(place).collect(),
            ..layer.clone()
        }));
    }
    let used: BTreeSet<u32> = model.layers.iter().flat_map(|layer| layer.params.clone()).collect();
    let others: Vec<u32> =
        (0..model.params.len() as u32).filter(|index| !used.contains(index)).rev().collect();
    if !others.is_empty() {
        let (name, cost) = (own.to_owned(), Cost::default());
        model.layers.insert(0, Layer { name, params: others, cost });
    }
    Ok((model, numbers))
}

/// True if the constructor's refusal is found by the call with this purpose.
fn found_by(error: &DdpError, purpose: Purpose) -> bool {
    match error {
        DdpError::ParamCount { .. } => purpose == Purpose::ParamCount,
        _ => purpose == Purpose::ParamShapes,
    }
}

const FORWARD: &str = "DistributedDataParallel.forward";
pub(crate) const BACKWARD: &str = "DistributedDataParallel backward";

/// Forward passes whose backward pass may still come.
const MOST_PASSES: usize = 256;

/// The end of DDP's forward pass, after the wrapped model's: DDP finds the parameters that the output does not depend
/// on.
///
/// # Errors
/// An exception that DDP raises.
pub(crate) fn ends(at: usize, pass: ForwardPass, process: &mut Process<'_>) -> anyhow::Result<()> {
    let used = pass.output.as_ref().map(|node| node.parameters()).unwrap_or_default();
    with_module(process, at, |_, module| {
        let trained = (0..).zip(module.trained());
        let left = trained.filter(|(_, own)| pass.left_out.contains(own) || !used.contains(own));
        let left: Vec<u32> = left.map(|(index, _)| index).collect();
        if grad_mode::enabled() {
            module.passes.push_back(pass);
            if module.passes.len() > MOST_PASSES {
                module.passes.pop_front();
            }
        }
        module.ddp.end_forward(&left).map_err(|error| raised(&error))
    })
}

/// The part of a forward pass before that of the wrapped model. Returns whether the pass is to synchronize.
///
/// # Errors
/// An exception that DDP raises.
pub(crate) fn begins(at: usize, process: &mut Process<'_>) -> anyhow::Result<bool> {
    let wanted = process.modules.get(at).is_some_and(|module| module.wanted.load(Relaxed));
    let sync = wanted && !process.contexts.contains(&Context::NoSync(at));
    let grad_enabled = process.grad_enabled();
    let join = crate::nn::join::input(process, at, sync);
    let passes = crate::nn::join::passes(process, at);
    with_module(process, at, |process, module| {
        let ddp = &mut module.ddp;
        let mut calls = Vec::new();
        let rank0 = passes.map(|passes| ddp.rank0_order(&module.model, &passes)).transpose();
        let mut rank0 = rank0.map_err(|error| raised(&error))?;
        if !ddp.rebuild_order().is_empty() {
            process.shown.rebuilds(module.nth, ddp.rebuild_order().to_vec());
        }
        if rank0.is_none() {
            let me = process.dist()?.process();
            rank0 = process.known.rebuilt(me, module.nth).map(<[u32]>::to_vec);
        }
        let rank0_order = rank0.as_deref();
        let forward = Forward { grad_enabled, sync, unused: &[], rank0_order, join };
        let ended = ddp.begin_forward(&forward, &mut calls);
        module.issue_all(process.dist()?, &calls, FORWARD, |_, _| Ok(()))?;
        ended.map_err(|error| raised(&error))?;
        Ok(sync)
    })
}

/// The operation that the last output of a wrapped model comes of, in whose backward pass these parameters, by
/// their numbers, get no gradient.
///
/// # Errors
/// There was no forward pass.
pub(crate) fn last_output(
    at: usize,
    unused: &[u32],
    eval: &mut Evaluator<'_, '_, '_>,
) -> anyhow::Result<Option<Arc<Node>>> {
    let process = process(eval)?;
    with_module(process, at, |_, module| {
        let pass = module.passes.back_mut();
        let pass = pass.ok_or_else(|| anyhow::anyhow!("backward() before a forward pass"))?;
        pass.left_out.extend(unused);
        Ok(pass.output.clone())
    })
}

/// Parameters that are named where one is asked for that is not there.
const MAX_NAMED: usize = 8;

/// The numbers of parameters that a pass does not use, from their names or indices.
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
    let trained: Vec<u32> =
        process.modules.get(at).map(|own| own.trained().collect()).unwrap_or_default();
    Ok(found.into_iter().filter_map(|index| trained.get(index as usize).copied()).collect())
}
