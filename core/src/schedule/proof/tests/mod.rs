mod closed_forms;
mod closed_forms_of_machines;

use super::world::prove_actions;
use super::*;
use crate::collective::Collective;
use crate::reduce::ReduceOp;
use crate::schedule::Algorithm;
use crate::schedule::{Buffer, Schedule, Slice};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Every schedule of `size` ranks, with every root.
fn every_schedule(size: u32) -> Vec<Schedule> {
    schedules(size, 0..size)
}

fn schedules(size: u32, roots: impl IntoIterator<Item = u32>) -> Vec<Schedule> {
    let op = ReduceOp::Sum;
    let mut collectives = vec![
        Collective::AllReduce { op },
        Collective::AllGather,
        Collective::ReduceScatter { op },
        Collective::AllToAll,
        Collective::Barrier,
        Collective::MonitoredBarrier { wait_all_ranks: false },
    ];
    for root in roots.into_iter().map(GroupRank) {
        collectives.extend([
            Collective::Broadcast { root },
            Collective::Reduce { op, root },
            Collective::Gather { root },
            Collective::Scatter { root },
        ]);
    }
    let all = collectives.into_iter().flat_map(|collective| {
        let by = Algorithm::of(collective).iter();
        by.map(move |algorithm| Schedule::new(collective, *algorithm, size).unwrap())
    });
    all.collect()
}

#[test]
fn every_schedule_is_right_for_every_world_size_and_root_up_to_64() {
    for size in 1..=64 {
        let mut all = every_schedule(size);
        // The one that moves n² messages a root: it takes every fifth root of the larger worlds.
        all.retain(|schedule| {
            let root = schedule.collective().root().map_or(0, |root| root.0);
            let many = schedule.algorithm() == Some(Algorithm::ScatterAllGather) && size > 32;
            !many || (root + size) % 5 == 0
        });
        assert_proved(all);
    }
}

/// True if a family's schedule depends on the nodes.
fn looks_at_nodes(schedule: &Schedule) -> bool {
    matches!(
        schedule.algorithm(),
        Some(Algorithm::Hierarchical | Algorithm::Sharp | Algorithm::Nvls)
    )
}

/// The schedule in nodes; `None` if the family stays inside one.
fn in_nodes(schedule: &Schedule, ranks_per_node: u32) -> Option<Schedule> {
    schedule.clone().with_ranks_per_node(ranks_per_node).ok()
}

/// Nodes of one rank, of a few, equal and ragged, and one node and a rank.
#[test]
fn every_size_of_nodes_is_right_for_every_world_size_up_to_64() {
    for size in 2..=64u32 {
        let nodes: BTreeSet<u32> = match size {
            ..=16 => (1..size).collect(),
            _ => [1, 2, 3, 4, 8, size / 3, size / 2, size - 1].into_iter().collect(),
        };
        let all = schedules(size, [0, size / 2, size - 1]).into_iter().filter(looks_at_nodes);
        assert_proved(all.flat_map(|schedule| {
            nodes.iter().filter_map(|nodes| in_nodes(&schedule, *nodes)).collect::<Vec<_>>()
        }));
    }
}

/// Several channels and segments, also of families whose slices they have to cut.
#[test]
fn channels_and_segments_are_right_for_every_world_size_up_to_64() {
    let lanes = [(2, 1), (1, 3), (3, 2), (4, 1)];
    for size in 1..=64u32 {
        // All of the smaller worlds, and of the larger ones one after the other.
        let chosen = match size {
            ..=12 => &lanes[..],
            _ => &lanes[size as usize % lanes.len()..][..1],
        };
        let all = schedules(size, [size / 2]).into_iter().filter(|schedule| {
            let whole = [Some(Algorithm::GlooRing), None];
            !schedule.collective().is_barrier() && !whole.contains(&schedule.algorithm())
        });
        let all = all.filter_map(|schedule| in_nodes(&schedule, (size / 3).max(1)));
        assert_proved(all.flat_map(|schedule| {
            let of = |(channels, segments): &(u32, u32)| {
                let schedule = schedule.clone().with_channels(*channels).unwrap();
                schedule.with_segments(*segments).unwrap()
            };
            chosen.iter().map(of).collect::<Vec<_>>()
        }));
    }
}

/// NCCL's NVLS ends at the node; only all_reduce goes on by a tree across (`NCCL_ALGO_NVLS_TREE`).
#[test]
fn a_switch_does_not_reach_across_nodes() {
    let all_gather = Schedule::new(Collective::AllGather, Algorithm::Nvls, 16).unwrap();
    assert!(all_gather.clone().with_ranks_per_node(16).is_ok());
    let error = all_gather.with_ranks_per_node(8).unwrap_err().to_string();
    assert!(error.starts_with("all_gather by nvls stays inside one node"), "{error}");
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let schedule = Schedule::new(sum, Algorithm::Nvls, 21).unwrap().with_ranks_per_node(8).unwrap();
    assert_eq!(schedule.switches(), 3);
    let mut actions = Vec::new();
    for rank in 0..schedule.participants() {
        let node = if rank < 21 { rank / 8 } else { rank - 21 };
        for step in 0..schedule.steps() {
            schedule.actions(GroupRank(rank), step, &mut actions);
            for action in &actions {
                let (Action::Send { peer, .. } | Action::Receive { peer, .. }) = *action else {
                    continue;
                };
                let of_peer = if peer.0 < 21 { peer.0 / 8 } else { peer.0 - 21 };
                let by_switch = rank.max(peer.0) >= 21;
                assert!(!by_switch || node == of_peer, "rank {rank}, step {step}: {action:?}");
            }
        }
    }
}

#[test]
fn lanes_that_cannot_be_are_refused() {
    let op = ReduceOp::Sum;
    let ring = || Schedule::new(Collective::AllReduce { op }, Algorithm::Ring, 1 << 20).unwrap();
    assert!(ring().with_channels(0).is_err());
    assert!(ring().with_channels(65).is_err());
    assert!(ring().with_channels(64).is_ok());
    let error = ring().with_channels(64).unwrap().with_segments(1024).unwrap_err();
    assert_eq!(error.to_string(), "all_reduce cannot have 1024 segments here; choose 1");
    let barrier = Schedule::new(Collective::Barrier, Algorithm::Tree, 4).unwrap();
    assert!(barrier.clone().with_channels(2).is_err());
    assert!(barrier.with_channels(1).is_ok());
    assert!(Schedule::new(Collective::AllGather, Algorithm::Nvls, 1 << 16).is_err());
}

/// Worlds at which the numbers of levels, rounds and folded ranks change.
#[test]
fn every_schedule_is_right_for_larger_worlds() {
    for size in [65, 86, 128] {
        let all = schedules(size, [size / 2]).into_iter();
        assert_proved(all.filter_map(|schedule| in_nodes(&schedule, 8)));
    }
}

/// One rank in all of its steps, and one chunk of one result.
fn assert_sampled(schedule: &Schedule, rank: u32, chunk: u32) {
    let rank = GroupRank(rank);
    let result = prove_steps(schedule, rank).and_then(|()| {
        let last = schedule.participants() - 1;
        prove_steps(schedule, GroupRank(last))
    });
    let result = result.and_then(|()| {
        let buffer = match schedule.collective() {
            collective if collective.is_barrier() => Buffer::Scratch,
            _ => Buffer::Output,
        };
        let chunks = schedule.chunks(rank, buffer);
        let last = chunks.saturating_sub(1);
        let chunk = if schedule.collective().is_barrier() { last } else { chunk % chunks.max(1) };
        prove_chunk(schedule, rank, chunk)
    });
    if let Err(error) = result {
        panic!("{schedule:?}, rank {rank}, chunk {chunk}: {error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2))]
    /// Random worlds of up to 4096 ranks, sampled.
    #[test]
    fn every_schedule_is_right_for_random_large_worlds(
        size in 65u32..=4096,
        (root, rank, chunk) in (any::<u32>(), any::<u32>(), any::<u32>()),
        (per_node, channels, segments) in (1u32..80, 1u32..4, 1u32..4),
    ) {
        for schedule in schedules(size, [root % size]) {
            // These have steps of n messages a rank with n ranks each: a sample is the world.
            let direct = matches!(
                schedule.algorithm(),
                Some(Algorithm::Direct | Algorithm::OneShot | Algorithm::TwoShot | Algorithm::Nvls)
            );
            if direct && size > 512 {
                continue;
            }
            let Some(schedule) = in_nodes(&schedule, per_node) else { continue };
            // Slices multiply what going back through many steps costs.
            let sliced = match schedule.steps() {
                ..=512 => schedule.clone().with_channels(channels),
                _ => schedule.clone().with_channels(1),
            };
            let sliced = sliced.and_then(|schedule| match schedule.steps() {
                ..=512 => schedule.with_segments(segments),
                _ => Ok(schedule),
            });
            assert_sampled(&sliced.unwrap_or(schedule), rank % size, chunk);
        }
    }
}

/// Both ways of proving say the same of every mutation: all ranks and chunks sampled are the world.
#[test]
fn samples_of_everything_are_a_proof() {
    let op = ReduceOp::Sum;
    for (collective, algorithm) in [
        (Collective::AllReduce { op }, Algorithm::Ring),
        (Collective::AllReduce { op }, Algorithm::RecursiveDoubling),
        (Collective::AllGather, Algorithm::Pat),
        (Collective::ReduceScatter { op }, Algorithm::Hierarchical),
        (Collective::Barrier, Algorithm::Dissemination),
        (Collective::AllReduce { op }, Algorithm::Sharp),
        (Collective::AllReduce { op }, Algorithm::Nvls),
    ] {
        let schedule = Schedule::new(collective, algorithm, 6).unwrap();
        let schedule = schedule.with_ranks_per_node(2).unwrap();
        for rank in 0..schedule.participants() {
            for step in 0..schedule.steps() {
                let mut actions = Vec::new();
                schedule.actions(GroupRank(rank), step, &mut actions);
                for index in 0..actions.len() {
                    let changed = |at: GroupRank, in_step: u32, actions: &mut Vec<Action>| {
                        schedule.actions(at, in_step, actions);
                        if at == GroupRank(rank) && in_step == step {
                            actions.remove(index);
                        }
                    };
                    let mut found = false;
                    for at in (0..schedule.participants()).map(GroupRank) {
                        found |= sampled::steps_of(&schedule, at, &changed).is_err();
                        let chunks = schedule.chunks(at, Buffer::Output);
                        for chunk in 0..chunks.max(schedule.chunks(at, Buffer::Scratch)) {
                            found |= at.0 < schedule.size()
                                && sampled::chunk_of(&schedule, at, chunk, &changed).is_err();
                        }
                    }
                    assert!(found, "{schedule} {rank} {step} {index}");
                }
            }
        }
    }
}

fn assert_proved(schedules: impl IntoIterator<Item = Schedule>) {
    for schedule in schedules {
        if let Err(error) = prove(&schedule) {
            panic!("{schedule:?}: {error}");
        }
    }
}

/// Runs the prover on a schedule one of whose actions was changed.
fn prove_changed(
    schedule: &Schedule,
    rank: u32,
    step: u32,
    change: &dyn Fn(&mut Vec<Action>),
) -> Result<Proof, ProofError> {
    prove_actions(schedule, &|at: GroupRank, in_step, actions: &mut Vec<Action>| {
        schedule.actions(at, in_step, actions);
        if at == GroupRank(rank) && in_step == step {
            change(actions);
        }
    })
}

/// Every schedule, and in nodes: equal and ragged ones.
fn every_schedule_and_nodes(size: u32) -> Vec<Schedule> {
    let mut all = every_schedule(size);
    let that_look: Vec<_> =
        all.iter().filter(|schedule| looks_at_nodes(schedule)).cloned().collect();
    for nodes in [1, 2, 3, 4] {
        all.extend(that_look.iter().filter_map(|schedule| in_nodes(schedule, nodes)));
    }
    all
}

/// Every action of every schedule is needed: leaving any one out is noticed.
#[test]
fn no_action_can_be_left_out() {
    for size in 2..=9 {
        for schedule in every_schedule_and_nodes(size) {
            for rank in 0..schedule.participants() {
                for step in 0..schedule.steps() {
                    let mut actions = Vec::new();
                    schedule.actions(GroupRank(rank), step, &mut actions);
                    for index in 0..actions.len() {
                        let leave_out = |actions: &mut Vec<Action>| {
                            actions.remove(index);
                        };
                        let proof = prove_changed(&schedule, rank, step, &leave_out);
                        assert!(proof.is_err(), "{schedule} {rank} {step} {index}");
                    }
                }
            }
        }
    }
}

/// Moving any slice to another chunk is noticed: the wrong data, or the wrong place.
#[test]
fn no_slice_can_be_another_chunk() {
    let move_slice = |slice: &mut Slice, chunks: u32| {
        slice.chunk = (slice.chunk + 1) % chunks;
    };
    for size in 2..=9 {
        for schedule in every_schedule_and_nodes(size) {
            for rank in 0..schedule.participants() {
                for step in 0..schedule.steps() {
                    let mut actions = Vec::new();
                    schedule.actions(GroupRank(rank), step, &mut actions);
                    for (index, action) in actions.iter().enumerate() {
                        let (Action::Send { from: slice, .. }
                        | Action::Receive { into: slice, .. }
                        | Action::ReceiveReduce { into: slice, .. }
                        | Action::Reduce { into: slice, .. }
                        | Action::Copy { into: slice, .. }) = *action;
                        let chunks = schedule.chunks(GroupRank(rank), slice.buffer);
                        if chunks < 2 || schedule.collective().is_barrier() {
                            continue;
                        }
                        let change = |actions: &mut Vec<Action>| {
                            let (Action::Send { from: slice, .. }
                            | Action::Receive { into: slice, .. }
                            | Action::ReceiveReduce { into: slice, .. }
                            | Action::Reduce { into: slice, .. }
                            | Action::Copy { into: slice, .. }) = &mut actions[index];
                            move_slice(slice, chunks);
                        };
                        let proof = prove_changed(&schedule, rank, step, &change);
                        assert!(proof.is_err(), "{schedule} {rank} {step} {index}");
                    }
                }
            }
        }
    }
}

#[test]
fn errors_name_the_first_wrong_rank_step_and_chunk() {
    let op = ReduceOp::Sum;
    let schedule = Schedule::new(Collective::AllReduce { op }, Algorithm::Ring, 4).unwrap();
    let to_wrong_rank = |actions: &mut Vec<Action>| {
        actions[0] = Action::Send { peer: GroupRank(0), from: Slice::one(Buffer::Output, 2) };
    };
    let error = prove_changed(&schedule, 2, 0, &to_wrong_rank).unwrap_err();
    assert!(matches!(error, ProofError::BadMessage { to: GroupRank(0), step: 0, .. }), "{error}");
    let past_the_end = |actions: &mut Vec<Action>| {
        actions[0] = Action::Send { peer: GroupRank(3), from: Slice::one(Buffer::Output, 4) };
    };
    let error = prove_changed(&schedule, 2, 1, &past_the_end).unwrap_err();
    let slice = Slice::one(Buffer::Output, 4);
    let rank = GroupRank(2);
    assert_eq!(error, ProofError::OutOfBounds { rank, step: 1, slice, chunks: 4 });
    let overwrite = |actions: &mut Vec<Action>| {
        let into = Slice::one(Buffer::Output, 2);
        actions[1] = Action::Receive { peer: GroupRank(1), into };
    };
    let error = prove_changed(&schedule, 2, 0, &overwrite).unwrap_err();
    let slice = Slice::one(Buffer::Output, 2);
    assert_eq!(error, ProofError::Hazard { rank, step: 0, slice });
}
