//! Jobs that hang, and jobs that were recorded while they ran: what tells them apart, and what is said
//! where nothing does.

use super::fake::{Fake, Said, done, pending};
use super::{cases, files, found, report};
use crate::{Certainty, Kind, Verdict};
use lockstep_formats::recording::{Piece, Sources};

const RUNNING: &str = "Or the job was still running when this was recorded";

/// A second, in nanoseconds.
const S: u64 = 1_000_000_000;

/// Rank 3 has not come to the third call, and the newest stamp is so many seconds after it.
fn waited(seconds: u64, pause: u64) -> Fake {
    let call = |at: u64| done("all_reduce", 8).at(at * S);
    let before = [call(1), call(1 + pause)];
    let waits = [before.to_vec(), vec![pending("all_reduce", 8).at((2 + pause) * S)]].concat();
    let late = done("all_reduce", 8).in_group(1).at((2 + pause + seconds) * S);
    let fake = Fake::new(4, &waits).group("own", &[3]);
    fake.rank(3, &[before.to_vec(), vec![late]].concat())
}

#[test]
fn who_has_not_come_is_certain_only_where_others_waited_long() {
    let short = report(&waited(2, 1).files());
    assert_eq!(found(&short), [(Kind::RankNeverJoined, vec![3])], "{}", short.to_text());
    assert_eq!(short.findings[0].certainty, Certainty::Likely);
    let told = &short.findings[0].message;
    assert!(told.contains(RUNNING) && told.contains("is only 2000 ms after that call"), "{told}");
    let long = report(&waited(45, 1).files());
    assert_eq!(found(&long), [(Kind::RankNeverJoined, vec![3])], "{}", long.to_text());
    assert_eq!(long.findings[0].certainty, Certainty::Certain, "{}", long.to_text());
    assert!(!long.findings[0].message.contains(RUNNING), "{}", long.to_text());
    // It has paused as long before: a checkpoint, or a step that compiles.
    let usual = report(&waited(45, 40).files());
    assert_eq!(usual.findings[0].certainty, Certainty::Likely, "{}", usual.to_text());
}

/// A dump that is older than the others' shows that the job ran while it was recorded.
#[test]
fn dumps_of_several_moments_are_of_a_job_that_ran() {
    let call = || done("all_reduce", 8).gloo();
    let calls: Vec<_> = (0..6).map(|_| call()).collect();
    let waits = [calls.clone(), vec![pending("all_reduce", 8).gloo()]].concat();
    let fake = Fake::new(4, &waits).rank(2, &calls).rank(3, &calls[..2]);
    let report = report(&fake.files());
    assert_eq!(found(&report), [(Kind::RankNeverJoined, vec![2])], "{}", report.to_text());
    assert_eq!(report.findings[0].certainty, Certainty::Undecidable);
    assert!(report.findings[0].message.contains("when rank 3 dumped"), "{}", report.to_text());
}

/// A call that one rank has made first is no call too many for certain.
#[test]
fn who_comes_first_may_be_no_odd_one() {
    let first = report(&Fake::new(3, &[]).rank(1, &[pending("all_reduce", 8)]).files());
    assert_eq!(found(&first), [(Kind::RankNeverJoined, vec![0, 1, 2])], "{}", first.to_text());
    assert_eq!(first.findings[0].certainty, Certainty::Undecidable);
    let told = &first.findings[0].message;
    assert!(told.contains("still on the way to it"), "{}", first.to_text());
}

/// Dumps with a log.
fn beside(case: &str, logs: &[(String, String)]) -> crate::Report {
    let mut sources = Sources::default();
    for (name, bytes) in files(&cases().join(case)) {
        sources.take(Piece::read(&name, &bytes));
    }
    for (name, text) in logs {
        sources.take(Piece::read(name, text.as_bytes()));
    }
    crate::diagnose_files(sources).unwrap().report
}

/// As torch 2.9.1 ends on gloo.
fn gave_up(rank: u32, why: &str) -> (String, String) {
    let text = format!(
        "Traceback (most recent call last):\n  File \"/job/job.py\", line 67, in <module>\n    \
         dist.all_reduce(y)\nRuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/{why}\n"
    );
    (format!("rank_{rank}.log"), text)
}

const LATE: &str = "unbound_buffer.cc:78] Timed out waiting 6000ms for recv operation to complete";
const CLOSED: &str = "pair.cc:547] Connection closed by peer [127.0.0.1]:36552";

fn quiet(rank: u32) -> (String, String) {
    (format!("rank_{rank}.log"), "[Gloo] Rank is connected to 3 peer ranks.\n".to_owned())
}

#[test]
fn a_timeout_in_the_log_says_that_it_hung() {
    let alone = beside("t215_never_arrives", &[]);
    assert_eq!(alone.findings[0].certainty, Certainty::Likely, "{}", alone.to_text());
    assert!(alone.findings[0].message.contains(RUNNING), "{}", alone.to_text());
    let late: Vec<_> = (0..3).map(|rank| gave_up(rank, LATE)).collect();
    let told = beside("t215_never_arrives", &late);
    assert_eq!(found(&told), [(Kind::RankNeverJoined, vec![3])], "{}", told.to_text());
    assert_eq!(told.findings[0].certainty, Certainty::Certain, "{}", told.to_text());
    assert!(!told.findings[0].message.contains(RUNNING), "{}", told.to_text());
}

/// A connection that is closed says that a process ended. Beside calls it names nobody by itself: it may
/// be the first that was ended because of the hang.
#[test]
fn who_was_ended_first_is_no_culprit_beside_calls() {
    let logs = [gave_up(0, CLOSED), quiet(1), gave_up(2, CLOSED), gave_up(3, CLOSED)];
    for logs in [&logs[..], &[logs[0].clone(), logs[2].clone(), logs[3].clone()]] {
        let told = beside("t215_dtype_mismatch", logs);
        assert_eq!(found(&told), [(Kind::DtypeMismatch, vec![3])], "{}", told.to_text());
    }
    // The calls name it as well: then it ended.
    let logs = [gave_up(0, CLOSED), gave_up(1, CLOSED), gave_up(2, CLOSED), quiet(3)];
    let told = beside("t215_never_arrives", &logs);
    assert_eq!(found(&told), [(Kind::RankDied, vec![3])], "{}", told.to_text());
    assert_eq!(told.findings[0].certainty, Certainty::Likely);
    assert!(!told.findings[0].message.contains(RUNNING), "{}", told.to_text());
    // It left no dump at all: one finding.
    let logs = [gave_up(0, CLOSED), gave_up(1, CLOSED), quiet(2), gave_up(3, CLOSED)];
    let told = beside("t215_rank_crash_no_dump", &logs);
    assert_eq!(found(&told), [(Kind::RankDied, vec![2])], "{}", told.to_text());
    // Dumps of a job that ended well, with a send that gloo counts and does not record.
    let well = beside("t215_healthy", &[quiet(0), quiet(1), quiet(2), quiet(3)]);
    assert_eq!(well.verdict, Verdict::Inconclusive, "{}", well.to_text());
    assert!(well.notes.iter().all(|note| !note.contains("no dumps")), "{:?}", well.notes);
}

/// Sends that wait for receives which wait behind the other side's sends, as NCCL's dumps show them
/// without timing: all are scheduled.
#[test]
fn circles_of_sends_close_on_devices() {
    let ring = |rank: u32| {
        let (next, last) = ((rank + 1) % 4, (rank + 3) % 4);
        let mut calls = vec![done("all_reduce", 8)];
        calls.push(pending(&format!("send {rank}->{next}"), 8));
        calls.push(pending(&format!("recv {rank}<-{last}"), 8));
        calls.push(pending("all_reduce_barrier", 1));
        calls
    };
    let mut fake = Fake::new(4, &[]);
    for rank in 0..4 {
        fake = fake.rank(rank as usize, &ring(rank));
    }
    let told = report(&fake.files());
    assert_eq!(found(&told), [(Kind::P2pDeadlock, vec![0, 1, 2, 3])], "{}", told.to_text());
    assert_eq!(told.findings[0].certainty, Certainty::Likely);
    // One that receives first opens it, and a batch has no order.
    let mut first = ring(2);
    first.swap(1, 2);
    let open = report(&fake.clone().rank(2, &first).files());
    assert!(found(&open).iter().all(|(kind, _)| *kind != Kind::P2pDeadlock), "{}", open.to_text());
    let batch = |calls: Vec<Said>| {
        let mut calls: Vec<_> = calls
            .into_iter()
            .enumerate()
            .map(|(at, it)| match at {
                1 | 2 => it.batched(),
                _ => it,
            })
            .collect();
        calls.insert(3, pending("coalesced", 0));
        calls
    };
    for rank in 0..4 {
        fake = fake.rank(rank as usize, &batch(ring(rank)));
    }
    let batched = report(&fake.files());
    let kinds = found(&batched);
    assert!(kinds.iter().all(|(kind, _)| *kind != Kind::P2pDeadlock), "{}", batched.to_text());
}

/// All calls that are left have ended: what hangs may be a message that the ring has dropped.
#[test]
fn rings_that_dropped_messages_are_told_of_where_all_looks_well() {
    let calls = |p2p: &str| [done(p2p, 8), done(p2p, 8), done("all_reduce", 8)];
    let fake = Fake::new(2, &calls("send 0->1")).rank(1, &calls("recv 1<-0"));
    let whole = report(&fake.files());
    assert_eq!((whole.verdict, whole.notes.len()), (Verdict::Healthy, 0), "{}", whole.to_text());
    let cut = report(&fake.dropped(0, 1).files());
    assert_eq!(cut.verdict, Verdict::Inconclusive, "{}", cut.to_text());
    assert!(cut.unseen[0].contains("one of those may still wait"), "{:?}", cut.unseen);
}

/// A job's dumps are there as JSON as well, as PyTorch's own recorder can be asked for both.
#[test]
fn the_same_dumps_twice_are_one_note() {
    let fake = Fake::new(3, &[done("all_reduce", 8)]);
    let mut files = fake.files();
    let again = files.clone().into_iter().map(|(name, bytes)| (format!("json/{name}.json"), bytes));
    files.extend(again);
    let report = report(&files);
    assert_eq!(report.verdict, Verdict::Healthy, "{}", report.to_text());
    assert_eq!(report.notes.len(), 1, "{:?}", report.notes);
    assert!(report.notes[0].starts_with("3 files hold what other dumps do"), "{:?}", report.notes);
}

/// A rank that sent its part of a gather has gone on.
#[test]
fn not_all_wait_where_some_are_through() {
    let parts = |numel| [done("gather", numel), pending("all_reduce", 8)];
    let fake = Fake::new(4, &parts(8)).rank(0, &[pending("gather", 8)]).rank(3, &parts(9));
    let told = report(&fake.files()).findings.swap_remove(0);
    assert_eq!((told.kind, told.culprits[0].0), (Kind::SizeMismatch, 3), "{}", told.message);
    assert!(told.message.contains(", and rank 0 waits there."), "{}", told.message);
}

/// The last rank's dump is missing as well as the dead one's: who its group's members are is not known,
/// and a call that ended for some of them and not for others failed.
#[test]
fn a_call_that_failed_for_want_of_an_unknown_rank_makes_nobody_late() {
    let folder = cases().join("../flight-recorder-faults/killed_before_group");
    let all = files(&folder);
    for missing in ["rank_7", "rank_1", "rank_3", "rank_5"] {
        let some: Vec<_> = all.iter().filter(|(name, _)| name != missing).cloned().collect();
        let told = report(&some);
        let sure = |it: &crate::Finding| {
            it.kind == Kind::RankNeverJoined && it.certainty != Certainty::Undecidable
        };
        assert!(!told.findings.iter().any(sure), "{missing}: {}", told.to_text());
    }
}

/// Others came out of a call that a rank's record lacks: it has made that one too, and what is seen of it
/// last is not what it did last.
#[test]
fn a_call_that_others_came_out_of_was_not_the_last_before_it() {
    let all = [done("all_reduce", 4), done("all_reduce", 4), done("all_reduce", 4)];
    let wait = [&all[..], &[pending("all_reduce", 4)]].concat();
    let told = |own: &[Said]| report(&Fake::new(3, &wait).rank(1, own).files()).to_text();
    let text = told(&all[..2]);
    assert!(text.contains("rank 1 was last seen to call all_reduce #2"), "{text}");
    let text = told(&all);
    assert!(text.contains("rank 1 last called all_reduce #3"), "{text}");
}
