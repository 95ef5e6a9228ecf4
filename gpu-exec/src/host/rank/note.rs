//! The notes about a rank's calls, as small as possible.

use lockstep_core::plan::TensorId;
use lockstep_core::rank::GlobalRank;
use lockstep_core::schedule;
use lockstep_core::trace::TensorValue;

/// An event in its smallest form: [`What`](lockstep_core::trace::What) without the parts that the plan has
/// already.
#[derive(Debug)]
pub(crate) enum Note {
    OpBegan {
        op: u32,
    },
    OpEnded {
        op: u32,
    },
    StreamBegan {
        op: u32,
    },
    StreamEnded {
        op: u32,
    },
    Scheduled {
        work: u32,
        op: u32,
        part: u32,
        seq: u64,
    },
    Started {
        work: u32,
    },
    Completed {
        work: u32,
    },
    /// An operation that began then with its only call, which started at once.
    Entered {
        work: u32,
        op: u32,
        seq: u64,
        began_ns: u64,
    },
    /// A call that completed, and its operation with it.
    Left {
        work: u32,
        op: u32,
    },
    TimedOut {
        work: u32,
    },
    Sent(Message),
    Received {
        message: Message,
        reduced: bool,
    },
    Result {
        tensor: TensorId,
        value: TensorValue,
    },
    Answered {
        op: u32,
        answer: &'static str,
    },
    Finished,
}

impl Note {
    /// The parts of one note, each of them one event.
    pub(super) fn parts(self, time_ns: u64) -> [Option<(u64, Note)>; 3] {
        let at = |time_ns, note| Some((time_ns, note));
        match self {
            Note::Entered { work, op, seq, began_ns } => [
                at(began_ns, Note::OpBegan { op }),
                at(time_ns, Note::Scheduled { work, op, part: 0, seq }),
                at(time_ns, Note::Started { work }),
            ],
            Note::Left { work, op } => {
                [at(time_ns, Note::Completed { work }), at(time_ns, Note::OpEnded { op }), None]
            }
            one => [at(time_ns, one), None, None],
        }
    }
}

/// A message of a call's schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    pub(crate) work: u32,
    pub(crate) step: u32,
    pub(crate) peer: GlobalRank,
    pub(crate) slice: Option<schedule::Slice>,
    pub(crate) bytes: u64,
}
