//! The reasons that a plan cannot be run or read.

use super::PLAN_SCHEMA;
use crate::rank::GlobalRank;
use crate::rank::MAX_WORLD_SIZE;
use crate::schedule::ScheduleError;

/// The reason that a plan cannot be run or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// World size 0.
    #[error("world_size is 0; a job needs at least one rank")]
    EmptyWorld,
    /// A world past what we number.
    #[error("world_size {0} is over the limit of {MAX_WORLD_SIZE} ranks")]
    WorldTooLarge(u32),
    /// A world that a shipped scenario cannot be shown in.
    #[error("{what} needs at least {needs} ranks, not {world_size}")]
    WorldTooSmall {
        /// The scenario's id.
        what: String,
        /// Its smallest world.
        needs: u32,
        /// The world that was asked for.
        world_size: u32,
    },
    /// A collective that cannot be carried out as asked.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// A set of ranks that is no group.
    #[error(transparent)]
    Group(#[from] crate::group::GroupError),
    /// The first group is not the world.
    #[error("groups[0] must be the default group with ranks 0 to world_size - 1 in order")]
    NoDefaultGroup,
    /// A group names ranks past the world.
    #[error("process group {group:?} has rank {rank}, but world_size is {world_size}")]
    RankOutside {
        /// The group's name.
        group: String,
        /// The rank.
        rank: GlobalRank,
        /// The world's size.
        world_size: u32,
    },
    /// A group in which no call could complete.
    #[error(
        "process group {group:?} has timeout_ms 0, and every call of it would be late before it began; give 1 \
         or more (PyTorch's own: 600000 on NCCL, 1800000 elsewhere)"
    )]
    NoTime {
        /// The group's name.
        group: String,
    },
    /// `program_of` does not name one program per rank.
    #[error(
        "program_of must name one of the {programs} programs for each of the {world_size} ranks"
    )]
    BadProgramTable {
        /// Programs in the plan.
        programs: usize,
        /// The world's size.
        world_size: u32,
    },
    /// A tensor that cannot be made.
    #[error("tensor {name:?}: {why}")]
    BadTensor {
        /// Its name.
        name: String,
        /// The problem, in words.
        why: String,
    },
    /// An operation that its rank could not make.
    #[error("rank {rank}, operation {op} ({name}){}: {why}", place(.line))]
    BadOp {
        /// The first rank that runs it.
        rank: GlobalRank,
        /// Its index in the program.
        op: usize,
        /// The operation's kind, in words.
        name: String,
        /// The source line, if known.
        line: Option<String>,
        /// The problem, and what would be right.
        why: String,
    },
    /// Text or bytes that are no plan of this version.
    #[error("not a plan that this version reads ({PLAN_SCHEMA}): {0}")]
    Unreadable(String),
}

fn place(line: &Option<String>) -> String {
    line.as_ref().map(|line| format!(" at {line}")).unwrap_or_default()
}
