//! Kills at random: a rank, or the coordinator's process. After every one of them there is no
//! orphan, nobody listens, nothing is left in shared memory, and the trace up to there can be read.
//!
//! `LOCKSTEP_KILL_ROUNDS` and `LOCKSTEP_KILL_SEED` say how often, and which order of kills.

use crate::deaths::{long_plan, until};
use crate::left_behind::{MARK, Random, from_environment, listening, marked, names_of, sockets_of};
use lockstep_core::trace::{Outcome, Trace};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

fn kill(pid: u32) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        // It may just have ended by itself.
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Nothing of the round is left; `listened` are sockets that its processes had. Other tests share
/// memory at the same time, under the names of their own coordinators.
fn assert_nothing_left(mark: &str, coordinator: u32, listened: &BTreeSet<u64>) {
    until("every process of the round is gone", || marked(mark).is_empty());
    // A process that ends gives up its environment before its sockets.
    until("no socket of the round listens", || listening().is_disjoint(listened));
    let left = names_of(coordinator);
    assert!(left.is_empty(), "round {mark}: {left:?} in /dev/shm");
}

/// The trace, if the round got as far as beginning one.
fn trace_so_far(mark: &str, path: &Path) -> Option<Trace> {
    let bytes = std::fs::read(path).ok()?;
    match Trace::from_bytes(&bytes) {
        Ok(trace) => Some(trace),
        // A kill may come between making the file and writing all of its head.
        Err(error) if error.to_string().ends_with("it ends before its header does") => None,
        Err(error) => panic!("round {mark}: {error}"),
    }
}

/// The number of rounds that got so far that there was a run to kill in: a test whose kills all
/// came too early would show nothing.
#[derive(Debug, Default)]
struct Seen {
    traces: usize,
    died: usize,
    cut: usize,
}

/// Kills a rank of a run, or the process that it belongs to.
fn one_round(random: &mut Random, mark: &str, folder: &Path, seen: &mut Seen) {
    let path = folder.join(format!("{mark}.lks"));
    let named = random.below(2) == 0;
    let mut run = Command::new(env!("CARGO_BIN_EXE_lockstep-rank"))
        .arg("--run")
        .args([folder.join("plan"), path.clone()])
        .args(named.then_some("--named"))
        .env(MARK, mark)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let whole = random.below(2) == 0;
    std::thread::sleep(Duration::from_millis(random.below(200)));
    let processes = marked(mark);
    let listened = processes.iter().flat_map(|pid| sockets_of(*pid)).collect();
    let mut ranks: Vec<u32> = processes.into_iter().filter(|pid| *pid != run.id()).collect();
    ranks.sort_unstable();
    // It is started before the ranks.
    let keeper = (named && !ranks.is_empty()).then(|| ranks.remove(0));
    match ranks.get(random.below(ranks.len().max(1) as u64) as usize) {
        Some(rank) if !whole => {
            // Alone, the keeper is not missed: the coordinator removes the name itself.
            keeper.into_iter().filter(|_| random.below(4) == 0).for_each(kill);
            kill(*rank);
        }
        _ => kill(run.id()),
    }
    // A run that lost a rank ends by itself.
    let status = run.wait().unwrap();
    assert_nothing_left(mark, run.id(), &listened);
    if let Some(code) = status.code() {
        assert!([1, 2].contains(&code), "round {mark}: exit code {code}");
    }
    let Some(trace) = trace_so_far(mark, &path) else { return };
    seen.traces += 1;
    match trace.end.map(|end| end.outcome) {
        Some(Outcome::RankDied { how, .. }) => {
            assert!(how.contains("SIGKILL"), "round {mark}: {how}");
            seen.died += 1;
        }
        None => seen.cut += 1,
        Some(other) => panic!("round {mark}: {other:?}"),
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn whoever_is_killed_leaves_nothing_but_the_trace() {
    let seed = from_environment("LOCKSTEP_KILL_SEED", 0x5EED_1E55);
    let rounds = from_environment("LOCKSTEP_KILL_ROUNDS", 100);
    let mut random = Random(seed.max(1));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("plan"), long_plan().to_bytes()).unwrap();
    let mut seen = Seen::default();
    for round in 0..rounds {
        let mark = format!("{}-{round}", std::process::id());
        one_round(&mut random, &mark, folder.path(), &mut seen);
    }
    println!("{rounds} rounds, seed {seed:#x}: {seen:?}");
    assert!(seen.died > 0 && seen.cut > 0 && seen.traces as u64 * 4 > rounds, "{seen:?}");
}
