//! `lockstep repair`: the change that would mend a recorded job, tried in the simulator.

use crate::output_file::{FileKind, Overwrite, write_plan};
use crate::plan_source::Replayable;
use crate::progress::Progress;
use crate::terminal;
use anyhow::{Result, bail};
use lockstep_diagnosis::TriedRepair;
use lockstep_replay::{Assumption, RepairError};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Change a recorded job so that its first finding is mended, and prove it by simulating the changed job
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The dumps, logs and profiles of one job, folders or archives of them, or one Lockstep trace
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Write the repaired plan, for `lockstep sim` and `lockstep run`; to a .py file as a program
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    overwrite: Overwrite,
    /// Print JSON: the schema lockstep.repair/1
    #[arg(long)]
    json: bool,
}

/// The JSON that `--json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    schema: &'static str,
    /// The kind of finding that is repaired: `op_skipped`.
    kind: &'static str,
    repair: &'a TriedRepair,
    /// The assumptions of the replay, a clause each.
    assumed: &'a [Assumption],
}

pub(crate) fn run(arguments: Arguments, progress: &Progress) -> Result<ExitCode> {
    let inputs: Vec<&Path> = arguments.paths.iter().map(PathBuf::as_path).collect();
    if let Some(path) = &arguments.output {
        arguments.overwrite.check(path, FileKind::Plan, &inputs)?;
    }
    let replayable = Replayable::read(&inputs, progress)?;
    let repair = match replayable.repair(progress) {
        Err(RepairError::Stopped { change }) => {
            bail!(
                "stopped by Ctrl-C before the change was simulated to its end: {}",
                change.words()
            )
        }
        repair => repair?,
    };
    if let Some(path) = &arguments.output {
        write_plan(path, &repair.plan)?;
    }
    let assumed = &replayable.recovered.assumed;
    let kind = replayable.read.report.findings.first().map(|finding| finding.kind);
    let text = match arguments.json {
        true => {
            let (schema, kind) = ("lockstep.repair/1", kind.map_or("", |kind| kind.name()));
            let repair = &repair.tried;
            serde_json::to_string_pretty(&Printed { schema, kind, repair, assumed })? + "\n"
        }
        false => {
            let title = kind.map_or("", |kind| kind.title());
            let tried = &repair.tried;
            let mut text = format!(
                "{title}\nchange    {}\n{:<10}{}\n",
                tried.change.words(),
                tried.verdict(),
                tried.why
            );
            for assumption in assumed {
                text.push_str(&format!("assumed   {assumption}\n"));
            }
            text
        }
    };
    terminal::text(&text)?;
    Ok(ExitCode::from(u8::from(!repair.tried.verified)))
}
