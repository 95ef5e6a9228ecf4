//! A hang that ships, as the page tells it. The engine holds the texts, so that the page does not
//! fetch them before somebody wants to read them.

use lockstep_core::stop::Stop;
use lockstep_scenarios::Scenario;
use serde::{Deserialize, Serialize};

/// A job that hangs, with its story, its log and its repair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hang {
    /// The name in addresses.
    pub id: String,
    /// A few words.
    pub title: String,
    /// The events, and their reason in real jobs.
    pub story: String,
    /// The lines of such a job's log.
    pub log: String,
    /// The software that prints them.
    pub log_from: String,
    /// The repair's change, in a sentence.
    pub repair: String,
    /// The smallest world that shows it.
    pub min_world_size: u32,
    /// The text of the program.
    pub program: String,
    /// The text of the repaired program.
    pub repaired_program: String,
    /// The moments at which there is something to understand, one after the other.
    pub chapters: Vec<Chapter>,
}

/// A moment in the story of a hang.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chapter {
    /// The stop of the simulation, looked for from the chapter before.
    pub stop: Stop,
    /// The things to see, and their reason.
    pub says: String,
}

impl Hang {
    /// The text of its program, as it hangs or repaired.
    pub fn text(&self, repaired: bool) -> &str {
        if repaired { &self.repaired_program } else { &self.program }
    }
}

impl From<&Scenario> for Hang {
    fn from(scenario: &Scenario) -> Hang {
        let chapter = |chapter: &lockstep_scenarios::Chapter| Chapter {
            // A test of the scenarios holds that every stop can be read.
            stop: chapter.stop.parse().unwrap_or(Stop::End),
            says: chapter.says.to_owned(),
        };
        Hang {
            id: scenario.id.to_owned(),
            title: scenario.title.to_owned(),
            story: scenario.story.to_owned(),
            log: scenario.log.lines.to_owned(),
            log_from: scenario.log.from.to_owned(),
            repair: scenario.repair.to_owned(),
            min_world_size: scenario.min_world_size,
            program: scenario.program.to_owned(),
            repaired_program: scenario.repaired_program.to_owned(),
            chapters: scenario.chapters.iter().map(chapter).collect(),
        }
    }
}
