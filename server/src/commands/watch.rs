//! `lockstep watch`: a real PyTorch job, watched while it runs. When it hangs, fails or times out, its dumps, stacks and
//! logs are gathered and diagnosed.
//!
//! The job is started as it would be without Lockstep, with one folder more on `PYTHONPATH`. Its exit code is kept.

mod hub;
mod job_log;
mod shown;

use super::gathered_folder::Folder;
use super::signals;
use crate::terminal;
use anyhow::{Context, Result, bail};
use hub::{Hub, Watched};
use job_log::JobLogFile;
use lockstep_core::plan::STOPPED;
use lockstep_core::rank::GlobalRank;
use lockstep_core::trace::Trace;
use lockstep_diagnosis::{Report, Verdict, diagnose_job};
use lockstep_formats::job_log::Said;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use shown::{PageAddress, Shown};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The Python file that the user's Python imports in every rank when it starts.
const WATCHER: &str = include_str!("watch/watcher.py");

/// The file of the trace in the folder.
const TRACE: &str = "watched.lks";

/// The time between two looks at the job.
const LOOKS: Duration = Duration::from_millis(100);

/// A job that was asked to end gets this long before it is killed.
const GRACE: Duration = Duration::from_secs(60);

/// Watch a real PyTorch job, and diagnose it when it hangs, fails or times out
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The job, as it is started without Lockstep, behind `--`: `torchrun --nproc-per-node 4 train.py`
    #[arg(value_name = "COMMAND", last = true, required_unless_present = "print_watcher")]
    command: Vec<OsString>,
    /// A new folder for what is gathered; without it `watched`, `watched-2`, … is made, and removed after a job
    /// that ends well
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Report a job that makes no call for so many seconds; it is left running
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    patience: u64,
    /// Show the job on a page while it runs: the address that `lockstep serve` printed
    #[arg(long, value_name = "ADDRESS")]
    page: Option<PageAddress>,
    /// Print the Python file that runs in every rank, and do nothing else
    #[arg(long)]
    print_watcher: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<ExitCode> {
    if arguments.print_watcher {
        terminal::print(WATCHER.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let folder = Folder::make(arguments.output.as_deref(), "watched")?;
    let done = watch(&arguments, &folder);
    if done.is_err() {
        folder.remove_if_unasked();
    }
    done
}

fn watch(arguments: &Arguments, folder: &Folder) -> Result<ExitCode> {
    let cancelled = signals::cancelled()?;
    let python = tempfile::tempdir().context("cannot make a folder for the watcher")?;
    std::fs::write(python.path().join("sitecustomize.py"), WATCHER)
        .context("cannot write the watcher")?;
    let socket = python.path().join("hub");
    let hub = Hub::listen(&socket, &folder.recording())?;
    let patience = Duration::from_secs(arguments.patience.max(1));
    let words: Vec<_> = arguments.command.iter().map(|word| word.to_string_lossy()).collect();
    let show =
        |page: PageAddress| Shown::begin(page, words.join(" "), hub.clone(), folder.recording());
    let shown = arguments.page.clone().map(show);
    let mut job = Job::start(arguments, folder, python.path(), &socket)?;
    let mut told_to_end: Option<Instant> = None;
    let mut told_still = false;
    let status = loop {
        if let Some(status) = job.child.try_wait().context("cannot wait for the job")? {
            break status;
        }
        std::thread::sleep(LOOKS);
        hub.watched().look_at_the_silent();
        match told_to_end {
            None if cancelled.load(Ordering::Relaxed) => {
                job.signal(Signal::TERM);
                told_to_end = Some(Instant::now());
            }
            Some(since) if since.elapsed() > GRACE => job.kill_all(),
            _ => {}
        }
        let still = hub.watched().stands_still(patience);
        if still && !told_still && told_to_end.is_none() {
            tell_standing(&hub, folder, patience);
        }
        told_still = still;
    };
    job.log.finish();
    Ok(tell_end(&hub, folder, status, told_to_end.is_some(), shown))
}

/// Reports a job that makes no progress, with the reason, and leaves it as it is.
fn tell_standing(hub: &Hub, folder: &Folder, patience: Duration) {
    let report = match diagnose(folder, &hub.watched()) {
        Ok((report, trace)) => {
            folder.keep(&report, trace.as_ref(), TRACE);
            report
        }
        Err(error) => {
            terminal::note(&format!("lockstep: the job stands still, and {error:#}"));
            return;
        }
    };
    terminal::note(&format!(
        "lockstep: no rank has made a call for {} s. The job is left as it is. What was gathered is in {}\n{}",
        patience.as_secs(),
        folder.path().display(),
        report.to_text()
    ));
}

/// The job has ended: says why, unless all went well. Returns its exit code.
fn tell_end(
    hub: &Hub,
    folder: &Folder,
    status: ExitStatus,
    cancelled: bool,
    shown: Option<Shown>,
) -> ExitCode {
    let how = match status.code() {
        Some(code) => format!("exit code {code}"),
        None => format!("signal {}", status.signal().unwrap_or_default()),
    };
    // The hub is let go of before the page is told: it is asked there for what the ranks do.
    let diagnosed = diagnose(folder, &hub.watched());
    if let Some(shown) = shown {
        let (report, trace) = match &diagnosed {
            Ok((report, trace)) => (Some(report.to_text()), trace.as_ref()),
            Err(_) => (None, None),
        };
        shown.end(how.clone(), report, trace);
    }
    let watched = hub.watched();
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    let code = ExitCode::from(u8::try_from(code).unwrap_or(1));
    if let Some(why) = &watched.unwritten {
        terminal::note(&format!("lockstep: not all that the ranks sent could be kept: {why}"));
    }
    if watched.ranks.is_empty() {
        terminal::note(&format!(
            "lockstep: the job ended with {how}. No rank came to init_process_group under this watch, so \
             nothing was recorded but its output"
        ));
        if status.success() {
            folder.remove_if_unasked();
            return code;
        }
    }
    match diagnosed {
        Ok((report, _)) if status.success() && report.verdict != Verdict::Findings => {
            let world = watched.world_size.unwrap_or(watched.ranks.len() as u32);
            terminal::note(&format!(
                "lockstep: the job of {world} ranks ended well ({how}, {})",
                match report.verdict {
                    Verdict::Healthy => "every recorded call ended",
                    _ => "not every call was seen to end",
                }
            ));
            folder.remove_if_unasked();
        }
        Ok((report, trace)) => {
            folder.keep(&report, trace.as_ref(), TRACE);
            let ended = if cancelled { "was ended" } else { "ended" };
            terminal::note(&format!(
                "lockstep: the job {ended} with {how}. What was gathered is in {}\n{}",
                folder.path().display(),
                report.to_text()
            ));
        }
        Err(error) => terminal::note(&format!(
            "lockstep: the job ended with {how}, and {error:#}. What was gathered is in {}",
            folder.path().display()
        )),
    }
    code
}

/// The job and its output.
struct Job {
    child: Child,
    log: JobLogFile,
}

impl Job {
    fn start(arguments: &Arguments, folder: &Folder, python: &Path, socket: &Path) -> Result<Job> {
        let words = with_logs(&arguments.command, &folder.path().join("logs"));
        let Some((program, rest)) = words.split_first() else { bail!("name the job behind --") };
        let mut path = python.as_os_str().to_owned();
        if let Some(own) = std::env::var_os("PYTHONPATH").filter(|own| !own.is_empty()) {
            path.push(":");
            path.push(own);
        }
        // A job in the background of a terminal would be stopped when it reads from it.
        let stdin = match std::io::stdin().is_terminal() {
            true => Stdio::null(),
            false => Stdio::inherit(),
        };
        let mut child = Command::new(program)
            .args(rest)
            .env("PYTHONPATH", path)
            .env("LOCKSTEP_WATCH", socket)
            .env("LOCKSTEP_WATCH_DUMPS", folder.recording().join("nccl_trace_rank_"))
            .env("LOCKSTEP_WATCH_PATIENCE", arguments.patience.to_string())
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let pipes = (child.stdout.take(), child.stderr.take());
        let log = JobLogFile::begin(&folder.recording(), pipes);
        Ok(Job { child, log })
    }

    fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Sends a signal to the launcher, which passes it on to its ranks.
    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            // One that has just ended needs no signal.
            let _ = kill_process(pid, signal);
        }
    }

    fn kill_all(&self) {
        if let Some(pid) = self.pid() {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

/// The command with a log a rank, if torchrun starts it without an option for logs.
fn with_logs(command: &[OsString], logs: &Path) -> Vec<OsString> {
    let words: Vec<&str> = command.iter().map(|word| word.to_str().unwrap_or_default()).collect();
    let named = |word: &str| Path::new(word).file_name().is_some_and(|name| name == "torchrun");
    let module = words.windows(2).position(|pair| pair == ["-m", "torch.distributed.run"]);
    let at = match words.first() {
        Some(first) if named(first) => 1,
        _ => match module {
            Some(at) => at + 2,
            None => return command.to_vec(),
        },
    };
    let own = ["--log-dir", "--log_dir", "--redirects", "-r", "--tee", "-t"];
    let options = words.iter().skip(at).take_while(|word| !word.ends_with(".py"));
    let is_own = |word: &&str| own.contains(&word.split('=').next().unwrap_or_default());
    if options.copied().any(|word| is_own(&word)) {
        return command.to_vec();
    }
    let mut changed = command.to_vec();
    let added = ["--log-dir".into(), logs.as_os_str().to_owned(), "--tee".into(), "3".into()];
    changed.splice(at..at, added);
    changed
}

/// Diagnoses the gathered files together with the states of the processes.
fn diagnose(folder: &Folder, watched: &Watched) -> Result<(Report, Option<Trace>)> {
    let mut job = match folder.gathered()? {
        Ok(job) => job,
        Err(report) => return Ok((report, None)),
    };
    let is_stopped = |rank: &GlobalRank| watched.ranks.get(rank).is_some_and(|own| own.stopped);
    // A launcher can end a stopped process only by SIGKILL: that is what follows, not what happened.
    job.heard.statements.retain(|it| {
        !(is_stopped(&it.rank) && matches!(it.said, Said::Killed { .. } | Said::Terminated))
    });
    if let Some(calls) = &mut job.calls {
        for (rank, own) in (0..).map(GlobalRank).zip(&mut calls.merged.log.ranks) {
            if is_stopped(&rank) {
                own.get_or_insert_default().unresponsive = Some(STOPPED.to_owned());
            }
        }
    }
    let trace = job.calls.as_ref().map(|calls| calls.merged.trace());
    Ok((diagnose_job(job).report, trace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torchrun_writes_a_log_a_rank_unless_it_was_told_where() {
        let changed = |words: &str| {
            let words: Vec<OsString> = words.split(' ').map(Into::into).collect();
            let changed = with_logs(&words, Path::new("L"));
            changed.join(" ".as_ref()).into_string().unwrap()
        };
        assert_eq!(
            changed("bin/torchrun --nproc-per-node 4 train.py -t 3"),
            "bin/torchrun --log-dir L --tee 3 --nproc-per-node 4 train.py -t 3"
        );
        assert_eq!(
            changed("python -u -m torch.distributed.run train.py"),
            "python -u -m torch.distributed.run --log-dir L --tee 3 train.py"
        );
        for own in ["torchrun --tee=3 train.py", "torchrun -r 3 train.py", "python train.py"] {
            assert_eq!(changed(own), own);
        }
    }
}
