//! The reasons that a text is no GOAL that could be run, and a plan no GOAL.

use lockstep_core::plan::PlanError;
use lockstep_core::rank::GlobalRank;

/// The reason that a text is no GOAL file that could be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GoalError {
    /// More text than is read.
    #[error("the file has {bytes} bytes; GOAL files of up to 256 MiB are read")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// A line that is no GOAL.
    #[error("line {line}: {why}")]
    Line {
        /// The line, counted from 1.
        line: usize,
        /// The problem there.
        why: String,
    },
    /// Operations that wait for each other.
    #[error("rank {rank}: the operation of line {line} waits for itself, through what it requires")]
    Cycle {
        /// The rank.
        rank: GlobalRank,
        /// The line of one of them.
        line: usize,
    },
    /// The file's contents are no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// The reason that a plan is no GOAL file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GoalWriteError {
    /// A rank that the plan does not have.
    #[error("the plan has no rank {0}")]
    NoRank(GlobalRank),
    /// A call whose schedule has more than ranks in it.
    #[error(
        "rank {rank}, operation {op}: {schedule} has switches that take part, but GOAL has only \
         ranks; choose another algorithm"
    )]
    Switches {
        /// The rank of the operation.
        rank: GlobalRank,
        /// Its index in the program.
        op: usize,
        /// The schedule.
        schedule: String,
    },
    /// A rank that is stopped for ever.
    #[error(
        "rank {rank}, operation {op}: the process stands stopped for ever, which GOAL cannot say"
    )]
    Stops {
        /// Which.
        rank: GlobalRank,
        /// The operation's index in the program.
        op: usize,
    },
    /// A rank that dies.
    #[error("rank {rank}, operation {op}: the process ends here, which GOAL cannot say")]
    Dies {
        /// Which.
        rank: GlobalRank,
        /// The operation's index in the program.
        op: usize,
    },
    /// A call that cannot be carried out.
    #[error("rank {rank}, operation {op}: {why}")]
    Call {
        /// The rank of the operation.
        rank: GlobalRank,
        /// Its index in the program.
        op: usize,
        /// The problem, in words.
        why: String,
    },
    /// More than GOAL's 32-bit tags can tell apart.
    #[error("rank {rank} has more messages with one peer than GOAL's tags can tell apart")]
    TooManyMessages {
        /// The rank of the operation.
        rank: GlobalRank,
    },
}
