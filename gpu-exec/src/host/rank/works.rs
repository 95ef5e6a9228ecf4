//! The completed calls of a rank, for threads that wait for them.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Calls by their number on the rank.
#[derive(Debug, Default)]
pub(crate) struct Works {
    known: Mutex<Known>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Known {
    completed: Vec<bool>,
    /// The number of threads that wait: without any, notifying would be a needless system call.
    waiting: usize,
}

impl Known {
    fn is_completed(&self, work: u32) -> bool {
        self.completed.get(work as usize) == Some(&true)
    }
}

impl Works {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks a call completed.
    pub(crate) fn complete(&self, work: u32) {
        self.complete_all([work]);
    }

    /// Marks calls completed.
    pub(crate) fn complete_all(&self, works: impl IntoIterator<Item = u32>) {
        let mut known = self.known();
        for index in works.into_iter().map(|work| work as usize) {
            if known.completed.len() <= index {
                known.completed.resize(index + 1, false);
            }
            known.completed[index] = true;
        }
        let waiting = known.waiting > 0;
        drop(known);
        if waiting {
            self.changed.notify_all();
        }
    }

    /// True if the call has completed.
    pub(crate) fn is_completed(&self, work: u32) -> bool {
        self.known().is_completed(work)
    }

    /// Returns once the call has completed. Its watchdog limits how long that can take: it ends
    /// the process.
    pub(crate) fn wait(&self, work: u32) {
        let mut known = self.known();
        while !known.is_completed(work) {
            known.waiting += 1;
            known = self.changed.wait(known).unwrap_or_else(PoisonError::into_inner);
            known.waiting -= 1;
        }
    }
}
