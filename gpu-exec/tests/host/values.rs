//! Every collective by every algorithm gives its promised result, on real processes.

use crate::cases::{self, by_all, check_promise, every_collective, plan_of};
use crate::reference::promised_int64;
use crate::{assert_completed, events_of, result, run};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::{Fill, PlanBuilder};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::{Factor, ReduceOp};
use lockstep_core::trace::{TensorValue, What};
use proptest::prelude::*;

fn check_bits(n: u32, dtype: Dtype, calls: Vec<(Collective, u64)>) {
    let fill = Fill::Seeded { seed: 7 };
    let (plan, cases) = plan_of(n, BackendName::Host, fill, by_all(n, dtype, calls));
    cases::check_bits(&run(plan), n, &cases);
}

#[test]
fn integers_are_exact_for_every_collective_algorithm_and_size() {
    for n in [1, 2, 3, 4, 5, 8] {
        let calls = ReduceOp::ALL.iter().flat_map(|op| {
            let all = every_collective(n, *op);
            let only_reducing = *op != ReduceOp::Sum;
            all.into_iter().filter(move |c| !only_reducing || c.reduce_op().is_some())
        });
        let calls = by_all(n, Dtype::Int64, calls.map(|call| (call, 13)));
        let (plan, cases) = plan_of(n, BackendName::Host, Fill::Iota, calls);
        check_promise(&run(plan), n, &cases);
    }
}

#[test]
fn floats_are_the_schedules_bits() {
    for n in [2, 3, 4, 5, 8] {
        let mut calls: Vec<_> =
            every_collective(n, ReduceOp::Sum).into_iter().map(|call| (call, 101)).collect();
        let scaled = [ReduceOp::Avg, ReduceOp::PremulSum(Factor::new(0.3).unwrap())];
        for op in scaled {
            calls.extend([1, 2, 1000].map(|count| (Collective::AllReduce { op }, count)));
            calls.push((Collective::ReduceScatter { op }, 100));
            calls.push((Collective::Reduce { op, root: GroupRank(1) }, 100));
        }
        check_bits(n, Dtype::Float32, calls);
    }
    for dtype in [Dtype::Float64, Dtype::Float16, Dtype::Bfloat16] {
        let calls = every_collective(3, ReduceOp::Sum).into_iter().map(|call| (call, 37)).collect();
        check_bits(3, dtype, calls);
    }
}

/// Lengths on both sides of where messages change their form: in the message itself, copied, read
/// where they are.
fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..40, 1_000u64..1_400, 2_000u64..17_000, 30_000u64..70_000]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 12, ..Default::default() })]

    /// Every algorithm, of any type and operation, at any length.
    #[test]
    fn any_call_gives_the_schedules_bits(
        n in 2u32..=5,
        dtype in prop::sample::select(Dtype::COMPUTABLE.to_vec()),
        op in prop::sample::select(
            ReduceOp::ALL.into_iter().chain([ReduceOp::PremulSum(Factor::new(0.3).unwrap())])
                .collect::<Vec<_>>()
        ),
        count in any_count(),
    ) {
        let op = if op.supports(dtype) { op } else { ReduceOp::Sum };
        let calls = every_collective(n, op).into_iter().map(|call| (call, count)).collect();
        check_bits(n, dtype, calls);
    }
}

#[test]
fn messages_larger_than_any_buffer_flow_both_ways() {
    for n in [2, 3] {
        // 1.2 MB a message and more; an odd count, so that pieces and chunks do not line up.
        let calls =
            every_collective(n, ReduceOp::Sum).into_iter().map(|call| (call, 300_001)).collect();
        check_bits(n, Dtype::Float32, calls);
    }
}

#[test]
fn asynchronous_calls_of_two_groups_complete_and_are_waited_for() {
    let mut plan = PlanBuilder::new("async", 4, BackendName::Host).unwrap();
    // Not in rank order: group ranks are not global ranks.
    let reversed = vec![GlobalRank(3), GlobalRank(1), GlobalRank(0)];
    let group = plan.group(ProcessGroup::new("some", BackendName::Host, reversed).unwrap());
    let tensors: Vec<_> =
        (0..6).map(|i| plan.tensor(format!("t{i}"), Dtype::Int64, 50, Fill::Iota)).collect();
    let gathered = plan.tensor("gathered", Dtype::Int64, 150, Fill::Zeros);
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = plan
        .every_rank(|rank, program| {
            let calls: Vec<u32> = tensors[..5]
                .iter()
                .map(|tensor| {
                    program.async_op().collective(GroupId::WORLD, sum, 50, None, Some(*tensor))
                })
                .collect();
            let in_group = (rank.0 != 2).then(|| {
                program.async_op().collective(
                    group,
                    Collective::AllGather,
                    50,
                    Some(tensors[5]),
                    Some(gathered),
                )
            });
            program.compute("backward", 2_000_000);
            program.barrier(GroupId::WORLD);
            calls.iter().chain(&in_group).for_each(|call| {
                program.wait(*call);
            });
        })
        .unwrap();
    let trace = run(plan);
    assert_completed(&trace);
    let expected = promised_int64(sum, 4, 0, 50);
    let expected: Vec<u8> = expected.iter().flat_map(|value| value.to_le_bytes()).collect();
    for rank in 0..4 {
        for tensor in &tensors[..5] {
            assert_eq!(*result(&trace, rank, *tensor), TensorValue::Bytes(expected.clone()));
        }
    }
    let gathered_bytes: Vec<u8> = [3i64, 1, 0]
        .iter()
        .flat_map(|rank| (0..50).flat_map(move |i| (rank * 50 + i).to_le_bytes()))
        .collect();
    assert_eq!(*result(&trace, 3, gathered), TensorValue::Bytes(gathered_bytes));
}

#[test]
fn sixteen_ranks_on_few_cores_get_through() {
    let calls = every_collective(16, ReduceOp::Sum).map(|call| (call, 64));
    let calls = by_all(16, Dtype::Float32, calls);
    let (plan, _) = plan_of(16, BackendName::Host, Fill::Seeded { seed: 1 }, calls);
    assert_completed(&run(plan));
}

/// The largest world that the page steps through, with every message recorded.
#[test]
fn sixty_four_ranks_reduce_and_every_message_is_recorded() {
    let n = 64;
    let mut plan = PlanBuilder::new("64", n, BackendName::Host).unwrap();
    let tensor = plan.tensor("t", Dtype::Int64, 64, Fill::Iota);
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = plan
        .every_rank(|_, program| {
            program.collective(GroupId::WORLD, sum, 64, None, Some(tensor));
        })
        .unwrap();
    let trace = run(plan);
    assert_completed(&trace);
    let expected = promised_int64(sum, n.into(), 0, 64);
    let expected: Vec<u8> = expected.iter().flat_map(|v| v.to_le_bytes()).collect();
    for rank in 0..n {
        assert_eq!(*result(&trace, rank, tensor), TensorValue::Bytes(expected.clone()));
    }
    let count =
        |wanted: fn(&What) -> bool| trace.events.iter().filter(|event| wanted(&event.what)).count();
    let messages = (n * 2 * (n - 1)) as usize;
    assert_eq!(count(|what| matches!(what, What::Sent { .. })), messages);
    assert_eq!(count(|what| matches!(what, What::Received { .. })), messages);
    let half = |what: &What| matches!(what, What::Received { reduced: true, .. });
    assert_eq!(count(half), messages / 2);
    // Each rank's events are in time order, and none is before the start of the run.
    for rank in 0..n {
        let times: Vec<u64> = events_of(&trace, rank).map(|event| event.time_ps).collect();
        assert!(times.is_sorted() && times[0] > 0);
    }
}
