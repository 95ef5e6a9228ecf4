//! Making plans in code: programs by rank, shared where they are equal.

use super::bounded::MAX_CALLERS;
use super::{
    Action, Call, Callers, CallersId, Fill, Op, Plan, PlanError, Program, Source, SourceLine,
    Tensor, TensorData, TensorId,
};
use crate::collective::Collective;
use crate::dtype::Dtype;
use crate::group::{BackendName, GroupError, GroupId, ProcessGroup};
use crate::rank::{GlobalRank, GroupRank};
use crate::schedule::{Algorithm, ProvedTable};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Builds a [`Plan`], the way a script builds a job: the world, groups, tensors, then what every
/// rank does.
///
#[doc = concat!("```\n", include_str!("../../tests/building_a_plan.rs"), "```")]
#[derive(Clone, Debug)]
pub struct PlanBuilder {
    plan: Plan,
    callers: BTreeMap<Callers, CallersId>,
}

impl PlanBuilder {
    /// A plan of `world_size` ranks whose default group uses `backend`.
    ///
    /// # Errors
    /// When `world_size` is 0 or over [`MAX_WORLD_SIZE`](crate::rank::MAX_WORLD_SIZE).
    pub fn new(
        name: impl Into<String>,
        world_size: u32,
        backend: BackendName,
    ) -> Result<PlanBuilder, PlanError> {
        if world_size > crate::rank::MAX_WORLD_SIZE {
            return Err(PlanError::WorldTooLarge(world_size));
        }
        let world = ProcessGroup::world(world_size, backend)
            .map_err(|_: GroupError| PlanError::EmptyWorld)?;
        Ok(PlanBuilder {
            callers: BTreeMap::new(),
            plan: Plan {
                name: name.into(),
                world_size,
                ranks_per_node: 0,
                groups: vec![world],
                tensors: Vec::new(),
                programs: Vec::new(),
                program_of: Vec::new(),
                sources: Vec::new(),
                schedules: Vec::new(),
                callers: Vec::new(),
            },
        })
    }

    /// Sets the timeout of every group made so far, in milliseconds.
    pub fn timeout_ms(&mut self, timeout_ms: u64) -> &mut PlanBuilder {
        for group in &mut self.plan.groups {
            *group = group.clone().with_timeout_ms(timeout_ms);
        }
        self
    }

    /// Ranks a node, in rank order; 0 for one node that holds all.
    pub fn ranks_per_node(&mut self, ranks: u32) -> &mut PlanBuilder {
        self.plan.ranks_per_node = ranks;
        self
    }

    /// `dist.new_group`.
    pub fn group(&mut self, group: ProcessGroup) -> GroupId {
        self.plan.groups.push(group);
        GroupId(self.plan.groups.len() as u32 - 1)
    }

    /// A tensor that every rank has its own of.
    pub fn tensor(
        &mut self,
        name: impl Into<String>,
        dtype: Dtype,
        numel: u64,
        fill: Fill,
    ) -> TensorId {
        let data = TensorData::default();
        self.plan.tensors.push(Tensor { name: name.into(), dtype, numel, fill, data });
        TensorId(self.plan.tensors.len() as u32 - 1)
    }

    /// A schedule from a file; returns its index for [`Call::Collective`].
    pub fn schedule(&mut self, table: ProvedTable) -> u32 {
        self.plan.schedules.push(table);
        self.plan.schedules.len() as u32 - 1
    }

    /// A source text that operations can point into; returns its index for [`SourceLine`].
    pub fn source(&mut self, path: impl Into<String>, text: impl Into<String>) -> u32 {
        self.plan.sources.push(Source { path: path.into(), text: text.into() });
        self.plan.sources.len() as u32 - 1
    }

    /// The callers of an operation's line, innermost first, for [`Op::called_from`]; `None` without any. Lines
    /// beyond the 32nd are left out: they are the launcher's.
    pub fn callers(&mut self, lines: impl IntoIterator<Item = SourceLine>) -> Option<CallersId> {
        let callers = Callers(lines.into_iter().take(MAX_CALLERS).collect());
        if callers.0.is_empty() {
            return None;
        }
        if let Some(known) = self.callers.get(&callers) {
            return Some(*known);
        }
        let id = CallersId::try_from(self.plan.callers.len() as u32).ok()?;
        self.plan.callers.push(callers.clone());
        self.callers.insert(callers, id);
        Some(id)
    }

    /// Runs `write` once per rank and finishes the plan. Equal programs are stored once.
    ///
    /// # Errors
    /// The first thing that makes the plan impossible to run.
    pub fn every_rank(
        self,
        mut write: impl FnMut(GlobalRank, &mut ProgramBuilder),
    ) -> Result<Plan, PlanError> {
        self.with_programs(|rank| {
            let mut program = ProgramBuilder::default();
            write(rank, &mut program);
            program.program
        })
    }

    /// Takes each rank's program and finishes the plan. Equal programs are stored once.
    ///
    /// # Errors
    /// The first thing that makes the plan impossible to run.
    pub fn with_programs(
        mut self,
        mut program: impl FnMut(GlobalRank) -> Program,
    ) -> Result<Plan, PlanError> {
        for rank in (0..self.plan.world_size).map(GlobalRank) {
            let program = program(rank);
            // The newest is the likeliest to be equal; odd ranks out are few.
            let known = self.plan.programs.iter().rposition(|known| *known == program);
            let index = known.unwrap_or_else(|| {
                self.plan.programs.push(program);
                self.plan.programs.len() - 1
            });
            self.plan.program_of.push(index as u32);
        }
        self.plan.check()?;
        Ok(self.plan)
    }
}

/// Writes one rank's program. Every method returns the operation's index, which
/// [`ProgramBuilder::wait`] takes.
#[derive(Clone, Debug, Default)]
pub struct ProgramBuilder {
    program: Program,
    at: Option<SourceLine>,
    via: Option<Arc<str>>,
    called_from: Option<CallersId>,
    async_op: bool,
}

impl ProgramBuilder {
    /// The following operations come from this line, by callers that are not known.
    pub fn line(&mut self, source: u32, line: u32) -> &mut ProgramBuilder {
        self.at = Some(SourceLine { source, line });
        self.called_from = None;
        self
    }

    /// The calls that led to the function of that line; see [`PlanBuilder::callers`].
    pub fn called_from(&mut self, callers: Option<CallersId>) -> &mut ProgramBuilder {
        self.called_from = callers;
        self
    }

    /// The following operations are parts of this call of the user's; of none if `None`.
    pub fn via(&mut self, call: Option<&str>) -> &mut ProgramBuilder {
        self.via = call.map(Arc::from);
        self
    }

    /// The next operation is asynchronous.
    pub fn async_op(&mut self) -> &mut ProgramBuilder {
        self.async_op = true;
        self
    }

    /// Any operation, unchanged.
    pub fn push(&mut self, action: Action) -> u32 {
        let (at, via, called_from) = (self.at, self.via.clone(), self.called_from);
        self.program.ops.push(Op { action, at, via, called_from });
        self.program.ops.len() as u32 - 1
    }

    /// A call, unchanged.
    pub fn call(&mut self, call: Call) -> u32 {
        let async_op = std::mem::take(&mut self.async_op);
        self.push(Action::call(call, async_op))
    }

    /// Calls that are made together, each a work of its own: `batch_isend_irecv`,
    /// `_coalescing_manager`.
    pub fn coalesced(&mut self, calls: Vec<Call>) -> u32 {
        let async_op = std::mem::take(&mut self.async_op);
        self.push(Action::Coalesced { calls, async_op })
    }

    /// A collective by its default algorithm.
    pub fn collective(
        &mut self,
        group: GroupId,
        collective: Collective,
        count: u64,
        input: Option<TensorId>,
        output: Option<TensorId>,
    ) -> u32 {
        self.collective_by(group, collective, count, input, output, None)
    }

    /// A collective by a given algorithm.
    pub fn collective_by(
        &mut self,
        group: GroupId,
        collective: Collective,
        count: u64,
        input: Option<TensorId>,
        output: Option<TensorId>,
        algorithm: Option<Algorithm>,
    ) -> u32 {
        let mut call = Call::collective_of(group, collective, count, input, output);
        if let Call::Collective { algorithm: chosen, .. } = &mut call {
            *chosen = algorithm;
        }
        self.call(call)
    }

    /// `dist.barrier`.
    pub fn barrier(&mut self, group: GroupId) -> u32 {
        self.collective(group, Collective::Barrier, 0, None, None)
    }

    /// `dist.send`, or `dist.isend` after [`ProgramBuilder::async_op`].
    pub fn send(&mut self, group: GroupId, peer: GroupRank, tensor: TensorId) -> u32 {
        self.call(Call::Send { group, peer, tensor, tag: 0 })
    }

    /// `dist.recv`, or `dist.irecv` after [`ProgramBuilder::async_op`].
    pub fn recv(&mut self, group: GroupId, peer: GroupRank, tensor: TensorId) -> u32 {
        self.call(Call::Recv { group, peer: Some(peer), tensor, tag: 0 })
    }

    /// `work.wait()` on an earlier asynchronous operation.
    pub fn wait(&mut self, op: u32) -> u32 {
        self.push(Action::Wait { op, timeout_ms: None })
    }

    /// Busy time.
    pub fn compute(&mut self, name: impl Into<Arc<str>>, duration_ns: u64) -> u32 {
        self.push(Action::Compute { name: name.into(), duration_ns })
    }

    /// Idle time.
    pub fn sleep(&mut self, name: impl Into<Arc<str>>, duration_ns: u64) -> u32 {
        self.push(Action::Sleep { name: name.into(), duration_ns })
    }

    /// The process ends.
    pub fn die(&mut self, how: impl Into<String>) -> u32 {
        self.push(Action::Die { how: how.into() })
    }
}
