//! Models in a program's hands, wrapped by DDP or not, and their numbers in the process.

#![allow(clippy::panic, reason = "StarlarkPagablePanic: these values are never written out")]

use crate::dist::arguments as take;
use crate::dist::values::{DeviceValue, TensorValue};
use crate::nn::output_shape::Shape;
use crate::nn::parameter::Parameter;
use crate::nn::state::{Wrapped, graded_of};
use crate::process::state::Process;
use crate::python::type_error::class_of;
use crate::tensor::deferred::parameter;
use allocative::Allocative;
use lockstep_torch::c10d::Device;
use lockstep_torch::ddp::model::Model;
use starlark::starlark_simple_value;
use starlark::values::list::AllocList;
use starlark::values::{
    Heap, NoSerialize, ProvidesStaticType, StarlarkPagablePanic, Value, ValueLike,
};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The model of the parameters.
#[derive(Clone, Debug)]
pub(crate) struct Of {
    /// The model's number in the process.
    pub(crate) at: usize,
    pub(crate) model: Arc<Model>,
    pub(crate) device: Device,
    pub(crate) graded: Arc<AtomicBool>,
}

/// The number of a model in the process, which it gets where it is used without DDP.
pub(crate) fn number_of(model: Value<'_>, process: &mut Process<'_>) -> anyhow::Result<usize> {
    if let Some(ddp) = model.downcast_ref::<DdpValue>() {
        return Ok(ddp.0);
    }
    if let Some(inner) = model.downcast_ref::<InnerValue>() {
        return Ok(inner.0);
    }
    let model = model.downcast_ref::<ModelValue>();
    let ModelValue(model, shape) = model.ok_or_else(|| anyhow::anyhow!("this is no model"))?;
    let known = |own: &Wrapped| own.is_plain() && Arc::ptr_eq(&own.model(), model);
    if let Some(at) = process.modules.iter().position(known) {
        return Ok(at);
    }
    anyhow::ensure!(process.modules.len() < 1000, "a process has at most 1000 models");
    let graded = graded_of(&process.modules, model);
    process.modules.push(Wrapped::plain(model.clone(), shape.clone(), graded)?);
    Ok(process.modules.len() - 1)
}

impl Of {
    /// Those of the process's model of that number.
    pub(crate) fn numbered(at: usize, process: &mut Process<'_>) -> anyhow::Result<Of> {
        let wrapped =
            process.modules.get(at).ok_or_else(|| anyhow::anyhow!("there is no model"))?;
        let (model, graded) = (wrapped.model(), wrapped.graded());
        let group = wrapped.group();
        // With DDP and without it they are the same tensors.
        let same = process.modules.iter().position(|own| Arc::ptr_eq(&own.model(), &model));
        let at = same.unwrap_or(at);
        let device = match process.dist()?.get_backend_config(group) {
            Ok(config) if config.contains("nccl") => Device::Cuda,
            _ => Device::Cpu,
        };
        Ok(Of { at, model, device, graded })
    }

    /// The parameter or buffer of that name.
    pub(crate) fn tensor<'v>(&self, name: &str, heap: Heap<'v>) -> Option<Value<'v>> {
        let params = self.model.params.iter().position(|own| own.name == name);
        let found = params.and_then(|at| {
            let own = self.model.params.get(at)?;
            Some((at, false, own.dtype, &own.shape[..]))
        });
        let (index, buffer, dtype, shape) = found.or_else(|| {
            let at = self.model.buffers.iter().position(|own| own.name == name)?;
            let own = self.model.buffers.get(at)?;
            Some((self.model.params.len() + at, true, own.dtype, &own.shape[..]))
        })?;
        let graded = self.graded.clone();
        let this = Parameter { at: self.at, index, grad: false, buffer, graded };
        Some(heap.alloc(TensorValue(parameter(this, dtype, shape, self.device))))
    }

    /// True if the name of a parameter or buffer begins with `front`.
    pub(crate) fn has_below(&self, front: &str) -> bool {
        let params = self.model.params.iter().map(|own| &own.name);
        let mut all = params.chain(self.model.buffers.iter().map(|own| &own.name));
        all.any(|name| name.starts_with(front))
    }
}

/// A model that has not been wrapped.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct ModelValue(
    #[allocative(skip)] pub(crate) Arc<Model>,
    /// The shape of its output for that of its input.
    #[allocative(skip)]
    pub(crate) Arc<Shape>,
);
starlark_simple_value!(ModelValue);

impl fmt::Display for ModelValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({} parameters)", self.0.name, self.0.params.len())
    }
}

impl ModelValue {
    pub(crate) fn new(model: Model, shape: Shape) -> ModelValue {
        ModelValue(Arc::new(model), Arc::new(shape))
    }
}

/// A wrapped one, by its number in the process.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct DdpValue(
    pub(crate) usize,
    /// `require_backward_grad_sync`.
    #[allocative(skip)]
    pub(crate) Arc<AtomicBool>,
    /// The model that it wraps.
    #[allocative(skip)]
    pub(crate) Of,
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

    pub(crate) fn device_ids<'v>(&self, heap: Heap<'v>) -> Value<'v> {
        match &self.3 {
            Some(ids) => heap.alloc(AllocList(ids.iter().copied())),
            None => Value::new_none(),
        }
    }
}

/// The model inside of a wrapped one: `ddp.module`.
#[derive(Clone, Debug, ProvidesStaticType, NoSerialize, StarlarkPagablePanic, Allocative)]
pub(crate) struct InnerValue(pub(crate) usize, #[allocative(skip)] pub(crate) Of);
starlark_simple_value!(InnerValue);

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

/// The model that a method is called on.
pub(crate) fn ddp_of(this: Value<'_>) -> anyhow::Result<usize> {
    let value = this.downcast_ref::<DdpValue>().map(|value| value.0);
    value.ok_or_else(|| anyhow::anyhow!("{} is no wrapped model", class_of(this)))
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
