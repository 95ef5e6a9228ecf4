//! The check that a plan is runnable: every reference holds and every tensor fits its call.
//!
//! Ranks that disagree with each other are *not* errors here: a plan that hangs is what Lockstep
//! is for. A call that its own rank could not even make is.

use super::{
    Action, Call, CallersId, Op, OpProblem, Plan, PlanError, SourceLine, TensorCopy, TensorId,
    TensorProblem,
};
use crate::collective::Collective;
use crate::collective::Splits;
use crate::dtype::Dtype;
use crate::group::{GroupId, ProcessGroup};
use crate::rank::{GlobalRank, MAX_WORLD_SIZE};
use crate::schedule::Algorithm;
use std::collections::{BTreeMap, BTreeSet};

/// The most elements of a tensor, for the same reason.
const MAX_NUMEL: u64 = 1 << 40;

impl Plan {
    /// Checks every reference and size. Readers and the builder call it; a plan that was changed
    /// by hand should be checked again before it is run.
    ///
    /// # Errors
    /// The first thing that makes the plan impossible to run.
    pub fn check(&self) -> Result<(), PlanError> {
        self.check_world()?;
        for tensor in &self.tensors {
            let bad = |why| PlanError::BadTensor { name: tensor.name.clone(), why };
            if !Dtype::COMPUTABLE.contains(&tensor.dtype) {
                return Err(bad(TensorProblem::Dtype(tensor.dtype)));
            }
            if tensor.data.0.len() as u64 > tensor.bytes() {
                let (data, bytes) = (tensor.data.0.len(), tensor.bytes());
                return Err(bad(TensorProblem::Data { data, bytes }));
            }
            if tensor.numel > MAX_NUMEL {
                return Err(bad(TensorProblem::TooLarge(tensor.numel)));
            }
        }
        let mut checked: Vec<Option<OfEachRank>> = vec![None; self.programs.len()];
        for (rank, &program) in self.program_of.iter().enumerate() {
            let (rank, program) = (GlobalRank(rank as u32), program as usize);
            match &checked[program] {
                Some(left) => self.check_rank(rank, program, left)?,
                None => checked[program] = Some(self.check_once(rank, program)?),
            }
        }
        Ok(())
    }

    /// Checks the parts of a program that can differ on this rank; the program was checked for another rank
    /// before.
    fn check_rank(
        &self,
        rank: GlobalRank,
        program: usize,
        left: &OfEachRank,
    ) -> Result<(), PlanError> {
        for (group, op) in &left.groups {
            let member = self.member_group(rank, *group).map(|_| ());
            member.map_err(|why| self.bad_op(rank, program, *op, why))?;
        }
        for op in &left.calls {
            for call in self.programs[program].ops[*op].action.calls() {
                self.check_call(rank, call).map_err(|why| self.bad_op(rank, program, *op, why))?;
            }
        }
        Ok(())
    }

    fn check_world(&self) -> Result<(), PlanError> {
        let world_size = self.world_size;
        if world_size == 0 {
            return Err(PlanError::EmptyWorld);
        }
        if world_size > MAX_WORLD_SIZE {
            return Err(PlanError::WorldTooLarge(world_size));
        }
        let world = self.groups.first().map(ProcessGroup::ranks).unwrap_or_default();
        if !world.iter().copied().eq((0..world_size).map(GlobalRank)) {
            return Err(PlanError::NoDefaultGroup);
        }
        for group in &self.groups {
            if let Some(&rank) = group.ranks().iter().find(|rank| rank.0 >= world_size) {
                let group = group.name().to_owned();
                return Err(PlanError::RankOutside { group, rank, world_size });
            }
            if group.timeout_ms() == 0 {
                return Err(PlanError::NoTime { group: group.name().to_owned() });
            }
        }
        let programs = self.programs.len();
        let all_known = self.program_of.iter().all(|program| (*program as usize) < programs);
        if self.program_of.len() != world_size as usize || !all_known {
            return Err(PlanError::BadProgramTable { programs, world_size });
        }
        Ok(())
    }

    /// Checks a program for the first rank that runs it, and returns the calls to check for the others: one
    /// of each kind, since a training loop makes a few kinds many times.
    fn check_once(&self, rank: GlobalRank, program: usize) -> Result<OfEachRank, PlanError> {
        let ops = &self.programs[program].ops;
        let mut seen = BTreeSet::new();
        let mut left = OfEachRank::default();
        for (index, op) in ops.iter().enumerate() {
            let checked = match &op.action {
                Action::Wait { timeout_ms: Some(0), .. } => Err(OpProblem::NoTime),
                Action::Wait { op, .. } | Action::Query { op, .. } => {
                    match ops[..index].get(*op as usize) {
                        Some(waited) if waited.action.is_async() => Ok(()),
                        Some(_) => Err(OpProblem::NotAsynchronous(*op)),
                        None => Err(OpProblem::NoOperation(*op)),
                    }
                }
                Action::Coalesced { calls, .. } if calls.is_empty() => Err(OpProblem::NoCall),
                Action::Copy(copy) => self.check_copy(copy),
                _ => Ok(()),
            };
            let checked = checked.and_then(|()| self.check_origin(op));
            checked.map_err(|why| self.bad_op(rank, program, index, why))?;
            // Not `any`: every call of the operation is to be remembered.
            let new = op.action.calls().iter().map(call_key).filter(|key| !seen.contains(key));
            let new: Vec<_> = new.collect();
            if new.is_empty() {
                continue;
            }
            seen.extend(new);
            for call in op.action.calls() {
                let checked =
                    self.check_collective(call).and_then(|()| self.check_call(rank, call));
                checked.map_err(|why| self.bad_op(rank, program, index, why))?;
                left.groups.entry(call.group()).or_insert(index);
            }
            if op.action.calls().iter().any(depends_on_the_rank) {
                left.calls.push(index);
            }
        }
        Ok(left)
    }

    fn check_origin(&self, op: &Op) -> Result<(), OpProblem> {
        let is_known = |at: &SourceLine| (at.source as usize) < self.sources.len();
        if let Some(at) = op.at.filter(|at| !is_known(at)) {
            return Err(OpProblem::NoSource(at.source));
        }
        let callers = |id: CallersId| self.callers.get(id.index());
        match op.called_from {
            Some(id) if !callers(id).is_some_and(|callers| callers.0.iter().all(is_known)) => {
                Err(OpProblem::NoCallers(id.into()))
            }
            _ => Ok(()),
        }
    }

    fn check_copy(&self, copy: &TensorCopy) -> Result<(), OpProblem> {
        let TensorCopy { from, from_offset, into, into_offset, count, reduce, .. } = copy;
        let mut dtypes = Vec::new();
        for (id, offset) in [(*from, *from_offset), (*into, *into_offset)] {
            let tensor = self.tensor(id).ok_or(OpProblem::NoTensor(id))?;
            if offset.checked_add(*count).is_none_or(|end| end > tensor.numel) {
                let (count, numel) = (*count, tensor.numel);
                let tensor = tensor.name.clone();
                return Err(OpProblem::Outside { count, offset, tensor, numel });
            }
            dtypes.push(tensor.dtype);
        }
        match (&dtypes[..], reduce) {
            ([a, b], _) if a != b => Err(OpProblem::CopyDtypes(*a, *b)),
            ([dtype, _], Some(op)) if !op.supports(*dtype) => {
                Err(OpProblem::Reduction { op: *op, dtype: *dtype })
            }
            _ => Ok(()),
        }
    }

    /// Checks a call for one rank: membership, peers and sizes depend on the rank.
    fn check_call(&self, rank: GlobalRank, call: &Call) -> Result<(), OpProblem> {
        match call {
            Call::Collective { group, .. } => {
                self.member_group(rank, *group)?;
                self.check_tensors(rank, call)
            }
            Call::Send { group, peer, tensor, .. } => {
                self.check_peer(rank, *group, Some(peer.0))?;
                self.tensor(*tensor).map(|_| ()).ok_or(OpProblem::NoTensor(*tensor))
            }
            Call::Recv { group, peer, tensor, .. } => {
                self.check_peer(rank, *group, peer.map(|peer| peer.0))?;
                self.tensor(*tensor).map(|_| ()).ok_or(OpProblem::NoTensor(*tensor))
            }
        }
    }

    fn bad_op(&self, rank: GlobalRank, program: usize, op: usize, why: OpProblem) -> PlanError {
        let found = &self.programs[program].ops[op];
        PlanError::BadOp {
            rank,
            op,
            name: found.action.name().to_owned(),
            line: found.at.map(|at| self.describe_line(at)),
            why: Box::new(why),
        }
    }

    fn member_group(&self, rank: GlobalRank, id: GroupId) -> Result<&ProcessGroup, OpProblem> {
        let group = self.group(id).ok_or(OpProblem::NoGroup(id))?;
        match group.group_rank(rank) {
            Some(_) => Ok(group),
            None => Err(OpProblem::NotAMember { rank, group: group.label().to_owned() }),
        }
    }

    fn check_collective(&self, call: &Call) -> Result<(), OpProblem> {
        let Call::Collective { group, collective, count, splits, .. } = call else {
            return Ok(());
        };
        let schedule = match self.schedule(call) {
            Some(schedule) => schedule?,
            None => return Ok(()),
        };
        if collective.is_barrier() && *count != 0 {
            return Err(OpProblem::BarrierCount);
        }
        if let Call::Collective { schedule: Some(_), algorithm, channels, segments, .. } = call
            && (algorithm.is_some() || channels.is_some() || segments.is_some())
        {
            return Err(OpProblem::FileSaysAll);
        }
        let granularity = u64::from(schedule.granularity());
        if !count.is_multiple_of(granularity) {
            let (count, schedule) = (*count, schedule.to_string());
            return Err(OpProblem::Granularity { count, granularity, schedule });
        }
        let Some(splits) = splits else { return Ok(()) };
        let size = self.group(*group).map_or(0, ProcessGroup::size) as usize;
        if *collective != Collective::AllToAll {
            return Err(OpProblem::NoSplits(*collective));
        }
        if *count != 0 {
            return Err(OpProblem::SplitsAndCount);
        }
        for (which, split) in [("input", &splits.input), ("output", &splits.output)] {
            if split.len() != size {
                let found = split.len();
                return Err(OpProblem::SplitsOfRanks { found, which, size });
            }
        }
        if (schedule.channels(), schedule.segments()) != (1, 1) {
            return Err(OpProblem::SplitsInParts);
        }
        match schedule.algorithm() {
            Some(Algorithm::Direct | Algorithm::Pairwise) => Ok(()),
            Some(other) => Err(OpProblem::SplitsBy(other)),
            None => Err(OpProblem::SplitsByFile),
        }
    }

    fn check_tensors(&self, rank: GlobalRank, call: &Call) -> Result<(), OpProblem> {
        let Call::Collective { group, collective, count, input, output, splits, .. } = call else {
            return Ok(());
        };
        let group = self.member_group(rank, *group)?;
        let Some(me) = group.group_rank(rank) else {
            return Ok(());
        };
        let size = group.size();
        let total = |splits: &[u64]| splits.iter().fold(0, |sum: u64, n| sum.saturating_add(*n));
        let (needs_in, needs_out) = match splits {
            Some(splits) => (Some(total(&splits.input)), Some(total(&splits.output))),
            None => (
                collective.input_elements(size, me, *count),
                collective.output_elements(size, me, *count),
            ),
        };
        let mut dtypes = Vec::new();
        for (which, tensor, elements) in
            [("input", *input, needs_in), ("output", *output, needs_out)]
        {
            let (id, elements) = match (tensor, elements) {
                (Some(id), Some(elements)) => (id, elements),
                (None, Some(_)) => return Err(OpProblem::Lacks(which)),
                // A program shared with the root names the root's tensors too: they are not used.
                (_, None) => continue,
            };
            let tensor = self.tensor(id).ok_or(OpProblem::NoTensor(id))?;
            if tensor.numel != elements && splits.is_some() {
                let (numel, tensor) = (tensor.numel, tensor.name.clone());
                return Err(OpProblem::SplitsOfTensor { which, tensor, numel, total: elements });
            }
            if tensor.numel != elements {
                let (count, numel, tensor) = (*count, tensor.numel, tensor.name.clone());
                return Err(OpProblem::Numel { which, tensor, numel, count, size, elements });
            }
            if let Some(op) = collective.reduce_op().filter(|op| !op.supports(tensor.dtype)) {
                return Err(OpProblem::Reduction { op, dtype: tensor.dtype });
            }
            dtypes.push(tensor.dtype);
        }
        match dtypes[..] {
            [a, b] if a != b => Err(OpProblem::Dtypes(a, b)),
            _ => Ok(()),
        }
    }

    fn check_peer(
        &self,
        rank: GlobalRank,
        group: GroupId,
        peer: Option<u32>,
    ) -> Result<(), OpProblem> {
        let group = self.member_group(rank, group)?;
        let Some(peer) = peer else {
            return Ok(());
        };
        if peer >= group.size() {
            return Err(OpProblem::NoPeer { peer, size: group.size() });
        }
        if group.ranks()[peer as usize] == rank {
            return Err(OpProblem::Itself);
        }
        Ok(())
    }
}

/// The checks of a program that are left for each of the ranks that run it.
#[derive(Clone, Debug, Default)]
struct OfEachRank {
    /// The groups that it calls in, and the first operation that does.
    groups: BTreeMap<GroupId, usize>,
    /// Operations whose tensors or peers fit one rank and not another.
    calls: Vec<usize>,
}

/// True if a call can be right for one member of its group and wrong for another.
fn depends_on_the_rank(call: &Call) -> bool {
    match call {
        Call::Collective { collective, .. } => {
            collective.root().is_some() && !collective.in_place()
        }
        // A rank is not its own peer.
        Call::Send { .. } | Call::Recv { .. } => true,
    }
}

/// The parts of a call that distinguish it from others, as far as [`Plan::check`] is concerned.
type CallKey<'a> = (GroupId, Option<CollectiveKey<'a>>, [Option<TensorId>; 2], Option<u32>);
type CollectiveKey<'a> = (Collective, u64, How, Option<&'a Splits>);
/// Algorithm, channels, segments and schedule.
type How = (Option<Algorithm>, Option<u32>, Option<u32>, Option<u32>);

fn call_key(call: &Call) -> CallKey<'_> {
    let (collective, peer) = match call {
        Call::Collective {
            collective,
            count,
            algorithm,
            channels,
            segments,
            schedule,
            splits,
            ..
        } => {
            let how = (*algorithm, *channels, *segments, *schedule);
            (Some((*collective, *count, how, splits.as_deref())), None)
        }
        Call::Send { peer, .. } => (None, Some(peer.0)),
        Call::Recv { peer, .. } => (None, peer.map(|peer| peer.0)),
    };
    (call.group(), collective, call.tensors(), peer)
}

#[cfg(test)]
mod tests;
