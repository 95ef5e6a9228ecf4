//! Traces that have their plan: simulations and runs. The simulator is another crate, so a few
//! lines stand in for it here: blocking collectives of the world, matched by number.

use super::found;
use crate::report::LadderStep;
use crate::{Certainty, Kind, Report, diagnose_recording, diagnose_trace, diagnose_whole_trace};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{
    Action, Call as PlanCall, Fill, Plan, PlanBuilder, ProgramBuilder, SourceLine, TensorId,
};
use lockstep_core::rank::{GlobalRank, GroupRank};
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{
    Call, CallLog, Event, Origin, Outcome, TensorShape, Trace, TraceEnd, TraceHeader, What,
};
use lockstep_formats::flight_recorder::{dumps_of, read_files};

const GRAD: TensorId = TensorId(0);
const PART: TensorId = TensorId(1);
const STUCK: u64 = u64::MAX;

fn plan(program: impl FnMut(u32, &mut ProgramBuilder)) -> Plan {
    plan_on(BackendName::Host, program)
}

fn plan_on(backend: BackendName, mut program: impl FnMut(u32, &mut ProgramBuilder)) -> Plan {
    let mut plan = PlanBuilder::new("test", 4, backend).unwrap();
    plan.tensor("grad", Dtype::Float32, 64, Fill::Rank);
    plan.tensor("part", Dtype::Float32, 16, Fill::Rank);
    plan.source("train.py", "");
    plan.every_rank(|rank, own| program(rank.0, own)).unwrap()
}

fn all_reduce(program: &mut ProgramBuilder, line: u32) {
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    program.line(0, line).collective(GroupId::WORLD, sum, 64, None, Some(GRAD));
}

fn barrier(program: &mut ProgramBuilder, line: u32) {
    program.line(0, line).barrier(GroupId::WORLD);
}

/// The report on a program of four ranks on gloo.
pub(super) fn report_of(body: &str) -> crate::Report {
    let text = format!(
        "def main():\n    dist.init_process_group('gloo')\n    rank = dist.get_rank()\n{body}\n    \
         dist.barrier()\nrun(main, world_size=4)\n"
    );
    let options = lockstep_scenarios::program::Options::default();
    let plan = lockstep_program::compile("train.py", &text, &options).unwrap().plan;
    crate::diagnose_trace(&run(&plan))
}

/// Runs the plan until nothing moves.
pub(super) fn run(plan: &Plan) -> Trace {
    let mut events = Vec::new();
    let mut at = [0usize; 4];
    let mut works = [0u32; 4];
    let mut waiting: [Option<Collective>; 4] = [None; 4];
    let mut seq = [0u64; 4];
    for time in 1u64.. {
        let mut moved = false;
        for rank in 0..4u32 {
            let (index, rank) = (rank as usize, GlobalRank(rank));
            let push = |events: &mut Vec<Event>, what| {
                events.push(Event { time_ps: time * 1_000_000, rank, what });
            };
            let ops = &plan.program(rank).unwrap().ops;
            if waiting[index].is_some() || at[index] > ops.len() {
                continue;
            }
            let Some(op) = ops.get(at[index]) else {
                push(&mut events, What::Finished);
                (at[index], moved) = (at[index] + 1, true);
                continue;
            };
            let number = at[index] as u32;
            match (&op.action, op.action.calls()) {
                (_, [PlanCall::Collective { group, collective, .. }]) => {
                    push(&mut events, What::OpBegan { op: number });
                    seq[index] += 1;
                    let tensor = TensorShape { shape: vec![64], dtype: Dtype::Float32 };
                    let call = Call {
                        op: collective.name().to_owned(),
                        group: *group,
                        seq: Some(seq[index]),
                        p2p: false,
                        peer: None,
                        tag: 0,
                        inputs: vec![],
                        outputs: vec![tensor],
                        reduce_op: collective.reduce_op(),
                        root: collective.root(),
                        plan_op: Some(number),
                        stack: plan.frames_of(op).collect(),
                        record_id: None,
                    };
                    let work = works[index];
                    push(&mut events, What::Scheduled { work, call: std::sync::Arc::new(call) });
                    (waiting[index], moved) = (Some(*collective), true);
                }
                (Action::Sleep { duration_ns: STUCK, .. }, _) => {
                    let began = What::OpBegan { op: number };
                    if events.iter().all(|event| event.what != began || event.rank != rank) {
                        push(&mut events, began);
                        moved = true;
                    }
                }
                _ => (at[index], moved) = (at[index] + 1, true),
            }
        }
        let first = waiting[0];
        if first.is_some() && waiting.iter().all(|collective| *collective == first) {
            for rank in 0..4usize {
                let what = What::Completed { work: works[rank] };
                events.push(Event {
                    time_ps: time * 1_000_000,
                    rank: GlobalRank(rank as u32),
                    what,
                });
                (waiting[rank], at[rank], works[rank]) = (None, at[rank] + 1, works[rank] + 1);
            }
            moved = true;
        }
        if !moved {
            break;
        }
    }
    let mut ranks = (0..).map(GlobalRank).zip(at);
    let finished = ranks.all(|(rank, at)| at > plan.program(rank).unwrap().ops.len());
    let outcome = if finished { Outcome::Completed } else { Outcome::TimedOut };
    let origin = Origin::Simulated { version: "0".into(), topology: "none".into(), seed: 0 };
    let (world_size, groups) = (plan.world_size, plan.groups.clone());
    let header =
        TraceHeader { origin, world_size, groups, plan: Some(plan.clone().into()), epoch_ns: 0 };
    Trace { header, events, end: Some(TraceEnd { time_ps: 1, outcome }) }
}

fn report(program: impl FnMut(u32, &mut ProgramBuilder)) -> Report {
    diagnose_trace(&run(&plan(program)))
}

fn one(report: &Report, kind: Kind, culprit: u32) -> &crate::Finding {
    assert_eq!(found(report), [(kind, vec![culprit])], "{}", report.to_text());
    &report.findings[0]
}

#[test]
fn equal_programs_are_healthy() {
    let report = report(|_, own| (0..8).for_each(|_| all_reduce(own, 8)));
    assert_eq!(found(&report), []);
}

/// Sizes are equal, so only the compute between the calls tells which one was skipped.
#[test]
fn a_skip_is_placed_by_what_lies_between() {
    let step = |rank: u32, own: &mut ProgramBuilder| {
        for step in 0..8 {
            own.line(0, 7).compute("forward", 800 + u64::from(rank));
            if (rank, step) != (2, 5) {
                all_reduce(own, 9);
            }
        }
    };
    let report_at_end = report(step);
    let finding = one(&report_at_end, Kind::OpSkipped, 2);
    assert_eq!((finding.seq, finding.op.as_deref()), (Some(6), Some("all_reduce")));
    assert_eq!(finding.certainty, Certainty::Certain);
    assert_eq!(finding.victims.len(), 3);
    insta::assert_snapshot!(report_at_end.to_text());
    let with_barrier = report(|rank, own| {
        step(rank, own);
        barrier(own, 10);
    });
    assert_eq!(one(&with_barrier, Kind::OpSkipped, 2).seq, Some(6));
}

/// Nothing lies between: which one cannot be told, and the finding says so.
#[test]
fn a_skip_among_equal_calls_cannot_be_placed() {
    let report = report(|rank, own| {
        (0..8 - u32::from(rank == 2)).for_each(|_| all_reduce(own, 9));
        barrier(own, 10);
    });
    let finding = one(&report, Kind::OpSkipped, 2);
    assert!(
        finding.message.contains("one of #1 to #8, which are all alike"),
        "{}",
        finding.message
    );
}

/// Other lines tell the same calls apart.
#[test]
fn a_skip_is_placed_by_its_line() {
    let report = report(|rank, own| {
        for line in 1..=8 {
            if (rank, line) != (1, 4) {
                all_reduce(own, line);
            }
        }
    });
    let finding = one(&report, Kind::OpSkipped, 1);
    assert_eq!(finding.seq, Some(4));
    assert!(
        finding.message.contains("all_reduce #4 of default_pg (train.py:4)"),
        "{}",
        finding.message
    );
}

/// A helper makes the same call for three lines of the program, of which a rank leaves one out: only the callers tell
/// the calls apart, in the finding and in the calls side by side.
#[test]
fn a_skip_through_a_helper_is_placed_by_its_caller() {
    let mut plan = PlanBuilder::new("test", 4, BackendName::Host).unwrap();
    plan.tensor("grad", Dtype::Float32, 64, Fill::Rank);
    let helper = plan.source("reduce.py", "");
    let train = plan.source("train.py", "");
    let callers = [10, 11, 12].map(|line| plan.callers([SourceLine { source: train, line }]));
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = plan.every_rank(|rank, own| {
        for step in 0..3 {
            for (line, callers) in (10..).zip(callers) {
                if (rank.0, step, line) != (2, 1, 11) {
                    own.line(helper, 5).called_from(callers);
                    own.collective(GroupId::WORLD, sum, 64, None, Some(GRAD));
                }
            }
        }
    });
    let report = diagnose_trace(&run(&plan.unwrap()));
    let finding = one(&report, Kind::OpSkipped, 2);
    assert_eq!(finding.seq, Some(5));
    let ladder = finding.ladder.as_ref().unwrap();
    let differs: Vec<_> = ladder.rungs.iter().filter(|rung| rung.differs).collect();
    let LadderStep::Called(expected) = &differs[0].steps[0] else { panic!("{ladder:#?}") };
    assert_eq!(expected.seq, Some(5));
    assert_eq!(expected.line.as_deref(), Some("reduce.py:5, called from train.py:11"));
    assert_eq!(differs[0].steps[1], LadderStep::LeftOut);
}

/// A rank comes to all of its calls by another caller, as where one rank trains with a logger: the lines tell its calls
/// apart as before.
#[test]
fn a_skip_of_a_rank_with_another_caller_is_placed_by_its_line() {
    let mut plan = PlanBuilder::new("test", 4, BackendName::Host).unwrap();
    plan.tensor("grad", Dtype::Float32, 64, Fill::Rank);
    let train = plan.source("train.py", "");
    let [usual, own_caller] =
        [30, 40].map(|line| plan.callers([SourceLine { source: train, line }]));
    let sum = Collective::AllReduce { op: ReduceOp::Sum };
    let plan = plan.every_rank(|rank, own| {
        for line in 10..18 {
            if (rank.0, line) != (2, 13) {
                own.line(train, line).called_from(if rank.0 == 2 { own_caller } else { usual });
                own.collective(GroupId::WORLD, sum, 64, None, Some(GRAD));
            }
        }
    });
    let report = diagnose_trace(&run(&plan.unwrap()));
    let finding = one(&report, Kind::OpSkipped, 2);
    assert_eq!(finding.seq, Some(4));
    assert!(finding.message.contains("(train.py:13)"), "{}", finding.message);
}

#[test]
fn extra_swapped_and_shorter() {
    let extra = report(|rank, own| {
        for step in 0..4 {
            own.compute("forward", 800);
            all_reduce(own, 9);
            if (rank, step) == (0, 2) {
                barrier(own, 11);
            }
        }
    });
    assert_eq!(one(&extra, Kind::OpExtra, 0).op.as_deref(), Some("barrier"));
    let swapped = report(|rank, own| {
        let root = Collective::Broadcast { root: GroupRank(0) };
        if rank == 3 {
            own.line(0, 5).collective(GroupId::WORLD, root, 64, None, Some(GRAD));
            all_reduce(own, 6);
        } else {
            all_reduce(own, 8);
            own.line(0, 9).collective(GroupId::WORLD, root, 64, None, Some(GRAD));
        }
    });
    one(&swapped, Kind::OpsSwapped, 3);
    let shorter = report(|rank, own| {
        for _ in 0..(if rank == 3 { 5 } else { 8 }) {
            own.line(0, 7).compute("forward", 800);
            all_reduce(own, 9);
        }
        barrier(own, 10);
    });
    let finding = one(&shorter, Kind::LoopShorter, 3);
    assert!(finding.message.contains("3 calls short"), "{}", finding.message);
}

/// As many ranks make a call as do not: either may be what the program means.
#[test]
fn half_of_the_ranks_are_not_wrong_for_certain() {
    for rounds in [(5, 8), (8, 5)] {
        let report = report(|rank, own| {
            for _ in 0..(if rank < 2 { rounds.0 } else { rounds.1 }) {
                own.line(0, 7).compute("forward", 800);
                all_reduce(own, 9);
            }
        });
        let finding = &report.findings[0];
        assert_eq!(finding.certainty, Certainty::Likely, "{}", report.to_text());
        assert!(finding.message.contains("made calls too many"), "{}", finding.message);
    }
}

/// The root of a call passes tensors that the others do not: their programs are the same.
#[test]
fn what_only_the_root_passes_is_no_difference() {
    let report = report(|rank, own| {
        let root = GroupRank(0);
        for step in 0..3 {
            let list = (rank == 0).then_some(GRAD);
            let scatter = Collective::Scatter { root };
            own.line(0, 7).collective(GroupId::WORLD, scatter, 16, list, Some(PART));
            let reduce = Collective::Reduce { op: ReduceOp::Sum, root };
            if (rank, step) == (3, 1) {
                own.line(0, 10).collective(GroupId::WORLD, reduce, 64, None, Some(GRAD));
            }
            own.line(0, 11).collective(GroupId::WORLD, reduce, 64, None, Some(GRAD));
        }
    });
    let finding = one(&report, Kind::OpExtra, 3);
    assert!(finding.message.contains("reduce at #4 (train.py:10)"), "{}", finding.message);
}

#[test]
fn arguments_differ() {
    let with = |op: ReduceOp, root: u32| {
        report(move |rank, own| {
            all_reduce(own, 3);
            let op = if rank == 1 { op } else { ReduceOp::Sum };
            let root = GroupRank(if rank == 1 { root } else { 0 });
            own.line(0, 4).collective(
                GroupId::WORLD,
                Collective::Reduce { op, root },
                64,
                None,
                Some(GRAD),
            );
        })
    };
    one(&with(ReduceOp::Max, 0), Kind::ReduceOpMismatch, 1);
    one(&with(ReduceOp::Sum, 2), Kind::RootMismatch, 1);
}

#[test]
fn a_stuck_rank_is_named_with_where_it_stands() {
    let report = report(|rank, own| {
        all_reduce(own, 3);
        if rank == 3 {
            own.line(0, 6).sleep("next(loader)", STUCK);
        }
        all_reduce(own, 8);
    });
    let finding = one(&report, Kind::RankNeverJoined, 3);
    let wanted = "Rank 3 never called all_reduce #2 of default_pg (train.py:8); ranks 0-2 wait \
                  there. It stands at next(loader) (train.py:6).";
    assert_eq!(finding.message, wanted);
}

/// The trace as it is where rank 1 ends when it has made its second call, or before that.
fn dead_at_its_second(whole: &Trace, made: bool, how: &str) -> Trace {
    let mut trace = whole.clone();
    let is_second = |event: &Event| {
        event.rank == GlobalRank(1) && matches!(event.what, What::Scheduled { work: 1, .. })
    };
    let second = trace.events.iter().position(is_second).unwrap();
    let others = trace.events[second + 1..].iter().filter(|event| {
        event.rank != GlobalRank(1) && matches!(event.what, What::Scheduled { work: 1, .. })
    });
    let others: Vec<Event> = others.cloned().collect();
    trace.events.truncate(second + usize::from(made));
    trace.events.extend(others);
    let (rank, how) = (GlobalRank(1), how.to_owned());
    trace.events.push(Event { time_ps: u64::MAX, rank, what: What::Died { how: how.clone() } });
    trace.end = Some(TraceEnd { time_ps: 9, outcome: Outcome::RankDied { rank, how } });
    trace
}

#[test]
fn a_death_is_the_cause_also_inside_a_call() {
    let plan = plan(|_, own| (0..3).for_each(|_| all_reduce(own, 8)));
    let whole = run(&plan);
    for made in [true, false] {
        let trace = dead_at_its_second(&whole, made, "killed by signal 9 (SIGKILL)");
        let report = diagnose_trace(&trace);
        let finding = one(&report, Kind::RankDied, 1);
        assert_eq!(finding.victims.len(), 3, "{}", report.to_text());
        assert!(
            finding.message.starts_with("Rank 1 died: killed by signal 9"),
            "{}",
            finding.message
        );
    }
}

/// A root's data goes on its way on gloo: a call that a member never makes keeps nobody waiting,
/// and is no health.
#[test]
fn a_call_that_not_all_make_is_told_though_all_come_to_an_end() {
    let plan = plan(|_, own| (0..3).for_each(|_| all_reduce(own, 8)));
    let without = |ranks: &[u32], work: u32| {
        let mut trace = run(&plan);
        trace.events.retain(|event| {
            let of = match &event.what {
                What::Scheduled { work, .. } | What::Completed { work } => Some(*work),
                _ => None,
            };
            of != Some(work) || !ranks.contains(&event.rank.0)
        });
        diagnose_trace(&trace)
    };
    assert_eq!(found(&without(&[], 2)), []);
    let skipped = without(&[3], 2);
    assert_eq!(one(&skipped, Kind::OpSkipped, 3).certainty, Certainty::Likely);
    assert!(skipped.findings[0].message.contains("and rank 3 never did"), "{}", skipped.to_text());
    let extra = without(&[1, 2, 3], 2);
    assert_eq!(one(&extra, Kind::OpExtra, 0).seq, Some(3));
    let tie = without(&[1, 2], 2);
    assert_eq!(tie.findings[0].certainty, Certainty::Undecidable);
}

/// A real run that is looked at while it goes on convicts nobody who only had not come yet, one that was
/// cancelled, ended from outside or breaks off does not even accuse them; one that timed out does, or in which the others waited
/// long.
#[test]
fn who_had_not_come_when_a_run_was_cut_short_is_not_to_blame() {
    let stuck = plan(|rank, own| {
        all_reduce(own, 3);
        if rank == 3 {
            own.line(0, 6).sleep("forward", STUCK);
        }
        all_reduce(own, 8);
    });
    let at = |outcome: Option<Outcome>, extra: Option<Event>, time_ps: u64| {
        let mut trace = run(&stuck);
        trace.header.origin = Origin::Run { backend: "host".into(), device: "4 processes".into() };
        trace.events.extend(extra);
        trace.end = outcome.map(|outcome| TraceEnd { time_ps, outcome });
        trace
    };
    let ends = |outcome, extra| diagnose_trace(&at(outcome, extra, 9));
    let told = ends(Some(Outcome::TimedOut), None);
    assert_eq!(one(&told, Kind::RankNeverJoined, 3).certainty, Certainty::Certain);
    let cancelled = ends(Some(Outcome::Cancelled), None);
    assert_eq!(found(&cancelled), []);
    assert_eq!(
        (cancelled.verdict, cancelled.unseen),
        (crate::Verdict::Inconclusive, vec!["It was cancelled. At the last that is seen of them, ranks 0-2 stood in all_reduce \
             (train.py:8), rank 3 in forward (train.py:6)."
            .to_owned()])
    );
    let mut simulation = run(&stuck);
    simulation.end = Some(TraceEnd { time_ps: 40_000_000_000_000, outcome: Outcome::Cancelled });
    let stopped = diagnose_trace(&simulation);
    assert_eq!((found(&stopped), stopped.verdict), (vec![], crate::Verdict::Inconclusive));
    let late = diagnose_trace(&at(Some(Outcome::Cancelled), None, 40_000_000_000_000));
    one(&late, Kind::RankNeverJoined, 3);
    let failed = || Some(Outcome::Failed { why: "rank 0 stood still".to_owned() });
    let ended = ends(failed(), None);
    assert_eq!(found(&ended), [(Kind::RunFailed, vec![])]);
    let stood = ended.findings[0].evidence.iter().find(|seen| seen.rank == GlobalRank(3));
    assert_eq!(stood.map(|seen| seen.note.as_str()), Some("stood in forward"));
    let late = diagnose_trace(&at(failed(), None, 40_000_000_000_000));
    assert_eq!(found(&late), [(Kind::RankNeverJoined, vec![3]), (Kind::RunFailed, vec![])]);
    let broken = diagnose_whole_trace(&at(None, None, 9));
    assert_eq!(found(&broken), [(Kind::RunFailed, vec![])]);
    let message = &broken.findings[0].message;
    assert!(message.contains("no end") && message.contains("rank 3 in forward"), "{message}");
    for outcome in [Some(Outcome::Unknown), None] {
        let report = ends(outcome.clone(), None);
        let finding = one(&report, Kind::RankNeverJoined, 3);
        assert_eq!(finding.certainty, Certainty::Undecidable, "{outcome:?}");
        let doubt = "Or rank 3 only had not come to it yet: the run";
        assert!(finding.message.contains(doubt), "{}", finding.message);
    }
    let (rank, how) = (GlobalRank(1), "killed by signal 9 (SIGKILL)".to_owned());
    let died = Event { time_ps: u64::MAX, rank, what: What::Died { how: how.clone() } };
    let report = ends(Some(Outcome::RankDied { rank, how }), Some(died));
    one(&report, Kind::RankDied, 1);
}

/// gloo does not keep ranks waiting for one whose process has ended; NCCL does. What a rank says last
/// may end itself.
#[test]
fn a_death_on_gloo_is_heard_at_once() {
    let died = |backend: BackendName, how: &str| {
        let plan = plan_on(backend, |_, own| (0..2).for_each(|_| all_reduce(own, 8)));
        let how = format!("exited with status 1: {how}");
        let trace = dead_at_its_second(&run(&plan), false, &how);
        let report = diagnose_trace(&trace);
        one(&report, Kind::RankDied, 1).message.clone()
    };
    let on_gloo = died(BackendName::Gloo, "ValueError: no data.");
    assert!(on_gloo.contains("ValueError: no data. Its last call"), "{on_gloo}");
    assert!(on_gloo.contains("raises \"Connection closed by peer\" at once"), "{on_gloo}");
    let on_nccl = died(BackendName::Nccl, "RuntimeError: found 12 ranks!");
    assert!(on_nccl.contains("found 12 ranks! Its last call"), "{on_nccl}");
    assert!(!on_nccl.contains("Connection closed"), "{on_nccl}");
}

#[test]
fn what_another_tool_numbers_wildly_is_survived() {
    let mut trace = run(&plan(|_, own| all_reduce(own, 8)));
    for (at, event) in trace.events.iter_mut().enumerate() {
        if let What::Scheduled { call, .. } = &mut event.what {
            let call = std::sync::Arc::make_mut(call);
            call.group = GroupId(u32::MAX - at as u32);
            call.seq = Some(u64::MAX - at as u64);
            call.peer = Some(GroupRank(u32::MAX));
            call.p2p = at % 2 == 0;
            call.outputs = vec![TensorShape { shape: vec![u64::MAX; 4], dtype: Dtype::Unknown }];
        }
        event.time_ps = u64::MAX;
    }
    let _ = diagnose_trace(&trace).to_text();
}

/// The dumps of a run hold the same calls, and the same rank is to blame.
#[test]
fn dumps_of_a_run_say_the_same() {
    let trace = run(&plan(|rank, own| {
        all_reduce(own, 8);
        if rank != 2 {
            all_reduce(own, 9);
        }
    }));
    let log = CallLog::of(&trace);
    for json in [false, true] {
        let dumps = dumps_of(&log, trace.header.epoch_ns).into_iter().map(|dump| {
            let bytes = if json { dump.to_json().into_bytes() } else { dump.to_pickle() };
            (dump.file_name, bytes)
        });
        let files: Vec<_> = dumps.collect();
        let files = files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
        let recording = read_files(files).unwrap();
        assert_eq!(recording.problems, []);
        let calls = |log: &CallLog| -> Vec<Vec<_>> {
            let own = log.logs().map(|(_, log)| {
                log.calls.iter().map(|it| (it.call.op.clone(), it.seq, it.state)).collect()
            });
            own.collect()
        };
        assert_eq!(calls(&recording.merged.log), calls(&log));
        let report = diagnose_recording(&recording);
        assert_eq!(found(&report), [(Kind::RankNeverJoined, vec![2])], "{}", report.to_text());
        assert_eq!(report.culprits(), diagnose_trace(&trace).culprits());
    }
}
