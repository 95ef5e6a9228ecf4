//! A job with something otherwise.

use super::Opened;
use lockstep_analysis::Analysis;
use serde::{Deserialize, Serialize};

/// A job as it is simulated and with a change.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Changed {
    /// The change in words.
    pub(crate) words: String,
    /// The analyses without the change and with it; their single steps are left out.
    pub(crate) before: Analysis,
    pub(crate) after: Analysis,
    /// A step as it was recorded, or all where there are no steps, in picoseconds; nothing of a simulation.
    pub(crate) recorded_ps: Option<u64>,
    /// The links in words, and by how much calls that they were fitted on are off: 0.05 for 5%.
    pub(crate) links: String,
    pub(crate) fit_error: Option<f64>,
    pub(crate) assumed: Vec<String>,
    /// The changed job.
    pub(crate) opened: Opened,
}
