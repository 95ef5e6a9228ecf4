//! Facts about a job besides its calls: statements of its logs, lines of its stacks, and the kind of recording of its
//! calls.

use crate::facts::stacks::StackPosition;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallLog;
use lockstep_formats::job_calls::Shows;
use lockstep_formats::job_log::{Heard, Said};

/// A job's other sources. The default is that of a job of which only the calls are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct OtherSources<'a> {
    /// Statements of the logs.
    pub(crate) heard: Heard,
    /// Facts about the recording of the calls; none for a trace of Lockstep.
    pub(crate) shows: Option<Shows>,
    /// Dumps that are there and cannot be read.
    pub(crate) unreadable: Vec<UnreadableDump>,
    /// The lines of ranks' main threads, ascending by rank.
    pub(crate) stacks: Vec<StackPosition>,
    /// Calls in the order in which they were made, as NCCL's log has them beside dumps.
    pub(crate) nccl_calls: Option<&'a CallLog>,
}

/// A dump that cannot be read.
#[derive(Clone, Debug)]
pub(crate) struct UnreadableDump {
    pub(crate) rank: GlobalRank,
    pub(crate) file_name: String,
    pub(crate) error: String,
}

impl OtherSources<'_> {
    /// True if torchrun says that it ended the rank itself: it does so when another one had failed.
    pub(crate) fn ended_by_torchrun(&self, rank: GlobalRank) -> bool {
        self.heard.statements.iter().any(|it| it.rank == rank && it.said == Said::Terminated)
    }
}
