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
mod markdown;
mod model;
mod recorded_job;
mod report;
mod rules;
mod run_end;
mod terminal_text;
mod unseen;
mod waits;
mod words;

pub use kinds::{Explanation, Kind, findings_page};
pub use logs::add_log;
pub use recorded_job::{DiagnosedJob, diagnose_files, diagnose_job};
pub use report::{
    Certainty, Evidence, FINDINGS_SCHEMA, Finding, GroupRef, Ladder, LadderCall, LadderSide,
    LadderStep, Report, Rung, Verdict, Wait,
};
pub use unseen::not_followed;
pub use waits::who_waits;

use lockstep_core::group::BackendName;
use lockstep_core::trace::{CallLog, CallState, Origin, Trace};
use lockstep_core::trace::{job_folder_of, rank_of_file_name};
use lockstep_formats::flight_recorder::Recording;
use lockstep_formats::problem::{FileProblem, ProblemKind};
use std::collections::BTreeSet;

/// What is wrong in the calls of a job, most important first.
pub fn diagnose(log: &CallLog) -> Report {
    if log.recorded && log.logs().all(|(_, log)| log.calls.is_empty()) {
        let why = "The recording holds no calls: nothing can be judged. Either these ranks had made none \
                   yet, or the recorder was off. Record again when the job hangs, with \
                   TORCH_FR_BUFFER_SIZE (or TORCH_NCCL_TRACE_BUFFER_SIZE) above 0.";
        return Report::unusable(log.world_size, why);
    }
    let (findings, notes) = decide::findings(&model::index::Job::of(log));
    let unseen = unseen::reasons(log);
    let mut report = Report { findings, unseen, notes, ..Report::healthy(log.world_size) };
    if !log.recorded && !log.simulated {
        run_end::tell(&mut report, log);
    }
    report.judged()
}

/// What is wrong in a trace: [`diagnose`] of its calls.
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
    }
    report.judged()
}

/// What is wrong in a set of dumps: [`diagnose`] of their calls, with a note for every file that
/// could not be used.
pub fn diagnose_recording(recording: &Recording) -> Report {
    let mut report = diagnose(&recording.merged.log);
    // What lies in another job's folder is that job's.
    let left_out = recording
        .problems
        .iter()
        .filter(|problem| problem.kind == ProblemKind::OtherSet && !problem.file_name.is_empty());
    let left_out: BTreeSet<&str> = left_out.map(|problem| problem.file_name.as_str()).collect();
    for problem in &recording.problems {
        if !left_out.contains(job_folder_of(&problem.file_name)) {
            tell_unreadable(&mut report, problem);
        }
    }
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

/// What is wrong in the calls that NCCL's log tells of: [`diagnose`], as sure as a log can be that
/// does not tell which calls ended. `notes` are what else is to be said of them.
pub fn diagnose_nccl(log: &CallLog, notes: Vec<String>) -> Report {
    let mut report = diagnose(log);
    if log.logs().all(|(_, log)| log.calls.is_empty()) {
        let why = "NCCL's log names no calls: nothing can be judged. Set \
                   NCCL_DEBUG_SUBSYS=INIT,COLL beside NCCL_DEBUG=INFO.";
        report = Report::unusable(log.world_size, why);
    }
    for finding in &mut report.findings {
        // Two calls that differ, differ; who has not come may only not have come yet.
        let differs = matches!(
            finding.kind,
            Kind::CollectiveMismatch
                | Kind::SizeMismatch
                | Kind::DtypeMismatch
                | Kind::ReduceOpMismatch
                | Kind::RootMismatch
        );
        if !differs {
            finding.certainty = finding.certainty.max(Certainty::Likely);
        }
    }
    report.unseen =
        vec!["NCCL's log tells which calls were made, and not which of them ended.".to_owned()];
    report.notes.extend(notes);
    report.judged()
}

/// What is wrong in the calls that profiles tell of: [`diagnose`]. A rank without a profile was not
/// profiled, which is nothing wrong; `notes` are what else is to be said of them.
pub fn diagnose_profiles(log: &CallLog, notes: Vec<String>) -> Report {
    let mut report = diagnose(log);
    report.findings.retain(|finding| finding.kind != Kind::RankMissing);
    report.unseen = unseen::reasons(log);
    report.notes.extend(notes);
    report.judged()
}

/// A rank whose dump is there but cannot be read is not known to have crashed, nor to be missed where
/// others wait: its finding says so instead.
fn tell_unreadable(report: &mut Report, problem: &FileProblem) {
    // A rank's log carries its number as well; files that were left out could be read.
    if problem.kind != ProblemKind::Unreadable {
        return;
    }
    let Ok(rank) = rank_of_file_name(&problem.file_name) else { return };
    let missing = report.findings.iter_mut().filter(|finding| finding.kind == Kind::RankMissing);
    for finding in missing.filter(|finding| finding.culprits.contains(&rank)) {
        let (name, error) = (&problem.file_name, &problem.why);
        // What is most likely of a rank that left nothing is not of one that left a file.
        let ends = [" Most likely ", " Either ", " But "];
        let cut = ends.iter().filter_map(|end| finding.message.find(end)).min();
        let known = cut.and_then(|cut| finding.message.get(..cut)).unwrap_or(&finding.message);
        finding.message = format!(
            "The dump of rank {rank} ({name}) cannot be read. {known} What is wrong with a file says nothing \
             of its rank: it may have been in that call as well."
        );
        finding.certainty = Certainty::Undecidable;
        "Copy the dump again from where the rank wrote it, as a whole. If there is no more of it, look at \
         the end of the rank's own log."
            .clone_into(&mut finding.fix);
        for evidence in finding.evidence.iter_mut().filter(|evidence| evidence.rank == rank) {
            evidence.note = format!("left a dump that cannot be read: {error}");
        }
    }
}

#[cfg(test)]
mod tests;
