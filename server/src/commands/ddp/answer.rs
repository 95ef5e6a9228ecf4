//! The answer of `lockstep ddp`: the report, and the parts that were asked for besides.

use anyhow::Result;
use lockstep_core::trace::Outcome;
use lockstep_sim::training::SimulatedStep;
use lockstep_torch::ddp::join::JoinedRank;
use lockstep_torch::ddp::lab::{Best, DdpLog, SweepPoint};
use lockstep_torch::ddp::plan::TrainingError;
use lockstep_torch::ddp::replicas::Replicas;
use lockstep_torch::ddp::{AfterSteps, DdpReport, Half, TrainingRun};
use serde::Serialize;

/// What `--json` prints: the report, and what else was asked for.
#[derive(Serialize)]
pub(super) struct Shown<'a> {
    pub(super) schema: &'static str,
    #[serde(flatten)]
    pub(super) report: &'a DdpReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) differences: Option<&'a [String]>,
    /// What the recorded run does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) not_compared: Option<&'a [&'static str]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sweep: Option<&'a [SweepPoint]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) best: Option<&'a Best>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) after_steps: Option<&'a AfterSteps>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) join: Option<&'a [JoinedRank]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) simulated: Option<&'a [SimulatedStep]>,
    /// What DDP raises in the simulated run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) simulated_error: Option<&'a RaisedInStep>,
    /// How the simulation ended, where it did not come to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) simulated_outcome: Option<&'a Outcome>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replicas: Option<&'a Replicas>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) log: Option<&'a DdpLog>,
    /// What was asked for and is not there, since DDP raises.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) missing: &'a [Missing],
    /// What a reader has to know besides.
    pub(super) notes: &'a [String],
}

/// A simulated run.
pub(super) struct Simulated {
    pub(super) world_size: u32,
    /// Rank 0's.
    pub(super) steps: Vec<SimulatedStep>,
    pub(super) raised: Option<RaisedInStep>,
    /// How it ended, where that is not as it should.
    pub(super) ended: Option<Outcome>,
}

/// What DDP raises in a step of a training run.
#[derive(Serialize)]
pub(super) struct RaisedInStep {
    /// The first rank that raises, where rank 0 does not: the others wait for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rank: Option<u32>,
    /// The step, counted from 1.
    pub(super) step: u32,
    pub(super) phase: Half,
    pub(super) error: String,
}

impl RaisedInStep {
    pub(super) fn of(run: &TrainingRun) -> Option<RaisedInStep> {
        run.roles.iter().find_map(|role| {
            let (step, phase, error) = role.raised()?;
            let rank = (role.rank > 0).then_some(role.rank);
            Some(RaisedInStep { rank, step, phase, error: format!("{}: {error}", error.class()) })
        })
    }
}

/// A part of the answer that there is none of.
#[derive(Serialize)]
pub(super) struct Missing {
    pub(super) what: &'static str,
    pub(super) error: String,
}

impl Missing {
    /// Adds what DDP raises in place of a part. Where its constructor raises, there is no answer at
    /// all.
    ///
    /// # Errors
    /// Then, and with whatever is not DDP's.
    pub(super) fn unless<T>(
        part: Result<T, TrainingError>,
        in_a_step: bool,
        what: &'static str,
        missing: &mut Vec<Missing>,
    ) -> Result<Option<T>> {
        match part {
            Ok(part) => Ok(Some(part)),
            Err(TrainingError::Ddp(error)) if in_a_step => {
                missing.push(Missing { what, error: format!("{}: {error}", error.class()) });
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}
