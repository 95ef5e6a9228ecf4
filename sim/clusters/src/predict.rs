//! The answer to "how long does this take": NCCL's choice, its time, and the other choices' times.

use crate::algorithm::{Algorithm, Protocol};
use crate::choice::{NoChoice, choose, float};
use crate::collective::Collective;
use crate::given::Calibration;
use crate::placement::Placement;
use crate::settings::Settings;
use crate::tuner;

/// The predicted time of a call of one size.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Size, as nccl-tests counts it.
    pub bytes: u64,
    /// Predicted time, microseconds; it does not fall where the size grows.
    pub time_us: f64,
    /// The algorithm that NCCL's tuner picks.
    pub algorithm: Algorithm,
    /// The protocol that NCCL's tuner picks.
    pub protocol: Protocol,
    /// Channels that the call uses.
    pub channels: u32,
    /// The tuner's own estimate of the call's time, microseconds; none where it is not asked.
    pub believed_us: Option<f64>,
}

/// The time of `bytes` and what NCCL picks for it.
///
/// # Errors
/// If the settings leave no choice.
pub fn predict(
    placement: &Placement,
    settings: &Settings,
    collective: Collective,
    bytes: u64,
    calibration: &Calibration,
) -> Result<Prediction, NoChoice> {
    let (algorithm, protocol, believed_us) = choose(placement, settings, collective, bytes)?;
    Ok(Prediction {
        bytes,
        time_us: calibration.time_us(placement, settings, collective, bytes)?,
        algorithm,
        protocol,
        channels: tuner::channels(placement, settings, algorithm, protocol, float(bytes)),
        believed_us,
    })
}
