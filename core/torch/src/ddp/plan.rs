//! A DDP training run as a plan: forward and backward passes layer by layer on the compute stream, and the
//! reducer's collectives beside them.
//!
//! A bucket's `all_reduce` is asynchronous and starts when the compute stream has come to it; the waits for
//! all buckets are at the end of the backward pass, as in `finalize_backward`. On a CPU backend the same plan
//! blocks the process where a device's would block the stream.
//!
//! Tensors hold the data that is communicated. Gradients are seeded per rank and stand for gradients that the
//! reducer has scaled already, so that the sum is the mean; a bucket's tensor is the same in every step.

mod names;
mod optimizer;
pub(super) mod passes;
mod raising;
mod replicas;
mod script;
mod subgroups;
mod training;
mod uneven;
mod writer;

use super::model::Model;
use super::notes::{Half, StepKind, TrainingRun};
use super::verify::{verify_sync_batch_norm, verify_types, verify_zero_overlap};
use super::wrapper::{Ddp, Forward};
use lockstep_core::plan::Plan;
use passes::{backward_pass, rebuilt, unused};
use script::{CONSTRUCTOR, FORWARD, OPTIMIZER};
use std::borrow::Cow;
use training::MAX_OPS;
use writer::Writer;

pub use training::{Training, TrainingError, Uneven};

/// The plan of a training run.
///
/// # Errors
/// When DDP would raise, or the plan cannot be run.
pub fn training_plan(model: &Model, training: &Training) -> Result<Plan, TrainingError> {
    Ok(training_run(model, training)?.plan)
}

/// The plan of a training run, and the meaning of its operations.
///
/// # Errors
/// As [`training_plan`].
pub fn training_run(model: &Model, training: &Training) -> Result<TrainingRun, TrainingError> {
    let run = training_run_as_far(model, training)?;
    match run.roles.iter().find_map(|role| role.raised.clone()) {
        Some(error) => Err(error.into()),
        None => Ok(run),
    }
}

/// The run up to where DDP raises, if it does in a step.
///
/// # Errors
/// When DDP raises before the first one's backward pass, or the plan cannot be run.
pub fn training_run_as_far(
    model: &Model,
    training: &Training,
) -> Result<TrainingRun, TrainingError> {
    training.options.check_names(model)?;
    let trained = training.trained(model)?;
    let alike = training.uneven.is_some() || training.devices > 1;
    let model = match alike {
        false => Some(Cow::Borrowed(&*trained)),
        true => trained.with_equal_passes(),
    };
    let model = &*model.ok_or(TrainingError::Together(
        "passes that use different parameters (\"unused\" of the model) are followed on ranks that \
         all do the same: without join() and replicas, please",
    ))?;
    let steps = match &training.uneven {
        Some(uneven) => uneven.most(training.world_size).saturating_add(1),
        None => training.steps,
    };
    let mut each = 4 * model.layers.len() as u64 + 4 * model.params.len() as u64 + 64;
    each += model.recorded_ready_order.as_ref().map_or(0, |order| order.len() as u64);
    if training.zero == Some(true) {
        // A broadcast of each rank's bucket, and the wait for it.
        each += 2 * u64::from(training.world_size);
    }
    if u64::from(steps).saturating_mul(each) > MAX_OPS {
        let layers = model.layers.len();
        return Err(TrainingError::TooLong { steps, layers });
    }
    verify_zero_overlap(&training.options, training.backend)?;
    training.options.check(training.world_size)?;
    verify_types(model, &training.options, training.backend)?;
    training.check_zero(model)?;
    if training.sync_batch_norm {
        verify_sync_batch_norm(model, training.backend)?;
    }
    if let Some(averager) = &training.averager {
        averager.check(training.world_size)?;
    }
    match &training.uneven {
        _ if training.devices > 1 => replicas::replicated_run(model, training),
        Some(uneven) => uneven::uneven_run(model, training, uneven),
        None => even_run(model, training),
    }
}

fn even_run(model: &Model, training: &Training) -> Result<TrainingRun, TrainingError> {
    let mut writer = Writer::new(model, training)?;
    let (ddp, calls) = Ddp::new(0, model, &training.options)?;
    let mut ddp = ddp.on(training.backend);
    writer.at(CONSTRUCTOR, "DistributedDataParallel");
    for call in &calls {
        writer.call(call, 0, false);
    }
    writer.read_back(&calls);
    let mut raised = None;
    for step in 0..training.steps {
        let backward = model.backward_in(step);
        let unused = unused(model, &backward);
        writer.skipped = model.skipped_in(step);
        let accumulate = training.accumulate.max(1);
        let sync = (step + 1) % accumulate == 0 || step + 1 == training.steps;
        let mut calls = Vec::new();
        let before = rebuilt(&ddp);
        let forward = Forward { sync, unused: &unused, ..Forward::default() };
        if let Err(error) = ddp.forward(&forward, &mut calls) {
            if step == 0 {
                return Err(error.into());
            }
            raised = Some(error);
            break;
        }
        writer.step(StepKind::Training, sync, rebuilt(&ddp) && !before, &ddp);
        writer.at(FORWARD, "DistributedDataParallel.forward");
        for call in &calls {
            writer.call(call, 0, false);
        }
        writer.read_back(&calls);
        writer.forward_pass();
        if let Err(error) = backward_pass(&mut writer, &mut ddp, &backward, Vec::new()) {
            writer.raises(Half::Backward);
            raised = Some(error);
            break;
        }
        if sync {
            writer.at(OPTIMIZER, "optimizer.step");
            writer.optimizer();
        }
    }
    let mut run = writer.finish()?;
    if let Some(role) = run.roles.first_mut() {
        role.raised = raised;
    }
    Ok(run)
}
