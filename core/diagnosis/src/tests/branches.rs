//! Calls that stand in a branch, calls of nothing, and groups that not all ranks make.

use super::fake::{Fake, done, pending};
use super::lines::{Said, log, report};
use super::{found, report as of_files};
use crate::{Certainty, Kind, diagnose};
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::rank::GlobalRank;

const STEP: Said = ("all_reduce", 256, 10);

/// gloo's all_reduce of no elements ends at once, and its rank goes on to the next.
#[test]
fn a_call_of_nothing_is_no_call_on_top() {
    let usual = vec![STEP; 4];
    let own = vec![STEP, STEP, STEP, ("all_reduce", 0, 10), STEP];
    let report = report(&[usual.clone(), usual.clone(), own, usual]);
    assert_eq!(found(&report), [(Kind::SizeMismatch, vec![2])], "{}", report.to_text());
}

/// `if rank == 0:` is a branch of one rank: several at one line are behind their loop.
#[test]
fn several_ranks_at_a_line_have_left_their_loop() {
    let usual = vec![STEP; 8];
    let own = [vec![STEP; 5], vec![("barrier", 1, 12)]].concat();
    let ranks = [own.clone(), usual.clone(), usual.clone(), own.clone(), usual.clone()];
    let several = report(&ranks);
    assert_eq!(found(&several), [(Kind::LoopShorter, vec![0, 3])], "{}", several.to_text());
    let one = report(&[own, usual.clone(), usual.clone(), usual]);
    assert_eq!(found(&one), [(Kind::OpExtra, vec![0])], "{}", one.to_text());
    assert!(one.findings[0].message.contains("Or it left a loop"), "{}", one.to_text());
}

/// A call of another group, from a line that each round goes past: a branch in the loop. From one
/// behind all of its lines it may follow the loop.
#[test]
fn a_call_between_the_lines_of_a_loop_is_on_top() {
    let ranks_of = |ranks: &[u32]| ranks.iter().copied().map(GlobalRank).collect::<Vec<_>>();
    let group = |name: &str, ranks: &[u32]| {
        ProcessGroup::new(name, BackendName::Nccl, ranks_of(ranks)).unwrap()
    };
    let world = ProcessGroup::world(4, BackendName::Nccl).unwrap();
    let groups = vec![world, group("dp0", &[0, 2]), group("dp1", &[1, 3])];
    let told = |line: u32| {
        let mut ranks: Vec<Vec<(GroupId, Said)>> = Vec::new();
        for rank in 0..4 {
            let dp = GroupId(1 + rank % 2);
            let round = [(dp, ("all_reduce", 64, 8)), (GroupId::WORLD, ("all_reduce", 256, 10))];
            let mut calls = round.repeat(3);
            if rank == 3 {
                calls.extend([round[0], (dp, ("barrier", 1, line))]);
            } else {
                calls.extend(round);
            }
            ranks.push(calls);
        }
        let ended = |group: GroupId, seq| seq <= if group == GroupId::WORLD { 3 } else { 4 };
        diagnose(&log(groups.clone(), &ranks, ended))
    };
    let between = told(9);
    assert_eq!(found(&between), [(Kind::OpExtra, vec![3])], "{}", between.to_text());
    assert_eq!(between.findings[0].op.as_deref(), Some("barrier"), "{}", between.to_text());
    let behind = told(12);
    assert_eq!(found(&behind), [(Kind::LoopShorter, vec![3])], "{}", behind.to_text());
}

/// One that left out a `new_group` waits in a group of its own, and nothing of the others is seen.
#[test]
fn a_rank_alone_in_a_group_is_not_healthy() {
    let together = || done("all_reduce", 8).gloo();
    let alone = pending("all_reduce", 4).gloo().in_group(1);
    let fake = Fake::new(4, &[together(), together()]).group("b", &[3]);
    let report = of_files(&fake.rank(3, &[together(), together(), alone]).files());
    assert_eq!(found(&report), [(Kind::CallNeverCompleted, vec![])], "{}", report.to_text());
    let finding = &report.findings[0];
    assert_eq!(finding.certainty, Certainty::Undecidable);
    assert_eq!(finding.victims, [GlobalRank(3)]);
    assert!(finding.message.contains("may stand in new_group"), "{}", report.to_text());
}

/// A timeout ends a call on all that wait in it: one that ended on some is that of a job that ran, and
/// the dump of who has not made it is older.
#[test]
fn a_call_that_ended_on_some_makes_nobody_late_for_certain() {
    let calls: Vec<_> = (0..6).map(|_| done("all_reduce", 8).gloo()).collect();
    let waits = [calls.clone(), vec![pending("all_reduce", 8).gloo()]].concat();
    let out = [calls.clone(), vec![done("all_reduce", 8).gloo()]].concat();
    let fake = |last: &[super::fake::Said]| Fake::new(4, &waits).rank(0, &calls).rank(3, last);
    let some = of_files(&fake(&out).files());
    assert_eq!(found(&some), [(Kind::RankNeverJoined, vec![0])], "{}", some.to_text());
    assert_eq!(some.findings[0].certainty, Certainty::Undecidable, "{}", some.to_text());
    assert!(some.findings[0].message.contains("some have come out of that call"));
    let none = of_files(&fake(&waits).files());
    assert_eq!(none.findings[0].certainty, Certainty::Likely, "{}", none.to_text());
}
