//! The working and the cost of an algorithm, as a card of the gallery shows them.

use lockstep_core::schedule::{Explained, Tally};
use lockstep_sim::Cost;
use serde::{Deserialize, Serialize};

/// A collective on its own, counted and timed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Rounds: the schedule's steps in which messages move.
    pub steps: u32,
    /// Steps in which ranks and switches only copy and add inside themselves.
    pub steps_inside: u32,
    /// Segments that follow each other: a pipeline's.
    pub segments: u32,
    /// In elements; a card multiplies by their size.
    pub tally: Tally,
    /// The elements that the messages between nodes carry together; 0 without nodes.
    pub across_elements: u64,
    /// Time and messages.
    pub cost: Cost,
    /// The messages by step.
    pub weave: Weave,
    /// The explanation of the algorithm.
    pub explanation: Explanation,
}

/// The explanation of an algorithm, ready to read: the engine holds the texts, so that the page does
/// not fetch those of all algorithms before it shows its first view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The formula of its rounds: `= 2(n − 1)`.
    pub rounds: String,
    /// The formula of its time: `= 2(n − 1)·α + 2(n − 1)/n·S/β`.
    pub formula: String,
    /// The note behind the formula of its time; empty if it always holds.
    pub note: String,
    /// True if a formula depends on the number of segments, k.
    pub has_segments: bool,
    /// Its working.
    pub idea: String,
    /// Its users, and the occasions.
    pub used_by: String,
    /// Its cost, and the meaning of that.
    pub cost: String,
}

impl Explanation {
    /// An explanation where so many ranks are shown.
    pub fn new(explained: &Explained, ranks: u32) -> Explanation {
        let Explained { formula, idea, used_by, cost } = *explained;
        let (rounds, rounds_hold) = formula.rounds;
        Explanation {
            rounds: format!("{} {rounds}", rounds_hold.sign()),
            formula: format!("{} {}", formula.holds.sign(), formula.text()),
            note: formula.holds.note(ranks),
            has_segments: formula.has_segments(),
            idea: idea.to_owned(),
            used_by: used_by.to_owned(),
            cost: cost.to_owned(),
        }
    }
}

/// The sender and receiver of each step's messages: as many steps as a drawing has room for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weave {
    /// Those that take part: the ranks, and behind them the switches.
    pub ranks: u32,
    /// Switches that take part.
    pub switches: u32,
    /// Rounds in all.
    pub steps: u32,
    /// The rounds that are shown; the others are between the two halves of the list.
    pub shown: Vec<u32>,
    /// The messages of the shown rounds.
    pub strokes: Vec<Stroke>,
}

impl Weave {
    /// More steps than this are shown by their beginning and their end.
    pub const MAX_COLUMNS: u32 = 14;
}

/// A message of a [`Weave`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stroke {
    /// Index into [`Weave::shown`].
    pub column: u8,
    /// The sender.
    pub from: u32,
    /// The receiver.
    pub to: u32,
    /// True if the receiver combines the message with its own values.
    pub reduces: bool,
    /// True if the message goes from one node to another.
    pub across: bool,
}
