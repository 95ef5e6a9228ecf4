//! NCCL's recordings in which some ranks are in a group and others are not: who is in none of a kind
//! says nothing of its calls, what a ring has dropped is not held against anybody, and ties are told.

use super::found;
use super::lines::{Said, log};
use crate::{Certainty, Kind, Report, diagnose};
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{CallLog, CallState};

const SUB: GroupId = GroupId(1);
const IN_SUB: (GroupId, Said) = (SUB, ("all_reduce", 64, 7));
const IN_WORLD: (GroupId, Said) = (GroupId::WORLD, ("all_reduce", 64, 8));

fn groups(world: u32, members: u32) -> Vec<ProcessGroup> {
    let ranks = (0..members).map(GlobalRank).collect();
    let sub = ProcessGroup::new("1", BackendName::Nccl, ranks).unwrap().with_desc("train");
    vec![ProcessGroup::world(world, BackendName::Nccl).unwrap(), sub]
}

/// Each of four rounds calls the group, then the world; rank 1 leaves the group out as `skips` says.
fn rounds(world: u32, members: u32, skips: impl Fn(usize) -> bool, done: u64) -> CallLog {
    let ranks: Vec<Vec<(GroupId, Said)>> = (0..world)
        .map(|rank| {
            let in_sub = |round| rank < members && !(rank == 1 && skips(round));
            (0..4)
                .flat_map(|round| in_sub(round).then_some(IN_SUB).into_iter().chain([IN_WORLD]))
                .collect()
        })
        .collect();
    log(groups(world, members), &ranks, |_, seq| seq <= done)
}

fn certainty(report: &Report) -> Certainty {
    report.findings[0].certainty
}

#[test]
fn who_is_not_in_a_group_does_not_vote_on_its_calls() {
    for (world, members) in [(6, 4), (4, 3), (8, 5)] {
        for since in [0, 1, 2] {
            let report = diagnose(&rounds(world, members, |round| round >= since, since as u64));
            assert_eq!(found(&report), [(Kind::OpSkipped, vec![1])], "{}", report.to_text());
            assert_eq!(certainty(&report), Certainty::Likely);
            let finding = &report.findings[0];
            assert_eq!(finding.seq, Some(since as u64 + 1), "{}", report.to_text());
            let mut seen = finding.evidence.clone();
            seen.dedup();
            assert_eq!(seen, finding.evidence, "a call is shown once");
        }
    }
}

#[test]
fn of_two_either_may_be_unless_one_breaks_its_habit() {
    let never = diagnose(&rounds(3, 2, |_| true, 0));
    assert_eq!(found(&never), [(Kind::GroupDeadlock, vec![0, 1])], "{}", never.to_text());
    assert_eq!(certainty(&never), Certainty::Undecidable);
    assert!(never.findings[0].message.contains("rank 0 should not have made it"), "{never:?}");
    let broken = diagnose(&rounds(3, 2, |round| round == 2, 2));
    assert_eq!(found(&broken), [(Kind::OpSkipped, vec![1])], "{}", broken.to_text());
    assert_eq!(certainty(&broken), Certainty::Likely);
}

/// Drops all but a rank's last calls, as a ring does.
fn wrap(log: &mut CallLog, rank: usize, left: usize) {
    let own = log.ranks[rank].as_mut().unwrap();
    for group in [GroupId::WORLD, SUB] {
        let last =
            own.calls.iter().filter(|call| call.call.group == group).filter_map(|call| call.seq);
        let last = last.max();
        own.recording.enqueued.extend(last.map(|last| (group, last)));
    }
    own.calls.drain(..own.calls.len() - left);
}

/// The ring of ranks 2 and 3 has dropped the call in which others wait; that they made it is known.
#[test]
fn a_call_that_the_ring_dropped_was_made() {
    let mut log = rounds(8, 5, |round| round == 2, 2);
    for (rank, left) in [(0, 3), (1, 2), (2, 1), (3, 1), (4, 5)] {
        wrap(&mut log, rank, left);
    }
    let report = diagnose(&log);
    assert_eq!(found(&report), [(Kind::OpSkipped, vec![1])], "{}", report.to_text());
    assert_eq!(certainty(&report), Certainty::Likely);
    // Too little is left to decide: both sides, and not for certain.
    let mut log = rounds(3, 2, |round| round == 2, 2);
    for (rank, left) in [(0, 4), (1, 3), (2, 2)] {
        wrap(&mut log, rank, left);
    }
    let report = diagnose(&log);
    assert_eq!(found(&report), [(Kind::GroupDeadlock, vec![0, 1])], "{}", report.to_text());
    assert!(certainty(&report) > Certainty::Certain);
}

/// Pairs of ranks, and the world: rank 1 leaves out a call of its pair, and all rings have dropped
/// where. The recorders' numbers show who made one call less.
#[test]
fn the_recorders_numbers_show_who_made_fewer_calls() {
    let mut groups = vec![ProcessGroup::world(8, BackendName::Nccl).unwrap()];
    for pair in 0..4u32 {
        let ranks = vec![GlobalRank(2 * pair), GlobalRank(2 * pair + 1)];
        let name = (pair + 1).to_string();
        groups.push(ProcessGroup::new(&name, BackendName::Nccl, ranks).unwrap().with_desc("tp"));
    }
    let ranks: Vec<Vec<(GroupId, Said)>> = (0..8u32)
        .map(|rank| {
            let pair = GroupId(rank / 2 + 1);
            let calls = if rank == 1 { 7 } else { 8 };
            let mut own = vec![(pair, ("all_reduce", 64, 7)); calls];
            // Its partner waits for it; the others have come to the barrier.
            own.extend((rank != 0).then_some((GroupId::WORLD, ("barrier", 1, 9))));
            own
        })
        .collect();
    let mut log =
        log(groups, &ranks, |group, seq| group != GroupId::WORLD && !(group == SUB && seq == 8));
    for (rank, own) in log.ranks.iter_mut().flatten().enumerate() {
        let left = if rank < 2 { 1 } else { 2 };
        own.calls.drain(..own.calls.len() - left);
    }
    let report = diagnose(&log);
    assert_eq!(found(&report), [(Kind::OpSkipped, vec![1])], "{}", report.to_text());
    assert_eq!((certainty(&report), report.findings[0].seq), (Certainty::Likely, Some(8)));
    let said = &report.findings[0].message;
    assert!(said.contains("with 1 call fewer than ranks 2-7"), "{said}");
}

/// The others' call comes behind a loop, of which the rank makes two rounds more.
#[test]
fn a_call_that_comes_later_was_not_left_out() {
    let world = vec![ProcessGroup::world(4, BackendName::Nccl).unwrap()];
    let ranks: Vec<Vec<(GroupId, Said)>> = (0..4)
        .map(|rank| {
            let mut own =
                vec![(GroupId::WORLD, ("all_reduce", 64, 6)); if rank == 1 { 14 } else { 10 }];
            own.push((GroupId::WORLD, ("barrier", 1, 7)));
            own
        })
        .collect();
    let report = diagnose(&log(world, &ranks, |_, seq| seq <= 10));
    assert_eq!(found(&report), [(Kind::OpExtra, vec![1])], "{}", report.to_text());
    assert!(!report.findings[0].message.contains("never called"), "{}", report.to_text());
}

/// As late to every call as to the others: slow, or a clock.
#[test]
fn a_rank_that_always_comes_late_is_noted() {
    let world = vec![ProcessGroup::world(3, BackendName::Nccl).unwrap()];
    let calls = vec![(GroupId::WORLD, ("all_reduce", 64, 6)); 12];
    let mut log = log(world, &vec![calls; 3], |_, _| true);
    for (rank, own) in log.ranks.iter_mut().flatten().enumerate() {
        for (at, call) in own.calls.iter_mut().enumerate() {
            let late_ms = if rank == 2 { 180 } else { 0 };
            call.scheduled_ps = (at as u64 * 200 + late_ms) * 1_000_000_000;
            call.completed_ps = Some((at as u64 * 200 + 181) * 1_000_000_000);
            call.state = CallState::Completed;
        }
    }
    let report = diagnose(&log);
    assert_eq!(found(&report), []);
    assert!(report.notes[0].contains("Rank 2 came last to each of the last 6 calls"), "{report:?}");
}

/// The ranks of a slow machine come late by themselves, one or another of them last. (From the first call
/// on, by as much, they may as well have another clock.)
#[test]
fn ranks_of_one_machine_are_slow_together() {
    for (world, slow) in [(4, 2..4), (8, 4..8), (9, 0..3)] {
        let groups = vec![ProcessGroup::world(world, BackendName::Nccl).unwrap()];
        let calls = vec![(GroupId::WORLD, ("all_reduce", 64, 6)); 12];
        let mut log = log(groups, &vec![calls; world as usize], |_, _| true);
        for (rank, own) in (0..).zip(log.ranks.iter_mut().flatten()) {
            for (at, call) in own.calls.iter_mut().enumerate() {
                let turn = (at as u64 + u64::from(rank)) % 5;
                let late_ms = if slow.contains(&rank) && at > 2 { 300 } else { 0 };
                call.scheduled_ps = (at as u64 * 400 + late_ms + turn) * 1_000_000_000;
                call.completed_ps = Some((at as u64 * 400 + 306) * 1_000_000_000);
                call.state = CallState::Completed;
            }
        }
        let report = diagnose(&log);
        let truth = [(Kind::Straggler, slow.collect::<Vec<u32>>())];
        assert_eq!(found(&report), truth, "{}", report.to_text());
    }
}
