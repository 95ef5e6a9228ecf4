//! Model averaging after the optimizer's step (`torch/distributed/algorithms/model_averaging`), as
//! `PostLocalSGDOptimizer` calls it.

use super::call::{DdpCall, Purpose};
use super::error::DdpError;
use super::model::Model;
use lockstep_core::dtype::Dtype;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The steps that average the parameters, and the number of ranks that average together.
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
    /// Checks the arguments as the averager's constructor does.
    ///
    /// # Errors
    /// The error that the constructor raises.
    pub fn check(&self, world_size: u32) -> Result<(), DdpError> {
        match self {
            ModelAverager::Periodic { period: 0, .. } => Err(DdpError::AveragerPeriod),
            ModelAverager::Periodic { .. } => Ok(()),
            ModelAverager::Hierarchical { period_group_size, .. } => {
                match (period_group_size.first(), period_group_size.last()) {
                    (Some((0, _)), _) => Err(DdpError::AveragerSmallestPeriod),
                    (Some(_), Some((_, last))) if *last == world_size => {
                        let mut sizes = period_group_size.iter().map(|(_, size)| *size);
                        sizes.try_for_each(|size| check_subgroups(size, world_size))
                    }
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

    /// The call of a step, counted from 0: the parameters that have a gradient, as one buffer
    /// (`get_params_to_average`); none if it does not average.
    pub fn call(&self, model: &Model, step: u64, world_size: u32) -> Option<DdpCall> {
        let group_size = self.group_size(step, world_size)?;
        let trained: Vec<_> = model.trained().collect();
        let mut used = vec![false; trained.len()];
        for index in model.grad_ready_order() {
            if let Some(used) = used.get_mut(index as usize) {
                *used = true;
            }
        }
        let used = trained.iter().zip(used).filter(|(_, used)| *used);
        let numel = used.map(|(param, _)| param.numel()).fold(0, u64::saturating_add);
        let widest = trained.iter().map(|param| param.dtype).max_by_key(|d| d.size_bytes());
        let dtype = widest.unwrap_or(Dtype::Float32);
        let subgroup = (group_size < world_size).then_some(group_size);
        Some(DdpCall { subgroup, ..DdpCall::all_reduce(dtype, numel, Purpose::Averaged) })
    }

    /// The number of steps after which the averager's pattern repeats.
    pub fn cycle(&self) -> u64 {
        let longest = match self {
            ModelAverager::Periodic { period, .. } => *period,
            ModelAverager::Hierarchical { period_group_size, .. } => {
                let periods = period_group_size.iter().map(|(period, _)| (*period).max(1));
                periods.fold(1u64, |all, period| (all / gcd(all, period)).saturating_mul(period))
            }
        };
        longest.max(1)
    }

    /// Steps before it averages for the first time.
    pub fn warmup_steps(&self) -> u64 {
        match self {
            ModelAverager::Periodic { warmup_steps, .. }
            | ModelAverager::Hierarchical { warmup_steps, .. } => *warmup_steps,
        }
    }

    /// The sizes of the groups that it makes, but for the world.
    pub(crate) fn subgroup_sizes(&self, world_size: u32) -> Vec<u32> {
        match self {
            ModelAverager::Periodic { .. } => Vec::new(),
            ModelAverager::Hierarchical { period_group_size, .. } => {
                let sizes = period_group_size.iter().map(|(_, size)| *size);
                sizes.filter(|size| *size < world_size).collect()
            }
        }
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The check of `dist.new_subgroups` for subgroups of `group_size` neighbouring ranks.
///
/// # Errors
/// The error that `new_subgroups` raises.
pub(crate) fn check_subgroups(group_size: u32, world_size: u32) -> Result<(), DdpError> {
    match group_size {
        0 => Err(DdpError::SubgroupZero { group_size }),
        _ if group_size > world_size => Err(DdpError::SubgroupTooLarge { group_size, world_size }),
        _ if !world_size.is_multiple_of(group_size) => Err(DdpError::SubgroupUneven),
        _ => Ok(()),
    }
}

/// The reason that a text is no averager.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither periodic:PERIOD:WARMUP nor hierarchical:2=8,4=64:WARMUP")]
pub struct AveragerTextError(String);

impl FromStr for ModelAverager {
    type Err = AveragerTextError;

    /// `periodic:PERIOD:WARMUP` or `hierarchical:PERIOD=GROUP_SIZE,…:WARMUP`; the warm-up may be
    /// left out.
    fn from_str(text: &str) -> Result<ModelAverager, AveragerTextError> {
        let wrong = || AveragerTextError(text.chars().take(100).collect());
        let number = |text: &str| text.trim().parse::<u64>().map_err(|_| wrong());
        let parts: Vec<&str> = text.trim().split(':').collect();
        let (kind, how, warmup) = match parts[..] {
            [kind, how] => (kind, how, "0"),
            [kind, how, warmup] => (kind, how, warmup),
            _ => return Err(wrong()),
        };
        let warmup_steps = number(warmup)?;
        match kind {
            "periodic" => Ok(ModelAverager::Periodic { period: number(how)?, warmup_steps }),
            "hierarchical" => {
                let level = |level: &str| {
                    let (period, size) = level.split_once('=').ok_or_else(wrong)?;
                    Ok((number(period)?, size.trim().parse().map_err(|_| wrong())?))
                };
                let levels = how.split(',').filter(|level| !level.trim().is_empty()).map(level);
                let period_group_size = levels.collect::<Result<_, AveragerTextError>>()?;
                Ok(ModelAverager::Hierarchical { period_group_size, warmup_steps })
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for ModelAverager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelAverager::Periodic { period, warmup_steps } => {
                write!(f, "periodic:{period}:{warmup_steps}")
            }
            ModelAverager::Hierarchical { period_group_size, warmup_steps } => {
                let levels =
                    period_group_size.iter().map(|(period, size)| format!("{period}={size}"));
                write!(f, "hierarchical:{}:{warmup_steps}", levels.collect::<Vec<_>>().join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_an_averager_or_says_why_not() {
        for text in ["periodic:4:100", "hierarchical:2=8,4=64:0"] {
            assert_eq!(text.parse::<ModelAverager>().unwrap().to_string(), text);
        }
        assert_eq!("periodic:4".parse::<ModelAverager>().unwrap().to_string(), "periodic:4:0");
        for wrong in ["", "periodic", "periodic:x", "hierarchical:2", "a:1:1", "periodic:1:2:3"] {
            let error = wrong.parse::<ModelAverager>().unwrap_err().to_string();
            assert!(error.contains("neither periodic"), "{error}");
        }
    }

    #[test]
    fn subgroups_are_even_as_new_subgroups_asks_for() {
        let said = |size, world| check_subgroups(size, world).map_err(|error| error.to_string());
        assert_eq!(said(4, 8), Ok(()));
        assert_eq!(said(3, 8).unwrap_err(), "The world size must be divisible by 'group_size'");
        assert_eq!(
            said(16, 8).unwrap_err(),
            "The arg 'group_size' (16) must not exceed the world size (8)"
        );
        assert_eq!(said(0, 8).unwrap_err(), "The arg 'group_size' (0) must be positive");
        let uneven: ModelAverager = "hierarchical:2=3,4=8:0".parse().unwrap();
        assert_eq!(uneven.check(8), Err(DdpError::SubgroupUneven));
        assert_eq!(uneven.cycle(), 4);
    }
}
