//! The gate that holds a rank's program: while the run is paused, and after a signal of its own
//! until the coordinator says that it is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// The gate before every operation.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// The flag that passing looks at first: nearly always there is nothing to wait for.
    shut: AtomicBool,
    held: Mutex<Held>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Held {
    paused: bool,
    signalled: bool,
}

impl Gate {
    /// Holds the program before its next operation, or lets it go on.
    pub(super) fn pause(&self, paused: bool) {
        self.change(|held| held.paused = paused);
    }

    /// Holds the program for a signal that is to come, or lets it go on after it.
    pub(super) fn hold_for_signal(&self, signalled: bool) {
        self.change(|held| held.signalled = signalled);
    }

    fn change(&self, change: impl FnOnce(&mut Held)) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut held);
        self.shut.store(held.paused || held.signalled, Ordering::Release);
        drop(held);
        self.changed.notify_all();
    }

    /// Returns once nothing holds the program, and whether something did. The coordinator bounds
    /// that: it ends the run, and with it the process, at its limit at the latest. Calls `first` before
    /// it holds the program.
    pub(crate) fn pass(&self, first: impl FnOnce()) -> bool {
        if !self.shut.load(Ordering::Acquire) {
            return false;
        }
        first();
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        while held.paused || held.signalled {
            held = self.changed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }
}
