//! The wait of a rank for its peers: it looks again for a short while, then sleeps on a futex that
//! peers ring.
//!
//! A peer that publishes something looks whether the rank sleeps, which costs a fence and no
//! system call while it does not. The fences make it Dekker's protocol: of "publish, then look
//! whether it sleeps" and "say that I sleep, then look again", at least one sees the other.

use super::{Segment, home};
use crate::clock;
use rustix::thread::futex;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// A sleeper looks again after this long even without a ring: a peer that was killed between publishing and
/// ringing must not matter.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The number of looks of a rank with a core of its own before it reads the clock.
const FIRST_LOOKS: u32 = 32;

/// The time for which a rank keeps looking before it sleeps; a wake-up costs several microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Patience {
    /// Nanoseconds of looking without giving up the core.
    pub(crate) spin_ns: u64,
    /// Nanoseconds of looking and letting others run in between.
    pub(crate) yield_ns: u64,
}

impl Patience {
    /// To sleep at once.
    pub(crate) const NONE: Patience = Patience { spin_ns: 0, yield_ns: 0 };

    /// For `ranks` processes on `cores`. Even with a core for each, the kernel may have put two
    /// on one, where spinning keeps the awaited peer from running (measured: 107 µs a call
    /// instead of 1.5): hence yielding after a short while, which costs nothing on a core of
    /// one's own, and beats sleeping up to 64 ranks on 2 cores (2.3 ms a call against 6.9).
    pub(crate) fn of(ranks: u32, cores: usize) -> Patience {
        let spin_ns = if ranks as usize <= cores { 2_000 } else { 0 };
        Patience { spin_ns, yield_ns: 50_000 }
    }
}

/// One rank's futex: a count of rings, and whether the rank sleeps.
#[derive(Clone, Debug)]
pub(crate) struct Doorbell {
    segment: Arc<Segment>,
    offset: usize,
}

impl Doorbell {
    /// The doorbell at `offset`, a multiple of 4, of 8 bytes.
    pub(crate) fn at(segment: Arc<Segment>, offset: usize) -> Doorbell {
        Doorbell { segment, offset }
    }

    fn rings(&self) -> &std::sync::atomic::AtomicU32 {
        self.segment.word(self.offset)
    }

    fn sleeps(&self) -> &std::sync::atomic::AtomicU32 {
        self.segment.word(self.offset + 4)
    }

    /// Wakes the rank if it sleeps; called after something was published.
    pub(crate) fn ring(&self) {
        fence(Ordering::SeqCst);
        if self.sleeps().load(Ordering::Relaxed) != 0 {
            self.rings().fetch_add(1, Ordering::Release);
            // A failure means that nobody waits there.
            let _ = futex::wake(self.rings(), futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Calls `progress` until it returns true. Only the doorbell's owner may wait, one thread at a time. Ends
    /// with the process at the latest: the watchdog limits it.
    pub(crate) fn wait_for(&self, patience: Patience, mut progress: impl FnMut() -> bool) {
        if patience != Patience::NONE {
            // Most answers are there within less than reading the clock takes.
            for _ in 0..if patience.spin_ns > 0 { FIRST_LOOKS } else { 1 } {
                if progress() {
                    return;
                }
                std::hint::spin_loop();
            }
            let started = clock::now_ns();
            let mut strays = patience.spin_ns > 0;
            loop {
                let waited = clock::now_ns().saturating_sub(started);
                let spins = waited < patience.spin_ns;
                if !spins {
                    // Perhaps on the core of whom it waits for, where there is one for each.
                    if std::mem::take(&mut strays) {
                        home::go_back();
                    }
                    if waited >= patience.yield_ns {
                        break;
                    }
                    rustix::thread::sched_yield();
                }
                for _ in 0..if spins { 16 } else { 1 } {
                    if progress() {
                        return;
                    }
                    std::hint::spin_loop();
                }
            }
        }
        let look_again = clock::timespec(LOOK_AGAIN);
        loop {
            let heard = self.rings().load(Ordering::Acquire);
            self.sleeps().store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let ready = progress();
            if !ready {
                // Interrupted, rung before it slept, or timed out: look again in any case.
                let _ = futex::wait(self.rings(), futex::Flags::empty(), heard, Some(&look_again));
            }
            self.sleeps().store(0, Ordering::Relaxed);
            if ready || progress() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn no_ring_is_lost_between_looking_and_sleeping() {
        let memory = Segment::create(4096).unwrap();
        let segment = Segment::map(&memory, 4096).unwrap();
        let bell = Doorbell::at(segment, 0);
        let turn = Arc::new(AtomicU32::new(0));
        let (bell_there, turn_there) = (bell.clone(), turn.clone());
        let rounds = 2000;
        let started = std::time::Instant::now();
        let ringer = std::thread::spawn(move || {
            for round in 1..=rounds {
                while turn_there.load(Ordering::Acquire) % 2 == 1 {
                    std::thread::yield_now();
                }
                turn_there.store(2 * round - 1, Ordering::Release);
                bell_there.ring();
            }
        });
        let patience = Patience::NONE;
        for round in 1..=rounds {
            bell.wait_for(patience, || turn.load(Ordering::Acquire) == 2 * round - 1);
            turn.store(2 * round, Ordering::Release);
        }
        ringer.join().unwrap();
        // Had every second ring been lost, LOOK_AGAIN would have made this 200 s.
        assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    }
}
