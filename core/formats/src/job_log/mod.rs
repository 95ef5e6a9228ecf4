//! PyTorch's own statements in a job's log: DDP's, the watchdog's and `monitored_barrier`'s messages, the
//! findings of `TORCH_DISTRIBUTED_DEBUG=DETAIL`, exceptions, and torchrun's last words.
//!
//! A log is read line by line; lines without such a message are skipped. The texts are those of
//! `reducer.cpp`, `ProcessGroupNCCL.cpp`, `TraceUtils.h`, `ProcessGroupGloo.cpp`, `ProcessGroupWrapper.cpp`
//! and `torch/csrc/distributed/c10d/reducer.cpp` (`verify_params_across_processes`), as torch 2.1 to 2.15
//! write them. The writer of a line is in its prefix (`writer.rs`), or in the name of the file, which the
//! callers know.

mod colours;
mod error_lines;
mod going_on;
mod heard;
mod line_words;
mod messages;
mod network;
mod reader;
mod spawned;
mod statement;
mod text_lines;
mod torchrun;
mod traceback;
mod watchdog;
mod world;
pub(crate) mod writer;

pub use colours::without_colours;
pub use error_lines::ErrorLine;
pub use heard::is_timeout;
pub use heard::{Heard, Unnamed};
pub(crate) use reader::JobLogReader;
pub use statement::{By, Said, Statement, Unmatched};
pub use watchdog::is_world;

use crate::place::Place;
use lockstep_core::rank::GlobalRank;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use traceback::{Raise, Tracebacks};
use writer::{Labels, Writer};

/// More statements than this repeat themselves.
const MAX_STATEMENTS: usize = 1 << 16;

/// The most lines about an unusable store that are kept: it is asked again and again.
const MOST_STORE_LINES: usize = 2;

/// The most failed transfers that are kept.
const MOST_NETWORK_LINES: usize = 64;

/// The most characters of a log's last line that are shown.
const LAST_WORDS: usize = 120;

/// The most bytes of a log's last line that are kept.
const LAST_WORDS_BYTES: usize = 512;

/// The statements of one log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobLog {
    /// Every message of the kinds above that names a rank, each once.
    pub statements: Vec<Statement>,
    /// The statements of a process whose rank is not given, with the line.
    pub unnamed: Vec<(Said, u64)>,
    /// The lines of those exceptions behind which it goes on, if the log is one process's.
    pub went_on: BTreeSet<u64>,
    /// The lines of tracebacks that follow a line of logging.
    pub recorded: BTreeSet<u64>,
    /// The ranks that wrote something, by the prefixes of their lines, each with its last line.
    pub wrote: BTreeMap<GlobalRank, LastLine>,
    /// The number of ranks of the job, if the log says so.
    pub world_size: Option<u32>,
    /// True if some of the ranks are `torch.multiprocessing`'s numbers of its processes.
    pub spawned: bool,
    /// The error with which gloo ends a process that got a longer message than its call expects.
    pub unmatched: Option<Unmatched>,
    /// The log's last line that is not empty.
    pub last: LastLine,
    /// True if that line says that the process is done.
    pub ends_well: bool,
    /// Lines with an error that is not one of the messages above, the first ones.
    pub errors: Vec<ErrorLine>,
    /// The job of which the log is one, where one file holds the logs of several: the class of Ray's actors.
    pub job: Option<String>,
    /// The number of processes whose lines Ray leaves out, because they are like one that it shows.
    pub hidden: u64,
}

/// The last line that somebody wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastLine {
    /// Its beginning; empty if nothing was written.
    pub text: String,
    /// The line, if the text is not empty.
    pub place: Option<Place>,
}

impl JobLog {
    /// True if there is no message.
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty() && self.unnamed.is_empty() && self.unmatched.is_none()
    }
}

/// The statements of a log; empty if the text is no such log. Of a text that holds the logs of
/// several jobs, the statements of all of them together: [`read_jobs`] keeps them apart.
pub fn read(file: &str, text: &[u8]) -> JobLog {
    read_of_job(file, text, None)
}

/// The statements of each job's log in a text; mostly there is one.
pub(crate) fn read_jobs(file: &str, text: &[u8]) -> Vec<JobLog> {
    let jobs = writer::jobs(text);
    match jobs.len() {
        0 | 1 => vec![read(file, text)],
        _ => jobs.iter().map(|job| read_of_job(file, text, Some(job))).collect(),
    }
}

/// The statements of one job's lines; without a job's name, those of all lines.
fn read_of_job(file: &str, text: &[u8], job: Option<&str>) -> JobLog {
    let numbered = writer::is_numbered(text);
    let mut reader = Reader { file: file.into(), numbered, ..Reader::default() };
    text_lines::of(text, &mut |number, line| {
        let mine = job.is_none_or(|job| writer::job(line).is_some_and(|own| own == job));
        if mine {
            reader.line(number, line);
        }
    });
    let mut log = reader.end();
    log.last = last_line(file, text);
    log.ends_well = going_on::ends_well(text);
    log.job = job.map(str::to_owned);
    log
}

/// True of a call's line in NCCL's own log, which `nccl_log` reads.
fn is_nccl_call(line: &str) -> bool {
    line.contains(" NCCL INFO ") && line.contains(": opCount ")
}

fn last_line(file: &str, text: &[u8]) -> LastLine {
    let text = text.trim_ascii_end();
    let mut lines = text.rsplit(|byte| matches!(byte, b'\n' | b'\r'));
    let last = lines.find(|line| !line.trim_ascii().is_empty()).unwrap_or_default();
    let number = text.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
    let last = String::from_utf8_lossy(last.get(..last.len().min(1024)).unwrap_or(last));
    LastLine { text: shortened(&last), place: (!text.is_empty()).then(|| Place::new(file, number)) }
}

fn shortened(text: &str) -> String {
    text.trim().chars().filter(|c| !c.is_control()).take(LAST_WORDS).collect()
}

/// A log that is being read.
#[derive(Default)]
struct Reader {
    file: Arc<str>,
    numbered: bool,
    found: Vec<Statement>,
    world_size: Option<u32>,
    unmatched: Option<Unmatched>,
    /// The last lines of ranks, by number, each with its number in the log.
    wrote: BTreeMap<u64, (u64, String)>,
    labels: Labels,
    tracebacks: Tracebacks,
    summary: torchrun::Summary,
    spawned: spawned::Spawned,
    /// The index in `found` and the number of a rank's last timeout whose line names no group.
    groupless: BTreeMap<u64, (usize, u64)>,
    /// The group whose report of slow ranks is being read.
    report: Option<String>,
    errors: error_lines::ErrorLines,
    hidden: u64,
    /// Lines that say that the rendezvous store cannot be used.
    store: Vec<(Said, u64)>,
    /// Lines of failed transfers between machines, each pair once.
    network: Vec<(Said, u64)>,
}

impl Reader {
    fn line(&mut self, number: u64, line: &str) {
        let place = self.place(number);
        let taken = writer::Line::of(line, self.numbered);
        self.labels.take(&taken);
        if let Some(rank) = taken.rank
            && (self.wrote.len() < MAX_STATEMENTS || self.wrote.contains_key(&rank))
        {
            let (last, own) = self.wrote.entry(rank).or_default();
            *last = number;
            own.clear();
            own.push_str(taken.text.get(..LAST_WORDS_BYTES).unwrap_or(taken.text));
        }
        // NCCL's own log has millions of calls, and none of them is a message of PyTorch's.
        let announced = self.summary.about().or(self.spawned.about());
        if self.report.is_none() && announced.is_none() && is_nccl_call(taken.text) {
            self.tracebacks.take(taken.writer(), taken.text, number);
            return;
        }
        self.world_size = self.world_size.max(world::size(taken.text));
        self.hidden = self.hidden.max(writer::repeated(line));
        self.errors.take(number, taken.rank, taken.text);
        if self.unmatched.is_none() {
            self.unmatched = messages::unmatched(number, taken.text);
        }
        let before = self.found.len();
        let found = &mut self.found;
        let mut say = |rank: u64, said: Said| {
            if found.len() < MAX_STATEMENTS
                && let Some(rank) = rank_of(rank)
            {
                found.push(Statement { rank, said, place: place.clone() });
            }
        };
        // Most lines of a log are none of these.
        if line.contains("ank") || line.contains("in this process with sizes") {
            messages::of_line(line, &mut say);
        }
        self.summary.take(taken.text, &mut say);
        if let Some(rank) = self.spawned.take(taken.text, &mut say) {
            self.tracebacks.announced(Writer::Rank(rank));
        }
        self.watchdog(number, line);
        if let Some(rank) = self.spawned.about()
            && self.tracebacks.is_over(Writer::Rank(rank), taken.text)
        {
            self.spawned.end();
        }
        let writer = match (taken.writer(), self.summary.about().or(self.spawned.about())) {
            (Writer::Nobody, Some(rank)) => Writer::Rank(rank),
            (writer, _) => writer,
        };
        let in_traceback = self.tracebacks.is_open(writer);
        self.tracebacks.take(writer, taken.text, number);
        if !in_traceback
            && self.store.len() < MOST_STORE_LINES
            && let Some(error) = messages::of_store(taken.text)
        {
            self.store.push((Said::Store { error }, number));
        }
        if self.network.len() < MOST_NETWORK_LINES
            && let Some(said) = network::of_line(taken.text)
            && self.network.iter().all(|(known, _)| *known != said)
        {
            if let Some(rank) = taken.rank.and_then(rank_of) {
                self.found.push(Statement { rank, said: said.clone(), place: place.clone() });
            }
            self.network.push((said, number));
        }
        // One of the messages above says more than that an exception was raised.
        if self.found.len() == before
            && !in_traceback
            && let Some(rank) = taken.rank.and_then(rank_of)
            && let Some(raised) = traceback::raised_alone(taken.text)
            && let Some(said) = said_of(raised.why, raised.error.into(), None, None, None)
            && self.found.len() < MAX_STATEMENTS
        {
            self.found.push(Statement { rank, said, place });
        }
    }

    fn watchdog(&mut self, number: u64, line: &str) {
        // Most lines of a log are none of these.
        if !line.contains("ank") && self.report.is_none() {
            return;
        }
        let mut said: Vec<(u64, watchdog::Line)> = Vec::new();
        watchdog::of_line(line, &mut |rank, line| said.push((rank, line)));
        if let Some(group) = self.report.take() {
            // It ends where somebody writes the next line.
            if writer::speaker(line).is_none() {
                watchdog::of_report(line, &group, &mut |rank, line| said.push((rank, line)));
                self.report = Some(group);
            }
        }
        if self.report.is_none() {
            self.report = watchdog::begins_report(line);
        }
        for (rank, line) in said {
            match line {
                watchdog::Line::Fired(said) => {
                    if let Said::TimedOut { group, seq, .. } = &said
                        && group.is_empty()
                    {
                        self.groupless.insert(rank, (self.found.len(), *seq));
                    }
                    self.say(rank, said, number);
                }
                watchdog::Line::Stood { said, failed } => {
                    if let Said::Stood { group, .. } = &said
                        && let Some((at, seq)) = self.groupless.get(&rank)
                        && failed == Some(*seq)
                        && let Some(Statement { said: Said::TimedOut { group: own, .. }, .. }) =
                            self.found.get_mut(*at)
                    {
                        own.clone_from(group);
                        self.groupless.remove(&rank);
                    }
                    self.say(rank, said, number);
                }
                watchdog::Line::Signalled => self.say(rank, Said::Signalled, number),
                watchdog::Line::Stuck(said)
                | watchdog::Line::DeviceError(said)
                | watchdog::Line::Aborted(said) => {
                    self.say(rank, said, number);
                }
                watchdog::Line::Behind { ranks, said, next } => {
                    for rank in ranks {
                        self.say(rank, said.clone(), number);
                        if next.is_some() {
                            self.say(rank, Said::Lagging { next }, number);
                        }
                    }
                }
            }
        }
    }

    fn say(&mut self, rank: u64, said: Said, line: u64) {
        if self.found.len() < MAX_STATEMENTS
            && let Some(rank) = rank_of(rank)
        {
            let place = self.place(line);
            self.found.push(Statement { rank, said, place });
        }
    }

    /// A line of the log.
    fn place(&self, line: u64) -> Place {
        Place { file: Arc::clone(&self.file), line }
    }

    fn end(mut self) -> JobLog {
        let mut unnamed = Vec::new();
        let (mut went_on, mut recorded) = (BTreeSet::new(), BTreeSet::new());
        for (writer, raise, lines) in std::mem::take(&mut self.tracebacks).ends() {
            let rank = match writer {
                Writer::Rank(rank) => rank_of(rank),
                Writer::Labelled(label) => self.labels.rank_of(label).and_then(rank_of),
                Writer::Nobody | Writer::Carried(_) => None,
            };
            let Raise { error, frame, source, call, line, why, recorded: is_recorded } = raise;
            // One of the other messages says more than that an exception was raised.
            let told = |it: &Statement| it.place.line == line && !is_raised(&it.said);
            let Some(said) = said_of(why, error, frame, source, call) else { continue };
            if self.found.iter().any(told) {
                continue;
            }
            match rank {
                Some(_) if lines.went_on() => {}
                None if lines.all_went_on(self.wrote.len()) => {}
                Some(rank) => {
                    self.found.retain(|it| it.rank != rank || !is_raised(&it.said));
                    let place = self.place(line);
                    self.found.push(Statement { rank, said, place });
                }
                None => {
                    went_on.extend(lines.went_on().then_some(line));
                    recorded.extend(is_recorded.then_some(line));
                    unnamed.push((said, line));
                }
            }
        }
        if unnamed.is_empty() {
            unnamed.append(&mut self.store);
        }
        let told = |it: &(Said, u64)| self.found.iter().any(|known| known.place.line == it.1);
        unnamed.extend(std::mem::take(&mut self.network).into_iter().filter(|it| !told(it)));
        let last_of = |(rank, (line, text)): (u64, (u64, String))| {
            let place = Place { file: Arc::clone(&self.file), line };
            Some((rank_of(rank)?, LastLine { text: shortened(&text), place: Some(place) }))
        };
        let wrote = self.wrote.into_iter().filter_map(last_of);
        let mut wrote: BTreeMap<GlobalRank, LastLine> = wrote.collect();
        for rank in self.labels.ranks().filter_map(rank_of) {
            wrote.entry(rank).or_default();
        }
        let statements = settled(in_the_only_group(self.found));
        // On one machine ranks count from 0: with one that is not among them there are several machines.
        let processes = self.summary.processes();
        let within = statements.iter().all(|it| it.rank.0 < processes);
        let world_size = self.world_size.max(within.then_some(processes).filter(|it| *it > 0));
        let world_size = world_size.max(world_by_sizes(&statements));
        let (unmatched, spawned) = (self.unmatched, self.spawned.told());
        let log = JobLog { statements, unnamed, went_on, recorded, ..JobLog::default() };
        let told = log.statements.iter().map(|it| it.place.line);
        let told: BTreeSet<u64> = told.chain(log.unnamed.iter().map(|(_, line)| *line)).collect();
        let (errors, hidden) = (self.errors.found(&told), self.hidden);
        JobLog { wrote, world_size, spawned, unmatched, errors, hidden, ..log }
    }
}

/// The statement of an exception, if it says something of its process.
fn said_of(
    why: traceback::Why,
    error: String,
    frame: Option<String>,
    source: Option<String>,
    call: Option<String>,
) -> Option<Said> {
    let error = error.chars().take(traceback::MOST_CHARS).collect();
    match why {
        traceback::Why::Own => Some(Said::Raised { error, frame, source }),
        traceback::Why::Others => Some(Said::GaveUp { error, frame, source, call }),
        traceback::Why::Told => None,
    }
}

/// True if a message is an exception.
fn is_raised(said: &Said) -> bool {
    matches!(said, Said::Raised { .. } | Said::GaveUp { .. })
}

/// The statements, with timeouts whose lines name no group put into the one group that the log names.
fn in_the_only_group(mut found: Vec<Statement>) -> Vec<Statement> {
    let named = found.iter().filter_map(|it| group_of(&it.said)).filter(|group| !group.is_empty());
    let named: BTreeSet<String> = named.cloned().collect();
    let (Some(only), 1) = (named.first(), named.len()) else { return found };
    // A rank that tells how it stands names its groups itself.
    let stood = |it: &&Statement| matches!(it.said, Said::Stood { .. });
    let told: BTreeSet<GlobalRank> = found.iter().filter(stood).map(|it| it.rank).collect();
    for it in &mut found {
        if let Said::TimedOut { group, .. } = &mut it.said
            && group.is_empty()
            && !told.contains(&it.rank)
        {
            group.clone_from(only);
        }
    }
    found
}

/// The group that the watchdog names.
fn group_of(said: &Said) -> Option<&String> {
    match said {
        Said::TimedOut { group, .. } | Said::Stood { group, .. } => Some(group),
        _ => None,
    }
}

/// The number of ranks of the default group, as the sizes of an all_gather or reduce_scatter of it
/// say that timed out: one side holds a part, the other the parts of all.
fn world_by_sizes(statements: &[Statement]) -> Option<u32> {
    statements.iter().find_map(|it| {
        let Said::TimedOut { group, op, numel_in, numel_out, .. } = &it.said else { return None };
        let (part, all) = match op.trim_start_matches('_').trim_end_matches("_BASE") {
            "ALLGATHER" => (*numel_in, *numel_out),
            "REDUCE_SCATTER" => (*numel_out, *numel_in),
            _ => return None,
        };
        let (part, all) = (part.filter(|part| *part > 0)?, all?);
        let ranks = u32::try_from(all / part).ok()?;
        let whole = all.is_multiple_of(part) && ranks > it.rank.0;
        (whole && ranks <= lockstep_core::rank::MAX_WORLD_SIZE && names_world(group))
            .then_some(ranks)
    })
}

/// True of the default group, where the log names it.
fn names_world(group: &str) -> bool {
    !group.is_empty() && is_world(group)
}

/// The statements, each once, without those that a better one includes.
fn settled(mut found: Vec<Statement>) -> Vec<Statement> {
    // A number on a machine is not needed where the rank is said.
    if found.iter().any(|it| matches!(it.said, Said::Killed { by: By::Torchrun, .. })) {
        found.retain(|it| !matches!(it.said, Said::Killed { by: By::TorchrunLocal, .. }));
    }
    // The end of a watchdog repeats what it said, there with the group.
    let mut grouped = BTreeSet::new();
    for it in &found {
        if let Said::TimedOut { group, seq, op, .. } = &it.said
            && !group.is_empty()
        {
            grouped.insert((it.rank, *seq, op.clone()));
        }
    }
    found.retain(|it| match &it.said {
        Said::TimedOut { group, seq, op, .. } => {
            !group.is_empty() || !grouped.contains(&(it.rank, *seq, op.clone()))
        }
        _ => true,
    });
    let mut seen = BTreeSet::new();
    found.retain(|statement| seen.insert((statement.rank, statement.said.clone())));
    found
}

/// The rank of a number, if a rank can have it.
fn rank_of(rank: u64) -> Option<GlobalRank> {
    u32::try_from(rank)
        .ok()
        .filter(|rank| *rank < lockstep_core::rank::MAX_WORLD_SIZE)
        .map(GlobalRank)
}

#[cfg(test)]
mod tests;
