//! A core of its own for each rank's main thread, as far as there are enough.
//!
//! Ranks that one message wakes tend to be woken on one core and, if they wait for each other, stay there: a
//! call of 4 B among 2 ranks on 2 cores then takes 10 µs instead of 0.2, since each lets the other run. A
//! launcher of MPI binds its processes. Here a thread is moved to its core and left free to be moved again;
//! if it is on another core after a long wait, it goes back.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use std::cell::Cell;

thread_local! {
    /// The core that this thread belongs on.
    static HOME: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Moves this thread to a core of its own, by the rank's number: two on one if there are too few.
pub(crate) fn settle(rank: usize) {
    // A kernel that refuses has its reasons: it is only a hint.
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
    let home = cores.get(rank % cores.len().max(1)).copied();
    HOME.set(home);
    if let Some(home) = home {
        go_to(home, &allowed);
    }
}

/// Moves this thread back to its core, if it has one and is not there.
pub(crate) fn go_back() {
    let Some(home) = HOME.get().filter(|home| sched_getcpu() != *home) else { return };
    if let Ok(allowed) = sched_getaffinity(None) {
        go_to(home, &allowed);
    }
}

fn go_to(core: usize, allowed: &CpuSet) {
    if !allowed.is_set(core) {
        return;
    }
    let mut own = CpuSet::new();
    own.set(core);
    if sched_setaffinity(None, &own).is_ok() {
        let _ = sched_setaffinity(None, allowed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_was_moved_goes_back_and_may_be_moved_again() {
        let allowed = sched_getaffinity(None).unwrap();
        let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).collect();
        for rank in [0, 1, cores.len()] {
            let (home, away) = (cores[rank % cores.len()], cores[(rank + 1) % cores.len()]);
            settle(rank);
            // Kept away, as another launcher's binding would keep it: it stays.
            let mut only = CpuSet::new();
            only.set(away);
            sched_setaffinity(None, &only).unwrap();
            go_back();
            assert_eq!(sched_getcpu(), away);
            assert_eq!(sched_getaffinity(None).unwrap(), only);
            // Merely moved away. The kernel may move it again before it looks: not each time.
            sched_setaffinity(None, &allowed).unwrap();
            let is_back = || {
                go_to(away, &allowed);
                go_back();
                sched_getcpu() == home
            };
            assert!((0..50).any(|_| is_back()));
            assert_eq!(sched_getaffinity(None).unwrap(), allowed);
            assert_eq!(HOME.get(), Some(home));
        }
    }
}
