//! Tests of the lowered form of a plan, without a device.
#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use lockstep_core::collective::Collective;
use lockstep_core::group::ProcessGroup;
use lockstep_core::plan::{Fill, PlanBuilder};
use lockstep_core::rank::GroupRank;
use lockstep_core::schedule::{Algorithm, Schedule};
use proptest::prelude::*;
use std::collections::VecDeque;

const SUM: Collective = Collective::AllReduce { op: ReduceOp::Sum };
const LIBRARY: Way = Way { collectives: Collectives::Library, messages: true, processes: true };
const SCHEDULES: Way = Way { collectives: Collectives::Schedules, ..LIBRARY };

fn lowered(plan: &Plan, rank: u32, way: Way) -> Result<Lowered, Unsupported> {
    lower(plan, GlobalRank(rank), &Communicators::of(plan), way)
}

#[test]
fn a_bucket_is_reduced_beside_the_next_layer() {
    let mut plan = PlanBuilder::new("ddp", 2, BackendName::Nccl).unwrap();
    let bucket = plan.tensor("bucket", Dtype::Float32, 10, Fill::Rank);
    let plan = plan.every_rank(|_, program| {
        program.compute("layer", 1000);
        let call = program.async_op().collective(GroupId::WORLD, SUM, 10, None, Some(bucket));
        program.wait(call);
    });
    let world = CommunicatorId(0);
    let (compute, lane) = (Lane::Compute, Lane::Of(world));
    let mark = |lane, mark| Step::Mark { lane, marks: vec![mark] };
    let span = Span { memory: Memory::Tensor(bucket), offset: 0, bytes: 40 };
    let expected = [
        vec![
            mark(compute, Mark::StreamBegan { op: 0 }),
            Step::Compute { lane: compute, duration_ns: 1000 },
            mark(compute, Mark::StreamEnded { op: 0 }),
        ],
        vec![
            Step::Make { work: 0, part: 0, seq: 1, group: GroupId::WORLD },
            Step::Follow { lane, on: compute },
            mark(lane, Mark::Started { work: 0 }),
            Step::Collective {
                communicator: world,
                operation: Operation::AllReduce(Reduction::Sum),
                element: Element::Float32,
                count: 10,
                input: span,
                output: span,
            },
            mark(lane, Mark::Completed { work: 0 }),
        ],
        vec![
            mark(compute, Mark::StreamBegan { op: 2 }),
            Step::Await { lane: compute, work: 0 },
            mark(compute, Mark::StreamEnded { op: 2 }),
        ],
    ];
    assert_eq!(lowered(&plan.unwrap(), 1, LIBRARY).unwrap().ops, expected);
}

/// c10d's `all2all_single_unequal_split`: offsets in elements, one's own part a copy.
#[test]
fn uneven_parts_are_sends_and_receives() {
    let mut plan = PlanBuilder::new("uneven", 2, BackendName::Nccl).unwrap();
    let input = plan.tensor("in", Dtype::Int16, 5, Fill::Iota);
    let output = plan.tensor("out", Dtype::Int16, 5, Fill::Zeros);
    let plan = plan.every_rank(|rank, program| {
        let (a, b) = if rank.0 == 0 { ([2, 3], [2, 3]) } else { ([3, 2], [3, 2]) };
        let splits = lockstep_core::collective::Splits { input: a.to_vec(), output: b.to_vec() };
        program.call(Call::Collective {
            group: GroupId::WORLD,
            collective: Collective::AllToAll,
            count: 0,
            input: Some(input),
            output: Some(output),
            algorithm: None,
            channels: None,
            segments: None,
            schedule: None,
            splits: Some(Box::new(splits)),
        });
    });
    let plan = plan.unwrap();
    let steps = lowered(&plan, 0, LIBRARY).unwrap().ops.concat();
    let of = |tensor, offset, bytes| Span { memory: Memory::Tensor(tensor), offset, bytes };
    let lane = Lane::Of(CommunicatorId(0));
    let copy = Step::Copy { lane, from: of(input, 0, 4), into: of(output, 0, 4) };
    let exchange = Step::Exchange {
        communicator: CommunicatorId(0),
        sends: vec![(1, of(input, 4, 6))],
        receives: vec![(1, of(output, 4, 6))],
    };
    assert!(steps.contains(&copy) && steps.contains(&exchange), "{steps:?}");
}

#[test]
fn what_nccl_lacks_is_refused_in_pytorchs_words() {
    let refused = |op: ReduceOp, dtype| {
        let mut plan = PlanBuilder::new("refused", 2, BackendName::Nccl).unwrap();
        let tensor = plan.tensor("t", dtype, 4, Fill::Rank);
        let plan = plan.every_rank(|_, program| {
            let call = Collective::AllReduce { op };
            program.collective(GroupId::WORLD, call, 4, None, Some(tensor));
        });
        let plan = plan.unwrap();
        assert!(lowered(&plan, 0, SCHEDULES).is_ok(), "schedules have {op} of {dtype}");
        lowered(&plan, 0, LIBRARY).unwrap_err().to_string()
    };
    assert!(refused(ReduceOp::Bxor, Dtype::Int32).contains("Cannot use ReduceOp.BXOR with NCCL"));
    let short = refused(ReduceOp::Sum, Dtype::Int16);
    assert!(short.contains("not supported for NCCL process group: Short"), "{short}");
}

#[test]
fn nothing_is_received_from_anybody() {
    let mut plan = PlanBuilder::new("any", 2, BackendName::Nccl).unwrap();
    let tensor = plan.tensor("t", Dtype::Int32, 4, Fill::Rank);
    let plan = plan.every_rank(|_, program| {
        let call = Call::Recv { group: GroupId::WORLD, peer: None, tensor, tag: 0 };
        program.call(call);
    });
    assert_eq!(lowered(&plan.unwrap(), 1, LIBRARY), Err(Unsupported::AnySource { op: 0 }));
}

/// Pairs come after groups, in one order on all ranks, whoever looks.
#[test]
fn communicators_are_the_same_on_every_rank() {
    let mut plan = PlanBuilder::new("many", 4, BackendName::Nccl).unwrap();
    let tensor = plan.tensor("t", Dtype::Int32, 4, Fill::Rank);
    let some = ProcessGroup::new("some", BackendName::Nccl, vec![GlobalRank(3), GlobalRank(1)]);
    let some = plan.group(some.unwrap());
    let plan = plan.every_rank(|rank, program| {
        match rank.0 {
            0 => drop(program.send(GroupId::WORLD, GroupRank(2), tensor)),
            2 => drop(program.recv(GroupId::WORLD, GroupRank(0), tensor)),
            _ => drop(program.collective(some, SUM, 4, None, Some(tensor))),
        }
        program.barrier(GroupId::WORLD);
    });
    let communicators = Communicators::of(&plan.unwrap());
    let all: Vec<Vec<u32>> =
        communicators.all().map(|(_, ranks)| ranks.iter().map(|rank| rank.0).collect()).collect();
    assert_eq!(all, [vec![0, 1, 2, 3], vec![3, 1], vec![0, 2]]);
}

/// NCCL's kernel for one rank refuses the mean of 8-bit floats, which is a sum there.
#[test]
fn the_mean_of_one_rank_is_its_sum() {
    for (n, reduction) in [(1, Reduction::Sum), (2, Reduction::Avg)] {
        let mut plan = PlanBuilder::new("mean", n, BackendName::Nccl).unwrap();
        let tensor = plan.tensor("t", Dtype::Float8E4m3fn, 8, Fill::Rank);
        let mean = Collective::AllReduce { op: ReduceOp::Avg };
        let plan = plan.every_rank(|_, program| {
            program.collective(GroupId::WORLD, mean, 8, None, Some(tensor));
        });
        let program = lowered(&plan.unwrap(), 0, LIBRARY).unwrap();
        let operations: Vec<_> = (program.ops.iter().flatten())
            .filter_map(|step| match step {
                Step::Collective { operation, .. } => Some(*operation),
                _ => None,
            })
            .collect();
        assert_eq!(operations, [Operation::AllReduce(reduction)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every message that one rank sends is received by the other, in the same order and size; and
    /// no step goes beyond the memory that it names.
    #[test]
    fn schedules_meet(
        n in 1u32..7,
        count in 0u64..40,
        root in 0u32..7,
        which in 0usize..9,
        algorithm in 0usize..30,
    ) {
        let (root, op) = (GroupRank(root % n), ReduceOp::Avg);
        let collective = Collective::every(op, root)[which];
        let known = Algorithm::of(collective);
        let algorithm = known[algorithm % known.len()];
        let fits = Schedule::new(collective, algorithm, n).is_ok_and(|s| s.switches() == 0);
        prop_assume!(fits);
        let count = if collective.is_barrier() { 0 } else { count };
        let mut plan = PlanBuilder::new("meet", n, BackendName::Nccl).unwrap();
        let most = |elements: fn(Collective, u32, GroupRank, u64) -> Option<u64>| {
            (0..n).filter_map(|rank| elements(collective, n, GroupRank(rank), count)).max()
        };
        let mut make = |numel: Option<u64>| {
            numel.map(|numel| plan.tensor("t", Dtype::Float32, numel, Fill::Rank))
        };
        let input = make(most(Collective::input_elements));
        let output = make(most(Collective::output_elements));
        let plan = plan.every_rank(|_, program| {
            let group = GroupId::WORLD;
            program.collective_by(group, collective, count, input, output, Some(algorithm));
        }).unwrap();
        let mut on_the_way: BTreeMap<(u32, u32), VecDeque<u64>> = BTreeMap::new();
        let programs: Vec<Lowered> =
            (0..n).map(|rank| lowered(&plan, rank, SCHEDULES).unwrap()).collect();
        let mut received = Vec::new();
        for (rank, program) in (0..).zip(&programs) {
            let inside = |span: &Span| {
                let bytes = match span.memory {
                    Memory::Tensor(id) => plan.tensor(id).unwrap().bytes(),
                    other => program.extra.get(&other).copied().unwrap_or(0),
                };
                span.offset + span.bytes <= bytes
            };
            for step in program.ops.iter().flatten() {
                match step {
                    Step::Exchange { sends, receives, .. } => {
                        for (to, span) in sends {
                            prop_assert!(inside(span), "{span:?}");
                            on_the_way.entry((rank, *to)).or_default().push_back(span.bytes);
                        }
                        for (from, span) in receives {
                            prop_assert!(inside(span), "{span:?}");
                            received.push(((*from, rank), span.bytes));
                        }
                    }
                    Step::Copy { from, into, .. } => prop_assert!(inside(from) && inside(into)),
                    Step::Combine { local, from, into, .. } => {
                        prop_assert!(inside(local) && inside(from) && inside(into));
                        prop_assert!(local.bytes == into.bytes && from.bytes == into.bytes);
                    }
                    Step::Premultiply { from, into, .. } => {
                        prop_assert!(inside(from) && inside(into) && from.bytes == into.bytes);
                    }
                    _ => {}
                }
            }
        }
        for (way, bytes) in received {
            let sent = on_the_way.get_mut(&way).and_then(VecDeque::pop_front);
            prop_assert_eq!(sent, Some(bytes), "{:?}", way);
        }
        prop_assert!(on_the_way.values().all(VecDeque::is_empty));
    }
}
