//! Calls worked out as a whole (`sim/src/whole.rs`), and messages that are only counted
//! (`sim/src/arrivals.rs`), against the same calls message by message.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::plan::{Fill, Plan, PlanBuilder};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::Algorithm;
use lockstep_core::trace::{CallLog, Outcome, Trace, What};
use lockstep_core::watch::Unwatched;
use lockstep_sim::{Link, SimConfig, Topology, simulate, simulate_calls};
use proptest::prelude::*;
use std::sync::Arc;

/// A call, as all ranks make it.
#[derive(Clone, Debug)]
struct Call {
    kind: u8,
    count: u64,
    root: u32,
    async_op: bool,
    /// Nanoseconds of computing before it; on some ranks more.
    compute: u64,
    late: Vec<u64>,
}

impl Call {
    /// The algorithm; `None` for the default, a ring.
    fn by(&self) -> Option<Algorithm> {
        match self.root {
            0..6 => None,
            6 => Some(Algorithm::HalvingDoubling),
            7 => Some(Algorithm::RecursiveDoubling),
            _ => Some(Algorithm::Pairwise),
        }
    }
}

#[derive(Clone, Debug)]
struct Job {
    world_size: u32,
    backend: BackendName,
    topology: Topology,
    calls: Vec<Call>,
    /// A rank that leaves out a call.
    skips: Option<(u32, usize)>,
}

fn job() -> impl Strategy<Value = Job> {
    let call =
        (0u8..8, 0u64..40, 0u32..9, any::<bool>(), 0u64..30, prop::collection::vec(0u64..20, 9));
    let call = call.prop_map(|(kind, count, root, async_op, compute, late)| Call {
        kind,
        // Chunks of one byte and of many, even and not; sometimes fewer elements than ranks.
        count: if kind % 2 == 0 { count } else { count * 97 + 1 },
        root,
        async_op,
        compute,
        late: if compute % 3 == 0 { vec![0; 9] } else { late },
    });
    let link = (0u64..20_000, prop::sample::select(vec![1u64 << 30, 1 << 33, 3_000_000_000]))
        .prop_map(|(latency_ps, bytes_per_second)| Link { latency_ps, bytes_per_second });
    let topology = prop_oneof![
        link.clone().prop_map(Topology::Uniform),
        (1u32..5, link.clone(), link).prop_map(|(ranks_per_node, inside, across)| {
            Topology::Nodes { ranks_per_node, inside, across }
        }),
    ];
    let backend = prop::sample::select(vec![BackendName::Nccl, BackendName::Host]);
    let skips = prop::option::weighted(0.1, (0u32..9, 0usize..8));
    let calls = prop::collection::vec(call, 1..9);
    (2u32..9, backend, topology, calls, skips).prop_map(
        |(world_size, backend, topology, calls, skips)| Job {
            world_size,
            backend,
            topology,
            calls,
            skips,
        },
    )
}

fn plan(job: &Job) -> Plan {
    let mut plan = PlanBuilder::new("rings", job.world_size, job.backend).unwrap();
    plan.timeout_ms(1);
    let world = u64::from(job.world_size);
    let tensors: Vec<_> = job
        .calls
        .iter()
        .map(|call| {
            let small = plan.tensor("x", Dtype::Float32, call.count, Fill::Zeros);
            (small, plan.tensor("y", Dtype::Float32, call.count * world, Fill::Zeros))
        })
        .collect();
    plan.every_rank(|rank, program| {
        let mut waits = Vec::new();
        for (index, (call, (small, large))) in job.calls.iter().zip(&tensors).enumerate() {
            program.compute("compute", call.compute + call.late[rank.index()]);
            if job.skips == Some((rank.0, index)) {
                continue;
            }
            if call.async_op {
                program.async_op();
            }
            let op = ReduceOp::Sum;
            let (collective, input, output) = match call.kind {
                0..4 => (Collective::AllReduce { op }, None, Some(*small)),
                4 => (Collective::AllGather, Some(*small), Some(*large)),
                5 => (Collective::ReduceScatter { op }, Some(*large), Some(*small)),
                _ => {
                    let root = GroupRank(call.root % job.world_size);
                    (Collective::Broadcast { root }, None, Some(*small))
                }
            };
            let by = call.by().filter(|by| by.carries_out(collective));
            let world = GroupId::WORLD;
            let made = program.collective_by(world, collective, call.count, input, output, by);
            if call.async_op {
                waits.push(made);
            }
        }
        waits.into_iter().for_each(|op| {
            program.wait(op);
        });
    })
    .unwrap()
}

/// The events of each rank: in order of time, and among equal times by what they are, since a
/// message's event and a whole ring's stand in the queue at different places. For the same reason a
/// stream's wait of no length is left out: it is recorded only if the stream comes to it first.
fn events(trace: &Trace, rank: u32) -> Vec<(u64, String)> {
    let own: Vec<_> = trace.events.iter().filter(|e| e.rank == GlobalRank(rank)).collect();
    let both = |op: u32, time_ps: u64| {
        let at = |what: What| own.iter().any(|e| e.time_ps == time_ps && e.what == what);
        at(What::StreamBegan { op }) && at(What::StreamEnded { op })
    };
    let kept = own.iter().filter(|event| match event.what {
        What::StreamBegan { op } | What::StreamEnded { op } => !both(op, event.time_ps),
        _ => true,
    });
    let mut events: Vec<_> = kept.map(|e| (e.time_ps, format!("{:?}", e.what))).collect();
    events.sort();
    events
}

fn whole(topology: Topology) -> SimConfig {
    SimConfig { topology, max_value_bytes: 0, record_messages: false, ..SimConfig::default() }
}

/// The same without the short way: with messages, which are then taken out.
fn message_by_message(plan: &Plan, topology: Topology) -> Trace {
    let config = SimConfig { record_messages: true, ..whole(topology) };
    let mut trace = simulate(plan, &config).unwrap();
    trace.events.retain(|event| !matches!(event.what, What::Sent { .. } | What::Received { .. }));
    trace
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]
    #[test]
    fn every_rank_has_the_same_times(job in job()) {
        let plan = plan(&job);
        let truth = message_by_message(&plan, job.topology);
        let trace = simulate(&plan, &whole(job.topology)).unwrap();
        prop_assert_eq!(&trace.end, &truth.end);
        for rank in 0..job.world_size {
            prop_assert_eq!(events(&trace, rank), events(&truth, rank), "rank {}", rank);
        }
        // Recording one rank changes nothing about it.
        let one = SimConfig { record_ranks: Some(vec![1]), ..whole(job.topology) };
        let one = simulate(&plan, &one).unwrap();
        let own: Vec<_> = trace.events.iter().filter(|e| e.rank.0 == 1).cloned().collect();
        prop_assert_eq!(one.events, own);
        prop_assert_eq!(one.end, trace.end);
    }
}

/// A plan of many algorithms and groups: every rank calls in the groups of `calls` that have it.
fn mixed(job: &Job) -> Plan {
    let mut plan = PlanBuilder::new("mixed", job.world_size, job.backend).unwrap();
    plan.timeout_ms(1);
    let group = |ranks: Vec<u32>| {
        let ranks = ranks.into_iter().map(GlobalRank).collect();
        ProcessGroup::new("g", job.backend, ranks).unwrap()
    };
    let mut of_every = |step: usize| {
        let ranks: Vec<u32> = (0..job.world_size).step_by(step).collect();
        (plan.group(group(ranks.clone())), ranks)
    };
    let groups = [of_every(1), of_every(2), of_every(3)];
    let tensors: Vec<_> = job
        .calls
        .iter()
        .map(|call| {
            let members = groups[call.kind as usize % 3].1.len() as u64;
            let small = plan.tensor("x", Dtype::Float32, call.count, Fill::Zeros);
            let many = |name| (name, Dtype::Float32, call.count * members, Fill::Zeros);
            let [(a, b, c, d), (e, f, g, h)] = [many("y"), many("z")];
            (small, plan.tensor(a, b, c, d), plan.tensor(e, f, g, h))
        })
        .collect();
    plan.every_rank(|rank, program| {
        for (index, (call, (small, large, other))) in job.calls.iter().zip(&tensors).enumerate() {
            let (group, members) = &groups[call.kind as usize % 3];
            program.compute("compute", call.compute + call.late[rank.index()]);
            if !members.contains(&rank.0) || job.skips == Some((rank.0, index)) {
                continue;
            }
            if call.async_op {
                program.async_op();
            }
            let (op, root) = (ReduceOp::Sum, GroupRank(call.root % members.len() as u32));
            let (collective, input, output) = match call.root {
                0 | 1 => (Collective::AllToAll, Some(*large), Some(*other)),
                2 | 3 => (Collective::AllGather, Some(*small), Some(*large)),
                4 => (Collective::ReduceScatter { op }, Some(*large), Some(*small)),
                5 => (Collective::Broadcast { root }, None, Some(*small)),
                _ => (Collective::AllReduce { op }, None, Some(*small)),
            };
            let one_node = |by: &&Algorithm| !matches!(by, Algorithm::Nvls | Algorithm::Sharp);
            let families: Vec<_> = Algorithm::of(collective).iter().filter(one_node).collect();
            let by = Some(*families[call.count as usize % families.len()]);
            program.collective_by(*group, collective, call.count, input, output, by);
        }
    })
    .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]
    /// Counted messages change nothing: the same events in the same order.
    #[test]
    fn counted_messages_make_the_same_trace(job in job()) {
        let plan = mixed(&job);
        let truth = message_by_message(&plan, job.topology);
        let trace = simulate(&plan, &whole(job.topology)).unwrap();
        prop_assert_eq!(&trace.end, &truth.end);
        prop_assert_eq!(&trace.events, &truth.events);
        // Calls that are collected without their events are those of the trace.
        let config = whole(job.topology);
        let kept = simulate_calls(Arc::new(plan.clone()), &config, &mut Unwatched).unwrap();
        prop_assert_eq!(&kept.calls, &CallLog::of(&trace));
        prop_assert_eq!((kept.events, &kept.end), (trace.events.len(), &trace.end));
        // Where one rank's messages are recorded, those of the others are counted.
        let messages = SimConfig { record_messages: true, ..whole(job.topology) };
        let one = SimConfig { record_ranks: Some(vec![1]), ..messages.clone() };
        let (one, all) = (simulate(&plan, &one).unwrap(), simulate(&plan, &messages).unwrap());
        let own: Vec<_> = all.events.into_iter().filter(|e| e.rank.0 == 1).collect();
        prop_assert_eq!(one.events, own);
    }
}

/// All ranks to all others at once: the order in which they begin decides who waits at each port.
#[test]
fn an_all_to_all_of_256_ranks_takes_what_its_messages_take() {
    let count = 256;
    let mut plan = PlanBuilder::new("all_to_all", 256, BackendName::Nccl).unwrap();
    let [x, y] = ["x", "y"].map(|name| plan.tensor(name, Dtype::Float32, 256 * count, Fill::Zeros));
    let plan = plan.every_rank(|_, program| {
        program.collective(GroupId::WORLD, Collective::AllToAll, count, Some(x), Some(y));
    });
    let plan = plan.unwrap();
    for topology in [Topology::default(), Topology::nodes(8)] {
        let truth = message_by_message(&plan, topology);
        let trace = simulate(&plan, &whole(topology)).unwrap();
        assert_eq!((trace.end, trace.events), (truth.end, truth.events));
    }
}

/// A butterfly of 65,536 ranks by one of them: a latency and its bytes for each of 32 steps.
#[test]
fn halving_and_doubling_of_65536_ranks() {
    let link = Link { latency_ps: 5_000_000, bytes_per_second: 25_000_000_000 };
    let count = 1 << 20;
    let mut plan = PlanBuilder::new("butterfly", 65_536, BackendName::Nccl).unwrap();
    let x = plan.tensor("x", Dtype::Float32, count, Fill::Zeros);
    let (sum, by) = (Collective::AllReduce { op: ReduceOp::Sum }, Some(Algorithm::HalvingDoubling));
    let plan = plan.every_rank(|_, program| {
        program.collective_by(GroupId::WORLD, sum, count, None, Some(x), by);
    });
    let config = SimConfig { record_ranks: Some(vec![0]), ..whole(Topology::Uniform(link)) };
    let end = simulate(&plan.unwrap(), &config).unwrap().end.unwrap();
    let bytes: u64 = (1..=16).map(|step| link.transmit_ps((4 * count) >> step)).sum();
    assert_eq!(end.time_ps, 32 * link.latency_ps + 2 * bytes);
}

fn ring(world_size: u32, count: u64) -> Plan {
    let mut plan = PlanBuilder::new("ring", world_size, BackendName::Nccl).unwrap();
    let x = plan.tensor("x", Dtype::Float32, count, Fill::Zeros);
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let by = Some(Algorithm::Ring);
    let plan = plan.every_rank(|_, program| {
        program.collective_by(GroupId::WORLD, sum, count, None, Some(x), by);
    });
    plan.unwrap()
}

/// 8.6 billion messages, in closed form: 2(n - 1) steps of latency and a chunk.
#[test]
fn a_ring_of_65536_ranks() {
    let link = Link { latency_ps: 5_000_000, bytes_per_second: 25_000_000_000 };
    let config = SimConfig { record_ranks: Some(vec![0]), ..whole(Topology::Uniform(link)) };
    let trace = simulate(&ring(65_536, 65_536 * 100), &config).unwrap();
    let end = trace.end.unwrap();
    assert_eq!(end.outcome, Outcome::Completed);
    assert_eq!(end.time_ps, 2 * 65_535 * (5_000_000 + 400 * 1_000_000_000_000 / 25_000_000_000));
    let on_rank_0 = trace.events.iter().find(|event| matches!(event.what, What::Completed { .. }));
    assert_eq!(on_rank_0.unwrap().time_ps, end.time_ps);
}

/// Chunks that differ by an element, on a world too large for a short test by messages alone.
#[test]
fn uneven_chunks_of_many_ranks() {
    for (world_size, count) in [(200, 200 * 7 + 13), (129, 100)] {
        let plan = ring(world_size, count);
        let topology = Topology::Uniform(Link { latency_ps: 3_000, bytes_per_second: 1 << 31 });
        let truth = message_by_message(&plan, topology);
        let trace = simulate(&plan, &whole(topology)).unwrap();
        assert_eq!(trace.end, truth.end);
        assert!((0..world_size).all(|rank| events(&trace, rank) == events(&truth, rank)));
    }
}

/// Training plans, with their broadcasts between the rings.
#[test]
fn training_runs_have_the_same_times() {
    use lockstep_torch::ddp::model::{Device, named};
    use lockstep_torch::ddp::plan::{Training, training_plan};
    for (model, backend) in [("resnet18", BackendName::Nccl), ("mlp:64,999,10", BackendName::Gloo)]
    {
        for world_size in [2, 3, 8, 17] {
            let device = Device::named("A100").unwrap();
            let training = Training { backend, ..Training::new(world_size, device) };
            let plan = training_plan(&named(model).unwrap(), &training).unwrap();
            let topology = SimConfig::default().topology;
            let truth = message_by_message(&plan, topology);
            let trace = simulate(&plan, &whole(topology)).unwrap();
            assert_eq!(trace.end, truth.end);
            assert!((0..world_size).all(|rank| events(&trace, rank) == events(&truth, rank)));
        }
    }
}
