//! DDP's buckets of a recorded job, cut anew.
//!
//! The asynchronous all_reduces of one group in a step are the buckets of a backward pass. How many bytes of
//! gradients were ready when is known at the launches; between two of them gradients are assumed to become ready
//! evenly. A new bucket is launched when its last byte is ready.

use crate::rank_programs::set_program;
use lockstep_analysis::{NO_KERNEL, StepOps};
use lockstep_core::collective::Collective;
use lockstep_core::group::GroupId;
use lockstep_core::plan::{Action, Call, Fill, Op, Plan, Program, Tensor, TensorId};
use lockstep_core::rank::GlobalRank;
use std::collections::{BTreeMap, BTreeSet};
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
    /// The first one's operation.
    first: Op,
    /// True if for most of that time a profile shows a device without a kernel.
    is_idle: bool,
}

/// The place of an all_reduce among those of its group in a step: the same on all members, which may make other calls
/// between them.
type Place = (GroupId, usize);

/// The all_reduces of a step's operations, with their places.
fn reduces(program: &Program, step: &Range<u32>) -> Vec<(Place, usize)> {
    let mut count: BTreeMap<GroupId, usize> = BTreeMap::new();
    let ops = program.ops.iter().enumerate().take(step.end as usize).skip(step.start as usize);
    let reduces = ops.filter_map(|(at, op)| match &op.action {
        Action::Call { call, .. } if is_bucket(call) => {
            let place = count.entry(call.group()).or_default();
            *place += 1;
            Some(((call.group(), *place - 1), at))
        }
        _ => None,
    });
    reduces.collect()
}

/// The places of the buckets. A recording shows that a call is asynchronous only where its rank went on before the call
/// had ended: what is so on one rank in one step is so on all. The last bucket's end is waited for at once, so the
/// all_reduce behind an asynchronous one is a bucket as well if no other call was made between them.
fn bucket_places(plan: &Plan, steps: &StepOps) -> BTreeSet<Place> {
    let mut places = BTreeSet::new();
    for (rank, steps) in (0..).map(GlobalRank).zip(&steps.of_rank) {
        let Some(program) = plan.program(rank) else { continue };
        for step in steps {
            let reduces = reduces(program, step);
            for (number, (place, at)) in reduces.iter().enumerate() {
                if !matches!(
                    program.ops.get(*at),
                    Some(Op { action: Action::Call { async_op: true, .. }, .. })
                ) {
                    continue;
                }
                places.insert(*place);
                let next = reduces.get(number + 1).filter(|(next, next_at)| {
                    let between = program.ops.get(at + 1..*next_at).unwrap_or_default();
                    let goes_on = |op: &Op| {
                        matches!(op.action, Action::Compute { .. } | Action::Sleep { .. })
                    };
                    next.0 == place.0 && between.iter().all(goes_on)
                });
                places.extend(next.map(|(next, _)| *next));
            }
        }
    }
    places
}

/// Cuts the buckets of all steps at so many bytes, and moves the steps' operations. DDP does not split a parameter, so
/// several buckets are not cut below the smallest of them: returns its bytes, 0 of steps with a single bucket, and `None`
/// if there are no buckets.
pub(crate) fn rebucket(plan: &mut Plan, steps: &mut StepOps, bytes: u64) -> Option<u64> {
    let before = plan.clone();
    let places = bucket_places(&before, steps);
    let of_rank = (0..).map(GlobalRank).zip(&steps.of_rank).filter_map(|(rank, own)| {
        let program = before.program(rank)?;
        let passes = own.iter().filter_map(|step| {
            let calls = reduces(program, step).into_iter();
            let calls = calls.filter(|(place, _)| places.contains(place)).map(|(_, op)| op);
            let pass = pass(&before, program, &calls.collect::<Vec<usize>>())?;
            Some(pass)
        });
        Some((rank, passes.collect::<Vec<Pass>>()))
    });
    let of_rank: BTreeMap<GlobalRank, Vec<Pass>> = of_rank.collect();
    let passes: Vec<&Pass> = of_rank.values().flatten().collect();
    if passes.is_empty() {
        return None;
    }
    let several = passes.into_iter().filter(|pass| pass.numel.len() > 1);
    let sizes = several.flat_map(|pass| pass.bytes(&before)).filter(|it| *it > 0);
    let smallest = sizes.min().unwrap_or(0);
    let bytes = bytes.max(smallest);
    plan.programs.clear();
    for rank in (0..before.world_size).map(GlobalRank) {
        let mut program = before.program(rank).cloned().unwrap_or_default();
        let passes = of_rank.get(&rank).map(Vec::as_slice).unwrap_or_default();
        // From the last to the first, so that the places of the earlier ones stay.
        for pass in passes.iter().rev() {
            let own = steps.of_rank.get_mut(rank.index());
            recut(
                plan,
                (&mut program, own.map(Vec::as_mut_slice).unwrap_or_default()),
                pass,
                bytes,
            );
        }
        set_program(plan, rank, program);
    }
    Some(smallest)
}

impl Pass {
    /// The bytes of each bucket.
    fn bytes<'a>(&'a self, plan: &Plan) -> impl Iterator<Item = u64> + use<'a> {
        let first = self.first.action.calls().first().and_then(|call| tensor_of(plan, call));
        let element = first.map_or(1, |tensor| tensor.dtype.size_bytes()).max(1);
        self.numel.iter().map(move |numel| numel * element)
    }
}

/// The backward pass among the buckets of a step: those that are like the first one.
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
    let (mut idle_ns, mut busy_ns) = (0u64, 0u64);
    for (at, op) in program.ops.iter().enumerate().take(last + 1).skip(start) {
        match &op.action {
            Action::Compute { name, duration_ns } | Action::Sleep { name, duration_ns } => {
                ns = ns.saturating_add(*duration_ns);
                let of = if **name == *NO_KERNEL { &mut idle_ns } else { &mut busy_ns };
                *of = of.saturating_add(*duration_ns);
            }
            Action::Call { call, .. } if buckets.contains(&at) => {
                numel.push(elements(call));
                computed_ns.push(std::mem::take(&mut ns));
            }
            _ => {}
        }
    }
    let op = program.ops.get(first)?.clone();
    Some(Pass {
        ops: start..last + 1,
        buckets,
        numel,
        computed_ns,
        first: op,
        is_idle: idle_ns > busy_ns,
    })
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

/// Puts new buckets into the place of a pass's, and moves the operations of the rank's steps.
fn recut(
    plan: &mut Plan,
    (program, steps): (&mut Program, &mut [Range<u32>]),
    pass: &Pass,
    bytes: u64,
) {
    let first = &pass.first;
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
            let name = if pass.is_idle { NO_KERNEL } else { "backward" }.into();
            let duration_ns = ready_ns - time_ns;
            made.push(Op::new(Action::Compute { name, duration_ns }, first.at));
            time_ns = ready_ns;
        }
        let mut op = first.clone();
        if let Action::Call { async_op, .. } = &mut op.action {
            *async_op = true;
        }
        if let [Call::Collective { count, output, input, .. }] = op.action.calls_mut() {
            let id = tensor_with(plan, &tensor, part);
            (*count, *output) = (part, Some(id));
            *input = input.map(|_| id);
        }
        buckets.push(made.len());
        made.push(op);
    }
    let count = made.len();
    let (ops, moved, start) = replaced(&program.ops, pass, made, &buckets);
    let of_pass = pass.ops.end as u32 - 1;
    for step in steps {
        let moved = |op: u32| moved.get(op as usize).copied().unwrap_or(op);
        let holds_pass = step.contains(&of_pass);
        let behind = if step.end > step.start { moved(step.end - 1) + 1 } else { moved(step.end) };
        let end = if holds_pass { behind.max((start + count) as u32) } else { behind };
        *step = moved(step.start)..end;
    }
    program.ops = ops;
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
/// Also where each of the operations is now, and where the new ones begin.
fn replaced(
    ops: &[Op],
    pass: &Pass,
    made: Vec<Op>,
    buckets: &[usize],
) -> (Vec<Op>, Vec<u32>, usize) {
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
                Op::new(Action::Wait { op, timeout_ms: None }, None)
            });
            new.extend(waits);
        }
    }
    (new, moved, start)
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
    use lockstep_analysis::Activity;
    use lockstep_core::dtype::Dtype;
    use lockstep_core::group::BackendName;
    use lockstep_core::plan::PlanBuilder;
    use lockstep_core::rank::GroupRank;
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

    fn steps_of(plan: &Plan) -> StepOps {
        let activity = Activity::of_trace(&simulate(plan, &SimConfig::default()).unwrap());
        StepOps::of(&activity, |rank, at| activity.ranks[rank.index()].calls[at].plan_op)
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
            let mut steps_cut = steps_of(&plan);
            prop_assert!(rebucket(&mut cut, &mut steps_cut, bytes).is_some());
            prop_assert_eq!(sums(&cut), sums(&plan));
            let smallest = numel.iter().min().copied().filter(|_| numel.len() > 1).unwrap_or(0);
            let most = (bytes / 4).max(smallest).max(numel.iter().sum::<u64>().div_ceil(MOST));
            let calls = cut.programs.iter().flat_map(|own| &own.ops).flat_map(|op| op.action.calls());
            prop_assert!(calls.clone().all(|call| elements(call) <= most));
            prop_assert_eq!(cut.check(), Ok(()));
            // The steps are the same ones, with all buckets.
            for steps_of_rank in &steps_cut.of_rank {
                prop_assert_eq!(steps_of_rank.len(), steps);
                let ops = &cut.program(GlobalRank(0)).unwrap().ops;
                for step in steps_of_rank {
                    let own = &ops[step.start as usize..step.end as usize];
                    let calls = own.iter().flat_map(|op| op.action.calls());
                    prop_assert_eq!(calls.map(elements).sum::<u64>(), numel.iter().sum::<u64>());
                }
            }
            let trace = simulate(&cut, &SimConfig::default()).unwrap();
            prop_assert_eq!(trace.end.unwrap().outcome, lockstep_core::trace::Outcome::Completed);
        }
    }

    /// Ranks that make other calls between the buckets of a step cut the same ones, and still meet.
    #[test]
    fn ranks_with_other_calls_cut_the_same_buckets() {
        let mut plan = PlanBuilder::new("ddp", 3, BackendName::Host).unwrap();
        let tensors: Vec<_> = [1000, 500]
            .map(|numel| (numel, plan.tensor("bucket", Dtype::Float32, numel, Fill::Zeros)))
            .to_vec();
        let message = plan.tensor("message", Dtype::Float32, 10, Fill::Zeros);
        let reduce = Collective::AllReduce { op: ReduceOp::Sum };
        let plan = plan.every_rank(|rank, program| {
            for _ in 0..4 {
                program.compute("forward", 1_000_000);
                // Rank 0's message stands in front of the buckets, rank 2's behind them.
                let sent = (rank.0 == 0)
                    .then(|| program.async_op().send(GroupId::WORLD, GroupRank(2), message));
                let made: Vec<u32> = tensors
                    .iter()
                    .map(|(numel, tensor)| {
                        program.compute("backward", 1_000_000);
                        // The recording of rank 1 shows no asynchronous call.
                        if rank.0 != 1 {
                            program.async_op();
                        }
                        program.collective(GroupId::WORLD, reduce, *numel, None, Some(*tensor))
                    })
                    .collect();
                if rank.0 != 1 {
                    made.into_iter().for_each(|op| {
                        program.wait(op);
                    });
                }
                if let Some(sent) = sent {
                    program.wait(sent);
                }
                if rank.0 == 2 {
                    program.recv(GroupId::WORLD, GroupRank(0), message);
                }
            }
        });
        let plan = plan.unwrap();
        let (mut cut, mut steps) = (plan.clone(), steps_of(&plan));
        assert_eq!(steps.of_rank.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 4]);
        assert_eq!(rebucket(&mut cut, &mut steps, 1 << 20), Some(2000));
        let trace = simulate(&cut, &SimConfig::default()).unwrap();
        assert_eq!(trace.end.unwrap().outcome, lockstep_core::trace::Outcome::Completed);
        let calls = |rank| {
            let ops = cut.program(GlobalRank(rank)).unwrap().ops.iter();
            let reduces = ops.flat_map(|op| op.action.calls()).filter(|call| is_bucket(call));
            reduces.map(elements).collect::<Vec<u64>>()
        };
        assert_eq!([0, 1, 2].map(calls), [0; 3].map(|_| vec![1500; 4]));
    }

    /// With the cap that it had, a job of equal buckets is the same job.
    #[test]
    fn the_same_cap_gives_the_same_job() {
        let plan = job(&[1000, 1000, 1000], 50, 2);
        let mut cut = plan.clone();
        assert_eq!(rebucket(&mut cut, &mut steps_of(&plan), 4000), Some(4000));
        let end = |plan: &Plan| simulate(plan, &SimConfig::default()).unwrap().end;
        assert_eq!(end(&cut), end(&plan));
    }
}
