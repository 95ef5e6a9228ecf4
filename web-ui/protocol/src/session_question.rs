//! Questions about a session that the worker holds: a simulation, a run or a recording.

use crate::calls::{CallId, Which};
use crate::measure::Area;
use crate::timeline::Window;
use lockstep_core::plan::TensorId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::stop::{Direction, Stop};
use serde::{Deserialize, Serialize};

/// A question about a session.
#[derive(Debug, Serialize, Deserialize)]
pub enum SessionQuestion {
    /// The beginning of each step of the only call of a simulation, in picoseconds.
    StepTimes,
    /// The next bytes of a live trace, in the attachment.
    Live,
    /// The account of a live trace as far as it has come.
    Settle,
    /// A simulation at one of its moments.
    See {
        /// The moment.
        moment: usize,
    },
    /// The nearest moment from `moment` on, or before it, at which one of `stops` is met.
    FindStop {
        /// The moment.
        moment: usize,
        /// The stops.
        stops: Vec<Stop>,
        /// The direction to look in.
        direction: Direction,
    },
    /// The first moments at which stops are met, each looked for from the one before it on.
    FollowStops {
        /// The stops.
        stops: Vec<Stop>,
    },
    /// The waits at a moment: each rank, and the ranks it waits for.
    WaitsAt {
        /// The moment.
        moment: usize,
    },
    /// Elements of a rank's tensor at a moment; their bytes come as the attachment.
    Elements {
        /// The moment.
        moment: usize,
        /// The rank.
        rank: GlobalRank,
        /// The tensor.
        tensor: TensorId,
        /// The first element.
        first: u64,
        /// The number of elements.
        count: u64,
    },
    /// A stretch of the timeline as pixels, one byte each, in the attachment.
    Draw {
        /// The stretch.
        window: Window,
    },
    /// The item under a point of the timeline.
    Pick {
        /// The rank.
        rank: u32,
        /// The row among those of its rank.
        lane: u32,
        /// The time, in picoseconds.
        time_ps: u64,
        /// The distance from the time that is near enough, in picoseconds.
        slack_ps: u64,
        /// The ranks in sight: links to them are reported.
        in_sight: Vec<u32>,
    },
    /// The calls that a query takes (`query.rs`).
    FindCalls {
        /// The text of the query.
        query: String,
    },
    /// A call of a rank.
    Locate {
        /// The rank.
        rank: u32,
        /// The call.
        which: Which,
    },
    /// Measure ranks in a stretch of time.
    Measure {
        /// The stretch and its ranks.
        area: Area,
    },
    /// All that is known of a call.
    AboutCall {
        /// The call.
        id: CallId,
    },
    /// The trace, in the attachment.
    Export {
        /// The form.
        form: Form,
    },
    /// Write a recording as a program that makes the same calls.
    AsProgram,
    /// The analysis of a trace's time.
    Analyse,
}

/// The file format of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Form {
    /// The binary form.
    Binary,
    /// JSON.
    Json,
    /// A trace for ui.perfetto.dev.
    Perfetto,
    /// PyTorch profiles, a file a rank, in a zip.
    Kineto,
    /// MLCommons Chakra execution traces, a file a rank, in a zip.
    Chakra,
    /// PyTorch Flight Recorder dumps, a file a rank, in a zip.
    FlightRecorder,
}
