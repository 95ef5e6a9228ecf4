//! Ranks that train by DDP, with the values of their parameters and gradients.

use crate::ddp::join::JoinOptions;
use crate::ddp::model::Model;
use crate::ddp::options::DdpOptions;
use crate::ddp::wrapper::Ddp;
use lockstep_core::group::BackendName;

/// The results of a rank's computation in an iteration.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    /// False inside `no_sync()`.
    pub sync: bool,
    /// Gradients in the order in which they become ready, with their indices among the parameters
    /// that require grad. Those that are missing are unused.
    pub gradients: Vec<(u32, Vec<f32>)>,
}

/// A rank's parameters and gradients.
#[derive(Clone, Debug)]
pub(super) struct RankValues {
    pub(super) ddp: Ddp,
    /// Per parameter of the model.
    pub(super) params: Vec<Vec<f32>>,
    /// Per parameter that requires grad.
    pub(super) grads: Vec<Option<Gradient>>,
}

#[derive(Clone, Debug)]
pub(super) struct Gradient {
    pub(super) values: Vec<f32>,
    /// With `gradient_as_bucket_view`: it lies in its bucket already.
    pub(super) in_bucket: bool,
}

/// Ranks that train one model by DDP.
#[derive(Clone, Debug)]
pub struct Trainer {
    pub(super) model: Model,
    /// Per parameter that requires grad, its index in the model.
    pub(super) trained: Vec<usize>,
    pub(super) options: DdpOptions,
    pub(super) backend: BackendName,
    pub(super) join: Option<JoinOptions>,
    pub(super) ranks: Vec<RankValues>,
    /// The ranks of the last iteration that had inputs, the highest of which is the last joiner.
    pub(super) active: Vec<u32>,
}
