//! What a training plan's operations mean: which gradient launched a call, which buckets were in
//! force. A plan says what ranks do; these notes, written along with it, say why.

use super::buckets::Bucket;
use super::call::DdpCall;
use crate::plan::Plan;

/// A training run as a plan, with a note on each of its steps.
#[derive(Clone, Debug)]
pub struct TrainingRun {
    /// What every rank does.
    pub plan: Plan,
    /// What its steps are, in order; operations are those of the first program.
    pub steps: Vec<StepNotes>,
}

/// What the operations of one step are.
#[derive(Clone, Debug, Default)]
pub struct StepNotes {
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
