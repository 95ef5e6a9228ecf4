//! Ranks that share no memory: the same bits over TCP, and the same ends.

use crate::{assert_completed, options, run_with};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::CollectiveLab;
use lockstep_core::plan::{Fill, Plan, PlanBuilder};
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{Outcome, TensorValue, Trace, What};
use lockstep_gpu_exec::{RunOptions, Transport};
use std::collections::BTreeMap;
use std::time::Duration;

fn over(transport: Transport) -> RunOptions {
    RunOptions { transport, ..options() }
}

/// The contents of every tensor at the end.
fn results(trace: &Trace) -> BTreeMap<(u32, u32), TensorValue> {
    let found = trace.events.iter().filter_map(|event| match &event.what {
        What::Result { tensor, value } => Some(((event.rank.0, tensor.0), value.clone())),
        _ => None,
    });
    found.collect()
}

fn plans() -> Vec<Plan> {
    let sum = ReduceOp::Sum;
    let root = GroupRank(1);
    let collectives = [
        Collective::AllReduce { op: sum },
        Collective::Broadcast { root },
        Collective::AllGather,
        Collective::ReduceScatter { op: sum },
        Collective::AllToAll,
        Collective::Reduce { op: sum, root },
    ];
    let lab = |collective: Collective, count| CollectiveLab::new(collective, 3, count).plan();
    let mut plans = Vec::new();
    for collective in collectives {
        for count in [5, 40_000] {
            plans.push(lab(collective, count).unwrap());
        }
    }
    plans.push(sends());
    plans
}

/// Every rank sends to the next, small and large, and receives from the one before.
fn sends() -> Plan {
    let mut plan = PlanBuilder::new("sends", 3, BackendName::Host).unwrap();
    let small = plan.tensor("small", Dtype::Float32, 3, Fill::Rank);
    let small_into = plan.tensor("small into", Dtype::Float32, 3, Fill::Zeros);
    let large = plan.tensor("large", Dtype::Float32, 50_000, Fill::Iota);
    let into = plan.tensor("into", Dtype::Float32, 50_000, Fill::Zeros);
    plan.every_rank(|rank, program| {
        let (next, last) = (GroupRank((rank.0 + 1) % 3), GroupRank((rank.0 + 2) % 3));
        let first = program.async_op().send(GroupId::WORLD, next, large);
        program.recv(GroupId::WORLD, last, into);
        program.wait(first);
        let second = program.async_op().send(GroupId::WORLD, last, small);
        program.recv(GroupId::WORLD, next, small_into);
        program.wait(second);
    })
    .unwrap()
}

#[test]
fn the_bits_are_those_of_shared_memory() {
    for plan in plans() {
        let name = plan.name.clone();
        let shared = run_with(plan.clone(), over(Transport::SharedMemory));
        let tcp = run_with(plan, over(Transport::Tcp));
        assert_completed(&tcp);
        assert_eq!(results(&tcp), results(&shared), "{name}");
    }
}

#[test]
fn a_hang_ends_by_its_watchdog_and_a_death_at_once() {
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = CollectiveLab::new(sum, 3, 100).plan().unwrap();
    let timeout = Some(Duration::from_millis(400));
    let faults = vec!["drop:rank=2,call=1".parse().unwrap()];
    let trace = run_with(plan, RunOptions { timeout, faults, ..over(Transport::Tcp) });
    assert_eq!(trace.end.unwrap().outcome, Outcome::TimedOut);

    let faults = vec!["kill:rank=1,call=4".parse().unwrap()];
    let options = RunOptions { faults, ..over(Transport::Tcp) };
    let trace = run_with(crate::deaths::long_plan(), options);
    assert!(matches!(trace.end.unwrap().outcome, Outcome::RankDied { rank, .. } if rank.0 == 1));
}
