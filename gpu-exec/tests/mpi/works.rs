//! Asynchronous calls, point-to-point calls, and calls made together.

use crate::{result, run};
use lockstep_core::collective::Collective;
use lockstep_core::collective::Splits;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Action, Call, Fill, PlanBuilder, WorkQuery};
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{CallLog, CallState, TensorValue, What};

const WORLD: GroupId = GroupId::WORLD;
const SUM: Collective = Collective::AllReduce { op: ReduceOp::Sum };

fn int32(values: impl Iterator<Item = i32>) -> TensorValue {
    TensorValue::of(&values.flat_map(i32::to_le_bytes).collect::<Vec<u8>>())
}

/// Two calls of one group on one tensor: the second adds to the first one's result.
#[test]
fn calls_of_a_group_follow_each_other_whether_they_are_waited_for_or_not() {
    let mut plan = PlanBuilder::new("async", 2, BackendName::Mpi).unwrap();
    let tensor = plan.tensor("t", Dtype::Int32, 1000, Fill::Full { value: 1 });
    let plan = plan.every_rank(|_, program| {
        let mut made = Vec::new();
        for _ in 0..5 {
            program.async_op();
            made.push(program.collective(WORLD, SUM, 1000, None, Some(tensor)));
        }
        program.compute("forward", 3_000_000);
        program.wait(made[0]);
        program.push(Action::Query { op: made[0], what: WorkQuery::IsCompleted });
        program.barrier(WORLD);
    });
    let trace = run(&plan.unwrap());
    for rank in 0..2 {
        assert_eq!(*result(&trace, rank, tensor), int32((0..1000).map(|_| 32)));
    }
    let answers = trace.events.iter().filter_map(|event| match &event.what {
        What::Answered { answer, .. } => Some(answer.as_str()),
        _ => None,
    });
    assert_eq!(answers.collect::<Vec<_>>(), ["True"; 2]);
    let log = CallLog::of(&trace);
    for rank in log.ranks.iter().flatten() {
        assert_eq!(rank.calls.len(), 6);
        assert!(rank.calls.iter().all(|call| call.state == CallState::Completed));
        assert!(rank.calls.windows(2).all(|two| two[0].completed_ps <= two[1].started_ps));
    }
}

#[test]
fn sends_find_the_receives_of_their_tags() {
    let mut plan = PlanBuilder::new("tags", 2, BackendName::Mpi).unwrap();
    let outs: Vec<_> = (0..3)
        .map(|i| plan.tensor("out", Dtype::Int32, 100_000 + i, Fill::Full { value: i as i64 }))
        .collect();
    let ins: Vec<_> =
        (0..3).map(|i| plan.tensor("in", Dtype::Int32, 100_000 + i, Fill::Zeros)).collect();
    let any = plan.tensor("any", Dtype::Int32, 7, Fill::Zeros);
    let from = plan.tensor("from", Dtype::Int32, 7, Fill::Iota);
    let plan = plan.every_rank(|rank, program| {
        let peer = GroupRank(1 - rank.0);
        // Both ways at once, each in another order.
        let mut calls = Vec::new();
        for tag in 0..3 {
            let tensor = outs[tag as usize];
            calls.push(Call::Send { group: WORLD, peer, tensor, tag });
        }
        for tag in [2, 0, 1] {
            let (peer, tensor) = (Some(peer), ins[tag as usize]);
            calls.push(Call::Recv { group: WORLD, peer, tensor, tag });
        }
        program.coalesced(calls);
        match rank.0 {
            0 => program.call(Call::Recv { group: WORLD, peer: None, tensor: any, tag: 9 }),
            _ => program.call(Call::Send { group: WORLD, peer, tensor: from, tag: 9 }),
        };
    });
    let trace = run(&plan.unwrap());
    for rank in 0..2 {
        for (tag, tensor) in ins.iter().enumerate() {
            let expected = int32((0..100_000 + tag).map(|_| tag as i32));
            assert_eq!(*result(&trace, rank, *tensor), expected, "{tag}");
        }
    }
    assert_eq!(*result(&trace, 0, any), int32(7..14));
    let from_one = |event: &&lockstep_core::trace::Event| matches!(event.what, What::Received { peer, bytes: 28, .. } if peer.0 == 1);
    assert_eq!(trace.events.iter().filter(from_one).count(), 1);
}

#[test]
fn uneven_parts_find_their_ranks() {
    let mut plan = PlanBuilder::new("uneven", 2, BackendName::Mpi).unwrap();
    let input = plan.tensor("in", Dtype::Int32, 4, Fill::Iota);
    let outputs = [3, 5].map(|numel| plan.tensor("out", Dtype::Int32, numel, Fill::Zeros));
    let plan = plan.every_rank(|rank, program| {
        let (to, from) = match rank.0 {
            0 => (vec![1, 3], vec![1, 2]),
            _ => (vec![2, 2], vec![3, 2]),
        };
        program.call(Call::Collective {
            group: WORLD,
            collective: Collective::AllToAll,
            count: 0,
            input: Some(input),
            output: Some(outputs[rank.index()]),
            algorithm: None,
            channels: None,
            segments: None,
            schedule: None,
            splits: Some(Box::new(Splits { input: to, output: from })),
        });
    });
    let trace = run(&plan.unwrap());
    assert_eq!(*result(&trace, 0, outputs[0]), int32([0, 4, 5].into_iter()));
    assert_eq!(*result(&trace, 1, outputs[1]), int32([1, 2, 3, 6, 7].into_iter()));
}
