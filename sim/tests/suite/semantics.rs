//! The simulator against truths that know nothing of it: what each collective promises, the
//! alpha-beta closed forms, and the rules of `lockstep_core::plan`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::{Call, Fill, Plan, PlanBuilder, ProgramBuilder, TensorId};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::{Algorithm, Layout, Schedule};
use lockstep_core::trace::{CallLog, CallState, Outcome, TensorValue, Trace, What};
use lockstep_sim::{Link, Session, SimConfig, Topology, simulate};
use proptest::prelude::*;

const ALPHA: u64 = 1_000_000;

fn config() -> SimConfig {
    // 1 ps a byte, so that closed forms are whole numbers.
    let link = Link { latency_ps: ALPHA, bytes_per_second: 1_000_000_000_000 };
    SimConfig { topology: Topology::Uniform(link), ..SimConfig::default() }
}

/// One collective on int64 tensors filled with `rank * numel + i`.
pub(crate) fn one(collective: Collective, algorithm: Algorithm, world: u32, count: u64) -> Plan {
    let mut plan = PlanBuilder::new("one", world, BackendName::Host).unwrap();
    let mut tensor = |name: &str, elements: Option<u64>| {
        elements.map(|elements| plan.tensor(name, Dtype::Int64, elements, Fill::Iota))
    };
    let root = collective.root().unwrap_or(GroupRank(0));
    let input = tensor("input", collective.input_elements(world, root, count));
    let output = tensor("output", collective.output_elements(world, root, count));
    let count = if collective.is_barrier() { 0 } else { count };
    plan.every_rank(|_, program| {
        program.collective_by(GroupId::WORLD, collective, count, input, output, Some(algorithm));
    })
    .unwrap()
}

fn result(trace: &Trace, rank: u32, tensor: TensorId) -> Vec<i64> {
    let found = trace.events.iter().find_map(|event| match &event.what {
        What::Result { tensor: id, value: TensorValue::Bytes(bytes) }
            if *id == tensor && event.rank == GlobalRank(rank) =>
        {
            Some(bytes.as_chunks().0.iter().map(|b| i64::from_le_bytes(*b)).collect())
        }
        _ => None,
    });
    found.unwrap_or_else(|| panic!("rank {rank} has no result of tensor {}", tensor.0))
}

/// The tensor that the call leaves on `rank` by the documentation of torch.distributed; `None`
/// where it promises nothing.
fn promised(collective: Collective, world: u32, rank: u32, count: u64) -> Option<Vec<i64>> {
    let (n, count_i) = (i64::from(world), count as i64);
    let element = |rank: i64, numel: i64, i: i64| rank * numel + i;
    let ranks = 0..n;
    let each = 0..count_i;
    let root = i64::from(collective.root().map_or(0, |root| root.0));
    let me = i64::from(rank);
    Some(match collective {
        Collective::Broadcast { .. } => each.map(|i| element(root, count_i, i)).collect(),
        Collective::AllReduce { .. } => {
            each.map(|i| ranks.clone().map(|r| element(r, count_i, i)).sum()).collect()
        }
        Collective::Reduce { .. } if me != root => return None,
        Collective::Reduce { .. } => {
            each.map(|i| ranks.clone().map(|r| element(r, count_i, i)).sum()).collect()
        }
        Collective::Gather { .. } if me != root => return None,
        Collective::AllGather | Collective::Gather { .. } => (0..n * count_i).collect(),
        Collective::Scatter { .. } => {
            each.map(|i| element(root, n * count_i, me * count_i + i)).collect()
        }
        Collective::ReduceScatter { .. } => {
            let part = |r, i| element(r, n * count_i, me * count_i + i);
            each.map(|i| ranks.clone().map(|r| part(r, i)).sum()).collect()
        }
        Collective::AllToAll => ranks
            .flat_map(|r| (0..count_i).map(move |i| element(r, n * count_i, me * count_i + i)))
            .collect(),
        Collective::Barrier | Collective::MonitoredBarrier { .. } => return None,
    })
}

fn any_collective(world: u32) -> impl Strategy<Value = (Collective, Algorithm)> {
    let op = ReduceOp::Sum;
    (0..10u32, 0..world, any::<prop::sample::Index>()).prop_map(move |(kind, root, index)| {
        let root = GroupRank(root);
        let collective = match kind {
            0 => Collective::Broadcast { root },
            1 => Collective::AllReduce { op },
            2 => Collective::Reduce { op, root },
            3 => Collective::AllGather,
            4 => Collective::Gather { root },
            5 => Collective::Scatter { root },
            6 => Collective::ReduceScatter { op },
            7 => Collective::AllToAll,
            8 => Collective::MonitoredBarrier { wait_all_ranks: true },
            _ => Collective::Barrier,
        };
        let algorithms = Algorithm::of(collective);
        (collective, algorithms[index.index(algorithms.len())])
    })
}

/// The same in channels, segments and nodes; `None` where the family has no such form.
fn in_lanes(plan: Plan, (channels, segments): (u32, u32), ranks_per_node: u32) -> Option<Plan> {
    let mut plan = Plan { ranks_per_node, ..plan };
    for op in plan.programs.iter_mut().flat_map(|program| &mut program.ops) {
        if let [Call::Collective { channels: c, segments: s, .. }] = op.action.calls_mut() {
            (*c, *s) = (Some(channels), Some(segments));
        }
    }
    plan.check().is_ok().then_some(plan)
}

/// The schedule of the plan's one call.
fn schedule_of(plan: &Plan) -> Schedule {
    let call = plan.programs[0].ops[0].action.calls()[0].clone();
    plan.schedule(&call).unwrap().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the channels, segments and nodes, and whether messages pass links or are read in memory: every rank has what the call promises, every call
    /// is scheduled, started and completed once, and as many messages and bytes leave and arrive
    /// as the schedule was counted to have.
    #[test]
    fn lanes_and_nodes_change_neither_values_nor_counts(
        ((collective, algorithm), world, count) in (1u32..=17).prop_flat_map(|world| {
            (any_collective(world), Just(world), 1u64..200)
        }),
        lanes in (1u32..=5, 1u32..=4),
        ranks_per_node in 0u32..=9,
        // Some of its messages are then long enough to be lent.
        in_memory in any::<bool>(),
    ) {
        // A result of more than 64 KB is a hash.
        let count = if in_memory { (count * 12).min(8192 / u64::from(world)) } else { count };
        let config = match in_memory {
            true => SimConfig { topology: crate::lending::LATENCIES, ..config() },
            false => config(),
        };
        let plan = one(collective, algorithm, world, count);
        let plan = in_lanes(plan, lanes, ranks_per_node);
        prop_assume!(plan.is_some());
        let plan = plan.unwrap();
        let trace = simulate(&plan, &config).unwrap();
        prop_assert_eq!(&trace.end.as_ref().unwrap().outcome, &Outcome::Completed);
        let output = TensorId(plan.tensors.len().saturating_sub(1) as u32);
        for rank in 0..world {
            if let Some(promised) = promised(collective, world, rank, count) {
                prop_assert_eq!(result(&trace, rank, output), promised, "rank {}", rank);
            }
        }
        let happens = |like: fn(&What) -> bool| {
            trace.events.iter().filter(|event| like(&event.what)).count() as u32
        };
        prop_assert_eq!(happens(|what| matches!(what, What::Scheduled { .. })), world);
        prop_assert_eq!(happens(|what| matches!(what, What::Started { .. })), world);
        prop_assert_eq!(happens(|what| matches!(what, What::Completed { .. })), world);
        let layout = Layout::new(schedule_of(&plan), count, Dtype::Int64.size_bytes());
        for rank in 0..world {
            let counted = layout.tally_of(GroupRank(rank));
            let (mut sends, mut receives, mut sent, mut received) = (0u64, 0u64, 0u64, 0u64);
            for event in trace.events.iter().filter(|event| event.rank.0 == rank) {
                match event.what {
                    What::Sent { bytes, .. } => (sends, sent) = (sends + 1, sent + bytes),
                    What::Received { bytes, .. } => {
                        (receives, received) = (receives + 1, received + bytes);
                    }
                    _ => {}
                }
            }
            prop_assert_eq!((sends, receives), (counted.sends, counted.receives), "rank {}", rank);
            if !collective.is_barrier() {
                let bytes = (8 * counted.sent_elements, 8 * counted.received_elements);
                prop_assert_eq!((sent, received), bytes, "rank {}", rank);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_collective_leaves_what_it_promises(
        ((collective, algorithm), world, count) in (1u32..=20).prop_flat_map(|world| {
            (any_collective(world), Just(world), 1u64..50)
        })
    ) {
        let plan = one(collective, algorithm, world, count);
        let trace = simulate(&plan, &config()).unwrap();
        prop_assert_eq!(&trace.end.as_ref().unwrap().outcome, &Outcome::Completed);
        let output = TensorId(plan.tensors.len().saturating_sub(1) as u32);
        for rank in 0..world {
            if let Some(promised) = promised(collective, world, rank, count) {
                prop_assert_eq!(result(&trace, rank, output), promised);
            }
        }
    }

    /// Every moment of a session is the same whichever way it is reached, and the session's trace
    /// is the trace of an uninterrupted simulation.
    #[test]
    fn seeking_never_changes_what_is_seen(
        ((collective, algorithm), world) in (2u32..=9).prop_flat_map(|world| {
            (any_collective(world), Just(world))
        }),
        seeks in prop::collection::vec(any::<prop::sample::Index>(), 1..20),
    ) {
        let plan = one(collective, algorithm, world, 13);
        let mut session = Session::new(&plan, config()).unwrap();
        while !session.run(3).unwrap() {}
        prop_assert_eq!(session.trace(), simulate(&plan, &config()).unwrap());
        let moments = session.moments().len();
        let mut forward = Vec::new();
        for moment in 0..moments {
            session.seek(moment).unwrap();
            forward.push(session.view());
        }
        for seek in seeks {
            let moment = seek.index(moments);
            session.seek(moment).unwrap();
            prop_assert_eq!(session.view(), forward[moment].clone());
        }
    }
}

/// Patarasuk and Yuan 2009: 2 (n - 1) steps of latency plus one chunk each.
#[test]
fn a_ring_takes_the_closed_form_time() {
    for world in [2u32, 3, 8, 64] {
        let count = u64::from(world) * 1000;
        let collective = Collective::AllReduce { op: ReduceOp::Sum };
        let trace = simulate(&one(collective, Algorithm::Ring, world, count), &config()).unwrap();
        let chunk_bytes = 1000 * 8;
        let steps = 2 * u64::from(world - 1);
        assert_eq!(trace.end.unwrap().time_ps, steps * (ALPHA + chunk_bytes), "{world} ranks");
    }
}

/// LogGP (Alexandrov, Ionescu, Schauser, Scheiman 1995): a rank of the binomial tree sends to its
/// children one after the other, the k-th arriving k transmissions and one latency later.
#[test]
fn a_tree_takes_the_closed_form_time() {
    fn arrival(place: u32) -> u64 {
        let Some(level) = place.checked_ilog2() else {
            return 0;
        };
        let parent = place - (1 << level);
        let parents_level = parent.checked_ilog2().map_or(0, |level| level + 1);
        arrival(parent) + u64::from(level - parents_level + 1) * 800 + ALPHA
    }
    for world in [2u32, 3, 8, 33] {
        let collective = Collective::Broadcast { root: GroupRank(1) };
        let trace = simulate(&one(collective, Algorithm::Tree, world, 100), &config()).unwrap();
        let last = (0..world).map(arrival).max().unwrap();
        assert_eq!(trace.end.unwrap().time_ps, last, "{world} ranks");
    }
}

/// Incast: the root of a direct gather receives one message after the other.
#[test]
fn a_direct_gather_queues_at_the_root() {
    let collective = Collective::Gather { root: GroupRank(0) };
    let trace = simulate(&one(collective, Algorithm::Direct, 9, 100), &config()).unwrap();
    assert_eq!(trace.end.unwrap().time_ps, ALPHA + 8 * 800);
}

const SUM: Collective = Collective::AllReduce { op: ReduceOp::Sum };

#[test]
fn asynchronous_calls_overlap_with_compute_and_wait_holds_the_program() {
    let mut plan = PlanBuilder::new("overlap", 2, BackendName::Host).unwrap();
    let grad = plan.tensor("grad", Dtype::Float32, 1000, Fill::Rank);
    let plan = plan
        .every_rank(|_, program| {
            let (sum, ring) = (SUM, Some(Algorithm::Ring));
            let program = program.async_op();
            let op = program.collective_by(GroupId::WORLD, sum, 1000, None, Some(grad), ring);
            program.compute("backward", 500);
            program.wait(op);
        })
        .unwrap();
    let end = simulate(&plan, &config()).unwrap().end.unwrap();
    // Two steps of 500 elements each are 2 * (1 µs + 2 ns): longer than the compute of 500 ns.
    assert_eq!(end.time_ps, 2 * (ALPHA + 2000));
}

#[test]
fn calls_of_one_group_queue_and_of_two_groups_run_side_by_side() {
    let time = |two_groups: bool| {
        let mut plan = PlanBuilder::new("streams", 2, BackendName::Host).unwrap();
        let ranks = vec![GlobalRank(0), GlobalRank(1)];
        let other = plan.group(ProcessGroup::new("1", BackendName::Host, ranks).unwrap());
        let second = if two_groups { other } else { GroupId::WORLD };
        let plan = plan
            .every_rank(|_, program| {
                let a = program.async_op().barrier(GroupId::WORLD);
                let b = program.async_op().barrier(second);
                program.wait(a);
                program.wait(b);
            })
            .unwrap();
        simulate(&plan, &config()).unwrap().end.unwrap().time_ps
    };
    assert_eq!(time(true), ALPHA);
    assert_eq!(time(false), 2 * ALPHA);
}

#[test]
fn a_send_completes_when_it_is_received_and_carries_its_values() {
    let mut plan = PlanBuilder::new("p2p", 2, BackendName::Host).unwrap();
    let tensor = plan.tensor("x", Dtype::Int64, 2, Fill::Iota);
    let plan = plan
        .every_rank(|rank, program| {
            if rank.0 == 0 {
                program.send(GroupId::WORLD, GroupRank(1), tensor);
            } else {
                program.sleep("late", 7_000);
                program.recv(GroupId::WORLD, GroupRank(0), tensor);
            }
        })
        .unwrap();
    let trace = simulate(&plan, &config()).unwrap();
    assert_eq!(trace.end.as_ref().unwrap().time_ps, 7_000_000 + ALPHA + 16);
    assert_eq!(result(&trace, 1, tensor), [0, 1]);
}

#[test]
fn two_sends_that_face_each_other_hang_and_time_out() {
    let mut plan = PlanBuilder::new("p2p", 2, BackendName::Host).unwrap();
    plan.timeout_ms(250);
    let tensor = plan.tensor("x", Dtype::Int64, 2, Fill::Iota);
    let plan = plan
        .every_rank(|rank, program| {
            let peer = GroupRank(1 - rank.0);
            program.send(GroupId::WORLD, peer, tensor);
            program.recv(GroupId::WORLD, peer, tensor);
        })
        .unwrap();
    let end = simulate(&plan, &config()).unwrap().end.unwrap();
    assert_eq!((end.time_ps, end.outcome), (250_000_000_000, Outcome::TimedOut));
}

/// Different calls at the same sequence number never match, and the pending calls are left for the
/// diagnosis to read.
#[test]
fn ranks_that_disagree_hang_until_the_groups_timeout() {
    let mut plan = PlanBuilder::new("mismatch", 4, BackendName::Host).unwrap();
    plan.timeout_ms(100);
    let x = plan.tensor("x", Dtype::Float32, 8, Fill::Rank);
    let plan = plan
        .every_rank(|rank, program| {
            program.barrier(GroupId::WORLD);
            let call = match rank.0 {
                1 => Collective::Broadcast { root: GroupRank(0) },
                _ => SUM,
            };
            program.collective(GroupId::WORLD, call, 8, None, Some(x));
        })
        .unwrap();
    let trace = simulate(&plan, &config()).unwrap();
    assert_eq!(trace.end.as_ref().unwrap().outcome, Outcome::TimedOut);
    let log = CallLog::of(&trace);
    let pending: Vec<_> = log
        .ranks
        .iter()
        .flatten()
        .flat_map(|rank| rank.calls.iter().filter(|call| call.state != CallState::Completed))
        .map(|call| (call.call.op.as_str(), call.seq))
        .collect();
    assert_eq!(pending.len(), 4);
    assert!(pending.iter().all(|(_, seq)| *seq == Some(2)), "{pending:?}");
}

/// A slow rank that comes after the timeout is a timeout too, though nothing is deadlocked.
#[test]
fn a_rank_later_than_the_timeout_times_the_others_out_at_the_right_moment() {
    let mut plan = PlanBuilder::new("slow", 2, BackendName::Host).unwrap();
    plan.timeout_ms(1);
    let plan = plan
        .every_rank(|rank, program| {
            program.compute("step", if rank.0 == 0 { 1000 } else { 2_000_000 });
            program.barrier(GroupId::WORLD);
        })
        .unwrap();
    let trace = simulate(&plan, &config()).unwrap();
    let end = trace.end.unwrap();
    assert_eq!((end.time_ps, end.outcome), (1_000_000 + 1_000_000_000, Outcome::TimedOut));
}

#[test]
fn stepping_back_replays_a_bounded_stretch() {
    let mut plan = PlanBuilder::new("long", 4, BackendName::Host).unwrap();
    let x = plan.tensor("x", Dtype::Float32, 8, Fill::Rank);
    let plan = plan
        .every_rank(|_, program| {
            for _ in 0..2000 {
                program.collective(GroupId::WORLD, SUM, 8, None, Some(x));
            }
        })
        .unwrap();
    let mut session = Session::new(&plan, config()).unwrap();
    session.run_to_end().unwrap();
    let last = session.moments().len() - 1;
    assert!(last > 10_000, "{last}");
    for moment in (0..last).rev().step_by(997) {
        let replayed = session.seek(moment).unwrap();
        assert!(replayed < session.checkpoint_spacing(), "{replayed}");
    }
    assert!(session.checkpoint_spacing() <= last.div_ceil(16));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..Default::default() })]

    /// If a plan has lines, a rank with a device has a moment at every operation of its own, though
    /// its process runs ahead; and nothing else about the run changes.
    #[test]
    fn a_process_that_runs_ahead_stands_on_every_line(
        kinds in prop::collection::vec(0u8..5, 1..12),
        world in 1u32..4,
        on_nccl: bool,
        seeks in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
    ) {
        let backend = if on_nccl { BackendName::Nccl } else { BackendName::Gloo };
        let mut plan = PlanBuilder::new("lines", world, backend).unwrap();
        plan.source("train.py", "\n".repeat(20));
        let grad = plan.tensor("grad", Dtype::Float32, 12, Fill::Rank);
        let plan = plan.every_rank(|rank, program| {
            let mut made = None;
            for (line, kind) in (1..).zip(&kinds) {
                program.line(0, line);
                let call = |program: &mut ProgramBuilder| {
                    program.collective(GroupId::WORLD, SUM, 12, None, Some(grad))
                };
                match (kind, made) {
                    (0, _) => program.compute("forward", 700 + u64::from(rank.0)),
                    (1, _) => *made.insert(call(program.async_op())),
                    (2, Some(op)) => program.wait(op),
                    (3, _) => program.barrier(GroupId::WORLD),
                    _ => call(program),
                };
            }
        });
        let plan = plan.unwrap();
        let mut session = Session::new(&plan, config()).unwrap();
        while !session.run(3).unwrap() {}
        // The simulation without moments.
        prop_assert_eq!(session.trace(), simulate(&plan, &config()).unwrap());
        let mut seen = std::collections::BTreeSet::new();
        let mut forward = Vec::new();
        for moment in 0..session.moments().len() {
            session.seek(moment).unwrap();
            let view = session.view();
            seen.extend((0u32..).zip(&view.ranks).map(|(rank, view)| (rank, view.op)));
            forward.push(view);
        }
        // Without a device it stands where it waits; what is over at once is not waited for.
        for rank in (0..world).filter(|_| on_nccl && world > 1) {
            for op in 0..plan.program(GlobalRank(rank)).unwrap().ops.len() as u32 {
                prop_assert!(seen.contains(&(rank, op)), "rank {rank} never stands at {op}");
            }
        }
        for seek in seeks {
            let moment = seek.index(forward.len());
            session.seek(moment).unwrap();
            prop_assert_eq!(&session.view(), &forward[moment]);
        }
    }
}
