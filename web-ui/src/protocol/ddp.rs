//! The DDP lab: a model and a setting, and one pass told gradient by gradient.

use super::session_id::SessionId;
use lockstep_sim::Topology;
use lockstep_torch::ddp::lab::{Axis, DdpLog, LabModel, LabRole, Pass, PassKind, Setting, Summary};
use serde::{Deserialize, Serialize};

/// A model that ships, or one that the worker has read from a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ModelRef {
    Named(String),
    Read(SessionId),
}

/// What is asked of DDP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum DdpQuestion {
    /// A pass from 0, the last if absent, and a rank's log.
    Pass { setting: Setting, pass: Option<u32>, rank: u32 },
    /// What each option that differs between two settings changes by itself.
    Changes { a: Box<Setting>, b: Box<Setting> },
    /// A step over one axis, for every value of another.
    Sweep { setting: Setting, across: Axis, lines: Axis },
    /// The training run as a plan.
    Plan { setting: Setting },
    /// What a step takes in the simulator.
    Simulate { setting: Setting, topology: Topology },
}

/// A setting, and one pass of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DdpAccount {
    pub(crate) model: LabModel,
    pub(crate) setting: Setting,
    /// Bytes of the constructor's buckets, and of those after the rebuild.
    pub(crate) initial: Vec<u64>,
    pub(crate) rebuilt: Option<Vec<u64>>,
    /// What the passes are, in order.
    pub(crate) passes: Vec<PassKind>,
    /// The passes that all later ones are like, from and to.
    pub(crate) steady: (u32, u32),
    /// The kinds of ranks; one where all do the same.
    pub(crate) roles: Vec<LabRole>,
    /// Which of them the pass is one of.
    pub(crate) role: u32,
    /// What DDP raises after the last pass.
    pub(crate) raised: Option<String>,
    /// Whether the summary is of a pass that it cuts short.
    pub(crate) cut_short: bool,
    pub(crate) pass: Pass,
    pub(crate) summary: Summary,
    /// The log after as many passes.
    pub(crate) log: DdpLog,
}

/// An option by itself, and what it does to a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ChangeRow {
    pub(crate) option: String,
    pub(crate) from: String,
    pub(crate) to: String,
    /// What the step is then, or what DDP raises.
    pub(crate) summary: Result<Summary, String>,
    pub(crate) why: String,
}

/// What the simulator says a step takes, and what the closed form says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Simulated {
    pub(crate) step_ps: u64,
    pub(crate) closed_ps: u64,
    /// Messages of the whole run.
    pub(crate) messages: u64,
}
