//! Ranks that no majority decides between: what they did in the rounds before does.

use super::found;
use super::lines::{Said, log, report};
use crate::{Certainty, Kind, diagnose, who_waits};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::trace::{CallLog, CallState, Called, TensorShape};
use std::sync::Arc;

const A: GroupId = GroupId(1);
const B: GroupId = GroupId(2);

fn group(ranks: &[u32], name: &str, desc: &str) -> ProcessGroup {
    let ranks: Vec<GlobalRank> = ranks.iter().copied().map(GlobalRank).collect();
    ProcessGroup::new(name, BackendName::Nccl, ranks).unwrap().with_desc(desc)
}

/// Ranks 0 to 2 are in `a`, 1 and 2 in `b`: each round calls them in that order, then the world if
/// `world` says so. In round three rank 1 begins with `b`, from `line`.
fn two_orders(world: bool, line: u32) -> CallLog {
    let groups = vec![
        ProcessGroup::world(4, BackendName::Nccl).unwrap(),
        group(&[0, 1, 2], "1", "a"),
        group(&[1, 2], "2", "b"),
    ];
    let in_a = (A, ("all_reduce", 64, 10));
    let in_b = (B, ("all_reduce", 64, 11));
    let in_world = (GroupId::WORLD, ("all_reduce", 32, 12));
    let mut ranks: Vec<Vec<(GroupId, Said)>> = vec![Vec::new(); 4];
    for _ in 0..2 {
        for (rank, own) in ranks.iter_mut().enumerate() {
            own.extend((rank < 3).then_some(in_a));
            own.extend((1..3).contains(&rank).then_some(in_b));
            own.extend(world.then_some(in_world));
        }
    }
    ranks[0].push(in_a);
    ranks[1].push((B, ("all_reduce", 64, line)));
    ranks[2].push(in_a);
    if world {
        ranks[3].push(in_world);
    }
    log(groups, &ranks, |_, seq| seq <= 2)
}

/// Rank 2 of the circle only does what it always has; rank 1 left a call out, or makes two in the other order. Both
/// are told: each rank orders calls of groups that overlap for itself, so that the circle is what is sure.
#[test]
fn who_takes_the_groups_as_ever_is_not_blamed_for_a_circle() {
    for line in [11, 9] {
        let report = diagnose(&two_orders(true, line));
        assert_eq!(found(&report), [(Kind::GroupDeadlock, vec![1])], "{}", report.to_text());
        let finding = &report.findings[0];
        assert_eq!(finding.certainty, Certainty::Likely);
        assert!(finding.fix.contains("If it left a call out"), "{}", finding.fix);
        assert!(finding.victims.contains(&GlobalRank(2)), "{finding:?}");
        let said = "Rank 1 has never before made 2 calls of b without one of a between them";
        assert!(finding.message.contains(said), "{}", finding.message);
    }
}

/// A call behind a loop looks like that of another order, if the loop ends with its group.
#[test]
fn a_call_that_may_be_behind_the_loop_decides_nothing() {
    let report = diagnose(&two_orders(false, 14));
    assert_eq!(found(&report), [(Kind::GroupDeadlock, vec![1, 2])], "{}", report.to_text());
}

const ROUND: [Said; 3] = [("all_reduce", 64, 5), ("all_reduce", 32, 6), ("all_reduce", 16, 7)];

#[test]
fn two_against_two_are_decided_by_what_came_next_before() {
    let mut usual = ROUND.repeat(3);
    let mut own = usual.clone();
    usual.extend([ROUND[0], ROUND[1]]);
    own.extend([ROUND[0], ROUND[2]]);
    let found_now = report(&[usual.clone(), own.clone(), own.clone(), usual.clone()]);
    assert_eq!(found(&found_now), [(Kind::OpSkipped, vec![1, 2])], "{}", found_now.to_text());
    assert_eq!(found_now.findings[0].certainty, Certainty::Likely);
    assert!(
        found_now.findings[0].message.contains("but in all rounds before the latter came next")
    );
    // Without a dump of one who did as ever, those who did not are most of the recorded.
    let mut missing =
        of_world(&[usual.clone(), own.clone(), own.clone(), usual.clone()], 10, BackendName::Nccl);
    missing.ranks[0] = None;
    let missing = diagnose(&missing);
    assert_eq!(found(&missing)[0], (Kind::OpSkipped, vec![1, 2]), "{}", missing.to_text());
    // The others' call is one that nobody has made: it is no call of a round.
    let mut left = ROUND.repeat(3);
    left.push(("barrier", 0, 9));
    let mut stays = ROUND.repeat(3);
    stays.push(ROUND[0]);
    let tie = report(&[stays.clone(), left.clone(), left, stays]);
    assert_eq!(tie.findings[0].kind, Kind::LoopShorter, "{}", tie.to_text());
    assert!(!tie.findings[0].message.contains("came next"), "{}", tie.to_text());
    // One round before is no habit.
    let short = |calls: &[Said]| calls.get(6..).unwrap_or_default().to_vec();
    let once = report(&[short(&usual), short(&own), short(&own), short(&usual)]);
    assert_eq!(once.findings[0].certainty, Certainty::Undecidable, "{}", once.to_text());
}

/// Calls that are alike and from different lines have shifted the ranks against each other before:
/// each follows its own call as ever.
#[test]
fn what_came_next_says_nothing_once_ranks_are_shifted() {
    let round: [Said; 3] = [("all_reduce", 64, 5), ("all_reduce", 64, 6), ("all_reduce", 32, 7)];
    let mut usual = round.repeat(3);
    let mut own = usual.clone();
    usual.extend([round[0], round[1]]);
    own.extend([round[1], round[2]]);
    let report = report(&[usual.clone(), own.clone(), own, usual]);
    let innocent =
        |finding: &crate::Finding| finding.culprits.iter().all(|rank| [0, 3].contains(&rank.0));
    assert!(!report.findings.iter().any(innocent), "{}", report.to_text());
}

#[test]
fn a_first_rank_that_may_have_left_its_loop_is_told_so() {
    let rounds = [ROUND[0], ROUND[1]].repeat(4);
    let mut usual = rounds.clone();
    usual.push(ROUND[0]);
    let mut own = rounds;
    own.push(("all_gather", 4, 9));
    let report = report(&[own, usual.clone(), usual.clone(), usual]);
    assert_eq!(found(&report), [(Kind::OpExtra, vec![0])], "{}", report.to_text());
    let message = &report.findings[0].message;
    assert!(message.contains("Or it left a loop that the others are still in"), "{message}");
}

fn gloo(ranks: &[Vec<Said>], done: u64) -> CallLog {
    of_world(ranks, done, BackendName::Gloo)
}

/// Calls of the world, which end up to that number.
fn of_world(ranks: &[Vec<Said>], done: u64, backend: BackendName) -> CallLog {
    let world = ProcessGroup::world(ranks.len() as u32, backend).unwrap();
    let in_world = |own: &Vec<Said>| own.iter().map(|said| (GroupId::WORLD, *said)).collect();
    let ranks: Vec<_> = ranks.iter().map(in_world).collect();
    log(vec![world], &ranks, |_, seq| seq <= done)
}

#[test]
fn an_exchange_of_other_sizes_than_ever_is_not_one_of_the_same_arguments() {
    let said = |numel: u64| ("all_to_all", numel, 5);
    let usual = vec![said(8), said(8), said(8)];
    let own = vec![said(8), said(8), said(12)];
    let report = diagnose(&gloo(&[usual.clone(), own, usual.clone(), usual], 2));
    assert_eq!(found(&report), [(Kind::SplitMismatch, vec![1])], "{}", report.to_text());
    assert_eq!(report.findings[0].certainty, Certainty::Likely);
    // Where parts are always uneven, nobody is odd.
    let uneven =
        |rank: u64| vec![said(8 + rank), said(9 + rank), said(8 + 4 * u64::from(rank == 1))];
    let report = diagnose(&gloo(&[0, 1, 2, 3].map(uneven), 2));
    assert_eq!(found(&report), [(Kind::CallNeverCompleted, vec![])], "{}", report.to_text());
    let message = &report.findings[0].message;
    assert!(message.contains("with different sizes"), "{message}");
    assert!(!message.contains("No rank is out of step"), "{message}");
}

/// gloo's recorder leaves out sends, receives and new_group: who is in one of those is not said to be
/// in code of its own.
#[test]
fn a_rank_may_be_in_a_call_that_gloo_does_not_record() {
    let usual = vec![("all_reduce", 64, 5), ("barrier", 0, 7)];
    let own = vec![("all_reduce", 64, 5)];
    let report = diagnose(&gloo(&[usual.clone(), own, usual], 1));
    assert_eq!(found(&report), [(Kind::RankNeverJoined, vec![1])], "{}", report.to_text());
    let message = &report.findings[0].message;
    assert!(message.contains("or in a send, a receive or new_group"), "{message}");
}

/// Two ranks, one of which sends to the other; nothing else.
fn pair(sends: (Dtype, u64), expects: (Dtype, u64), backend: BackendName) -> CallLog {
    let world = ProcessGroup::world(2, backend).unwrap();
    let own = |said| vec![(GroupId::WORLD, said)];
    let ranks = [own(("send", 1, 4)), own(("recv", 1, 6))];
    let mut log = log(vec![world], &ranks, |_, _| false);
    log.recorded = false;
    log.simulated = true;
    for (at, (dtype, numel)) in [sends, expects].into_iter().enumerate() {
        let record = &mut log.ranks[at].as_mut().unwrap().calls[0];
        let call = Called::clone(&record.call);
        record.call = Arc::new(Called {
            p2p: true,
            peer: Some(GroupRank(1 - at as u32)),
            inputs: vec![TensorShape { shape: vec![numel], dtype }],
            outputs: Vec::new(),
            ..call
        });
    }
    log
}

/// The behaviour of a real job with it: seen of two processes of PyTorch 2.7.1.
#[test]
fn a_send_that_gloo_lets_pass_is_not_said_to_hang() {
    use Dtype::{Float32, Float64, Int32};
    let passes =
        [((Float32, 8), (Float64, 4)), ((Int32, 4), (Float32, 4)), ((Float32, 8), (Float64, 8))];
    for (sends, expects) in passes {
        let report = diagnose(&pair(sends, expects, BackendName::Gloo));
        assert_eq!(found(&report), [(Kind::P2pMismatch, vec![0, 1])], "{}", report.to_text());
        let message = &report.findings[0].message;
        assert!(message.contains("would not hang in this call"), "{message}");
    }
    let report = diagnose(&pair((Float64, 8), (Float32, 8), BackendName::Gloo));
    assert!(report.findings[0].message.contains("ends the receiver's process"));
    let report = diagnose(&pair((Float64, 8), (Float32, 8), BackendName::Nccl));
    assert!(!report.findings[0].message.contains("Lockstep stops there"));
}

/// Everybody has made the call, and a rank has not begun it: the others wait for that one.
#[test]
fn who_has_begun_a_call_waits_for_who_has_not() {
    let usual = vec![("all_reduce", 64, 5)];
    let mut log = gloo(&[usual.clone(), usual.clone(), usual], 0);
    for rank in [0, 2] {
        log.ranks[rank].as_mut().unwrap().calls[0].state = CallState::Started;
    }
    let waits: Vec<_> = who_waits(&log).into_iter().map(|wait| wait.waits_for).collect();
    assert_eq!(waits, [vec![GlobalRank(1)], vec![], vec![GlobalRank(1)]]);
    // While all are at it, nobody waits for anybody.
    log.ranks[1].as_mut().unwrap().calls[0].state = CallState::Started;
    assert!(who_waits(&log).iter().all(|wait| wait.waits_for.is_empty()));
}
