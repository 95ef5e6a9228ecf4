//! A job that hangs, with its program, its story and its repair.

use lockstep_core::plan::PlanError;

/// A job that hangs, and the same job repaired. Both are programs: the plan is made from the text that is
/// shown, and from nothing else.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The name in URLs and on the command line: `skipped-all-reduce`.
    pub id: &'static str,
    /// A few words.
    pub title: &'static str,
    /// The events, and their reason in real jobs, in two or three sentences.
    pub story: &'static str,
    /// The log of such a job.
    pub log: Log,
    /// The repair's change, in a sentence.
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

/// The lines that a user finds in the log, in the words of the programs that print them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// The lines; `…` marks a cut.
    pub lines: &'static str,
    /// The software that prints them, and the place where these were seen.
    pub from: &'static str,
}

/// A moment in the story of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chapter {
    /// The stop of the simulation, counted from the chapter before: `start`; `line:9`, any rank
    /// reaches line 9 of the program; `line:9:2`, rank 2 does; `rank:2`, its next operation;
    /// `call:0:5`, any rank makes call number 5 of group 0; `differ`, two ranks have made different
    /// calls under one number of a group; `end`. The world has 4 ranks, or as many as the scenario
    /// needs.
    pub stop: &'static str,
    /// The things to see, and their reason.
    pub says: &'static str,
}

/// The options for making a scenario into a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScenarioOptions {
    /// The number of ranks.
    pub world_size: u32,
    /// The timeout of every group, in milliseconds; short, so that a real run ends soon.
    pub timeout_ms: u64,
    /// True to take the repaired program.
    pub repaired: bool,
}

impl Default for ScenarioOptions {
    fn default() -> ScenarioOptions {
        ScenarioOptions { world_size: 4, timeout_ms: 3000, repaired: false }
    }
}

impl Scenario {
    /// Passes if the scenario can be shown with so many ranks.
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

    /// The name of its plan.
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
