//! `lockstep diagnose`: what went wrong in a recording.

use crate::recording::Recording;
use crate::{files, terminal};
use anyhow::Result;
use lockstep_core::diagnosis::Report;
use std::path::PathBuf;
use std::process::ExitCode;

/// Say what went wrong in what a job left: Flight Recorder dumps, logs, profiles, or a trace
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The dumps, logs and profiles of one job, folders or archives of them, or one Lockstep trace
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Print JSON: the schema lockstep.findings/1
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    let report = match diagnose(&arguments.paths) {
        Ok(report) => report,
        // Scripts get the same document whether or not there was anything to judge.
        Err(error) if arguments.json => Report::unusable(0, format!("{error:#}")),
        Err(error) => return Err(error),
    };
    let text = match arguments.json {
        true => serde_json::to_string_pretty(&report)? + "\n",
        false => report.to_text(),
    };
    terminal::print(text.as_bytes())?;
    Ok(ExitCode::from(report.verdict.exit_code()))
}

fn diagnose(paths: &[PathBuf]) -> Result<Report> {
    let mut recording = Recording::default();
    recording.add_files(files::below(paths)?)?;
    Ok(recording.read()?.report)
}
