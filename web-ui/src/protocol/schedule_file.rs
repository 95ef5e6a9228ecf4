//! What page and worker say of a schedule that was read from a file.

use lockstep_core::plan::Plan;
use lockstep_core::schedule::{Loss, Slice, Standing};
use serde::{Deserialize, Serialize};

/// A schedule from a file, proved or refused, and what its ranks hold before a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ScheduleFile {
    pub(crate) name: String,
    /// The call that it claims to carry out.
    pub(crate) claims: String,
    pub(crate) ranks: u32,
    /// Of the file, also those in which nothing is sent.
    pub(crate) steps: u32,
    pub(crate) verdict: Result<Box<Proved>, Refused>,
    /// `None` when there are too many chunks to show.
    pub(crate) standing: Option<Standing>,
}

/// What a proved schedule costs, and a plan that runs it once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Proved {
    /// Steps in which messages move.
    pub(crate) rounds: u32,
    pub(crate) messages: u64,
    pub(crate) chunks_moved: u64,
    pub(crate) plan: Plan,
}

/// Where a schedule goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Refused {
    pub(crate) sentence: String,
    pub(crate) rank: u32,
    /// The step that goes wrong, or that wrote the wrong chunk; `None` if none did.
    pub(crate) step: Option<u32>,
    pub(crate) slice: Option<Slice>,
    /// True if every step can be taken, and only the end is wrong.
    pub(crate) at_the_end: bool,
    /// Where what the result lacks was lost.
    pub(crate) loss: Option<Loss>,
}

impl Refused {
    /// The step before which the file is first shown: the one that cannot be taken, or the one
    /// after the write that went wrong.
    pub(crate) fn shown_before(&self) -> Option<u32> {
        match (&self.loss, self.at_the_end) {
            (Some(loss), _) => Some(loss.step + 1),
            // The chunk is wrong from the step after the one that wrote it.
            (None, true) => self.step.map(|step| step + 1),
            (None, false) => self.step,
        }
    }
}
