//! A plan as a Python program that makes the same calls, to be read, changed and run again.
//!
//! Calls of a rank become [statements](statement); the ranks' statements are [merged](merge), so that what several do is
//! written once and branches stand where they differ; what repeats becomes a [loop](fold). A loop's computations take
//! the mean of its rounds.

mod fold;
mod groups;
mod merge;
mod ranks;
mod statement;
mod write;

use lockstep_core::plan::Plan;
use lockstep_core::rank::GlobalRank;

/// So many statements that differ between ranks are the most that is written.
const MOST_STATEMENTS: usize = 100_000;

/// The name of the time between two recorded calls.
const BETWEEN: &str = "between";

/// Why a plan cannot be written as a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PythonError {
    /// An operation that the program's language has no word for.
    #[error(
        "rank {rank} does something at its operation {op} that is not written as a program: {what}"
    )]
    NoWord {
        /// The rank.
        rank: GlobalRank,
        /// The index of the operation.
        op: usize,
        /// What it does.
        what: &'static str,
    },
    /// A program that nobody would read.
    #[error(
        "the ranks make {statements} calls that are not the same on all: a program of more than {MOST_STATEMENTS} \
         is not written; use the plan itself"
    )]
    TooLong {
        /// The statements.
        statements: usize,
    },
}

/// The text of a program that does what a plan says, for Lockstep's interpreter or, but for `compute` and `run`, for
/// PyTorch. What the plan assumes stands in its head.
///
/// # Errors
/// When the plan does what a program has no word for, or is too long to be read.
pub fn python_program(plan: &Plan) -> Result<String, PythonError> {
    let names = groups::Families::of(plan);
    let mut writer = statement::Writer::new(plan, &names);
    let mut ranks = Vec::new();
    for rank in (0..plan.world_size).map(GlobalRank) {
        ranks.push((rank, writer.statements(rank)?));
    }
    let lines = merge::merged(ranks)?;
    let nodes = fold::folded(&lines);
    Ok(write::program(plan, &names, &writer.tensors(), &lines, &nodes))
}
