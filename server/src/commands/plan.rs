//! `lockstep plan`: the plan of a scenario or a call, as a file.

use crate::output_file::{FileKind, Overwrite, write_whole};
use crate::plan_source::{PlanArguments, PlanOptions};
use crate::progress::Progress;
use crate::terminal;
use anyhow::{Result, bail};
use lockstep_core::plan::Plan;
use lockstep_replay::python_program;
use lockstep_torch::c10d::support::Documents;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Write the plan of a scenario or a call of torch.distributed
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A scenario, a call (all_reduce, all_gather_object, …) or a plan file to convert
    #[arg(value_name = "SCENARIO|CALL|PLAN", required_unless_present_any = ["list", "backends"])]
    what: Option<String>,
    /// More files of the same recording
    #[arg(value_name = "PATH")]
    more: Vec<PathBuf>,
    #[command(flatten)]
    options: PlanOptions,
    /// An MSCCL XML file that says how a collective is carried out
    #[arg(long, value_name = "FILE")]
    schedule: Option<PathBuf>,
    /// Arguments of a program, behind `--`: what its argparse gets
    #[arg(value_name = "ARGUMENT", last = true)]
    program_arguments: Vec<String>,
    /// List the scenarios and the calls
    #[arg(long)]
    list: bool,
    /// Show which call works on which device with which backend, as PyTorch's documents say
    #[arg(long, conflicts_with_all = ["what", "list", "output", "binary", "schedule"])]
    backends: bool,
    /// Write the compact binary form instead of JSON
    #[arg(long)]
    binary: bool,
    /// Write to a file instead of standard output; to a .py file a program that makes the same calls
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
}

pub(crate) fn run(arguments: Arguments, progress: &Progress) -> Result<ExitCode> {
    if arguments.list {
        terminal::print(list().as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.backends {
        terminal::print(backends().as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(what) = arguments.what else { bail!("name a scenario, a call or a plan file") };
    let Arguments { more, options, schedule, program_arguments, .. } = arguments;
    let named = PlanArguments { what, more, options, schedule, arguments: program_arguments };
    let plan = named.plan(progress)?;
    let is_python = |path: &Path| path.extension().is_some_and(|extension| extension == "py");
    let Some(path) = &arguments.output else {
        let bytes = match arguments.binary {
            true => plan.to_bytes(),
            false => (plan.to_json() + "\n").into_bytes(),
        };
        terminal::print(&bytes)?;
        return Ok(ExitCode::SUCCESS);
    };
    arguments.overwrite.check(path, FileKind::Plan, &named.paths())?;
    let is_json = path.extension().is_some_and(|extension| extension == "json");
    match arguments.binary {
        true if is_python(path) => {
            bail!("--binary writes a plan, and a .py file is a program: leave one of them out")
        }
        false if is_python(path) => {
            let text = python_program(&plan)?;
            write_whole(path, |out| Ok(out.write_all(text.as_bytes())?))?;
        }
        false if is_json || ops_of(&plan) <= LARGE_OPS => {
            write_whole(path, |out| {
                plan.write_json(&mut *out)?;
                Ok(out.write_all(b"\n")?)
            })?;
        }
        binary => {
            if !binary {
                terminal::note(
                    "lockstep: the plan is large, and written in the binary form: name it .json for JSON",
                );
            }
            write_whole(path, |out| Ok(plan.write_bytes(out)?))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A plan of more operations is only written as JSON to a file that is named so.
const LARGE_OPS: usize = 1_000_000;

fn ops_of(plan: &Plan) -> usize {
    plan.programs.iter().map(|program| program.ops.len()).sum()
}

fn list() -> String {
    let mut text = String::new();
    for scenario in lockstep_scenarios::all() {
        text.push_str(&format!("{}\n    {}. {}\n", scenario.id, scenario.title, scenario.story));
    }
    for call in lockstep_scenarios::torch_calls() {
        let backends = call.backends.join(", ");
        text.push_str(&format!("{}\n    {} [{backends}]\n", call.name, call.about));
    }
    text
}

/// The tables of PyTorch's documents, the newest first.
fn backends() -> String {
    let mut tables: Vec<String> = Documents::ALL.into_iter().rev().map(table).collect();
    tables.push("✓ works, ✘ does not, ? depends on how the backend was built\n".to_owned());
    tables.join("\n")
}

fn table(documents: Documents) -> String {
    const CALL: usize = 16;
    const CELL: usize = 6;
    let mut text = format!("PyTorch {}\n{:CALL$}", documents.version(), "");
    for column in documents.columns() {
        text.push_str(&format!("{:<width$}", column.name(), width = 2 * CELL));
    }
    text.push_str(&format!("\n{:CALL$}", ""));
    for _ in documents.columns() {
        text.push_str(&format!("{:CELL$}{:CELL$}", "CPU", "GPU"));
    }
    text.push('\n');
    for (call, cells) in documents.rows() {
        text.push_str(&format!("{call:CALL$}"));
        for support in cells.into_iter().flatten() {
            text.push_str(&format!("{:CELL$}", support.to_string()));
        }
        text.push('\n');
    }
    let lines = text.lines().map(str::trim_end);
    let mut text = lines.collect::<Vec<_>>().join("\n") + "\n";
    for (column, call, note) in documents.notes() {
        text.push_str(&format!("{call} on {}: {note}.\n", column.name()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of both documents, as they are printed there.
    #[test]
    fn both_tables_are_shown() {
        let text = backends();
        let lines: Vec<String> = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for line in [
            "PyTorch 2.7",
            "gloo mpi nccl",
            "all_reduce ✓ ✓ ✓ ? ✘ ✓",
            "reduce_scatter ✘ ✘ ✘ ✘ ✘ ✓",
            "all_to_all ✘ ✘ ✓ ? ✘ ✓",
            "PyTorch 0.4",
            "tcp gloo mpi nccl",
            "send ✓ ✘ ✘ ✘ ✓ ? ✘ ✘",
            "barrier ✓ ✘ ✓ ✓ ✓ ? ✘ ✘",
        ] {
            assert!(lines.iter().any(|known| known == line), "{line} is not in\n{text}");
        }
        assert_eq!(
            lines.iter().filter(|line| line.starts_with("all_to_all ")).count(),
            2,
            "{text}"
        );
    }
}
