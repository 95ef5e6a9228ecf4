//! An export for other tools is a recording again: its plan has the same calls, and hides them behind the
//! same computations.

#![allow(clippy::unwrap_used, reason = "tests")]

use lockstep_analysis::{Activity, Analysis, Share};
use lockstep_core::collective::Collective;
use lockstep_core::dtype::Dtype;
use lockstep_core::group::{BackendName, GroupId};
use lockstep_core::plan::{Fill, Plan, PlanBuilder};
use lockstep_core::rank::GlobalRank;
use lockstep_core::reduce::ReduceOp;
use lockstep_core::trace::{CallLog, Trace};
use lockstep_diagnosis::diagnose_files;
use lockstep_formats::chakra::ChakraWriter;
use lockstep_formats::flight_recorder::dumps_of;
use lockstep_formats::kineto::KinetoWriter;
use lockstep_formats::recording::{Piece, Sources};
use lockstep_replay::{RecordingEnd, recover};
use lockstep_sim::{SimConfig, simulate};
use proptest::prelude::*;

/// Computes, calls, computes again and waits.
#[derive(Clone, Copy, Debug)]
struct Step {
    before_us: u64,
    numel: u64,
    beside_us: u64,
    /// The program goes on beside the call.
    goes_on: bool,
}

fn step() -> impl Strategy<Value = Step> {
    (20..200u64, 1u64 << 10..1 << 20, 20..400u64, any::<bool>()).prop_map(
        |(before_us, numel, beside_us, goes_on)| Step { before_us, numel, beside_us, goes_on },
    )
}

fn plan(backend: BackendName, steps: &[Step]) -> Plan {
    let mut plan = PlanBuilder::new("steps", 4, backend).unwrap();
    let tensors: Vec<_> = steps
        .iter()
        .map(|step| plan.tensor("x", Dtype::Float32, step.numel, Fill::Unknown))
        .collect();
    let plan = plan.every_rank(|rank, program| {
        for (step, tensor) in steps.iter().zip(&tensors) {
            // One rank is slower than the others.
            let slower_us = if rank.0 == 1 { 7 } else { 0 };
            program.compute("forward", (step.before_us + slower_us) * 1000);
            if step.goes_on {
                program.async_op();
            }
            let sum = Collective::AllReduce { op: ReduceOp::Sum };
            let made = program.collective(GroupId::WORLD, sum, step.numel, None, Some(*tensor));
            program.compute("backward", step.beside_us * 1000);
            if step.goes_on {
                program.wait(made);
            }
        }
    });
    plan.unwrap()
}

fn simulated(plan: &Plan) -> Trace {
    simulate(plan, &SimConfig { record_messages: false, ..SimConfig::default() }).unwrap()
}

/// The calls of a trace: rank, name, elements.
fn calls(trace: &Trace) -> Vec<(GlobalRank, String, u64)> {
    let log = CallLog::of(trace);
    let of_rank = |(rank, own): (GlobalRank, &lockstep_core::trace::RankLog)| {
        own.calls.iter().map(|it| (rank, it.call.op.clone(), it.call.payload())).collect::<Vec<_>>()
    };
    log.logs().flat_map(of_rank).collect()
}

/// The simulation of the plan that exported files make.
fn replayed(files: Vec<(String, Vec<u8>)>) -> Trace {
    let mut sources = Sources::default();
    files.iter().for_each(|(name, bytes)| sources.take(Piece::read(name, bytes)));
    let job = diagnose_files(sources).unwrap();
    let log = job.calls.unwrap().log;
    simulated(&recover("exported", &log, RecordingEnd::of(&job.report)).unwrap().plan)
}

fn as_chakra(trace: &Trace) -> Vec<(String, Vec<u8>)> {
    let writer = ChakraWriter::new(trace);
    let file = |rank| {
        let mut bytes = Vec::new();
        writer.write(rank, &mut bytes).unwrap();
        (ChakraWriter::file_name(rank), bytes)
    };
    writer.ranks().map(file).collect()
}

fn as_kineto(trace: &Trace) -> Vec<(String, Vec<u8>)> {
    let writer = KinetoWriter::new(trace);
    let file = |rank| {
        let mut bytes = Vec::new();
        writer.write(rank, &mut bytes).unwrap();
        (KinetoWriter::file_name(rank), bytes)
    };
    writer.ranks().map(file).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A call that was hidden behind a computation still is: otherwise the replay would take longer by all of it.
    #[test]
    fn a_replay_of_an_export_has_the_same_calls_and_takes_as_long(
        steps in prop::collection::vec(step(), 1..6),
        on_device in any::<bool>(),
    ) {
        let backend = if on_device { BackendName::Nccl } else { BackendName::Host };
        let trace = simulated(&plan(backend, &steps));
        // A profile with kernels is of NCCL, whose calls take other times than a host's.
        let profiles = on_device.then(|| ("kineto", as_kineto(&trace)));
        for (form, files) in [("chakra", as_chakra(&trace))].into_iter().chain(profiles) {
            let again = replayed(files);
            prop_assert_eq!(calls(&again), calls(&trace), "{}", form);
            let [again_us, us] = [&again, &trace].map(|it| it.end.as_ref().unwrap().time_ps / 1_000_000);
            // Each operation is written in microseconds or nanoseconds, and pauses below one are left out.
            let off = 3 * steps.len() as u64 + 3;
            prop_assert!(again_us.abs_diff(us) <= off, "{}: {} instead of {} µs", form, again_us, us);
        }
    }
}

fn as_dumps(trace: &Trace) -> Vec<(String, Vec<u8>)> {
    let dumps = dumps_of(&CallLog::of(trace), 0);
    dumps.iter().map(|dump| (dump.file_name.clone(), dump.to_pickle())).collect()
}

/// The analysis of the recording that some files make, and its notes.
fn analysed(files: &[(String, Vec<u8>)]) -> (Analysis, String) {
    let mut sources = Sources::default();
    files.iter().for_each(|(name, bytes)| sources.take(Piece::read(name, bytes)));
    let job = sources.join().unwrap();
    let log = job.calls.unwrap().merged.log;
    (Analysis::of(&Activity::of_calls(&log)), job.notes.join("\n"))
}

/// Dumps hold the last calls of a rank and no kernels; a profile beside them has these, and the times of the device.
#[test]
fn dumps_beside_a_profile_are_analysed_like_the_trace_itself() {
    let step = |at: u64| Step {
        before_us: 60 + at % 3,
        numel: 1 << 18,
        beside_us: 90,
        goes_on: at.is_multiple_of(2),
    };
    let steps: Vec<Step> = (0..12).map(step).collect();
    let trace = simulated(&plan(BackendName::Nccl, &steps));
    let of_trace = Analysis::of(&Activity::of_trace(&trace));
    let (dumps, profiles) = (as_dumps(&trace), as_kineto(&trace));
    let (alone, _) = analysed(&dumps);
    assert!(!alone.knows_computations);
    let both: Vec<_> = dumps.iter().chain(&profiles).cloned().collect();
    let (joined, notes) = analysed(&both);
    assert!(joined.knows_computations && joined.knows_ends);
    assert!(notes.contains("96 computations"), "{notes}");
    // A recording has no program that tells its steps: those of the calls' times.
    assert_eq!(joined.steps.len(), analysed(&profiles).0.steps.len());
    assert_eq!(joined.critical_path.parts.len(), of_trace.critical_path.parts.len());
    let parts = [
        |share: Share| share.computing_ps,
        |share: Share| share.communicating_ps,
        |share: Share| share.waiting_ps,
        |share: Share| share.idle_ps,
    ];
    for (read, before) in joined.ranks.iter().zip(&of_trace.ranks) {
        for part in parts {
            // Files are written in whole nanoseconds: each call and computation may move by one at either end.
            let off_ps = part(read.total).abs_diff(part(before.total));
            assert!(off_ps <= 4 * 1000 * 36, "{read:?} {before:?}");
        }
    }
    // Of a ring that has dropped the first calls, the computations in front of the first one that is left are unknown.
    let mut cut = dumps_of(&CallLog::of(&trace), 0);
    cut.iter_mut().for_each(|dump| drop(dump.entries.drain(..4)));
    let cut = cut.iter().map(|dump| (dump.file_name.clone(), dump.to_pickle()));
    let (cut, notes) = analysed(&cut.chain(profiles).collect::<Vec<_>>());
    assert!(cut.knows_computations, "{notes}");
    assert!(cut.time_ps < joined.time_ps * 8 / 10, "{} {}", cut.time_ps, joined.time_ps);
    for (cut, whole) in cut.ranks.iter().zip(&joined.ranks) {
        assert!(cut.total.computing_ps < whole.total.computing_ps, "{cut:?} {whole:?}");
    }
    // Computations in front of it would stand in a time without calls.
    assert!(cut.ranks.iter().all(|own| own.total.idle_ps * 50 < cut.time_ps), "{:?}", cut.ranks);
}
