//! What an algorithm does and costs, as a card of the gallery shows it.

use lockstep_core::schedule::Tally;
use lockstep_sim::Cost;
use serde::{Deserialize, Serialize};

/// A collective on its own, counted and timed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Account {
    /// Rounds: the schedule's steps in which messages move.
    pub(crate) steps: u32,
    /// Steps in which ranks and switches only copy and add inside themselves.
    pub(crate) steps_inside: u32,
    /// Segments that follow each other: a pipeline's.
    pub(crate) segments: u32,
    /// In elements; a card multiplies by their size.
    pub(crate) tally: Tally,
    /// What the messages between nodes carry together, in elements; 0 without nodes.
    pub(crate) across_elements: u64,
    pub(crate) cost: Cost,
    pub(crate) weave: Weave,
}

/// Who sends to whom in which step: as many steps as a drawing has room for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Weave {
    /// Those that take part: the ranks, and behind them the switches.
    pub(crate) ranks: u32,
    pub(crate) switches: u32,
    /// Rounds in all.
    pub(crate) steps: u32,
    /// The rounds that are shown; the others are between the two halves of the list.
    pub(crate) shown: Vec<u32>,
    pub(crate) strokes: Vec<Stroke>,
}

impl Weave {
    /// More steps than this are shown by their beginning and their end.
    pub(crate) const MAX_COLUMNS: u32 = 14;
}

/// A message of a [`Weave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stroke {
    /// Index into [`Weave::shown`].
    pub(crate) column: u8,
    pub(crate) from: u32,
    pub(crate) to: u32,
    /// Whether the receiver combines it with its own.
    pub(crate) reduces: bool,
    /// Whether it goes from one node to another.
    pub(crate) across: bool,
}
