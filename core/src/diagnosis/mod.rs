//! Diagnosis: what went wrong in a trace, which ranks did it, and how to repair it.
//!
//! The same code reads simulations, runs and recordings, through [`CallLog`]. It is a pure
//! function: the order in which files were read, or ranks listed, never changes a finding, and no
//! rank is believed more than another because it was read first.

mod report;

pub use report::{
    Certainty, Evidence, FINDINGS_SCHEMA, Finding, GroupRef, Kind, Report, Verdict, Wait,
};

use crate::trace::{CallLog, Trace};

/// What is wrong in the calls of a job, most important first.
pub fn diagnose(log: &CallLog) -> Report {
    Report::healthy(log.world_size)
}

/// What is wrong in a trace: [`diagnose`] of its calls.
pub fn diagnose_trace(trace: &Trace) -> Report {
    diagnose(&CallLog::of(trace))
}

/// Every rank that waits at the end of the trace: in which call, and for whom.
pub fn who_waits(log: &CallLog) -> Vec<Wait> {
    let _ = log;
    Vec::new()
}
