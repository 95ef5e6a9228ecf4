//! The choices that NCCL's tuner weighs for a call, and the one it picks.

use crate::algorithm::{Algorithm, Protocol};
use crate::collective::Collective;
use crate::model;
use crate::placement::Placement;
use crate::settings::Settings;
use crate::tuner;

/// A choice that the tuner weighed.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The protocol.
    pub protocol: Protocol,
    /// The tuner's own estimate of the time, microseconds.
    pub believed_us: f64,
    /// The model's prediction of the time, microseconds.
    pub time_us: f64,
}

/// Settings that leave NCCL no way to carry out the call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the settings leave NCCL no algorithm and protocol for {collective} on this cluster")]
pub struct NoChoice {
    /// The collective.
    pub collective: Collective,
}

/// Bytes of the algorithm's buffer for `bytes` of nccl-tests: at least one.
#[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^53 bytes")]
pub(crate) fn float(bytes: u64) -> f64 {
    bytes.max(1) as f64
}

/// NCCL's choice for `bytes`.
///
/// # Errors
/// If the settings leave no choice.
pub fn choose(
    placement: &Placement,
    settings: &Settings,
    collective: Collective,
    bytes: u64,
) -> Result<(Algorithm, Protocol, Option<f64>), NoChoice> {
    if matches!(collective, Collective::AllToAll | Collective::SendRecv) {
        return Ok((Algorithm::P2p, Protocol::Simple, None));
    }
    let all = alternatives(placement, settings, collective, bytes);
    let mut best: Option<&Alternative> = None;
    for one in &all {
        if best.is_none_or(|best| one.believed_us < best.believed_us) {
            best = Some(one);
        }
    }
    let best = best.ok_or(NoChoice { collective })?;
    Ok((best.algorithm, best.protocol, Some(best.believed_us)))
}

/// All that the tuner weighs, in the order of its tables.
#[must_use]
pub fn alternatives(
    placement: &Placement,
    settings: &Settings,
    collective: Collective,
    bytes: u64,
) -> Vec<Alternative> {
    let each = tuner::beliefs(placement, settings, collective).into_iter().map(|belief| {
        let tuner::Belief { algorithm, protocol, .. } = belief;
        let believed_us = belief.us(float(bytes));
        let parts =
            model::parts(placement, settings, collective, algorithm, protocol, float(bytes));
        Alternative { algorithm, protocol, believed_us, time_us: parts.time_us() }
    });
    each.collect()
}
