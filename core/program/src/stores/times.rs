//! The times at which ranks come to their operations, as far as their programs give them: compute and sleep
//! times, and waits for other ranks. Messages take no time here.

use super::log::{At, Log};
use lockstep_torch::c10d::Clock;
use std::collections::BTreeMap;

/// When each operation begins and when it is done.
pub(super) struct Times {
    begins: Vec<Vec<Clock>>,
    done: Vec<Vec<Clock>>,
}

impl Times {
    /// The times of all operations that do not wait for each other in a circle.
    pub(super) fn new(logs: &[Log], waits: &BTreeMap<At, Vec<At>>) -> Times {
        let mut times =
            Times { begins: vec![Vec::new(); logs.len()], done: vec![Vec::new(); logs.len()] };
        // Ranks that wait for an operation whose time is not known yet.
        let mut waiting: BTreeMap<At, Vec<usize>> = BTreeMap::new();
        let mut open: Vec<usize> = (0..logs.len()).rev().collect();
        while let Some(rank) = open.pop() {
            while let Some(missing) = times.next(rank, logs, waits) {
                match missing {
                    Some(earlier) => {
                        waiting.entry(earlier).or_default().push(rank);
                        break;
                    }
                    None => {
                        let at = times.done.get(rank).map_or(0, Vec::len).saturating_sub(1);
                        open.extend(waiting.remove(&(rank, at)).unwrap_or_default());
                    }
                }
            }
        }
        times
    }

    /// Takes a rank's next operation: `None` when it has no more, else the operation that has to
    /// be taken before it, if there is one.
    fn next(
        &mut self,
        rank: usize,
        logs: &[Log],
        waits: &BTreeMap<At, Vec<At>>,
    ) -> Option<Option<At>> {
        let at = self.done.get(rank)?.len();
        let op = logs.get(rank)?.ops.get(at)?;
        let earlier = waits.get(&(rank, at)).map(Vec::as_slice).unwrap_or_default();
        let is_open = |at: &&At| {
            self.done(**at).is_none() && logs.get(at.0).is_some_and(|l| at.1 < l.ops.len())
        };
        if let Some(missing) = earlier.iter().find(is_open) {
            return Some(Some(*missing));
        }
        // A delay of the operation before delays all later ones.
        let mut begins = op.clock;
        let before = at.checked_sub(1).and_then(|before| {
            let op = logs.get(rank)?.ops.get(before)?;
            Some((op.clock, self.done((rank, before))?))
        });
        if let Some((clock, done)) = before.filter(|(clock, _)| clock.meetings == begins.meetings) {
            begins.ns = begins.ns.saturating_add(done.ns.saturating_sub(clock.ns));
            begins.loose |= done.loose;
        }
        let mut done = begins;
        for earlier in earlier.iter().filter_map(|at| self.done(*at)) {
            if earlier.meetings == done.meetings {
                done.ns = done.ns.max(earlier.ns);
                done.loose |= earlier.loose;
            }
        }
        self.begins.get_mut(rank)?.push(begins);
        self.done.get_mut(rank)?.push(done);
        Some(None)
    }

    /// When an operation begins.
    pub(super) fn begins(&self, (rank, at): At) -> Option<Clock> {
        self.begins.get(rank)?.get(at).copied()
    }

    /// When it is done.
    pub(super) fn done(&self, (rank, at): At) -> Option<Clock> {
        self.done.get(rank)?.get(at).copied()
    }

    /// The milliseconds by which `earlier` is too late for a rank that waits for it so long; `None` if it is
    /// in time, or that is unknown.
    pub(super) fn too_late(&self, later: At, earlier: At, timeout_ms: u64) -> Option<u64> {
        let (begins, done) = (self.begins(later)?, self.done(earlier)?);
        let until = latest(begins, done, timeout_ms).filter(|_| !begins.loose)?;
        done.ns.checked_sub(until).map(|ns| ns.div_ceil(1_000_000))
    }
}

/// The end of a wait, in nanoseconds, that begins at `begins`, if both clocks count from one meeting.
fn latest(begins: Clock, done: Clock, timeout_ms: u64) -> Option<u64> {
    let until = begins.ns.saturating_add(timeout_ms.saturating_mul(1_000_000));
    (begins.meetings == done.meetings).then_some(until)
}

/// True if an operation that is done at `done` is certainly in time for a wait that begins at `begins` and
/// may last `timeout_ms`.
pub(super) fn in_time(begins: Clock, done: Clock, timeout_ms: u64) -> bool {
    latest(begins, done, timeout_ms).is_none_or(|until| done.ns < until)
}
