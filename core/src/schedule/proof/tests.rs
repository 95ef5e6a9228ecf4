use super::*;
use crate::reduce::ReduceOp;
use crate::schedule::Algorithm;

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

/// Where the numbers of levels, rounds and folded ranks change.
#[test]
fn every_schedule_is_right_for_larger_worlds() {
    for size in [65, 86, 127, 128, 150] {
        assert_proved(schedules(size, [size / 2]));
    }
}

fn assert_proved(schedules: Vec<Schedule>) {
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
    prove_actions(schedule, &|at, in_step, actions| {
        schedule.actions(at, in_step, actions);
        if at == GroupRank(rank) && in_step == step {
            change(actions);
        }
    })
}

/// Every action of every schedule is needed: leaving any one out is noticed.
#[test]
fn no_action_can_be_left_out() {
    for size in 2..=9 {
        for schedule in every_schedule(size) {
            for rank in 0..size {
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
        for schedule in every_schedule(size) {
            for rank in 0..size {
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
