//! The answer of `lockstep ddp`: the report, and the parts that were asked for besides.

use anyhow::Result;
use lockstep_core::trace::Outcome;
use lockstep_sim::training::SimulatedStep;
use lockstep_torch::ddp::join::JoinedRank;
use lockstep_torch::ddp::lab::{Best, DdpLog, SweepPoint};
use lockstep_torch::ddp::plan::TrainingError;
use lockstep_torch::ddp::replicas::Replicas;
use lockstep_torch::ddp::{AfterSteps, DdpError, DdpReport, Half, TrainingRun};
use serde::Serialize;

/// The report, and the parts that were asked for besides. `--json` prints it.
#[derive(Serialize)]
pub(super) struct Answer {
    pub(super) schema: &'static str,
    #[serde(flatten)]
    pub(super) report: DdpReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) differences: Option<Vec<String>>,
    /// The parts that the recorded run does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) not_compared: Option<Vec<&'static str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sweep: Option<Vec<SweepPoint>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) best: Option<Best>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) after_steps: Option<AfterSteps>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) join: Option<Vec<JoinedRank>>,
    #[serde(flatten)]
    pub(super) simulated: Option<Simulated>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replicas: Option<Replicas>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) log: Option<DdpLog>,
    /// The parts that were asked for and are not there, since DDP raises.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) missing: Vec<Missing>,
    /// Remarks that a reader needs besides.
    pub(super) notes: Vec<String>,
    /// The step at which the written plan ends, since DDP raises in it.
    #[serde(skip)]
    pub(super) planned_error: Option<RaisedInStep>,
}

impl Answer {
    /// True if it differs from the recorded run; without one, if DDP raises or the simulation does not
    /// come to its end. An error that the recorded run raised as well is as it should be.
    pub(super) fn has_failed(&self) -> bool {
        if let Some(differences) = &self.differences {
            return !differences.is_empty();
        }
        let cut_short = |run: &Simulated| run.raised.is_some() || run.ended.is_some();
        self.report.error.is_some()
            || self.join.iter().flatten().any(|rank| rank.error.is_some())
            || self.planned_error.is_some()
            || self.simulated.as_ref().is_some_and(cut_short)
    }
}

/// A simulated run.
#[derive(Serialize)]
pub(super) struct Simulated {
    #[serde(skip)]
    pub(super) world_size: u32,
    /// Rank 0's.
    #[serde(rename = "simulated")]
    pub(super) steps: Vec<SimulatedStep>,
    /// The error that DDP raises in it.
    #[serde(rename = "simulated_error", skip_serializing_if = "Option::is_none")]
    pub(super) raised: Option<RaisedInStep>,
    /// Its outcome, where it did not come to its end.
    #[serde(rename = "simulated_outcome", skip_serializing_if = "Option::is_none")]
    pub(super) ended: Option<Outcome>,
}

/// The error that DDP raises in a step of a training run.
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

/// The parts of the answer that there are none of.
pub(super) struct MissingParts {
    /// True if DDP raises in a step of the report.
    in_a_step: bool,
    pub(super) parts: Vec<Missing>,
}

impl MissingParts {
    pub(super) fn of(report: &DdpReport) -> MissingParts {
        MissingParts { in_a_step: report.error.is_some(), parts: Vec::new() }
    }

    /// The part, or a note of the error that DDP raises in place of it. Where its constructor raises,
    /// there is no answer at all.
    ///
    /// # Errors
    /// Then, and with every error that is not DDP's.
    pub(super) fn unless<T>(
        &mut self,
        part: Result<T, TrainingError>,
        what: &'static str,
    ) -> Result<Option<T>> {
        match part {
            Ok(part) => Ok(Some(part)),
            Err(TrainingError::Ddp(error)) if self.in_a_step => {
                self.raised(what, &error);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Notes that DDP raises in place of a part.
    pub(super) fn raised(&mut self, what: &'static str, error: &DdpError) {
        self.parts.push(Missing { what, error: format!("{}: {error}", error.class()) });
    }
}
