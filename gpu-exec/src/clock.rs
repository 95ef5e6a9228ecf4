//! The one clock of a run: CLOCK_MONOTONIC, which all processes of a machine share.

use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::Duration;

/// Nanoseconds on the shared clock.
pub(crate) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64).saturating_mul(1_000_000_000).saturating_add(now.tv_nsec as u64)
}

/// Picoseconds from one reading of the clock to another; 0 if they are the other way round.
pub(crate) fn picoseconds_between(start_ns: u64, end_ns: u64) -> u64 {
    end_ns.saturating_sub(start_ns).saturating_mul(1000)
}

/// Nanoseconds of a duration, saturating after 584 years.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A duration as system calls take it.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    // The kernel refuses negative seconds: what does not fit is for ever in practice.
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: duration.subsec_nanos().into() }
}
