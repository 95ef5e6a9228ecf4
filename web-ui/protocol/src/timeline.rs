//! Stretches of a timeline as they are drawn, and what is at a point of it.

use lockstep_diagnosis::StackPart;
use serde::{Deserialize, Serialize};

/// A stretch of a timeline to draw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Its start, in picoseconds.
    pub from_ps: u64,
    /// Its end, in picoseconds.
    pub to_ps: u64,
    /// Pixels across.
    pub columns: u32,
    /// The ranks that are shown, top down.
    pub ranks: Vec<u32>,
    /// Spans at least this many pixels wide get a text; 0 for none.
    pub label_columns: u32,
}

/// The kind of a rank's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RowKind {
    /// Its process.
    Process,
    /// Its compute stream.
    Compute,
    /// Its calls, on streams of their own.
    Communication,
    /// Its calls, of a backend without streams.
    Calls,
    /// The messages that it sends.
    Messages,
}

impl RowKind {
    /// Its name, in full and cut short.
    pub fn names(self) -> [&'static str; 2] {
        match self {
            RowKind::Process => ["process", "proc"],
            RowKind::Compute => ["compute stream", "comp"],
            RowKind::Communication => ["comm stream", "comm"],
            RowKind::Calls => ["calls", "calls"],
            RowKind::Messages => ["messages", "msgs"],
        }
    }

    /// Its explanation, in a sentence without an end.
    pub fn explanation(self) -> &'static str {
        match self {
            RowKind::Process => "The rank's process: it computes, or is inside a call",
            RowKind::Compute => "The compute stream of the rank's GPU",
            RowKind::Communication => {
                "The communication streams of the rank's GPU: each call from the moment at which it was made"
            }
            RowKind::Calls => "Each call, from the moment at which it was made until it completed",
            RowKind::Messages => {
                "The messages that the rank sends, with the rank that receives them"
            }
        }
    }

    /// Every kind of row.
    pub const ALL: [RowKind; 5] = [
        RowKind::Process,
        RowKind::Compute,
        RowKind::Communication,
        RowKind::Calls,
        RowKind::Messages,
    ];
}

/// A text on a span of the timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpanText {
    /// The rank.
    pub rank: u32,
    /// The row among those of its rank.
    pub lane: u32,
    /// As the pixels beneath it.
    pub class: u8,
    /// Its start, in picoseconds.
    pub from_ps: u64,
    /// Its end, in picoseconds.
    pub to_ps: u64,
    /// The text.
    pub text: String,
}

/// The item under a point of the timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Picked {
    /// Its name in a line.
    pub title: String,
    /// Its start, in picoseconds.
    pub from_ps: u64,
    /// `None` when it never ended.
    pub to_ps: Option<u64>,
    /// Names and values.
    pub facts: Vec<(String, String)>,
    /// The call's stack, innermost first.
    pub stack: Vec<StackPart>,
    /// The call's number on its rank, if it is one.
    pub call: Option<u32>,
    /// From a send to its receive; from the member of a collective that came last to the others,
    /// which waited for it.
    pub links: Vec<Link>,
}

/// An arrow from one moment of a rank to one of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Its tail.
    pub from: Spot,
    /// Its head.
    pub to: Spot,
}

/// A moment of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spot {
    /// The rank.
    pub rank: u32,
    /// Its row among those of the rank; `None` for all of them.
    pub lane: Option<u32>,
    /// The time, in picoseconds.
    pub time_ps: u64,
}
