//! From bytes of unknown kind to one trace: a Lockstep trace, or the Flight Recorder dumps of one
//! job. The command line gives it paths, the service gives it uploads.

use crate::files;
use anyhow::{Result, bail};
use lockstep_core::diagnosis::{Report, diagnose, diagnose_trace};
use lockstep_core::flight_recorder::{self, Dump, Merged};
use lockstep_core::trace::{TRACE_MAGIC, Trace};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use std::path::{Path, PathBuf};

/// Files that are gathered one after the other, so that only one need be in memory as bytes.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    trace: Option<(String, Trace)>,
    dumps: Vec<Dump>,
    problems: Vec<String>,
}

/// What one file holds.
enum Piece {
    Trace(String, Trace),
    Dump(Dump),
    Problem(String),
}

/// What the files hold together.
#[derive(Debug)]
pub(crate) struct Read {
    /// The calls.
    pub(crate) held: Held,
    /// What is wrong in it; the files that were left out are its notes.
    pub(crate) report: Report,
}

/// The calls of a job, in the form in which they came.
#[derive(Debug)]
pub(crate) enum Held {
    /// A trace of ours.
    Trace(Box<Trace>),
    /// Dumps.
    Merged(Box<Merged>),
}

impl Held {
    /// All of it as a trace.
    pub(crate) fn into_trace(self) -> Trace {
        match self {
            Held::Trace(trace) => *trace,
            Held::Merged(merged) => (*merged).trace(),
        }
    }
}

impl Recording {
    /// Takes files, as many at a time as there are cores.
    ///
    /// # Errors
    /// Those of [`Recording::add`].
    pub(crate) fn add_files(&mut self, paths: Vec<PathBuf>) -> Result<()> {
        let read = |path: PathBuf| match files::read(&path, files::MAX_FILE_BYTES) {
            Ok(bytes) => piece(&name_of(&path), &bytes),
            Err(error) => Ok(Piece::Problem(format!("{error:#}"))),
        };
        let pieces: Vec<Result<Piece>> = paths.into_par_iter().map(read).collect();
        pieces.into_iter().try_for_each(|piece| self.take(piece?))
    }

    /// Takes a file.
    ///
    /// # Errors
    /// When it is a Lockstep trace that cannot be read, or a second one. A dump that cannot be
    /// read is noted and left out.
    pub(crate) fn add(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        self.take(piece(name, bytes)?)
    }

    fn take(&mut self, piece: Piece) -> Result<()> {
        match piece {
            Piece::Dump(dump) => self.dumps.push(dump),
            Piece::Problem(why) => self.problems.push(why),
            Piece::Trace(name, trace) => {
                if let Some((first, _)) = &self.trace {
                    bail!("{first} and {name} are both Lockstep traces; give them one at a time");
                }
                self.trace = Some((name, trace));
            }
        }
        Ok(())
    }

    /// Everything together, diagnosed.
    ///
    /// # Errors
    /// When there was nothing that could be read, or files that do not belong together.
    pub(crate) fn read(self) -> Result<Read> {
        let held = match (self.trace, self.dumps.is_empty()) {
            (Some((_, trace)), true) => Held::Trace(Box::new(trace)),
            (Some((name, _)), false) => {
                bail!(
                    "{name} is a Lockstep trace and the others are Flight Recorder dumps; give one or the other"
                )
            }
            (None, false) => Held::Merged(Box::new(flight_recorder::merge(self.dumps)?)),
            (None, true) => match self.problems.first() {
                Some(first) => bail!("no file could be used; the first problem: {first}"),
                None => bail!("there are no files to diagnose"),
            },
        };
        let mut report = match &held {
            Held::Trace(trace) => diagnose_trace(trace),
            Held::Merged(merged) => diagnose(&merged.log),
        };
        report.notes.extend(self.problems);
        Ok(Read { held, report })
    }
}

fn piece(name: &str, bytes: &[u8]) -> Result<Piece> {
    if !is_lockstep_trace(bytes) {
        return Ok(match Dump::read(name, bytes) {
            Ok(dump) => Piece::Dump(dump),
            Err(error) => Piece::Problem(error.to_string()),
        });
    }
    let trace = Trace::read(bytes).map_err(|error| anyhow::anyhow!("{name}: {error}"))?;
    Ok(Piece::Trace(name.to_owned(), trace))
}

/// The file's own name, which says the rank.
fn name_of(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// True for what claims to be ours; whether it is a good trace is seen when it is read.
fn is_lockstep_trace(bytes: &[u8]) -> bool {
    // JSON keeps no order: another tool may have written the schema last.
    let claims = |text: &str| text.starts_with('{') && text.contains("\"lockstep.trace/");
    bytes.starts_with(&TRACE_MAGIC[..7])
        || std::str::from_utf8(bytes).is_ok_and(|text| claims(text.trim_start()))
}
