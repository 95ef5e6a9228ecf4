//! The line of each rank's main thread, as py-spy, faulthandler or PyTorch's debug server saw it.

use crate::report::Evidence;
use lockstep_core::rank::GlobalRank;
use lockstep_formats::frames::short_frame;
use lockstep_formats::place::Place;
use lockstep_formats::stacks::{Cause, ProcessStacks};
use std::collections::BTreeMap;

/// The position of a rank's main thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StackPosition {
    pub(crate) rank: GlobalRank,
    /// The innermost function of the job's own code.
    function: String,
    /// Its line: `train.py:88`.
    pub(crate) line: String,
    /// The function of `torch.distributed` that this line called, if it did.
    pub(crate) call: Option<String>,
    /// True if it stayed there: a timer of the process ran out in that line, or two looks found it there.
    pub(crate) stayed: bool,
    /// The line of the job's file that says so, if the stacks have lines.
    pub(crate) place: Option<Place>,
}

impl StackPosition {
    /// `load_batch (train.py:30)`, or `step (train.py:88), in all_reduce`.
    pub(crate) fn text(&self) -> String {
        let call = self.call.as_ref().map(|call| format!(", in {call}")).unwrap_or_default();
        format!("{} ({}){call}", self.function, self.line)
    }

    /// The position as evidence.
    pub(crate) fn evidence(&self) -> Evidence {
        let call = self.call.as_ref().map(|call| format!(", in {call}")).unwrap_or_default();
        let note = format!("was in {}{call}, by its stack", self.function);
        Evidence {
            rank: self.rank,
            entry: None,
            frame: Some(self.line.clone()),
            place: self.place.clone(),
            note,
        }
    }
}

/// The last position of each rank, ascending by rank. Processes without a rank, and children, are left out.
pub(crate) fn positions(stacks: &[ProcessStacks]) -> Vec<StackPosition> {
    let mut last: BTreeMap<GlobalRank, StackPosition> = BTreeMap::new();
    for process in stacks.iter().filter(|process| process.parent.is_none()) {
        let thread = process.main_thread();
        let (Some(rank), Some(thread)) = (process.rank, thread) else { continue };
        let Some(frame) = thread.user_frame() else { continue };
        let mut position = StackPosition {
            rank,
            function: frame.function.clone(),
            line: short_frame(frame),
            call: thread.distributed_call().map(str::to_owned),
            stayed: matches!(process.cause, Cause::Timeout(_)),
            place: thread.user_frame_line().map(|line| Place::new(&process.file_name, line)),
        };
        let before = last.get(&rank);
        position.stayed |=
            before.is_some_and(|it| (&it.line, &it.call) == (&position.line, &position.call));
        last.insert(rank, position);
    }
    last.into_values().collect()
}
