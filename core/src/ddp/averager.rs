//! Model averaging after the optimizer's step (`torch/distributed/algorithms/model_averaging`), as
//! `PostLocalSGDOptimizer` calls it.

use super::error::DdpError;
use serde::{Deserialize, Serialize};

/// Which steps average the parameters, and among how many ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModelAverager {
    /// `PeriodicModelAverager`: among all ranks.
    Periodic {
        /// `period`.
        period: u64,
        /// `warmup_steps`, from which periods are counted.
        warmup_steps: u64,
    },
    /// `HierarchicalModelAverager`: among the groups of the largest period that a step is a
    /// multiple of.
    Hierarchical {
        /// `period_group_size_dict`: periods with the sizes of their groups, smallest first.
        period_group_size: Vec<(u64, u32)>,
        /// `warmup_steps`. Steps are counted from 0 all the same.
        warmup_steps: u64,
    },
}

impl ModelAverager {
    /// What its constructor checks.
    ///
    /// # Errors
    /// What it raises.
    pub fn check(&self, world_size: u32) -> Result<(), DdpError> {
        match self {
            ModelAverager::Periodic { period: 0, .. } => Err(DdpError::AveragerPeriod),
            ModelAverager::Periodic { .. } => Ok(()),
            ModelAverager::Hierarchical { period_group_size, .. } => {
                match (period_group_size.first(), period_group_size.last()) {
                    (Some((0, _)), _) => Err(DdpError::AveragerSmallestPeriod),
                    (Some(_), Some((_, last))) if *last == world_size => Ok(()),
                    (_, Some((_, last))) => {
                        Err(DdpError::AveragerLastGroup { last: *last, world_size })
                    }
                    _ => Err(DdpError::AveragerEmpty),
                }
            }
        }
    }

    /// Among groups of how many ranks a step averages, counted from 0; none if it does not.
    pub fn group_size(&self, step: u64, world_size: u32) -> Option<u32> {
        let multiple = |of: u64, period: u64| period > 0 && of.is_multiple_of(period);
        match self {
            ModelAverager::Periodic { period, warmup_steps } => {
                let since = step.checked_sub(*warmup_steps)?;
                multiple(since, *period).then_some(world_size)
            }
            ModelAverager::Hierarchical { period_group_size, warmup_steps } => {
                let due =
                    period_group_size.iter().rev().find(|(period, _)| multiple(step, *period));
                due.filter(|_| step >= *warmup_steps).map(|(_, size)| (*size).min(world_size))
            }
        }
    }

    /// The sizes of the groups that it makes, but for the world.
    pub fn subgroup_sizes(&self, world_size: u32) -> Vec<u32> {
        match self {
            ModelAverager::Periodic { .. } => Vec::new(),
            ModelAverager::Hierarchical { period_group_size, .. } => {
                let sizes = period_group_size.iter().map(|(_, size)| *size);
                sizes.filter(|size| *size < world_size).collect()
            }
        }
    }
}
