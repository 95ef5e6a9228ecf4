//! A plan's operations as calls: what the ranks of a collective must agree on, and what a trace
//! tells of a call. The simulator and the executors make both from here.

use super::{Action, Plan, Program, TensorId};
use crate::dtype::Dtype;
use crate::group::GroupId;
use crate::rank::{GlobalRank, GroupRank};
use crate::schedule::{Algorithm, Buffer, Layout, Schedule};
use crate::trace::{Call, Frame, TensorShape};
use std::collections::BTreeMap;

/// What the ranks of a collective must agree on for its messages to match.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature {
    /// The call, how it is carried out, and among how many.
    pub schedule: Schedule,
    /// The element type; unknown for a barrier.
    pub dtype: Dtype,
    /// Elements a rank.
    pub count: u64,
}

impl Action {
    /// The tensors that the operation names: input and output, or a point-to-point call's one.
    pub fn tensors(&self) -> [Option<TensorId>; 2] {
        match self {
            Action::Collective { input, output, .. } => [*input, *output],
            Action::Send { tensor, .. } | Action::Recv { tensor, .. } => [Some(*tensor), None],
            Action::Wait { .. } | Action::Compute { .. } | Action::Sleep { .. } => [None, None],
        }
    }

    /// The group that the operation calls; `None` if it is no call.
    pub fn group(&self) -> Option<GroupId> {
        match self {
            Action::Collective { group, .. }
            | Action::Send { group, .. }
            | Action::Recv { group, .. } => Some(*group),
            Action::Wait { .. } | Action::Compute { .. } | Action::Sleep { .. } => None,
        }
    }
}

impl Program {
    /// The tensors that the program uses, in id order: those that its ranks make and report.
    pub fn tensors(&self) -> Vec<TensorId> {
        let named = self.ops.iter().flat_map(|op| op.action.tensors());
        let mut tensors: Vec<_> = named.flatten().collect();
        tensors.sort_unstable();
        tensors.dedup();
        tensors
    }
}

impl Plan {
    /// The signature of a collective as `rank` calls it; `None` for other operations, and for
    /// calls that a checked plan does not have.
    pub fn signature(&self, rank: GlobalRank, action: &Action) -> Option<Signature> {
        let Action::Collective { group, collective, count, input, output, algorithm, .. } = action
        else {
            return None;
        };
        let group = self.group(*group)?;
        group.group_rank(rank)?;
        let algorithm = algorithm.unwrap_or(Algorithm::of(*collective)[0]);
        let schedule = Schedule::new(*collective, algorithm, group.size()).ok()?;
        let tensor = output.or(*input).and_then(|id| self.tensor(id));
        let dtype = tensor.map_or(Dtype::Unknown, |tensor| tensor.dtype);
        Some(Signature { schedule, dtype, count: *count })
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
                for op in &program.ops {
                    if let Some(group) = op.action.group() {
                        let most = most.entry(group).or_default();
                        *most = self.scratch_of(&op.action).unwrap_or(0).max(*most);
                    }
                }
                most.into_values().fold(0, u64::saturating_add)
            })
            .collect();
        let programs = self.program_of.iter().filter_map(|p| per_program.get(*p as usize));
        programs.copied().fold(0, u64::saturating_add)
    }

    /// A rank's scratch bytes for one call; schedules need as much on every rank.
    fn scratch_of(&self, action: &Action) -> Option<u64> {
        let Action::Collective { group, collective, count, input, output, algorithm, .. } = action
        else {
            return None;
        };
        let algorithm = algorithm.unwrap_or(Algorithm::of(*collective)[0]);
        let schedule = Schedule::new(*collective, algorithm, self.group(*group)?.size()).ok()?;
        let tensor = output.or(*input).and_then(|id| self.tensor(id))?;
        let bytes = tensor.dtype.size_bytes();
        let layout = Layout::new(schedule, *count, bytes);
        Some(layout.grid(GroupRank(0), Buffer::Scratch).elements.saturating_mul(bytes))
    }

    /// A trace's account of the call that operation `op` of `rank` makes, as number `seq` of its
    /// group; `None` if it makes none.
    pub fn call(&self, rank: GlobalRank, op: u32, seq: u64) -> Option<Call> {
        let operation = self.program(rank)?.ops.get(op as usize)?;
        let action = &operation.action;
        let group = action.group()?;
        let (collective, peer, tag) = match action {
            Action::Collective { collective, .. } => (Some(*collective), None, 0),
            Action::Send { peer, tag, .. } | Action::Recv { peer, tag, .. } => {
                (None, Some(*peer), *tag)
            }
            _ => return None,
        };
        let shape = |id: Option<TensorId>| {
            let tensor = id.and_then(|id| self.tensor(id)).into_iter();
            tensor.map(|t| TensorShape { shape: vec![t.numel], dtype: t.dtype }).collect()
        };
        let (input, output) = self.passed(rank, action);
        let stack = operation.at.map(|at| Frame {
            function: String::new(),
            file: self.sources.get(at.source as usize).map_or_else(String::new, |s| s.path.clone()),
            line: at.line,
        });
        Some(Call {
            op: action.name().to_owned(),
            group,
            seq: Some(seq),
            p2p: collective.is_none(),
            peer,
            tag,
            inputs: shape(input),
            outputs: shape(output),
            reduce_op: collective.and_then(|collective| collective.reduce_op()),
            root: collective.and_then(|collective| collective.root()),
            plan_op: Some(op),
            stack: stack.into_iter().collect(),
            record_id: None,
        })
    }

    /// The tensors that `rank` really passes: a program shared with the root names the root's too.
    fn passed(&self, rank: GlobalRank, action: &Action) -> (Option<TensorId>, Option<TensorId>) {
        match (action, self.signature(rank, action)) {
            (Action::Send { tensor, .. }, _) => (Some(*tensor), None),
            (Action::Recv { tensor, .. }, _) => (None, Some(*tensor)),
            (Action::Collective { group, collective, input, output, .. }, Some(signature)) => {
                if collective.in_place() {
                    return (*output, *output);
                }
                let me = self.group(*group).and_then(|group| group.group_rank(rank));
                let (size, count) = (signature.schedule.size(), signature.count);
                me.map_or((None, None), |me| {
                    let passes_input = collective.input_elements(size, me, count);
                    let gets_output = collective.output_elements(size, me, count);
                    (passes_input.and(*input), gets_output.and(*output))
                })
            }
            _ => (None, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collective::Collective;
    use crate::reduce::ReduceOp;
    use crate::scenario::CollectiveLab;

    /// A one-shot all_reduce keeps every rank's tensor on every rank: what bounds memory must see
    /// it.
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
}
