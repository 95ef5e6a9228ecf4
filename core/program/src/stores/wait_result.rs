//! The result of a wait in a store.

use crate::stores::found_value::Unordered;
use crate::stores::log::{Answer, At};

/// The result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It answers, once these are done.
    Ready { answer: Answer, waits: Vec<At> },
    /// It waits for a key that no rank sets.
    Blocked(String),
    /// The result depends on the order of two operations.
    Race(Unordered),
    /// It asks in a loop for a counter that comes so far at most.
    Never { reaches: i64 },
}
