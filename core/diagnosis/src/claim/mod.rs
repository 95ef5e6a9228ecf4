//! A claim: what a rule says happened, before it is decided between the claims of all rules.

pub(crate) mod deed_text;
pub(crate) mod difference_text;
pub(crate) mod log_evidence;
pub(crate) mod message;

use crate::claim::message::{Doubt, Message};
use crate::facts::Facts;
use crate::facts::alternatives::Alternatives;
use crate::facts::other_sources::OtherSources;
use crate::facts::stacks::StackPosition;
use crate::kinds::Kind;
use crate::model::index::Made;
use crate::report::Evidence;
use crate::words;
use lockstep_core::group::GroupId;
use lockstep_core::rank::GlobalRank;

/// A mistake that a rule finds, before the ranks that wait because of it are known.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) kind: Kind,
    pub(crate) culprits: Vec<GlobalRank>,
    /// Ranks that suffer although they wait for nobody any more.
    pub(crate) also_victims: Vec<GlobalRank>,
    pub(crate) group: Option<GroupId>,
    pub(crate) seq: Option<u64>,
    pub(crate) op: Option<String>,
    /// The weight of the rule's other explanations. [`Claim::open`] counts the doubts as well.
    pub(crate) alternatives: Alternatives,
    pub(crate) message: Message,
    pub(crate) fix: String,
    pub(crate) evidence: Vec<Evidence>,
}

impl Claim {
    /// The weight of everything that is open against the claim: other explanations, and doubts.
    pub(crate) fn open(&self) -> Alternatives {
        self.message
            .doubts
            .iter()
            .map(|doubt| doubt.weight)
            .fold(self.alternatives, Alternatives::max)
    }

    /// Adds the lines in which the culprits' main threads were, as far as stacks tell.
    pub(crate) fn add_stacks(&mut self, sources: &OtherSources<'_>) {
        self.message.added.extend(sources.stacks_text(&self.culprits));
        let positions = self.culprits.iter().filter_map(|rank| sources.stack_of(*rank));
        self.evidence.extend(positions.take(16).map(StackPosition::evidence));
    }

    /// Adds a doubt.
    pub(crate) fn doubt(&mut self, doubt: Doubt) {
        self.message.doubts.push(doubt);
    }
}

/// A call as evidence.
pub(crate) fn evidence(facts: &Facts<'_, '_>, made: Made<'_>, verb: &str) -> Evidence {
    let log = facts.job.log;
    Evidence {
        rank: made.rank,
        entry: Some(made.record.record_id.unwrap_or(u64::from(made.record.work))),
        frame: words::place_of(log, made.rank, made.record),
        place: None,
        note: format!("{verb} {}", words::call_without_line(log, made)),
    }
}

/// The absence of a call as evidence.
pub(crate) fn no_call(rank: GlobalRank, note: impl Into<String>) -> Evidence {
    Evidence { rank, entry: None, frame: None, place: None, note: note.into() }
}
