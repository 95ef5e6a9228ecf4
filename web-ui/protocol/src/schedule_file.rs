//! Messages between page and worker about a schedule that was read from a file.

use lockstep_core::plan::Plan;
use lockstep_core::schedule::{Loss, Slice, Standing};
use serde::{Deserialize, Serialize};

/// A schedule from a file, proved or refused, and its ranks' chunks before a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleFile {
    /// The name in the file.
    pub name: String,
    /// The call that it claims to carry out.
    pub claims: String,
    /// The number of ranks.
    pub ranks: u32,
    /// The number of steps in the file, including those in which nothing is sent.
    pub steps: u32,
    /// The proof's result.
    pub verdict: Result<Box<Proved>, Refused>,
    /// `None` when there are too many chunks to show.
    pub standing: Option<Standing>,
}

/// The cost of a proved schedule, and a plan that runs it once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Proved {
    /// Steps in which messages move.
    pub rounds: u32,
    /// The number of messages.
    pub messages: u64,
    /// Chunks in all messages.
    pub chunks_moved: u64,
    /// A plan that runs it once.
    pub plan: Plan,
}

/// The place where a schedule goes wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    /// The reason, in a sentence.
    pub sentence: String,
    /// The rank that goes wrong.
    pub rank: u32,
    /// The step that goes wrong, or that wrote the wrong chunk; `None` if none did.
    pub step: Option<u32>,
    /// The chunks that are wrong.
    pub slice: Option<Slice>,
    /// True if every step can be taken, and only the end is wrong.
    pub at_the_end: bool,
    /// The place where the missing part of the result was lost.
    pub loss: Option<Loss>,
}

impl Refused {
    /// The step before which the file is first shown: the one that cannot be taken, or the one
    /// after the write that went wrong.
    pub fn shown_before(&self) -> Option<u32> {
        match (&self.loss, self.at_the_end) {
            (Some(loss), _) => Some(loss.step + 1),
            // The chunk is wrong from the step after the one that wrote it.
            (None, true) => self.step.map(|step| step + 1),
            (None, false) => self.step,
        }
    }
}
