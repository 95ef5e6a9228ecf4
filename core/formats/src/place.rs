//! Lines of a job's files.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// A line of a file of the job, in which a reader found something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    /// The file's name, as the job's files are told apart by it.
    pub file: Arc<str>,
    /// The line, counted from 1. A line ends in a line feed.
    pub line: u64,
}

impl Place {
    /// A line of a file.
    pub fn new(file: &str, line: u64) -> Place {
        Place { file: file.into(), line }
    }
}

/// `train.log:123`.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}
