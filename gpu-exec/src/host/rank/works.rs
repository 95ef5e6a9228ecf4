//! Which of a rank's calls have completed, for those who wait for them.

use std::sync::{Condvar, Mutex, PoisonError};

/// Calls by their number on the rank.
#[derive(Debug, Default)]
pub(super) struct Works {
    completed: Mutex<Vec<bool>>,
    changed: Condvar,
}

impl Works {
    /// Marks a call completed.
    pub(super) fn complete(&self, work: u32) {
        let mut completed = self.completed.lock().unwrap_or_else(PoisonError::into_inner);
        let index = work as usize;
        if completed.len() <= index {
            completed.resize(index + 1, false);
        }
        completed[index] = true;
        drop(completed);
        self.changed.notify_all();
    }

    /// Whether the call has completed.
    pub(super) fn is_completed(&self, work: u32) -> bool {
        let completed = self.completed.lock().unwrap_or_else(PoisonError::into_inner);
        completed.get(work as usize) == Some(&true)
    }

    /// Returns once the call has completed. Its watchdog limits how long that can take: it ends
    /// the process.
    pub(super) fn wait(&self, work: u32) {
        let mut completed = self.completed.lock().unwrap_or_else(PoisonError::into_inner);
        while completed.get(work as usize) != Some(&true) {
            completed = self.changed.wait(completed).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
