//! Coalesced calls, receives from any source, uneven splits, queries, and the compute stream.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

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
use lockstep_diagnosis::{Certainty, Kind, diagnose_trace};
use lockstep_sim::{Link, SimConfig, Topology, simulate};
use lockstep_torch::c10d::{Job, Machine, Object};
use proptest::prelude::*;

const WORLD: GroupId = GroupId::WORLD;
const US: u64 = 1_000_000;

fn config() -> SimConfig {
    let link = Link { latency_ps: US, bytes_per_second: 1_000_000_000_000 };
    SimConfig { topology: Topology::Uniform(link), ..SimConfig::default() }
}

fn outcome(trace: &Trace) -> &Outcome {
    &trace.end.as_ref().unwrap().outcome
}

fn values(trace: &Trace, rank: u32, tensor: TensorId) -> Vec<i64> {
    let found = trace.events.iter().find_map(|event| match &event.what {
        What::Result { tensor: id, value: TensorValue::Bytes(bytes) }
            if (*id, event.rank) == (tensor, GlobalRank(rank)) =>
        {
            Some(bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect())
        }
        _ => None,
    });
    found.unwrap()
}

/// When each of a rank's events of a kind happened.
fn times(trace: &Trace, rank: u32, is: impl Fn(&What) -> bool) -> Vec<u64> {
    let events = trace.events.iter().filter(|e| e.rank == GlobalRank(rank) && is(&e.what));
    events.map(|event| event.time_ps).collect()
}

fn all_reduce(tensor: TensorId, count: u64) -> Call {
    Call::Collective {
        group: WORLD,
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

/// `world` ranks on NCCL; every rank computes for `compute_us` (more on rank 1), calls and computes
/// again.
fn on_device(async_op: bool, then: impl Fn(&mut ProgramBuilder, u32)) -> Plan {
    let mut plan = PlanBuilder::new("p", 2, BackendName::Nccl).unwrap();
    let x = plan.tensor("x", Dtype::Int64, 8, Fill::Rank);
    plan.every_rank(|rank, program| {
        program.compute("forward", 100_000 + 50_000 * u64::from(rank.0));
        if async_op {
            program.async_op();
        }
        let op = program.call(all_reduce(x, 8));
        program.compute("backward", 100_000);
        then(program, op);
    })
    .unwrap()
}

/// A synchronous call on NCCL holds the compute stream and lets the process go on; an asynchronous
/// one holds neither, until it is waited for.
#[test]
fn nccl_blocks_the_stream_and_not_the_process() {
    let held = simulate(&on_device(false, |_, _| {}), &config()).unwrap();
    let ended = |trace: &Trace, rank| times(trace, rank, |w| matches!(w, What::OpEnded { .. }));
    assert_eq!(ended(&held, 0), [0, 0, 0], "the process only enqueues");
    let stream = |trace: &Trace, rank, op| {
        let began = times(trace, rank, |w| *w == What::StreamBegan { op });
        let ended = times(trace, rank, |w| *w == What::StreamEnded { op });
        (began[0] / US, ended[0] / US)
    };
    assert_eq!(stream(&held, 0, 0), (0, 100));
    // Rank 0's stream waits from its call until rank 1, 50 us later, has come, and a ring of two
    // has taken a step: what rank 0 sent in its first has long arrived.
    assert_eq!(stream(&held, 0, 1), (100, 151));
    assert_eq!(stream(&held, 0, 2), (151, 251));
    assert_eq!(*outcome(&held), Outcome::Completed);

    let free = simulate(
        &on_device(true, |program, op| {
            program.wait(op);
        }),
        &config(),
    )
    .unwrap();
    assert_eq!(stream(&free, 0, 2), (100, 200), "the computation does not wait for the call");
    assert_eq!(values(&free, 0, TensorId(0)), [1; 8]);
    let trace_end = |trace: &Trace| trace.end.as_ref().unwrap().time_ps / US;
    assert_eq!((trace_end(&held), trace_end(&free)), (252, 250));
}

#[test]
fn synchronize_and_a_barrier_hold_the_process_and_queries_answer_what_is() {
    let plan = on_device(true, |program, op| {
        program.push(Action::Query { op, what: WorkQuery::IsCompleted });
        program.push(Action::Query { op, what: WorkQuery::FutureDone });
        program.push(Action::Synchronize);
        program.push(Action::Query { op, what: WorkQuery::IsCompleted });
        program.barrier(WORLD);
        program.compute("next", 1000);
    });
    let trace = simulate(&plan, &config()).unwrap();
    assert_eq!(*outcome(&trace), Outcome::Completed);
    let answers: Vec<_> = trace
        .events
        .iter()
        .filter(|event| event.rank == GlobalRank(0))
        .filter_map(|event| match &event.what {
            What::Answered { answer, .. } => Some((event.time_ps / US, answer.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(answers, [(0, "False"), (0, "True"), (200, "True")]);
    // The barrier: rank 1 comes at 250 us, one step of a microsecond.
    let ended = times(&trace, 0, |what| *what == What::OpEnded { op: 7 });
    assert_eq!(ended, [251 * US]);
}

/// On a CPU backend the same plan holds the process.
#[test]
fn gloo_blocks_the_process() {
    let mut plan = on_device(false, |_, _| {});
    let ranks = plan.groups[0].ranks().to_vec();
    plan.groups[0] =
        lockstep_core::group::ProcessGroup::new("0", BackendName::Gloo, ranks).unwrap();
    let trace = simulate(&plan, &config()).unwrap();
    let ended: Vec<_> =
        times(&trace, 0, |w| matches!(w, What::OpEnded { .. })).iter().map(|t| t / US).collect();
    assert_eq!(ended, [100, 151, 251]);
    assert!(times(&trace, 0, |w| matches!(w, What::StreamBegan { .. })).is_empty());
}

/// Each rank sends to both neighbours before it receives: one by one this deadlocks, together it
/// does not (the documentation of `batch_isend_irecv`).
#[test]
fn calls_made_together_do_not_wait_for_each_other() {
    let world = 4;
    let ring = |together: bool| {
        let mut plan = PlanBuilder::new("p", world, BackendName::Gloo).unwrap();
        plan.timeout_ms(50);
        let out = plan.tensor("out", Dtype::Int64, 2, Fill::Rank);
        let left = plan.tensor("left", Dtype::Int64, 2, Fill::Zeros);
        let right = plan.tensor("right", Dtype::Int64, 2, Fill::Zeros);
        let plan = plan.every_rank(|rank, program| {
            let next = GroupRank((rank.0 + 1) % world);
            let before = GroupRank((rank.0 + world - 1) % world);
            let calls = vec![
                Call::Send { group: WORLD, peer: next, tensor: out, tag: 0 },
                Call::Send { group: WORLD, peer: before, tensor: out, tag: 0 },
                Call::Recv { group: WORLD, peer: Some(before), tensor: left, tag: 0 },
                Call::Recv { group: WORLD, peer: Some(next), tensor: right, tag: 0 },
            ];
            match together {
                true => _ = program.coalesced(calls),
                false => calls.into_iter().for_each(|call| _ = program.call(call)),
            }
        });
        (simulate(&plan.unwrap(), &config()).unwrap(), left, right)
    };
    let (trace, left, right) = ring(true);
    assert_eq!(*outcome(&trace), Outcome::Completed);
    for rank in 0..i64::from(world) {
        let n = i64::from(world);
        assert_eq!(values(&trace, rank as u32, left), [(rank + n - 1) % n; 2]);
        assert_eq!(values(&trace, rank as u32, right), [(rank + 1) % n; 2]);
    }
    let log = CallLog::of(&trace);
    let rank = log.ranks[2].as_ref().unwrap();
    let calls: Vec<_> = rank.calls.iter().map(|c| (c.call.op.as_str(), c.plan_op)).collect();
    assert_eq!(
        calls,
        [("isend", Some(0)), ("isend", Some(0)), ("irecv", Some(0)), ("irecv", Some(0))]
    );
    assert_eq!(*outcome(&ring(false).0), Outcome::TimedOut);
}

/// The message that was sent first is taken first, whoever sent it; a named receive posted earlier
/// has its own.
#[test]
fn a_receive_from_any_source_takes_the_first_send() {
    let mut plan = PlanBuilder::new("p", 4, BackendName::Gloo).unwrap();
    let out = plan.tensor("out", Dtype::Int64, 1, Fill::Rank);
    let into: Vec<_> =
        (0..3).map(|i| plan.tensor(format!("in{i}"), Dtype::Int64, 1, Fill::Zeros)).collect();
    let plan = plan
        .every_rank(|rank, program| match rank.0 {
            0 => {
                program.sleep("late", 100_000);
                for &tensor in &into {
                    program.call(Call::Recv { group: WORLD, peer: None, tensor, tag: 7 });
                }
            }
            rank => {
                // Rank 3 first, then 1, then 2.
                program.compute("before", [0, 20_000, 30_000, 10_000][rank as usize]);
                program.call(Call::Send { group: WORLD, peer: GroupRank(0), tensor: out, tag: 7 });
            }
        })
        .unwrap();
    let trace = simulate(&plan, &config()).unwrap();
    assert_eq!(*outcome(&trace), Outcome::Completed);
    let got: Vec<_> = into.iter().map(|tensor| values(&trace, 0, *tensor)[0]).collect();
    assert_eq!(got, [3, 1, 2]);
}

/// A message of another size than its receive from any source has been taken by it all the same, as on
/// gloo, which ends the receiver there (PyTorch 2.7.1: "op.preamble.length <= op.nbytes"): the
/// fitting message that comes later is not for it.
#[test]
fn a_receive_from_any_source_takes_the_first_send_of_any_size() {
    let mut plan = PlanBuilder::new("p", 3, BackendName::Gloo).unwrap();
    let small = plan.tensor("small", Dtype::Int64, 4, Fill::Rank);
    let large = plan.tensor("large", Dtype::Int64, 8, Fill::Rank);
    let plan = plan
        .every_rank(|rank, program| {
            let send = |tensor| Call::Send { group: WORLD, peer: GroupRank(0), tensor, tag: 0 };
            match rank.0 {
                0 => [small, large].into_iter().for_each(|tensor| {
                    program.call(Call::Recv { group: WORLD, peer: None, tensor, tag: 0 });
                }),
                1 => {
                    program.sleep("late", 100_000_000);
                    program.call(send(small));
                }
                _ => {
                    program.call(send(large));
                }
            }
        })
        .unwrap();
    let trace = simulate(&plan, &config()).unwrap();
    assert_eq!(*outcome(&trace), Outcome::TimedOut);
    let report = diagnose_trace(&trace);
    let told: Vec<_> = report.findings.iter().map(|it| (it.kind, &*it.culprits)).collect();
    let pair = [GlobalRank(0), GlobalRank(2)];
    assert_eq!(told, [(Kind::P2pMismatch, &pair[..])], "{}", report.to_text());
    assert_eq!(report.findings[0].certainty, Certainty::Certain);
}

#[test]
fn a_wait_with_a_timeout_ends_the_run() {
    let mut plan = PlanBuilder::new("p", 2, BackendName::Gloo).unwrap();
    let x = plan.tensor("x", Dtype::Int64, 1, Fill::Rank);
    let plan = plan
        .every_rank(|rank, program| {
            if rank.0 == 1 {
                program.sleep("elsewhere", 30_000_000);
            }
            program.async_op();
            let op = program.call(all_reduce(x, 1));
            program.push(Action::Wait { op, timeout_ms: Some(10) });
        })
        .unwrap();
    let trace = simulate(&plan, &config()).unwrap();
    assert_eq!(*outcome(&trace), Outcome::TimedOut);
    assert_eq!(times(&trace, 0, |w| matches!(w, What::TimedOut { .. })), [10_000 * US]);
}

fn uneven(splits: &[Vec<u64>], lie: Option<(usize, usize)>) -> (Plan, TensorId) {
    let world = splits.len();
    let mut plan = PlanBuilder::new("p", world as u32, BackendName::Gloo).unwrap();
    plan.timeout_ms(50);
    let rows = |rank: usize| splits[rank].iter().sum::<u64>();
    let columns = |rank: usize| {
        let lies = lie.is_some_and(|(to, _)| to == rank);
        splits.iter().map(|row| row[rank]).sum::<u64>() + u64::from(lies)
    };
    let ids: Vec<_> = (0..world)
        .map(|rank| {
            let input = plan.tensor(format!("in{rank}"), Dtype::Int64, rows(rank), Fill::Iota);
            (input, plan.tensor(format!("out{rank}"), Dtype::Int64, columns(rank), Fill::Zeros))
        })
        .collect();
    let plan = plan.every_rank(|rank, program| {
        let rank = rank.0 as usize;
        let mut output: Vec<_> = splits.iter().map(|row| row[rank]).collect();
        if let Some((_, from)) = lie.filter(|(to, _)| *to == rank) {
            output[from] += 1;
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
    });
    (plan.unwrap(), ids[0].1)
}

fn any_splits() -> impl Strategy<Value = Vec<Vec<u64>>> {
    (1usize..7)
        .prop_flat_map(|n| prop::collection::vec(prop::collection::vec(0u64..5, n..=n), n..=n))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// `all_to_all_single`: part i of rank r's input is part r of rank i's output.
    #[test]
    fn uneven_parts_arrive_where_they_belong(splits in any_splits()) {
        let (plan, _) = uneven(&splits, None);
        let trace = simulate(&plan, &config()).unwrap();
        prop_assert_eq!(outcome(&trace), &Outcome::Completed);
        for to in 0..splits.len() {
            let expected: Vec<i64> = splits.iter().enumerate().flat_map(|(from, row)| {
                let numel = row.iter().sum::<u64>();
                let start: u64 = row[..to].iter().sum();
                (start..start + row[to]).map(move |i| (from as u64 * numel + i) as i64)
            }).collect();
            prop_assert_eq!(values(&trace, to as u32, TensorId(2 * to as u32 + 1)), expected);
        }
    }
}

/// A receiver that expects another number of elements than its sender sends never completes.
#[test]
fn splits_that_disagree_hang() {
    let splits = vec![vec![1, 2, 3], vec![2, 2, 2], vec![3, 1, 1]];
    let (plan, _) = uneven(&splits, Some((2, 0)));
    let trace = simulate(&plan, &config()).unwrap();
    assert_eq!(*outcome(&trace), Outcome::TimedOut);
    let log = CallLog::of(&trace);
    let state = |rank: usize| log.ranks[rank].as_ref().unwrap().calls[0].state;
    assert_eq!(
        [0, 1, 2].map(state),
        [CallState::Completed, CallState::Completed, CallState::Started]
    );
}

/// NCCL's AVG of floats multiplies every contribution with 1/n before it adds (`ncclAvg` becomes a
/// `PreMulSum`), and leaves the input of a call that is not in place as it was.
#[test]
fn averages_scale_before_they_add() {
    let world = 3;
    let mut plan = PlanBuilder::new("p", world, BackendName::Host).unwrap();
    let x = plan.tensor("x", Dtype::Float32, 1, Fill::Seeded { seed: 1 });
    let out = plan.tensor("out", Dtype::Float32, 1, Fill::Zeros);
    let input = plan.tensor("in", Dtype::Float32, 3, Fill::Seeded { seed: 4 });
    let op = ReduceOp::Avg;
    let plan = plan
        .every_rank(|_, program| {
            program.collective(WORLD, Collective::AllReduce { op }, 1, None, Some(x));
            program.collective(WORLD, Collective::ReduceScatter { op }, 1, Some(input), Some(out));
        })
        .unwrap();
    let trace = simulate(&plan, &config()).unwrap();
    let bits = |tensor: TensorId, rank: u32| {
        let found = trace.events.iter().find_map(|event| match &event.what {
            What::Result { tensor: id, value: TensorValue::Bytes(bytes) }
                if (*id, event.rank) == (tensor, GlobalRank(rank)) =>
            {
                Some(bytes.clone())
            }
            _ => None,
        });
        found.unwrap()
    };
    let made = |tensor: TensorId, rank: u32| -> Vec<f32> {
        let bytes = lockstep_core::plan::value::initial_bytes(
            plan.tensor(tensor).unwrap(),
            GlobalRank(rank),
        );
        bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
    };
    let third = 1.0f32 / 3.0;
    // Floats are added in ring order; which rank begins is the ring's business.
    let sums: Vec<f32> = (0..3)
        .map(|first: u32| {
            let at = |i: u32| made(x, (first + i) % 3)[0] * third;
            (at(0) + at(1)) + at(2)
        })
        .collect();
    let divided: f32 = (made(x, 0)[0] + made(x, 1)[0] + made(x, 2)[0]) / 3.0;
    assert!(!sums.contains(&divided), "a seed that tells nothing");
    let got = f32::from_le_bytes(bits(x, 0).try_into().unwrap());
    assert!(sums.contains(&got), "{got} is none of {sums:?}");
    assert_eq!(bits(input, 1), bits_of(&made(input, 1)), "the input is left alone");
}

fn bits_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// `all_gather_object` reads the largest size with `.item()`: on NCCL the process waits for the
/// first all_gather before it can make the second (`_all_gather_object` of distributed_c10d.py).
#[test]
fn object_calls_hold_the_process_on_a_device() {
    let mut job = Job::new("objects", 4).unwrap();
    job.machine(Machine { cuda_devices: 4, mpi: false });
    job.run(|dist| {
        dist.init_process_group("nccl")?;
        dist.all_gather_object(4, &Object::of_len(40), None)
    });
    let trace = simulate(&job.finish().unwrap(), &config()).unwrap();
    assert_eq!(*outcome(&trace), Outcome::Completed);
    let calls = times(&trace, 0, |what| matches!(what, What::Scheduled { .. }));
    let done = times(&trace, 0, |what| matches!(what, What::Completed { .. }));
    assert_eq!(calls.len(), 2);
    assert!(calls[1] >= done[0] && done[0] > 0, "{calls:?} {done:?}");
}

/// A process that ends takes its calls with it: who shares one with it waits until the watchdog
/// fires, everybody else goes on, and the run ends of the death.
#[test]
fn a_rank_dies_and_its_peers_wait() {
    let mut plan = PlanBuilder::new("a death", 4, BackendName::Gloo).unwrap();
    plan.timeout_ms(1);
    let pair = vec![GlobalRank(2), GlobalRank(3)];
    let pair = plan.group(ProcessGroup::new("pair", BackendName::Gloo, pair).unwrap());
    let x = plan.tensor("x", Dtype::Int64, 4, Fill::Rank);
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let written = plan.every_rank(|rank, program| {
        if rank.0 >= 2 {
            program.collective(pair, sum, 4, None, Some(x));
        }
        if rank.0 == 1 {
            program.die("ValueError: no such file");
        }
        program.collective(WORLD, sum, 4, None, Some(x));
    });
    let plan = written.unwrap();
    let trace = simulate(&plan, &config()).unwrap();
    let how = "exited with status 1: ValueError: no such file".to_owned();
    assert_eq!(*outcome(&trace), Outcome::RankDied { rank: GlobalRank(1), how });
    let late = |rank| times(&trace, rank, |what| matches!(what, What::TimedOut { .. })).len();
    // Ranks 2 and 3 make the call later; the first watchdog ends the run for all.
    assert_eq!([0, 1, 2, 3].map(late), [1, 0, 0, 0]);
    let done = |rank| times(&trace, rank, |what| matches!(what, What::Completed { .. })).len();
    assert_eq!([0, 1, 2, 3].map(done), [0, 0, 1, 1]);
}
