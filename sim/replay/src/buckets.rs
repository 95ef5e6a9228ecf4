//! DDP's buckets of a recorded job, cut anew.
//!
//! The asynchronous all_reduces of one group in a step are the buckets of a backward pass. How many bytes of
//! gradients were ready when is known at the launches; between two of them gradients are assumed to become ready
//! evenly. A new bucket is launched when its last byte is ready.

use crate::rank_programs::set_program;
use lockstep_analysis::{Activity, RankStep, rank_steps};
use lockstep_core::collective::Collective;
use lockstep_core::plan::{Action, Call, Fill, Op, Plan, Program, Tensor, TensorId};
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeSet;
use std::ops::Range;

/// More buckets of one pass are not made: a plan with so many would not be DDP's.
const MOST: u64 = 4096;

/// The buckets of one backward pass in a program.
#[derive(Debug)]
struct Pass {
    /// From the first operation behind the call before to the last bucket.
    ops: Range<usize>,
    /// Their operations, in order.
    buckets: Vec<usize>,
    /// The elements of each.
    numel: Vec<u64>,
    /// Computing time before each bucket, since the one before, in nanoseconds.
    computed_ns: Vec<u64>,
}

/// Cuts the buckets of all steps at so many bytes; false if there are none. `activity` is a simulation of the plan.
pub(crate) fn rebucket(plan: &mut Plan, activity: &Activity, bytes: u64) -> bool {
    let before = plan.clone();
    let steps = rank_steps(activity);
    let made = |rank: GlobalRank, step: &RankStep| -> Vec<usize> {
        let calls =
            activity.ranks.get(rank.index()).and_then(|own| own.calls.get(step.calls.clone()));
        let ops = calls.unwrap_or_default().iter().filter_map(|call| call.plan_op);
        ops.map(|op| op as usize).collect()
    };
    // A recording shows that a call is asynchronous only where its rank went on before the call had ended: what is so on
    // one rank in one step is so on all.
    let mut asynchronous: BTreeSet<usize> = BTreeSet::new();
    for (rank, steps) in (0..).map(GlobalRank).zip(&steps) {
        let Some(program) = before.program(rank) else { continue };
        let ops = steps.iter().flat_map(|step| made(rank, step).into_iter().enumerate());
        let went_on = ops.filter(|(_, op)| {
            let op = program.ops.get(*op).map(|op| &op.action);
            matches!(op, Some(Action::Call { async_op: true, .. }))
        });
        asynchronous.extend(went_on.map(|(place, _)| place));
    }
    let mut found = false;
    plan.programs.clear();
    for rank in (0..before.world_size).map(GlobalRank) {
        let mut program = before.program(rank).cloned().unwrap_or_default();
        let steps = steps.get(rank.index()).map(Vec::as_slice).unwrap_or_default();
        // From the last to the first, so that the places of the earlier ones stay.
        for step in steps.iter().rev() {
            let ops = made(rank, step).into_iter().enumerate();
            let ops = ops.filter(|(place, _)| asynchronous.contains(place)).map(|(_, op)| op);
            let ops: Vec<usize> = ops.collect();
            if let Some(pass) = pass(&before, &program, &ops) {
                found = true;
                recut(plan, &mut program, &pass, bytes);
            }
        }
        set_program(plan, rank, program);
    }
    found
}

/// The backward pass among the asynchronous calls of a step: the all_reduces that are like the first one.
fn pass(plan: &Plan, program: &Program, calls: &[usize]) -> Option<Pass> {
    let mut buckets: Vec<usize> = Vec::new();
    for at in calls {
        let Action::Call { call, .. } = &program.ops.get(*at)?.action else { continue };
        let first = buckets.first().and_then(|first| program.ops.get(*first));
        if is_bucket(call) && first.is_none_or(|first| same_kind(plan, first, call)) {
            buckets.push(*at);
        }
    }
    let (first, last) = (*buckets.first()?, *buckets.last()?);
    let is_call = |at: &usize| program.ops.get(*at).is_some_and(|op| !op.action.calls().is_empty());
    let start = (0..first).rev().find(is_call).map_or(0, |before| before + 1);
    let (mut numel, mut computed_ns, mut ns) = (Vec::new(), Vec::new(), 0u64);
    for (at, op) in program.ops.iter().enumerate().take(last + 1).skip(start) {
        match &op.action {
            Action::Compute { duration_ns, .. } | Action::Sleep { duration_ns, .. } => {
                ns = ns.saturating_add(*duration_ns);
            }
            Action::Call { call, .. } if buckets.contains(&at) => {
                numel.push(elements(call));
                computed_ns.push(std::mem::take(&mut ns));
            }
            _ => {}
        }
    }
    Some(Pass { ops: start..last + 1, buckets, numel, computed_ns })
}

fn is_bucket(call: &Call) -> bool {
    matches!(call, Call::Collective { collective: Collective::AllReduce { .. }, .. })
}

fn elements(call: &Call) -> u64 {
    match call {
        Call::Collective { count, .. } => *count,
        Call::Send { .. } | Call::Recv { .. } => 0,
    }
}

fn tensor_of<'p>(plan: &'p Plan, call: &Call) -> Option<&'p Tensor> {
    match call {
        Call::Collective { output: Some(id), .. } => plan.tensors.get(id.index()),
        _ => None,
    }
}

/// True of a bucket of the same group, reduction and type as another one.
fn same_kind(plan: &Plan, first: &Op, call: &Call) -> bool {
    let [first] = first.action.calls() else { return false };
    let reduction = |call: &Call| match call {
        Call::Collective { collective, .. } => Some(*collective),
        Call::Send { .. } | Call::Recv { .. } => None,
    };
    let dtype = |call: &Call| tensor_of(plan, call).map(|tensor| tensor.dtype);
    (first.group(), reduction(first), dtype(first)) == (call.group(), reduction(call), dtype(call))
}

/// Puts new buckets into the place of a pass's.
fn recut(plan: &mut Plan, program: &mut Program, pass: &Pass, bytes: u64) {
    let first = pass.buckets.first().and_then(|at| program.ops.get(*at)).cloned();
    let Some(first) = first else { return };
    let Some(tensor) = first.action.calls().first().and_then(|call| tensor_of(plan, call)).cloned()
    else {
        return;
    };
    let total: u64 = pass.numel.iter().sum();
    let element = tensor.dtype.size_bytes().max(1);
    let each = (bytes / element).max(1).max(total.div_ceil(MOST)).min(total.max(1));
    let ready = Ready::of(pass);
    let mut made: Vec<Op> = Vec::new();
    let mut buckets: Vec<usize> = Vec::new();
    let (mut until, mut time_ns) = (0, 0);
    while until < total {
        let part = each.min(total - until);
        until += part;
        let ready_ns = ready.at(until);
        if ready_ns > time_ns {
            let (name, duration_ns) = ("backward".into(), ready_ns - time_ns);
            made.push(Op {
                action: Action::Compute { name, duration_ns },
                at: first.at,
                via: None,
            });
            time_ns = ready_ns;
        }
        let mut op = first.clone();
        if let Action::Call { call: Call::Collective { count, output, input, .. }, async_op } =
            &mut op.action
        {
            *async_op = true;
            let id = tensor_with(plan, &tensor, part);
            (*count, *output) = (part, Some(id));
            *input = input.map(|_| id);
        }
        buckets.push(made.len());
        made.push(op);
    }
    program.ops = replaced(&program.ops, pass, made, &buckets);
}

/// The tensor of so many elements, which is added if there is none.
fn tensor_with(plan: &mut Plan, like: &Tensor, numel: u64) -> TensorId {
    let name = format!("bucket[{numel}]");
    let known =
        plan.tensors.iter().rposition(|known| known.name == name && known.dtype == like.dtype);
    let at = known.unwrap_or_else(|| {
        let fill = Fill::Unknown;
        plan.tensors.push(Tensor {
            name,
            numel,
            fill,
            dtype: like.dtype,
            data: Default::default(),
        });
        plan.tensors.len() - 1
    });
    TensorId(at as u32)
}

/// The operations with those of a pass replaced. Where the last wait for one of its buckets stood all new ones are waited
/// for, but not before they are launched; the other waits go.
fn replaced(ops: &[Op], pass: &Pass, made: Vec<Op>, buckets: &[usize]) -> Vec<Op> {
    let of_pass = |op: &Op| match &op.action {
        Action::Wait { op: of, .. } | Action::Query { op: of, .. } => {
            pass.buckets.contains(&(*of as usize))
        }
        _ => false,
    };
    let last_wait =
        ops.iter().rposition(|op| of_pass(op) && matches!(op.action, Action::Wait { .. }));
    let end = pass.ops.end - 1;
    let is_waited_for =
        matches!(ops.get(end).map(|op| &op.action), Some(Action::Call { async_op: false, .. }));
    let waits_at = match last_wait {
        Some(at) => Some(at.max(end)),
        None => is_waited_for.then_some(end),
    };
    let mut new: Vec<Op> = Vec::with_capacity(ops.len() + made.len());
    let mut moved: Vec<u32> = Vec::with_capacity(ops.len());
    let mut start = 0;
    let mut made = Some(made);
    for (at, op) in ops.iter().enumerate() {
        moved.push(new.len() as u32);
        let replaced = pass.ops.contains(&at)
            && (pass.buckets.contains(&at)
                || matches!(op.action, Action::Compute { .. } | Action::Sleep { .. }));
        if !replaced && !of_pass(op) {
            let mut op = op.clone();
            if let Action::Wait { op: of, .. } | Action::Query { op: of, .. } = &mut op.action {
                *of = moved.get(*of as usize).copied().unwrap_or(*of);
            }
            new.push(op);
        }
        // Other operations between the buckets now stand before them.
        if at + 1 == pass.ops.end {
            start = new.len();
            new.extend(made.take().unwrap_or_default());
        }
        if waits_at == Some(at) {
            let waits = buckets.iter().map(|bucket| {
                let op = (start + bucket) as u32;
                Op { action: Action::Wait { op, timeout_ms: None }, at: None, via: None }
            });
            new.extend(waits);
        }
    }
    new
}

/// The times at which a pass's gradients become ready.
struct Ready {
    /// By launch: the elements until then, and the time since the pass's start in nanoseconds.
    launches: Vec<(u64, u64)>,
}

impl Ready {
    fn of(pass: &Pass) -> Ready {
        let sum =
            |values: &[u64]| values.iter().fold(0u64, |sum, value| sum.saturating_add(*value));
        let behind = |values: &[u64]| sum(values.get(1..).unwrap_or_default());
        let (rest_numel, rest_ns) = (behind(&pass.numel), behind(&pass.computed_ns));
        let first_ns = pass.computed_ns.first().copied().unwrap_or(0);
        let first_numel = pass.numel.first().copied().unwrap_or(0);
        // The forward pass stands in front of the first bucket as well. Its gradients are taken to need as long as
        // those of the other buckets.
        let own_ns = match rest_numel {
            0 => first_ns,
            _ => (u128::from(rest_ns) * u128::from(first_numel) / u128::from(rest_numel)) as u64,
        };
        let own_ns = own_ns.min(first_ns);
        let (mut numel, mut time_ns) = (0u64, 0u64);
        let mut launches = vec![(0, first_ns - own_ns)];
        for (at, (more, computed_ns)) in pass.numel.iter().zip(&pass.computed_ns).enumerate() {
            numel = numel.saturating_add(*more);
            time_ns = time_ns.saturating_add(if at == 0 { first_ns } else { *computed_ns });
            launches.push((numel, time_ns));
        }
        Ready { launches }
    }

    /// The time at which so many elements are ready, in nanoseconds since the pass's start.
    fn at(&self, numel: u64) -> u64 {
        let at = self.launches.partition_point(|(until, _)| *until < numel);
        let after = self.launches.get(at).or(self.launches.last()).copied().unwrap_or((0, 0));
        let before =
            at.checked_sub(1).and_then(|at| self.launches.get(at)).copied().unwrap_or(after);
        let (numel_between, ns_between) = (after.0 - before.0, after.1.saturating_sub(before.1));
        if numel_between == 0 {
            return after.1;
        }
        let part = u128::from(numel.saturating_sub(before.0)) * u128::from(ns_between);
        before.1 + (part / u128::from(numel_between)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::dtype::Dtype;
    use lockstep_core::group::{BackendName, GroupId};
    use lockstep_core::plan::PlanBuilder;
    use lockstep_core::reduce::ReduceOp;
    use lockstep_sim::{SimConfig, simulate};
    use proptest::prelude::*;

    fn job(numel: &[u64], each_ns: u64, steps: usize) -> Plan {
        let mut plan = PlanBuilder::new("ddp", 2, BackendName::Nccl).unwrap();
        let tensors: Vec<_> = numel
            .iter()
            .map(|numel| plan.tensor("bucket", Dtype::Float32, *numel, Fill::Zeros))
            .collect();
        let reduce = Collective::AllReduce { op: ReduceOp::Sum };
        let plan = plan.every_rank(|_, program| {
            for _ in 0..steps {
                program.compute("forward", 1_000_000);
                let made: Vec<u32> = numel
                    .iter()
                    .zip(&tensors)
                    .map(|(numel, tensor)| {
                        program.compute("backward", each_ns * numel);
                        program.async_op().collective(
                            GroupId::WORLD,
                            reduce,
                            *numel,
                            None,
                            Some(*tensor),
                        )
                    })
                    .collect();
                made.into_iter().for_each(|op| {
                    program.wait(op);
                });
            }
        });
        plan.unwrap()
    }

    fn activity_of(plan: &Plan) -> Activity {
        Activity::of_trace(&simulate(plan, &SimConfig::default()).unwrap())
    }

    fn sums(plan: &Plan) -> (u64, u64) {
        let ops = &plan.program(GlobalRank(0)).unwrap().ops;
        let computed = ops.iter().map(|op| match &op.action {
            Action::Compute { duration_ns, .. } => *duration_ns,
            _ => 0,
        });
        let calls = ops.iter().flat_map(|op| op.action.calls());
        (computed.sum(), calls.map(elements).sum())
    }

    proptest! {
        /// Cut at any size, a pass computes as long and reduces as many elements, in buckets of at most that size, and
        /// the plan still completes.
        #[test]
        fn cutting_keeps_work_and_bytes(
            numel in prop::collection::vec(1u64..5000, 1..7),
            each_ns in 0u64..200,
            bytes in 4u64..30_000,
            steps in 2usize..5,
        ) {
            let plan = job(&numel, each_ns, steps);
            let mut cut = plan.clone();
            prop_assert!(rebucket(&mut cut, &activity_of(&plan), bytes));
            prop_assert_eq!(sums(&cut), sums(&plan));
            let most = (bytes / 4).max(1).max(numel.iter().sum::<u64>().div_ceil(MOST));
            let calls = cut.programs.iter().flat_map(|own| &own.ops).flat_map(|op| op.action.calls());
            prop_assert!(calls.clone().all(|call| elements(call) <= most));
            prop_assert_eq!(cut.check(), Ok(()));
            let trace = simulate(&cut, &SimConfig::default()).unwrap();
            prop_assert_eq!(trace.end.unwrap().outcome, lockstep_core::trace::Outcome::Completed);
        }
    }

    /// With the cap that it had, a job of equal buckets is the same job.
    #[test]
    fn the_same_cap_gives_the_same_job() {
        let plan = job(&[1000, 1000, 1000], 50, 2);
        let mut cut = plan.clone();
        assert!(rebucket(&mut cut, &activity_of(&plan), 4000));
        let end = |plan: &Plan| simulate(plan, &SimConfig::default()).unwrap().end;
        assert_eq!(end(&cut), end(&plan));
    }
}
