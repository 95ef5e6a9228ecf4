//! Plans of recordings.

use super::session::Held;
use lockstep_core::trace::CallLog;
use lockstep_diagnosis::{Report, diagnose};
use lockstep_replay::{RecordingEnd, Recovered, python_program, recover};

/// Recordings with more calls are replayed on the command line: a replay is simulated as a whole.
const MOST_CALLS: usize = 200_000;

/// The plan of a recording, and what is wrong with the job.
///
/// # Errors
/// In a sentence, when it is not complete, too large, or makes no plan.
pub(super) fn recovered(held: &Held) -> Result<(Recovered, Report), String> {
    let log: &CallLog = held.log.as_ref().ok_or("the recording is not complete yet")?;
    let calls: usize = log.logs().map(|(_, own)| own.calls.len()).sum();
    if calls > MOST_CALLS {
        return Err(format!(
            "This recording has {calls} calls; the page replays up to {MOST_CALLS}. `lockstep repair` and `lockstep \
             plan` on the command line take any."
        ));
    }
    let report = held.report.clone().unwrap_or_else(|| diagnose(log));
    let recovered = recover("the recording", log, RecordingEnd::of(&report));
    Ok((recovered.map_err(|why| why.to_string())?, report))
}

/// The recording as a program.
///
/// # Errors
/// In a sentence, when it makes no plan, or one that has no words as a program.
pub(super) fn as_program(held: &Held) -> Result<String, String> {
    let (recovered, _) = recovered(held)?;
    python_program(&recovered.plan).map_err(|why| why.to_string())
}
