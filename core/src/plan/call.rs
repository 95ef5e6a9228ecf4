//! The signature that the ranks of a collective must agree on for its messages to match, by the
//! plan: its schedule, element type and count, and the memory that the schedule takes.

use super::{Action, Call, Plan, Program, TensorId};
use crate::dtype::Dtype;
use crate::group::{BackendName, GroupId, ProcessGroup};
use crate::rank::GlobalRank;
use crate::schedule::{Algorithm, Layout, Schedule, ScheduleError};
use std::collections::BTreeMap;

/// The values that the ranks of a collective must agree on for its messages to match.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature {
    /// The call, how it is carried out, and among how many.
    pub schedule: Schedule,
    /// The element type; unknown for a barrier.
    pub dtype: Dtype,
    /// Elements a rank.
    pub count: u64,
}

impl Program {
    /// The tensors that the program uses, in id order: those that its ranks make and report.
    pub fn tensors(&self) -> Vec<TensorId> {
        let calls = self.ops.iter().flat_map(|op| op.action.calls()).flat_map(Call::tensors);
        let copied = self.ops.iter().flat_map(|op| match &op.action {
            Action::Copy(copy) => [Some(copy.from), Some(copy.into)],
            _ => [None, None],
        });
        let mut tensors: Vec<_> = calls.chain(copied).flatten().collect();
        tensors.sort_unstable();
        tensors.dedup();
        tensors
    }
}

impl Plan {
    /// The signature of a collective as `rank` calls it; `None` for point-to-point calls, and for
    /// calls that a checked plan does not have.
    pub fn signature(&self, rank: GlobalRank, call: &Call) -> Option<Signature> {
        let Call::Collective { group, count, input, output, .. } = call else {
            return None;
        };
        self.group(*group)?.group_rank(rank)?;
        let schedule = self.schedule(call)?.ok()?;
        let tensor = output.or(*input).and_then(|id| self.tensor(id));
        let dtype = tensor.map_or(Dtype::Unknown, |tensor| tensor.dtype);
        Some(Signature { schedule, dtype, count: *count })
    }

    /// The schedule of a collective; `None` for point-to-point calls and unknown groups.
    ///
    /// # Errors
    /// When the collective cannot be carried out as the call asks.
    pub fn schedule(&self, call: &Call) -> Option<Result<Schedule, ScheduleError>> {
        let Call::Collective {
            group,
            collective,
            algorithm,
            channels,
            segments,
            schedule,
            splits,
            count,
            input,
            output,
        } = call
        else {
            return None;
        };
        let id = *group;
        let group = self.group(id)?;
        if let Some(index) = schedule {
            let table = self.schedules.get(*index as usize).ok_or(ScheduleError::NoTable(*index));
            return Some(table.and_then(|t| Schedule::from_table(t, *collective, group.size())));
        }
        let bytes = self.call_bytes(*count, *input, *output);
        let nodes = self.ranks_per_node_in(id, group);
        let shared = group.backend() == BackendName::Host && nodes == group.size();
        let default = || match splits {
            // A family that packs parts of several ranks together cannot know the others' splits.
            Some(_) => Algorithm::Direct,
            None => shared
                .then(|| Algorithm::in_shared_memory(*collective, group.size(), bytes))
                .flatten()
                .unwrap_or_else(|| Algorithm::default_of(*collective, group.backend())),
        };
        let algorithm = algorithm.unwrap_or_else(default);
        let schedule = Schedule::new(*collective, algorithm, group.size());
        let schedule = schedule.and_then(|schedule| match channels {
            Some(channels) => schedule.with_channels(*channels),
            None => Ok(schedule),
        });
        let schedule = schedule.and_then(|schedule| match segments {
            Some(segments) => schedule.with_segments(*segments),
            None => Ok(schedule.sized(bytes)),
        });
        Some(schedule.and_then(|schedule| schedule.with_ranks_per_node(nodes)))
    }

    /// Bytes of `count` elements of a call's tensors.
    fn call_bytes(&self, count: u64, input: Option<TensorId>, output: Option<TensorId>) -> u64 {
        let tensor = output.or(input).and_then(|id| self.tensor(id));
        count.saturating_mul(tensor.map_or(0, |tensor| tensor.dtype.size_bytes()))
    }

    /// Neighbouring ranks of a group that are on one node: 1 if they are not equally many on every
    /// node but the last, so that every rank counts as a node of its own.
    fn ranks_per_node_in(&self, id: GroupId, group: &ProcessGroup) -> u32 {
        if self.ranks_per_node == 0 {
            return group.size();
        }
        // The default group has all ranks in order: it is not walked through for every call.
        if id == GroupId::WORLD {
            return self.ranks_per_node.min(group.size());
        }
        let nodes = group.ranks().iter().map(|rank| rank.0 / self.ranks_per_node);
        let nodes: Vec<_> = nodes.collect();
        let lengths: Vec<_> = nodes.chunk_by(|a, b| a == b).map(<[u32]>::len).collect();
        let first = lengths.first().copied().unwrap_or(1);
        let (last, others) = lengths.split_last().unwrap_or((&1, &[]));
        let regular = others.iter().all(|length| *length == first) && *last <= first;
        if regular { first as u32 } else { 1 }
    }

    /// Bytes of all tensors that the ranks make, all ranks together.
    pub fn tensor_bytes(&self) -> u64 {
        let per_program: Vec<u64> = self
            .programs
            .iter()
            .map(|program| {
                let tensors = program.tensors().into_iter().filter_map(|id| self.tensor(id));
                tensors.map(|tensor| tensor.bytes()).fold(0, u64::saturating_add)
            })
            .collect();
        let programs = self.program_of.iter().filter_map(|p| per_program.get(*p as usize));
        programs.copied().fold(0, u64::saturating_add)
    }

    /// Bytes of scratch memory that the schedules of the plan's calls take, all ranks together: on
    /// each rank and for each of its groups, those of the hungriest call.
    pub fn scratch_bytes(&self) -> u64 {
        let per_program: Vec<u64> = self
            .programs
            .iter()
            .map(|program| {
                let mut most: BTreeMap<GroupId, u64> = BTreeMap::new();
                for call in program.ops.iter().flat_map(|op| op.action.calls()) {
                    let most = most.entry(call.group()).or_default();
                    *most = self.scratch_of(call).unwrap_or(0).max(*most);
                }
                most.into_values().fold(0, u64::saturating_add)
            })
            .collect();
        let programs = self.program_of.iter().filter_map(|p| per_program.get(*p as usize));
        programs.copied().fold(0, u64::saturating_add)
    }

    /// The most scratch bytes of a rank for one call, with its share of the switches' scratch.
    fn scratch_of(&self, call: &Call) -> Option<u64> {
        let Call::Collective { count, input, output, .. } = call else {
            return None;
        };
        let schedule = self.schedule(call)?.ok()?;
        let tensor = output.or(*input).and_then(|id| self.tensor(id))?;
        let bytes = tensor.dtype.size_bytes();
        let layout = Layout::new(schedule, *count, bytes);
        Some(layout.scratch_a_rank().saturating_mul(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Collective;
    use crate::plan::CollectiveLab;
    use crate::plan::{Fill, PlanBuilder};
    use crate::reduce::ReduceOp;

    /// A one-shot all_reduce keeps every rank's tensor on every rank, which the memory bound must count.
    #[test]
    fn scratch_is_counted() {
        let sum = Collective::AllReduce { op: ReduceOp::Sum };
        let mut lab = CollectiveLab::new(sum, 8, 100);
        assert_eq!(lab.plan().unwrap().scratch_bytes(), 0);
        lab.algorithm = Algorithm::OneShot;
        assert_eq!(lab.plan().unwrap().scratch_bytes(), 8 * 8 * 100 * 4);
        lab.algorithm = Algorithm::RecursiveDoubling;
        assert_eq!(lab.plan().unwrap().scratch_bytes(), 8 * 100 * 4);
    }

    fn schedule_of(collective: Collective, backend: BackendName, count: u64) -> Schedule {
        let mut plan = PlanBuilder::new("one", 8, backend).unwrap();
        let output = match collective.in_place() {
            true => Some(plan.tensor("tensor", Dtype::Float32, count, Fill::Iota)),
            false => None,
        };
        let plan = plan.every_rank(|_, program| {
            program.collective_by(GroupId::WORLD, collective, count, None, output, None);
        });
        let plan = plan.unwrap();
        plan.schedule(&plan.programs[0].ops[0].action.calls()[0]).unwrap().unwrap()
    }

    /// `ProcessGroupNCCL::barrier` is an all_reduce of one element; gloo's `barrier.cc` disseminates.
    #[test]
    fn a_barrier_is_its_backends() {
        let of = |backend| schedule_of(Collective::Barrier, backend, 0).algorithm();
        assert_eq!(of(BackendName::Nccl), Some(Algorithm::Tree));
        assert_eq!(of(BackendName::Gloo), Some(Algorithm::Dissemination));
        assert_eq!(of(BackendName::Mpi), Some(Algorithm::Dissemination));
        assert_eq!(of(BackendName::Host), Some(Algorithm::Direct));
    }

    /// Ranks of one node read each other's memory; those of several, and many, go round.
    #[test]
    fn few_ranks_of_a_host_exchange_directly() {
        let sum = Collective::AllReduce { op: ReduceOp::Sum };
        let of = |backend, count| schedule_of(sum, backend, count).algorithm();
        assert_eq!(of(BackendName::Host, 2048), Some(Algorithm::OneShot));
        assert_eq!(of(BackendName::Host, 2049), Some(Algorithm::TwoShot));
        assert_eq!(of(BackendName::Gloo, 2048), Some(Algorithm::Ring));
        let default = |ranks, nodes| {
            let mut plan = PlanBuilder::new("nodes", ranks, BackendName::Host).unwrap();
            let output = Some(plan.tensor("tensor", Dtype::Float32, 8, Fill::Iota));
            let plan = plan.every_rank(|_, program| {
                program.collective(GroupId::WORLD, sum, 8, None, output);
            });
            let mut plan = plan.unwrap();
            plan.ranks_per_node = ranks / nodes;
            let schedule = plan.schedule(&plan.programs[0].ops[0].action.calls()[0]);
            schedule.unwrap().unwrap().algorithm()
        };
        assert_eq!(default(16, 1), Some(Algorithm::OneShot));
        assert_eq!(default(16, 2), Some(Algorithm::Ring));
        assert_eq!(default(17, 1), Some(Algorithm::Ring));
    }

    /// NCCL's trees and the ring of its broadcast move 512 KiB at once: small tensors go whole.
    #[test]
    fn pipelines_are_cut_by_bytes() {
        let sum = Collective::AllReduce { op: ReduceOp::Sum };
        for (algorithm, elements, segments) in [
            (Algorithm::DoubleBinaryTree, 1000, 1),
            (Algorithm::DoubleBinaryTree, 1 << 18, 1),
            (Algorithm::DoubleBinaryTree, 1 << 20, 4),
            (Algorithm::Chain, 1 << 17, 1),
            (Algorithm::Chain, (1 << 17) + 1, 2),
            (Algorithm::Chain, 1 << 30, 256),
            (Algorithm::Ring, 1 << 30, 1),
        ] {
            let lab = CollectiveLab { algorithm, ..CollectiveLab::new(sum, 8, elements) };
            let plan = lab.plan().unwrap();
            let schedule = plan.schedule(&plan.programs[0].ops[0].action.calls()[0]);
            let schedule = schedule.unwrap().unwrap();
            assert_eq!(schedule.segments(), segments, "{algorithm}, {elements} elements");
            assert_eq!(schedule, lab.schedule(0).unwrap());
        }
        assert_eq!(schedule_of(sum, BackendName::Nccl, 1 << 20).segments(), 1);
    }
}
