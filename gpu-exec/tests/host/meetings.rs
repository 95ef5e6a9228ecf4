//! Ranks that meet in a file, and the removal of the file.

use crate::deaths::{long_plan, until};
use crate::launched::{Job, all, assert_verified, codes, end_within, reduction, text};
use lockstep_core::trace::Trace;
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;

/// A job and the file that its ranks meet in.
fn job(plan: &lockstep_core::plan::Plan) -> (Job, PathBuf, String) {
    let job = Job::of(plan);
    let file = job.folder.path().join("meeting");
    let meet = format!("--meet=file://{}", file.display());
    (job, file, meet)
}

/// On a machine that has much to do.
const LIMIT: Duration = Duration::from_secs(25);

/// True if the trace has events besides the header, which holds the plan.
fn has_begun(job: &Job) -> bool {
    let trace = std::fs::read(job.trace_path()).unwrap_or_default();
    Trace::read(&trace).is_ok_and(|trace| trace.events.len() > 9)
}

fn signal(rank: &Child, signal: Signal) {
    kill_process(Pid::from_raw(rank.id() as i32).unwrap(), signal).unwrap();
}

fn kill(rank: &Child) {
    signal(rank, Signal::KILL);
}

/// True if none of a process's threads runs any more: a signal reaches them one after the other.
fn has_stopped(rank: &Child) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", rank.id())).unwrap();
    threads.flatten().all(|thread| {
        let status = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        status.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('T'))
    })
}

/// c10d's count of processes that have it open then never reaches zero, and PyTorch's next job hangs in it.
#[test]
fn a_file_that_a_killed_job_left_behind_serves_the_next_and_goes_with_it() {
    let (job, file, meet) = job(&long_plan());
    let ranks = job.start(3, &[&meet]);
    until("all have met", || has_begun(&job));
    // None sees another one end.
    ranks.iter().for_each(|rank| signal(rank, Signal::STOP));
    until("all stand", || ranks.iter().all(has_stopped));
    ranks.iter().for_each(kill);
    assert_eq!(codes(&end_within(LIMIT, ranks)), [None; 3]);
    assert!(file.exists(), "nobody was left to remove it");
    let plan = reduction(3);
    let next = Job::of(&plan);
    let outputs = end_within(LIMIT, next.start(3, &[&meet]));
    assert_eq!(codes(&outputs), [Some(0); 3], "{:?}", all(&outputs));
    assert_verified(&next, &plan);
    assert!(!file.exists());
}

/// The ranks that rank 0 leaves behind remove the file.
#[test]
fn a_file_goes_with_the_last_where_rank_0_was_killed() {
    let (job, file, meet) = job(&long_plan());
    let ranks = job.start(3, &[&meet]);
    until("all have met", || has_begun(&job));
    assert!(file.exists());
    kill(&ranks[0]);
    let outputs = end_within(LIMIT, ranks);
    assert_eq!(codes(&outputs), [None, Some(1), Some(1)], "{:?}", all(&outputs));
    assert!(!file.exists());
}

/// Also before all have met.
#[test]
fn a_file_goes_where_rank_0_was_killed_before_the_run_began() {
    let (job, file, meet) = job(&long_plan());
    let rank = |rank| job.rank(rank, 3, 1, &[&meet]);
    let first = rank(0);
    let second = rank(1);
    let connected = || {
        let sockets = std::fs::read_dir(format!("/proc/{}/fd", second.id())).unwrap();
        let links = sockets.flatten().filter_map(|fd| std::fs::read_link(fd.path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("socket:")).count() > 0
    };
    until("rank 1 has come", || file.exists() && connected());
    kill(&first);
    let outputs = end_within(LIMIT, vec![first, second]);
    assert_eq!(codes(&outputs)[0], None);
    assert!(codes(&outputs)[1].is_some_and(|code| code > 0), "{:?}", all(&outputs));
    assert!(!file.exists(), "{:?}", all(&outputs));
}

#[test]
fn two_runs_do_not_meet_in_one_file() {
    let (job, file, meet) = job(&long_plan());
    let mut ranks = job.start(3, &[&meet]);
    until("all have met", || has_begun(&job));
    let second = Job::of(&reduction(3));
    let mut outputs = end_within(LIMIT, vec![second.rank(0, 3, 1, &[&meet])]);
    let refused = text(&outputs.remove(0));
    let told = format!("another run meet, which still goes on (process {})", ranks[0].id());
    assert!(refused.contains(&told), "{refused}");
    // And the first goes on, until it is ended.
    assert!(file.exists() && ranks.iter_mut().all(|rank| rank.try_wait().unwrap().is_none()));
    kill(&ranks[2]);
    let outputs = end_within(LIMIT, ranks);
    assert_eq!(codes(&outputs), [Some(1), Some(1), None], "{:?}", all(&outputs));
    assert!(!file.exists());
}
