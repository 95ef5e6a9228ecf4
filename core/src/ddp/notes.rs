//! What a training plan's operations mean: which gradient launched a call, which buckets were in
//! force. A plan says what ranks do; these notes, written along with it, say why.

use super::buckets::Bucket;
use super::call::DdpCall;
use super::error::DdpError;
use crate::plan::Plan;
use serde::{Deserialize, Serialize};

/// A training run as a plan, with a note on each of its steps.
#[derive(Clone, Debug)]
pub struct TrainingRun {
    /// What every rank does.
    pub plan: Plan,
    /// The kinds of ranks that there are; rank 0's comes first.
    pub roles: Vec<Role>,
    /// Per rank, its role; all have the first where it is empty.
    pub role_of: Vec<u32>,
}

/// Ranks that all do the same.
#[derive(Clone, Debug)]
pub struct Role {
    /// The first of them.
    pub rank: u32,
    /// What their steps are, in order; operations are those of that rank's program.
    pub steps: Vec<StepNotes>,
    /// What DDP raises after the last of them.
    pub raised: Option<DdpError>,
}

impl TrainingRun {
    /// What the steps of rank 0 are, in order.
    pub fn steps(&self) -> &[StepNotes] {
        self.roles.first().map_or(&[], |role| &role.steps)
    }

    /// The index of a rank's role.
    pub fn role(&self, rank: u32) -> usize {
        self.role_of.get(rank as usize).copied().unwrap_or(0) as usize
    }
}

/// What a step is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// A pass forward and backward.
    #[default]
    Training,
    /// A rank without inputs shadows the pass of the others.
    Shadow,
    /// The end of `join()`: all ranks take the states of the last to join.
    JoinEnds,
}

/// What the operations of one step are.
#[derive(Clone, Debug, Default)]
pub struct StepNotes {
    /// The first of its operations.
    pub first_op: u32,
    /// What it is.
    pub kind: StepKind,
    /// Whether gradients are reduced: the forward pass was outside `no_sync()`.
    pub sync: bool,
    /// Whether the buckets were rebuilt at the start of its forward pass.
    pub rebuilds: bool,
    /// The buckets in force in its backward pass.
    pub buckets: Vec<Bucket>,
    /// Passes of layers, in order.
    pub layers: Vec<LayerNote>,
    /// Gradients in the order in which they become ready.
    pub gradients: Vec<GradientNote>,
    /// Collectives, in order.
    pub calls: Vec<CallNote>,
}

/// A pass of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerNote {
    /// The operation.
    pub op: u32,
    /// Index into the model's layers.
    pub layer: u32,
    /// Whether it is the forward pass.
    pub forward: bool,
}

/// A gradient that becomes ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GradientNote {
    /// Index among the parameters that require grad.
    pub param: u32,
    /// The operation after which it is there; none if no layer makes it.
    pub after: Option<u32>,
}

/// A collective.
#[derive(Clone, Copy, Debug)]
pub struct CallNote {
    /// The operation.
    pub op: u32,
    /// What DDP asked for.
    pub call: DdpCall,
    /// The gradient that launched it, as an index into [`StepNotes::gradients`].
    pub launched_by: Option<u32>,
}
