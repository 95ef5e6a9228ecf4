//! The programs of a plan's ranks, changed one by one.

use crate::recover::is_stay;
use lockstep_core::plan::{Action, Call, Op, Plan, Program};
use lockstep_core::rank::GlobalRank;

/// Gives a rank a program, which it shares with the rank before if they are equal.
pub(crate) fn set_program(plan: &mut Plan, rank: GlobalRank, program: Program) {
    if plan.programs.last() != Some(&program) {
        plan.programs.push(program);
    }
    let index = plan.programs.len().saturating_sub(1) as u32;
    if let Some(of) = plan.program_of.get_mut(rank.index()) {
        *of = index;
    }
}

/// Stores equal programs once, and none that no rank has.
pub(crate) fn share_programs(plan: &mut Plan) {
    let old = std::mem::take(&mut plan.programs);
    let mut programs: Vec<Program> = Vec::new();
    for of in &mut plan.program_of {
        let own = old.get(*of as usize).cloned().unwrap_or_default();
        let known = programs.iter().rposition(|known| *known == own);
        *of = known.unwrap_or_else(|| {
            programs.push(own);
            programs.len() - 1
        }) as u32;
    }
    plan.programs = programs;
}

/// An operation that the program waits for at once: what is inserted has no later wait.
pub(crate) fn holding(op: &Op) -> Op {
    let mut op = op.clone();
    if let Action::Call { async_op, .. } | Action::Coalesced { async_op, .. } = &mut op.action {
        *async_op = false;
    }
    op
}

/// A program with operations inserted and taken out, whose waits name the operations that they named before.
pub(crate) fn rewritten(own: &Program, before: &[(usize, Op)], out: &[usize]) -> Vec<Op> {
    let mut ops = Vec::with_capacity(own.ops.len() + before.len());
    let mut moved: Vec<Option<u32>> = Vec::with_capacity(own.ops.len());
    let end = own.ops.iter().position(is_stay).unwrap_or(own.ops.len());
    for at in 0..=end {
        ops.extend(before.iter().filter(|(place, _)| *place == at).map(|(_, op)| op.clone()));
        // A rank that stayed at a call goes on now.
        let Some(op) = own.ops.get(at).filter(|op| !is_stay(op)) else { continue };
        if out.contains(&at) {
            moved.push(None);
            continue;
        }
        let mut op = op.clone();
        if let Action::Wait { op: of, .. } | Action::Query { op: of, .. } = &mut op.action {
            let Some(place) = moved.get(*of as usize).copied().flatten() else {
                moved.push(None);
                continue;
            };
            *of = place;
        }
        moved.push(Some(ops.len() as u32));
        ops.push(op);
    }
    ops
}

/// `all_reduce of dp (train.py:88)`.
pub(crate) fn named(plan: &Plan, op: &Op) -> String {
    let calls = op.action.calls();
    let Some(first) = calls.first() else { return String::new() };
    let group = plan.group(first.group()).map_or("?", |group| group.label());
    let line = op.at.map(|at| format!(" ({})", plan.describe_line(at))).unwrap_or_default();
    format!("{} of {group}{line}", first.name())
}

/// `all_reduce of 10 float32 in dp (train.py:88)`: with the tensor, by which it differs from one of the same line.
pub(crate) fn named_with_tensor(plan: &Plan, op: &Op) -> String {
    let call = op.action.calls().first();
    let tensor = call.and_then(|call| call.tensors().into_iter().flatten().last());
    let Some(tensor) = tensor.and_then(|id| plan.tensor(id)) else { return named(plan, op) };
    let with = format!(" of {} {} in ", tensor.numel, tensor.dtype.name());
    named(plan, op).replacen(" of ", &with, 1)
}

/// A key that is equal for operations that make the same collectives.
pub(crate) fn calls_key(plan: &Plan, op: &Op) -> Vec<(u32, String, u64)> {
    let of_call = |call: &Call| {
        let tensor = call.tensors().into_iter().flatten().next().and_then(|id| plan.tensor(id));
        let dtype = tensor.map_or("", |tensor| tensor.dtype.name());
        let name = match call.collective() {
            Some(collective) => format!("{collective:?} {dtype}"),
            None => call.name().to_owned(),
        };
        let count = match call {
            Call::Collective { count, .. } => *count,
            _ => 0,
        };
        (call.group().0, name, count)
    };
    op.action.calls().iter().map(of_call).collect()
}
