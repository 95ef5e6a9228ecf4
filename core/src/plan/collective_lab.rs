//! One collective on its own, for stepping through it on the page.

use super::{Call, Fill, Plan, PlanBuilder, PlanError};
use crate::collective::Collective;
use crate::dtype::Dtype;
use crate::group::{BackendName, GroupId};
use crate::rank::GroupRank;
use crate::schedule::{Algorithm, ProvedTable, Schedule, ScheduleError};
use crate::words::counted;
use serde::{Deserialize, Serialize};

/// Timeout of a call of `count` elements a rank among `world_size` ranks, in milliseconds: ten
/// seconds, and the time to move the largest elements one rank after the other by a gigabyte a
/// second. A healthy call of any size ends before.
pub fn patience_ms(world_size: u32, count: u64) -> u64 {
    const FLOOR_MS: u64 = 10_000;
    const LARGEST_ELEMENT: u64 = 16;
    const BYTES_PER_MS: u64 = 1_000_000;
    let bytes = count.saturating_mul(2 * LARGEST_ELEMENT).saturating_mul(world_size.into());
    FLOOR_MS.saturating_add(bytes / BYTES_PER_MS)
}

/// One collective called once by every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectiveLab {
    /// The call.
    pub collective: Collective,
    /// The algorithm that carries it out.
    pub algorithm: Algorithm,
    /// Copies of the schedule, each with a slice of every chunk; `None` for one.
    pub channels: Option<u32>,
    /// Parts of a channel's slice that follow one another; `None` for as many as the call's size asks
    /// for.
    pub segments: Option<u32>,
    /// The number of ranks.
    pub world_size: u32,
    /// Elements a rank: those of the tensor of an in-place call, else those of one rank's part.
    pub count: u64,
    /// The element type.
    pub dtype: Dtype,
    /// The contents of the tensors at the start.
    pub fill: Fill,
    /// The default group's timeout, in milliseconds.
    pub timeout_ms: u64,
}

impl CollectiveLab {
    /// `collective` by its default algorithm, float32, with different values in all elements, and with as
    /// much time as a healthy call needs.
    pub fn new(collective: Collective, world_size: u32, count: u64) -> CollectiveLab {
        CollectiveLab {
            collective,
            algorithm: Algorithm::of(collective)[0],
            channels: None,
            segments: None,
            world_size,
            count,
            dtype: Dtype::Float32,
            fill: Fill::Iota,
            timeout_ms: patience_ms(world_size, count),
        }
    }

    /// The plan: one operation on every rank, from a line of a script that PyTorch would run.
    ///
    /// # Errors
    /// When the world is empty, the root is outside it, the algorithm does not apply or the
    /// reduction does not work on the element type.
    pub fn plan(&self) -> Result<Plan, PlanError> {
        if self.world_size == 0 {
            return Err(PlanError::EmptyWorld);
        }
        // The plan's check would say the same of every rank, but later and with more words.
        self.schedule(0)?;
        self.plan_by(None)
    }

    /// The schedule of the call in nodes of so many neighbours; 0 for one node.
    ///
    /// # Errors
    /// When the algorithm does not apply, or not in these nodes or so many channels and segments.
    pub fn schedule(&self, ranks_per_node: u32) -> Result<Schedule, ScheduleError> {
        let schedule = Schedule::new(self.collective, self.algorithm, self.world_size)?;
        let bytes = self.count.saturating_mul(self.dtype.size_bytes());
        let schedule = match self.channels {
            Some(channels) => schedule.with_channels(channels)?,
            None => schedule,
        };
        let schedule = match self.segments {
            Some(segments) => schedule.with_segments(segments)?,
            None => schedule.sized(bytes),
        };
        schedule.with_ranks_per_node(ranks_per_node)
    }

    /// The plan with the schedule of a file instead of the algorithm.
    ///
    /// # Errors
    /// When the schedule is for another call or world, or the count is not one that it can carry.
    pub fn plan_with(&self, schedule: &ProvedTable) -> Result<Plan, PlanError> {
        Schedule::from_table(schedule, self.collective, self.world_size)?;
        self.plan_by(Some(schedule))
    }

    fn plan_by(&self, table: Option<&ProvedTable>) -> Result<Plan, PlanError> {
        let CollectiveLab { collective, world_size, dtype, fill, .. } = *self;
        let how = table.map_or(self.algorithm.name(), |table| table.table().name());
        let ranks = counted(world_size, "rank");
        // A file's name may say already what it carries out: ours do.
        let name = match how.split_whitespace().any(|word| word == collective.name()) {
            true if how.ends_with(&ranks) => how.to_owned(),
            true => format!("{how}, {ranks}"),
            false => format!("{how} {collective}, {ranks}"),
        };
        let mut plan = PlanBuilder::new(name, world_size, BackendName::Host)?;
        plan.timeout_ms(self.timeout_ms);
        let schedule = table.map(|table| plan.schedule(table.clone()));
        let algorithm = schedule.is_none().then_some(self.algorithm);
        let count = if collective.is_barrier() { 0 } else { self.count };
        let source = plan.source("collective.py", self.program());
        let root = collective.root().unwrap_or(GroupRank(0));
        let input = collective
            .input_elements(world_size, root, count)
            .map(|elements| plan.tensor("input", dtype, elements, fill));
        let fill = if collective.in_place() { fill } else { Fill::Zeros };
        let name = if collective.in_place() { "tensor" } else { "output" };
        let output = collective
            .output_elements(world_size, root, count)
            .map(|elements| plan.tensor(name, dtype, elements, fill));
        plan.every_rank(|_, program| {
            program.line(source, LINE);
            program.call(Call::Collective {
                group: GroupId::WORLD,
                collective,
                count,
                input,
                output,
                algorithm,
                channels: self.channels.filter(|_| table.is_none()),
                segments: self.segments.filter(|_| table.is_none()),
                schedule,
                splits: None,
            });
        })
    }

    /// The script, as it would be run with PyTorch.
    fn program(&self) -> String {
        let op = self.collective.reduce_op();
        let op = op.map(|op| format!(", op={}", op.python())).unwrap_or_default();
        let call = match self.collective {
            Collective::Broadcast { root } => format!("broadcast(tensor, src={root})"),
            Collective::AllReduce { .. } => format!("all_reduce(tensor{op})"),
            Collective::Reduce { root, .. } => format!("reduce(tensor, dst={root}{op})"),
            Collective::AllGather => "all_gather_into_tensor(output, input)".into(),
            Collective::Gather { root } => format!("gather(input, outputs, dst={root})"),
            Collective::Scatter { root } => format!("scatter(output, inputs, src={root})"),
            Collective::ReduceScatter { .. } => format!("reduce_scatter_tensor(output, input{op})"),
            Collective::AllToAll => "all_to_all_single(output, input)".into(),
            Collective::Barrier => "barrier()".into(),
            Collective::MonitoredBarrier { .. } => "monitored_barrier()".into(),
        };
        format!("import torch\nimport torch.distributed as dist\n\ndist.{call}\n")
    }
}

/// The line of the call in [`CollectiveLab::program`].
const LINE: u32 = 4;
