//! `lockstep diagnose`: finds the problems in a recording.

use crate::exit_rule::ExitRule;
use crate::output_file::Overwrite;
use crate::plan_source::JUDGING;
use crate::progress::Progress;
use crate::recording::{Held, Recording};
use crate::written_report::ReportFile;
use crate::{files, terminal};
use anyhow::{Result, bail};
use lockstep_core::trace::CallLog;
use lockstep_diagnosis::Report;
use lockstep_replay::with_tried_repairs;
use std::path::{Path, PathBuf};
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
    /// Also write the answer to a file to send: Markdown (.md) or a page of its own (.html)
    #[arg(long, value_name = "FILE")]
    report: Option<ReportFile>,
    #[command(flatten)]
    overwrite: Overwrite,
    #[command(flatten)]
    exit: ExitRule,
}

pub(crate) fn run(arguments: Arguments, progress: &Progress) -> Result<ExitCode> {
    if let Some(file) = &arguments.report {
        let inputs: Vec<&Path> = arguments.paths.iter().map(PathBuf::as_path).collect();
        file.check(arguments.overwrite, &inputs)?;
    }
    let report = match diagnose(&arguments.paths, progress) {
        Ok(report) => report,
        // Scripts get the same document whether or not there was anything to judge.
        Err(error) if arguments.json => Report::unusable(0, format!("{error:#}")),
        Err(error) => return Err(error),
    };
    let text = match arguments.json {
        true => serde_json::to_string_pretty(&report)? + "\n",
        false => report.to_text(),
    };
    if let Some(file) = &arguments.report {
        file.write(&report)?;
    }
    terminal::text(&text)?;
    Ok(ExitCode::from(arguments.exit.code(report.verdict)))
}

fn diagnose(paths: &[PathBuf], progress: &Progress) -> Result<Report> {
    let mut recording = Recording::default();
    recording.add_files(files::below(paths)?, progress)?;
    // Below a job's dumps lie other forms of them; below its log lie the logs of its ranks.
    let passed_over = files::passed_over(paths).into_iter().map(|folder| {
        let folder = folder.display();
        format!(
            "Folders in {folder} were not read, since it holds files itself: name them to have them \
             read as well"
        )
    });
    let passed_over: Vec<String> = passed_over.collect();
    let judging = progress.stage(JUDGING);
    let read = recording.read();
    drop(judging);
    let mut read = match read {
        Err(error) if !passed_over.is_empty() => bail!("{error:#}. {}", passed_over.join(". ")),
        read => read?,
    };
    if let Held::Log = read.held {
        read.report.notes.extend(passed_over);
    }
    let report = read.report;
    let trying = || progress.stage("trying the repairs");
    Ok(match read.held {
        Held::Merged(merged) => with_tried_repairs(report, &merged.log, &mut trying()),
        Held::Trace(trace) => with_tried_repairs(report, &CallLog::of(&trace), &mut trying()),
        Held::Log => report,
    })
}
