//! `lockstep plan`: the plan of a scenario or a call, as a file.

use crate::plan_source::{PlanArguments, PlanOptions};
use crate::terminal;
use anyhow::{Context, Result, bail};
use lockstep_core::scenario;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write the plan of a scenario or a call of torch.distributed
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A scenario, a call (all_reduce, all_gather_object, …) or a plan file to convert
    #[arg(value_name = "SCENARIO|CALL|PLAN", required_unless_present = "list")]
    what: Option<String>,
    #[command(flatten)]
    options: PlanOptions,
    /// An MSCCL XML file that says how a collective is carried out
    #[arg(long, value_name = "FILE")]
    schedule: Option<PathBuf>,
    /// List the scenarios and the calls
    #[arg(long)]
    list: bool,
    /// Write the compact binary form instead of JSON
    #[arg(long)]
    binary: bool,
    /// Write to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    if arguments.list {
        terminal::print(list().as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(what) = arguments.what else { bail!("name a scenario, a call or a plan file") };
    let plan =
        PlanArguments { what, options: arguments.options, schedule: arguments.schedule }.plan()?;
    let bytes = match arguments.binary {
        true => plan.to_bytes(),
        false => (plan.to_json() + "\n").into_bytes(),
    };
    match arguments.output {
        Some(path) => std::fs::write(&path, bytes)
            .with_context(|| format!("cannot write {}", path.display()))?,
        None => terminal::print(&bytes)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list() -> String {
    let mut text = String::new();
    for scenario in scenario::all() {
        text.push_str(&format!("{}\n    {}. {}\n", scenario.id, scenario.title, scenario.story));
    }
    for call in scenario::torch_calls() {
        let backends = call.backends.join(", ");
        text.push_str(&format!("{}\n    {} [{backends}]\n", call.name, call.about));
    }
    text
}
