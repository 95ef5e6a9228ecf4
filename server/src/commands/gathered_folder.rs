//! The folder in which a command gathers a real job's files.

use crate::files;
use crate::output_file::REPORT_MARK;
use crate::{terminal, trace_file};
use anyhow::{Context, Result, bail};
use lockstep_core::trace::Trace;
use lockstep_diagnosis::Report;
use lockstep_formats::recording::{JoinError, Piece, RecordedJob, Sources};
use std::path::{Path, PathBuf};

/// The folder with everything that is gathered.
pub(super) struct Folder {
    path: PathBuf,
    /// True if the user named the folder.
    asked: bool,
}

impl Folder {
    /// Makes a new folder: the named one, or the first of `usual`, `usual-2`, … that is not there.
    pub(super) fn make(named: Option<&Path>, usual: &str) -> Result<Folder> {
        let made = |path: &Path| {
            std::fs::create_dir(path)
                .with_context(|| format!("cannot make the folder {}", path.display()))
        };
        if let Some(path) = named {
            made(path)?;
            std::fs::create_dir(path.join("recording")).context("cannot make a folder in it")?;
            return Ok(Folder { path: std::path::absolute(path)?, asked: true });
        }
        for number in 1..=10_000u32 {
            let name = if number == 1 { usual.into() } else { format!("{usual}-{number}") };
            let path = std::path::absolute(&name)?;
            match std::fs::create_dir(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                Err(_) => made(&path)?,
                Ok(()) => {}
            }
            std::fs::create_dir(path.join("recording")).context("cannot make a folder in it")?;
            return Ok(Folder { path, asked: false });
        }
        bail!("there are too many folders {usual}-N here: name one by -o")
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of dumps, stacks and output. `lockstep diagnose` reads it.
    pub(super) fn recording(&self) -> PathBuf {
        self.path.join("recording")
    }

    /// Removes a folder that the user did not name.
    pub(super) fn remove_if_unasked(&self) {
        if !self.asked {
            // Made by this process, and nothing else writes there.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }

    /// Everything in [`Folder::recording`], joined; or the report that it cannot be, since it is of several jobs.
    ///
    /// # Errors
    /// When nothing in it can be read.
    pub(super) fn gathered(&self) -> Result<Result<RecordedJob, Report>> {
        let mut sources = Sources::default();
        for path in files::below(&[self.recording()])? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.ends_with(".incoming") {
                continue;
            }
            sources.take(match files::read(&path, files::MAX_FILE_BYTES) {
                Ok(bytes) => Piece::read(&name, &bytes),
                Err(error) => Piece::unreadable(&name, format!("{error:#}")),
            });
        }
        match sources.join() {
            Ok(job) => Ok(Ok(job)),
            Err(JoinError::Mixed { why, world_size, .. }) => {
                Ok(Err(Report::unusable(world_size, why)))
            }
            Err(error) => bail!("nothing can be told of it: {error}"),
        }
    }

    /// Writes report and trace; failures are reported.
    pub(super) fn keep(&self, report: &Report, trace: Option<&Trace>, trace_name: &str) {
        let text = format!("{REPORT_MARK}\n{}", report.to_markdown());
        let mut written =
            std::fs::write(self.path.join("report.md"), text).context("cannot write the report");
        if let Some(trace) = trace {
            written = written.and(trace_file::write(&self.path.join(trace_name), trace));
        }
        if let Err(error) = written {
            terminal::note(&format!("lockstep: {error:#}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_there_is_not_taken() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("out");
        let made = Folder::make(Some(&path), "watched").unwrap();
        assert!(made.recording().is_dir());
        assert!(Folder::make(Some(&path), "watched").is_err());
        made.remove_if_unasked();
        assert!(path.is_dir(), "its user asked for it");
    }
}
