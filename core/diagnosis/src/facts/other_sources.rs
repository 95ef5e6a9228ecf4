//! Facts about a job besides its calls: statements of its logs, lines of its stacks, and the kind of recording of its
//! calls.

use crate::facts::stacks::StackPosition;
use crate::words;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::CallLog;
use lockstep_formats::job_calls::Shows;
use lockstep_formats::job_log::{Heard, Said};
use std::collections::BTreeMap;

/// The positions of so many ranks are named in a sentence.
const SHOWN: usize = 4;

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

    /// The position of a rank, if stacks of it are there.
    pub(crate) fn stack_of(&self, rank: GlobalRank) -> Option<&StackPosition> {
        self.stacks.iter().find(|position| position.rank == rank)
    }

    /// A sentence on the positions of these ranks; `None` if stacks tell of none of them.
    pub(crate) fn stacks_text(&self, ranks: &[GlobalRank]) -> Option<String> {
        let mut places: BTreeMap<String, Vec<GlobalRank>> = BTreeMap::new();
        for position in ranks.iter().filter_map(|rank| self.stack_of(*rank)) {
            places.entry(position.text()).or_default().push(position.rank);
        }
        let more = places.len().saturating_sub(SHOWN);
        let mut told: Vec<String> = places
            .iter()
            .take(SHOWN)
            .map(|(place, ranks)| {
                let was = if ranks.len() == 1 { "was" } else { "were" };
                format!("{} {was} in {place}", words::ranks(ranks))
            })
            .collect();
        if more > 0 {
            told.push(format!("others at {more} more lines"));
        }
        (!told.is_empty()).then(|| format!("By the stacks, {}.", told.join("; ")))
    }
}
