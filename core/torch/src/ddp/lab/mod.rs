//! The lab: one pass of a training run, gradient by gradient, with the reason for every wait.
//!
//! A [`LabRun`] takes the plan of a training run, what its operations mean (`notes`) and when they
//! happen in closed form (`timeline`), and answers what a reader asks: when is this gradient ready,
//! which bucket is it in, and for whom does that wait? It stands for every rank of a job whose
//! ranks do the same on equal links or in equal nodes; the simulator agrees (`sim/tests/suite/ddp`).

mod agreement;
mod changes;
mod follow;
mod log;
mod moments;
mod option_words;
mod outcome;
mod pass;
mod roles;
mod sweep;
mod tell;
mod waits;
mod why;
mod words;

pub use agreement::Agreement;
pub use changes::{Change, changes};
pub use log::DdpLog;
pub use outcome::notes;
pub use pass::{BucketFate, CallKind, CallSpan, Event, LayerSpan, Moment, ParamFate, Pass, Raised};
pub use roles::LabRole;
pub use sweep::{Axis, Best, SweepError, SweepPoint, best, sweep_caps};
pub use words::{bytes as describe_bytes, time as describe_time};

use super::averager::ModelAverager;
use super::buckets::Bucket;
use super::call::Purpose;
use super::error::DdpError;
use super::hook::{CommHook, HookAlgorithm};
use super::links::Links;
use super::model::Model;
use super::notes::{StepKind, StepNotes, TrainingRun};
use super::plan::{Training, TrainingError, training_run_as_far};
use super::timeline::{StepTimeline, timelines};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::BackendName;
use lockstep_core::plan::{Action, CallTimes, Plan};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Trace, What};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::Range;

/// More optimizer steps than this are not followed.
const MAX_STEPS: u64 = 256;

/// A setting of the lab: a training run, and what connects its ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The run. Its number of steps is the lab's own.
    pub training: Training,
    /// The links between the ranks.
    pub links: Links,
}

impl Setting {
    /// The optimizer steps that all later ones are like: the first has the buckets of the
    /// constructor, the second is rebuilt at its start; a static graph needs one more. With a model
    /// averager they are as many as it takes to come round, and the last averages among most ranks;
    /// inside `join()`, all from there on that any rank has inputs for.
    fn steady(&self) -> Range<u64> {
        let training = &self.training;
        let first = 2 + u64::from(training.options.static_graph);
        // A hook that begins later is followed until it does, if that is not too far.
        let begins = self.hook_begins().filter(|begins| *begins < MAX_STEPS);
        let first = first.max(begins.unwrap_or(0));
        if let Some(uneven) = &training.uneven {
            let most = uneven.most(training.world_size) / self.passes_a_step();
            let most = u64::from(most.max(1));
            return first.min(most - 1)..most;
        }
        let Some(averager) = &training.averager else { return first..first + 1 };
        let (cycle, warmup) = (averager.cycle(), averager.warmup_steps());
        let from = match averager {
            ModelAverager::Periodic { .. } => warmup,
            ModelAverager::Hierarchical { .. } => 0,
        };
        // Steps are counted from 0.
        let least = first.max(warmup).saturating_add(cycle - 1);
        let rounds = least.saturating_sub(from).div_ceil(cycle);
        let last = from.saturating_add(rounds.saturating_mul(cycle));
        last.saturating_sub(cycle - 1)..last.saturating_add(1)
    }

    /// The iteration, counted from 0 by the hook, from which it does what its name says.
    pub fn hook_begins(&self) -> Option<u64> {
        match self.training.options.comm_hook?.algorithm {
            HookAlgorithm::PowerSgd(state) | HookAlgorithm::BatchedPowerSgd(state) => {
                Some(state.start_iter)
            }
            HookAlgorithm::PostLocalSgd(state) => Some(state.start_iter),
            _ => None,
        }
    }

    /// Another number of ranks, and with it what depends on it: who shares a sharded optimizer, and
    /// subgroups that would be larger than the world.
    pub(crate) fn set_world_size(&mut self, world_size: u32) {
        self.training.world_size = world_size;
        let options = &mut self.training.options;
        if let Some(overlap) = &mut options.zero_overlap {
            overlap.world_size = world_size;
        }
        if let Some(CommHook { algorithm: HookAlgorithm::PostLocalSgd(state), .. }) =
            &mut options.comm_hook
        {
            state.subgroup = state.subgroup.min(world_size);
        }
    }

    /// Optimizer steps that are followed.
    pub fn optimizer_steps(&self) -> u32 {
        self.steady().end.min(MAX_STEPS) as u32
    }

    /// Passes forward and backward to an optimizer step.
    pub fn passes_a_step(&self) -> u32 {
        self.training.accumulate.max(1)
    }
}

/// A model as the lab shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabModel {
    /// The name.
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
    /// The parts of a model that are shown.
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
    /// Without what gets no gradient.
    model: Cow<'a, Model>,
    setting: &'a Setting,
    run: TrainingRun,
    /// By role.
    steps: Vec<Vec<StepTimeline>>,
    /// The times of calls as a whole, where a machine's are known.
    call_times: Option<CallTimes>,
}

/// The times of an optimizer step with a setting, in the state that all later ones are in.
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
    /// Time of a step, in picoseconds: as many passes as accumulate, and the optimizer.
    pub step_ps: u64,
    /// Time that its compute stream computes.
    pub compute_ps: u64,
    /// Time of asynchronous communication: that of buckets, and a sharded optimizer's broadcasts.
    pub communication_ps: u64,
    /// The part of that which is latency.
    pub latency_ps: u64,
    /// Time that the compute stream waits for asynchronous communication: without the collectives
    /// that hold it at once, such as SyncBatchNorm's or a model averager's.
    pub exposed_ps: u64,
    /// From the beginning of the last backward pass to its first reduction; none without one.
    pub first_reduction_ps: Option<u64>,
    /// Time of that backward pass.
    pub backward_ps: u64,
    /// Time from the end of that backward pass to the end of the last reduction; 0 when it is hidden.
    pub tail_ps: u64,
}

impl Summary {
    /// The share that a pass has of a step's figure.
    pub fn per_pass(&self, of: u64) -> u64 {
        of / u64::from(self.passes.max(1))
    }

    /// Time that the compute stream does not compute: it waits for gradients that nothing hides, or
    /// collectives that are not asynchronous hold it.
    pub fn waiting_ps(&self) -> u64 {
        self.step_ps.saturating_sub(self.compute_ps)
    }

    /// The computing time of a step, in parts per thousand of the step's time.
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
        LabRun::through(model, setting, 0)
    }

    /// The same through at least so many passes, as far as passes are followed.
    ///
    /// # Errors
    /// As [`LabRun::of`].
    pub fn through(
        model: &'a Model,
        setting: &'a Setting,
        passes: u32,
    ) -> Result<LabRun<'a>, TrainingError> {
        if setting.steady().end > MAX_STEPS {
            return Err(TrainingError::Together(
                "256 optimizer steps are followed: take fewer inputs, a shorter warm-up or period",
            ));
        }
        let steps = passes.div_ceil(setting.passes_a_step()).min(MAX_STEPS as u32);
        let steps = setting.optimizer_steps().max(steps).saturating_mul(setting.passes_a_step());
        LabRun::of_passes(model, setting, steps)
    }

    /// A run of so many passes, neither more nor fewer: its last one synchronizes, whatever
    /// accumulates.
    ///
    /// # Errors
    /// As [`LabRun::of`].
    pub fn of_passes(
        model: &'a Model,
        setting: &'a Setting,
        passes: u32,
    ) -> Result<LabRun<'a>, TrainingError> {
        let training = Training { steps: passes, ..setting.training.clone() };
        let run = training_run_as_far(model, &training)?;
        let steps = timelines(&run, setting.links, None);
        let model = setting.training.trained(model)?;
        Ok(LabRun { model, setting, run, steps, call_times: None })
    }

    /// The same run on a machine whose calls take these times as a whole, instead of what messages
    /// over links take.
    #[must_use]
    pub fn with_call_times(self, call_times: CallTimes) -> LabRun<'a> {
        let steps = timelines(&self.run, self.setting.links, Some(&call_times));
        LabRun { steps, call_times: Some(call_times), ..self }
    }

    /// The plan of the run.
    pub fn plan(&self) -> &Plan {
        &self.run.plan
    }

    /// The model, without what gets no gradient.
    pub fn model(&self) -> &Model {
        &self.model
    }

    fn notes(&self, rank: u32) -> &[StepNotes] {
        self.run.roles.get(self.run.role(rank)).map_or(&[], |role| &role.steps)
    }

    fn times(&self, rank: u32) -> &[StepTimeline] {
        self.steps.get(self.run.role(rank)).map_or(&[], Vec::as_slice)
    }

    /// Passes of a rank that it follows.
    pub fn passes_of(&self, rank: u32) -> u32 {
        self.notes(rank).len().min(self.times(rank).len()) as u32
    }

    /// Passes of rank 0 that it follows.
    pub fn passes(&self) -> u32 {
        self.passes_of(0)
    }

    /// The kinds of a rank's passes.
    pub fn kinds(&self, rank: u32) -> impl Iterator<Item = PassKind> + '_ {
        self.notes(rank).iter().map(|step| PassKind {
            kind: step.kind,
            sync: step.sync,
            rebuilds: step.rebuilds,
            averages: step.calls.iter().any(|note| note.call.purpose == Purpose::Averaged),
        })
    }

    /// The error that DDP raises in a rank's last pass, or after it, as Python prints it.
    pub fn raised(&self, rank: u32) -> Option<String> {
        self.error(rank).map(|error| format!("{}: {error}", error.class()))
    }

    /// A rank that raises where this one does not, and waits for it in its last pass.
    pub fn waits_for(&self, rank: u32) -> Option<u32> {
        let raises = self.run.roles.iter().find(|role| role.raised.is_some())?;
        self.error(rank).is_none().then_some(raises.rank)
    }

    fn error(&self, rank: u32) -> Option<&DdpError> {
        self.run.roles.get(self.run.role(rank))?.raised.as_ref()
    }

    /// The buckets of the constructor.
    pub fn initial(&self) -> &[Bucket] {
        self.notes(0).first().map_or(&[], |step| &step.buckets)
    }

    /// The buckets after the rebuild; none when they are never rebuilt.
    pub fn rebuilt(&self) -> Option<&[Bucket]> {
        let rebuilt = self.notes(0).iter().any(|step| step.rebuilds);
        let last = self.notes(0).last()?;
        rebuilt.then_some(&last.buckets)
    }

    /// Passes of a rank that DDP does not cut short.
    fn whole_passes(&self, rank: u32) -> u32 {
        let raises = |steps: &[StepNotes]| steps.last().is_some_and(|step| step.raises.is_some());
        let cut = raises(self.notes(rank)) || self.waits_for(rank).is_some();
        self.passes_of(rank).saturating_sub(u32::from(cut))
    }

    /// True if the figures of a step are those of a pass that DDP cuts short: there is no other.
    pub fn is_cut_short(&self) -> bool {
        self.whole_passes(self.principal()) == 0
    }

    /// The passes of the optimizer steps that all later ones are like. What DDP cuts short is none of
    /// them, unless there is nothing else.
    pub fn steady(&self) -> Range<u32> {
        let steady = self.setting.steady();
        let rank = self.principal();
        let passes = match self.whole_passes(rank) {
            0 => self.passes_of(rank),
            whole => whole,
        };
        // The end of a join is no pass.
        let training = &self.setting.training;
        let inputs = training.uneven.as_ref().map(|uneven| uneven.most(training.world_size));
        let passes = inputs.map_or(passes, |most| passes.min(most.max(1)));
        let end = (steady.end as u32).saturating_mul(self.setting.passes_a_step()).min(passes);
        let steps = (steady.end - steady.start).max(1) as u32;
        end.saturating_sub(steps.saturating_mul(self.setting.passes_a_step()))..end
    }

    /// From the beginning of the first of those passes to that of the pass behind the last, in
    /// picoseconds: what a simulation can be held against.
    pub fn steady_ps(&self) -> u64 {
        let (rank, steady) = (self.principal(), self.steady());
        let begins = |pass: u32| Some(self.times(rank).get(pass as usize)?.start_ps);
        let end = self.times(rank).last().map_or(0, |times| times.end_ps);
        let end = begins(steady.end).unwrap_or(end);
        end.saturating_sub(begins(steady.start).unwrap_or(0))
    }

    /// The times of an optimizer step, in the mean over [`LabRun::steady`].
    pub fn summary(&self) -> Summary {
        let rank = self.principal();
        let passes_a_step = self.setting.passes_a_step();
        let mut summary = Summary { passes: passes_a_step, ..Summary::default() };
        let steady = self.steady();
        let steps = (steady.end - steady.start).div_ceil(passes_a_step).max(1);
        for number in steady {
            let Some(pass) = self.followed(rank, number) else { continue };
            summary.step_ps = summary.step_ps.saturating_add(pass.end_ps);
            summary.exposed_ps = summary.exposed_ps.saturating_add(pass.exposed_ps);
            summary.compute_ps = summary.compute_ps.saturating_add(pass.compute_ps());
            summary.collectives += pass.calls.len() as u32;
            for call in &pass.calls {
                summary.bytes = summary.bytes.saturating_add(call.bytes);
                if !call.blocking {
                    let took = call.end_ps - call.start_ps;
                    summary.communication_ps = summary.communication_ps.saturating_add(took);
                    let latency_ps = call.latency_ps.min(took);
                    summary.latency_ps = summary.latency_ps.saturating_add(latency_ps);
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
        let each = |of: &mut u64| *of /= u64::from(steps);
        summary.collectives = summary.collectives.div_ceil(steps);
        [
            &mut summary.bytes,
            &mut summary.step_ps,
            &mut summary.compute_ps,
            &mut summary.communication_ps,
            &mut summary.latency_ps,
            &mut summary.exposed_ps,
        ]
        .into_iter()
        .for_each(each);
        summary
    }
}

/// When the optimizer steps of a training plan end on a rank of a trace, in picoseconds: a device's
/// stream ends them, or on a CPU the process.
pub fn optimizer_ends(plan: &Plan, trace: &Trace, rank: GlobalRank) -> Vec<u64> {
    let ops = plan.program(rank).map(|program| program.ops.as_slice()).unwrap_or_default();
    let is_step = |op: u32| {
        ops.get(op as usize).is_some_and(
            |op| matches!(&op.action, Action::Compute { name, .. } if &**name == "optimizer.step"),
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

/// The kind of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassKind {
    /// The rank's part in it: it trains, or shadows the others.
    pub kind: StepKind,
    /// True if gradients are reduced.
    pub sync: bool,
    /// True if the buckets are rebuilt at its beginning.
    pub rebuilds: bool,
    /// True if a model averager averages the parameters at its end.
    pub averages: bool,
}

/// The bucket whose gradients a call reduces; `None` for other calls.
fn bucket_of(purpose: Purpose) -> Option<u32> {
    match purpose {
        Purpose::Bucket { bucket } | Purpose::HookPart { bucket, .. } => Some(bucket),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
