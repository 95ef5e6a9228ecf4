//! A recording as a plan: dumps, logs and traces of a job, replayed.

use crate::files;
use crate::progress::Progress;
use crate::recording::{Held, Read, Recording, is_lockstep_trace};
use anyhow::{Result, bail};
use lockstep_core::plan::Plan;
use lockstep_core::trace::{CallLog, Trace};
use lockstep_formats::archive;
use lockstep_formats::chakra::looks_like_et;
use lockstep_replay::{RecordingEnd, Recovered, Repair, RepairError, recover, repair_watched};
use std::path::{Path, PathBuf};

/// A pickle of protocol 2 and above begins with this byte.
const PICKLE: u8 = 0x80;

/// The name of the stage that joins a job's files and says what is wrong with it.
pub(crate) const JUDGING: &str = "judging the recording";

/// A recording, what is wrong with it, and the plan that its calls make.
pub(crate) struct Replayable {
    pub(crate) read: Read,
    pub(crate) recovered: Recovered,
}

impl Replayable {
    /// Reads the files of one job, folders or archives of them, or one trace.
    ///
    /// # Errors
    /// When they cannot be read or make no plan, or reading was stopped: a part of a job makes another plan.
    pub(crate) fn read(paths: &[PathBuf], progress: &Progress) -> Result<Replayable> {
        let read = Replayable::read_only(paths, progress)?;
        let _stage = progress.stage("making a plan of the calls");
        progress.check(read.unread.as_deref().unwrap_or("the files were read"))?;
        let log = match &read.held {
            Held::Trace(trace) => CallLog::of(trace),
            Held::Merged(merged) => merged.log.clone(),
            Held::Log => match files::passed_over(paths).first() {
                Some(folder) => bail!(
                    "the files in {0} are logs, which tell of no calls and make no plan; name the folder in {0} that \
                     holds the job's dumps",
                    folder.display()
                ),
                None => bail!(
                    "a log alone tells of no calls, and makes no plan: add the job's Flight Recorder dumps"
                ),
            },
        };
        let name = paths.first().and_then(|path| path.file_name());
        let name = name.map_or("recording", |name| name.to_str().unwrap_or("recording"));
        let recovered =
            recover(&format!("replay of {name}"), &log, RecordingEnd::of(&read.report))?;
        Ok(Replayable { read, recovered })
    }

    /// Reads the files of one job without making a plan of them; some of them, if that is stopped.
    ///
    /// # Errors
    /// When they cannot be read.
    pub(crate) fn read_only(paths: &[PathBuf], progress: &Progress) -> Result<Read> {
        let mut recording = Recording::default();
        recording.add_files(files::below(paths)?, progress)?;
        let _stage = progress.stage(JUDGING);
        recording.read()
    }

    /// The repair of the first finding.
    ///
    /// # Errors
    /// When there is none, in a sentence, or trying it was stopped.
    pub(crate) fn repair(&self, progress: &Progress) -> Result<Repair, RepairError> {
        let mut stage = progress.stage("trying the repair");
        repair_watched(&self.recovered, &self.read.report, 0, &mut stage)
    }
}

/// True of the first bytes of a recording that can be nothing else, or of a file that is one by its name.
pub(super) fn is_recording(path: &Path, bytes: &[u8]) -> bool {
    is_lockstep_trace(bytes)
        || archive::is_archive(bytes)
        || bytes.first() == Some(&PICKLE)
        || looks_like_et(&path.to_string_lossy(), bytes)
}

/// The trace that a file holds, or that a job's recordings make.
///
/// # Errors
/// When they cannot be read, or hold no calls.
pub(super) fn trace_of(path: &Path, progress: &Progress) -> Result<Trace> {
    let read = Replayable::read_only(&[path.to_owned()], progress)?;
    progress.check(read.unread.as_deref().unwrap_or("the files were read"))?;
    read.held.into_trace()
}

/// The plan of a recording, or its repaired one, and what is to be said of it.
///
/// # Errors
/// Those of [`Replayable::read`] and [`Replayable::repair`].
pub(super) fn plan_of(
    path: &Path,
    repaired: bool,
    progress: &Progress,
) -> Result<(Plan, Vec<String>)> {
    let replayable = Replayable::read(&[path.to_owned()], progress)?;
    let assumed = replayable.recovered.assumed.iter().map(|it| format!("assumed: {it}"));
    let mut said: Vec<String> = assumed.collect();
    if !repaired {
        return Ok((replayable.recovered.plan, said));
    }
    let repair = replayable.repair(progress)?;
    said.push(format!("repaired: {}", repair.tried.change.words()));
    Ok((repair.plan, said))
}
