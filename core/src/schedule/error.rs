//! The reasons that a call has no such schedule.

use super::{Algorithm, ProofError};
use crate::collective::Collective;
use crate::rank::GroupRank;

/// The reason that there is no such schedule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// A group of no ranks.
    #[error("{collective} needs a group of at least one rank")]
    EmptyGroup {
        /// The call.
        collective: Collective,
    },
    /// The root is no member.
    #[error("{collective}: root {root} is outside the group of {size} ranks (0 to {})", size - 1)]
    RootOutside {
        /// The call.
        collective: Collective,
        /// The root that was asked for.
        root: GroupRank,
        /// The group's size.
        size: u32,
    },
    /// The family has no schedule for the call.
    #[error("{collective} has no {algorithm} schedule; choose one of: {}", names(*collective))]
    NotCarriedOutBy {
        /// The call.
        collective: Collective,
        /// The family that was asked for.
        algorithm: Algorithm,
    },
    /// More ranks than the family can number the chunks of.
    #[error("{collective} by {algorithm} takes up to {most} ranks, not {size}")]
    TooManyRanks {
        /// The call.
        collective: Collective,
        /// The family that was asked for.
        algorithm: Algorithm,
        /// The group's size.
        size: u32,
        /// The most ranks.
        most: u32,
    },
    /// More nodes than the family's switch reaches.
    #[error(
        "{collective} by {algorithm} stays inside one node, whose switch joins its ranks; {size} ranks \
         in nodes of {ranks_per_node} are several nodes: choose another algorithm, or one node of \
         {size} ranks"
    )]
    OneNode {
        /// The call.
        collective: Collective,
        /// The family that was asked for.
        algorithm: Algorithm,
        /// The group's size.
        size: u32,
        /// Ranks of a node.
        ranks_per_node: u32,
    },
    /// A schedule from a file is for another call.
    #[error(
        "the schedule {table:?} carries out {} among {table_size} ranks, not {} among {size}",
        with_root(*claims), with_root(*collective)
    )]
    OtherCall {
        /// The schedule's name.
        table: String,
        /// The collective that it carries out.
        claims: Collective,
        /// Among how many.
        table_size: u32,
        /// The collective that was asked for.
        collective: Collective,
        /// Among how many.
        size: u32,
    },
    /// A schedule that the plan does not have.
    #[error("the plan has no schedule {0}")]
    NoTable(u32),
    /// A schedule from a file does not carry out its collective.
    #[error("the schedule {table:?} does not carry out {claims}: {error}")]
    Refused {
        /// The schedule's name.
        table: String,
        /// The collective that it claims.
        claims: Collective,
        /// The place where it goes wrong.
        error: Box<ProofError>,
    },
    /// No channels or segments, or more than there can be.
    #[error("{collective} cannot have {asked} {of} here; choose 1{}", up_to(*most))]
    Lanes {
        /// The call.
        collective: Collective,
        /// Channels or segments.
        of: &'static str,
        /// The number that was asked for.
        asked: u32,
        /// The most that it can have.
        most: u32,
    },
}

/// `broadcast with root 1`, `all_reduce`.
fn with_root(collective: Collective) -> String {
    match collective.root() {
        Some(root) => format!("{collective} with root {root}"),
        None => collective.to_string(),
    }
}

fn up_to(most: u32) -> String {
    if most > 1 { format!(" to {most}") } else { String::new() }
}

fn names(collective: Collective) -> String {
    Algorithm::of(collective).iter().map(|a| a.name()).collect::<Vec<_>>().join(", ")
}
