//! Times of a rank on a device.

use crate::clock;
use crate::host::rank::start::Start;

/// A group's timeout, or the run's replacement for it.
pub(super) fn timeout_ns(start: &Start<'_>, timeout_ms: u64) -> u64 {
    start.setup.timeout_ns.unwrap_or(timeout_ms.saturating_mul(1_000_000))
}

/// Nanoseconds since `begin`, on the shared clock.
pub(super) fn since(begin: u64) -> u64 {
    clock::now_ns().saturating_sub(begin)
}
