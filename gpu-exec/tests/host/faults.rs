//! Faults that are injected into real runs, and runs that are paused and asked for their dumps.

use crate::{events_of, options, run_with};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, Plan, PlanBuilder};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{Outcome, Trace, What};
use lockstep_diagnosis::{Kind, Report, diagnose, diagnose_trace};
use lockstep_formats::flight_recorder::{Dump, merge};
use lockstep_gpu_exec::{Backend, Command, RankDump, RunEvent, RunOptions};
use std::time::{Duration, Instant};

/// Three ranks that reduce a tensor `rounds` times.
fn plan(rounds: u32) -> Plan {
    let mut plan = PlanBuilder::new("faulty", 3, BackendName::Host).unwrap();
    let tensor = plan.tensor("t", Dtype::Float32, 8, Fill::Rank);
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    plan.every_rank(|_, program| {
        for _ in 0..rounds {
            program.collective(GroupId::WORLD, sum, 8, None, Some(tensor));
        }
    })
    .unwrap()
}

fn with(faults: &[&str], timeout_ms: u64) -> RunOptions {
    RunOptions {
        faults: faults.iter().map(|text| text.parse().unwrap()).collect(),
        timeout: Some(Duration::from_millis(timeout_ms)),
        dump_at_end: true,
        ..options()
    }
}

fn outcome(trace: &Trace) -> &Outcome {
    &trace.end.as_ref().unwrap().outcome
}

/// The diagnosis of the dumps, read as files of a real job are.
fn diagnosed(dumps: &[RankDump]) -> Report {
    let read = |dump: &RankDump| Dump::read(&dump.file_name(), &dump.pickle).unwrap();
    diagnose(&merge(dumps.iter().map(read).collect()).unwrap().log)
}

fn words(report: &Report) -> String {
    report.to_text()
}

#[test]
fn a_kill_at_a_call() {
    let trace = run_with(plan(5), with(&["kill:rank=1,call=3"], 20_000));
    let how = "killed by signal 9 (SIGKILL), an injected fault".to_owned();
    assert_eq!(*outcome(&trace), Outcome::RankDied { rank: GlobalRank(1), how });
    let completed =
        |rank| events_of(&trace, rank).filter(|e| matches!(e.what, What::Completed { .. })).count();
    assert_eq!(completed(1), 2);
    assert!(!diagnose_trace(&trace).findings.is_empty());
    assert!(diagnose_trace(&trace).to_text().contains("rank 1"), "the text names the rank");
}

#[test]
fn a_kill_after_a_time() {
    let trace = run_with(crate::deaths::long_plan(), with(&["kill:rank=2,after_ms=40"], 20_000));
    assert!(
        matches!(outcome(&trace), Outcome::RankDied { rank: GlobalRank(2), how } if how.contains("injected"))
    );
}

/// The first of them ends the run, and the other one did not die of that.
#[test]
fn two_kills_at_a_time_are_told_of_both() {
    let kills = ["kill:rank=1,after_ms=40", "kill:rank=2,after_ms=40"];
    let trace = run_with(crate::deaths::long_plan(), with(&kills, 20_000));
    let report = diagnose_trace(&trace);
    let told: Vec<_> = report.findings.iter().map(|it| (it.kind, &*it.culprits)).collect();
    let both = [GlobalRank(1), GlobalRank(2)];
    assert_eq!(told, [(Kind::RankDied, &both[..])], "{}", words(&report));
}

#[test]
fn a_stop_is_a_hang_and_its_end_is_none() {
    let trace = run_with(plan(4), with(&["stop:rank=2,call=2,for_ms=60"], 20_000));
    assert_eq!(*outcome(&trace), Outcome::Completed);
    let stopped = events_of(&trace, 2)
        .find(|event| event.what == What::OpEnded { op: 1 })
        .zip(events_of(&trace, 2).find(|event| event.what == What::OpBegan { op: 1 }))
        .map(|(end, begin)| end.time_ps - begin.time_ps)
        .unwrap();
    assert!(stopped >= 60_000_000_000, "{stopped} ps");

    let trace = run_with(plan(4), with(&["stop:rank=2,call=2"], 300));
    assert_eq!(*outcome(&trace), Outcome::TimedOut);
    let text = words(&diagnose_trace(&trace));
    assert!(text.contains("rank 2"), "{text}");
}

#[test]
fn delayed_dropped_and_resized_calls() {
    let trace = run_with(plan(3), with(&["delay:rank=0,call=2,by_ms=80"], 20_000));
    assert_eq!(*outcome(&trace), Outcome::Completed);
    assert!(trace.end.unwrap().time_ps >= 80_000_000_000);

    for (fault, expected) in
        [("drop:rank=1,call=3", "all_reduce"), ("resize:rank=0,call=2,count=4", "size")]
    {
        let trace = run_with(plan(3), with(&[fault], 300));
        assert_eq!(*outcome(&trace), Outcome::TimedOut, "{fault}");
        let report = diagnose_trace(&trace);
        assert!(!report.findings.is_empty(), "{fault}");
        let text = words(&report);
        assert!(text.contains(expected), "{fault}: {text}");
    }
}

#[test]
fn a_hang_leaves_dumps_that_name_the_rank() {
    let run = crate::backend().start(plan(4), with(&["drop:rank=1,call=4"], 300)).unwrap();
    let (trace, dumps) = run.into_trace_and_dumps();
    assert_eq!(*outcome(&trace), Outcome::TimedOut);
    // Rank 1 has finished what it had to do, and has left what it had called before it went.
    let ranks: Vec<u32> = dumps.iter().map(|dump| dump.rank.0).collect();
    assert_eq!(ranks, [0, 1, 2]);
    let report = diagnosed(&dumps);
    assert!(words(&report).contains("rank 1"), "{}", words(&report));
    assert!(!report.findings.is_empty());
}

#[test]
fn a_run_is_paused_goes_on_and_is_dumped_meanwhile() {
    let mut slow = plan(1);
    let mut ops = Vec::new();
    for _ in 0..60 {
        ops.push(slow.programs[0].ops[0].clone());
        let action =
            lockstep_core::plan::Action::Sleep { name: "w".into(), duration_ns: 5_000_000 };
        ops.push(lockstep_core::plan::Op::new(action, None));
    }
    slow.programs[0].ops = ops;
    // Far less than the pause: a timeout must not pass meanwhile.
    let run = crate::backend().start(slow, with(&[], 700)).unwrap();
    let control = run.control();
    control.tell(Command::Pause);
    std::thread::sleep(Duration::from_millis(200));
    while run.next_event(Duration::from_millis(100)).is_some() {}
    // Nothing more comes while it is paused.
    assert_eq!(run.next_event(Duration::from_millis(900)), None);
    control.tell(Command::Dump);
    let started = Instant::now();
    let mut dumps = Vec::new();
    while dumps.len() < 3 && started.elapsed() < Duration::from_secs(10) {
        if let Some(RunEvent::Dumped(dump)) = run.next_event(Duration::from_secs(1)) {
            dumps.push(dump);
        }
    }
    dumps.sort_by_key(|dump| dump.rank);
    assert_eq!(dumps.iter().map(|dump| dump.rank.0).collect::<Vec<_>>(), [0, 1, 2]);
    for dump in &dumps {
        let read = Dump::read(&dump.file_name(), &dump.pickle).unwrap();
        assert!(read.entries.len() < 60);
    }
    control.tell(Command::Resume);
    let trace = run.into_trace();
    assert_eq!(*outcome(&trace), Outcome::Completed);
}

/// A call's end is written down together with the next call, but not only then.
#[test]
fn what_ended_before_a_pause_is_in_its_dump() {
    // Nothing but calls: each is held between two of them, or inside of one.
    let run = crate::backend().start(plan(100_000), with(&[], 20_000)).unwrap();
    let control = run.control();
    let mut at_work = std::collections::BTreeSet::new();
    while at_work.len() < 3 {
        match run.next_event(Duration::from_secs(20)) {
            Some(RunEvent::Events(events)) => at_work.extend(events.iter().map(|event| event.rank)),
            other => panic!("{other:?} while only {at_work:?} are at work"),
        }
    }
    control.tell(Command::Pause);
    // Ranks come to their gates, or wait for who is held there.
    while run.next_event(Duration::from_millis(300)).is_some() {}
    control.tell(Command::Dump);
    let mut held = 0;
    for _ in 0..3 {
        let Some(RunEvent::Dumped(dump)) = run.next_event(Duration::from_secs(20)) else {
            panic!("a rank sent no dump");
        };
        let read = Dump::read(&dump.file_name(), &dump.pickle).unwrap();
        assert!(!read.entries.is_empty());
        let (last, before) = read.entries.split_last().unwrap();
        assert!(before.iter().all(|entry| entry.completed), "only the last can be under way");
        held += u32::from(last.completed);
    }
    assert!(held > 0, "somebody is held between two calls, whose last has completed");
}

/// Orders can come before a rank has begun.
#[test]
fn a_dump_that_is_asked_for_at_once_comes_from_every_rank() {
    for _ in 0..10 {
        let run = crate::backend().start(crate::deaths::long_plan(), with(&[], 20_000)).unwrap();
        run.control().tell(Command::Dump);
        let mut ranks = std::collections::BTreeSet::new();
        while ranks.len() < 3 {
            match run.next_event(Duration::from_secs(20)) {
                Some(RunEvent::Dumped(dump)) => ranks.insert(dump.rank),
                Some(RunEvent::Events(_)) => continue,
                other => panic!("{other:?} after the dumps of {ranks:?}"),
            };
        }
    }
}

/// A run can end before most of its ranks have made a call: they have made it by the time that they are asked.
#[test]
fn who_begins_late_leaves_its_dump_all_the_same() {
    for _ in 0..10 {
        let options = with(&["kill:rank=1,after_ms=0"], 20_000);
        let run = crate::backend().start(plan(3), options).unwrap();
        let mut dumps = Vec::new();
        loop {
            match run.next_event(Duration::from_secs(20)) {
                Some(RunEvent::Dumped(dump)) => dumps.push(dump),
                Some(RunEvent::Events(_)) => continue,
                Some(RunEvent::Ended(_)) => break,
                None => panic!("the run does not end"),
            }
        }
        dumps.sort_by_key(|dump| dump.rank);
        assert_eq!(dumps.iter().map(|dump| dump.rank.0).collect::<Vec<_>>(), [0, 2]);
        for dump in &dumps {
            let read = Dump::read(&dump.file_name(), &dump.pickle).unwrap();
            assert!(!read.entries.is_empty(), "{}", dump.file_name());
        }
    }
}

#[test]
fn faults_that_cannot_be_are_refused_before_anything_starts() {
    let error = crate::backend().start(plan(2), with(&["drop:rank=7,call=1"], 300)).unwrap_err();
    assert!(error.to_string().contains("ranks 0 to 2"), "{error}");
}
