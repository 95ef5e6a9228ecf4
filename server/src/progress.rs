//! Long work at a terminal: its progress on standard error, and Ctrl-C.
//!
//! After a second the progress appears, if standard error is a terminal; elsewhere nothing does. The first Ctrl-C asks the
//! work to end with what it has found so far, the second ends the process. The loops themselves are in crates that know
//! neither terminals nor signals: they call a [`Watch`], which is a [`Stage`] here.

use crate::terminal;
use anyhow::{Result, bail};
use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressDrawTarget};
use indicatif::{ProgressState, ProgressStyle};
use lockstep_core::watch::{Reached, Watch};
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use std::fmt::Write;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// The exit code of work that Ctrl-C ended.
const STOPPED: u8 = 130;

/// Work that is over sooner shows no progress.
const QUIET: Duration = Duration::from_secs(1);

/// The display changes so often, though the work says nothing.
const TICK: Duration = Duration::from_millis(200);

/// Before so much of a stage is done, the time that is left is a guess.
const KNOWN_AFTER: f32 = 0.01;

/// The progress of a command.
pub(crate) struct Progress {
    began: Instant,
    stopped: Arc<AtomicBool>,
    /// Completed when Ctrl-C is listened for, or never is to be.
    listening: Once,
}

/// Runs a command whose work shows its progress and ends by Ctrl-C, then with exit code 130.
///
/// # Errors
/// Those of the command.
pub(crate) fn watched(command: impl FnOnce(&Progress) -> Result<ExitCode>) -> Result<ExitCode> {
    let progress = Progress::new();
    let done = command(&progress);
    if !progress.is_stopped() {
        return done;
    }
    if let Err(error) = done {
        terminal::note(&format!("lockstep: {error:#}"));
    }
    Ok(ExitCode::from(STOPPED))
}

impl Progress {
    fn new() -> Progress {
        let stopped = Arc::new(AtomicBool::new(false));
        Progress { began: Instant::now(), stopped, listening: Once::new() }
    }

    /// The progress of a command that listens for signals itself.
    pub(crate) fn without_signals() -> Progress {
        let progress = Progress::new();
        progress.listening.call_once(|| {});
        progress
    }

    /// Listens for Ctrl-C from the first stage on: before, such as while standard input is read, it ends the process.
    fn listen(&self) {
        self.listening.call_once(|| {
            // In this order: the first signal finds the flag unset, and sets it. Without handlers Ctrl-C ends the process.
            let second = Arc::clone(&self.stopped);
            let _ = flag::register_conditional_shutdown(SIGINT, STOPPED.into(), second)
                .and_then(|_| flag::register(SIGINT, Arc::clone(&self.stopped)));
        });
    }

    /// True if the work is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Ctrl-C.
    #[cfg(test)]
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// For work whose partial result is no answer.
    ///
    /// # Errors
    /// When it was stopped; `so_far` describes the finished part.
    pub(crate) fn check(&self, so_far: &str) -> Result<()> {
        if self.is_stopped() {
            bail!("stopped by Ctrl-C: {so_far}");
        }
        Ok(())
    }

    /// A stage that counts the steps reported through its [`Watch`]: `simulating`.
    pub(crate) fn stage(&self, doing: impl Into<String>) -> Stage {
        self.begin(doing.into(), |count| HumanCount(count).to_string())
    }

    /// A stage that reads so many bytes.
    pub(crate) fn reading(&self, doing: impl Into<String>, bytes: u64) -> Stage {
        let stage = self.begin(doing.into(), |bytes| HumanBytes(bytes).to_string());
        stage.bar.set_length(bytes);
        stage
    }

    fn begin(&self, doing: String, amount: fn(u64) -> String) -> Stage {
        self.listen();
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let stopped = Arc::clone(&self.stopped);
        bar.set_style(style(amount, Arc::clone(&stopped)));
        bar.set_message(doing);
        if std::io::stderr().is_terminal() {
            show_after(QUIET.saturating_sub(self.began.elapsed()), &bar);
        }
        Stage { bar, stopped }
    }
}

/// Shows a bar after some time, unless it is gone by then. On a thread of its own: work that cannot be watched is shown
/// too.
fn show_after(pause: Duration, bar: &ProgressBar) {
    let shown = bar.downgrade();
    std::thread::spawn(move || {
        std::thread::sleep(pause);
        let Some(bar) = shown.upgrade().filter(|bar| !bar.is_finished()) else { return };
        bar.set_draw_target(ProgressDrawTarget::stderr());
        bar.enable_steady_tick(TICK);
    });
}

/// `⠹ reading 512 files: 312.00 MiB of 1.20 GiB, 12 seconds left`.
fn style(amount: fn(u64) -> String, stopped: Arc<AtomicBool>) -> ProgressStyle {
    let so_far = move |state: &ProgressState, out: &mut dyn Write| {
        let _ = match (state.pos(), state.len()) {
            (0, _) => Ok(()),
            (done, Some(total)) => write!(out, ": {} of {}", amount(done), amount(total)),
            (done, None) => write!(out, ": {}", amount(done)),
        };
    };
    let left = move |state: &ProgressState, out: &mut dyn Write| {
        if state.len().is_some() && state.fraction() > KNOWN_AFTER && state.eta().as_secs() > 0 {
            let _ = write!(out, ", {} left", HumanDuration(state.eta()));
        }
        if stopped.load(Ordering::Relaxed) {
            let _ = out.write_str("; stopping (Ctrl-C again ends at once)");
        }
    };
    let template = ProgressStyle::with_template("{spinner} {msg}{so_far}{prefix}{left}");
    let style = template.unwrap_or_else(|_| ProgressStyle::default_spinner());
    style.with_key("so_far", so_far).with_key("left", left)
}

/// A stage of the work, such as reading. Its display is gone when it is dropped.
pub(crate) struct Stage {
    bar: ProgressBar,
    stopped: Arc<AtomicBool>,
}

impl Stage {
    /// So much more is done.
    pub(crate) fn add(&self, amount: u64) {
        self.bar.inc(amount);
    }

    /// True if the work is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

impl Watch for Stage {
    fn reached(&mut self, reached: Reached) -> ControlFlow<()> {
        // Work that consists of several counts each anew.
        if reached.done < self.bar.position() {
            self.bar.reset();
        }
        if self.bar.length() != Some(reached.total) {
            self.bar.set_length(reached.total);
            self.bar.set_prefix(format!(" {}", reached.what));
        }
        self.bar.set_position(reached.done);
        match self.is_stopped() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
