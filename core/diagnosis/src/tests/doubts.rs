//! Doubts about recordings with gaps: rings that dropped the call which holds a rank up, dumps of
//! different moments, calls of gloo's that may have failed, and ranks that are all stuck but one.

use super::fake::{Fake, Said, done, pending};
use super::gaps::{data, play, recorded};
use super::{cases, files, found, report};
use crate::{Certainty, Kind, Report, diagnose, diagnose_recording};
use lockstep_formats::flight_recorder::{Dump, GroupStatus, recording_of};

fn of_dumps(dumps: Vec<Dump>) -> Report {
    diagnose_recording(&recording_of(dumps, Vec::new()).unwrap())
}

fn dumps(files: &[(String, Vec<u8>)]) -> Vec<Dump> {
    files.iter().map(|(name, bytes)| Dump::read(name, bytes).unwrap()).collect()
}

fn told(report: &Report, kind: Kind, culprits: &[u32], certainty: Certainty, why: &str) {
    assert_eq!(found(report)[0], (kind, culprits.to_vec()), "{}", report.to_text());
    assert_eq!(report.findings[0].certainty, certainty, "{}", report.to_text());
    assert!(report.findings[0].message.contains(why), "{}", report.to_text());
}

/// Its ring begins with a call that has not ended: it is not in code of its own for certain.
#[test]
fn what_a_ring_has_dropped_may_hold_a_rank_up() {
    let waits = [done("barrier", 1), pending("all_reduce", 8)];
    let receive = [done("barrier", 1), pending("recv 0<-1", 8).in_group(1)];
    let send = pending("send 1->0", 8).in_group(1);
    let send = [done("barrier", 1), send, pending("all_reduce", 8)];
    let whole = Fake::new(4, &waits).group("pp", &[2, 3]).rank(2, &receive).rank(3, &send);
    told(&report(&whole.files()), Kind::RankNeverJoined, &[2], Certainty::Likely, "");
    let mut read = dumps(&whole.dropped(2, 1).files());
    let came = GroupStatus { last_enqueued: Some(1), last_completed: Some(1) };
    read[2].status =
        [(0, came), (1, GroupStatus { last_enqueued: None, last_completed: None })].into();
    let why = "Rank 2 is in recv #1 of pp itself, and rings have dropped";
    told(&of_dumps(read), Kind::RankNeverJoined, &[2], Certainty::Undecidable, why);
    // The end of a batch says nothing of whom it waits for.
    let batch = pending("recv 0<-1", 8).in_group(1).batched();
    let batch = [done("barrier", 1), batch, pending("coalesced", 0).in_group(1)];
    let cut = Fake::new(4, &waits).group("pp", &[2, 3]).rank(2, &batch).dropped(2, 2);
    let mut read = dumps(&cut.files());
    read[2].status =
        [(0, came), (1, GroupStatus { last_enqueued: None, last_completed: None })].into();
    let why = "The ring of rank 2 has dropped";
    told(&of_dumps(read), Kind::RankNeverJoined, &[2], Certainty::Undecidable, why);
}

/// The dumps hold what has not ended only. The recorder's count says that nothing before holds rank 2 up, and
/// the others of its group are out of the call in which it stands: that it is in a receive behind that, of
/// which nobody sees whether it was answered, is no doubt.
#[test]
fn what_the_recorders_count_refutes_is_no_doubt() {
    let steps = |made: usize, ended: usize| {
        let state = move |at: usize| if at < ended { done } else { pending };
        (0..made).map(move |at| state(at)("all_reduce", 8).in_group(2))
    };
    let waits: Vec<_> = steps(6, 5).chain([pending("barrier", 1)]).collect();
    let receive = pending("recv 0<-1", 8).in_group(1);
    let stands: Vec<_> = steps(5, 4).chain([receive]).collect();
    let send = |state: fn(&str, u64) -> Said| state("send 1->0", 8).in_group(1);
    let sent = [send(done), send(pending), pending("barrier", 1)];
    let fake = Fake::new(6, &waits).group("pp", &[2, 5]).group("dp", &[0, 1, 2, 3, 4]);
    let fake = fake.rank(2, &stands).rank(5, &sent).dropped(2, 4).dropped(5, 1);
    let fake = [0, 1, 3, 4].into_iter().fold(fake, |fake, rank| fake.dropped(rank, 5));
    let mut read = dumps(&fake.files());
    let status = |called, ended| GroupStatus { last_enqueued: called, last_completed: ended };
    for dump in &mut read {
        dump.status = [(0, status(Some(1), None)), (2, status(Some(6), Some(5)))].into();
    }
    read[2].status =
        [(0, status(None, None)), (1, status(Some(1), None)), (2, status(Some(5), Some(4)))].into();
    read[5].status = [(0, status(Some(1), None)), (1, status(Some(2), Some(1)))].into();
    let report = of_dumps(read.clone());
    assert_eq!(found(&report), [(Kind::RankNeverJoined, vec![2])], "{}", report.to_text());
    let finding = &report.findings[0];
    assert!(finding.certainty < Certainty::Undecidable, "{}", report.to_text());
    assert!(!finding.message.contains("dropped"), "{}", report.to_text());
    assert!(finding.message.contains("did not complete on it"), "{}", report.to_text());
    // A call of its own that has not ended is among what was dropped.
    read[2].status.insert(2, status(Some(5), Some(3)));
    let report = of_dumps(read);
    assert_eq!(report.findings[0].certainty, Certainty::Undecidable, "{}", report.to_text());
}

/// Rank 1 stands in a call that all others are out of, as the recorder's counts say, and never comes to the
/// next one of all. What it has called behind waits for its turn: whoever of the others left no dump, it is
/// not held up by that one, which was in the call as well.
#[test]
fn who_stands_by_itself_is_named_whoevers_dump_is_missing() {
    let status = |called, ended| GroupStatus { last_enqueued: called, last_completed: ended };
    let receive = pending("recv 0<-1", 8).in_group(3);
    let send = pending("send 1->0", 8).in_group(3);
    let calls = |state: fn(&str, u64) -> Said, tp: usize, then: &[Said]| {
        let mut calls = vec![done("all_reduce", 8).in_group(tp); 4];
        calls.extend([done("all_reduce", 8), done("all_reduce", 8)]);
        calls.push(state("all_reduce", 8).in_group(tp));
        calls.extend(then.iter().cloned());
        calls
    };
    let next = pending("all_reduce", 8);
    let fake = Fake::new(6, &calls(done, 1, std::slice::from_ref(&next)))
        .group("tp", &[0, 1, 2])
        .group("tp", &[3, 4, 5])
        .group("pp", &[1, 4])
        .rank(1, &calls(pending, 1, &[receive]))
        .rank(3, &calls(done, 2, std::slice::from_ref(&next)))
        .rank(4, &calls(done, 2, &[send, next.clone()]))
        .rank(5, &calls(done, 2, std::slice::from_ref(&next)));
    let fake = (0..6).fold(fake, |fake, rank| fake.dropped(rank, if rank == 1 { 6 } else { 7 }));
    for missing in [0, 2, 3, 4, 5] {
        let mut read = dumps(&fake.clone().no_dump(missing).files());
        let ranks = (0..6).filter(|rank| *rank != missing);
        for (dump, rank) in read.iter_mut().zip(ranks) {
            let tp = if rank < 3 { 1 } else { 2 };
            dump.status = match rank {
                1 => [(0, status(Some(2), Some(2))), (tp, status(Some(5), Some(4)))].into(),
                _ => [(0, status(Some(3), Some(2))), (tp, status(Some(5), Some(5)))].into(),
            };
            if rank == 1 || rank == 4 {
                dump.status.insert(3, status(Some(1), None));
            }
        }
        let report = of_dumps(read);
        let truth = [(Kind::RankNeverJoined, vec![1]), (Kind::RankMissing, vec![missing as u32])];
        assert_eq!(found(&report), truth, "without {missing}: {}", report.to_text());
        let certainty = report.findings.iter().map(|it| it.certainty).collect::<Vec<_>>();
        assert_eq!(certainty, [Certainty::Likely, Certainty::Undecidable], "{}", report.to_text());
    }
}

/// Sizes that grow from call to call: of two ranks either may be wrong, and the one that is ahead may have
/// left a call out.
#[test]
fn a_tie_of_sizes_that_go_on_names_who_may_have_left_one_out() {
    let said = |sizes: [u64; 4]| {
        let waits = |at: usize| if at < 3 { done } else { pending };
        let calls = sizes.iter().enumerate().map(|(at, size)| waits(at)("all_reduce", *size));
        calls.collect::<Vec<_>>()
    };
    let report =
        |own: [u64; 4]| report(&Fake::new(2, &said([10, 11, 12, 13])).rank(1, &said(own)).files());
    let why = "rank 1 may as well have left a call out";
    let ahead = report([10, 11, 12, 14]);
    told(&ahead, Kind::SizeMismatch, &[0, 1], Certainty::Undecidable, why);
    assert!(ahead.findings[0].fix.contains("If a call was left out: make the call"), "{ahead:?}");
    let other = report([10, 11, 12, 77]);
    assert!(!other.findings[0].message.contains("left a call out"), "{}", other.to_text());
}

/// Those that came under one number called different things there.
#[test]
fn what_a_rank_never_came_to_is_not_certain_where_others_disagree() {
    let common = done("barrier", 1);
    let fake = Fake::new(3, std::slice::from_ref(&common))
        .rank(0, &[common.clone(), pending("barrier", 1)])
        .rank(1, &[common.clone(), pending("all_reduce", 8)]);
    let report = report(&fake.files());
    let never = report.findings.iter().find(|it| it.kind == Kind::RankNeverJoined).unwrap();
    assert!(never.certainty > Certainty::Certain, "{}", report.to_text());
}

/// The call that hangs is out of the ring, and the ones behind it are not: nobody may say that all called
/// the same there.
#[test]
fn calls_behind_one_that_was_dropped_are_not_the_ones_that_hang() {
    let calls: Vec<_> = (0..6).map(|at| pending("all_reduce", 8 + at)).collect();
    let mut read = dumps(&Fake::new(2, &calls).dropped(0, 3).dropped(1, 3).files());
    let status =
        |completed| GroupStatus { last_enqueued: Some(6), last_completed: Some(completed) };
    for dump in &mut read {
        dump.status = [(0, status(1))].into();
    }
    let report = of_dumps(read.clone());
    told(
        &report,
        Kind::CallNeverCompleted,
        &[],
        Certainty::Undecidable,
        "wait in #2 of default_pg",
    );
    assert!(!report.findings[0].message.contains("same arguments"), "{}", report.to_text());
    for dump in &mut read {
        dump.status = [(0, status(3))].into();
    }
    let report = of_dumps(read);
    assert!(report.findings[0].message.contains("same arguments"), "{}", report.to_text());
}

/// Others have come out of calls that need the rank: its dump is older, on NCCL.
#[test]
fn a_dump_that_others_outran_blames_nobody_for_certain() {
    let call = done("all_reduce", 8);
    let waits = [call.clone(), call.clone(), call.clone(), pending("all_reduce", 8)];
    let at = |calls: &[_]| report(&Fake::new(4, &waits).rank(3, calls).files());
    let why = "The dump of rank 3 was made before the others'";
    told(&at(&waits[..1]), Kind::RankNeverJoined, &[3], Certainty::Undecidable, why);
    // Where it is as new as theirs, it may still be on its way.
    let running = "Or the job was still running when this was recorded";
    told(&at(&waits[..3]), Kind::RankNeverJoined, &[3], Certainty::Likely, running);
    // So it is where what it sent was received.
    let (send, receive) = (done("send 3->0", 8), done("recv 0<-3", 8));
    let receives = [call.clone(), receive.clone(), receive, pending("all_reduce", 8)];
    let others = [call.clone(), pending("all_reduce", 8)];
    let sent =
        |calls: &[_]| report(&Fake::new(4, &others).rank(0, &receives).rank(3, calls).files());
    let once = [call.clone(), send.clone()];
    told(&sent(&once), Kind::RankNeverJoined, &[3], Certainty::Undecidable, why);
    let twice = [call, send.clone(), send];
    told(&sent(&twice), Kind::RankNeverJoined, &[3], Certainty::Likely, running);
}

/// Ranks that wait for nobody in two places: the job may have been running.
#[test]
fn ranks_on_their_way_are_not_late_for_certain() {
    let call = |group| done("all_reduce", 8).in_group(group);
    let wait = |group| pending("all_reduce", 8).in_group(group);
    let (a, b) = ([call(1), wait(1)], [call(2), call(2), wait(2)]);
    let fake = Fake::new(6, &a).group("a", &[0, 1, 2]).group("b", &[3, 4, 5]);
    let fake = fake.rank(3, &b).rank(4, &b).rank(5, &b);
    let one = report(&fake.clone().rank(2, &a[..1]).files());
    told(&one, Kind::RankNeverJoined, &[2], Certainty::Likely, "nothing seen holds it up");
    let two = report(&fake.rank(2, &a[..1]).rank(5, &b[..2]).files());
    assert_eq!(two.findings.len(), 2, "{}", two.to_text());
    for finding in &two.findings {
        assert_eq!(finding.certainty, Certainty::Likely, "{}", two.to_text());
        assert!(finding.message.contains("several places"), "{}", two.to_text());
    }
}

/// All but one are stuck in front of the call that comes next: it is not the one that waits which is
/// wrong.
#[test]
fn who_waits_alone_in_what_comes_next_is_not_blamed() {
    let mut job = data(4, 6, 1);
    for stuck in 1..4 {
        job.programs[stuck].truncate(8);
    }
    for lines in [false, true] {
        let log = recorded(&job, &play(&job, 2), None, &[], lines);
        let report = diagnose(&log);
        let why = "In the rounds before it came next for all of them";
        told(&report, Kind::RankNeverJoined, &[0, 1, 2, 3], Certainty::Undecidable, why);
    }
}

/// Real dumps of a job on gloo that timed out, of which rings hold the last calls only: the calls that
/// failed are no health, and who did not come is named.
#[test]
fn short_rings_hide_no_timeout() {
    let folder = cases().with_file_name("flight-recorder-faults").join("timed_out_ddp");
    for rings in [[3, 3, 3, 6], [3, 3, 3, 3], [2, 3, 4, 5]] {
        let mut read = dumps(&files(&folder));
        for (dump, ring) in read.iter_mut().zip(rings) {
            dump.entries.drain(..dump.entries.len() - ring);
        }
        told(&of_dumps(read), Kind::RankNeverJoined, &[2], Certainty::Likely, "hold too little");
    }
}
