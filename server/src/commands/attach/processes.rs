//! Ranks that are processes of this machine, with or without a debug server.
//!
//! py-spy says where their threads are, and stops none of them. NCCL's watchdog writes the flight recorder's
//! dump when somebody writes into the pipe that `TORCH_NCCL_DEBUG_INFO_PIPE_FILE` names
//! (`ProcessGroupNCCL.hpp`, `DumpPipe`). `ncclras` asks NCCL's own service, of the machine that it runs on.

use super::answers::{Answer, Asked};
use crate::processes;
use anyhow::{Result, bail};
use lockstep_core::rank::{GlobalRank, MAX_WORLD_SIZE};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A process as the command line names it: a rank's, or one that has started ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) pid: u32,
    /// Its rank, where its variables do not tell it.
    pub(super) rank: Option<GlobalRank>,
}

/// The variables in which launchers give a rank.
const RANKS: [&str; 4] = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];

/// The variable that a launcher of PyTorch gives to ranks, and not to itself.
const LOCAL_RANK: &str = "LOCAL_RANK";

/// The variable with the beginning of the pipes' names; each ends in its rank and `.pipe`.
const PIPES: &str = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE";

/// The variables with the beginning of the dumps' names, the newer one first, and what it is without them.
const DUMPS: [&str; 2] = ["TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"];
const OLDER_DUMPS: &str = "/tmp/nccl_trace_rank_";
const NEWER_DUMPS: &str = ".cache/torch/comm_lib_trace_rank_";

/// Interval at which a dump that was asked for is looked for.
const LOOK: Duration = Duration::from_millis(100);

/// The ranks among the named processes and those that they started.
///
/// # Errors
/// When a process is not there, none is a rank's, or two of them are the same rank.
pub(super) fn ranks(named: &[Named]) -> Result<BTreeMap<GlobalRank, u32>> {
    let mut found = BTreeMap::new();
    for Named { pid, rank } in named {
        if !processes::is_there(*pid) {
            bail!("there is no process {pid}");
        }
        let ranks = match rank {
            Some(rank) => BTreeMap::from([(*rank, *pid)]),
            None => ranks_below(*pid),
        };
        if ranks.is_empty() {
            bail!(
                "neither process {pid} nor one that it started was given a rank ({}): say it, as pid:{pid}:RANK",
                RANKS.join(", ")
            );
        }
        for (rank, pid) in ranks {
            match found.insert(rank, pid) {
                Some(other) if other != pid => {
                    bail!("processes {other} and {pid} are both rank {rank}")
                }
                _ => {}
            }
        }
    }
    Ok(found)
}

/// Ranks by their variables. What a rank starts, such as workers that load data, inherits them, so the first of
/// a rank counts.
fn ranks_below(pid: u32) -> BTreeMap<GlobalRank, u32> {
    let all = processes::with_descendants(pid).into_iter();
    let all: Vec<_> = all.map(|pid| (pid, processes::environment(pid))).collect();
    let by_launcher = all.iter().any(|(_, variables)| variables.contains_key(LOCAL_RANK));
    let mut found = BTreeMap::new();
    for (pid, variables) in all {
        if by_launcher && !variables.contains_key(LOCAL_RANK) {
            continue;
        }
        let rank = RANKS.iter().find_map(|name| variables.get(*name)?.parse::<u32>().ok());
        if let Some(rank) = rank.filter(|rank| *rank < MAX_WORLD_SIZE) {
            found.entry(GlobalRank(rank)).or_insert(pid);
        }
    }
    found
}

/// The state of ranks, one after the other: dumps, stacks, and what NCCL says of all of them.
pub(super) async fn of_processes(
    ranks: &BTreeMap<GlobalRank, u32>,
    asked: Asked<'_>,
) -> Vec<(Option<GlobalRank>, Answer)> {
    let mut answers = Vec::new();
    for (rank, pid) in ranks {
        let mut answer = Answer::default();
        match processes::is_there(*pid) {
            true => of_process(*rank, *pid, asked, &mut answer).await,
            false => answer.is_gone = true,
        }
        answers.push((Some(*rank), answer));
    }
    if ranks.values().any(|pid| processes::has_loaded(*pid, "libnccl.so")) {
        let mut answer = Answer::default();
        if let Some(program) = on_path("ncclras", std::env::var("PATH").ok().as_deref()) {
            if let Some(text) = output(&program, &["-v"], asked, &mut answer).await {
                answer.keep(asked.folder, "ncclras.txt".to_owned(), &text);
            }
            answers.push((None, answer));
        }
    }
    answers
}

async fn of_process(rank: GlobalRank, pid: u32, asked: Asked<'_>, answer: &mut Answer) {
    let variables = processes::environment(pid);
    let stopped = processes::is_stopped(pid);
    answer.is_stopped = stopped;
    if let Some(stem) = variables.get(PIPES).filter(|_| !stopped) {
        match dump_by_pipe(stem, rank, &variables, asked.within).await {
            Ok(bytes) => answer.keep(asked.folder, format!("nccl_trace_rank_{rank}"), &bytes),
            Err(why) => answer.problems.push(format!("rank {rank} (process {pid}): {why}")),
        }
    }
    let own = std::env::var("PATH").ok();
    let paths = [own.as_deref(), variables.get("PATH").map(String::as_str)];
    let Some(program) = paths.into_iter().find_map(|path| on_path("py-spy", path)) else {
        answer.problems.push(format!(
            "rank {rank} (process {pid}): py-spy, which shows where its threads are, is not installed: pip install \
             py-spy"
        ));
        return;
    };
    let number = pid.to_string();
    let dump = ["dump", "--nonblocking", "--pid", &number];
    if let Some(stacks) = output(&program, &dump, asked, answer).await {
        answer.main_thread = main_thread(&String::from_utf8_lossy(&stacks));
        let mut text = format!("=== Rank {rank}: process {pid} ===\n").into_bytes();
        text.extend(stacks);
        answer.keep(asked.folder, format!("stacks_rank_{rank}.txt"), &text);
    }
}

/// The frames of the main thread in what py-spy prints.
fn main_thread(stacks: &str) -> Option<String> {
    let mut lines = stacks.lines();
    lines.by_ref().find(|line| line.starts_with("Thread") && line.contains("\"MainThread\""))?;
    Some(lines.take_while(|line| line.starts_with(' ')).collect::<Vec<_>>().join("\n"))
}

/// The output of a program; a problem is noted if it fails or takes too long.
async fn output(
    program: &Path,
    arguments: &[&str],
    asked: Asked<'_>,
    answer: &mut Answer,
) -> Option<Vec<u8>> {
    let said = format!("{} {}", program.display(), arguments.join(" "));
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).stdin(std::process::Stdio::null()).kill_on_drop(true);
    let done = match tokio::time::timeout(asked.within, command.output()).await {
        Ok(Ok(done)) => done,
        Ok(Err(error)) => {
            answer.problems.push(format!("{said} does not start: {error}"));
            return None;
        }
        Err(_) => {
            answer.problems.push(format!("{said} took longer than {} s", asked.within.as_secs()));
            return None;
        }
    };
    if !done.status.success() {
        let why = String::from_utf8_lossy(&done.stderr);
        let why = why.trim().lines().next().unwrap_or("it says nothing").to_owned();
        answer.problems.push(format!("{said} fails: {why}"));
        return None;
    }
    Some(done.stdout)
}

/// A program in the folders of a `PATH`.
fn on_path(program: &str, path: Option<&str>) -> Option<PathBuf> {
    std::env::split_paths(path?).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Asks a rank for its dump through its pipe, and waits for the file.
async fn dump_by_pipe(
    stem: &str,
    rank: GlobalRank,
    variables: &BTreeMap<String, String>,
    within: Duration,
) -> Result<Vec<u8>, String> {
    let pipe = format!("{stem}{rank}.pipe");
    let before = SystemTime::now();
    // A pipe that nobody reads is not waited for, and a file of that name is not made.
    let opened = std::fs::OpenOptions::new()
        .write(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(&pipe);
    let is_pipe = |file: &std::fs::File| {
        use std::os::unix::fs::FileTypeExt;
        file.metadata().is_ok_and(|about| about.file_type().is_fifo())
    };
    let mut file = opened.map_err(|error| format!("its pipe {pipe} cannot be written: {error}"))?;
    if !is_pipe(&file) {
        return Err(format!("{pipe} is no pipe"));
    }
    file.write_all(b"1\n").map_err(|error| format!("its pipe {pipe} takes nothing: {error}"))?;
    let places = dump_places(variables, rank);
    let until = tokio::time::Instant::now() + within;
    let mut last: Option<(PathBuf, u64)> = None;
    while tokio::time::Instant::now() < until {
        tokio::time::sleep(LOOK).await;
        for place in &places {
            let Ok(about) = std::fs::metadata(place) else { continue };
            // The clocks of file systems are coarser than ours.
            let is_new = about.modified().is_ok_and(|at| at + Duration::from_millis(50) >= before);
            let now = (place.clone(), about.len());
            if is_new && about.len() > 0 && last.as_ref() == Some(&now) {
                let read = crate::files::read(place, crate::files::MAX_FILE_BYTES);
                return read.map_err(|error| format!("{error:#}"));
            }
            if is_new {
                last = Some(now);
                break;
            }
        }
    }
    let names: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    Err(format!("it wrote no dump within {} s ({})", within.as_secs(), names.join(", ")))
}

/// The files that a rank may write its dump into.
fn dump_places(variables: &BTreeMap<String, String>, rank: GlobalRank) -> Vec<PathBuf> {
    if let Some(stem) = DUMPS.iter().find_map(|name| variables.get(*name)) {
        return vec![format!("{stem}{rank}").into()];
    }
    let home = variables.get("HOME").map(|home| format!("{home}/{NEWER_DUMPS}{rank}").into());
    home.into_iter().chain([format!("{OLDER_DUMPS}{rank}").into()]).collect()
}
