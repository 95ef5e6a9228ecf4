//! Processes of this machine, as the kernel shows them under `/proc` (proc(5)).

use std::collections::{BTreeMap, BTreeSet};

/// State and parent of a process.
struct Stat {
    state: char,
    parent: u32,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let mut fields = text.rsplit(')').next()?.split_whitespace();
    Some(Stat { state: fields.next()?.chars().next()?, parent: fields.next()?.parse().ok()? })
}

/// True if there is such a process, and it has not ended.
pub(crate) fn is_there(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// True if a process is stopped by a signal or a debugger; false if there is no such process.
pub(crate) fn is_stopped(pid: u32) -> bool {
    stat(pid).is_some_and(|stat| matches!(stat.state, 'T' | 't'))
}

/// The variables that a process was started with; none of a process of somebody else.
pub(crate) fn environment(pid: u32) -> BTreeMap<String, String> {
    let bytes = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let variables = text.split('\0').filter_map(|line| line.split_once('='));
    variables.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// True if a process has loaded a library whose file's name begins so.
pub(crate) fn has_loaded(pid: u32, library: &str) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines().filter_map(|line| line.rsplit('/').next()).any(|name| name.starts_with(library))
}

/// A process and all that it has started, parents before their children.
pub(crate) fn with_descendants(pid: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: BTreeMap<u32, u32> =
        pids.filter_map(|pid| Some((pid, stat(pid)?.parent))).collect();
    let mut found = vec![pid];
    let mut seen = BTreeSet::from([pid]);
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        let children = parents.iter().filter(|(_, of)| **of == parent).map(|(child, _)| *child);
        found.extend(children.filter(|child| seen.insert(*child)));
        at += 1;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn a_stopped_process_is_seen_below_its_parent_with_its_variables() {
        use rustix::process::{Pid, Signal, kill_process};
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .env("RANK_OF_THIS_TEST", "3")
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(child.id() as i32).unwrap();
        assert!(is_there(child.id()) && !is_stopped(child.id()));
        let below = with_descendants(std::process::id());
        assert!(below.len() > 1 && below.contains(&child.id()), "{below:?}");
        let began = Instant::now();
        // Its variables are there once it has become `sleep`.
        while environment(child.id()).get("RANK_OF_THIS_TEST").is_none_or(|it| it != "3") {
            assert!(began.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(5));
        }
        kill_process(pid, Signal::STOP).unwrap();
        while !is_stopped(child.id()) && began.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(is_stopped(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_there(child.id()) && !is_stopped(child.id()));
        assert!(environment(child.id()).is_empty());
    }
}
