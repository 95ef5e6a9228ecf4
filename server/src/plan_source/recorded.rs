//! A recording as a plan: dumps, logs and traces of a job, replayed.

use crate::files;
use crate::progress::Progress;
use crate::recording::{Held, Read, Recording, is_lockstep_trace};
use crate::terminal;
use anyhow::{Result, bail};
use lockstep_analysis::Activity;
use lockstep_core::plan::{CallTimes, Plan};
use lockstep_core::trace::{CallLog, Trace};
use lockstep_core::words::sentence;
use lockstep_diagnosis::Report;
use lockstep_formats::archive;
use lockstep_formats::chakra::{is_json_et, looks_like_et};
use lockstep_formats::kineto::Profile;
use lockstep_replay::{
    RecordedCalls, RecordingEnd, Recovered, Repair, RepairError, recorded_times, recover,
    repair_watched, report_beside_recording, with_measured_computations,
};
use std::borrow::Cow;
use std::path::Path;

/// A pickle of protocol 2 and above begins with this byte.
const PICKLE: u8 = 0x80;

/// The first bytes of JSON that show whether a Flight Recorder has written it, and what they hold then.
pub(super) const JSON_HEAD: usize = 1 << 16;
const DUMP_KEY: &[u8] = b"\"pg_config\"";

/// The name of the stage that joins a job's files and diagnoses it.
pub(crate) const JUDGING: &str = "judging the recording";

/// The times that calls of a trace's plan took in it, and the plan with its computations as they were measured.
///
/// # Errors
/// When no call of the trace ended.
pub(crate) fn times_of_trace(plan: &Plan, trace: &Trace) -> Result<(CallTimes, Plan)> {
    let activity = Activity::of_trace(trace);
    let plan = with_measured_computations(plan, &activity);
    let recovered = Recovered::of_plan(plan);
    let times = checked(recorded_times(&recovered, &activity))?;
    Ok((times, recovered.plan))
}

/// Refuses to play the times of a recording that has none.
fn checked(times: CallTimes) -> Result<CallTimes> {
    if times.is_empty() {
        bail!(
            "--as-recorded plays the times that recorded calls took, and this recording has none: no call ended, or its \
             recorder keeps no times"
        );
    }
    Ok(times)
}

/// A recording, its report, and the plan that its calls make.
pub(crate) struct Replayable {
    pub(crate) read: Read,
    pub(crate) recovered: Recovered,
}

/// A recording beside the plan that replays it.
#[derive(Debug)]
pub(crate) struct Replay {
    log: CallLog,
    calls: RecordedCalls,
    report: Report,
}

impl Replay {
    /// The times that calls of the plan, which replays the recording, took there; an error if none has a time.
    ///
    /// # Errors
    /// When the recording tells no times of calls.
    pub(crate) fn times(&self, plan: &Plan) -> Result<CallTimes> {
        let recovered =
            Recovered { plan: plan.clone(), assumed: Vec::new(), calls: self.calls.clone() };
        checked(recorded_times(&recovered, &Activity::of_calls(&self.log)))
    }

    /// The report of a simulation of the plan: the diagnosis of the replayed job, beside that of the recording.
    pub(crate) fn into_report(self, simulated: &CallLog) -> Report {
        report_beside_recording(&self.report, &self.calls, self.log, simulated)
    }
}

impl Replayable {
    /// Reads the files of one job, folders or archives of them, or one trace. Files that could not be used, or not as
    /// they are, are told on standard error.
    ///
    /// # Errors
    /// When they cannot be read or make no plan, or reading was stopped: a part of a job makes another plan.
    pub(crate) fn read(paths: &[&Path], progress: &Progress) -> Result<Replayable> {
        let read = Replayable::read_only(paths, progress)?;
        let _stage = progress.stage("making a plan of the calls");
        progress.check(read.unread.as_deref().unwrap_or("the files were read"))?;
        let log = match &read.held {
            Held::Trace(trace) => Cow::Owned(CallLog::of(trace)),
            // Not a copy: the calls of a large job are a good part of the memory.
            Held::Merged(merged) => Cow::Borrowed(&merged.log),
            Held::Log => match files::passed_over(paths).first() {
                Some(folder) => bail!(
                    "the files in {0} are logs, which tell of no calls and make no plan; name the folder in {0} that \
                     holds the job's dumps",
                    folder.display()
                ),
                None => bail!(
                    "a log alone tells of no calls, and makes no plan: add the job's Flight Recorder dumps, or ask \
                     lockstep diagnose what it says"
                ),
            },
        };
        let name = paths.first().and_then(|path| path.file_name());
        let name = name.map_or("recording", |name| name.to_str().unwrap_or("recording"));
        let recovered =
            recover(&format!("replay of {name}"), &log, RecordingEnd::of(&read.report))?;
        tell_problems(&read);
        Ok(Replayable { read, recovered })
    }

    /// Reads the files of one job without making a plan of them; some of them, if that is stopped.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn read_only(paths: &[&Path], progress: &Progress) -> Result<Read> {
        let mut recording = Recording::default();
        recording.add_files(files::below(paths)?, progress)?;
        let _stage = progress.stage(JUDGING);
        recording.read()
    }

    /// The plan, and the recording that it replays. A trace has the plan that it was made of, and replays none.
    pub(super) fn into_replay(self) -> (Plan, Option<Replay>, Option<Box<Trace>>) {
        let Recovered { plan, calls, .. } = self.recovered;
        let (replay, trace) = match self.read.held {
            Held::Merged(merged) => {
                (Some(Replay { log: merged.log, calls, report: self.read.report }), None)
            }
            Held::Trace(trace) => (None, Some(trace)),
            Held::Log => (None, None),
        };
        (plan, replay, trace)
    }

    /// The repair of the first finding.
    ///
    /// # Errors
    /// There is no repair, with the reason as a sentence, or trying it was stopped.
    pub(crate) fn repair(&self, progress: &Progress) -> Result<Repair, RepairError> {
        let mut stage = progress.stage("trying the repair");
        let log = match &self.read.held {
            Held::Trace(trace) => Cow::Owned(CallLog::of(trace)),
            Held::Merged(merged) => Cow::Borrowed(&merged.log),
            Held::Log => return Err(RepairError::NoFinding),
        };
        let recording = (&self.recovered, &*log);
        repair_watched(recording, &self.read.report, 0, &mut stage)
    }
}

/// True of the first bytes of a recording that can be nothing else, or of a file that is one by its name.
pub(super) fn is_recording(path: &Path, bytes: &[u8]) -> bool {
    is_lockstep_trace(bytes)
        || archive::is_archive(bytes)
        || bytes.first() == Some(&PICKLE)
        || looks_like_et(&path.to_string_lossy(), bytes)
}

/// True of JSON that a recorder has written: what is wrong with it as a recording is what its owner wants to know.
pub(super) fn is_recorded_json(bytes: &[u8]) -> bool {
    let head = bytes.get(..bytes.len().min(JSON_HEAD)).unwrap_or_default();
    Profile::is_one(bytes)
        || is_json_et(bytes)
        || head.windows(DUMP_KEY.len()).any(|window| window == DUMP_KEY)
}

/// The trace that a file holds, or that a job's recordings make.
///
/// # Errors
/// When they cannot be read, or hold no calls.
pub(super) fn trace_of(paths: &[&Path], progress: &Progress) -> Result<Trace> {
    let read = Replayable::read_only(paths, progress)?;
    progress.check(read.unread.as_deref().unwrap_or("the files were read"))?;
    tell_problems(&read);
    read.held.into_trace()
}

/// Tells which files could not be used, or not as they are.
fn tell_problems(read: &Read) {
    for problem in &read.problems {
        terminal::note(&format!("lockstep: {}", sentence(problem)));
    }
}
