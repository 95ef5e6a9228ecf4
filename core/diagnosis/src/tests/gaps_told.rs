//! The findings for recordings with gaps, case by case: [`super::gaps`] plays the jobs.

use super::fake::{Fake, Said, done, pending};
use super::found;
use super::gaps::{Does, Job, data, mesh, pipeline, play, recorded};
use crate::{Certainty, Kind, Report, diagnose, diagnose_recording};
use lockstep_core::group::GroupId;
use lockstep_core::trace::Outcome;
use lockstep_formats::flight_recorder::{Dump, GroupStatus, read_files, recording_of};
use std::collections::BTreeMap;

/// The diagnosis of a job whose ranks may have so many calls under way.
fn report(job: &Job, ahead: usize, missing: Option<usize>, rings: &[usize], lines: bool) -> Report {
    diagnose(&recorded(job, &play(job, ahead), missing, rings, lines))
}

fn of_dumps(fake: &Fake) -> Report {
    let files = fake.files();
    let files = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    diagnose_recording(&read_files(files).unwrap())
}

/// The index of a rank's `nth` call of a group.
fn place(job: &Job, rank: usize, group: usize, nth: usize) -> usize {
    let of = |(_, does): &(usize, &Does)| does.group == group;
    job.programs[rank].iter().enumerate().filter(of).nth(nth).unwrap().0
}

/// A call that a rank makes twice, its `nth` of a group.
fn twice(mut job: Job, rank: usize, group: usize, nth: usize) -> Job {
    let at = place(&job, rank, group, nth);
    let does = job.programs[rank][at].clone();
    job.programs[rank].insert(at, does);
    job
}

fn likely(report: &Report, kind: Kind, culprit: u32) {
    assert_eq!(found(report)[0], (kind, vec![culprit]), "{}", report.to_text());
    assert_eq!(report.findings[0].certainty, Certainty::Likely, "{}", report.to_text());
}

/// A rank's ring holds nothing but what it called behind the call that it hangs in, which others never
/// made: the recorder's count tells.
#[test]
fn what_hangs_and_was_dropped_is_no_health() {
    let job = twice(mesh(4, 5, 4), 1, 1, 0);
    let made = play(&job, 6);
    let rings = [8, 2, 8, 2, 8, 8, 8, 2];
    let log = recorded(&job, &made, None, &rings, false);
    let by_rank: BTreeMap<_, _> =
        log.logs().map(|(rank, own)| (rank.0, &own.recording.unended)).collect();
    assert_eq!(by_rank[&1], &BTreeMap::from([(GroupId(1), 5)]));
    let report = diagnose(&log);
    let found = found(&report);
    assert_eq!(found, [(Kind::OpExtra, vec![1])], "{}", report.to_text());
    assert_eq!(report.findings[0].certainty, Certainty::Likely);
    assert!(report.findings[0].message.contains("dropped"), "{}", report.to_text());
}

/// Ranks 2 and 3 hang in calls of other sizes, one of which a ring has dropped, and the others wait for them
/// in the world: who waits, whatever its ring holds, has made no call on top.
#[test]
fn who_waits_for_those_that_hang_in_what_was_dropped_is_not_blamed() {
    let tp = |numel: u64| pending("all_reduce", numel).in_group(1);
    let all = [pending("all_reduce", 1), pending("barrier", 1)];
    let fake = Fake::new(4, &all).group("tp", &[2, 3]);
    let fake = fake.rank(2, &[tp(64), tp(96)]).rank(3, &[tp(65), tp(96)]);
    let fake = fake.dropped(1, 1).dropped(2, 1);
    let files = fake.files();
    let mut dumps: Vec<Dump> =
        files.iter().map(|(name, bytes)| Dump::read(name, bytes).unwrap()).collect();
    let status = |called| GroupStatus { last_enqueued: called, last_completed: None };
    for dump in &mut dumps {
        let in_tp = dump.rank.0 > 1;
        dump.status = [(0, status((!in_tp).then_some(2)))].into();
        dump.status.extend(in_tp.then_some((1, status(Some(2)))));
    }
    let report = diagnose_recording(&recording_of(dumps, Vec::new()).unwrap());
    assert!(!report.findings.is_empty());
    let blamed = report.culprits().iter().any(|rank| rank.0 < 2);
    assert!(!blamed, "{}", report.to_text());
}

/// Twice each, in turns: rings hold one turn of the one and the first of the other. That all calls of the
/// former's line were alike says nothing against the latter, whose own were dropped.
#[test]
fn a_line_whose_calls_were_dropped_is_not_held_against_another() {
    let mut job = mesh(2, 5, 1);
    for program in &mut job.programs {
        let twice = |does: Does| {
            let times = if (1..=2).contains(&does.group) { 2 } else { 1 };
            std::iter::repeat_n(does, times)
        };
        *program = std::mem::take(program).into_iter().flat_map(twice).collect();
    }
    let job = twice(job, 3, 2, 16);
    // Of rank 0 nothing is left that would tell.
    let report = report(&job, 20, Some(1), &[2, 6, 6, 6], true);
    let blamed = report.findings.iter().any(|finding| {
        finding.certainty != Certainty::Undecidable
            && finding.culprits.iter().any(|rank| rank.0 != 3)
    });
    assert!(!blamed, "{}", report.to_text());
}

/// A round that makes the same call several times is one round.
#[test]
fn rounds_are_not_counted_in_calls() {
    let round = |state: fn(&str, u64) -> Said| {
        [state("all_reduce", 64), state("all_reduce", 64), state("all_gather", 8)]
    };
    let made: Vec<Said> = (0..4).flat_map(|_| round(done)).collect();
    let behind = [pending("barrier", 1)];
    let more: Vec<Said> = (0..2).flat_map(|_| round(pending)).collect();
    let others = [made.as_slice(), &more, &behind].concat();
    let fake = Fake::new(4, &others).rank(1, &[made.as_slice(), &behind].concat());
    let report = of_dumps(&fake);
    likely(&report, Kind::LoopShorter, 1);
    let said = &report.findings[0].message;
    assert!(said.contains("left its loop after 4 rounds"), "{said}");
}

/// Of two ranks the one that waits has made a call on top: that the other never came is likely at
/// most, and the ranks of the other pairs tell who it is, whether their dumps are all there or not.
#[test]
fn of_a_pair_others_tell_who_made_a_call_on_top() {
    let job = twice(mesh(2, 4, 0), 2, 2, 1);
    for missing in [None, Some(0), Some(1)] {
        for lines in [false, true] {
            likely(&report(&job, 6, missing, &[], lines), Kind::OpExtra, 2);
        }
    }
    // Rings that hold less than the loop: what the recorders count.
    let job = twice(mesh(4, 5, 4), 4, 3, 1);
    likely(&report(&job, 2, None, &[8, 6, 8, 6, 8, 6, 8, 6], false), Kind::OpExtra, 4);
}

/// Between two ranks nobody is late for certain; others who wait for one of them tell.
#[test]
fn of_two_ranks_nobody_never_came_for_certain() {
    let mut two = data(2, 4, 0);
    two.programs[1].truncate(3);
    likely(&report(&two, 1, None, &[], true), Kind::RankNeverJoined, 1);
    let mut pairs = mesh(2, 4, 4);
    let at = place(&pairs, 1, 1, 2);
    pairs.programs[1].truncate(at);
    let mut log = recorded(&pairs, &play(&pairs, 1), None, &[], true);
    log.outcome = Outcome::TimedOut;
    let told = diagnose(&log);
    assert_eq!(found(&told), [(Kind::RankNeverJoined, vec![1])], "{}", told.to_text());
    assert_eq!(told.findings[0].certainty, Certainty::Certain);
}

/// The members that a ring has dropped from a row may have been of another mind.
#[test]
fn a_majority_that_dropped_calls_could_undo_is_none() {
    let call = |numel| pending("all_reduce", numel);
    let one = [call(64), done("barrier", 1), done("barrier", 1)];
    let mut odd = one.to_vec();
    odd[0] = call(65);
    let fake = Fake::new(4, &one).rank(3, &odd).dropped(0, 1);
    likely(&of_dumps(&fake), Kind::SizeMismatch, 3);
}

/// A circle in three groups says who waits for whom, not who left out a call.
#[test]
fn circles_blame_nobody_for_certain() {
    let mut job = mesh(2, 4, 4);
    let at = place(&job, 2, 2, 1);
    job.programs[2].drain(at..at + 2);
    let told = report(&job, 1, Some(1), &[], false);
    assert!(told.findings.iter().all(|it| it.certainty > Certainty::Certain), "{}", told.to_text());
    assert!(told.findings[0].culprits.iter().any(|rank| rank.0 == 2), "{}", told.to_text());
}

/// A run of calls that has not ended says nothing of how long such runs are.
#[test]
fn a_first_run_of_calls_is_no_habit() {
    let mut job = mesh(2, 4, 0);
    job.programs[3].retain(|does| does.round.is_none_or(|round| round < 2));
    let told = report(&job, 1, Some(1), &[], true);
    assert_eq!(
        told.findings[0].culprits,
        [lockstep_core::rank::GlobalRank(3)],
        "{}",
        told.to_text()
    );
}

/// At the place where the lines part, the next call of earlier rounds decides; not who stands in a
/// loop's call when the calls differ at last.
#[test]
fn the_round_is_broken_where_the_lines_part() {
    let job = twice(data(3, 6, 2), 2, 0, 10);
    likely(&report(&job, 1, Some(0), &[], true), Kind::OpExtra, 2);
}

/// The one partner of a rank that goes astray left no dump: the ranks of other groups tell.
#[test]
fn whose_partner_left_no_dump_is_held_against_other_groups() {
    let mut job = mesh(2, 4, 1);
    let at = place(&job, 3, 2, 3);
    job.programs[3][at].numel += 1;
    let told = report(&job, 1, Some(2), &[], true);
    likely(&told, Kind::SizeMismatch, 3);
    assert_eq!(found(&told)[1], (Kind::RankMissing, vec![2]), "{}", told.to_text());
    assert_eq!(told.findings[1].certainty, Certainty::Undecidable);
}

/// Two ranks in a send and its receive that do not end have come, and are no ranks in their own code.
/// Where only one stands there, and the other has gone on, that one has stopped.
#[test]
fn who_stands_in_a_send_that_met_its_receive_has_come() {
    let waits = [done("barrier", 1), pending("all_reduce", 8)];
    let send = [done("barrier", 1), pending("send 0->1", 8)];
    let receive = [done("barrier", 1), pending("recv 1<-0", 8)];
    let both = Fake::new(4, &waits).rank(0, &send).rank(1, &receive);
    let told = of_dumps(&both);
    assert_eq!(found(&told), [(Kind::CallNeverCompleted, vec![])], "{}", told.to_text());
    let mut went_on = send.to_vec();
    went_on.push(pending("all_reduce", 8));
    let told = of_dumps(&Fake::new(4, &waits).rank(0, &went_on).rank(1, &receive));
    assert_eq!(found(&told), [(Kind::RankNeverJoined, vec![1])], "{}", told.to_text());
}

/// Pipelines side by side tell who of two made a receive too many.
#[test]
fn a_receive_too_many_is_told_by_the_pipeline_beside_it() {
    let mut job = pipeline(3, 3, 0);
    let at = job.programs[5].iter().rposition(|does| does.op == "recv").unwrap();
    let receive = job.programs[5][at].clone();
    job.programs[5].insert(at + 1, receive);
    likely(&report(&job, 6, None, &[], true), Kind::P2pMismatch, 5);
}

/// A message that a receive from any source took is not waited for by a rank in code of its own,
/// and nobody knows for certain that the other one should not have sent once more.
#[test]
fn a_receive_from_any_source_took_what_another_waits_for() {
    // NCCL has no receive from any source.
    let waits = pending("barrier", 1).gloo();
    let fake = Fake::new(4, std::slice::from_ref(&waits))
        .rank(0, &[done("recv 0<-?", 8).gloo(), pending("recv 0<-1", 8).gloo()])
        .rank(1, &[done("send 1->0", 8).gloo(), waits.clone()])
        .rank(2, &[pending("send 2->0", 8).gloo()]);
    let told = of_dumps(&fake);
    likely(&told, Kind::P2pMismatch, 0);
    assert_eq!(told.findings.len(), 1, "{}", told.to_text());
    assert!(told.findings[0].message.contains("from any source"), "{}", told.to_text());
}

/// A size that differs, in a send that all rings have dropped: who stands in the receive behind it is
/// not known to have stopped by itself.
#[test]
fn who_stands_behind_a_message_that_was_dropped_is_not_late_for_certain() {
    let mut job = pipeline(4, 3, 1);
    let at = job.programs[1].iter().position(|does| does.op == "send").unwrap();
    job.programs[1][at].numel += 1;
    let told = report(&job, 6, None, &[4, 6, 4, 4, 4, 4, 4, 4], false);
    assert!(told.findings.iter().all(|it| it.certainty > Certainty::Certain), "{}", told.to_text());
}
