//! The lab: one pass of a training run, gradient by gradient, with the reason for every wait.
//!
//! A [`LabRun`] takes the plan of a training run, what its operations mean (`notes`) and when they
//! happen in closed form (`timeline`), and answers what a reader asks: when is this gradient ready,
//! which bucket is it in, and for whom does that wait? It stands for every rank of a job whose
//! ranks do the same on equal links or in equal nodes; the simulator agrees (`sim/tests/ddp.rs`).

mod changes;
mod log;
mod moments;
mod pass;
mod sweep;
mod tell;
mod words;

pub use changes::{Change, changes};
pub use log::DdpLog;
pub use moments::{Event, Moment};
pub use pass::{BucketFate, CallKind, CallSpan, LayerSpan, ParamFate, Pass};
pub use sweep::{Axis, Best, SweepError, SweepPoint, best, sweep_caps};
pub use words::{bytes as describe_bytes, time as describe_time};

use super::buckets::Bucket;
use super::call::Purpose;
use super::links::Links;
use super::model::Model;
use super::notes::TrainingRun;
use super::plan::{Training, TrainingError, training_run};
use super::timeline::{StepTimeline, timeline};
use crate::dtype::Dtype;
use crate::group::BackendName;
use crate::plan::{Action, Plan};
use crate::rank::GlobalRank;
use crate::trace::{Trace, What};
use serde::{Deserialize, Serialize};

/// A setting of the lab: a training run, and what connects its ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The run. Its number of steps is the lab's own.
    pub training: Training,
    /// What connects the ranks.
    pub links: Links,
}

impl Setting {
    /// Optimizer steps until all that follow are the same: the first has the buckets of the
    /// constructor, the second is rebuilt at its start; a static graph needs one more.
    pub fn optimizer_steps(&self) -> u32 {
        3 + u32::from(self.training.options.static_graph)
    }

    /// Passes forward and backward to an optimizer step.
    pub fn passes_a_step(&self) -> u32 {
        self.training.accumulate.max(1)
    }
}

/// A model as the lab shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabModel {
    /// What it is called.
    pub name: String,
    /// The parameters that require grad, in order.
    pub params: Vec<LabParam>,
    /// The names of its layers, in the order of the forward pass.
    pub layers: Vec<String>,
    /// Parameters of all kinds.
    pub param_count: u64,
    /// Buffers, and their bytes.
    pub buffers: (u64, u64),
}

/// A parameter that requires grad.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabParam {
    /// Its qualified name.
    pub name: String,
    /// Its shape.
    pub shape: Vec<u64>,
    /// Its element type.
    pub dtype: Dtype,
    /// Its size in bytes.
    pub bytes: u64,
}

impl LabModel {
    /// What of a model is shown.
    pub fn of(model: &Model) -> LabModel {
        let params = model.trained().map(|param| LabParam {
            name: param.name.clone(),
            shape: param.shape.clone(),
            dtype: param.dtype,
            bytes: param.bytes(),
        });
        let buffers = model.buffers.iter();
        let bytes = buffers.map(|buffer| buffer.numel().saturating_mul(buffer.dtype.size_bytes()));
        LabModel {
            name: model.name.clone(),
            params: params.collect(),
            layers: model.layers.iter().map(|layer| layer.name.clone()).collect(),
            param_count: model.params.len() as u64,
            buffers: (model.buffers.len() as u64, bytes.fold(0, u64::saturating_add)),
        }
    }

    /// Bytes of all gradients.
    pub fn gradient_bytes(&self) -> u64 {
        self.params.iter().map(|param| param.bytes).fold(0, u64::saturating_add)
    }

    pub(crate) fn name_of(&self, param: u32) -> &str {
        self.params.get(param as usize).map_or("?", |param| param.name.as_str())
    }
}

/// A training run of the lab: some optimizer steps, up to the first that all others are like.
#[derive(Debug)]
pub struct LabRun<'a> {
    model: &'a Model,
    setting: &'a Setting,
    run: TrainingRun,
    steps: Vec<StepTimeline>,
}

/// What an optimizer step takes with a setting, in the state that all later ones are in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Passes forward and backward of a step.
    pub passes: u32,
    /// Buckets in force.
    pub buckets: u32,
    /// Collectives of a step.
    pub collectives: u32,
    /// Bytes of their tensors.
    pub bytes: u64,
    /// What a step takes, in picoseconds: as many passes as accumulate, and the optimizer.
    pub step_ps: u64,
    /// How long its compute stream computes.
    pub compute_ps: u64,
    /// How long buckets are communicated.
    pub communication_ps: u64,
    /// How much of that is latency.
    pub latency_ps: u64,
    /// How long the compute stream waits for communication.
    pub exposed_ps: u64,
    /// From the beginning of the last backward pass to its first reduction; none without one.
    pub first_reduction_ps: Option<u64>,
    /// What that backward pass takes.
    pub backward_ps: u64,
    /// How long after that backward pass the last reduction ends; 0 when it is hidden.
    pub tail_ps: u64,
}

impl Summary {
    /// The share that a pass has of a step's figure.
    pub fn per_pass(&self, of: u64) -> u64 {
        of / u64::from(self.passes.max(1))
    }

    /// What a step computes, in parts per thousand of what it takes.
    pub fn efficiency_permille(&self) -> u64 {
        let share = u128::from(self.compute_ps) * 1000 / u128::from(self.step_ps.max(1));
        u64::try_from(share).unwrap_or(1000).min(1000)
    }
}

impl<'a> LabRun<'a> {
    /// Takes the run through its first optimizer steps.
    ///
    /// # Errors
    /// When DDP would raise, or the run cannot be planned.
    pub fn of(model: &'a Model, setting: &'a Setting) -> Result<LabRun<'a>, TrainingError> {
        let steps = setting.optimizer_steps().saturating_mul(setting.passes_a_step());
        let training = Training { steps, ..setting.training.clone() };
        let run = training_run(model, &training)?;
        let steps = timeline(&run.plan, setting.links);
        Ok(LabRun { model, setting, run, steps })
    }

    /// Passes forward and backward that it follows.
    pub fn passes(&self) -> u32 {
        self.run.steps.len().min(self.steps.len()) as u32
    }

    /// Per pass, whether it reduces gradients and whether it rebuilds the buckets.
    pub fn kinds(&self) -> impl Iterator<Item = (bool, bool)> + '_ {
        self.run.steps.iter().map(|step| (step.sync, step.rebuilds))
    }

    /// The buckets of the constructor.
    pub fn initial(&self) -> &[Bucket] {
        self.run.steps.first().map_or(&[], |step| &step.buckets)
    }

    /// The buckets after the rebuild; none when they are never rebuilt.
    pub fn rebuilt(&self) -> Option<&[Bucket]> {
        let rebuilt = self.run.steps.iter().any(|step| step.rebuilds);
        let last = self.run.steps.last()?;
        rebuilt.then_some(&last.buckets)
    }

    /// What the last optimizer step takes.
    pub fn summary(&self) -> Summary {
        let passes = self.passes();
        let first = passes.saturating_sub(self.setting.passes_a_step());
        let passes_a_step = self.setting.passes_a_step();
        let mut summary = Summary { passes: passes_a_step, ..Summary::default() };
        for number in first..passes {
            let Some(pass) = self.pass(number) else { continue };
            summary.step_ps = summary.step_ps.saturating_add(pass.end_ps);
            summary.exposed_ps = summary.exposed_ps.saturating_add(pass.exposed_ps);
            summary.compute_ps = summary.compute_ps.saturating_add(pass.compute_ps());
            summary.collectives += pass.calls.len() as u32;
            for call in &pass.calls {
                summary.bytes = summary.bytes.saturating_add(call.bytes);
                if call.of_bucket().is_some() {
                    let took = call.end_ps - call.start_ps;
                    summary.communication_ps = summary.communication_ps.saturating_add(took);
                    summary.latency_ps = summary.latency_ps.saturating_add(call.latency_ps);
                }
            }
            summary.buckets = pass.buckets.len() as u32;
            let reductions = || pass.calls.iter().filter(|call| call.of_bucket().is_some());
            let first = reductions().map(|call| call.start_ps).min();
            summary.first_reduction_ps =
                first.map(|first| first.saturating_sub(pass.forward_end_ps));
            summary.backward_ps = pass.backward_end_ps.saturating_sub(pass.forward_end_ps);
            let last = reductions().map(|call| call.end_ps).max().unwrap_or(0);
            summary.tail_ps = last.saturating_sub(pass.backward_end_ps);
        }
        summary
    }
}

/// When the optimizer steps of a training plan end on a rank of a trace, in picoseconds: a device's
/// stream ends them, or on a CPU the process.
pub fn optimizer_ends(plan: &Plan, trace: &Trace, rank: GlobalRank) -> Vec<u64> {
    let ops = plan.program(rank).map(|program| program.ops.as_slice()).unwrap_or_default();
    let is_step = |op: u32| {
        ops.get(op as usize).is_some_and(
            |op| matches!(&op.action, Action::Compute { name, .. } if name == "optimizer.step"),
        )
    };
    let device = ops.iter().any(|op| matches!(op.action, Action::Wait { .. }))
        && plan.groups.first().is_some_and(|group| group.backend() == BackendName::Nccl);
    let ends = trace.events.iter().filter(|event| event.rank == rank).filter_map(|event| {
        let op = match event.what {
            What::StreamEnded { op } if device => op,
            What::OpEnded { op } if !device => op,
            _ => return None,
        };
        is_step(op).then_some(event.time_ps)
    });
    ends.collect()
}

/// Whether a call reduces gradients of a bucket, and of which.
fn bucket_of(purpose: Purpose) -> Option<u32> {
    match purpose {
        Purpose::Bucket { bucket } | Purpose::HookPart { bucket, .. } => Some(bucket),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
