//! Hangs as NCCL's dumps show them, whose states are honest and whose calls do not block.

use super::fake::{Fake, Said, done, pending};
use super::{found, report};
use crate::{Certainty, Kind, Report, Verdict};
use lockstep_core::rank::GlobalRank;

fn of(fake: &Fake) -> Report {
    report(&fake.files())
}

fn steps(count: usize) -> Vec<Said> {
    vec![done("all_reduce", 64); count]
}

fn with(mut said: Vec<Said>, more: &[Said]) -> Vec<Said> {
    said.extend_from_slice(more);
    said
}

#[test]
fn all_done_is_healthy() {
    let report = of(&Fake::new(8, &steps(20)));
    assert_eq!((report.verdict, report.findings.len()), (Verdict::Healthy, 0));
}

/// Everybody is in the same call: nobody is to blame, and it may just be running.
#[test]
fn all_in_the_same_call_blames_nobody() {
    let report = of(&Fake::new(8, &with(steps(20), &[pending("all_reduce", 64)])));
    assert_eq!(found(&report), [(Kind::CallNeverCompleted, vec![])]);
    assert_eq!(report.findings[0].certainty, Certainty::Undecidable);
    // One rank saw it end: it was running.
    let fake = Fake::new(8, &with(steps(20), &[pending("all_reduce", 64)])).rank(3, &steps(21));
    let report = of(&fake);
    assert_eq!(report.verdict, Verdict::Inconclusive, "{}", report.to_text());
    assert_eq!((report.unseen.len(), report.notes.len()), (1, 1));
}

#[test]
fn two_culprits_of_one_call_are_one_finding() {
    let waiting = with(steps(9), &[pending("all_reduce", 64), pending("all_gather", 8)]);
    let report = of(&Fake::new(8, &waiting).rank(2, &steps(9)).rank(5, &steps(9)));
    assert_eq!(found(&report), [(Kind::RankNeverJoined, vec![2, 5])]);
    let finding = &report.findings[0];
    assert_eq!((finding.seq, finding.op.as_deref()), (Some(10), Some("all_reduce")));
    assert_eq!(finding.victims.len(), 6);
}

#[test]
fn two_groups_with_a_culprit_each_are_two_findings() {
    let step = |state: fn(&str, u64) -> Said, group| state("all_reduce", 64).in_group(group);
    let mut fake = Fake::new(8, &[]).group("a", &[0, 1, 2, 3]).group("b", &[4, 5, 6, 7]);
    for rank in 0..8 {
        let group = 1 + rank / 4;
        let stuck = rank == 1 || rank == 6;
        let last = if stuck { vec![] } else { vec![step(pending, group)] };
        fake = fake.rank(rank, &with(vec![step(done, group)], &last));
    }
    let report = of(&fake);
    assert_eq!(
        found(&report),
        [(Kind::RankNeverJoined, vec![1]), (Kind::RankNeverJoined, vec![6])]
    );
    assert_eq!(report.findings[0].victims.len(), 3);
}

/// A call that only one rank makes, while the others wait for nothing.
#[test]
fn a_call_of_one_rank_alone_is_extra() {
    let extra = with(steps(9), &[pending("broadcast", 64)]);
    let report = of(&Fake::new(8, &steps(9)).rank(0, &extra));
    assert_eq!(found(&report), [(Kind::OpExtra, vec![0])], "{}", report.to_text());
    assert_eq!(report.findings[0].certainty, Certainty::Likely);
    // Of two ranks, the one that did not come is the likelier cause.
    let report = of(&Fake::new(2, &steps(9)).rank(0, &extra));
    assert_eq!(found(&report), [(Kind::RankNeverJoined, vec![1])]);
}

/// Rank 0 gathers behind three steps, as all did in the round before, and the others go on with a fourth.
#[test]
fn a_run_of_alike_calls_ends_where_it_did_before() {
    let gather = [done("all_gather", 1), done("all_gather", 29)];
    let before = with(with(steps(3), &gather), &steps(3));
    let one = with(before.clone(), &[pending("all_gather", 1)]);
    let report = of(&Fake::new(4, &with(before, &[pending("all_reduce", 64)])).rank(0, &one));
    assert_eq!(found(&report), [(Kind::OpExtra, vec![0])], "{}", report.to_text());
    assert_eq!(report.findings[0].certainty, Certainty::Likely);
    let message = &report.findings[0].message;
    assert!(message.contains("it may be the others that left it out"), "{message}");
}

/// Before any round has come twice nothing shows what is usual: the others may all be stuck in front of
/// the call.
#[test]
fn who_comes_first_before_any_round_is_not_convicted() {
    let set_up = [done("broadcast", 100), done("broadcast", 100), done("barrier", 1)];
    for before in [&[][..], &set_up] {
        let first = with(before.to_vec(), &[pending("all_reduce", 8)]);
        let report = of(&Fake::new(4, before).rank(3, &first));
        let either = (Kind::RankNeverJoined, vec![0, 1, 2, 3]);
        assert_eq!(found(&report), [either], "{}", report.to_text());
        assert_eq!(report.findings[0].certainty, Certainty::Undecidable);
        let message = &report.findings[0].message;
        assert!(message.contains("stuck in front of it"), "{message}");
        assert!(message.contains("rank 3 makes a call that the others do not make"), "{message}");
    }
}

/// Hundreds wait through other groups: one cause.
#[test]
fn chains_of_waits_lead_to_one_culprit() {
    let world = 64u32;
    let groups: Vec<(&str, Vec<u32>)> = (0..8)
        .map(|g| ("tp", (8 * g..8 * g + 8).collect()))
        .chain([("dp", (0..8).map(|g| 8 * g).collect())])
        .collect();
    let mut fake = Fake::new(world, &[]);
    fake.groups.extend(groups);
    for rank in 0..world {
        let tp = 1 + (rank / 8) as usize;
        let mut said = vec![done("all_reduce", 4).in_group(tp)];
        if rank != 27 {
            // Group 3 (ranks 24 to 31) waits for 27; rank 24 never comes to dp; the other groups'
            // firsts wait in dp, and their tp peers for them.
            let first = rank % 8 == 0;
            match (rank / 8 == 3, first) {
                (true, _) => said.push(pending("all_reduce", 4).in_group(tp)),
                (false, true) => said.push(pending("all_reduce", 4).in_group(9)),
                (false, false) => said.push(pending("all_gather", 4).in_group(tp)),
            }
        }
        fake = fake.rank(rank as usize, &said);
    }
    let report = of(&fake);
    assert_eq!(found(&report), [(Kind::RankNeverJoined, vec![27])], "{}", report.to_text());
    assert_eq!(report.findings[0].victims.len(), 63);
}

#[test]
fn a_culprit_without_a_dump_is_missing() {
    let waiting = with(steps(9), &[pending("all_reduce", 64)]);
    let report = of(&Fake::new(8, &waiting).no_dump(7));
    assert_eq!(report.world_size, 8);
    assert_eq!(found(&report), [(Kind::RankMissing, vec![7])]);
    assert_eq!(report.findings[0].certainty, Certainty::Likely);
    // A rank that is there and never came explains the wait; the missing one is only missing.
    let report = of(&Fake::new(8, &waiting).no_dump(7).rank(2, &steps(9)));
    let kinds = [(Kind::RankNeverJoined, vec![2]), (Kind::RankMissing, vec![7])];
    assert_eq!(found(&report), kinds, "{}", report.to_text());
    assert_eq!(report.findings[1].certainty, Certainty::Undecidable);
}

#[test]
fn a_missing_dump_of_a_healthy_job_is_undecidable() {
    let report = of(&Fake::new(4, &steps(9)).no_dump(1));
    assert_eq!(found(&report), [(Kind::RankMissing, vec![1])]);
    assert_eq!(report.findings[0].certainty, Certainty::Undecidable);
    assert!(report.findings[0].victims.is_empty());
}

/// Ring buffers keep different windows of different ranks.
#[test]
fn wrapped_buffers_blame_nobody_wrongly() {
    // Rank 1 has dropped all of the group in which rank 0's call is still listed as pending.
    let old = pending("all_reduce", 64).in_group(1);
    let fake = Fake::new(4, &with(vec![done("all_reduce", 64).in_group(1)], &steps(40)))
        .group("pair", &[0, 1, 2, 3])
        .rank(0, &with(vec![old], &steps(40)))
        .dropped(1, 20)
        .dropped(2, 10);
    let report = of(&fake);
    assert_eq!(report.verdict, Verdict::Inconclusive, "{}", report.to_text());
    assert_eq!(
        report.unseen,
        ["Rank 0 had not come out of all_reduce #1 of pair when that was recorded."]
    );
    // The culprit is found whatever the windows.
    let waiting = with(steps(40), &[pending("all_reduce", 64)]);
    let fake = Fake::new(4, &waiting).rank(2, &steps(40)).dropped(0, 30).dropped(2, 35);
    assert_eq!(found(&of(&fake)), [(Kind::RankNeverJoined, vec![2])]);
}

#[test]
fn sizes_that_shift_are_a_skipped_or_an_extra_call() {
    let all: Vec<Said> = (1..=8).map(|n| pending("all_reduce", n * n * 10)).collect();
    let mut skipped = all.clone();
    skipped.remove(3);
    let report = of(&Fake::new(4, &all).rank(2, &skipped));
    assert_eq!(found(&report), [(Kind::OpSkipped, vec![2])], "{}", report.to_text());
    assert_eq!(report.findings[0].seq, Some(4));
    assert_eq!(report.findings[0].certainty, Certainty::Certain);
    let mut extra = all.clone();
    extra.insert(3, pending("broadcast", 1));
    let report = of(&Fake::new(4, &all).rank(0, &extra));
    assert_eq!(found(&report), [(Kind::OpExtra, vec![0])], "{}", report.to_text());
    assert_eq!(
        (report.findings[0].seq, report.findings[0].op.as_deref()),
        (Some(4), Some("broadcast"))
    );
    let mut swapped = all.clone();
    swapped.swap(3, 4);
    let report = of(&Fake::new(4, &all).rank(1, &swapped));
    assert_eq!(found(&report), [(Kind::OpsSwapped, vec![1])], "{}", report.to_text());
}

#[test]
fn a_tie_is_reported_as_a_tie() {
    let a = with(steps(3), &[pending("all_reduce", 64)]);
    let b = with(steps(3), &[pending("all_reduce", 65)]);
    let report = of(&Fake::new(2, &a).rank(1, &b));
    assert_eq!(found(&report), [(Kind::SizeMismatch, vec![0, 1])]);
    assert_eq!(report.findings[0].certainty, Certainty::Undecidable);
    let report = of(&Fake::new(4, &a).rank(1, &b).rank(2, &b));
    assert_eq!(found(&report), [(Kind::SizeMismatch, vec![0, 1, 2, 3])]);
}

#[test]
fn dtypes_and_ops_by_majority() {
    let call = |said: Said| with(steps(3), &[said]);
    let fake = Fake::new(5, &call(pending("all_reduce", 64)))
        .rank(0, &call(pending("all_reduce", 64).dtype("BFloat16")));
    assert_eq!(found(&of(&fake)), [(Kind::DtypeMismatch, vec![0])]);
    let fake = Fake::new(5, &call(pending("all_reduce", 64)))
        .rank(0, &call(pending("_reduce_oop", 64)))
        .rank(4, &call(pending("_reduce_oop", 64)));
    assert_eq!(found(&of(&fake)), [(Kind::CollectiveMismatch, vec![0, 4])]);
    // Two minorities are two findings.
    let fake = Fake::new(5, &call(pending("all_reduce", 64)))
        .rank(0, &call(pending("broadcast", 64)))
        .rank(4, &call(pending("all_reduce", 32)));
    assert_eq!(
        found(&of(&fake)),
        [(Kind::CollectiveMismatch, vec![0]), (Kind::SizeMismatch, vec![4])]
    );
}

/// `all_to_all` with splits, and scatter's roots, may differ in sizes.
#[test]
fn uneven_calls_that_are_right() {
    let mut fake = Fake::new(4, &[]);
    for rank in 0..4 {
        fake = fake
            .rank(rank as usize, &[done("all_to_allv", 100 + rank), done("all_gather", 7 + rank)]);
    }
    assert_eq!(of(&fake).verdict, Verdict::Healthy);
}

#[test]
fn groups_in_opposite_order() {
    let (tp, pp) = (pending("all_reduce", 64).in_group(1), pending("all_reduce", 64).in_group(2));
    let fake = |tp_ranks: &[u32], pp_ranks: &[u32]| {
        Fake::new(4, &steps(2)).group("tp", tp_ranks).group("pp", pp_ranks)
    };
    let cross = fake(&[0, 1, 2], &[1, 2, 3])
        .rank(0, &with(steps(2), std::slice::from_ref(&tp)))
        .rank(1, &with(steps(2), std::slice::from_ref(&tp)))
        .rank(2, &with(steps(2), std::slice::from_ref(&pp)))
        .rank(3, &with(steps(2), std::slice::from_ref(&pp)));
    let report = of(&cross);
    assert_eq!(found(&report), [(Kind::GroupDeadlock, vec![1, 2])]);
    assert_eq!(report.findings[0].victims, [0, 3].map(lockstep_core::rank::GlobalRank));
    // All ranks are in both groups, and one goes the other way round.
    let mut one = fake(&[0, 1, 2, 3], &[0, 1, 2, 3]);
    for rank in 0..4 {
        one = one.rank(rank, &with(steps(2), &[if rank == 3 { pp.clone() } else { tp.clone() }]));
    }
    assert_eq!(found(&of(&one)), [(Kind::GroupDeadlock, vec![3])]);
}

#[test]
fn sends_and_receives() {
    let send = |to: u32, from: u32| pending(&format!("send {from}->{to}"), 8);
    let recv = |at: u32, from: u32| pending(&format!("recv {at}<-{from}"), 8);
    // Both send first, each after the other's.
    let facing = Fake::new(2, &[]).rank(0, &[recv(0, 1)]).rank(1, &[recv(1, 0)]);
    assert_eq!(found(&of(&facing)), [(Kind::P2pDeadlock, vec![0, 1])]);
    // A pipeline: 0 sends to 1, which waits for 2, which is stuck.
    let chain = Fake::new(4, &[])
        .rank(0, &[send(1, 0)])
        .rank(1, &[recv(1, 2)])
        .rank(2, &[done("all_reduce", 1)])
        .rank(3, &[done("all_reduce", 1)]);
    let report = of(&chain);
    assert_eq!(found(&report), [(Kind::RankNeverJoined, vec![2])], "{}", report.to_text());
    assert_eq!(report.findings[0].victims.len(), 2);
    // They meet, with other sizes.
    let sizes = Fake::new(2, &[]).rank(0, &[send(1, 0)]).rank(1, &[pending("recv 1<-0", 9)]);
    assert_eq!(found(&of(&sizes)), [(Kind::P2pMismatch, vec![0, 1])]);
    // A rank in a collective, its peer in a receive from it.
    let mixed = Fake::new(2, &[]).rank(0, &[pending("all_reduce", 8)]).rank(1, &[recv(1, 0)]);
    assert_eq!(found(&of(&mixed)), [(Kind::GroupDeadlock, vec![0, 1])]);
}

/// Tags are lost in a dump: a pair that never ended may have two. It is no health.
#[test]
fn a_pair_that_never_ends_is_told_as_that() {
    let (sends, receives) = (pending("send 0->1", 8), pending("recv 1<-0", 8));
    let both = Fake::new(2, &[])
        .rank(0, std::slice::from_ref(&sends))
        .rank(1, std::slice::from_ref(&receives));
    let report = of(&both);
    assert_eq!(found(&report), [(Kind::CallNeverCompleted, vec![])], "{}", report.to_text());
    let finding = &report.findings[0];
    assert_eq!(finding.certainty, Certainty::Undecidable);
    assert_eq!(finding.victims, [GlobalRank(0), GlobalRank(1)]);
    assert!(finding.message.contains("tags may differ"), "{}", finding.message);
    // One side saw it end: a job that runs.
    let running = Fake::new(2, &[]).rank(0, &[done("send 0->1", 8)]).rank(1, &[receives]);
    assert_ne!(found(&of(&running)), found(&report));
}

/// Rank 0's last send is for another rank than the one that waits for it.
#[test]
fn a_circle_that_a_send_closes_may_be_that_sends() {
    let met = |rank: u32| match rank {
        0 => vec![done("send 0->1", 8), pending("send 0->2", 8)],
        1 => vec![done("recv 1<-0", 8), pending("recv 1<-0", 8)],
        _ => vec![pending("barrier", 1)],
    };
    let circle = Fake::new(3, &[]).rank(0, &met(0)).rank(1, &met(1)).rank(2, &met(2));
    let report = of(&circle);
    assert_eq!(found(&report), [(Kind::GroupDeadlock, vec![0, 1, 2])], "{}", report.to_text());
    assert_eq!(report.findings[0].certainty, Certainty::Likely);
    assert!(report.findings[0].message.contains("another rank"), "{}", report.to_text());
}

/// The calls of a batch stay `scheduled` for ever; the batch says how far they got.
#[test]
fn batched_sends_end_with_their_batch() {
    let send = |from: u32, to: u32| pending(&format!("send {from}->{to}"), 8).batched();
    let recv = |at: u32, from: u32| pending(&format!("recv {at}<-{from}"), 8).batched();
    let both = |own, other, batch: Said| {
        vec![send(own, other), recv(own, other), batch, done("all_reduce", 1)]
    };
    let fake =
        Fake::new(2, &both(0, 1, done("coalesced", 0))).rank(1, &both(1, 0, done("coalesced", 0)));
    let report = of(&fake);
    assert_eq!(report.verdict, Verdict::Healthy, "{}", report.to_text());
    // One side posted its batch, the other never did.
    let fake = Fake::new(2, &both(0, 1, pending("coalesced", 0))).rank(1, &[done("all_reduce", 1)]);
    assert_eq!(found(&of(&fake)), [(Kind::RankNeverJoined, vec![1])]);
}

#[test]
fn stragglers_are_slow_not_hung() {
    let ms = 1_000_000u64;
    let said = |late: u64, count: u64| -> Vec<Said> {
        (0..count)
            .map(|n| done("all_reduce", 64).at(n * 400 * ms + if n < 2 { 0 } else { late }))
            .collect()
    };
    let report = of(&Fake::new(4, &said(0, 20)).rank(3, &said(350 * ms, 20)));
    assert_eq!(found(&report), [(Kind::Straggler, vec![3])]);
    // A clock that is off is no straggler.
    let off = |n: u64| done("all_reduce", 64).at(n * 400 * ms + 300 * ms);
    let report = of(&Fake::new(4, &said(0, 20)).rank(3, &(0..20).map(off).collect::<Vec<_>>()));
    assert_eq!(report.verdict, Verdict::Healthy, "{}", report.to_text());
    // Recorded while the others wait for it once more.
    let waiting = with(said(0, 20), &[pending("all_reduce", 64).at(20 * 400 * ms)]);
    let report = of(&Fake::new(4, &waiting).rank(3, &said(350 * ms, 20)));
    assert_eq!(found(&report), [(Kind::Straggler, vec![3])]);
}

#[test]
fn nothing_recorded_is_unusable() {
    let report = of(&Fake::new(2, &[]));
    assert_eq!(report.verdict, Verdict::Unusable);
    assert!(report.notes[0].contains("holds no calls"));
}

/// A call that everybody made and that never ends holds up nobody's process on NCCL, as the others
/// show that went on behind it: who did not go on is missed.
#[test]
fn who_did_not_go_on_behind_a_call_as_the_others_did_is_missed() {
    let fake = Fake::new(4, &[])
        .group("mesh_dp", &[0, 2])
        .group("mesh_dp", &[1, 3])
        .group("mesh_tp", &[0, 1])
        .group("mesh_tp", &[2, 3]);
    let said = |rank: u32, state: fn(&str, u64) -> Said, calls: usize| {
        let (dp, tp) = (1 + rank as usize % 2, 3 + rank as usize / 2);
        let step = [done("all_reduce", 512).in_group(tp), done("all_reduce", 4096).in_group(dp)];
        let last =
            [state("all_reduce", 512).in_group(tp), pending("all_reduce", 4096).in_group(dp)];
        with(step.to_vec(), &last[..calls])
    };
    let fake = fake
        .rank(0, &said(0, done, 2))
        .rank(1, &said(1, done, 2))
        .rank(2, &said(2, pending, 1))
        .rank(3, &said(3, pending, 2));
    let report = of(&fake);
    assert_eq!(found(&report), [(Kind::RankNeverJoined, vec![2])], "{}", report.to_text());
    assert_eq!(report.findings[0].certainty, Certainty::Likely);
    assert_eq!(report.findings[0].victims.len(), 3);
}
