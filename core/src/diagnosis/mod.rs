//! Diagnosis: what went wrong in a trace, which ranks did it, and how to repair it.
//!
//! The same code reads simulations, runs and recordings, through [`CallLog`]. It is a pure
//! function: the order in which files were read, or ranks listed, never changes a finding, and no
//! rank is believed more than another because it was read first.

mod absent;
mod causes;
mod deadlock;
mod differing;
mod explain;
mod graph;
mod in_ddp;
mod index;
mod inside;
mod logged;
mod mismatch;
mod monitored;
mod p2p;
mod plan_diff;
mod report;
mod signature;
mod splits;
mod straggler;
mod text;
mod waits;
mod words;

pub use logged::add_log;
pub use report::{
    Certainty, Evidence, FINDINGS_SCHEMA, Finding, GroupRef, Kind, Report, Verdict, Wait,
};
pub use waits::who_waits;
pub use words::rank_list;

use crate::flight_recorder::{FileProblem, Recording, rank_of_file_name};
use crate::trace::{Call, CallLog, Called, Trace};
use signature::Signature;

/// Whether two calls under one number of a group cannot be the same collective, as far as both are
/// known.
pub fn calls_differ(a: &Call, b: &Call) -> bool {
    let (a, b) = (Called::from(a), Called::from(b));
    Signature::of(&a).difference(&Signature::of(&b)).is_some()
}

/// What is wrong in the calls of a job, most important first.
pub fn diagnose(log: &CallLog) -> Report {
    if log.recorded && log.logs().all(|(_, log)| log.calls.is_empty()) {
        let why = "The recording holds no calls: nothing can be judged. Record again while the job \
                   runs, with TORCH_FR_BUFFER_SIZE (or TORCH_NCCL_TRACE_BUFFER_SIZE) above 0.";
        return Report::unusable(log.world_size, why);
    }
    let (findings, notes) = causes::findings(&index::Job::of(log));
    let verdict = if findings.is_empty() { Verdict::Healthy } else { Verdict::Findings };
    Report { verdict, findings, notes, ..Report::healthy(log.world_size) }
}

/// What is wrong in a trace: [`diagnose`] of its calls.
pub fn diagnose_trace(trace: &Trace) -> Report {
    diagnose(&CallLog::of(trace))
}

/// What is wrong in a set of dumps: [`diagnose`] of their calls, with a note for every file that
/// could not be used.
pub fn diagnose_recording(recording: &Recording) -> Report {
    let mut report = diagnose(&recording.merged.log);
    for problem in &recording.problems {
        tell_unreadable(&mut report, problem);
    }
    report.notes.extend(recording.problems.iter().map(|problem| problem.error.to_string()));
    report
}

/// A rank whose dump is there but cannot be read is not known to have crashed: its finding says
/// so instead.
fn tell_unreadable(report: &mut Report, problem: &FileProblem) {
    let Ok(rank) = rank_of_file_name(&problem.file_name) else { return };
    let missing = report.findings.iter_mut().filter(|finding| finding.kind == Kind::RankMissing);
    for finding in missing.filter(|finding| finding.culprits.contains(&rank)) {
        let (name, error) = (&problem.file_name, &problem.error);
        finding.message =
            format!("The dump of rank {rank} ({name}) cannot be read. {}", finding.message);
        finding.certainty = Certainty::Undecidable;
        for evidence in finding.evidence.iter_mut().filter(|evidence| evidence.rank == rank) {
            evidence.note = format!("left a dump that cannot be read: {error}");
        }
    }
}

#[cfg(test)]
mod tests;
