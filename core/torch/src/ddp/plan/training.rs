//! A training run's settings, and why such a run is no plan.

use crate::ddp::averager::ModelAverager;
use crate::ddp::error::DdpError;
use crate::ddp::join::JoinOptions;
use crate::ddp::left_out::UnknownName;
use crate::ddp::model::{Device, Model, ModelError, UnknownParameter};
use crate::ddp::options::DdpOptions;
use crate::ddp::verify::verify_zero_types;
use lockstep_core::group::BackendName;
use lockstep_core::plan::PlanError;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A training run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Training {
    /// DDP's arguments.
    pub options: DdpOptions,
    /// The number of ranks.
    pub world_size: u32,
    /// Ranks a node; 0 when one node holds all.
    pub ranks_per_node: u32,
    /// `nccl` for a compute stream beside the communication, `gloo` or `host` for processes.
    pub backend: BackendName,
    /// The device that computes.
    pub device: Device,
    /// Samples a rank and pass.
    pub batch: u64,
    /// Passes forward and backward.
    pub steps: u32,
    /// Passes that accumulate gradients before one reduces them: all but the last of so many are
    /// inside `no_sync()`. 0 counts as 1.
    pub accumulate: u32,
    /// The averager of the parameters after some of the optimizer's steps.
    pub averager: Option<ModelAverager>,
    /// `SyncBatchNorm.convert_sync_batchnorm`: every BatchNorm takes the statistics of all ranks.
    pub sync_batch_norm: bool,
    /// `ZeroRedundancyOptimizer`: every rank updates its share and broadcasts it, one by one or,
    /// with `Some(true)`, as one buffer (`parameters_as_bucket_view`).
    pub zero: Option<bool>,
    /// Uneven inputs, inside `join()`; then the number of steps is theirs.
    pub uneven: Option<Uneven>,
    /// Devices of each process with a replica of the module on each, as in 1.x; 0 counts as 1. A
    /// rank of the plan is a device then.
    pub devices: u32,
    /// Parameters, or modules with all of theirs, that get no gradient in any pass.
    pub unused: Vec<String>,
    /// The order in which gradients become ready, as indices among the parameters that require
    /// grad, in place of the model's own.
    #[serde(default)]
    pub grad_ready_order: Option<Vec<u32>>,
}

/// Ranks that run out of inputs at different times.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uneven {
    /// Inputs of each rank; ranks past the last have as many as it.
    pub inputs: Vec<u32>,
    /// `join`'s arguments.
    pub options: JoinOptions,
}

impl Uneven {
    /// Inputs of a rank.
    pub fn of(&self, rank: u32) -> u32 {
        self.inputs.get(rank as usize).or(self.inputs.last()).copied().unwrap_or(0)
    }

    /// The most inputs of any of so many ranks.
    pub fn most(&self, world_size: u32) -> u32 {
        let named = self.inputs.iter().take(world_size as usize);
        named.copied().max().unwrap_or(0)
    }

    /// The highest rank, of so many, that still has inputs in an iteration.
    pub(super) fn authoritative(&self, world_size: u32, iteration: u32) -> u32 {
        let last = world_size.saturating_sub(1);
        if self.of(last) > iteration {
            return last;
        }
        let mut named = self.inputs.iter().take(world_size as usize);
        named.rposition(|inputs| *inputs > iteration).map_or(0, |rank| rank as u32)
    }
}

impl Training {
    /// Three steps of DDP on `nccl` with the default arguments.
    pub fn new(world_size: u32, device: Device) -> Training {
        Training {
            options: DdpOptions::default(),
            world_size,
            ranks_per_node: 0,
            backend: BackendName::Nccl,
            device,
            batch: 32,
            steps: 3,
            accumulate: 1,
            averager: None,
            sync_batch_norm: false,
            zero: None,
            uneven: None,
            devices: 1,
            unused: Vec::new(),
            grad_ready_order: None,
        }
    }

    /// The model as it is trained: without parameters that get no gradient, and in the order that was asked
    /// for.
    ///
    /// # Errors
    /// A name is not that of a parameter or module, or the order is wrong.
    pub fn trained<'a>(&self, model: &'a Model) -> Result<Cow<'a, Model>, TrainingError> {
        let model = match &self.grad_ready_order {
            None => Cow::Borrowed(model),
            Some(order) => Cow::Owned(model.in_order(order)?),
        };
        match self.unused.is_empty() {
            true => Ok(model),
            false => Ok(Cow::Owned(model.without(&model.find(&self.unused)?))),
        }
    }

    /// The check of the model's parameters by a sharded optimizer, if there is one.
    ///
    /// # Errors
    /// The error that PyTorch raises.
    pub fn check_zero(&self, model: &Model) -> Result<(), DdpError> {
        match self.zero.is_some() || self.options.zero_overlap.is_some() {
            true => verify_zero_types(model, self.backend),
            false => Ok(()),
        }
    }

    /// Ranks of the plan: processes, or their devices.
    pub fn ranks(&self) -> u32 {
        self.world_size.saturating_mul(self.devices.max(1))
    }
}

/// The reason that a training run is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrainingError {
    /// DDP itself raises.
    #[error("{}: {_0}", _0.class())]
    Ddp(DdpError),
    /// The plan cannot be run.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// An unknown parameter.
    #[error(transparent)]
    Unknown(#[from] UnknownParameter),
    /// An unknown parameter or buffer in DDP's arguments.
    #[error(transparent)]
    Unnamed(#[from] UnknownName),
    /// A ready order that does not fit the model.
    #[error(transparent)]
    Order(#[from] ModelError),
    /// Options that PyTorch refuses together, or that do not go together here.
    #[error("{0}")]
    Together(&'static str),
    /// More operations than a plan should have: a program for every group of neighbours.
    #[error(
        "{programs} groups of ranks with programs of {ops} operations each are more than {MAX_OPS} \
         operations; take fewer ranks or larger groups"
    )]
    TooMany {
        /// The programs.
        programs: u64,
        /// Operations of each.
        ops: usize,
    },
    /// More steps than a plan should have.
    #[error("{steps} steps of {layers} layers are more than {MAX_OPS} operations; take fewer")]
    TooLong {
        /// The steps.
        steps: u32,
        /// The model's layers.
        layers: usize,
    },
}

// Not its source: the text would be told twice.
impl From<DdpError> for TrainingError {
    fn from(error: DdpError) -> TrainingError {
        TrainingError::Ddp(error)
    }
}

/// The most operations of a rank: a stranger's arguments stay bounded.
pub(super) const MAX_OPS: u64 = 1 << 22;
