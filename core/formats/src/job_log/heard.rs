//! The statements of all logs of a job together.

use super::statement::{Said, Statement, Unmatched};
use super::{ErrorLine, JobLog, LastLine};
use crate::place::Place;
use lockstep_core::rank::GlobalRank;
use std::collections::{BTreeMap, BTreeSet};

/// The statements of a job's logs together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Messages, and the ranks that they are about, each once.
    pub statements: Vec<Statement>,
    /// The statements of processes whose rank is unknown.
    pub unnamed: Vec<Unnamed>,
    /// The ranks whose logs are there, each with its last line.
    pub wrote: BTreeMap<GlobalRank, LastLine>,
    /// The number of ranks of the job, as the logs say; 0 if they do not.
    pub world_size: u32,
    /// True if some of the ranks are `torch.multiprocessing`'s numbers of its processes.
    pub spawned: bool,
    /// Gloo's message that ranks are in different calls, with the name of its file.
    pub unmatched: Option<(String, Unmatched)>,
    /// Lines with an error that is not one of these messages, with their files; the first ones.
    pub errors: Vec<(String, ErrorLine)>,
    /// The number of processes whose lines Ray leaves out, because they are like one that it shows.
    pub hidden: u64,
    /// The statements of other jobs' logs, where one file holds the logs of several, by the job's
    /// name. Their ranks are others.
    pub jobs: BTreeMap<String, Heard>,
    /// True if logs were read that are not empty, whatever they hold.
    pub has_text: bool,
}

/// A statement of a process whose rank is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unnamed {
    /// The line of the log that says so.
    pub place: Place,
    /// The statement.
    pub said: Said,
}

impl Heard {
    /// Gathers the statements of logs, given with their names, and with the rank whose log each is, if it is
    /// one rank's.
    pub fn of<'a>(
        logs: impl IntoIterator<Item = (&'a str, &'a JobLog, Option<GlobalRank>)>,
    ) -> Heard {
        let logs: Vec<(&str, &JobLog, Option<GlobalRank>)> = logs.into_iter().collect();
        let jobs: BTreeSet<&String> =
            logs.iter().filter_map(|(_, log, _)| log.job.as_ref()).collect();
        let (of_jobs, logs): (Vec<_>, Vec<_>) =
            logs.into_iter().partition(|(_, log, _)| log.job.is_some());
        let mut heard = Heard::of_one_job(logs);
        for job in jobs {
            let own = of_jobs.iter().copied().filter(|(_, log, _)| log.job.as_ref() == Some(job));
            heard.jobs.insert(job.clone(), Heard::of_one_job(own.collect()));
        }
        heard
    }

    fn of_one_job(logs: Vec<(&str, &JobLog, Option<GlobalRank>)>) -> Heard {
        let mut heard = Heard::default();
        let mut statements = BTreeSet::new();
        let all_done = all_done(&logs);
        for (file, log, rank) in logs {
            statements.extend(log.statements.iter().cloned());
            if let (None, Some(unmatched)) = (&heard.unmatched, &log.unmatched) {
                heard.unmatched = Some((file.to_owned(), unmatched.clone()));
            }
            heard.spawned |= log.spawned;
            heard.hidden = heard.hidden.max(log.hidden);
            heard.has_text |= !log.last.text.is_empty();
            heard.errors.extend(log.errors.iter().map(|error| (file.to_owned(), error.clone())));
            heard.world_size = heard.world_size.max(log.world_size.unwrap_or(0));
            for (own, last) in &log.wrote {
                let known = heard.wrote.entry(*own).or_default();
                if !last.text.is_empty() {
                    known.clone_from(last);
                }
            }
            for (said, line) in &log.unnamed {
                let (said, place) = (said.clone(), Place::new(file, *line));
                match rank {
                    // It handled that.
                    Some(_) if all_done || log.went_on.contains(line) => {}
                    Some(rank) => drop(statements.insert(Statement { rank, said, place })),
                    None => heard.unnamed.push(Unnamed { place, said }),
                }
            }
            if let Some(rank) = rank {
                let known = heard.wrote.entry(rank).or_default();
                if !log.last.text.is_empty() {
                    known.clone_from(&log.last);
                }
            }
        }
        // The way in which a process ended is not needed if its exception is known.
        let raised: BTreeSet<GlobalRank> =
            statements.iter().filter(|it| super::is_raised(&it.said)).map(|it| it.rank).collect();
        heard.statements = statements.into_iter().collect();
        heard
            .statements
            .retain(|it| !matches!(it.said, Said::Exited { .. }) || !raised.contains(&it.rank));
        // The same message may stand in the logs of several ranks.
        heard.statements.dedup_by(|b, a| (a.rank, &a.said) == (b.rank, &b.said));
        heard
    }

    /// One past the highest rank that is known of; `at_least` are known of otherwise.
    pub fn world(&self, at_least: u32) -> u32 {
        let said = self.statements.iter().map(|it| it.rank);
        let above = said.chain(self.wrote.keys().copied()).map(|rank| rank.0.saturating_add(1));
        above.max().unwrap_or(0).max(self.world_size).max(at_least)
    }

    /// True if a call is said to have timed out: the job did not only look as if it hung.
    pub fn timed_out(&self) -> bool {
        self.statements.iter().any(|it| match &it.said {
            Said::TimedOut { .. } | Said::Signalled | Said::MissedBarrier => true,
            Said::GaveUp { error, .. } => is_timeout(error),
            _ => false,
        })
    }

    /// True if nothing is said that could be judged.
    pub fn is_empty(&self) -> bool {
        self.statements.is_empty()
            && self.unnamed.is_empty()
            && self.unmatched.is_none()
            && self.jobs.is_empty()
    }
}

/// True of an exception that a call raises which timed out.
pub fn is_timeout(error: &str) -> bool {
    error.contains("imed out") || error.contains("timeout")
}

/// True if every rank's log ends in the same words, which say that it is done, and the only errors are
/// exceptions that logging wrote. A rank's output and its errors may be two files, and then nothing follows a
/// traceback.
fn all_done(logs: &[(&str, &JobLog, Option<GlobalRank>)]) -> bool {
    let complaints = |log: &JobLog| log.unnamed.iter().all(|(_, line)| log.recorded.contains(line));
    let ranks: BTreeSet<GlobalRank> = logs.iter().filter_map(|(_, _, rank)| *rank).collect();
    let mut done = BTreeSet::new();
    let mut ends = BTreeSet::new();
    for (_, log, rank) in logs.iter().filter(|(_, log, _)| log.ends_well) {
        done.extend(*rank);
        ends.insert(&log.last.text);
    }
    let of_one = logs.iter().all(|(_, log, rank)| rank.is_some() || log.unnamed.is_empty());
    let told = logs.iter().any(|(_, log, _)| !log.statements.is_empty() || !complaints(log));
    of_one && !told && ranks.len() > 1 && done == ranks && ends.len() == 1
}
