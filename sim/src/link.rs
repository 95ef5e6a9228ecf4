//! A connection between two ranks, by latency and bandwidth.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Picoseconds in a second.
const PS_PER_SECOND: u64 = 1_000_000_000_000;

/// A connection between two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// From the first byte's departure to its arrival, in picoseconds.
    pub latency_ps: u64,
    /// Bytes a second; 0 counts as 1.
    pub bytes_per_second: u64,
}

impl Link {
    /// 5 µs and 25 GB/s: about one rank's share of an InfiniBand HDR or NVLink bridge machine, and
    /// round enough to reckon with.
    pub const DEFAULT: Link = Link { latency_ps: 5_000_000, bytes_per_second: 25_000_000_000 };

    /// NVLink of an eight-GPU machine of 2023, as one rank sees it; round enough to reckon with.
    pub const NVLINK: Link = Link { latency_ps: 2_000_000, bytes_per_second: 300_000_000_000 };

    /// Time that `bytes` occupy the link, in picoseconds.
    pub fn transmit_ps(self, bytes: u64) -> u64 {
        transmit_ps(bytes, self.bytes_per_second)
    }
}

/// Time for `bytes` at `bytes_per_second`, in picoseconds; 0 counts as 1.
pub(crate) fn transmit_ps(bytes: u64, bytes_per_second: u64) -> u64 {
    let rate = bytes_per_second.max(1);
    match bytes.checked_mul(PS_PER_SECOND) {
        Some(product) => product / rate,
        None => {
            let exact = u128::from(bytes) * u128::from(PS_PER_SECOND) / u128::from(rate);
            u64::try_from(exact).unwrap_or(u64::MAX)
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (latency, rate) = (self.latency_ps, self.bytes_per_second);
        match latency {
            0..1_000_000 => write!(f, "latency {} ns", latency / 1000)?,
            _ => write!(f, "latency {}.{} µs", latency / 1_000_000, latency / 100_000 % 10)?,
        }
        match rate {
            0..1_000_000_000 => write!(f, ", {}.{} MB/s", rate / 1_000_000, rate / 100_000 % 10),
            _ => write!(f, ", {}.{} GB/s", rate / 1_000_000_000, rate / 100_000_000 % 10),
        }
    }
}
