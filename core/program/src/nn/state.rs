//! The state that a process keeps of its models: DDP's state of each, and the joins that are open.

use crate::nn::output_shape::Shape;
use crate::process::raised::{Raised, refused};
use lockstep_core::dtype::Dtype;
use lockstep_core::plan::{Fill, TensorId};
use lockstep_torch::c10d::{self, Arg, Dist, FromRank, Group, InGroup, Reduction, Tensor, Work};
use lockstep_torch::ddp::join::JoinPasses;
use lockstep_torch::ddp::model::{Device, Model};
use lockstep_torch::ddp::{Ddp, DdpCall, DdpError, DdpOp, Purpose};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A model wrapped by DDP, or used without it.
pub(crate) struct Wrapped {
    pub(crate) model: Arc<Model>,
    pub(crate) shape: Arc<Shape>,
    pub(crate) device: Device,
    pub(crate) batch: u64,
    pub(crate) ddp: Option<Ddp>,
    pub(crate) group: Option<Group>,
    /// The tensors that DDP communicates, by name, type and size.
    pub(crate) tensors: BTreeMap<(String, Dtype, u64), Tensor>,
    /// True between a forward pass and its backward pass.
    pub(crate) forwarded: bool,
    /// The parameters that the last forward pass's outputs do not depend on: they get no gradient.
    pub(crate) unused: Vec<u32>,
    /// The gradients that the last backward pass left in the model and DDP has not reduced, if any.
    pub(crate) unreduced: Option<Unreduced>,
    /// False if the last forward pass was inside `no_sync()`: its backward pass does not reduce.
    pub(crate) sync: bool,
    /// The program's own switch: `require_backward_grad_sync`.
    pub(crate) wanted: Arc<AtomicBool>,
    /// Its parameters and gradients that something was done with, by number.
    pub(crate) parameters: BTreeMap<(usize, bool), TensorId>,
    /// True after a backward pass.
    pub(crate) graded: Arc<AtomicBool>,
}

/// The reason for which a backward pass left gradients that DDP has not reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreduced {
    /// It ran under `no_sync()`.
    NoSync,
    /// It went through the model that DDP wraps.
    Past,
    /// An optimizer has stepped on such gradients before, and that is noted.
    Noted,
}

/// DDP's refusals as exceptions.
pub(crate) fn raised(error: &DdpError) -> anyhow::Error {
    anyhow::Error::new(Raised { text: format!("{}: {error}", error.class()), help: None })
}

/// The flag that says if a model's parameters have gradients; DDP shares it with the model that it wraps.
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

    /// True if the model is not wrapped in DDP.
    pub(crate) fn is_plain(&self) -> bool {
        self.ddp.is_none()
    }

    /// The flag that says if the model's parameters have gradients.
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

/// A `join()` that is open on a rank.
#[derive(Clone, Debug)]
pub(crate) struct OpenJoin {
    pub(crate) model: usize,
    pub(crate) throw: bool,
    /// The number of the join among the rank's.
    pub(crate) nth: usize,
    /// The passes of all members, once they are known.
    pub(crate) passes: Option<Arc<JoinPasses>>,
    /// The rank in the model's group.
    pub(crate) me: u32,
}

/// A model that a class has made, by its number in the process.
pub(crate) struct OwnModule {
    pub(crate) model: Arc<Model>,
    pub(crate) class: String,
}
