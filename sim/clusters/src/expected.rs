//! The time to expect of a call of one size. It never falls where the size grows.
//!
//! NCCL's tuner switches where its own estimates cross, not where the times do, so the time of its choice falls
//! at some switches: a call would be slower than a larger one. Real switches lie a little elsewhere in every
//! version and on every machine. So the time of the choice is replaced by a mean of two that never fall: the
//! least time of this and all larger sizes, and the largest of this and all smaller ones. Where the time of
//! the choice never falls, all three are the same. The weight was fitted on the public tables.
//!
//! The same holds over numbers of nodes (`node_counts`).

use crate::algorithm::{Algorithm, Protocol};
use crate::choice::{NoChoice, alternatives, float};
use crate::collective::Collective;
use crate::model::{self, Parts};
use crate::placement::Placement;
use crate::settings::Settings;
use crate::tuner::{self, Belief};

/// Weight of the smaller sizes' largest time in the (geometric) mean.
const SMALLER: f64 = 0.25;

/// The least time of any algorithm and protocol for `bytes`, microseconds.
pub(crate) fn least_us(
    placement: &Placement,
    settings: &Settings,
    collective: Collective,
    bytes: u64,
) -> f64 {
    let all = alternatives(placement, settings, collective, bytes);
    all.iter().map(|one| one.time_us).fold(f64::INFINITY, f64::min)
}

/// Sizes from here on are not looked at: no call is as large.
const MOST_BYTES: u64 = 1 << 50;

/// An algorithm and a protocol.
type Way = (Algorithm, Protocol);

/// The parts of the time to expect for `bytes` on this placement, whatever other numbers of nodes take.
///
/// # Errors
/// If the settings leave no choice.
pub(crate) fn parts_by_size(
    placement: &Placement,
    settings: &Settings,
    collective: Collective,
    bytes: u64,
) -> Result<Parts, NoChoice> {
    let beliefs = tuner::beliefs(placement, settings, collective);
    let call = Call { placement, settings, collective, beliefs };
    if matches!(collective, Collective::AllToAll | Collective::SendRecv) {
        return Ok(call.parts((Algorithm::P2p, Protocol::Simple), bytes));
    }
    let bytes = bytes.max(1);
    let least = call.least_of_larger(bytes)?;
    let largest_us = call.largest_of_smaller_us(bytes)?;
    let factor = libm::exp(SMALLER * libm::log(largest_us / least.time_us()));
    Ok(least.scaled(factor))
}

/// A call whose size varies.
struct Call<'a> {
    placement: &'a Placement,
    settings: &'a Settings,
    collective: Collective,
    /// The algorithms and protocols that the tuner chooses from, with the times that it assumes.
    beliefs: Vec<Belief>,
}

/// The tuner's choice for a size.
struct Chosen {
    way: Way,
    /// The least and the largest time that any way takes for the size, microseconds. As every single way's time
    /// grows with size, larger calls take no less, and smaller ones no more.
    bounds_us: [f64; 2],
}

impl Call<'_> {
    fn chosen(&self, bytes: u64) -> Result<Chosen, NoChoice> {
        let way = self.way(bytes)?;
        let mut bounds_us = [f64::INFINITY, 0.0];
        for one in &self.beliefs {
            let us = self.parts((one.algorithm, one.protocol), bytes).time_us();
            bounds_us = [bounds_us[0].min(us), bounds_us[1].max(us)];
        }
        Ok(Chosen { way, bounds_us })
    }

    fn way(&self, bytes: u64) -> Result<Way, NoChoice> {
        let mut best: Option<(f64, &Belief)> = None;
        for one in &self.beliefs {
            let us = one.us(float(bytes));
            if best.is_none_or(|(least, _)| us < least) {
                best = Some((us, one));
            }
        }
        let (_, best) = best.ok_or(NoChoice { collective: self.collective })?;
        Ok((best.algorithm, best.protocol))
    }

    fn parts(&self, (algorithm, protocol): Way, bytes: u64) -> Parts {
        let Self { placement, settings, collective, .. } = *self;
        model::parts(placement, settings, collective, algorithm, protocol, float(bytes))
    }

    /// The first size above `size` and up to `last` for which the tuner leaves `way`, its choice for `size`.
    ///
    /// Both lie in one octave, where the tuner's estimates are straight lines: each is the least over one
    /// stretch.
    fn switch(&self, way: Way, size: u64, last: u64) -> Result<Option<u64>, NoChoice> {
        if last <= size || self.way(last)? == way {
            return Ok(None);
        }
        let (mut from, mut to) = (size, last);
        while to - from > 1 {
            let middle = from + (to - from) / 2;
            if self.way(middle)? == way { from = middle } else { to = middle }
        }
        Ok(Some(to))
    }

    /// The least time of the choices for `bytes` and all larger sizes. A way's time grows with size, so it lies
    /// at `bytes` or at a switch.
    fn least_of_larger(&self, bytes: u64) -> Result<Parts, NoChoice> {
        let mut size = bytes;
        let mut here = self.chosen(size)?;
        let mut least = self.parts(here.way, size);
        while here.bounds_us[0] < least.time_us() && size < MOST_BYTES {
            let end = (size + 1).next_power_of_two();
            size = self.switch(here.way, size, end - 1)?.unwrap_or(end);
            here = self.chosen(size)?;
            let larger = self.parts(here.way, size);
            if larger.time_us() < least.time_us() {
                least = larger;
            }
        }
        Ok(least)
    }

    /// The largest time of the choices for `bytes` and all smaller sizes, microseconds: at `bytes` or just
    /// before a switch.
    fn largest_of_smaller_us(&self, bytes: u64) -> Result<f64, NoChoice> {
        let mut largest = self.parts(self.way(bytes)?, bytes).time_us();
        let mut end = bytes;
        while end > 1 {
            let begin = 1 << (end - 1).ilog2();
            let mut size = begin;
            let Chosen { mut way, bounds_us: [_, most] } = self.chosen(size)?;
            loop {
                let next = self.switch(way, size, end - 1)?;
                let last = next.unwrap_or(end) - 1;
                largest = largest.max(self.parts(way, last).time_us());
                let Some(next) = next else { break };
                size = next;
                way = self.way(size)?;
            }
            if most <= largest {
                break;
            }
            end = begin;
        }
        Ok(largest)
    }
}
