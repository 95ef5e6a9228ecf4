//! Lines of a job's file, as the page shows them around one that a finding names.

use serde::{Deserialize, Serialize};

/// Lines of a file, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLines {
    /// The number of the first of them, counted from 1.
    pub first: u64,
    /// The lines without their ends, cut where they are very long.
    pub text: String,
}
