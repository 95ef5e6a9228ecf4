//! `lockstep run`: a plan for real, one process per rank, compared with the simulator.

use super::{describe, describe_ps, rank_launcher};
use crate::plan_source::PlanArguments;
use crate::{terminal, trace_file};
use anyhow::{Context, Result};
use lockstep_core::diagnosis::{Report, diagnose_trace};
use lockstep_core::group::BackendName;
use lockstep_core::plan::Plan;
use lockstep_core::trace::{Origin, Outcome, Trace};
use lockstep_core::words::counted;
use lockstep_gpu_exec::{Canceller, RunOptions};
use lockstep_sim::{Comparison, SimConfig, compare, simulate};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// What a shell reports of a command that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Run a plan for real, one process per rank, and compare it with the simulator
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    plan: PlanArguments,
    /// What carries it out
    #[arg(long, value_enum, default_value = "host")]
    backend: BackendChoice,
    /// Write the trace to a file: JSON if it ends in .json, else binary
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The backends that a run can ask for.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum BackendChoice {
    /// Processes on this machine, data through shared memory
    Host,
    /// GPUs, through NVIDIA's library
    Nccl,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Ran<'a> {
    schema: &'static str,
    outcome: Option<&'a Outcome>,
    time_ps: u64,
    events: usize,
    findings: &'a Report,
    /// Against the simulator; none when it could not simulate the plan.
    comparison: Option<&'a Comparison>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let plan = arguments.plan.plan()?;
    let name = match arguments.backend {
        BackendChoice::Host => BackendName::Host,
        BackendChoice::Nccl => BackendName::Nccl,
    };
    let backend = lockstep_gpu_exec::backend(name, rank_launcher()?)?;
    let handle = backend.start(plan.clone(), RunOptions::default())?;
    cancel_on_signal(handle.canceller())?;
    let trace = handle.into_trace();
    if let Some(path) = &arguments.output {
        trace_file::write(path, &trace)?;
    }
    let report = diagnose_trace(&trace);
    let comparison = against_simulation(&plan, &trace);
    let text = match arguments.json {
        true => as_json(&trace, &report, comparison.as_ref())?,
        false => as_text(&plan, &trace, &report, comparison.as_ref()),
    };
    terminal::print(text.as_bytes())?;
    let outcome = trace.end.map(|end| end.outcome);
    if outcome == Some(Outcome::Cancelled) {
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let differs = comparison.is_some_and(|comparison| !comparison.differences.is_empty());
    let failed = outcome != Some(Outcome::Completed) || differs;
    Ok(ExitCode::from(report.verdict.exit_code().max(u8::from(failed))))
}

/// Compares what a run left with what the simulator says; `None` when it cannot simulate the plan.
pub(crate) fn against_simulation(plan: &Plan, ran: &Trace) -> Option<Comparison> {
    let config = SimConfig { record_messages: false, ..SimConfig::default() };
    let simulated = simulate(plan, &config).ok()?;
    Some(compare(plan, &simulated, ran))
}

/// Ends the run on Ctrl-C or SIGTERM, as cancelled. The handler lives as long as the process.
fn cancel_on_signal(canceller: Canceller) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("cannot listen for Ctrl-C")?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        use tokio::signal::unix::{SignalKind, signal};
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            canceller.cancel();
        });
    });
    Ok(())
}

fn as_json(trace: &Trace, report: &Report, comparison: Option<&Comparison>) -> Result<String> {
    let ran = Ran {
        schema: "lockstep.run/1",
        outcome: trace.end.as_ref().map(|end| &end.outcome),
        time_ps: trace.end.as_ref().map_or(0, |end| end.time_ps),
        events: trace.events.len(),
        findings: report,
        comparison,
    };
    Ok(serde_json::to_string_pretty(&ran)? + "\n")
}

fn as_text(plan: &Plan, trace: &Trace, report: &Report, comparison: Option<&Comparison>) -> String {
    let on = match &trace.header.origin {
        Origin::Run { backend, device } => format!("{backend}, {device}"),
        _ => "unknown device".into(),
    };
    let end = trace.end.as_ref();
    let mut text = format!(
        "{}\nrun on {} ({on}): {} after {}\n{}{}",
        plan.name,
        counted(plan.world_size, "rank"),
        describe(end.map(|end| &end.outcome)),
        describe_ps(end.map_or(0, |end| end.time_ps)),
        trace.header.stand_in().map(|words| words + "\n").unwrap_or_default(),
        report.to_text()
    );
    match comparison {
        None => {
            text.push_str("values: the simulator cannot simulate this plan, nothing was compared\n")
        }
        Some(_) if plan.tensors.is_empty() => {
            text.push_str("values: the plan has no tensors, so there are none to compare\n");
        }
        Some(compared) => text.push_str(&describe_comparison(compared)),
    }
    text
}

fn describe_comparison(compared: &Comparison) -> String {
    if compared.tensors == 0 && compared.only_in_one > 0 {
        let calls = &compared.calls;
        let mut text = format!(
            "values: not compared, the plan's tensors are too large to be simulated with values\n\
             calls: {} of {} equal the simulator's, in order and in size\n",
            calls.equal,
            counted(calls.calls, "call")
        );
        if let Some(difference) = &calls.first_difference {
            text.push_str(&format!("    {difference}\n"));
        }
        return text;
    }
    if compared.tensors == 0 {
        return "values: no rank of both the run and the simulation finished with a tensor\n"
            .into();
    }
    let mut text = format!(
        "values: {} of {} ({}) equal the simulator's to the bit\n",
        compared.equal,
        counted(compared.tensors, "tensor"),
        counted(compared.elements, "element")
    );
    for difference in &compared.differences {
        let element = difference.element.map(|element| format!("[{element}]")).unwrap_or_default();
        text.push_str(&format!(
            "    rank {}, {}{element}: simulated {}, ran {}\n",
            difference.rank, difference.name, difference.left, difference.right
        ));
    }
    if compared.only_in_one > 0 {
        text.push_str(&format!("    {} tensors are only in one of them\n", compared.only_in_one));
    }
    text
}
