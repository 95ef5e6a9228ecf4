//! `lockstep sim`: a plan in virtual time.

use super::{FOR_EVER_PS, describe_end, describe_ps};
use crate::exit_rule::ExitRule;
use crate::output_file::{FileKind, Overwrite};
use crate::plan_source::{
    FaultOptions, Found, LinkOptions, PlanArguments, times_of_trace, with_timeout,
};
use crate::progress::Progress;
use crate::{terminal, trace_file};
use anyhow::{Result, anyhow, bail};
use lockstep_core::plan::Plan;
use lockstep_core::trace::Outcome;
use lockstep_core::words::counted;
use lockstep_diagnosis::{Report, Verdict, diagnose};
use lockstep_sim::training::messages;
use lockstep_sim::{
    Devices, SimConfig, SimError, SimulatedCalls, Topology, simulate_calls, simulate_watched,
    steps_of,
};
use lockstep_torch::c10d::detail_of;
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

/// Simulate a plan and say what happens
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    plan: PlanArguments,
    #[command(flatten)]
    links: LinkOptions,
    #[command(flatten)]
    faults: FaultOptions,
    /// Let each call of a recording or a trace take as long as it did when that was made, instead of what the links make
    /// of it
    #[arg(long, conflicts_with_all = ["topology", "cluster", "link_latency_ns", "link_bytes_per_second"])]
    as_recorded: bool,
    /// Leave single messages out of the trace that -o writes, which is then much smaller. In a plan of many millions
    /// of messages each call then takes the time that it takes alone
    #[arg(long)]
    no_messages: bool,
    /// Give up once the trace has this many events [default: 5000000, or what the plan has without messages]
    #[arg(long, value_name = "N")]
    max_events: Option<usize>,
    /// Write the trace to a file: JSON if it ends in .json, else binary
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Say also what each rank would raise under TORCH_DISTRIBUTED_DEBUG=DETAIL, where PyTorch
    /// compares the ranks' calls instead of letting them hang
    #[arg(long)]
    debug_detail: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    exit: ExitRule,
}

/// The most events that a trace may have unless more are asked for.
const MAX_EVENTS: usize = 5_000_000;

/// An operation begins and ends, on the program and on a stream, and its call is made, started and completed.
const EVENTS_OF_AN_OP: usize = 7;

/// The most events that a simulation of the plan can have without messages.
fn events_of(plan: &Plan) -> usize {
    let ops = plan
        .program_of
        .iter()
        .map(|of| plan.programs.get(*of as usize).map_or(0, |program| program.ops.len() + 2));
    ops.sum::<usize>().saturating_mul(EVENTS_OF_AN_OP)
}

/// True if single messages are recorded: only a trace that is written shows them, and one that they would make
/// too large is written without them.
fn records_messages(arguments: &Arguments, plan: &Plan) -> bool {
    if arguments.no_messages || arguments.output.is_none() {
        return false;
    }
    let sent = messages(plan);
    let events = u64::try_from(events_of(plan)).unwrap_or(u64::MAX);
    // Each is sent and arrives.
    let too_many = events.saturating_add(sent.saturating_mul(2)) > MAX_EVENTS as u64;
    if !too_many || arguments.max_events.is_some() {
        return true;
    }
    terminal::note(&format!(
        "lockstep: the trace leaves out its {sent} single messages; --max-events {} keeps them",
        events.saturating_add(sent.saturating_mul(2))
    ));
    false
}

/// The JSON that `--json` prints.
#[derive(Serialize)]
struct Simulated<'a> {
    schema: &'static str,
    outcome: Option<&'a Outcome>,
    time_ps: u64,
    /// When it would be over without its timeouts, if only they ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    time_without_timeouts_ps: Option<u64>,
    events: usize,
    findings: &'a Report,
    /// With `--debug-detail`; null where there are point-to-point calls, which it does not compare.
    #[serde(skip_serializing_if = "Option::is_none")]
    debug_detail: Option<Option<Vec<DetailLine>>>,
}

/// The error that a rank raises under `TORCH_DISTRIBUTED_DEBUG=DETAIL`.
#[derive(Serialize)]
struct DetailLine {
    rank: u32,
    /// `train.py:9`.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<String>,
    error: String,
    /// Ours beside it, where that helps more.
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
}

fn detail_lines(plan: &Plan) -> Option<Vec<DetailLine>> {
    let lines = detail_of(plan)?.into_iter().map(|raised| {
        let source = raised.at.and_then(|at| Some((plan.sources.get(at.source as usize)?, at)));
        let line = source.map(|(source, at)| format!("{}:{}", source.path, at.line));
        let (error, help) = (raised.error.to_string(), raised.error.help);
        DetailLine { rank: raised.rank.0, line, error, help }
    });
    Some(lines.collect())
}

/// The lines in words.
fn detail_text(lines: Option<&[DetailLine]>) -> String {
    let Some(lines) = lines else {
        return "TORCH_DISTRIBUTED_DEBUG=DETAIL compares collectives only, and there are \
                point-to-point calls here.\n"
            .to_owned();
    };
    if lines.is_empty() {
        return "TORCH_DISTRIBUTED_DEBUG=DETAIL would find no collectives to differ, and raise nothing by \
                itself. (It compares no monitored_barrier, which raises with it as without it.)\n"
            .to_owned();
    }
    let mut text = "With TORCH_DISTRIBUTED_DEBUG=DETAIL:\n".to_owned();
    for DetailLine { rank, line, error, help } in lines {
        let in_brackets = |text: &Option<String>| {
            text.as_ref().map(|text| format!(" ({text})")).unwrap_or_default()
        };
        let (at, help) = (in_brackets(line), in_brackets(help));
        text.push_str(&format!("  rank {rank}{at}: {error}{help}\n"));
    }
    text
}

pub(crate) fn run(arguments: Arguments, progress: &Progress) -> Result<ExitCode> {
    if let Some(path) = &arguments.output {
        arguments.overwrite.check(path, FileKind::Trace, &arguments.plan.paths())?;
    }
    let Found { plan, said, replay, trace, origin } = arguments.plan.find(progress)?;
    let said = said.with_faults(&plan, &arguments.faults.faults);
    let mut plan = arguments.faults.simulated(plan)?;
    let record_messages = records_messages(&arguments, &plan);
    // Without messages the plan bounds the events: an operation has a few.
    let bounded = if record_messages { 0 } else { events_of(&plan) };
    let call_times = match (&replay, &trace) {
        _ if !arguments.as_recorded => None,
        (Some(replay), _) => Some(Arc::new(replay.times(&plan)?)),
        (None, Some(trace)) => {
            let (times, measured) = times_of_trace(&plan, trace)?;
            plan = measured;
            Some(Arc::new(times))
        }
        (None, None) => bail!(
            "--as-recorded plays the times of a recording: dumps, profiles or a trace, and {} is none",
            arguments.plan.what
        ),
    };
    let origin = origin.filter(|_| !arguments.as_recorded);
    let keeps_nodes = arguments.plan.options.ranks_per_node.is_none();
    let links = arguments.links.config_again(&plan, origin.as_ref(), keeps_nodes)?;
    let config = SimConfig {
        record_messages,
        max_events: arguments.max_events.unwrap_or(MAX_EVENTS.max(bounded)),
        call_times: call_times.or_else(|| links.call_times.clone()),
        ..links
    };
    let config = if record_messages { config } else { without_messages(config, &plan)? };
    let plan = Arc::new(plan);
    let mut stage = progress.stage("simulating");
    let simulated = match arguments.output {
        None => simulate_calls(Arc::clone(&plan), &config, &mut stage).map(|calls| (calls, None)),
        Some(_) => match simulate_watched(&plan, &config, &mut stage) {
            Err(SimError::Stopped(so_far)) => Ok(*so_far),
            simulated => simulated,
        }
        .map(|trace| (SimulatedCalls::from(&trace), Some(trace))),
    };
    drop(stage);
    said.tell(simulated.as_ref().ok().map(|(simulated, _)| &simulated.calls));
    let (simulated, trace) = simulated.map_err(|error| match error {
        SimError::TooManyEvents { limit } => anyhow!(
            "the simulation recorded {limit} events and is not done: --no-messages leaves single \
             messages out, --max-events raises the limit, --world-size and --count make it smaller"
        ),
        error => error.into(),
    })?;
    let outcome = &simulated.calls.outcome;
    // A recovered plan that times out hangs for good: it holds where each rank stopped.
    let slow = (*outcome == Outcome::TimedOut && replay.is_none())
        .then(|| without_timeouts(&plan, &config, progress))
        .flatten();
    if let Some((path, trace)) = arguments.output.as_deref().zip(trace) {
        trace_file::write(path, &trace)?;
    }
    // With faults it is another job than the recorded one.
    let replay = replay.filter(|_| arguments.faults.faults.is_empty());
    let report = match replay {
        Some(replay) => replay.into_report(&simulated.calls),
        None => diagnose(&simulated.calls),
    };
    let detail = arguments.debug_detail.then(|| detail_lines(&plan));
    let text = match arguments.json {
        true => as_json(&simulated, &report, slow, detail)?,
        false => {
            let detail = detail.map(|lines| detail_text(lines.as_deref())).unwrap_or_default();
            as_text(&plan, &simulated, &report, slow, &config) + &detail
        }
    };
    terminal::text(&text)?;
    let completed = *outcome == Outcome::Completed;
    Ok(ExitCode::from(arguments.exit.code_of_run(report.verdict, completed)))
}

/// The configuration of a simulation whose messages nobody looks at.
fn without_messages(config: SimConfig, plan: &Plan) -> Result<SimConfig> {
    let knows_times = config.call_times.is_some();
    let config = config.for_calls_of(plan)?;
    if config.call_times.is_some() && !knows_times {
        terminal::note(&format!(
            "lockstep: the plan's calls send {} messages: each distinct call is simulated once, alone, and takes \
             that time wherever it is made",
            steps_of(plan)
        ));
    }
    Ok(config)
}

/// When a plan that timed out would be over if it had all the time there is, in picoseconds;
/// `None` if it never would: it hangs.
fn without_timeouts(plan: &Plan, config: &SimConfig, progress: &Progress) -> Option<u64> {
    // Only the time of its end is used.
    let config =
        SimConfig { record_messages: false, record_ranks: Some(Vec::new()), ..config.clone() };
    let plan = with_timeout(plan.clone(), LONG_MS);
    let mut stage = progress.stage("simulating without timeouts");
    let end = simulate_calls(Arc::new(plan), &config, &mut stage).ok()?.end?;
    // A rank that stays where its recording ends never goes on.
    (end.outcome == Outcome::Completed && end.time_ps < FOR_EVER_PS).then_some(end.time_ps)
}

fn as_json(
    simulated: &SimulatedCalls,
    report: &Report,
    slow: Option<u64>,
    debug_detail: Option<Option<Vec<DetailLine>>>,
) -> Result<String> {
    let end = simulated.end.as_ref();
    let simulated = Simulated {
        schema: "lockstep.sim/1",
        outcome: end.map(|end| &end.outcome),
        time_ps: end.map_or(0, |end| end.time_ps),
        time_without_timeouts_ps: slow,
        events: simulated.events,
        findings: report,
        debug_detail,
    };
    Ok(serde_json::to_string_pretty(&simulated)? + "\n")
}

fn as_text(
    plan: &Plan,
    simulated: &SimulatedCalls,
    report: &Report,
    slow: Option<u64>,
    config: &SimConfig,
) -> String {
    let topology = &config.topology;
    let on = match (&config.call_times, topology) {
        (Some(times), _) => format!(" of {}", times.machine),
        (None, Topology::Nodes { .. } | Topology::SharedMemory(_)) => format!(", {topology}"),
        (None, Topology::Uniform(_)) => String::new(),
    };
    let mut text = format!(
        "{}\nsimulated on {}{on}, in virtual time: {}\n",
        plan.name,
        counted(plan.world_size, "rank"),
        describe_end(simulated.end.as_ref()),
    );
    let blames = report.findings.iter().any(|finding| !finding.culprits.is_empty());
    if let Some(slow) = slow {
        let longer = "Give it longer with --timeout-ms, or make it smaller.";
        text.push_str(&format!(
            "slow, not stuck: without its timeouts it completes after {} of virtual time. {}\n",
            describe_ps(slow),
            if blames { "Who kept the others waiting for longer than that:" } else { longer }
        ));
    }
    // If no rank is to blame, the diagnosis of the timeout would be misleading.
    if slow.is_none() || blames {
        text.push_str(&report.to_text());
    }
    if report.verdict == Verdict::Healthy && Devices::leave_open(plan) {
        text.push_str(
            "This is one order of what the program leaves open; `lockstep explore` looks for one that \
             hangs.\n",
        );
    }
    text
}

/// A year, in milliseconds: longer than anything that can be planned takes.
const LONG_MS: u64 = 365 * 86_400_000;
