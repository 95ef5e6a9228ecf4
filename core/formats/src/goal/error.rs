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
        why: LineError,
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

/// The reason that a line is no GOAL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// A character of no word.
    #[error("the character {0:?} means nothing here")]
    Character(char),
    /// A word of no option or operation.
    #[error("{0} means nothing here")]
    Word(String),
    /// Not a number, or one that is too small or large.
    #[error("{word} is no {what} from {from} to {to}")]
    Number {
        /// The word, or its beginning.
        word: String,
        /// The thing that is counted.
        what: &'static str,
        /// The least.
        from: u64,
        /// The most.
        to: u64,
    },
    /// An option without its value.
    #[error("{0} needs a number behind it")]
    NoNumber(String),
    /// More than is read.
    #[error("more than {limit} operations and dependencies")]
    TooMany {
        /// The limit.
        limit: usize,
    },
    /// A second `num_ranks`.
    #[error("num_ranks is there twice")]
    RanksTwice,
    /// A rank before `num_ranks`.
    #[error("num_ranks has to come before the first rank")]
    RankFirst,
    /// A second block of a rank.
    #[error("rank {0} is there twice")]
    RankTwice(u32),
    /// A second operation with a label.
    #[error("the label {0} is there twice in this rank")]
    LabelTwice(String),
    /// A dependency on a label that does not exist.
    #[error("no operation of this rank above is labelled {0}")]
    NoLabel(String),
    /// Something else outside a rank's block.
    #[error("expected num_ranks N, or rank R {{ and its operations")]
    NoBlock,
    /// Something else inside a rank's block.
    #[error("expected send Nb to R, recv Nb from R, calc N, or label requires label")]
    NoOperation,
    /// `tag -1`.
    #[error("tag -1 matches any tag, which torch.distributed cannot: give the tag that is meant")]
    AnyTag,
    /// A rank that sends to itself, or receives from itself.
    #[error("rank {0} exchanges a message with itself")]
    Itself(u32),
    /// A block that does not end.
    #[error("the file ends inside rank {0}: a }} is missing")]
    OpenBlock(u32),
    /// A text of something else.
    #[error("there is no num_ranks: this is no GOAL")]
    NoRanks,
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
        /// The rank that is stopped.
        rank: GlobalRank,
        /// The operation's index in the program.
        op: usize,
    },
    /// A rank that dies.
    #[error("rank {rank}, operation {op}: the process ends here, which GOAL cannot say")]
    Dies {
        /// The rank that dies.
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
    /// More messages than GOAL's 32-bit tags can distinguish.
    #[error("rank {rank} has more messages with one peer than GOAL's tags can tell apart")]
    TooManyMessages {
        /// The rank of the operation.
        rank: GlobalRank,
    },
}
