//! The effort that a measurement takes.

use lockstep_sim::calibrate::Point;
use std::time::Duration;

/// A measurement that takes longer shows a machine that is not fit to be measured.
pub(super) const LONGEST: Duration = Duration::from_secs(120);

/// A point's calls go on until they have moved so many bytes, or are this many.
const MOVED_BYTES: u64 = 200 << 20;
const FEWEST_CALLS: u64 = 7;

/// The number of a point's calls, at most so many.
pub(super) fn calls(point: Point, most: u64) -> u32 {
    (MOVED_BYTES / point.bytes.max(1)).clamp(FEWEST_CALLS, most) as u32
}
