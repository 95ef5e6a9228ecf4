//! `lockstep sim`: a plan in virtual time.

use super::{describe, describe_ps};
use crate::plan_source::PlanArguments;
use crate::{terminal, trace_file};
use anyhow::Result;
use lockstep_core::diagnosis::{Report, diagnose_trace};
use lockstep_core::trace::{Outcome, Trace};
use lockstep_sim::{SimConfig, simulate};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// Simulate a plan and say what happens
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    plan: PlanArguments,
    /// Write the trace to a file: JSON if it ends in .json, else binary
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Simulated<'a> {
    schema: &'static str,
    outcome: Option<&'a Outcome>,
    time_ps: u64,
    events: usize,
    findings: &'a Report,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let plan = arguments.plan.plan()?;
    let trace = simulate(&plan, &SimConfig::default())?;
    if let Some(path) = &arguments.output {
        trace_file::write(path, &trace)?;
    }
    let report = diagnose_trace(&trace);
    let text = match arguments.json {
        true => as_json(&trace, &report)?,
        false => as_text(&plan.name, &trace, &report),
    };
    terminal::print(text.as_bytes())?;
    let completed = trace.end.is_some_and(|end| end.outcome == Outcome::Completed);
    Ok(ExitCode::from(report.verdict.exit_code().max(u8::from(!completed))))
}

fn as_json(trace: &Trace, report: &Report) -> Result<String> {
    let simulated = Simulated {
        schema: "lockstep.sim/1",
        outcome: trace.end.as_ref().map(|end| &end.outcome),
        time_ps: trace.end.as_ref().map_or(0, |end| end.time_ps),
        events: trace.events.len(),
        findings: report,
    };
    Ok(serde_json::to_string_pretty(&simulated)? + "\n")
}

fn as_text(name: &str, trace: &Trace, report: &Report) -> String {
    let end = trace.end.as_ref();
    format!(
        "{name}\nsimulated on {} ranks: {} after {} of virtual time\n{}",
        trace.header.world_size,
        describe(end.map(|end| &end.outcome)),
        describe_ps(end.map_or(0, |end| end.time_ps)),
        report.to_text()
    )
}
