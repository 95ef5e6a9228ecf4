//! Sweeps: an optimizer step over bucket caps, world sizes and links, and the best setting with
//! its reason.

use super::option_words::{cap_words, rate_words};
use super::words::{count, time};
use super::{LabRun, Setting, Summary};
use crate::ddp::error::DdpError;
use crate::ddp::links::{Links, RingLink};
use crate::ddp::model::Model;
use crate::ddp::options::{BucketCap, BucketCapError};
use crate::ddp::plan::TrainingError;
use serde::{Deserialize, Serialize};

/// The quantity that a sweep varies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Axis {
    /// `bucket_cap_mb`.
    Caps(Vec<BucketCap>),
    /// The number of ranks.
    Worlds(Vec<u32>),
    /// The slowest links' bandwidth, in bytes a second.
    Rates(Vec<u64>),
}

impl Axis {
    /// The number of its values.
    pub fn len(&self) -> usize {
        match self {
            Axis::Caps(caps) => caps.len(),
            Axis::Worlds(worlds) => worlds.len(),
            Axis::Rates(rates) => rates.len(),
        }
    }

    /// True if it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A setting with one of its values.
    pub fn apply(&self, setting: &Setting, index: usize) -> Setting {
        let mut setting = setting.clone();
        match self {
            Axis::Caps(caps) => {
                if let Some(cap) = caps.get(index) {
                    setting.training.options.bucket_cap.clone_from(cap);
                }
            }
            Axis::Worlds(worlds) => {
                if let Some(world_size) = worlds.get(index) {
                    setting.set_world_size(*world_size);
                }
            }
            Axis::Rates(rates) => {
                if let Some(&bytes_per_second) = rates.get(index) {
                    let faster = |link: RingLink| RingLink { bytes_per_second, ..link };
                    setting.links = match setting.links {
                        Links::Uniform(link) => Links::Uniform(faster(link)),
                        Links::Nodes { ranks_per_node, inside, across } => {
                            Links::Nodes { ranks_per_node, inside, across: faster(across) }
                        }
                    };
                }
            }
        }
        setting
    }

    /// A value in words.
    pub fn words(&self, index: usize) -> String {
        match self {
            Axis::Caps(caps) => caps.get(index).map_or_else(String::new, cap_words),
            Axis::Worlds(worlds) => {
                worlds.get(index).map_or_else(String::new, |world| count((*world).into(), "rank"))
            }
            Axis::Rates(rates) => {
                rates.get(index).map_or_else(String::new, |rate| rate_words(*rate))
            }
        }
    }
}

/// A cap of a sweep, and what an optimizer step takes with it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SweepPoint {
    /// `bucket_cap_mb`; none for the default.
    pub bucket_cap_mb: Option<f64>,
    /// Buckets in force.
    pub buckets: u32,
    /// Time of a step, in picoseconds.
    pub step_ps: u64,
    /// Time of asynchronous communication, in picoseconds.
    pub communication_ps: u64,
    /// Time that the compute stream waits for asynchronous communication, in picoseconds.
    pub exposed_ps: u64,
    /// Time that it does not compute, for whatever communication, in picoseconds.
    pub waiting_ps: u64,
    /// The computing time of a step, in parts per thousand of the step's time.
    pub efficiency_permille: u64,
}

/// The reason that there is no sweep.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SweepError {
    /// A cap that is none.
    #[error(transparent)]
    Cap(#[from] BucketCapError),
    /// DDP raises in a step.
    #[error("{}: {_0}", _0.class())]
    Raises(DdpError),
    /// A run that is no plan.
    #[error(transparent)]
    Training(#[from] TrainingError),
}

/// The step times with each cap, `None` being the default, and the best with its reason.
///
/// # Errors
/// When a cap is none, DDP raises in a step, or the run is no plan.
pub fn sweep_caps(
    model: &Model,
    setting: &Setting,
    caps_mb: &[Option<f64>],
) -> Result<(Vec<SweepPoint>, Option<Best>), SweepError> {
    let cap = |mb: &Option<f64>| mb.map_or(Ok(BucketCap::Default), BucketCap::from_mb);
    let axis = Axis::Caps(caps_mb.iter().map(cap).collect::<Result<_, _>>()?);
    let summary = |index| -> Result<Summary, SweepError> {
        let setting = axis.apply(setting, index);
        let run = LabRun::of(model, &setting)?;
        match run.error(0) {
            Some(error) => Err(SweepError::Raises(error.clone())),
            None => Ok(run.summary()),
        }
    };
    let found: Vec<Summary> = (0..axis.len()).map(summary).collect::<Result<_, _>>()?;
    let points = caps_mb.iter().zip(&found).map(|(&bucket_cap_mb, of)| SweepPoint {
        bucket_cap_mb,
        buckets: of.buckets,
        step_ps: of.step_ps,
        communication_ps: of.communication_ps,
        exposed_ps: of.exposed_ps,
        waiting_ps: of.waiting_ps(),
        efficiency_permille: of.efficiency_permille(),
    });
    Ok((points.collect(), best(&axis, &found)))
}

/// The best value of an axis, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Best {
    /// Its index; the first of equals.
    pub index: usize,
    /// The reason that it is best.
    pub why: String,
}

/// The best of an axis by the shortest step; none without values. World sizes compete by
/// efficiency, as a longer step of more ranks gets more done.
pub fn best(axis: &Axis, points: &[Summary]) -> Option<Best> {
    let points = points.get(..axis.len().min(points.len()))?;
    let worlds = matches!(axis, Axis::Worlds(_));
    let key = |point: &Summary| match worlds {
        true => 1000 - point.efficiency_permille(),
        false => point.step_ps,
    };
    let (index, found) = points.iter().enumerate().min_by_key(|(_, point)| key(point))?;
    let name = axis.words(index);
    let why = match axis {
        Axis::Caps(caps) => caps_why(axis, caps, points, index, found, &name),
        Axis::Worlds(_) => format!(
            "{name}: {}.{} % of a step computes. With more ranks a ring has more steps, and their \
             latency ({} here) grows with them.",
            found.efficiency_permille() / 10,
            found.efficiency_permille() % 10,
            time(found.latency_ps)
        ),
        Axis::Rates(_) => format!(
            "{name}: {} a step, {} of it waiting. {}",
            time(found.step_ps),
            time(found.exposed_ps),
            match found.latency_ps > found.communication_ps / 2 {
                true =>
                    "Most of the communication is latency by now: still more bandwidth would not help.",
                false => "Most of the communication is still bytes on the wire.",
            }
        ),
    };
    Some(Best { index, why })
}

fn caps_why(
    axis: &Axis,
    caps: &[BucketCap],
    points: &[Summary],
    index: usize,
    found: &Summary,
    name: &str,
) -> String {
    let begin = format!(
        "{name}: {} a step with {}, {} of it exposed.",
        time(found.step_ps),
        count(found.buckets.into(), "bucket"),
        time(found.exposed_ps)
    );
    if points.iter().all(|point| point.step_ps == found.step_ps) {
        return format!("{begin} No cap is better than another here.");
    }
    let most = points.iter().map(|point| point.step_ps).max().unwrap_or(0);
    let spread = u128::from(most - found.step_ps) * 1000 / u128::from(most.max(1));
    if spread < 5 {
        return format!(
            "{begin} It hardly matters: the worst cap here takes {} more, under 0.5 %.",
            time(most - found.step_ps)
        );
    }
    // The worst with more buckets, and the worst with fewer.
    let worst = |more: bool| {
        let others = points.iter().enumerate().filter(|(other, point)| {
            let side = match more {
                true => point.buckets > found.buckets,
                false => point.buckets < found.buckets,
            };
            *other != index && side && point.step_ps > found.step_ps
        });
        others.max_by_key(|(_, point)| point.step_ps)
    };
    let mut why = begin;
    if let Some((other, point)) = worst(true) {
        why.push_str(&format!(
            " Smaller buckets lose to latency: with {} there are {}, and {} of their {} is latency.",
            axis.words(other),
            point.buckets,
            time(point.latency_ps),
            time(point.communication_ps)
        ));
    }
    if let Some((other, point)) = worst(false) {
        why.push_str(&format!(
            " Larger ones lose overlap: with {} the {} starts {} into the backward pass, and {} stay exposed.",
            axis.words(other),
            match point.buckets {
                1 => "only bucket".to_owned(),
                buckets => format!("first of {}", count(buckets.into(), "bucket")),
            },
            point.first_reduction_ps.map_or("late".into(), time),
            time(point.exposed_ps)
        ));
    }
    let default = caps.iter().position(|cap| *cap == BucketCap::Default);
    if let Some(default) = default.and_then(|at| points.get(at))
        && default.step_ps > found.step_ps
    {
        let longer =
            u128::from(default.step_ps - found.step_ps) * 1000 / u128::from(found.step_ps.max(1));
        if longer > 0 {
            why.push_str(&format!(
                " With the default cap a step takes {}.{} % longer.",
                longer / 10,
                longer % 10
            ));
        }
    }
    why
}
