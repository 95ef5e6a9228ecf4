//! The plans that ship with Lockstep: one collective to step through
//! ([`CollectiveLab`](lockstep_core::plan::CollectiveLab)), the same in several groups at once
//! ([`GroupsLab`]), and scenarios of jobs that hang, each with its program, its story and its repair.

mod groups;
mod hangs;
pub mod program;
mod scenario;
mod torch_call;
mod torch_calls;
mod torch_plan;

pub use groups::GroupsLab;
pub use scenario::{Chapter, Log, Scenario, ScenarioOptions};
pub use torch_call::{Heeds, TorchCall, TorchCallOptions};
pub use torch_calls::{torch_call, torch_calls};
pub use torch_plan::TorchCallError;

/// The name of the programs as their lines are shown with.
pub const PROGRAM_PATH: &str = "train.py";

/// Every scenario, in the order of the gallery.
pub fn all() -> &'static [Scenario] {
    hangs::ALL
}

/// The scenario of that id, if there is one.
pub fn find(id: &str) -> Option<&'static Scenario> {
    all().iter().find(|scenario| scenario.id == id)
}
