//! Rings worked out as a whole (`sim/src/whole.rs`) against the same rings message by message.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, Plan, PlanBuilder};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::Algorithm;
use lockstep_core::trace::{Outcome, Trace, What};
use lockstep_sim::{Link, SimConfig, Topology, simulate};
use proptest::prelude::*;

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
            let made = program.collective(GroupId::WORLD, collective, call.count, input, output);
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
