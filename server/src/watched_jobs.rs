//! Real jobs that `lockstep watch` runs elsewhere and shows here: the newest trace of each, and what its ranks do.
//! They live in memory; what remains of a job is in the folder of its `lockstep watch`.

use axum::body::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The most jobs that are kept; the one that was silent longest makes room.
const MAX_JOBS: usize = 16;

/// The doing of a rank, as its `lockstep watch` sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RankDoing {
    /// It is there.
    Runs,
    /// Its process is stopped by a signal.
    Stopped,
    /// Its script came to its end.
    Ended,
    /// Its process is gone.
    Gone,
}

/// A rank of a watched job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RankNow {
    /// The rank.
    pub(crate) rank: u32,
    /// Milliseconds since it was seen to make a call.
    pub(crate) still_ms: u64,
    /// Its doing.
    pub(crate) doing: RankDoing,
}

/// The news of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct News {
    /// The number of ranks, once it is known.
    pub(crate) world_size: Option<u32>,
    /// The ranks that have spoken.
    pub(crate) ranks: Vec<RankNow>,
    /// The way in which the job ended: `exit code 1`; absent while it runs.
    pub(crate) ended: Option<String>,
    /// The diagnosis as a text, where there is one.
    pub(crate) report: Option<String>,
}

/// A job as the API tells it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WatchedJob {
    id: u64,
    /// The command that started it.
    command: String,
    /// Counts its traces: another one is to be had when it has grown.
    traces: u64,
    /// Milliseconds since its `lockstep watch` said something.
    silent_ms: u64,
    #[serde(flatten)]
    news: News,
}

#[derive(Debug)]
struct Kept {
    command: String,
    traces: u64,
    trace: Bytes,
    news: News,
    heard: Instant,
}

/// All watched jobs.
#[derive(Clone, Debug, Default)]
pub(crate) struct WatchedJobs {
    jobs: Arc<Mutex<(u64, BTreeMap<u64, Kept>)>>,
}

impl WatchedJobs {
    fn jobs(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Kept>)> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new job; returns its number.
    pub(crate) fn add(&self, command: String) -> u64 {
        let mut held = self.jobs();
        let (last, jobs) = &mut *held;
        if jobs.len() >= MAX_JOBS {
            let silent = jobs.iter().min_by_key(|(_, job)| (job.news.ended.is_none(), job.heard));
            if let Some(id) = silent.map(|(id, _)| *id) {
                jobs.remove(&id);
            }
        }
        *last += 1;
        let (traces, trace, news) = (0, Bytes::new(), News::default());
        jobs.insert(*last, Kept { command, traces, trace, news, heard: Instant::now() });
        *last
    }

    /// Replaces the news of a job; false if there is no such job.
    pub(crate) fn tell(&self, id: u64, news: News) -> bool {
        self.change(id, |job| job.news = news)
    }

    /// Replaces the trace of a job; false if there is no such job.
    pub(crate) fn show(&self, id: u64, trace: Bytes) -> bool {
        self.change(id, |job| (job.trace, job.traces) = (trace, job.traces + 1))
    }

    fn change(&self, id: u64, change: impl FnOnce(&mut Kept)) -> bool {
        let mut held = self.jobs();
        let Some(job) = held.1.get_mut(&id) else { return false };
        job.heard = Instant::now();
        change(job);
        true
    }

    /// Every job, newest first.
    pub(crate) fn list(&self) -> Vec<WatchedJob> {
        self.jobs().1.iter().rev().map(|(id, job)| job.told(*id)).collect()
    }

    /// One job.
    pub(crate) fn get(&self, id: u64) -> Option<WatchedJob> {
        self.jobs().1.get(&id).map(|job| job.told(id))
    }

    /// The newest trace of a job; empty before its first.
    pub(crate) fn trace(&self, id: u64) -> Option<Bytes> {
        self.jobs().1.get(&id).map(|job| job.trace.clone())
    }
}

impl Kept {
    fn told(&self, id: u64) -> WatchedJob {
        let silent_ms = self.heard.elapsed().as_millis() as u64;
        let (command, news) = (self.command.clone(), self.news.clone());
        WatchedJob { id, command, traces: self.traces, silent_ms, news }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_trace_and_news_of_a_job_are_kept() {
        let jobs = WatchedJobs::default();
        let id = jobs.add("torchrun train.py".to_owned());
        assert_eq!(jobs.trace(id).unwrap(), Bytes::new());
        assert!(jobs.show(id, Bytes::from_static(b"one")));
        assert!(jobs.show(id, Bytes::from_static(b"two")));
        let told = jobs.get(id).unwrap();
        assert_eq!((told.traces, told.command.as_str()), (2, "torchrun train.py"));
        assert_eq!(jobs.trace(id).unwrap(), Bytes::from_static(b"two"));
        let news = News { ended: Some("exit code 1".to_owned()), ..News::default() };
        assert!(jobs.tell(id, news.clone()));
        assert_eq!(jobs.get(id).unwrap().news, news);
        assert!(!jobs.show(id + 1, Bytes::new()) && jobs.get(id + 1).is_none());
    }

    #[test]
    fn a_job_that_has_ended_makes_room_before_one_that_runs() {
        let jobs = WatchedJobs::default();
        let first = jobs.add("first".to_owned());
        let ended = jobs.add("ended".to_owned());
        jobs.tell(ended, News { ended: Some("exit code 0".to_owned()), ..News::default() });
        for _ in 2..=MAX_JOBS {
            jobs.add("another".to_owned());
        }
        assert_eq!(jobs.list().len(), MAX_JOBS);
        assert!(jobs.get(ended).is_none() && jobs.get(first).is_some());
    }
}
