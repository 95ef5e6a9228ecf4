//! Calibration by measured points: latency and transfer of every prediction are scaled so that the
//! given points come out as measured.

use crate::model::Parts;

/// Factors of the two parts of a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// Of launch, steps and hops.
    pub latency: f64,
    /// Of the transfer.
    pub transfer: f64,
}

impl Default for Calibration {
    fn default() -> Self {
        Self { latency: 1.0, transfer: 1.0 }
    }
}

impl Calibration {
    /// A time with the factors applied, microseconds.
    #[must_use]
    pub fn time_us(&self, parts: Parts, _bytes: f64) -> f64 {
        Parts {
            latency_us: parts.latency_us * self.latency,
            transfer_us: parts.transfer_us * self.transfer,
            host_us: parts.host_us * self.latency,
        }
        .time_us()
    }
}
