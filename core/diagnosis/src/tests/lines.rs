//! Recordings whose calls have lines: what they show of a call that was left out or made on top.

use super::found;
use crate::{Certainty, Kind, Report, diagnose};
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId, ProcessGroup};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{
    CallLog, CallRecord, CallState, Called, Frame, Outcome, RankLog, TensorShape,
};
use std::sync::Arc;

/// Operation, elements, line.
pub(super) type Said = (&'static str, u64, u32);

fn called((op, numel, line): Said, group: GroupId) -> Called {
    let tensor = vec![TensorShape { shape: vec![numel], dtype: Dtype::Float32 }];
    Called {
        op: op.into(),
        group,
        p2p: false,
        peer: None,
        tag: 0,
        inputs: tensor.clone(),
        outputs: tensor,
        reduce_op: (op == "all_reduce").then_some(ReduceOp::Sum),
        root: None,
        stack: [Frame { file: "/job/train.py".into(), line, function: "train".into() }].into(),
    }
}

/// A recording of what each rank called; `done` says which calls ended.
pub(super) fn log(
    groups: Vec<ProcessGroup>,
    ranks: &[Vec<(GroupId, Said)>],
    done: impl Fn(GroupId, u64) -> bool,
) -> CallLog {
    let rank_log = |said: &Vec<(GroupId, Said)>| {
        let mut seqs = vec![0; groups.len()];
        let calls = said.iter().enumerate().map(|(at, (group, said))| {
            seqs[group.index()] += 1;
            let seq = seqs[group.index()];
            let ended = done(*group, seq);
            CallRecord {
                work: at as u32,
                state: if ended { CallState::Completed } else { CallState::Scheduled },
                seq: Some(seq),
                record_id: Some(at as u64),
                plan_op: None,
                scheduled_ps: at as u64 * 1_000_000,
                started_ps: None,
                completed_ps: ended.then_some(at as u64 * 1_000_000 + 500_000),
                call: Arc::new(called(*said, *group)),
            }
        });
        RankLog { calls: calls.collect(), ..RankLog::default() }
    };
    CallLog {
        world_size: ranks.len() as u32,
        ranks: ranks.iter().map(|said| Some(rank_log(said))).collect(),
        groups,
        outcome: Outcome::Unknown,
        recorded: true,
        simulated: false,
        device_times: false,
        ended_ps: None,
        plan: None,
    }
}

/// The diagnosis of calls of the world, which end as long as all ranks' are alike.
pub(super) fn report(ranks: &[Vec<Said>]) -> Report {
    let alike = |at: usize| {
        let call = |own: &Vec<Said>| own.get(at).map(|(op, numel, _)| (*op, *numel));
        ranks.iter().all(|own| call(own).is_some() && call(own) == call(&ranks[0]))
    };
    let same = (0..).take_while(|at| alike(*at)).count() as u64;
    let world = ProcessGroup::world(ranks.len() as u32, BackendName::Nccl).unwrap();
    let in_world = |own: &Vec<Said>| own.iter().map(|said| (GroupId::WORLD, *said)).collect();
    let ranks: Vec<_> = ranks.iter().map(in_world).collect();
    diagnose(&log(vec![world], &ranks, |_, seq| seq <= same))
}

const ROUND: [Said; 3] = [("all_reduce", 1024, 8), ("all_reduce", 2048, 9), ("all_gather", 8, 11)];

/// NCCL's ranks run ahead up to where they synchronize, each round: the rank that left out the last
/// call of a round has made the whole next one, and the others none of it.
#[test]
fn a_last_call_of_a_round_is_left_out_and_not_the_next_round_made_on_top() {
    for rounds in [2, 3, 5] {
        let usual = ROUND.repeat(rounds);
        let mut own = usual.clone();
        own.pop();
        own.extend(ROUND);
        let report = report(&[usual.clone(), usual.clone(), own, usual]);
        assert_eq!(found(&report), [(Kind::OpSkipped, vec![2])], "{}", report.to_text());
        let finding = &report.findings[0];
        assert_eq!(
            (finding.seq, finding.op.as_deref()),
            (Some(rounds as u64 * 3), Some("all_gather"))
        );
        assert!(finding.message.contains("(train.py:11)"), "{}", finding.message);
        assert!(!finding.message.contains("No other rank"), "{}", finding.message);
    }
}

/// Between two sides of one size what came before is a hint, and no proof.
#[test]
fn as_many_against_as_many_blame_nobody_for_certain() {
    const STEP: [Said; 2] = [("all_reduce", 64, 6), ("all_reduce", 32, 7)];
    for half in [1, 2] {
        let rounds = |count: usize| [STEP.repeat(count), vec![("barrier", 1, 9)]].concat();
        let report = report(&[vec![rounds(5); half], vec![rounds(4); half]].concat());
        let finding = &report.findings[0];
        assert_eq!(finding.kind, Kind::LoopShorter, "{}", report.to_text());
        assert_eq!(finding.certainty, Certainty::Likely, "{}", report.to_text());
        assert!(finding.message.contains("astray instead"), "{}", finding.message);
    }
}

/// In the first round as well: all have made the calls before, which begin the next one; whether the
/// rank runs ahead, as on NCCL, or not.
#[test]
fn a_first_round_is_left_before_its_last_call() {
    let usual = ROUND.to_vec();
    for ahead in [1, 3] {
        let mut own = usual.clone();
        own.pop();
        own.extend(ROUND.iter().take(ahead));
        let report = report(&[usual.clone(), own, usual.clone(), usual.clone()]);
        assert_eq!(found(&report), [(Kind::OpSkipped, vec![1])], "{}", report.to_text());
        assert_eq!(report.findings[0].op.as_deref(), Some("all_gather"));
    }
}

/// A call that others make from the same line is not told as a call that nobody else makes.
#[test]
fn a_line_that_all_call_is_not_one_ranks_own() {
    let usual = [ROUND[0], ROUND[2], ROUND[1], ROUND[2], ROUND[1]].to_vec();
    let own = [ROUND[0], ROUND[0], ROUND[2], ROUND[1], ROUND[2], ROUND[1]].to_vec();
    let report = report(&[usual.clone(), own, usual.clone(), usual]);
    assert_eq!(found(&report), [(Kind::OpExtra, vec![1])], "{}", report.to_text());
    let message = &report.findings[0].message;
    assert!(message.contains("made 1 call more of default_pg than the others"), "{message}");
    assert!(!message.contains("No other rank"), "{message}");
}

/// A call from a line that nobody else calls, where the rank stops with the others: it is no other
/// size of theirs, and no other order.
#[test]
fn a_call_from_a_line_of_its_own_is_extra() {
    let before: Vec<Said> = ROUND.to_vec();
    let mut usual = before.clone();
    usual.push(ROUND[0]);
    for extra in [("all_reduce", 777, 99), ("broadcast", 777, 99)] {
        let mut own = before.clone();
        own.push(extra);
        let report = report(&[usual.clone(), usual.clone(), own]);
        assert_eq!(found(&report), [(Kind::OpExtra, vec![2])], "{}", report.to_text());
        let message = &report.findings[0].message;
        assert!(
            message.contains("No other rank of default_pg is seen to call from there"),
            "{message}"
        );
    }
    // Sizes that differ on one line are sizes that differ.
    let mut own = before;
    own.push(("all_reduce", 777, 8));
    let report = report(&[usual.clone(), usual, own]);
    assert_eq!(found(&report), [(Kind::SizeMismatch, vec![2])]);
}

/// The call that comes next in each round, made in place of the others' from a line of its own.
#[test]
fn the_next_call_from_a_branch_is_in_another_order() {
    let round = [("all_reduce", 640, 20), ("broadcast", 640, 21), ("all_gather", 2, 22)];
    let mut usual: Vec<Said> = round.repeat(2);
    let mut own = usual.clone();
    usual.push(round[0]);
    own.push(("broadcast", 640, 19));
    for rank in 0..3 {
        let mut ranks = vec![usual.clone(); 4];
        ranks[rank].clone_from(&own);
        let report = report(&ranks);
        assert_eq!(found(&report), [(Kind::OpsSwapped, vec![rank as u32])], "{}", report.to_text());
        let finding = &report.findings[0];
        assert_eq!(finding.certainty, Certainty::Likely);
        assert!(
            finding.message.contains("as well have made that call besides"),
            "{}",
            finding.message
        );
    }
    // From its usual line it is what comes behind the call that was left out.
    *own.last_mut().unwrap() = round[1];
    let report = report(&[usual.clone(), own, usual]);
    assert_eq!(found(&report), [(Kind::OpSkipped, vec![1])], "{}", report.to_text());
}

/// A call through the helper that all calls go through, from a place that nobody else calls it from, may
/// be one too many as much as one behind the loop.
#[test]
fn a_call_through_a_helper_may_be_one_too_many() {
    let round = [("all_reduce", 100, 14), ("all_reduce", 100, 15)];
    let usual: Vec<Said> = round.repeat(3);
    let mut own = usual[..4].to_vec();
    own.push(("all_reduce", 7, 16));
    let told = |own: &[Said]| {
        let ranks: Vec<Vec<(GroupId, Said)>> = [&usual, own, &usual]
            .map(|said| said.iter().map(|said| (GroupId::WORLD, *said)).collect())
            .to_vec();
        let groups = vec![ProcessGroup::world(3, BackendName::Gloo).unwrap()];
        let mut log = log(groups, &ranks, |_, seq| seq < 5);
        for record in log.ranks.iter_mut().flatten().flat_map(|rank| &mut rank.calls) {
            let call = Arc::make_mut(&mut record.call);
            let helper = Frame { file: "/job/all.py".into(), line: 10, function: "mean".into() };
            call.stack = [helper].into_iter().chain(call.stack.iter().cloned()).collect();
        }
        let report = diagnose(&log);
        assert_eq!(report.findings[0].culprits.len(), 1, "{}", report.to_text());
        report.findings[0].clone()
    };
    let finding = told(&own);
    assert!(finding.message.contains("it is one call too many"), "{}", finding.message);
    assert!(finding.fix.contains("If the call is one too many"), "{}", finding.fix);
    // From where the others call the helper as well nothing speaks for that.
    let last = own.last_mut().unwrap();
    *last = ("all_reduce", 7, 15);
    assert!(!told(&own).message.contains("one call too many"));
}

/// Two calls that may be in another order, or one of them besides.
#[test]
fn what_may_be_an_order_or_an_extra_call_is_told_as_both() {
    let usual = vec![("all_reduce", 64, 8), ("all_gather", 32, 9)];
    let own = vec![("all_reduce", 64, 8), ("all_reduce", 777, 99)];
    let report = report(&[usual.clone(), usual, own]);
    assert_eq!(found(&report), [(Kind::OpsSwapped, vec![2])]);
    assert!(report.findings[0].message.contains("as well have made that call besides"));
}

/// A group of two, of which one call is as its line's always are, and so is the other's: the groups
/// that stand for it decide.
#[test]
fn lines_that_are_as_always_do_not_decide_between_two() {
    let mut groups = vec![ProcessGroup::world(8, BackendName::Gloo).unwrap()];
    for pair in 0..4u32 {
        let ranks = [2 * pair, 2 * pair + 1].map(lockstep_core::rank::GlobalRank).to_vec();
        let name = (pair + 1).to_string();
        let group = ProcessGroup::new(name, BackendName::Gloo, ranks).unwrap();
        groups.push(group.with_desc(format!("tp{pair}")));
    }
    let (small, large) = (("all_reduce", 64, 20), ("all_reduce", 96, 21));
    let ranks: Vec<Vec<(GroupId, Said)>> = (0..8u32)
        .map(|rank| {
            let own = GroupId(1 + rank / 2);
            let last = if rank == 7 { small } else { large };
            let mut calls: Vec<_> = [small, large, small, last].map(|said| (own, said)).to_vec();
            if rank < 6 {
                calls.push((GroupId::WORLD, ("all_reduce", 1, 28)));
            }
            calls
        })
        .collect();
    let done = |group: GroupId, seq| match group {
        GroupId::WORLD => false,
        GroupId(4) => seq < 4,
        _ => true,
    };
    let report = diagnose(&log(groups, &ranks, done));
    assert_eq!(report.culprits(), [lockstep_core::rank::GlobalRank(7)], "{}", report.to_text());
}
