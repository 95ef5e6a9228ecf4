//! Trace files: which form, and written while a run goes on.

use crate::output_file::write_whole;
use anyhow::{Context, Result};
use lockstep_core::trace::{Event, Trace, TraceHeader, TraceWriter};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes a trace: as JSON if the file is called so, else binary. Permission to replace an old file was
/// checked before.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write(path: &Path, trace: &Trace) -> Result<()> {
    let bytes = match is_json(path) {
        true => trace.to_json().into_bytes(),
        false => trace.to_bytes(),
    };
    write_whole(path, |out| Ok(out.write_all(&bytes)?))
}

fn is_json(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "json")
}

fn cannot(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// A trace file that grows with its run: if the process is killed, the trace up to then remains. JSON is one
/// document, and written at the end.
#[derive(Debug)]
pub(crate) struct Growing {
    path: PathBuf,
    /// `None` for JSON.
    file: Option<File>,
}

impl Growing {
    /// Begins the file.
    ///
    /// # Errors
    /// When it cannot be made.
    pub(crate) fn begin(path: &Path, header: &TraceHeader) -> Result<Growing> {
        let mut growing = Growing { path: path.into(), file: None };
        let file = File::create(path).with_context(|| cannot(path))?;
        if !is_json(path) {
            growing.file = Some(file);
            growing.append(&TraceWriter::header(header))?;
        }
        Ok(growing)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.write_all(bytes).with_context(|| cannot(&self.path))
    }

    /// The next events.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn events(&mut self, events: &[Event]) -> Result<()> {
        self.append(&TraceWriter::events(events))
    }

    /// The end; `trace` is all of it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn end(mut self, trace: &Trace) -> Result<()> {
        match (&self.file, &trace.end) {
            (Some(_), Some(end)) => self.append(&TraceWriter::end(end)),
            (Some(_), None) => Ok(()),
            (None, _) => write(&self.path, trace),
        }
    }
}
