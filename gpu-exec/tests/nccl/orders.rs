//! Orders of the coordinator to ranks on devices: to hold, to dump, to end; and that NCCL is called
//! as it allows meanwhile.

use crate::{Machine, assert_completed, options};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Action, Fill, Plan, PlanBuilder, ProgramBuilder, TensorId};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::{Factor, ReduceOp};
use lockstep_core::trace::{Outcome, What};
use lockstep_diagnosis::diagnose;
use lockstep_formats::flight_recorder::{Dump, merge};
use lockstep_gpu_exec::{Backend, Command, RankDump, RunEvent, RunHandle, RunOptions, Sharing};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SUM: Collective = Collective::AllReduce { op: ReduceOp::Sum };

fn plan(write: impl Fn(GlobalRank, &mut ProgramBuilder, TensorId)) -> Plan {
    let mut plan = PlanBuilder::new("ordered", 3, BackendName::Nccl).unwrap();
    let tensor = plan.tensor("t", Dtype::Float32, 8, Fill::Rank);
    plan.every_rank(|rank, program| write(rank, program, tensor)).unwrap()
}

/// Calls that the program waits for, with some time between them.
fn slow_calls(rounds: u32) -> Plan {
    plan(|_, program, tensor| {
        for _ in 0..rounds {
            program.collective(GroupId::WORLD, SUM, 8, None, Some(tensor));
            program.push(Action::Synchronize);
            program.sleep("data loader", 5_000_000);
        }
    })
}

fn ways() -> [Machine; 2] {
    [Machine::new(), Machine::new().sharing(Sharing::OneProcess)]
}

/// The next dumps of three ranks, whatever else comes.
fn next_dumps(run: &RunHandle) -> Vec<Dump> {
    let began = Instant::now();
    let mut dumps = Vec::new();
    while dumps.len() < 3 && began.elapsed() < Duration::from_secs(30) {
        if let Some(RunEvent::Dumped(dump)) = run.next_event(Duration::from_secs(1)) {
            dumps.push(dump);
        }
    }
    read(dumps)
}

fn read(mut dumps: Vec<RankDump>) -> Vec<Dump> {
    dumps.sort_by_key(|dump| dump.rank);
    let ranks: Vec<u32> = dumps.iter().map(|dump| dump.rank.0).collect();
    assert_eq!(ranks, [0, 1, 2]);
    dumps.iter().map(|dump| Dump::read(&dump.file_name(), &dump.pickle).unwrap()).collect()
}

#[test]
fn ranks_on_devices_hold_dump_and_go_on() {
    for machine in ways() {
        // Far less than the pause: a timeout must not pass meanwhile.
        let options = RunOptions { timeout: Some(Duration::from_millis(1500)), ..options() };
        let run = machine.backend().start(slow_calls(150), options).unwrap();
        assert!(matches!(run.next_event(Duration::from_secs(20)), Some(RunEvent::Events(_))));
        let control = run.control();
        control.tell(Command::Pause);
        while run.next_event(Duration::from_millis(300)).is_some() {}
        // Nothing more comes while it is paused.
        assert_eq!(run.next_event(Duration::from_millis(1800)), None);
        control.tell(Command::Dump);
        let held: Vec<usize> = next_dumps(&run).iter().map(|dump| dump.entries.len()).collect();
        assert!(held.iter().all(|calls| (1..150).contains(calls)), "{held:?}");
        control.tell(Command::Resume);
        let trace = run.into_trace();
        assert_completed(&trace);
    }
}

#[test]
fn a_hang_leaves_as_many_calls_of_every_rank_as_were_asked_for() {
    let hangs = plan(|rank, program, tensor| {
        for round in 0..6 {
            if (rank.0, round) != (1, 5) {
                program.collective(GroupId::WORLD, SUM, 8, None, Some(tensor));
            }
        }
    });
    for machine in ways() {
        let options = RunOptions {
            timeout: Some(Duration::from_secs(3)),
            recorded_calls: 4,
            dump_at_end: true,
            ..options()
        };
        let run = machine.backend().start(hangs.clone(), options).unwrap();
        let (trace, dumps) = run.into_trace_and_dumps();
        assert_eq!(trace.end.unwrap().outcome, Outcome::TimedOut);
        let dumps = read(dumps);
        assert!(dumps.iter().all(|dump| dump.entries.len() == 4));
        let report = diagnose(&merge(dumps).unwrap().log);
        assert!(report.to_text().contains("rank 1"), "{}", report.to_text());
    }
}

/// One that waits for a rank that fails does not keep its failure.
#[test]
fn a_logical_rank_that_fails_is_heard_before_those_that_wait_for_it() {
    let factor = Factor::new(0.5).unwrap();
    let scaled = Collective::AllReduce { op: ReduceOp::PremulSum(factor) };
    let fails = plan(|rank, program, tensor| {
        program.collective(GroupId::WORLD, SUM, 8, None, Some(tensor));
        // Until then all have come this far: rank 2 fails after the others' first calls.
        program.push(Action::Synchronize);
        let call = if rank.0 == 2 { scaled } else { SUM };
        program.collective(GroupId::WORLD, call, 8, None, Some(tensor));
        program.push(Action::Synchronize);
    });
    let machine = Machine::new().sharing(Sharing::OneProcess);
    let trace = machine.set("STAND_IN_LACKS=float32_premultiply").run(fails);
    let Outcome::RankDied { how, .. } = &trace.end.as_ref().unwrap().outcome else {
        panic!("{:?}", trace.end)
    };
    assert!(how.contains("cuModuleGetFunction failed: CUDA_ERROR_NOT_FOUND"), "{how}");
    // The events before it are there, of every rank.
    for rank in 0..3 {
        let first = |what: &What| matches!(what, What::Scheduled { work: 0, .. });
        assert!(trace.events.iter().any(|e| e.rank == GlobalRank(rank) && first(&e.what)));
    }
}

fn left_in(folder: &TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// The program, the timeline and the abort are three threads.
#[test]
fn nccl_is_called_by_one_thread_at_a_time_and_not_after_an_abort() {
    let folder = tempfile::tempdir().unwrap();
    for machine in [Machine::new(), Machine::new().by_schedules()] {
        let machine = machine.leaving("STAND_IN_WATCHES", &folder);
        for _ in 0..3 {
            let run = machine.backend().start(slow_calls(1000), options()).unwrap();
            assert!(matches!(run.next_event(Duration::from_secs(20)), Some(RunEvent::Events(_))));
            run.cancel();
            assert_eq!(run.into_trace().end.unwrap().outcome, Outcome::Cancelled);
        }
    }
    assert_eq!(left_in(&folder), Vec::<String>::new());
}

#[test]
fn factors_are_given_back_to_nccl() {
    let factor = Factor::new(0.5).unwrap();
    let scaled = Collective::AllReduce { op: ReduceOp::PremulSum(factor) };
    let trace = Machine::new().run(plan(|_, program, tensor| {
        for _ in 0..20 {
            program.collective(GroupId::WORLD, scaled, 8, None, Some(tensor));
        }
    }));
    assert_completed(&trace);
}

#[test]
fn a_communicator_that_does_not_end_is_aborted_within_the_time_for_leaving() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::new().leaving("STAND_IN_NEVER_FINALIZES", &folder);
    // Half of it is there for what else the machine does.
    let options = RunOptions { grace: Duration::from_secs(10), ..options() };
    assert_completed(&machine.backend().start(slow_calls(1), options).unwrap().into_trace());
    // Not killed before: one communicator of each of three ranks.
    assert_eq!(left_in(&folder).len(), 3);
}
