//! `lockstep analyze`: where the time of a job went, and the critical path across its ranks.

use crate::plan_source::{FaultOptions, Found, LinkOptions, PlanArguments, Replayable};
use crate::progress::Progress;
use crate::recording::Held;
use crate::terminal;
use anyhow::{Result, bail};
use lockstep_analysis::{Activity, Analysis};
use lockstep_core::plan::Plan;
use lockstep_core::trace::{CallLog, Trace};
use lockstep_sim::{SimConfig, SimError, simulate_watched};
use std::process::ExitCode;

/// Say where the time of a job went: computing, exposed communication, waiting for late ranks, the critical path
#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    plan: PlanArguments,
    #[command(flatten)]
    links: LinkOptions,
    #[command(flatten)]
    faults: FaultOptions,
    /// Print JSON: the schema lockstep.analysis/1
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments, progress: &Progress) -> Result<ExitCode> {
    let activity = activity(&arguments, progress)?;
    let stage = progress.stage("analysing");
    let analysis = Analysis::of(&activity);
    drop(stage);
    if analysis.ranks.iter().all(|rank| rank.total == lockstep_analysis::Share::default()) {
        bail!("nothing that takes time was recorded: there is nothing to analyse");
    }
    let text = match arguments.json {
        true => serde_json::to_string_pretty(&analysis)? + "\n",
        false => analysis.to_text(),
    };
    terminal::text(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Reports that a trace was cut off: all that follows is about the part that is left.
pub(super) fn tell_of_cut(trace: &Trace) {
    if trace.end.is_none() {
        terminal::note(
            "lockstep: the trace has no end: it was cut off, or what wrote it still runs. Only what is there is used",
        );
    }
}

/// Reads the activity of a recording, or simulates the plan.
fn activity(arguments: &Arguments, progress: &Progress) -> Result<Activity> {
    if arguments.plan.is_recorded()? {
        let read = Replayable::read_only(&arguments.plan.paths(), progress)?;
        if let Some(part) = &read.unread {
            terminal::note(&format!(
                "lockstep: stopped by Ctrl-C: {part}, and the analysis is of those"
            ));
        }
        let told = |note: &&String| read.unread.as_ref().is_none_or(|part| !note.contains(part));
        for note in read.report.notes.iter().filter(told) {
            terminal::note(&format!("lockstep: {note}"));
        }
        return match &read.held {
            Held::Trace(trace) => {
                tell_of_cut(trace);
                Ok(Activity::of_trace(trace))
            }
            Held::Merged(merged) => Ok(Activity::of_calls(&merged.log)),
            Held::Log => bail!("a log alone tells of no times: add the job's dumps or profiles"),
        };
    }
    let Found { plan, said, .. } = arguments.plan.find(progress)?;
    let said = said.with_faults(&plan, &arguments.faults.faults);
    let plan: Plan = arguments.faults.simulated(plan)?;
    let config = SimConfig { record_messages: false, ..arguments.links.config(&plan)? };
    let mut stage = progress.stage("simulating");
    let simulated = simulate_watched(&plan, &config, &mut stage);
    drop(stage);
    let trace = match simulated {
        Err(SimError::Stopped(so_far)) => {
            let end = super::describe_end(so_far.end.as_ref());
            terminal::note(&format!(
                "lockstep: stopped by Ctrl-C; this simulation {end}, and the analysis is of that"
            ));
            *so_far
        }
        simulated => simulated?,
    };
    said.tell(Some(&CallLog::of(&trace)));
    Ok(Activity::of_trace(&trace))
}
