//! The pieces of a job, and how they are joined.

use super::apart::left_out_note;
use super::clocks;
use super::file_ranks::{NamedFile, TwoRuns, ranks_of};
use super::fill::{Clock, InBoth, fill, shared_calls};
use super::judged_files::JudgedFiles;
use super::missing_ranks::take_missing_ranks;
use super::piece::Piece;
use super::profiled::take_profiled;
use super::stack_notes;
use crate::file_names::{claim, folder_of, is_log, said_rank};
use crate::job_calls::{JobCalls, Merged, Shows};
use crate::job_log::{Heard, JobLog};
use crate::problem::{FileProblem, MixedFiles, ProblemKind};
use crate::reader::{CallSource, Contribution, FileCalls};
use crate::stacks::{Cause, ProcessStacks};
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::{Origin, Outcome, TraceHeader};
use lockstep_core::words::{counted, rank_list};
use std::collections::{BTreeMap, BTreeSet};

/// The pieces of one job.
#[derive(Debug, Default)]
pub struct Sources {
    calls: Vec<FileCalls>,
    /// With the names of the files.
    logs: Vec<(String, JobLog)>,
    /// Logs without any message, and the remark about the file if no log is wanted.
    quiet: Vec<(FileProblem, JobLog)>,
    stacks: Vec<ProcessStacks>,
    unread: Vec<FileProblem>,
    problems: Vec<String>,
}

/// A job's files, joined.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedJob {
    /// The calls of the fullest source, with the values that the others filled in; `None` if no file holds
    /// calls.
    pub calls: Option<JobCalls>,
    /// The calls of the other sources, fullest first.
    pub others: Vec<JobCalls>,
    /// The messages of the job's logs.
    pub heard: Heard,
    /// The stacks of its processes, with their ranks as far as these are known; in the order in which they
    /// were written, file by file.
    pub stacks: Vec<ProcessStacks>,
    /// The additions of each source, in sentences.
    pub notes: Vec<String>,
    /// The files beside the calls that could not be used.
    pub unread: Vec<FileProblem>,
    /// The reasons that files could not be used, in sentences.
    pub problems: Vec<String>,
}

/// The reason that a job's files make no recording.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum JoinError {
    /// No file could be read: the first one's problem.
    #[error("no file could be used; the first problem: {0}")]
    NothingRead(String),
    /// There are no files.
    #[error("there are no files to diagnose")]
    NoFiles,
    /// The files are of several jobs or moments, and it is unclear which belong together.
    #[error("{why}")]
    Mixed {
        /// The reason, in a sentence.
        why: String,
        /// The number of ranks that the files are of.
        world_size: u32,
        /// The reasons that other files could not be used.
        problems: Vec<String>,
    },
}

/// The files of one source of calls.
type SourceFiles = (&'static dyn CallSource, Vec<FileCalls>);

/// Calls with the source that joined them.
type SourceCalls = (&'static dyn CallSource, JobCalls);

impl Sources {
    /// Takes a piece.
    pub fn take(&mut self, piece: Piece) {
        let Piece { file_name, contributions, problem } = piece;
        if contributions.is_empty() {
            match problem {
                Some(problem) if problem.kind == ProblemKind::Unusable => {
                    self.problems.push(problem.why);
                }
                problem => self.unread.extend(problem),
            }
            return;
        }
        let outside = |it: &Contribution| match it {
            Contribution::Stacks(stacks) => stacks.iter().all(|it| it.cause == Cause::Outside),
            _ => false,
        };
        let (alone, of_outside) = (contributions.len() == 1, contributions.iter().any(outside));
        for contribution in contributions {
            match contribution {
                Contribution::Calls(calls) => self.calls.push(calls),
                Contribution::Stacks(stacks) => self.stacks.extend(stacks),
                Contribution::Log(log) if alone && log.is_empty() => {
                    let problem = problem.clone().unwrap_or_else(|| FileProblem {
                        file_name: file_name.clone(),
                        kind: ProblemKind::Text,
                        why: says_nothing(&file_name, &log),
                    });
                    self.quiet.push((problem, *log));
                }
                // A dump that another process took is no log of this one.
                Contribution::Log(log) if of_outside && log.is_empty() => {}
                Contribution::Log(log) => self.logs.push((file_name.clone(), *log)),
            }
        }
    }

    /// True if no file of a job is in it. A text that holds no message is one: its job wrote it.
    pub fn is_empty(&self) -> bool {
        // A rank's file without a log's name claims to be a dump.
        let is_no_log = |(problem, log): &(FileProblem, JobLog)| {
            let name = &problem.file_name;
            let claims = claim(name).is_some() && !is_log(name);
            problem.kind != ProblemKind::Text || log.last.text.is_empty() || claims
        };
        !self.holds_recordings() && self.quiet.iter().all(is_no_log)
    }

    /// True if any file has something of the job: calls, messages or stacks.
    pub fn holds_recordings(&self) -> bool {
        !(self.calls.is_empty() && self.logs.is_empty() && self.stacks.is_empty())
    }

    /// The files that could not be read, a sentence for each.
    pub fn problems(&self) -> impl Iterator<Item = String> {
        let unread = self.unread.iter().map(|problem| problem.why.clone());
        let quiet = self.quiet.iter().map(|(problem, log)| says_nothing(&problem.file_name, log));
        unread.chain(quiet).chain(self.problems.iter().cloned())
    }

    /// Joins everything. The order of the files does not matter.
    ///
    /// # Errors
    /// Nothing could be read, or it is unclear which files belong together.
    pub fn join(mut self) -> Result<RecordedJob, JoinError> {
        if self.is_empty() {
            return Err(match self.problems().next() {
                Some(first) => JoinError::NothingRead(first),
                None => JoinError::NoFiles,
            });
        }
        self.problems.sort();
        let mut files = by_source(std::mem::take(&mut self.calls));
        adopt_missing_ranks(&mut files);
        let mut unread = std::mem::take(&mut self.unread);
        let unread_ranks: Vec<u32> =
            unread.iter().filter_map(|problem| said_rank(&problem.file_name)).collect();
        let picks = files.first().is_some_and(|(source, _)| source.picks_the_job());
        let first = picks.then(|| files.remove(0));
        if first.is_some() {
            // Beside dumps a text without a message is only a text, but for the log of a rank, or one with an error.
            let is_log = |(text, log): &(FileProblem, JobLog)| {
                said_rank(&text.file_name).is_some() || !log.errors.is_empty()
            };
            let (logs, texts): (Vec<_>, Vec<_>) =
                std::mem::take(&mut self.quiet).into_iter().partition(is_log);
            self.quiet = logs;
            unread.extend(texts.into_iter().map(|(text, _)| text));
        }
        let folders: BTreeSet<String> = first
            .iter()
            .flat_map(|(_, files)| files)
            .map(|file| folder_of(&file.file_name).to_owned())
            .collect();
        let mixed = |error: MixedFiles, problems: &[String]| JoinError::Mixed {
            why: format!("{}.", error.why),
            world_size: error.world_size,
            problems: problems.to_vec(),
        };
        let mut sources: Vec<SourceCalls> = Vec::new();
        if let Some((source, files)) = first {
            let calls =
                source.join(files, &mut unread).map_err(|error| mixed(error, &self.problems))?;
            sources.extend(calls.map(|calls| (source, calls)));
        }
        let judged = JudgedFiles::of(folders, other_sets(&unread), self.log_names());
        let mut notes: Vec<String> = judged.note().into_iter().collect();
        let (heard, log_ranks) = match self.hear(&judged, &unread_ranks) {
            Ok(heard) => heard,
            Err(error) if sources.is_empty() => {
                let why = error.to_string();
                return Err(JoinError::Mixed { why, world_size: 1, problems: self.problems });
            }
            Err(error) => {
                notes.push(error.to_string());
                Default::default()
            }
        };
        for (source, mut files) in files {
            files.retain(|file| judged.holds(&file.file_name));
            let calls =
                source.join(files, &mut unread).map_err(|error| mixed(error, &self.problems))?;
            sources.extend(calls.map(|calls| (source, calls)));
        }
        let (calls, others) = with_gaps_filled(sources, &heard, (&mut notes, &mut self.problems));
        if !heard.statements.is_empty() && calls.is_some() {
            let messages = counted(heard.statements.len(), "message");
            notes.push(format!("The job's log holds {messages} of PyTorch's own."));
        }
        self.stacks.retain(|process| judged.holds(&process.file_name));
        self.name_stacks(&log_ranks);
        notes.extend(stack_notes::of(&self.stacks));
        self.problems.sort();
        let mut problems = self.problems;
        notes.extend(problems.iter().cloned());
        problems.extend(unread.iter().map(|problem| problem.why.clone()));
        Ok(RecordedJob { calls, others, heard, stacks: self.stacks, notes, unread, problems })
    }

    /// The names of the logs, with and without messages.
    fn log_names(&self) -> impl Iterator<Item = &str> {
        let quiet = self.quiet.iter().map(|(problem, _)| problem.file_name.as_str());
        self.logs.iter().map(|(name, _)| name.as_str()).chain(quiet)
    }

    /// The messages of the logs that are judged, and the ranks whose logs they are, by file. Logs that say
    /// nothing and are no rank's become problems.
    fn hear(
        &mut self,
        judged: &JudgedFiles,
        unread_ranks: &[u32],
    ) -> Result<(Heard, BTreeMap<String, GlobalRank>), TwoRuns> {
        let telling =
            std::mem::take(&mut self.logs).into_iter().map(|(name, log)| (name, log, false));
        let quiet = std::mem::take(&mut self.quiet).into_iter();
        let quiet = quiet.map(|(problem, log)| (problem.file_name, log, true));
        let all = telling.chain(quiet).filter(|(name, _, _)| judged.holds(name));
        let mut all: Vec<(String, JobLog, bool)> = all.collect();
        // The last line of each rank is reported.
        all.sort_by(|a, b| a.0.cmp(&b.0));
        let (logs, quiet): (Vec<(String, JobLog)>, Vec<bool>) =
            all.into_iter().map(|(name, log, quiet)| ((name, log), quiet)).unzip();
        let ranks = ranks_of(&logs.iter().map(NamedFile::of_log).collect::<Vec<_>>())?;
        for (((name, log), quiet), rank) in logs.iter().zip(quiet).zip(&ranks) {
            let told = rank.is_some() || !log.wrote.is_empty() || !log.errors.is_empty();
            let nobodys = quiet && !told;
            self.problems.extend(nobodys.then(|| says_nothing(name, log)));
        }
        let named = logs.iter().zip(&ranks).map(|((name, log), rank)| (name.as_str(), log, *rank));
        let mut heard = Heard::of(named);
        // A log that cannot be read is a rank's all the same.
        let above = unread_ranks.iter().map(|rank| rank.saturating_add(1)).max().unwrap_or(0);
        heard.world_size = heard.world_size.max(above);
        let ranks =
            logs.iter().zip(ranks).filter_map(|((name, _), rank)| Some((name.clone(), rank?)));
        Ok((heard, ranks.collect()))
    }

    /// Gives processes the ranks of their files, where the files do not say them inside.
    fn name_stacks(&mut self, log_ranks: &BTreeMap<String, GlobalRank>) {
        self.stacks.sort_by(|a, b| (&a.file_name, a.line).cmp(&(&b.file_name, b.line)));
        let mut files: BTreeMap<&str, (NamedFile<'_>, BTreeSet<Option<u64>>)> = BTreeMap::new();
        for process in self.stacks.iter().filter(|it| !log_ranks.contains_key(&it.file_name)) {
            let name = process.file_name.as_str();
            let file = || NamedFile { name, written_by: Vec::new(), tells: true };
            let (file, pids) = files.entry(name).or_insert_with(|| (file(), BTreeSet::new()));
            file.written_by.extend(process.rank);
            if process.parent.is_none() {
                pids.insert(process.pid);
            }
        }
        // The name of a file of several processes is none of a rank's.
        let of_one = files.values().filter(|(_, pids)| pids.len() == 1).map(|(file, _)| file);
        let of_one: Vec<NamedFile<'_>> = of_one.cloned().collect();
        let ranks = ranks_of(&of_one).unwrap_or_default();
        let ranks = of_one.iter().zip(ranks).filter_map(|(file, rank)| Some((file.name, rank?)));
        let ranks: BTreeMap<String, GlobalRank> =
            ranks.map(|(name, rank)| (name.to_owned(), rank)).collect();
        for process in &mut self.stacks {
            let of_file = log_ranks.get(&process.file_name).or(ranks.get(&process.file_name));
            process.rank = process.rank.or(of_file.copied());
        }
    }
}

/// The files of each source, the fullest source first.
fn by_source(calls: Vec<FileCalls>) -> Vec<SourceFiles> {
    let mut sources: BTreeMap<(Shows, &str), SourceFiles> = BTreeMap::new();
    for file in calls {
        let source = file.source;
        let known = sources.entry((source.shows(), source.name()));
        known.or_insert_with(|| (source, Vec::new())).1.push(file);
    }
    sources.into_values().collect()
}

/// Gives each source the files of ranks that it lacks from less full ones.
fn adopt_missing_ranks(files: &mut [SourceFiles]) {
    for at in 0..files.len() {
        let Some(([.., (source, own)], others)) = files.split_at_mut_checked(at + 1) else {
            continue;
        };
        for (_, others) in others {
            let adopted = source.adopt(own, others);
            own.extend(adopted);
        }
    }
}

/// The calls of the fullest source, with the values that the others have, and those of the others. Sources of another job
/// or time are left out, and become problems.
fn with_gaps_filled(
    mut sources: Vec<SourceCalls>,
    heard: &Heard,
    (notes, problems): (&mut Vec<String>, &mut Vec<String>),
) -> (Option<JobCalls>, Vec<JobCalls>) {
    if sources.is_empty() {
        return (None, Vec::new());
    }
    let (_, mut calls) = sources.remove(0);
    if calls.shows.has_clock() {
        let mut fitting = Vec::with_capacity(sources.len());
        for (source, other) in sources.into_iter().rev() {
            let clock = match other.shows.has_clock() {
                true => Clock::LaterBy(later_by(&calls.merged.header, &other.merged.header)),
                false => Clock::None,
            };
            let has_all = source.has_whole_ranks();
            let shared = shared_calls(&calls.merged.log, &other.merged.log, has_all);
            let apart = left_out_note(&calls.merged, &other.merged, clock, &shared);
            if let Some(note) = apart.filter(|_| has_all) {
                problems.push(note);
                continue;
            }
            let in_both = fill(&mut calls.merged.log, &other.merged.log, clock, &shared);
            let InBoth { mut filled, alike, calls: shared } = in_both;
            filled.computations =
                take_profiled(&mut calls.merged, &other.merged.log, clock, &shared);
            // The start may be an earlier one now.
            let clock = match clock {
                Clock::None => Clock::None,
                Clock::LaterBy(_) => {
                    Clock::LaterBy(later_by(&calls.merged.header, &other.merged.header))
                }
            };
            if (calls.shows, other.shows) == (Shows::LastCalls, Shows::CallOrder) {
                filled.whole_ranks = alike.take_over(&mut calls.merged.log, &other.merged.log);
            }
            notes.push(source.filled_in(&filled));
            if has_all {
                let taken = take_missing_ranks(&mut calls.merged.log, &other.merged.log, clock);
                notes.extend(taken_note(&taken, &other.merged.header));
            }
            fitting.push((source, other));
        }
        fitting.reverse();
        sources = fitting;
        notes.extend(align(&mut calls.merged));
    }
    if calls.shows == Shows::LastCalls && heard.timed_out() {
        // Calls alone look the same in a job that was running when it was recorded.
        calls.merged.log.outcome = Outcome::TimedOut;
    }
    (Some(calls), sources.into_iter().map(|(_, calls)| calls).collect())
}

/// A note about ranks whose calls all come from another source; `None` of none.
fn taken_note(ranks: &[GlobalRank], from: &TraceHeader) -> Option<String> {
    let Origin::Recorded { by, .. } = &from.origin else { return None };
    let who = match ranks {
        [] => return None,
        [one] => format!("rank {one}"),
        several => format!("ranks {}", rank_list(several)),
    };
    Some(format!(
        "The calls of {who} are those that {by} recorded, since nothing fuller was left of that."
    ))
}

/// The remark about a text without information on the job.
fn says_nothing(name: &str, log: &JobLog) -> String {
    match log.last.text.is_empty() {
        true => format!("{name} is empty"),
        false => format!(
            "{name} holds no message that PyTorch or NCCL writes when a job hangs, times out or fails; its \
             last line is \"{}\". If the job hung, give its Flight Recorder dumps",
            log.last.text
        ),
    }
}

/// The folders of files that were left out, with everything else in them.
fn other_sets(problems: &[FileProblem]) -> BTreeSet<String> {
    let others = problems.iter().filter(|problem| problem.kind == ProblemKind::OtherSet);
    others.map(|problem| problem.file_name.clone()).filter(|name| !name.is_empty()).collect()
}

/// The time between two recordings' starts, in picoseconds.
fn later_by(into: &TraceHeader, from: &TraceHeader) -> i128 {
    (i128::from(from.epoch_ns) - i128::from(into.epoch_ns)) * 1000
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
