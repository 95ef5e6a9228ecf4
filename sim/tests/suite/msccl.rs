//! A schedule written as an MSCCL program and read back takes as long as it did.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail")]

use lockstep_core::collective::Collective;
use lockstep_core::plan::CollectiveLab;
use lockstep_core::plan::{Call, Plan};
use lockstep_core::rank::GroupRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::schedule::{Algorithm, Layout, ProvedTable, Rounds, Schedule};
use lockstep_formats::msccl;
use lockstep_sim::{Cost, Link, Topology};
use proptest::prelude::*;

const INSIDE: Link = Link { latency_ps: 2_000_000, bytes_per_second: 300_000_000_000 };
const ACROSS: Link = Link { latency_ps: 5_000_000, bytes_per_second: 25_000_000_000 };

fn collectives(root: u32) -> Vec<Collective> {
    let every = Collective::every(ReduceOp::Sum, GroupRank(root));
    every.into_iter().filter(|collective| !collective.is_barrier()).collect()
}

fn in_lanes(plan: Plan, with: (u32, u32), ranks_per_node: u32) -> Plan {
    let mut plan = Plan { ranks_per_node, ..plan };
    let calls = plan.programs.iter_mut().flat_map(|program| &mut program.ops);
    for op in calls {
        if let [Call::Collective { channels, segments, .. }] = op.action.calls_mut() {
            (*channels, *segments) = (Some(with.0), Some(with.1));
        }
    }
    plan
}

fn assert_takes_as_long(
    (collective, algorithm): (Collective, Algorithm),
    (size, ranks_per_node): (u32, u32),
    lanes: (u32, u32),
    count: u64,
) {
    let schedule = Schedule::new(collective, algorithm, size)
        .and_then(|schedule| schedule.with_channels(lanes.0))
        .and_then(|schedule| schedule.with_segments(lanes.1))
        .and_then(|schedule| schedule.with_ranks_per_node(ranks_per_node));
    let Ok(schedule) = schedule else { return };
    let text = match msccl::write(&schedule) {
        Ok(text) => text,
        Err(why) => {
            let said = why.to_string();
            let known = said.contains("switches") || said.contains("by bytes");
            assert!(known, "{schedule}: {said}");
            return;
        }
    };
    let table = ProvedTable::new(msccl::read(&text).unwrap()).unwrap();
    let lab = CollectiveLab {
        algorithm,
        timeout_ms: 1 << 40,
        ..CollectiveLab::new(collective, size, count)
    };
    let back = Schedule::from_table(&table, collective, size).unwrap();
    let what = format!("{schedule} in nodes of {ranks_per_node}, {count} elements");
    assert_eq!(Rounds::of(&back).count(), Rounds::of(&schedule).count(), "{what}");
    let tally = |schedule: Schedule| Layout::new(schedule, count, 4).tally();
    assert_eq!(tally(back), tally(schedule), "{what}");
    let own = in_lanes(lab.plan().unwrap(), lanes, ranks_per_node);
    let file = Plan { ranks_per_node, ..lab.plan_with(&table).unwrap() };
    let nodes = Topology::Nodes { ranks_per_node, inside: INSIDE, across: ACROSS };
    for topology in [Topology::Uniform(ACROSS), nodes] {
        // A uniform network does not make the schedule another one: the plan's nodes do.
        let (own, file) = (Cost::of(&own, topology).unwrap(), Cost::of(&file, topology).unwrap());
        assert_eq!(own, file, "{what}, {topology}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// The same rounds, messages, bytes and time, and the time of the same parts: for every family,
    /// in random worlds, nodes, lanes and sizes.
    #[test]
    fn what_is_written_and_read_takes_as_long(
        (size, nodes, root) in (2u32..17, 1u32..9, any::<u32>()),
        channels in 1u32..5,
        segments in 1u32..4,
        count in 1u64..100_000,
    ) {
        for collective in collectives(root % size) {
            for &algorithm in Algorithm::of(collective) {
                let lanes = (channels, segments);
                assert_takes_as_long((collective, algorithm), (size, nodes), lanes, count);
            }
        }
    }
}

/// As a user meets it: a ring in four channels, and the double binary tree at its default.
#[test]
fn rings_and_trees_come_back_as_they_were() {
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    for (algorithm, lanes) in [
        (Algorithm::Ring, (4, 1)),
        (Algorithm::DoubleBinaryTree, (1, 4)),
        (Algorithm::DoubleBinaryTree, (2, 16)),
    ] {
        assert_takes_as_long((sum, algorithm), (8, 8), lanes, 1 << 20);
    }
}
