//! Opening: a plan is simulated, a trace or recording is read, always in slices.

use super::file::{Kind, read};
use super::lanes::Lanes;
use super::machine::config;
use super::readers::{Files, Named, Readers};
use super::session::{Held, bounded};
use super::slices::Slices;
use lockstep_core::plan::Plan;
use lockstep_core::trace::{CallLog, Origin, Trace, TraceHeader};
use lockstep_diagnosis::{DiagnosedJob, Report, diagnose_files};
use lockstep_formats::archive::{self, Limits};
use lockstep_formats::flight_recorder::MAX_DUMP_BYTES;
use lockstep_formats::goal;
use lockstep_formats::job_calls::Merged;
use lockstep_formats::recording::{Piece, Sources, name_in, names_of};
use lockstep_sim::explore::Explorer;
use lockstep_sim::{Bounds, Explored, Order, Session, SimConfig, SimError, Topology};
use lockstep_web_protocol::{Machine, Response, SessionId};
use wasm_bindgen::{JsCast, JsValue};
use web_sys::File;

/// Files are refused past this many bytes together: a tab has 4 GiB of memory for everything.
const MAX_BYTES: f64 = (1u64 << 30) as f64;

/// The bounds on an archive's unpacked size, in the same memory.
pub(super) const ARCHIVE_LIMITS: Limits =
    Limits { file_bytes: MAX_DUMP_BYTES as u64, total_bytes: 1 << 30 };

/// A file that takes seconds to read.
const LARGE_BYTES: f64 = (32u64 << 20) as f64;

/// Events between two looks at the clock.
const EVENTS_A_SLICE: usize = 2048;

/// Simulates a plan to its end, to be stepped.
pub(super) async fn simulate(
    session: SessionId,
    plan: &Plan,
    machine: Machine,
    order: Option<Order>,
    slices: Slices,
) -> Result<(Held, Response), String> {
    let simulation = run(plan, machine, order, &slices).await?;
    let trace = simulation.trace();
    let (lanes, log) = index(&trace, &slices).await?;
    // The simulation holds the events; the header is what is asked for.
    let mut held = Held::whole(Trace { events: Vec::new(), ..trace }, lanes, log);
    held.simulation = Some(simulation);
    let opened = held.opened(session)?;
    Ok((held, Response::Opened(Box::new(opened))))
}

/// States of a search between two looks at the clock.
const STATES_A_SLICE: usize = 16;

/// Looks for an order of what a plan leaves open in which it does not complete.
pub(super) async fn explore(
    plan: &Plan,
    machine: Machine,
    bounds: Bounds,
    slices: Slices,
) -> Result<Explored, String> {
    let config = config(plan, machine)?;
    let mut explorer = Explorer::new(plan, &config, bounds).map_err(|error| error.to_string())?;
    loop {
        if let Some(explored) = explorer.run(STATES_A_SLICE) {
            return Ok(explored);
        }
        slices.give_way(explorer.states() as u64, bounds.states as u64, "states").await?;
    }
}

/// The trace of a plan's JSON text.
pub(super) async fn trace_of(
    plan_json: &str,
    machine: Option<Machine>,
    slices: Slices,
) -> Result<Trace, String> {
    let plan = Plan::from_json(plan_json).map_err(|error| error.to_string())?;
    // As the command line has it: the plan says which ranks share a node.
    let usual = || Topology::of_ranks_per_node(plan.ranks_per_node).into();
    Ok(run(&plan, machine.unwrap_or_else(usual), None, &slices).await?.trace())
}

async fn run(
    plan: &Plan,
    machine: Machine,
    order: Option<Order>,
    slices: &Slices,
) -> Result<Session, String> {
    let words = |error: SimError| match error {
        SimError::TooManyEvents { limit } => format!(
            "This takes more than {limit} events, which is more than a page can hold: choose a \
             smaller world, or an algorithm with fewer messages. On the command line, lockstep sim \
             with --no-messages or --max-events takes more."
        ),
        error => error.to_string(),
    };
    let config = SimConfig { order, ..config(plan, machine)? };
    let mut simulation = Session::new(plan, config).map_err(words)?;
    while !simulation.run(EVENTS_A_SLICE).map_err(words)? {
        slices.give_way(simulation.moments().len() as u64, 0, "moments simulated").await?;
    }
    Ok(simulation)
}

/// Reads a trace of ours, binary or JSON.
pub(super) async fn trace(
    session: SessionId,
    name: &str,
    bytes: &[u8],
    slices: Slices,
) -> Result<(Held, Response), String> {
    let trace = Trace::read(bytes).map_err(|error| format!("{name}: {error}"))?;
    let (lanes, log) = index(&trace, &slices).await?;
    let held = Held::whole(trace, lanes, log);
    let opened = held.opened(session)?;
    Ok((held, Response::Opened(Box::new(opened))))
}

/// Simulates a plan that lies in a file of its own: ours, or a GOAL file.
async fn plan(
    session: SessionId,
    name: &str,
    bytes: &[u8],
    slices: Slices,
) -> Result<(Held, Response), String> {
    let why = |error: String| format!("{name}: {error}");
    let (plan, held_back) = match goal::looks_like_goal(bytes) {
        true => {
            let text = std::str::from_utf8(bytes);
            let text = text.map_err(|_| why("a GOAL file is text".to_owned()))?;
            let goal = goal::read(name, text).map_err(|error| why(error.to_string()))?;
            (goal.plan, goal.held_back)
        }
        false => (Plan::read(bytes).map_err(|error| why(error.to_string()))?, 0),
    };
    // As the command line has it: the plan says which ranks share a node.
    let topology = Topology::of_ranks_per_node(plan.ranks_per_node);
    let (mut held, _) = simulate(session, &plan, topology.into(), None, slices).await?;
    if held_back > 0 {
        held.problems.push(format!(
            "{name}: {held_back} operations start later than GOAL lets them, because a rank's program \
             does one thing after the other"
        ));
    }
    let opened = held.opened(session)?;
    Ok((held, Response::Opened(Box::new(opened))))
}

/// Reads files that were dropped on the page from `paths`: one trace of ours, one plan, or the
/// recordings of a job.
pub(super) async fn files(
    session: SessionId,
    files: Vec<JsValue>,
    paths: &[String],
    slices: Slices,
) -> Result<(Held, Response), String> {
    let files: Vec<File> = files.into_iter().filter_map(|file| file.dyn_into().ok()).collect();
    let bytes: f64 = files.iter().map(|file| file.size()).sum();
    if bytes > MAX_BYTES {
        return Err(format!(
            "These {} files are {:.1} GiB together; the page reads up to 1 GiB. On the command line, \
             `lockstep diagnose FOLDER` reads more.",
            files.len(),
            bytes / MAX_BYTES
        ));
    }
    let mut sources = Sources::default();
    let own = |(at, file): (usize, &File)| paths.get(at).cloned().unwrap_or_else(|| file.name());
    let names = names_of(&files.iter().enumerate().map(own).collect::<Vec<_>>());
    let alone = files.len() == 1;
    let named: Vec<Named> = files.into_iter().zip(names).collect();
    let to_read = Files::new(named.iter().cloned());
    let _readers = Readers::start(&to_read, bytes);
    while let Some((file, name)) = to_read.next().await {
        if file.size() > LARGE_BYTES {
            slices.announce(to_read.done(), bytes, &name).await?;
        }
        let one_alone = |what: &str| {
            let why = format!("{name} is {what}; open it alone, not together with other files");
            Piece::useless(&name, why)
        };
        match read(&file).await.map(|bytes| (Kind::of(&bytes), bytes)) {
            Err(why) => sources.take(Piece::useless(&name, format!("{name}: {why}"))),
            Ok((Kind::Trace, bytes)) if alone => {
                return trace(session, &name, &bytes, slices).await;
            }
            Ok((Kind::Trace, _)) => sources.take(one_alone("a Lockstep trace")),
            Ok((Kind::Plan, bytes)) if alone => return plan(session, &name, &bytes, slices).await,
            Ok((Kind::Plan, _)) => sources.take(one_alone("a plan")),
            Ok((Kind::Archive, bytes)) => {
                let called = |path: &str| match alone {
                    true => path.to_owned(),
                    false => name_in(&name, path),
                };
                let mut take =
                    |path: &str, bytes: &[u8]| sources.take(Piece::read(&called(path), bytes));
                let unpacked = archive::for_each_file(&name, &bytes, ARCHIVE_LIMITS, &mut take);
                if let Err(error) = unpacked {
                    sources.take(Piece::useless(&name, error.to_string()));
                }
            }
            Ok((Kind::Piece, bytes)) => sources.take(Piece::read(&name, &bytes)),
        }
        to_read.was_read(&file);
        slices.give_way_reading(to_read.done(), bytes, &name).await?;
    }
    to_read.pieces().into_iter().for_each(|piece| sources.take(piece));
    if sources.is_empty() {
        let problems: Vec<String> = sources.problems().collect();
        return Err(match problems.is_empty() {
            true => "There are no files in what you dropped.".to_owned(),
            false => problems.join("\n"),
        });
    }
    slices.announce(bytes, bytes, "and merging").await?;
    let DiagnosedJob { calls, mut report, problems } =
        diagnose_files(sources).map_err(|why| why.to_string())?;
    // They have a place of their own on the page.
    report.notes.retain(|note| !problems.contains(note));
    let merged = calls.unwrap_or_else(|| messages_alone(&report));
    let lanes = lanes_of(&merged, &slices).await?;
    let mut held = Held::recorded(merged, lanes);
    held.report = Some(report);
    held.problems = problems;
    held.files = named.into();
    let opened = held.opened(session)?;
    Ok((held, Response::Opened(Box::new(opened))))
}

/// The session of PyTorch's messages without a recording: findings, and no call.
fn messages_alone(report: &Report) -> Merged {
    let by = "PyTorch's messages in a log".to_owned();
    let header = TraceHeader {
        origin: Origin::Recorded { by, files: Vec::new() },
        world_size: report.world_size,
        groups: Vec::new(),
        plan: None,
        epoch_ns: 0,
    };
    let trace = Trace { header: header.clone(), events: Vec::new(), end: None };
    Merged { header, log: CallLog::of(&trace), end_ps: 0 }
}

/// The lanes of a recording: rank by rank, so that its events are never there as a whole.
async fn lanes_of(merged: &Merged, slices: &Slices) -> Result<Lanes, String> {
    let world_size = merged.header.world_size;
    bounded(world_size)?;
    let mut lanes = Lanes::new(world_size);
    for (rank, log) in merged.log.logs() {
        lanes.take_calls(rank, &log.calls);
        lanes.take_computations(rank, &log.recording.computations);
        slices.give_way(rank.0.into(), world_size.into(), "ranks drawn").await?;
    }
    lanes.leave_room();
    Ok(lanes)
}

pub(super) async fn index(trace: &Trace, slices: &Slices) -> Result<(Lanes, CallLog), String> {
    let world_size = trace.header.world_size;
    bounded(world_size)?;
    let mut lanes = Lanes::new(world_size);
    let total = trace.events.len() as u64;
    for (at, events) in trace.events.chunks(EVENTS_A_SLICE).enumerate() {
        for event in events {
            lanes.take(event, trace.header.plan.as_deref());
        }
        slices.give_way((at * EVENTS_A_SLICE) as u64, total, "events indexed").await?;
    }
    let log = CallLog::of(trace);
    for (rank, own) in log.logs() {
        lanes.take_computations(rank, &own.recording.computations);
    }
    match &trace.end {
        _ if matches!(trace.header.origin, Origin::Recorded { .. }) => lanes.leave_room(),
        // Calls that were under way when the job ended are drawn up to its end.
        Some(end) => lanes.end_ps = lanes.end_ps.max(end.time_ps),
        None => {}
    }
    Ok((lanes, log))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_core::collective::Collective;
    use lockstep_core::plan::CollectiveLab;

    #[test]
    fn plans_are_told_from_recordings_and_traces() {
        let plan = CollectiveLab::new(Collective::Barrier, 2, 0).plan().unwrap();
        let goal = b"// made by hand\nnum_ranks 1\nrank 0 {\nl1: calc 100\n}\n";
        for bytes in [plan.to_json().as_bytes(), &plan.to_bytes(), goal] {
            assert_eq!(Kind::of(bytes), Kind::Plan);
        }
        assert_eq!(Kind::of(br#"{"schema": "lockstep.trace/1"}"#), Kind::Trace);
        for other in [&b"rank 0: NCCL INFO"[..], b"{}", b""] {
            assert_eq!(Kind::of(other), Kind::Piece, "{}", String::from_utf8_lossy(other));
        }
    }
}
