//! From bytes of unknown kind to one trace: a Lockstep trace, or the Flight Recorder dumps of one
//! job. The command line gives it paths, the service gives it uploads.

use crate::files;
use anyhow::{Result, bail};
use lockstep_core::archive::{self, Limits};
use lockstep_core::diagnosis::{Report, add_log, diagnose_recording, diagnose_trace};
use lockstep_core::flight_recorder::{self, Dump, FileProblem, MAX_DUMP_BYTES, Merged};
use lockstep_core::job_log::{self, Statement};
use lockstep_core::trace::{TRACE_MAGIC, Trace};
use rayon::iter::{IntoParallelIterator, ParallelIterator};
use std::path::{Path, PathBuf};

/// Files that are gathered one after the other, so that only one need be in memory as bytes.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    trace: Option<(String, Trace)>,
    dumps: Vec<Dump>,
    /// Files that are no dumps, or damaged ones.
    unread: Vec<FileProblem>,
    /// What the job's logs say.
    said: Vec<Statement>,
    /// What else is wrong.
    problems: Vec<String>,
}

/// What a file holds; an archive holds several.
enum Piece {
    Trace(String, Trace),
    Dump(Dump),
    Log(Vec<Statement>),
    Unread(FileProblem),
    Problem(String),
}

/// More than this is no set of recordings.
const LIMITS: Limits = Limits { file_bytes: MAX_DUMP_BYTES as u64, total_bytes: 4 << 30 };

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
    /// A log alone, which tells of no calls.
    Log,
}

impl Held {
    /// All of it as a trace.
    ///
    /// # Errors
    /// When it is a log alone.
    pub(crate) fn into_trace(self) -> Result<Trace> {
        match self {
            Held::Trace(trace) => Ok(*trace),
            Held::Merged(merged) => Ok(merged.trace()),
            Held::Log => {
                bail!("a log alone tells of no calls: add the job's Flight Recorder dumps")
            }
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
            Ok(bytes) => pieces(&name_of(&path), &bytes),
            Err(error) => Ok(vec![Piece::Problem(format!("{error:#}"))]),
        };
        let read: Vec<Result<Vec<Piece>>> = paths.into_par_iter().map(read).collect();
        for pieces in read {
            pieces?.into_iter().try_for_each(|piece| self.take(piece))?;
        }
        Ok(())
    }

    /// Takes a file.
    ///
    /// # Errors
    /// When it is a Lockstep trace that cannot be read, or a second one. A dump that cannot be
    /// read is noted and left out.
    pub(crate) fn add(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        pieces(name, bytes)?.into_iter().try_for_each(|piece| self.take(piece))
    }

    fn take(&mut self, piece: Piece) -> Result<()> {
        match piece {
            Piece::Dump(dump) => self.dumps.push(dump),
            Piece::Log(said) => self.said.extend(said),
            Piece::Unread(problem) => self.unread.push(problem),
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
        let (held, mut report) = match (self.trace, self.dumps.is_empty()) {
            (Some((_, trace)), true) => {
                let mut report = diagnose_trace(&trace);
                report.notes.extend(self.unread.iter().map(|problem| problem.error.to_string()));
                (Held::Trace(Box::new(trace)), report)
            }
            (Some((name, _)), false) => {
                bail!(
                    "{name} is a Lockstep trace and the others are Flight Recorder dumps; give one or the other"
                )
            }
            (None, false) => {
                let recording = flight_recorder::recording_of(self.dumps, self.unread)?;
                let report = diagnose_recording(&recording);
                (Held::Merged(Box::new(recording.merged)), report)
            }
            (None, true) if !self.said.is_empty() => {
                let mut report = Report::healthy(0);
                report.notes.extend(self.unread.iter().map(|problem| problem.error.to_string()));
                (Held::Log, report)
            }
            (None, true) => {
                let unread = self.unread.iter().map(|problem| problem.error.to_string());
                match unread.chain(self.problems).next() {
                    Some(first) => bail!("no file could be used; the first problem: {first}"),
                    None => bail!("there are no files to diagnose"),
                }
            }
        };
        add_log(&mut report, &self.said);
        report.notes.extend(self.problems);
        Ok(Read { held, report })
    }
}

fn pieces(name: &str, bytes: &[u8]) -> Result<Vec<Piece>> {
    if !archive::is_archive(bytes) {
        return Ok(vec![piece(name, bytes)?]);
    }
    let mut found = Vec::new();
    let mut take = |path: &str, bytes: &[u8]| found.push(piece(path, bytes));
    let unpacked = archive::for_each_file(name, bytes, LIMITS, &mut take);
    let mut pieces = found.into_iter().collect::<Result<Vec<Piece>>>()?;
    pieces.extend(unpacked.err().map(|error| Piece::Problem(error.to_string())));
    Ok(pieces)
}

fn piece(name: &str, bytes: &[u8]) -> Result<Piece> {
    if !is_lockstep_trace(bytes) {
        return Ok(match Dump::read(name, bytes) {
            Ok(dump) => Piece::Dump(dump),
            Err(error) => match job_log::read(bytes) {
                said if said.is_empty() => {
                    Piece::Unread(FileProblem { file_name: name.to_owned(), error })
                }
                said => Piece::Log(said),
            },
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
pub(crate) fn is_lockstep_trace(bytes: &[u8]) -> bool {
    // JSON keeps no order: another tool may have written the schema last.
    let claims = |text: &str| text.starts_with('{') && text.contains("\"lockstep.trace/");
    bytes.starts_with(&TRACE_MAGIC[..7])
        || std::str::from_utf8(bytes).is_ok_and(|text| claims(text.trim_start()))
}
