//! The reasons why a plan is not written as a program.

use lockstep_core::rank::GlobalRank;

/// So many statements that differ between ranks are the most that is written.
pub(super) const MOST_STATEMENTS: usize = 100_000;

/// The reason that a plan cannot be written as a program.
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
        /// The operation, in words.
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
