//! From bytes of unknown kind to one trace: a Lockstep trace, or the recordings of one job. The
//! command line gives it paths, the service gives it uploads.

use crate::files;
use crate::progress::{Progress, Stage};
use anyhow::{Result, anyhow, bail};
use lockstep_core::trace::{TRACE_MAGIC, Trace};
use lockstep_core::words::counted;
use lockstep_diagnosis::{Report, diagnose_files, diagnose_whole_trace};
use lockstep_formats::archive::{self, Limits};
use lockstep_formats::flight_recorder::MAX_DUMP_BYTES;
use lockstep_formats::job_calls::Merged;
use lockstep_formats::kineto::Profile;
use lockstep_formats::recording::{Piece, Sources, name_in, names_of};
use rayon::iter::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};
use std::fs;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

/// Files that are gathered one after the other, so that only one need be in memory as bytes.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    trace: Option<(String, Box<Trace>)>,
    sources: Sources,
    /// Files that were read.
    files: usize,
    /// Files that were not, since reading was stopped.
    unread: usize,
}

/// The contents of a path, as far as it was read.
#[derive(Default)]
struct Contents {
    /// An archive holds several.
    found: Vec<Found>,
    /// Files that were not read, since reading was stopped.
    unread: usize,
}

impl Contents {
    /// Moves calls that another thread has read into memory of this one.
    fn move_here(&mut self) {
        for found in &mut self.found {
            if let Found::Piece(piece) = found {
                piece.move_here();
            }
        }
    }
}

/// The contents of a file.
enum Found {
    Trace(String, Box<Trace>),
    Piece(Piece),
}

/// More than this is no set of recordings.
const LIMITS: Limits = Limits { file_bytes: MAX_DUMP_BYTES as u64, total_bytes: 4 << 30 };

/// A smaller profile is read faster as a whole.
pub(crate) const STREAMED_BYTES: u64 = 128 << 20;

/// A profile shows that it is one in its first bytes.
const HEAD_BYTES: u64 = 1 << 16;

/// The contents of the files together.
#[derive(Debug)]
pub(crate) struct Read {
    /// The calls.
    pub(crate) held: Held,
    /// The findings in it; the files that were left out are its notes.
    pub(crate) report: Report,
    /// Files that could not be used, or not as they are: a sentence each, which the report's notes hold as well.
    pub(crate) problems: Vec<String>,
    /// The part that was read before reading was stopped: `312 of 512 files were read`. The report says it too.
    pub(crate) unread: Option<String>,
}

/// The calls of a job, in the form in which they came.
#[derive(Debug)]
pub(crate) enum Held {
    /// A trace of ours.
    Trace(Box<Trace>),
    /// Recordings.
    Merged(Box<Merged>),
    /// PyTorch's messages alone, without calls.
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
    /// Takes files, as many at a time as there are cores. If the progress is stopped, the others are left unread.
    ///
    /// # Errors
    /// Those of [`Recording::add`].
    pub(crate) fn add_files(&mut self, paths: Vec<PathBuf>, progress: &Progress) -> Result<()> {
        let shown: Vec<_> = paths.iter().map(|path| path.to_string_lossy()).collect();
        let names = names_of(&shown);
        let alone = paths.len() == 1;
        let sizes = paths.iter().map(|path| fs::metadata(path).map_or(0, |it| it.len()));
        let doing = format!("reading {}", counted(paths.len() as u64, "file"));
        let stage = progress.reading(doing, sizes.sum());
        let read = |(path, name): (&PathBuf, String)| {
            if stage.is_stopped() {
                return Ok(Contents { unread: 1, ..Contents::default() });
            }
            if let Some((file, bytes)) = large_profile(path) {
                let piece = Piece::read_profile(&name, BufReader::with_capacity(1 << 20, file));
                stage.add(bytes);
                return Ok(Contents { found: vec![Found::Piece(piece)], unread: 0 });
            }
            match files::read(path, files::MAX_FILE_BYTES) {
                Ok(bytes) => {
                    let found = found(&name, &bytes, alone, Some(&stage));
                    stage.add(bytes.len() as u64);
                    found
                }
                Err(error) => {
                    let piece = Piece::unreadable(&name, format!("{error:#}"));
                    Ok(Contents { found: vec![Found::Piece(piece)], unread: 0 })
                }
            }
        };
        let (sender, receiver) = mpsc::channel();
        let (files, read) = (paths.par_iter().zip(names).enumerate(), &read);
        let mut all: Vec<Option<Result<Contents>>> = paths.iter().map(|_| None).collect();
        rayon::in_place_scope(|scope| {
            scope.spawn(move |_| {
                files.for_each_with(sender, |sender, (at, file)| {
                    // It is only closed where nobody waits for the files any more.
                    let _ = sender.send((at, read(file)));
                });
            });
            for (at, mut contents) in receiver {
                contents.iter_mut().for_each(Contents::move_here);
                if let Some(place) = all.get_mut(at) {
                    *place = Some(contents);
                }
            }
        });
        all.into_iter().flatten().try_for_each(|contents| self.take_all(contents?))
    }

    /// Takes a file, which is all that there is, or one of several.
    ///
    /// # Errors
    /// When it is a Lockstep trace that cannot be read, or a second one. A recording that cannot be
    /// read is noted and left out.
    pub(crate) fn add(&mut self, name: &str, bytes: &[u8], alone: bool) -> Result<()> {
        self.take_all(found(name, bytes, alone, None)?)
    }

    fn take_all(&mut self, contents: Contents) -> Result<()> {
        self.files += contents.found.len();
        self.unread += contents.unread;
        contents.found.into_iter().try_for_each(|found| self.take(found))
    }

    fn take(&mut self, found: Found) -> Result<()> {
        match found {
            Found::Piece(piece) => self.sources.take(piece),
            Found::Trace(name, trace) => {
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
        let all = counted((self.files + self.unread) as u64, "file");
        if self.files == 0 && self.unread > 0 {
            bail!("stopped by Ctrl-C before any of {all} was read");
        }
        let unread = (self.unread > 0).then(|| {
            let were = if self.files == 1 { "was" } else { "were" };
            format!("{} of {all} {were} read", self.files)
        });
        let judged = |report: Report| match &unread {
            Some(part) => report.of_a_part(format!(
                "Reading was stopped by Ctrl-C: {part}, and what is said here is about those."
            )),
            None => report,
        };
        let Some((name, trace)) = self.trace else {
            let gathered = diagnose_files(self.sources)?;
            let held = gathered.calls.map_or(Held::Log, |merged| Held::Merged(Box::new(merged)));
            let problems = gathered.problems;
            return Ok(Read { held, report: judged(gathered.report), problems, unread });
        };
        if self.sources.holds_recordings() {
            bail!(
                "{name} is a Lockstep trace and the others are recordings of PyTorch and NCCL; give \
                 one or the other"
            )
        }
        let mut report = diagnose_whole_trace(&trace);
        let problems: Vec<String> = self.sources.problems().collect();
        report.notes.extend(problems.iter().cloned());
        Ok(Read { held: Held::Trace(trace), report: judged(report), problems, unread })
    }
}

/// A profile that is so large that it is better read as it comes, and its size; `None` for other files, and for those
/// that do not open.
fn large_profile(path: &Path) -> Option<(fs::File, u64)> {
    let (mut file, bytes) = files::open(path).ok()?;
    if !(STREAMED_BYTES..=files::MAX_FILE_BYTES).contains(&bytes) {
        return None;
    }
    let (head, start) = files::head(&mut file, HEAD_BYTES).ok()?;
    file.seek(SeekFrom::Start(start)).ok()?;
    Profile::is_one(&head).then_some((file, bytes))
}

fn found(name: &str, bytes: &[u8], alone: bool, stage: Option<&Stage>) -> Result<Contents> {
    if !archive::is_archive(bytes) {
        return Ok(Contents { found: vec![in_file(name, bytes)?], unread: 0 });
    }
    let (mut found, mut unread) = (Vec::new(), 0);
    let called = |path: &str| if alone { path.to_owned() } else { name_in(name, path) };
    let mut take = |path: &str, bytes: &[u8]| match stage.is_some_and(Stage::is_stopped) {
        true => unread += 1,
        false => found.push(in_file(&called(path), bytes)),
    };
    let unpacked = archive::for_each_file(name, bytes, LIMITS, &mut take);
    let mut found = found.into_iter().collect::<Result<Vec<Found>>>()?;
    let damage = unpacked.err().map(|error| Piece::useless(name, error.to_string()));
    found.extend(damage.map(Found::Piece));
    Ok(Contents { found, unread })
}

fn in_file(name: &str, bytes: &[u8]) -> Result<Found> {
    if !is_lockstep_trace(bytes) {
        return Ok(Found::Piece(Piece::read(name, bytes)));
    }
    let trace = Trace::read(bytes).map_err(|error| anyhow!("{name}: {error}"))?;
    Ok(Found::Trace(name.to_owned(), Box::new(trace)))
}

/// True if bytes begin like a trace of ours; reading it shows if it is a good one.
pub(crate) fn is_lockstep_trace(bytes: &[u8]) -> bool {
    // JSON keeps no order: another tool may have written the schema last.
    let claims = |text: &str| text.starts_with('{') && text.contains("\"lockstep.trace/");
    bytes.starts_with(&TRACE_MAGIC[..7])
        || std::str::from_utf8(bytes).is_ok_and(|text| claims(text.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockstep_diagnosis::Verdict;

    #[test]
    fn what_was_read_before_ctrl_c_is_judged_as_a_part() {
        let folder = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/data/flight-recorder/t215_skip_allreduce_diff_size"
        );
        let dumps = |ranks: std::ops::Range<u32>| {
            ranks.map(|rank| PathBuf::from(format!("{folder}/rank_{rank}"))).collect::<Vec<_>>()
        };
        let (progress, stopped) = (Progress::without_signals(), Progress::without_signals());
        stopped.stop();
        let mut recording = Recording::default();
        recording.add_files(dumps(0..3), &progress).unwrap();
        recording.add_files(dumps(3..4), &stopped).unwrap();
        let read = recording.read().unwrap();
        assert!(read.unread.is_some_and(|unread| unread.contains("3 of 4 files were read")));
        assert_eq!(read.report.verdict, Verdict::Findings);
        assert!(read.report.notes[0].contains("3 of 4 files"), "{}", read.report.to_text());
        let mut nothing = Recording::default();
        nothing.add_files(dumps(0..4), &stopped).unwrap();
        assert!(nothing.read().unwrap_err().to_string().contains("before any of 4 files"));
    }
}
