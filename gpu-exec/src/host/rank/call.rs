//! A call as a trace tells it, from the plan's operation.

use lockstep_core::group::GroupId;
use lockstep_core::plan::{Action, Plan, TensorId};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{Call, Frame, TensorShape};

/// The call that operation `op` of `rank`'s program makes as its group's `seq`-th; `None` for
/// operations that are no calls.
pub(super) fn call_of(plan: &Plan, rank: GlobalRank, op: u32, seq: u64) -> Option<Call> {
    let operation = plan.program(rank)?.ops.get(op as usize)?;
    let action = &operation.action;
    let shapes = |id: Option<TensorId>| -> Vec<TensorShape> {
        let tensor = id.and_then(|id| plan.tensor(id));
        tensor.map(|t| TensorShape { shape: vec![t.numel], dtype: t.dtype }).into_iter().collect()
    };
    let base = |group: GroupId| Call {
        op: action.name().to_owned(),
        group,
        seq: Some(seq),
        p2p: false,
        peer: None,
        tag: 0,
        inputs: Vec::new(),
        outputs: Vec::new(),
        reduce_op: None::<ReduceOp>,
        root: None::<GroupRank>,
        plan_op: Some(op),
        stack: operation
            .at
            .map(|at| Frame {
                function: String::new(),
                file: plan
                    .sources
                    .get(at.source as usize)
                    .map_or_else(String::new, |source| source.path.clone()),
                line: at.line,
            })
            .into_iter()
            .collect(),
        record_id: None,
    };
    Some(match action {
        Action::Collective { group, collective, count, input, output, .. } => {
            let members = plan.group(*group)?;
            let (size, me) = (members.size(), members.group_rank(rank)?);
            // A program shared with the root names the root's tensors too; only what this rank
            // passes counts.
            let passed = |needed: Option<u64>, tensor: &Option<TensorId>| needed.and(*tensor);
            let output = passed(collective.output_elements(size, me, *count), output);
            let input = match collective.in_place() {
                true => output,
                false => passed(collective.input_elements(size, me, *count), input),
            };
            Call {
                inputs: shapes(input),
                outputs: shapes(output),
                reduce_op: collective.reduce_op(),
                root: collective.root(),
                ..base(*group)
            }
        }
        Action::Send { group, peer, tensor, tag, .. } => Call {
            p2p: true,
            peer: Some(*peer),
            tag: *tag,
            inputs: shapes(Some(*tensor)),
            ..base(*group)
        },
        Action::Recv { group, peer, tensor, tag, .. } => Call {
            p2p: true,
            peer: Some(*peer),
            tag: *tag,
            outputs: shapes(Some(*tensor)),
            ..base(*group)
        },
        Action::Wait { .. } | Action::Compute { .. } | Action::Sleep { .. } => return None,
    })
}
