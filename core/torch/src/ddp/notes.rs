//! The meaning of a training plan's operations: the gradient that launched a call, the buckets that were in
//! force. A plan has the ranks' operations; these notes, written along with it, give the reasons.

use super::buckets::Bucket;
use super::call::DdpCall;
use super::error::DdpError;
use lockstep_core::plan::Plan;
use serde::{Deserialize, Serialize};

/// A training run as a plan, with a note on each of its steps.
#[derive(Clone, Debug)]
pub struct TrainingRun {
    /// The plan of every rank, up to where DDP raises: [`TrainingRun::plan_with_end`] raises too.
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
    /// The notes on their steps, in order; operations are those of that rank's program.
    pub steps: Vec<StepNotes>,
    /// The error that DDP raises in the last of them, or in the forward pass that would follow.
    pub raised: Option<DdpError>,
}

impl Role {
    /// The step that raises, counted from 1, the half of it, and the error; `None` if none does.
    pub fn raised(&self) -> Option<(u32, Half, &DdpError)> {
        let error = self.raised.as_ref()?;
        let steps = self.steps.len() as u32;
        match self.steps.last().and_then(|step| step.raises) {
            Some(half) => Some((steps, half, error)),
            None => Some((steps + 1, Half::Forward, error)),
        }
    }
}

impl TrainingRun {
    /// The notes on the steps of rank 0, in order.
    pub fn steps(&self) -> &[StepNotes] {
        self.roles.first().map_or(&[], |role| &role.steps)
    }

    /// The index of a rank's role.
    pub fn role(&self, rank: u32) -> usize {
        self.role_of.get(rank as usize).copied().unwrap_or(0) as usize
    }
}

/// The kind of a step.
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

/// The notes on the operations of one step.
#[derive(Clone, Debug, Default)]
pub struct StepNotes {
    /// The first of its operations.
    pub first_op: u32,
    /// The kind of step.
    pub kind: StepKind,
    /// True if gradients are reduced: the forward pass was outside `no_sync()`.
    pub sync: bool,
    /// True if the buckets were rebuilt at the start of the forward pass.
    pub rebuilds: bool,
    /// The buckets in force in its backward pass, with indices among the parameters that require
    /// grad.
    pub buckets: Vec<Bucket>,
    /// Passes of layers, in order.
    pub layers: Vec<LayerNote>,
    /// Gradients in the order in which they become ready.
    pub gradients: Vec<GradientNote>,
    /// Parameters that the reducer marks ready with the first of them, because nothing uses them.
    pub marked: Vec<u32>,
    /// `unused_parameter_size` of DDP's log as its forward pass has left it, in bytes.
    pub unused_parameter_size: Option<u64>,
    /// The half in which it raises, if it does; nothing comes after it.
    pub raises: Option<Half>,
    /// Collectives, in order.
    pub calls: Vec<CallNote>,
}

/// A half of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Half {
    /// Between calling the module and its return.
    Forward,
    /// During `loss.backward()`.
    Backward,
}

impl Half {
    /// `forward`, `backward`.
    pub fn name(self) -> &'static str {
        match self {
            Half::Forward => "forward",
            Half::Backward => "backward",
        }
    }
}

/// A pass of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerNote {
    /// The operation.
    pub op: u32,
    /// Index into the model's layers.
    pub layer: u32,
    /// True for a forward pass, false for a backward pass.
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
    /// The call that DDP asked for.
    pub call: DdpCall,
    /// The gradient that launched it, as an index into [`StepNotes::gradients`].
    pub launched_by: Option<u32>,
}
