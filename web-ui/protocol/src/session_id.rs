//! The names of the worker's sessions.

use serde::{Deserialize, Serialize};

/// A trace that the worker holds for the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionId(pub u32);
