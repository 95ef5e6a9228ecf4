//! The plans that ship with Lockstep: one collective to step through ([`CollectiveLab`]), the
//! same in several groups at once ([`GroupsLab`]), and
//! scenarios of jobs that hang, each with its program, its story and its repair.

mod groups;
mod hangs;
mod lab;
mod names;
mod torch_call;
mod torch_calls;

pub use groups::GroupsLab;
pub use lab::CollectiveLab;
pub use names::nearest;
pub use torch_call::{Heeds, TorchCall, TorchCallError, TorchCallOptions, torch_call, torch_calls};

use crate::plan::{Plan, PlanError};

/// A job that hangs, and the same job repaired.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The name in URLs and on the command line: `skipped-all-reduce`.
    pub id: &'static str,
    /// A few words.
    pub title: &'static str,
    /// What happens and why it happens in real jobs, in two or three sentences.
    pub story: &'static str,
    /// What the repair changes, in a sentence.
    pub repair: &'static str,
    /// The smallest world that shows it.
    pub min_world_size: u32,
    /// The program's text, as the plan's source carries it.
    pub program: &'static str,
    /// The repaired program's text.
    pub repaired_program: &'static str,
    write: hangs::Write,
}

/// How a scenario is made into a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScenarioOptions {
    /// The number of ranks.
    pub world_size: u32,
    /// The timeout of every group, in milliseconds; short, so that a real run ends soon.
    pub timeout_ms: u64,
    /// Whether to take the repaired program.
    pub repaired: bool,
}

impl Default for ScenarioOptions {
    fn default() -> ScenarioOptions {
        ScenarioOptions { world_size: 4, timeout_ms: 3000, repaired: false }
    }
}

impl Scenario {
    /// The scenario's plan.
    ///
    /// # Errors
    /// When the world is too small or too large for it.
    pub fn plan(&self, options: &ScenarioOptions) -> Result<Plan, PlanError> {
        if options.world_size == 0 {
            return Err(PlanError::EmptyWorld);
        }
        if options.world_size < self.min_world_size {
            return Err(PlanError::WorldTooSmall {
                what: self.id.to_owned(),
                needs: self.min_world_size,
                world_size: options.world_size,
            });
        }
        (self.write)(self, options)
    }

    /// The text that the plan's lines point into.
    pub fn text(&self, repaired: bool) -> &'static str {
        if repaired { self.repaired_program } else { self.program }
    }
}

/// How long a call of `count` elements a rank among `world_size` ranks may take before it counts
/// as hung, in milliseconds: ten seconds, and what it takes to move the largest elements one rank
/// after the other by a gigabyte a second. A healthy call of any size ends before.
pub fn patience_ms(world_size: u32, count: u64) -> u64 {
    const FLOOR_MS: u64 = 10_000;
    const LARGEST_ELEMENT: u64 = 16;
    const BYTES_PER_MS: u64 = 1_000_000;
    let bytes = count.saturating_mul(2 * LARGEST_ELEMENT).saturating_mul(world_size.into());
    FLOOR_MS.saturating_add(bytes / BYTES_PER_MS)
}

/// Every scenario, in the order of the gallery.
pub fn all() -> &'static [Scenario] {
    hangs::ALL
}

/// The scenario of that id, if there is one.
pub fn find(id: &str) -> Option<&'static Scenario> {
    all().iter().find(|scenario| scenario.id == id)
}
