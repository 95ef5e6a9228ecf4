//! The reasons that a plan cannot be run or read.

use super::{PLAN_SCHEMA, TensorId};
use crate::collective::Collective;
use crate::dtype::Dtype;
use crate::group::GroupId;
use crate::rank::GlobalRank;
use crate::rank::MAX_WORLD_SIZE;
use crate::reduce::ReduceOp;
use crate::schedule::{Algorithm, ScheduleError};

/// The reason that a plan cannot be run or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// World size 0.
    #[error("world_size is 0; a job needs at least one rank")]
    EmptyWorld,
    /// A world larger than Lockstep numbers.
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
        /// The problem.
        why: TensorProblem,
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
        /// The problem, and a correct alternative.
        why: Box<OpProblem>,
    },
    /// Text or bytes that are no plan of this version.
    #[error("not a plan that this version reads ({PLAN_SCHEMA}): {0}")]
    Unreadable(String),
}

/// The reason that a tensor cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TensorProblem {
    /// An element type that nothing computes with.
    #[error("dtype {0} cannot be computed with yet")]
    Dtype(Dtype),
    /// More values than elements.
    #[error("its data has {data} bytes, but it has only {bytes}")]
    Data {
        /// The bytes of its values.
        data: usize,
        /// The bytes that it has.
        bytes: u64,
    },
    /// More elements than a tensor may have.
    #[error("{0} elements are over the limit of 2^40")]
    TooLarge(u64),
}

/// The reason that a rank could not make an operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpProblem {
    /// A wait that is over before it begins.
    #[error(
        "its timeout_ms is 0; give 1 or more, or null to wait as long as the group's timeout lets it (which is \
         what PyTorch's wait(timedelta(0)) does)"
    )]
    NoTime,
    /// A wait for a call that is over when it returns.
    #[error("operation {0} is not asynchronous")]
    NotAsynchronous(u32),
    /// A wait for something that does not come before.
    #[error("there is no earlier operation {0} to wait for")]
    NoOperation(u32),
    /// Coalesced calls that are none.
    #[error("it holds no call; give it at least one")]
    NoCall,
    /// A line of a text that is not in the plan.
    #[error("the plan has no source {0}")]
    NoSource(u32),
    /// A list of callers that is not in the plan, or one with a text that is not.
    #[error("the plan has no list of callers {0}, or that names a source that it does not have")]
    NoCallers(u32),
    /// A tensor that is not in the plan.
    #[error("the plan has no tensor {}", .0.0)]
    NoTensor(TensorId),
    /// A group that is not in the plan.
    #[error("the plan has no group {}", .0.0)]
    NoGroup(GroupId),
    /// A group that the rank does not belong to.
    #[error("rank {rank} is not a member of group {group:?}")]
    NotAMember {
        /// The rank.
        rank: GlobalRank,
        /// The group's label.
        group: String,
    },
    /// A part that lies outside of its tensor.
    #[error("{count} elements from {offset} on are not in {tensor:?}, which has {numel}")]
    Outside {
        /// The elements of the part.
        count: u64,
        /// Those before it.
        offset: u64,
        /// The tensor's name.
        tensor: String,
        /// Its elements.
        numel: u64,
    },
    /// A copy between tensors of different types.
    #[error("it copies {0} into {1}")]
    CopyDtypes(Dtype, Dtype),
    /// Input and output of different types.
    #[error("its input is {0} but its output is {1}")]
    Dtypes(Dtype, Dtype),
    /// A reduction that PyTorch has not for a type.
    #[error("ReduceOp.{op} does not work on {dtype}")]
    Reduction {
        /// The reduction.
        op: ReduceOp,
        /// The elements' type.
        dtype: Dtype,
    },
    /// A schedule that cannot be made.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// A barrier with elements.
    #[error("a barrier carries no elements; set count to 0")]
    BarrierCount,
    /// A schedule from a file, with something that the file says.
    #[error(
        "its schedule is a file's, which says everything: leave out algorithm, channels and segments"
    )]
    FileSaysAll,
    /// Elements that cannot be cut into equal chunks.
    #[error(
        "{count} elements are no multiple of {granularity}: {schedule} moves chunks that all have to be of one size"
    )]
    Granularity {
        /// The elements.
        count: u64,
        /// The chunks that they are cut into.
        granularity: u64,
        /// The schedule in words.
        schedule: String,
    },
    /// Splits of another collective.
    #[error("{0} has no splits; only all_to_all has")]
    NoSplits(Collective),
    /// Splits and a count.
    #[error("its splits say how many elements; set count to 0")]
    SplitsAndCount,
    /// Another number of splits than ranks.
    #[error("{found} {which} splits for a group of {size} ranks")]
    SplitsOfRanks {
        /// The number of splits.
        found: usize,
        /// `input` or `output`.
        which: &'static str,
        /// The ranks of the group.
        size: usize,
    },
    /// Uneven splits in parts.
    #[error("uneven splits are carried out in one channel and one segment")]
    SplitsInParts,
    /// Uneven splits with an algorithm that needs equal chunks.
    #[error("{0} cannot carry out uneven splits; direct and pairwise can")]
    SplitsBy(Algorithm),
    /// Uneven splits with a schedule from a file.
    #[error("a schedule from a file cannot carry out uneven splits")]
    SplitsByFile,
    /// A tensor that the call needs.
    #[error("it needs an {0} tensor")]
    Lacks(&'static str),
    /// A tensor that does not fit the splits.
    #[error("its {which} {tensor:?} has {numel} elements, but its splits add up to {total}")]
    SplitsOfTensor {
        /// `input` or `output`.
        which: &'static str,
        /// The tensor's name.
        tensor: String,
        /// Its elements.
        numel: u64,
        /// The elements of the splits.
        total: u64,
    },
    /// A tensor that does not fit the count.
    #[error(
        "its {which} {tensor:?} has {numel} elements, but {count} a rank in a group of {size} need {elements}"
    )]
    Numel {
        /// `input` or `output`.
        which: &'static str,
        /// The tensor's name.
        tensor: String,
        /// Its elements.
        numel: u64,
        /// The call's count.
        count: u64,
        /// The ranks of the group.
        size: u32,
        /// The elements that the call needs.
        elements: u64,
    },
    /// A peer that the group does not have.
    #[error("peer {peer} is outside the group of {size} ranks")]
    NoPeer {
        /// The peer's number in the group.
        peer: u32,
        /// The ranks of the group.
        size: u32,
    },
    /// A message from a rank to itself.
    #[error("a rank cannot send to or receive from itself")]
    Itself,
}

fn place(line: &Option<String>) -> String {
    line.as_ref().map(|line| format!(" at {line}")).unwrap_or_default()
}
