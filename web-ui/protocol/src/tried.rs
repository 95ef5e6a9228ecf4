//! Repairs that were tried.

use crate::calls::CallMark;
use crate::opened::Opened;
use serde::{Deserialize, Serialize};

/// A repair that was tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repaired {
    /// The change, in a sentence.
    pub change: String,
    /// True if the repaired job completes.
    pub verified: bool,
    /// The result, in a sentence.
    pub why: String,
    /// The assumptions of the replay, a clause each.
    pub assumed: Vec<String>,
    /// The repaired job, simulated.
    pub opened: Opened,
    /// The first call of each changed rank that is another one than was recorded.
    pub changed: Vec<CallMark>,
}
