//! The answers of stores, and the waits that follow from them.

use super::Log;
use super::choice::Chosen;
use super::log::{Answer, At, Place, What};
use crate::stores::changed_keys::Touched;
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The answers of stores, and the waits that follow from them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// The answers that were found out; `None` while nothing was asked.
    pub(super) answers: BTreeMap<At, Given>,
    /// By each rank's operation, the messages that let other ranks go on after it.
    pub(super) signals: BTreeMap<At, Vec<Signal>>,
    /// By the operation that a rank waits in, the messages that it waits for.
    pub(super) waits: BTreeMap<At, Vec<Signal>>,
    /// The operations that must come after each operation.
    pub(super) edges: BTreeMap<At, Vec<At>>,
    /// The changes that are known of each key.
    pub(super) touched: BTreeMap<(Arc<Place>, String), Touched>,
    /// The order that was taken where more than one can happen.
    pub(super) chosen: Chosen,
    /// True once all ranks have been looked at.
    pub(super) looked: bool,
}

impl Agreed {
    /// The assumptions about which rank is first, by line.
    pub(crate) fn assumed(&self, logs: &[Log]) -> Vec<(u32, String)> {
        self.chosen.told(logs, &self.edges)
    }
}

/// An answer that was found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) answer: Answer,
    /// The operation that it turned out to be, if it asks in a loop.
    pub(super) instead: Option<What>,
}

/// A message from a rank that changed a key to one that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signal {
    pub(super) peer: GlobalRank,
    pub(super) tag: u32,
    pub(super) bytes: usize,
}
