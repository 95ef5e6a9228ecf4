//! The collectives of a plan that their ranks disagree on.
//!
//! To MPI such a call is a program error that it need not notice: it truncates, crashes or writes past a
//! buffer. In a plan the call never completes. So MPI is not given the call: the call stays open, with
//! everything behind it on its group, until the group's timeout ends the run.

use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{GroupId, ProcessGroup};
use lockstep_core::plan::{Call, Plan};
use lockstep_core::rank::GlobalRank;
use std::collections::BTreeSet;

/// A collective as one rank calls it.
#[derive(Debug)]
struct Called<'a> {
    what: (Collective, Dtype, u64),
    call: &'a Call,
}

/// The sequence numbers, by group, at which members of the rank's groups call different things. A
/// member that calls nothing there does not disagree: it has skipped the call.
pub(super) fn disagreements(plan: &Plan, rank: GlobalRank) -> BTreeSet<(GroupId, u64)> {
    let mut found = BTreeSet::new();
    for (id, group) in (0..).map(GroupId).zip(&plan.groups) {
        if group.group_rank(rank).is_none() {
            continue;
        }
        let mut members: Vec<_> =
            group.ranks().iter().map(|member| calls(plan, *member, id)).collect();
        // Sequence numbers count from 1.
        for seq in 1.. {
            let at: Vec<Option<Called<'_>>> = members.iter_mut().map(Iterator::next).collect();
            let mut called = at.iter().flatten();
            let Some(first) = called.next() else { break };
            if called.any(|other| other.what != first.what) || !splits_match(group, &at) {
                found.insert((id, seq));
            }
        }
    }
    found
}

fn calls(plan: &Plan, rank: GlobalRank, group: GroupId) -> impl Iterator<Item = Called<'_>> {
    let ops = plan.program(rank).map_or(&[][..], |program| &program.ops);
    let calls = ops.iter().flat_map(|op| op.action.calls());
    calls.filter(move |call| !call.is_p2p() && call.group() == group).map(move |call| {
        let nothing = (Collective::Barrier, Dtype::Unknown, 0);
        let what = plan.signature(rank, call).map_or(nothing, |signature| {
            (signature.schedule.collective(), signature.dtype, signature.count)
        });
        Called { what, call }
    })
}

/// True if each rank sends as much as its receiver expects.
fn splits_match(group: &ProcessGroup, at: &[Option<Called<'_>>]) -> bool {
    let parts = |called: &Called<'_>| match called.call {
        Call::Collective { splits: Some(splits), .. } => Some(splits.clone()),
        _ => None,
    };
    let parts: Vec<_> = at.iter().map(|called| called.as_ref().and_then(parts)).collect();
    let uneven = parts.iter().flatten().count();
    if uneven == 0 {
        return true;
    }
    // A rank without splits sends equally many to every rank.
    let even = |place: usize| at.get(place).and_then(Option::as_ref).map(|called| called.what.2);
    let size = group.ranks().len();
    (0..size).all(|from| {
        (0..size).all(|to| {
            let (Some(sender), Some(receiver)) = (even(from), even(to)) else { return true };
            let sends = parts[from].as_ref().map_or(Some(sender), |s| s.input.get(to).copied());
            let takes = parts[to].as_ref().map_or(Some(receiver), |s| s.output.get(from).copied());
            sends == takes
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::collective::Splits;
    use lockstep_core::group::BackendName;
    use lockstep_core::plan::{Fill, PlanBuilder};
    use lockstep_core::reduce::ReduceOp;

    fn sum(count: u64) -> (Collective, u64) {
        (Collective::AllReduce { op: ReduceOp::Sum }, count)
    }

    /// The disagreements between two ranks that call these, one after the other, on the world.
    fn found(calls: [&[(Collective, u64)]; 2]) -> Vec<u64> {
        let mut plan = PlanBuilder::new("two", 2, BackendName::Mpi).unwrap();
        let tensors: Vec<_> =
            (0..6).map(|numel| plan.tensor("t", Dtype::Float32, numel, Fill::Rank)).collect();
        let plan = plan.every_rank(|rank, program| {
            for (collective, count) in calls[rank.index()] {
                let output = (!collective.is_barrier()).then_some(tensors[*count as usize]);
                program.collective(GroupId::WORLD, *collective, *count, None, output);
            }
        });
        let plan = plan.unwrap();
        let each: Vec<BTreeSet<_>> =
            (0..2).map(|rank| disagreements(&plan, GlobalRank(rank))).collect();
        assert_eq!(each[0], each[1]);
        each[0].iter().map(|(_, seq)| *seq).collect()
    }

    #[test]
    fn sizes_and_kinds_disagree_and_skips_do_not() {
        assert!(found([&[sum(4), sum(4)], &[sum(4)]]).is_empty());
        assert_eq!(found([&[sum(4), sum(4)], &[sum(4), sum(5)]]), [2]);
        let barrier = (Collective::Barrier, 0);
        assert_eq!(found([&[barrier, sum(4)], &[sum(4), sum(4)]]), [1]);
        assert_eq!(found([&[barrier, sum(4)], &[sum(4)]]), [1]);
    }

    #[test]
    fn uneven_parts_are_held_against_each_other() {
        let plan = |received: u64| {
            let mut plan = PlanBuilder::new("uneven", 2, BackendName::Mpi).unwrap();
            let inputs = [3, 4].map(|numel| plan.tensor("in", Dtype::Int32, numel, Fill::Iota));
            let outputs = [4, received + 1];
            let outputs = outputs.map(|numel| plan.tensor("out", Dtype::Int32, numel, Fill::Zeros));
            plan.every_rank(|rank, program| {
                let (from, to) = match rank.0 {
                    0 => (vec![1, 2], vec![1, 3]),
                    _ => (vec![3, 1], vec![received, 1]),
                };
                program.call(Call::Collective {
                    group: GroupId::WORLD,
                    collective: Collective::AllToAll,
                    count: 0,
                    input: Some(inputs[rank.index()]),
                    output: Some(outputs[rank.index()]),
                    algorithm: None,
                    channels: None,
                    segments: None,
                    schedule: None,
                    splits: Some(Box::new(Splits { input: from, output: to })),
                });
            })
        };
        assert!(disagreements(&plan(2).unwrap(), GlobalRank(0)).is_empty());
        assert_eq!(disagreements(&plan(4).unwrap(), GlobalRank(1)).len(), 1);
    }
}
