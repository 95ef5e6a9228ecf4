//! Calls made together, from any source, with uneven splits; the answers of works, and waits with a timeout
//! of their own.

use crate::{assert_completed, events_of, options, result, run, run_with};
use lockstep_core::collective::Collective;
use lockstep_core::collective::Splits;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::{
    Action, Call, Fill, Plan, PlanBuilder, ProgramBuilder, TensorId, WorkQuery,
};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{CallLog, CallState, Outcome, TensorValue, Trace, What};
use lockstep_gpu_exec::RunOptions;
use std::time::Duration;

const WORLD: GroupId = GroupId::WORLD;
const SHORT: Duration = Duration::from_millis(400);

fn int64(values: impl IntoIterator<Item = i64>) -> TensorValue {
    TensorValue::of(&values.into_iter().flat_map(i64::to_le_bytes).collect::<Vec<u8>>())
}

fn all_reduce(group: GroupId, tensor: TensorId, count: u64) -> Call {
    Call::Collective {
        group,
        collective: Collective::AllReduce { op: ReduceOp::Sum },
        count,
        input: None,
        output: Some(tensor),
        algorithm: None,
        channels: None,
        segments: None,
        schedule: None,
        splits: None,
    }
}

fn send(peer: u32, tensor: TensorId, tag: u32) -> Call {
    Call::Send { group: WORLD, peer: GroupRank(peer), tensor, tag }
}

fn recv(peer: Option<u32>, tensor: TensorId, tag: u32) -> Call {
    Call::Recv { group: WORLD, peer: peer.map(GroupRank), tensor, tag }
}

/// A plan with the same tensors on every rank.
fn plan(
    world: u32,
    tensors: &[(u64, Fill)],
    write: impl Fn(u32, &mut ProgramBuilder, &[TensorId]),
) -> Plan {
    let mut plan = PlanBuilder::new("together", world, BackendName::Host).unwrap();
    let tensors: Vec<_> = tensors
        .iter()
        .enumerate()
        .map(|(i, (numel, fill))| plan.tensor(format!("t{i}"), Dtype::Int64, *numel, *fill))
        .collect();
    plan.every_rank(|rank, program| write(rank.0, program, &tensors)).unwrap()
}

fn timed_out(plan: Plan) -> Trace {
    let trace = run_with(plan, RunOptions { timeout: Some(SHORT), ..options() });
    assert_eq!(trace.end.as_ref().unwrap().outcome, Outcome::TimedOut);
    trace
}

/// Every rank sends to both neighbours before it receives, more than a ring holds: one by one this
/// deadlocks.
#[test]
fn a_batch_of_sends_and_receives_passes_itself() {
    let (world, numel) = (4, 100_000);
    let zeros = (numel, Fill::Zeros);
    let plan = plan(world, &[(numel, Fill::Rank), zeros, zeros], |rank, program, tensors| {
        let (next, before) = ((rank + 1) % world, (rank + world - 1) % world);
        program.coalesced(vec![
            send(next, tensors[0], 0),
            send(before, tensors[0], 0),
            recv(Some(before), tensors[1], 0),
            recv(Some(next), tensors[2], 0),
        ]);
    });
    let trace = run(plan);
    assert_completed(&trace);
    for rank in 0..world {
        let from = |rank: u32| int64(vec![i64::from(rank % world); numel as usize]);
        assert_eq!(*result(&trace, rank, TensorId(1)), from(rank + world - 1));
        assert_eq!(*result(&trace, rank, TensorId(2)), from(rank + 1));
        let log = CallLog::of(&trace);
        let calls = &log.ranks[rank as usize].as_ref().unwrap().calls;
        let ops: Vec<_> = calls.iter().map(|call| call.call.op.as_str()).collect();
        assert_eq!(ops, ["isend", "isend", "irecv", "irecv"]);
        assert!(calls.iter().all(|call| call.state == CallState::Completed));
    }
}

/// Collectives of two groups, in opposite order on two ranks, and a send in between: together they
/// cannot deadlock, one by one they do.
#[test]
fn coalesced_collectives_start_together() {
    let mut plan = PlanBuilder::new("groups", 2, BackendName::Host).unwrap();
    let members = || vec![GlobalRank(0), GlobalRank(1)];
    let other = plan.group(ProcessGroup::new("other", BackendName::Host, members()).unwrap());
    let tensors: Vec<_> =
        (0..4).map(|i| plan.tensor(format!("t{i}"), Dtype::Int64, 5, Fill::Rank)).collect();
    let plan = plan
        .every_rank(|rank, program| {
            let mut calls =
                vec![all_reduce(WORLD, tensors[0], 5), all_reduce(other, tensors[1], 5)];
            if rank.0 == 1 {
                calls.reverse();
                calls.insert(1, recv(Some(0), tensors[3], 9));
            } else {
                calls.insert(1, send(1, tensors[2], 9));
            }
            let op = program.async_op().coalesced(calls);
            program.compute("meanwhile", 1_000_000);
            program.wait(op);
        })
        .unwrap();
    let trace = run(plan);
    assert_completed(&trace);
    for (rank, tensor) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        assert_eq!(*result(&trace, rank, tensors[tensor]), int64([1; 5]));
    }
    assert_eq!(*result(&trace, 1, tensors[3]), int64([0; 5]));
}

/// Each send is posted before the next rank hears that it may post its own, and the receives come after all
/// of them: rank 3's first, then 1's, then 2's.
#[test]
fn a_receive_from_any_source_takes_the_first_send_and_names_it() {
    let mut tensors = [(1, Fill::Zeros); 5];
    tensors[0].1 = Fill::Rank;
    let plan = plan(4, &tensors, |rank, program, tensors| {
        let token = tensors[4];
        let before = [Some(2), Some(3), Some(1), None][rank as usize];
        let after = [None, Some(2), Some(0), Some(1)][rank as usize];
        if let Some(before) = before {
            program.call(recv(Some(before), token, 8));
        }
        if rank == 0 {
            for &tensor in &tensors[1..4] {
                program.call(recv(None, tensor, 7));
            }
        } else {
            let posted = program.async_op().call(send(0, tensors[0], 7));
            after.into_iter().for_each(|after| {
                program.call(send(after, token, 8));
            });
            program.wait(posted);
        }
    });
    let trace = run(plan);
    assert_completed(&trace);
    let got: Vec<_> = (1..4).map(|tensor| result(&trace, 0, TensorId(tensor)).clone()).collect();
    assert_eq!(got, [int64([3]), int64([1]), int64([2])]);
    let peers: Vec<_> = events_of(&trace, 0)
        .filter_map(|event| match event.what {
            What::Received { peer, .. } => Some(peer.0),
            _ => None,
        })
        .collect();
    // First rank 2's word.
    assert_eq!(peers, [2, 3, 1, 2]);
}

/// If several receives could take a message, the one that was called first gets it.
#[test]
fn named_receives_and_those_from_any_source_share_a_channel_in_call_order() {
    let zeros = (2, Fill::Zeros);
    let tensors = [(2, Fill::Iota), (2, Fill::Rank), zeros, zeros, zeros, zeros];
    let plan = plan(2, &tensors, |rank, program, t| {
        if rank == 1 {
            let sends = [t[0], t[1], t[1], t[0]].map(|tensor| send(0, tensor, 0)).to_vec();
            program.coalesced(sends);
        } else {
            let from = [None, Some(1), None, Some(1)];
            let calls = from.iter().zip(&t[2..]).map(|(from, into)| recv(*from, *into, 0));
            program.coalesced(calls.collect());
        }
    });
    let trace = run(plan);
    assert_completed(&trace);
    let got: Vec<_> = (2..6).map(|tensor| result(&trace, 0, TensorId(tensor)).clone()).collect();
    assert_eq!(got, [int64([2, 3]), int64([1, 1]), int64([1, 1]), int64([2, 3])]);
}

/// On gloo one that names its source has the next send of it, however long another has waited for any.
#[test]
fn on_gloo_a_named_receive_comes_before_one_from_any_source() {
    let zeros = (1, Fill::Zeros);
    let mut plan = plan(3, &[(1, Fill::Rank), zeros, zeros], |rank, program, t| match rank {
        0 => {
            program.coalesced(vec![recv(None, t[1], 0), recv(Some(2), t[2], 0)]);
        }
        _ => {
            // Long after the receives; rank 2 first.
            program.sleep("before", [0, 80_000_000, 40_000_000][rank as usize]);
            program.call(send(0, t[0], 0));
        }
    });
    let world = plan.groups[0].clone();
    let ranks = world.ranks().to_vec();
    plan.groups[0] = ProcessGroup::new(world.name(), BackendName::Gloo, ranks)
        .unwrap()
        .with_timeout_ms(world.timeout_ms());
    let trace = run(plan);
    assert_completed(&trace);
    assert_eq!(*result(&trace, 0, TensorId(1)), int64([1]));
    assert_eq!(*result(&trace, 0, TensorId(2)), int64([2]));
}

#[test]
fn a_receive_that_nobody_sends_to_times_out() {
    let plan = plan(3, &[(1, Fill::Rank)], |rank, program, tensors| {
        if rank == 0 {
            program.call(recv(None, tensors[0], 0));
        }
    });
    timed_out(plan);
}

fn uneven(splits: &[Vec<u64>], lie: u64) -> Plan {
    let world = splits.len();
    let mut plan = PlanBuilder::new("uneven", world as u32, BackendName::Host).unwrap();
    let columns = |to: usize| splits.iter().map(move |row| row[to]).collect::<Vec<u64>>();
    let ids: Vec<_> = (0..world)
        .map(|rank| {
            let numel: u64 = splits[rank].iter().sum();
            let input = plan.tensor(format!("in{rank}"), Dtype::Int64, numel, Fill::Iota);
            let numel = columns(rank).iter().sum::<u64>() + if rank == 0 { lie } else { 0 };
            (input, plan.tensor(format!("out{rank}"), Dtype::Int64, numel, Fill::Zeros))
        })
        .collect();
    plan.every_rank(|rank, program| {
        let rank = rank.0 as usize;
        let mut output = columns(rank);
        if rank == 0 {
            output[world - 1] += lie;
        }
        program.call(Call::Collective {
            group: WORLD,
            collective: Collective::AllToAll,
            count: 0,
            input: Some(ids[rank].0),
            output: Some(ids[rank].1),
            algorithm: None,
            channels: None,
            segments: None,
            schedule: None,
            splits: Some(Box::new(Splits { input: splits[rank].clone(), output })),
        });
    })
    .unwrap()
}

#[test]
fn uneven_parts_arrive_where_they_belong() {
    // Also empty parts, and one that is larger than a ring.
    let splits = vec![vec![2, 0, 90_000], vec![1, 3, 0], vec![0, 0, 4]];
    let trace = run(uneven(&splits, 0));
    assert_completed(&trace);
    for to in 0..3 {
        let expected = splits.iter().enumerate().flat_map(|(from, row)| {
            let numel: u64 = row.iter().sum();
            let start: u64 = row[..to].iter().sum();
            (start..start + row[to]).map(move |i| (from as u64 * numel + i) as i64)
        });
        assert_eq!(*result(&trace, to as u32, TensorId(2 * to as u32 + 1)), int64(expected));
    }
    timed_out(uneven(&splits, 1));
}

#[test]
fn works_answer_and_a_wait_can_be_shorter_than_the_group() {
    let answers = |trace: &Trace| -> Vec<String> {
        let answered = events_of(trace, 0).filter_map(|event| match &event.what {
            What::Answered { answer, .. } => Some(answer.clone()),
            _ => None,
        });
        answered.collect()
    };
    let asked = |late_ns: u64, timeout_ms: Option<u64>| {
        plan(2, &[(4, Fill::Rank)], move |rank, program, tensors| {
            if rank == 1 {
                program.sleep("elsewhere", late_ns);
            }
            let op = program.async_op().call(all_reduce(WORLD, tensors[0], 4));
            program.push(Action::Query { op, what: WorkQuery::IsCompleted });
            program.push(Action::Wait { op, timeout_ms });
            program.push(Action::Query { op, what: WorkQuery::IsSuccess });
            program.push(Action::Synchronize);
        })
    };
    let trace = run(asked(100_000_000, Some(10_000)));
    assert_completed(&trace);
    assert_eq!(answers(&trace), ["False", "True"]);

    let trace = run(asked(5_000_000_000, Some(150)));
    let end = trace.end.as_ref().unwrap();
    assert_eq!(end.outcome, Outcome::TimedOut);
    let late = events_of(&trace, 0).find(|event| matches!(event.what, What::TimedOut { .. }));
    let late = Duration::from_nanos(late.unwrap().time_ps / 1000);
    assert!(late >= Duration::from_millis(150) && late < Duration::from_secs(4), "{late:?}");
}

#[test]
fn synchronize_waits_for_what_is_under_way() {
    let plan = plan(2, &[(4, Fill::Rank)], |rank, program, tensors| {
        if rank == 1 {
            program.sleep("late", 100_000_000);
        }
        let op = program.async_op().call(all_reduce(WORLD, tensors[0], 4));
        program.push(Action::Synchronize);
        program.push(Action::Query { op, what: WorkQuery::IsCompleted });
    });
    let trace = run(plan);
    assert_completed(&trace);
    let answer = events_of(&trace, 0).find_map(|event| match &event.what {
        What::Answered { answer, .. } => Some(answer.clone()),
        _ => None,
    });
    assert_eq!(answer.unwrap(), "True");
}

/// Both broadcast at number 1, each from itself: the other's message is for nobody, and does not block number
/// 2.
#[test]
fn a_message_of_a_call_left_behind_is_no_obstacle() {
    // Larger than a piece, smaller than a ring.
    let numel = 20_000;
    let plan = plan(2, &[(numel, Fill::Rank), (numel, Fill::Rank)], |rank, program, tensors| {
        let root = GroupRank(rank);
        program.collective(WORLD, Collective::Broadcast { root }, numel, None, Some(tensors[0]));
        program.call(all_reduce(WORLD, tensors[1], numel));
    });
    let trace = run(plan);
    assert_completed(&trace);
    for rank in 0..2 {
        assert_eq!(*result(&trace, rank, TensorId(1)), int64(vec![1; numel as usize]));
    }
}

#[test]
fn a_monitored_barrier_lets_all_through_or_none() {
    let barrier = |absent: Option<u32>| {
        plan(4, &[], move |rank, program, _| {
            if absent != Some(rank) {
                let barrier = Collective::MonitoredBarrier { wait_all_ranks: true };
                program.collective(WORLD, barrier, 0, None, None);
            }
        })
    };
    assert_completed(&run(barrier(None)));
    let trace = timed_out(barrier(Some(2)));
    let log = CallLog::of(&trace);
    for rank in [0, 1, 3] {
        assert_eq!(log.ranks[rank].as_ref().unwrap().calls[0].state, CallState::Started);
    }
}
