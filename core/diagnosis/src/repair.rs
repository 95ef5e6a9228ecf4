//! The repair of a finding, as a report tells of it: `lockstep-replay` makes and tries them.

use lockstep_core::rank::GlobalRank;
use lockstep_core::words::rank_list;
use serde::{Deserialize, Serialize};

/// So many calls of a change are named.
const NAMED: usize = 4;

/// The change that a repair makes to what ranks do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The ranks whose programs are changed, ascending.
    pub ranks: Vec<GlobalRank>,
    /// Calls that they make now, in order: `all_reduce of dp (train.py:88)`.
    pub inserted: Vec<String>,
    /// Calls that they no longer make, in order.
    pub removed: Vec<String>,
    /// Calls that they make in the order of the others now.
    #[serde(default)]
    pub moved: Vec<String>,
    /// Calls that are made together now.
    pub batched: Vec<String>,
    /// Ranks without which the job goes on: their groups have the other members only.
    #[serde(default)]
    pub given_up: Vec<GlobalRank>,
    /// Calls that ranks make now behind the change, which the recording does not show of them.
    pub assumed: Vec<String>,
}

/// A change, and what the changed job came to in the simulator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TriedRepair {
    /// The change.
    pub change: Change,
    /// True if the changed job completes.
    pub verified: bool,
    /// The result, in a sentence.
    pub why: String,
}

impl Change {
    /// It as a sentence.
    pub fn words(&self) -> String {
        let noun = if self.ranks.len() == 1 { "Rank" } else { "Ranks" };
        let s = if self.ranks.len() == 1 { "s" } else { "" };
        let list = |calls: &[String]| {
            let named = calls.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
            match calls.len().checked_sub(NAMED) {
                Some(more) if more > 0 => format!("{named} and {more} more"),
                _ => named,
            }
        };
        let behind = match self.assumed.is_empty() {
            true => String::new(),
            false => format!(" Ranks are assumed to go on with {}.", list(&self.assumed)),
        };
        if !self.given_up.is_empty() {
            let noun = if self.given_up.len() == 1 { "rank" } else { "ranks" };
            let ranks = rank_list(&self.given_up);
            return format!("The other ranks go on without {noun} {ranks}.{behind}");
        }
        let mut parts = Vec::new();
        if !self.inserted.is_empty() {
            parts.push(format!("make{s} {}", list(&self.inserted)));
        }
        if !self.removed.is_empty() {
            parts.push(format!("leave{s} out {}", list(&self.removed)));
        }
        if !self.moved.is_empty() {
            parts.push(format!("make{s} {} in the order of the others", list(&self.moved)));
        }
        if !self.batched.is_empty() {
            parts.push(format!("make{s} {} together", list(&self.batched)));
        }
        format!("{noun} {} {}.{behind}", rank_list(&self.ranks), parts.join(" and "))
    }

    /// True if nothing is changed.
    pub fn is_empty(&self) -> bool {
        let changed = [&self.inserted, &self.removed, &self.moved, &self.batched];
        self.given_up.is_empty() && changed.into_iter().all(Vec::is_empty)
    }
}

impl TriedRepair {
    /// `proved` or `unproved`.
    pub fn verdict(&self) -> &'static str {
        if self.verified { "proved" } else { "unproved" }
    }
}
