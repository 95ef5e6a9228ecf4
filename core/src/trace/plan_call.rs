//! A plan's call as a trace records it. The simulator and the executors both make it from here, so
//! that their traces say the same of the same call.

use super::{Call as Recorded, Frame, TensorShape};
use crate::plan::{Action, Call, Plan, TensorId};
use crate::rank::GlobalRank;
use std::sync::Arc;

/// The accounts of a plan's calls, which ranks share that make the same call one after the other.
#[derive(Clone, Debug, Default)]
pub struct PlanCalls {
    last: Option<(Same, Arc<Recorded>)>,
}

/// The facts on which a call's account depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Same {
    program: u32,
    op: u32,
    part: u32,
    seq: u64,
    /// The input and output that the rank passes: with a root, not every rank passes both.
    passed: (Option<TensorId>, Option<TensorId>),
}

impl PlanCalls {
    /// [`Plan::call`], shared with the rank that made the call before if that was the same one.
    pub fn call(
        &mut self,
        plan: &Plan,
        rank: GlobalRank,
        (op, part): (u32, u32),
        seq: u64,
    ) -> Option<Arc<Recorded>> {
        let operation = plan.program(rank)?.ops.get(op as usize)?;
        let passed = plan.passed(rank, operation.action.calls().get(part as usize)?);
        let program = *plan.program_of.get(rank.index())?;
        let same = Same { program, op, part, seq, passed };
        if let Some((known, call)) = &self.last
            && *known == same
        {
            return Some(Arc::clone(call));
        }
        let call = Arc::new(plan.call(rank, op, part, seq)?);
        self.last = Some((same, Arc::clone(&call)));
        Some(call)
    }
}

impl Plan {
    /// A trace's account of the `part`-th call (0 unless they are coalesced) that operation `op`
    /// of `rank` makes, as number `seq` of its group; `None` if it makes none.
    pub fn call(&self, rank: GlobalRank, op: u32, part: u32, seq: u64) -> Option<Recorded> {
        let operation = self.program(rank)?.ops.get(op as usize)?;
        let call = operation.action.calls().get(part as usize)?;
        let (peer, tag) = match call {
            Call::Collective { .. } => (None, 0),
            Call::Send { peer, tag, .. } => (Some(*peer), *tag),
            Call::Recv { peer, tag, .. } => (*peer, *tag),
        };
        let collective = call.collective();
        let shape = |id: Option<TensorId>| {
            let tensor = id.and_then(|id| self.tensor(id)).into_iter();
            tensor.map(|t| TensorShape { shape: vec![t.numel], dtype: t.dtype }).collect()
        };
        let (input, output) = self.passed(rank, call);
        let stack = operation.at.map(|at| Frame {
            function: String::new(),
            file: self.sources.get(at.source as usize).map_or_else(String::new, |s| s.path.clone()),
            line: at.line,
        });
        let holds = matches!(operation.action, Action::Call { async_op: false, .. });
        Some(Recorded {
            op: if holds { call.name() } else { call.async_name() }.to_owned(),
            group: call.group(),
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
    fn passed(&self, rank: GlobalRank, call: &Call) -> (Option<TensorId>, Option<TensorId>) {
        let (group, collective, input, output, splits) = match call {
            Call::Send { tensor, .. } => return (Some(*tensor), None),
            Call::Recv { tensor, .. } => return (None, Some(*tensor)),
            Call::Collective { group, collective, input, output, splits, .. } => {
                (group, collective, *input, *output, splits)
            }
        };
        if collective.in_place() {
            return (output, output);
        }
        let group = self.group(*group);
        let Some((group, me)) = group.and_then(|group| Some((group, group.group_rank(rank)?)))
        else {
            return (None, None);
        };
        if splits.is_some() {
            return (input, output);
        }
        // One element tells as well as many whether there is a tensor.
        let passes_input = collective.input_elements(group.size(), me, 1);
        let gets_output = collective.output_elements(group.size(), me, 1);
        (passes_input.and(input), gets_output.and(output))
    }
}
