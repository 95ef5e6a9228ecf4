//! Everything that is known of one job, put together: Flight Recorder dumps, NCCL's log, the
//! profiler's traces and PyTorch's own messages, each alone or with the others.
//!
//! [`Piece::read`] says what a file holds, [`Sources`] gathers the pieces of a job, and
//! [`Sources::join`] makes one recording of them: what one source lacks another fills in
//! (`fill.rs`), the ranks' clocks are aligned by the collectives that they made together
//! (`clocks.rs`), and its notes say what came from where. What is wrong with the job is asked of
//! `lockstep-diagnosis`.

mod clocks;
mod encoding;
mod fill;
mod logs;
mod names;

pub use clocks::Offset;
pub use fill::Filled;
pub use names::{name_in, names_of};

use crate::flight_recorder::{
    Dump, FileProblem, FlightRecorderError, Merged, Recording, folder_of, recording_of,
};
use crate::job_log::{self, Heard, JobLog};
use crate::kineto::{self, Profile};
use crate::nccl_log::{self, NcclLog};
use fill::{Clock, fill};
use lockstep_core::trace::{CallLog, Outcome, TraceHeader};
use lockstep_core::words::counted;
use logs::Judged;
use std::collections::BTreeSet;

/// What a file holds that is no archive.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// A Flight Recorder dump.
    Dump(Dump),
    /// A text of a name: PyTorch's messages, NCCL's lines, or both.
    Text(String, JobLog, NcclLog),
    /// A text without either, which shows that a rank wrote no such line; and what to say of it where
    /// no log is wanted.
    Quiet(FileProblem, JobLog),
    /// A profiler's trace.
    Profile(Profile),
    /// A file that is none of these, as a dump that cannot be read.
    Unread(FileProblem),
    /// What is wrong with a file, in a sentence.
    Problem(String),
}

impl Piece {
    /// What a file holds that is no archive.
    pub fn read(name: &str, bytes: &[u8]) -> Piece {
        let bytes = &*encoding::in_utf8(bytes);
        if Profile::is_one(bytes) {
            return match Profile::read(name, bytes) {
                Ok(profile) => Piece::Profile(profile),
                Err(error) => Piece::Problem(error.to_string()),
            };
        }
        match Dump::read(name, bytes) {
            Ok(dump) => Piece::Dump(dump),
            Err(error) => {
                let (said, nccl) = (job_log::read(bytes), NcclLog::read(name, bytes));
                // A process that wrote nothing leaves an empty log.
                let empty = bytes.is_empty() && logs::is_log(name);
                let error = match empty {
                    true => FlightRecorderError::Text { file: name.to_owned() },
                    false => error,
                };
                let is_text = matches!(error, FlightRecorderError::Text { .. });
                let problem = FileProblem { file_name: name.to_owned(), error };
                match (said.is_empty() && nccl.is_empty(), is_text) {
                    (false, _) => Piece::Text(name.to_owned(), said, nccl),
                    (true, true) => Piece::Quiet(problem, said),
                    (true, false) => Piece::Unread(problem),
                }
            }
        }
    }
}

/// The pieces of one job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sources {
    dumps: Vec<Dump>,
    unread: Vec<FileProblem>,
    /// With the names of the files, as what follows.
    logs: Vec<(String, JobLog)>,
    quiet: Vec<(FileProblem, JobLog)>,
    nccl: Vec<(String, NcclLog)>,
    profiles: Vec<Profile>,
    problems: Vec<String>,
}

/// A job's files, put together.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedJob {
    /// The calls, by the source that tells most of them.
    pub calls: RecordedCalls,
    /// The calls that NCCL's log tells of, where dumps tell more.
    pub nccl: Option<nccl_log::Calls>,
    /// What the job's logs say.
    pub heard: Heard,
    /// What each source told, in sentences.
    pub notes: Vec<String>,
    /// Why files could not be used that are no part of the calls' recording.
    pub unused: Vec<String>,
    /// Why any file could not be used, in sentences.
    pub problems: Vec<String>,
}

/// The calls of a job, by the source that they come from. What other sources know of them is filled
/// in.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordedCalls {
    /// Flight Recorder dumps.
    Dumps(Recording),
    /// Profiles, and what is to be said of them.
    Profiles(Merged, Vec<String>),
    /// NCCL's log.
    NcclLog(nccl_log::Calls),
    /// Nothing: a log alone tells of no calls.
    Unknown,
}

/// Why a job's files make no recording.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum JoinError {
    /// No file could be read: the first one's problem.
    #[error("no file could be used; the first problem: {0}")]
    NothingRead(String),
    /// There are no files.
    #[error("there are no files to diagnose")]
    NoFiles,
    /// There are no dumps among files that should hold some.
    #[error(transparent)]
    Dumps(FlightRecorderError),
    /// The files are of several jobs or moments, and nothing tells which belong together.
    #[error("{why}")]
    Mixed {
        /// Why, in a sentence.
        why: String,
        /// The number of ranks that the files are of.
        world_size: u32,
        /// Why other files could not be used.
        problems: Vec<String>,
    },
}

impl Sources {
    /// Takes a piece.
    pub fn take(&mut self, piece: Piece) {
        match piece {
            Piece::Dump(dump) => self.dumps.push(dump),
            Piece::Text(name, said, nccl) => {
                self.logs.push((name.clone(), said));
                self.nccl.extend(Some((name, nccl)).filter(|(_, nccl)| !nccl.is_empty()));
            }
            Piece::Quiet(problem, log) => self.quiet.push((problem, log)),
            Piece::Profile(profile) => self.profiles.push(profile),
            Piece::Unread(problem) => self.unread.push(problem),
            Piece::Problem(why) => self.problems.push(why),
        }
    }

    /// True if there is nothing of a job in it.
    pub fn is_empty(&self) -> bool {
        self.dumps.is_empty()
            && self.logs.is_empty()
            && self.nccl.is_empty()
            && self.profiles.is_empty()
    }

    /// What could not be read, a sentence a file.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        let unread = self.unread.iter().map(|problem| problem.error.to_string());
        let quiet = self.quiet.iter().map(|(problem, log)| says_nothing(&problem.file_name, log));
        unread.chain(quiet).chain(self.problems.iter().cloned())
    }

    /// Puts everything together. The order of the files does not matter.
    ///
    /// # Errors
    /// When there is nothing that could be read, or nothing tells which files belong together.
    pub fn join(mut self) -> Result<RecordedJob, JoinError> {
        if self.is_empty() {
            return Err(match self.problems().next() {
                Some(first) => JoinError::NothingRead(first),
                None => JoinError::NoFiles,
            });
        }
        self.problems.sort();
        let highest = self.dumps.iter().map(|dump| dump.rank.0).max();
        let dumps = std::mem::take(&mut self.dumps);
        let folders: BTreeSet<String> =
            dumps.iter().map(|dump| folder_of(&dump.file_name).to_owned()).collect();
        if highest.is_some() {
            // Beside dumps a text that says nothing is only a text, but for the log of a rank.
            let (logs, texts): (Vec<_>, Vec<_>) = std::mem::take(&mut self.quiet)
                .into_iter()
                .partition(|(text, _)| logs::said_rank(&text.file_name).is_some());
            self.quiet = logs;
            self.unread.extend(texts.into_iter().map(|(text, _)| text));
        }
        let recording = match highest.map(|_| recording_of(dumps, self.unread.clone())).transpose()
        {
            Ok(recording) => recording,
            Err(error @ FlightRecorderError::Mixed { .. }) => {
                let world_size = highest.unwrap_or(0).saturating_add(1);
                let why = format!("{error}.");
                return Err(JoinError::Mixed { why, world_size, problems: self.problems });
            }
            Err(error) => return Err(JoinError::Dumps(error)),
        };
        let left_out = recording.as_ref().map(left_out).unwrap_or_default();
        let texts = self.logs.iter().map(|(name, _)| name);
        let texts = texts.chain(self.quiet.iter().map(|(problem, _)| &problem.file_name));
        let judged = Judged::of(folders, left_out, texts.map(String::as_str));
        let mut told: Vec<String> = judged.note().into_iter().collect();
        let heard = match self.hear(&judged) {
            Ok(heard) => heard,
            Err(why) if recording.is_none() => {
                return Err(JoinError::Mixed { why, world_size: 1, problems: self.problems });
            }
            Err(why) => {
                told.push(why);
                Heard::default()
            }
        };
        let nccl = std::mem::take(&mut self.nccl).into_iter();
        let nccl = nccl.filter(|(name, _)| judged.holds(name)).map(|(_, nccl)| nccl);
        let mut nccl = nccl_log::calls_of(&nccl.collect::<Vec<_>>());
        self.profiles.retain(|profile| judged.holds(&profile.file_name));
        let profiled = kineto::calls_of(&self.profiles);
        self.problems.sort();
        let unnoted = self.problems.clone();
        let mut problems = self.problems;
        let mut unused: Vec<String> = Vec::new();
        let calls = if let Some(mut recording) = recording {
            let merged = &mut recording.merged;
            if let Some(nccl) = &nccl {
                told.push(from_nccl(&mut merged.log, nccl));
            }
            if let Some(profiled) = &profiled {
                let later = Clock::LaterBy(later_by(&merged.header, &profiled.header));
                let filled = fill(&mut merged.log, &profiled.log, later);
                told.push(from_profiles(&filled, &profiled.log));
            }
            told.extend(align(merged));
            if heard.timed_out() {
                // Calls alone look the same in a job that was running when it was recorded.
                merged.log.outcome = Outcome::TimedOut;
            }
            problems.extend(recording.problems.iter().map(|problem| problem.error.to_string()));
            RecordedCalls::Dumps(recording)
        } else {
            unused.extend(self.unread.iter().map(|problem| problem.error.to_string()));
            problems.extend(unused.iter().cloned());
            match profiled {
                Some(profiled) => {
                    let kineto::Calls { header, log, end_ps, notes } = profiled;
                    let mut merged = Merged { header, log, end_ps };
                    told.extend(nccl.as_ref().map(|nccl| from_nccl(&mut merged.log, nccl)));
                    told.extend(align(&mut merged));
                    RecordedCalls::Profiles(merged, notes)
                }
                None => nccl.take().map_or(RecordedCalls::Unknown, RecordedCalls::NcclLog),
            }
        };
        if !heard.statements.is_empty() && !matches!(calls, RecordedCalls::Unknown) {
            let messages = counted(heard.statements.len(), "message");
            told.push(format!("The job's log holds {messages} of PyTorch's own."));
        }
        told.extend(unnoted);
        Ok(RecordedJob { calls, nccl, heard, notes: told, unused, problems })
    }
}

impl Sources {
    /// What the logs say that are judged; those that are nobody's log and say nothing become problems.
    fn hear(&mut self, judged: &Judged) -> Result<Heard, String> {
        let telling =
            std::mem::take(&mut self.logs).into_iter().map(|(name, log)| (name, log, None));
        let quiet = std::mem::take(&mut self.quiet).into_iter();
        let quiet = quiet.map(|(problem, log)| (problem.file_name.clone(), log, Some(problem)));
        let all = telling.chain(quiet).filter(|(name, _, _)| judged.holds(name));
        let mut all: Vec<(String, JobLog, Option<FileProblem>)> = all.collect();
        // What stands last of a rank is told.
        all.sort_by(|a, b| a.0.cmp(&b.0));
        let all = all.into_iter();
        let (logs, problems): (Vec<(String, JobLog)>, Vec<Option<FileProblem>>) =
            all.map(|(name, log, problem)| ((name, log), problem)).unzip();
        let ranks = logs::ranks_of(&logs)?;
        for (((name, log), problem), rank) in logs.iter().zip(problems).zip(&ranks) {
            let nobodys = problem.is_some() && rank.is_none() && log.wrote.is_empty();
            self.problems.extend(nobodys.then(|| says_nothing(name, log)));
        }
        let named = logs.iter().zip(ranks).map(|((name, log), rank)| (name.as_str(), log, rank));
        let mut heard = Heard::of(named);
        // A log that cannot be read is a rank's all the same.
        let unread = self.unread.iter().filter_map(|problem| logs::said_rank(&problem.file_name));
        let above = unread.map(|rank| rank.saturating_add(1)).max().unwrap_or(0);
        heard.world_size = heard.world_size.max(above);
        Ok(heard)
    }
}

/// What is said of a text that tells of nothing.
fn says_nothing(name: &str, log: &JobLog) -> String {
    match log.last_words.is_empty() {
        true => format!("{name} is empty"),
        false => format!(
            "{name} is a text without any message that PyTorch or NCCL writes when a job hangs, times out \
             or fails, so nothing in it says that anything went wrong; its last line is \"{}\". If the \
             job hung, give its Flight Recorder dumps",
            log.last_words
        ),
    }
}

/// The folders of files that were left out, with what else lies there.
fn left_out(recording: &Recording) -> BTreeSet<String> {
    let others = recording.problems.iter();
    let others =
        others.filter(|problem| matches!(problem.error, FlightRecorderError::OtherSet { .. }));
    others.map(|problem| problem.file_name.clone()).filter(|name| !name.is_empty()).collect()
}

/// The time between two recordings' starts, in picoseconds.
fn later_by(into: &TraceHeader, from: &TraceHeader) -> i128 {
    (i128::from(from.epoch_ns) - i128::from(into.epoch_ns)) * 1000
}

fn from_nccl(into: &mut CallLog, nccl: &nccl_log::Calls) -> String {
    let filled = fill(into, &nccl.log, Clock::None);
    let calls: usize = nccl.log.logs().map(|(_, log)| log.calls.len()).sum();
    let all = counted(calls, "call");
    if filled.calls == 0 {
        return format!(
            "NCCL's log tells of {all}, none of which is in the other recording: is it of another \
             run, or of other groups?"
        );
    }
    format!(
        "NCCL's log tells of {all}; {} of {} are in the other recording too, and it filled in the \
         reduction of {} and the root of {}.",
        filled.calls,
        counted(filled.ranks, "rank"),
        filled.reductions,
        filled.roots
    )
}

fn from_profiles(filled: &Filled, log: &CallLog) -> String {
    let calls: usize = log.logs().map(|(_, log)| log.calls.len()).sum();
    let all = counted(calls, "call");
    if filled.calls == 0 {
        return format!(
            "The profiles tell of {all}, none of which is in the dumps: a recorder keeps the last \
             calls only."
        );
    }
    format!(
        "The profiles tell of {all}; {} of {} are in the dumps too, and they filled in when {} of \
         them started, and the root of {}.",
        filled.calls,
        counted(filled.ranks, "rank"),
        filled.times,
        filled.roots
    )
}

/// Sets the clocks right; a sentence if one was wrong.
fn align(merged: &mut Merged) -> Option<String> {
    let (wrong, earlier_ps) = clocks::align(&mut merged.log);
    merged.header.epoch_ns = merged.header.epoch_ns.saturating_sub(earlier_ps / 1000);
    merged.end_ps = merged.end_ps.saturating_add(earlier_ps);
    let most = wrong.iter().max_by_key(|offset| offset.ahead_ps.unsigned_abs())?;
    let ms = most.ahead_ps.unsigned_abs() / 1_000_000_000;
    Some(format!(
        "The clocks of {} were set right by the collectives that all made together: rank {}'s was \
         {ms} ms {} of rank {}'s, by {}.",
        counted(wrong.len(), "rank"),
        most.rank,
        if most.ahead_ps > 0 { "ahead" } else { "behind" },
        merged.log.logs().next().map_or(0, |(rank, _)| rank.0),
        counted(most.collectives, "collective"),
    ))
}
