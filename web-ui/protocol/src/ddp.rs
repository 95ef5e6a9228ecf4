//! The DDP lab: a model and a setting, and one pass described gradient by gradient.

use super::machine::Machine;
use super::session_id::SessionId;
use lockstep_torch::ddp::lab::{Axis, DdpLog, LabModel, LabRole, Pass, PassKind, Setting, Summary};
use serde::{Deserialize, Serialize};

/// A model that ships, or one that the worker has read from a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModelRef {
    /// A model that ships, by its name.
    Named(String),
    /// A model from a file, by its session.
    Read(SessionId),
}

/// A setting on its machine. The links of the setting are for messages; on a cluster its calls take
/// what NCCL takes there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedSetting {
    /// The setting.
    pub setting: Setting,
    /// The machine.
    pub machine: Machine,
}

/// A question about DDP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DdpQuestion {
    /// A pass from 0, the last if absent, and a rank's log.
    Pass {
        /// The setting.
        placed: PlacedSetting,
        /// The pass.
        pass: Option<u32>,
        /// The rank whose log is shown.
        rank: u32,
    },
    /// The effect of each option that differs between two settings, by itself.
    Changes {
        /// The first setting.
        a: Box<PlacedSetting>,
        /// The second setting.
        b: Box<PlacedSetting>,
    },
    /// A step over one axis, for every value of another.
    Sweep {
        /// The setting.
        placed: PlacedSetting,
        /// The axis that the step is drawn over.
        across: Axis,
        /// The axis with a line for each value.
        lines: Axis,
    },
    /// The training run as a plan.
    Plan {
        /// The setting.
        setting: Setting,
    },
    /// The time of a step in the simulator.
    Simulate {
        /// The setting.
        placed: PlacedSetting,
    },
}

/// A setting, and one pass of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DdpAccount {
    /// The model.
    pub model: LabModel,
    /// The setting.
    pub setting: Setting,
    /// The machine.
    pub machine: Machine,
    /// Calls whose times no measurement of such a machine backs, in words.
    pub extrapolated: Vec<String>,
    /// Bytes of the constructor's buckets, and of those after the rebuild.
    pub initial: Vec<u64>,
    /// Bytes of the buckets after the rebuild, if there is one.
    pub rebuilt: Option<Vec<u64>>,
    /// The kinds of the passes, in order.
    pub passes: Vec<PassKind>,
    /// The passes that all later ones are like, from and to.
    pub steady: (u32, u32),
    /// The kinds of ranks; one where all do the same.
    pub roles: Vec<LabRole>,
    /// The index in `roles` of the pass's ranks.
    pub role: u32,
    /// The error that DDP raises after the last pass.
    pub raised: Option<String>,
    /// True if the summary is of a pass that the error cuts short.
    pub cut_short: bool,
    /// The pass.
    pub pass: Pass,
    /// The pass in figures.
    pub summary: Summary,
    /// The log after as many passes.
    pub log: DdpLog,
}

impl DdpAccount {
    /// The setting on its machine.
    pub fn placed(&self) -> PlacedSetting {
        PlacedSetting { setting: self.setting.clone(), machine: self.machine }
    }
}

/// An option by itself, and its effect on a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChangeRow {
    /// The option.
    pub option: String,
    /// Its value in the first setting.
    pub from: String,
    /// Its value in the second setting.
    pub to: String,
    /// The figures of the step then, or the error that DDP raises.
    pub summary: Result<Summary, String>,
    /// The reason, in a sentence.
    pub why: String,
}

/// The time of a step in the simulator, and in closed form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Simulated {
    /// A step in the simulator, in picoseconds.
    pub step_ps: u64,
    /// A step by the closed form, in picoseconds.
    pub closed_ps: u64,
    /// Messages of the whole run.
    pub messages: u64,
}
