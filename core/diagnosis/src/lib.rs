//! Diagnosis: what went wrong in a trace, which ranks did it, and how to repair it.
//!
//! The same code reads simulations, runs and recordings, through [`CallLog`]. It is a pure
//! function: the order in which files were read, or ranks listed, never changes a finding, and no
//! rank is believed more than another because it was read first.

mod claim;
mod decide;
mod facts;
mod folded;
mod kinds;
mod ladder;
mod logs;
pub mod markdown;
mod model;
mod recorded_job;
mod repair;
mod report;
mod rules;
mod run_end;
mod terminal_text;
mod unseen;
mod wait_causes;
mod waits;
mod words;

pub use kinds::{Explanation, Kind, findings_page};
pub use lockstep_formats::frames::StackPart;
pub use lockstep_formats::place::Place;
pub use recorded_job::{DiagnosedJob, diagnose_files, diagnose_job};
pub use repair::{Change, TriedRepair};
pub use report::{
    Certainty, Evidence, FINDINGS_SCHEMA, Finding, GroupRef, Ladder, LadderCall, LadderSide,
    LadderStep, Report, Rung, Verdict, Wait,
};
pub use unseen::not_followed;
pub use wait_causes::{WaitGroup, WaitedCall, wait_causes};
pub use waits::who_waits;

use decide::Decided;
use facts::other_sources::{OtherSources, UnreadableDump};
use lockstep_core::group::BackendName;
use lockstep_core::trace::{CallLog, CallState, Origin, Trace};
use lockstep_core::trace::{job_folder_of, rank_of_file_name};
use lockstep_formats::flight_recorder::Recording;
use lockstep_formats::job_calls::Shows;
use lockstep_formats::problem::{FileProblem, ProblemKind};
use model::index::Job;
use std::collections::BTreeSet;

/// The findings of the calls of a job, most important first.
pub fn diagnose(log: &CallLog) -> Report {
    diagnose_with(log, &OtherSources::default())
}

/// The same of a job of which other sources tell as well.
pub(crate) fn diagnose_with(log: &CallLog, sources: &OtherSources<'_>) -> Report {
    if let Some(why) = no_calls(log, sources.shows) {
        return diagnose_logs(Report::unusable(log.world_size, why), sources);
    }
    let Decided { findings, notes, world_size } = decide::of_calls(&Job::of(log), sources);
    let unseen = match sources.shows {
        Some(Shows::ObservedOrder | Shows::CallOrder) => unseen::without_ends(log),
        _ => unseen::reasons(log),
    };
    let mut report = Report { findings, unseen, notes, ..Report::healthy(world_size) };
    if !log.recorded && !log.simulated {
        run_end::tell(&mut report, log);
    }
    report.judged()
}

/// Adds to a report of no calls what the logs say.
pub(crate) fn diagnose_logs(mut report: Report, sources: &OtherSources<'_>) -> Report {
    let decided = decide::of_logs(sources, report.world_size);
    (report.findings, report.world_size) = (decided.findings, decided.world_size);
    report.notes.extend(decided.notes);
    report.judged()
}

/// The reason that a recording without calls cannot be judged.
fn no_calls(log: &CallLog, shows: Option<Shows>) -> Option<&'static str> {
    if !log.logs().all(|(_, own)| own.calls.is_empty()) {
        return None;
    }
    match shows {
        Some(Shows::CallOrder) => Some(
            "NCCL's log names no calls: nothing can be judged. Set NCCL_DEBUG_SUBSYS=INIT,COLL beside \
             NCCL_DEBUG=INFO.",
        ),
        _ if !log.recorded => None,
        _ => Some(
            "The recording holds no calls: nothing can be judged. Either these ranks had made none yet, or the \
             recorder was off. Record again when the job hangs, with TORCH_FR_BUFFER_SIZE (or \
             TORCH_NCCL_TRACE_BUFFER_SIZE) above 0.",
        ),
    }
}

/// The findings of a trace: [`diagnose`] of its calls.
pub fn diagnose_trace(trace: &Trace) -> Report {
    diagnose(&CallLog::of(trace))
}

/// The same of a trace to which nothing more will come: a run's that has no end is one of a run that was
/// broken off.
pub fn diagnose_whole_trace(trace: &Trace) -> Report {
    diagnose_whole(trace, &CallLog::of(trace))
}

/// The same of one whose calls were looked up before.
pub fn diagnose_whole(trace: &Trace, log: &CallLog) -> Report {
    let mut report = diagnose(log);
    if matches!(trace.header.origin, Origin::Run { .. }) && trace.end.is_none() {
        run_end::broken_off(&mut report, log);
        report.unseen = unseen::reasons(log);
    } else if trace.end.is_none() && !log.recorded && !report.findings.is_empty() {
        report.notes.push(
            "This trace has no end: it was cut off, and what came behind what is here is not known.".to_owned(),
        );
    }
    report.judged()
}

/// The findings of a set of dumps: [`diagnose`] of their calls, with a note for every file that
/// could not be used.
pub fn diagnose_recording(recording: &Recording) -> Report {
    diagnose_dumps(recording, OtherSources::default())
}

/// The same of dumps with the job's other sources.
pub(crate) fn diagnose_dumps(recording: &Recording, sources: OtherSources<'_>) -> Report {
    // A file in another job's folder is that job's.
    let left_out = recording
        .problems
        .iter()
        .filter(|problem| problem.kind == ProblemKind::OtherSet && !problem.file_name.is_empty());
    let left_out: BTreeSet<&str> = left_out.map(|problem| problem.file_name.as_str()).collect();
    // A rank's log carries its number as well; files that were left out could be read.
    let unreadable = recording.problems.iter().filter(|problem| {
        problem.kind == ProblemKind::Unreadable
            && !left_out.contains(job_folder_of(&problem.file_name))
    });
    let unreadable = unreadable.filter_map(|problem| {
        let rank = rank_of_file_name(&problem.file_name).ok()?;
        let (file_name, error) = (problem.file_name.clone(), problem.why.clone());
        Some(UnreadableDump { rank, file_name, error })
    });
    let sources =
        OtherSources { unreadable: unreadable.collect(), shows: Some(Shows::LastCalls), ..sources };
    let mut report = diagnose_with(&recording.merged.log, &sources);
    if report.verdict == Verdict::Healthy && idle_on_gloo(&recording.merged.log) {
        report.notes.push(
            "No call is under way in these dumps. gloo records neither sends and receives nor \
             new_group: a job that hangs in one of those looks like this."
                .to_owned(),
        );
    }
    let text = |problem: &&FileProblem| problem.kind == ProblemKind::Text;
    let (texts, others): (Vec<_>, Vec<_>) = recording.problems.iter().partition(text);
    let same = |problem: &&FileProblem| problem.kind == ProblemKind::SameContent;
    let (same, others): (Vec<_>, Vec<_>) = others.into_iter().partition(same);
    report.notes.extend(others.iter().map(|problem| problem.why.clone()));
    report.notes.extend(of_several(&same, "files hold what other dumps do, and were left out"));
    report.notes.extend(of_several(&texts, "files are text, and no dumps"));
    report
}

/// True if all calls have ended, on a backend that does not record all that can hang.
fn idle_on_gloo(log: &CallLog) -> bool {
    let gloo = log.groups.iter().any(|group| group.backend() == BackendName::Gloo);
    let mut calls = log.logs().flat_map(|(_, log)| &log.calls);
    gloo && calls.all(|record| record.state == CallState::Completed)
}

/// One note for all files of which the same is to be said: every rank has its log in a folder, and its
/// dump as JSON in another.
fn of_several(problems: &[&FileProblem], what: &str) -> Option<String> {
    const SHOWN: usize = 3;
    let names: Vec<&str> =
        problems.iter().take(SHOWN).map(|problem| problem.file_name.as_str()).collect();
    let more = match problems.len().checked_sub(SHOWN) {
        None | Some(0) => String::new(),
        Some(more) => format!(" and {more} more"),
    };
    match problems {
        [] => None,
        [only] => Some(only.why.clone()),
        many => Some(format!("{} {what}: {}{more}.", many.len(), names.join(", "))),
    }
}

/// The findings of calls from another source than dumps, with the job's other sources.
pub(crate) fn diagnose_other(
    log: &CallLog,
    shows: Shows,
    notes: Vec<String>,
    sources: OtherSources<'_>,
) -> Report {
    let sources = OtherSources { shows: Some(shows), ..sources };
    let mut report = diagnose_with(log, &sources);
    report.notes.extend(notes);
    report
}

#[cfg(test)]
mod tests;
