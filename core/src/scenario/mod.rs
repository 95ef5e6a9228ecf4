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

#[cfg(feature = "program")]
use crate::plan::Plan;
use crate::plan::PlanError;
#[cfg(feature = "program")]
use crate::program::{self, ProgramError};

/// A job that hangs, and the same job repaired. Both are programs ([`crate::program`]): the plan is
/// what comes of the text that is shown, and nothing else.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The name in URLs and on the command line: `skipped-all-reduce`.
    pub id: &'static str,
    /// A few words.
    pub title: &'static str,
    /// What happens and why it happens in real jobs, in two or three sentences.
    pub story: &'static str,
    /// What stands in the log of such a job.
    pub log: Log,
    /// What the repair changes, in a sentence.
    pub repair: &'static str,
    /// The smallest world that shows it.
    pub min_world_size: u32,
    /// The program's text, as the plan's source carries it.
    pub program: &'static str,
    /// The repaired program's text.
    pub repaired_program: &'static str,
    /// The moments at which there is something to understand, one after the other.
    pub chapters: &'static [Chapter],
}

/// What a user finds in the log, in the words of those who print it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// The lines; `…` marks what was cut.
    pub lines: &'static str,
    /// Who prints them, and where these were seen.
    pub from: &'static str,
}

/// A moment of a scenario as it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chapter {
    /// Where the simulation stands still, counted from the chapter before: `start`; `line:9`, any
    /// rank reaches line 9 of the program; `line:9:2`, rank 2 does; `rank:2`, its next operation;
    /// `call:0:5`, any rank makes call number 5 of group 0; `differ`, two ranks have made
    /// different calls under one number of a group; `end`. The world has 4 ranks, or as many as
    /// the scenario needs.
    pub stop: &'static str,
    /// What there is to see, and why.
    pub says: &'static str,
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

/// Why a scenario has no plan.
#[cfg(feature = "program")]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ScenarioError {
    /// The world is empty, or too small for it.
    #[error(transparent)]
    World(#[from] PlanError),
    /// Its program cannot be executed with these options.
    #[error("the scenario's program: {0}")]
    Program(#[from] ProgramError),
}

/// The name of the programs as their lines are shown with.
pub const PROGRAM_PATH: &str = "train.py";

impl Scenario {
    /// The scenario's plan: its program, executed once for each rank.
    ///
    /// # Errors
    /// When the world is too small or too large for it.
    #[cfg(feature = "program")]
    pub fn plan(&self, options: &ScenarioOptions) -> Result<Plan, ScenarioError> {
        self.fits(options.world_size)?;
        let limits = program::Options {
            world_size: Some(options.world_size),
            timeout_ms: Some(options.timeout_ms),
            ..program::Options::default()
        };
        let compiled = program::compile(PROGRAM_PATH, self.text(options.repaired), &limits)?;
        Ok(Plan { name: self.name(options.repaired), ..compiled.plan })
    }

    /// Whether it can be shown with so many ranks.
    ///
    /// # Errors
    /// When the world is empty, or too small for it.
    pub fn fits(&self, world_size: u32) -> Result<(), PlanError> {
        match world_size {
            0 => Err(PlanError::EmptyWorld),
            _ if world_size < self.min_world_size => Err(PlanError::WorldTooSmall {
                what: self.id.to_owned(),
                needs: self.min_world_size,
                world_size,
            }),
            _ => Ok(()),
        }
    }

    /// What its plan is called.
    pub fn name(&self, repaired: bool) -> String {
        match repaired {
            true => format!("{} (repaired)", self.title),
            false => self.title.to_owned(),
        }
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

#[cfg(all(test, feature = "program"))]
mod tests {
    use super::*;

    /// The smallest world, and others.
    fn worlds(scenario: &Scenario) -> [u32; 3] {
        [scenario.min_world_size, 5.max(scenario.min_world_size), 8]
    }

    #[test]
    fn every_operation_has_its_line() {
        for scenario in all() {
            for repaired in [false, true] {
                for world_size in worlds(scenario) {
                    let options = ScenarioOptions { world_size, repaired, ..Default::default() };
                    let plan = scenario.plan(&options).unwrap();
                    let lines = plan.sources[0].text.lines().count() as u32;
                    let ops = plan.programs.iter().flat_map(|program| &program.ops);
                    for op in ops {
                        assert!(op.at.is_some_and(|at| (1..=lines).contains(&at.line)), "{op:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_world_too_small_for_the_scenario_is_refused() {
        for scenario in all() {
            for world_size in 0..scenario.min_world_size {
                let options = ScenarioOptions { world_size, ..Default::default() };
                assert!(scenario.plan(&options).is_err(), "{} {world_size}", scenario.id);
            }
        }
    }

    #[test]
    fn scenarios_are_told_in_full() {
        let mut ids: Vec<&str> = all().iter().map(|scenario| scenario.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all().len(), "ids are unique");
        assert!(all().len() >= 18);
        for scenario in all() {
            let Scenario { id, story, log, repair, chapters, .. } = scenario;
            assert!(!story.is_empty() && !repair.is_empty(), "{id}");
            assert!(!log.lines.is_empty() && !log.from.is_empty(), "{id}");
            assert!((3..=6).contains(&chapters.len()), "{id}");
            assert_ne!(scenario.program, scenario.repaired_program, "{id}");
            assert!(scenario.program.lines().all(|line| line.len() <= 100), "{id}");
            // A line that a chapter stops at has an operation of the program.
            let plan = scenario.plan(&ScenarioOptions {
                world_size: scenario.min_world_size.max(4),
                ..ScenarioOptions::default()
            });
            let plan = plan.unwrap();
            for Chapter { stop, says } in *chapters {
                assert!(!says.is_empty(), "{id}");
                assert!(stop.parse::<crate::stop::Stop>().is_ok(), "{id}: {stop}");
                let Some(at) = stop.strip_prefix("line:") else { continue };
                let mut numbers = at.split(':').map(|number| number.parse::<u32>().unwrap());
                let (line, rank) = (numbers.next().unwrap(), numbers.next());
                let reached = (0..plan.world_size).filter(|of| rank.is_none_or(|rank| rank == *of));
                let mut programs =
                    reached.filter_map(|rank| plan.program(crate::rank::GlobalRank(rank)));
                let there = programs.any(|program| {
                    program.ops.iter().any(|op| op.at.is_some_and(|at| at.line == line))
                });
                assert!(there, "{id}: nobody reaches {stop}");
            }
        }
    }
}
