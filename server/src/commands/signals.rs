//! The effect of signals on the process that a run is steered from, and to those of other launched ranks.

use crate::terminal;
use anyhow::{Context, Result};
use lockstep_gpu_exec::{Command, RunControl};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens for signals on a thread of its own, which lives as long as the process.
struct Listener {
    runtime: tokio::runtime::Runtime,
}

impl Listener {
    fn new() -> Result<Listener> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        Ok(Listener { runtime: runtime.context("cannot listen for signals")? })
    }

    fn of(&self, kind: SignalKind) -> Result<Signal> {
        let _inside = self.runtime.enter();
        signal(kind).context("cannot listen for a signal")
    }

    fn hangup(&self) -> Result<Option<Signal>> {
        let _inside = self.runtime.enter();
        hangup().context("cannot listen for a signal")
    }

    fn listen<F: Future<Output = ()>>(self, listening: impl FnOnce() -> F + Send + 'static) {
        std::thread::spawn(move || self.runtime.block_on(listening()));
    }
}

/// SIGHUP, which a closing terminal sends; `None` where it was ignored before us (`nohup`), and is
/// to stay so.
///
/// # Errors
/// When the kernel takes no handler.
pub(crate) fn hangup() -> std::io::Result<Option<Signal>> {
    match is_ignored(SignalKind::hangup()) {
        true => Ok(None),
        false => signal(SignalKind::hangup()).map(Some),
    }
}

/// Waits for a signal that may not be listened for.
pub(crate) async fn received(signal: &mut Option<Signal>) -> Option<()> {
    match signal {
        Some(signal) => signal.recv().await,
        None => std::future::pending().await,
    }
}

/// True if this process was started with a signal ignored (`SigIgn` of proc_pid_status(5)); false if the
/// kernel does not say.
fn is_ignored(kind: SignalKind) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask & (1 << (kind.as_raw_value() - 1)) != 0
}

/// Ctrl-C, SIGTERM and SIGHUP (unless it is ignored, as under `nohup`) end the run as cancelled,
/// SIGUSR1 dumps the ranks' flight recorders into a folder, if there is one, and SIGUSR2 pauses the run or lets it go on.
///
/// # Errors
/// When the kernel takes no handler.
pub(crate) fn steer(control: RunControl, dumps: Option<PathBuf>) -> Result<()> {
    let listener = Listener::new()?;
    let mut interrupt = listener.of(SignalKind::interrupt())?;
    let mut terminate = listener.of(SignalKind::terminate())?;
    let mut hung_up = listener.hangup()?;
    let mut dump = listener.of(SignalKind::user_defined1())?;
    let mut pause = listener.of(SignalKind::user_defined2())?;
    listener.listen(move || async move {
        let mut paused = false;
        loop {
            tokio::select! {
                _ = interrupt.recv() => control.tell(Command::Cancel),
                _ = terminate.recv() => control.tell(Command::Cancel),
                _ = received(&mut hung_up) => control.tell(Command::Cancel),
                _ = dump.recv() => match &dumps {
                    Some(folder) => {
                        control.tell(Command::Dump);
                        terminal::note(&format!("lockstep: ranks dump into {}", folder.display()));
                    }
                    None => terminal::note("lockstep: --dump-dir says where dumps go"),
                },
                _ = pause.recv() => {
                    paused = !paused;
                    control.tell(if paused { Command::Pause } else { Command::Resume });
                    terminal::note(match paused {
                        true => "lockstep: paused; SIGUSR2 lets the run go on",
                        false => "lockstep: the run goes on",
                    });
                }
            }
        }
    });
    Ok(())
}

/// Becomes true by Ctrl-C, SIGTERM or SIGHUP (unless that is ignored, as under `nohup`), which then no longer end this
/// process.
///
/// # Errors
/// When the kernel takes no handler.
pub(crate) fn cancelled() -> Result<Arc<AtomicBool>> {
    let listener = Listener::new()?;
    let mut interrupt = listener.of(SignalKind::interrupt())?;
    let mut terminate = listener.of(SignalKind::terminate())?;
    let mut hung_up = listener.hangup()?;
    let cancelled = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&cancelled);
    listener.listen(move || async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = received(&mut hung_up) => {}
        }
        told.store(true, Ordering::Relaxed);
    });
    Ok(cancelled)
}

/// Lets a launched rank that steers nothing ignore the signals that are meant for rank 0, and says so.
///
/// # Errors
/// When the kernel takes no handler.
pub(crate) fn leave_to_rank_zero() -> Result<()> {
    let listener = Listener::new()?;
    let mut dump = listener.of(SignalKind::user_defined1())?;
    let mut pause = listener.of(SignalKind::user_defined2())?;
    listener.listen(move || async move {
        loop {
            tokio::select! {
                _ = dump.recv() => {}
                _ = pause.recv() => {}
            }
            terminal::note(
                "lockstep: send SIGUSR1 (dump) and SIGUSR2 (pause) to rank 0's process: it tells all \
                 ranks",
            );
        }
    });
    Ok(())
}
