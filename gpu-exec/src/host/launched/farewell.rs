//! The end of a run that launchers started, between rank 0's process and the others.
//!
//! Launchers end a whole job as soon as one of its processes fails (mpirun at once, torchrun after a look),
//! and rank 0's process has to write the others' dumps last. So the others stay until its process has ended,
//! which their connections show.

use std::io::{ErrorKind, Read};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A rank that fails stays at most so long: rank 0's process may be stopped, or out of reach.
const STAYS: Duration = Duration::from_secs(60);

/// Keeps the processes of the ranks that others started, as long as one clone of it is there: those
/// that fail end when the last one is dropped, or this process ends.
#[derive(Clone, Debug, Default)]
pub struct Farewell {
    lines: Arc<Mutex<Vec<UnixStream>>>,
}

impl Farewell {
    /// One more rank that stays. A line that cannot be kept is only a rank that does not.
    pub(super) fn keep(&self, line: &UnixStream) {
        if let Ok(line) = line.try_clone() {
            self.lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        }
    }
}

/// Tells rank 0's process that nothing more will be said, and returns once that has ended, or
/// [`STAYS`] later.
pub(in crate::host) fn stay(mut line: &UnixStream) {
    // All that was said arrives before its end does, which a process that exits does not promise.
    if line.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let until = Instant::now() + STAYS;
    let mut unheard = [0; 4096];
    while let Some(left) =
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    {
        if line.set_read_timeout(Some(left)).is_err() {
            return;
        }
        match line.read(&mut unheard) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
