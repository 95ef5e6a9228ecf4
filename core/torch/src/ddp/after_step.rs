//! The calls after the optimizer's steps: a sharded optimizer's broadcasts, a model averager's
//! reductions.

use super::averager::ModelAverager;
use super::call::DdpCall;
use super::error::DdpError;
use super::model::Model;
use super::plan::Training;
use super::zero;
use serde::Serialize;

/// The calls that ranks issue after their optimizers' steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AfterSteps {
    /// `ZeroRedundancyOptimizer`, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zero: Option<ShardedStep>,
    /// The steps that average parameters, as far as was asked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub averaged: Vec<AveragedStep>,
    /// The number of steps that were asked about.
    pub steps: u32,
}

/// The work of `ZeroRedundancyOptimizer` in every step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShardedStep {
    /// `parameters_as_bucket_view`.
    pub parameters_as_bucket_view: bool,
    /// Per rank, the indices of the parameters that it updates, among all of the model's.
    pub partition: Vec<Vec<u32>>,
    /// The broadcasts after the step, in order.
    pub broadcasts: Vec<DdpCall>,
}

/// A step that averages parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct AveragedStep {
    /// The optimizer step, from 1.
    pub step: u32,
    /// The collective that it calls.
    #[serde(flatten)]
    pub call: DdpCall,
}

impl AfterSteps {
    /// The calls that a training run issues after its first `steps` optimizer steps; `None` if there are
    /// none.
    ///
    /// # Errors
    /// The error that the averager's constructor raises.
    pub fn of(
        model: &Model,
        training: &Training,
        steps: u32,
    ) -> Result<Option<AfterSteps>, DdpError> {
        let world_size = training.world_size;
        if let Some(averager) = &training.averager {
            averager.check(world_size)?;
        }
        if training.zero.is_none() && training.averager.is_none() {
            return Ok(None);
        }
        let zero = training.zero.map(|parameters_as_bucket_view| {
            let numels: Vec<u64> = model.params.iter().map(|param| param.numel()).collect();
            ShardedStep {
                parameters_as_bucket_view,
                partition: zero::partition(&numels, world_size),
                broadcasts: zero::sync_params(model, world_size, parameters_as_bucket_view),
            }
        });
        let call = |averager: &ModelAverager, step: u32| {
            let call = averager.call(model, u64::from(step) - 1, world_size)?;
            Some(AveragedStep { step, call })
        };
        let averager = training.averager.iter();
        let averaged = averager.flat_map(|averager| (1..=steps).filter_map(|s| call(averager, s)));
        Ok(Some(AfterSteps { zero, averaged: averaged.collect(), steps }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddp::model::{Device, named};

    #[test]
    fn steps_are_followed_by_what_the_optimizer_and_the_averager_issue() {
        let model = named("mlp:4,8,2").unwrap();
        let device = Device::named("A100").unwrap();
        let plain = Training::new(4, device);
        assert_eq!(AfterSteps::of(&model, &plain, 3), Ok(None));
        let training = Training {
            zero: Some(false),
            averager: Some("hierarchical:2=2,4=4:2".parse().unwrap()),
            ..plain
        };
        let after = AfterSteps::of(&model, &training, 9).unwrap().unwrap();
        let zero = after.zero.unwrap();
        assert_eq!((zero.partition.len(), zero.broadcasts.len()), (4, 4));
        // Steps are counted from 0 by the averager: 2, 4, 6 and 8 are due.
        let averaged: Vec<_> = after.averaged.iter().map(|a| (a.step, a.call.subgroup)).collect();
        assert_eq!(averaged, [(3, Some(2)), (5, None), (7, Some(2)), (9, None)]);
        let wrong = Training { averager: Some("periodic:0:1".parse().unwrap()), ..training };
        assert_eq!(AfterSteps::of(&model, &wrong, 1), Err(DdpError::AveragerPeriod));
    }
}
