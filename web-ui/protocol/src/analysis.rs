//! A job with something otherwise.

use super::machine::Machine;
use super::opened::Opened;
use lockstep_analysis::Analysis;
use lockstep_replay::Variation;
use serde::{Deserialize, Serialize};

/// A change to a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum JobChange {
    /// Of the job or its links.
    Variation(Variation),
    /// Another machine.
    Machine(Machine),
}

/// A job as it is simulated and with a change.
#[derive(Debug, Serialize, Deserialize)]
pub struct Changed {
    /// The change in words.
    pub words: String,
    /// The analyses without the change and with it; their single steps are left out.
    pub before: Analysis,
    /// The analysis with the change.
    pub after: Analysis,
    /// The recorded time of a step, or the whole time without steps, in picoseconds; `None` for a simulation.
    pub recorded_ps: Option<u64>,
    /// The links in words, and by how much calls that they were fitted on are off: 0.05 for 5%.
    pub links: String,
    /// The error of the fit: 0.05 for 5%.
    pub fit_error: Option<f64>,
    /// Assumptions of the replay, a clause each.
    pub assumed: Vec<String>,
    /// The changed job.
    pub opened: Opened,
}
