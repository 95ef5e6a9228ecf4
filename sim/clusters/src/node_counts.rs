//! The time to expect of a call on one number of nodes. It never falls where nodes are added.
//!
//! NCCL's tuner leaves an algorithm where its own estimates cross, as it does over sizes (`expected`): four nodes
//! would take twice as long as five. So the time is again a mean of two that never fall: the least of this and
//! all larger numbers of nodes, and the largest of this and all smaller ones. The weight was fitted on the public
//! tables. A call over several domains of NVLink takes no less than one that fills a single domain, and no less than its
//! NICs need.
//!
//! Only some numbers of nodes are computed ([`grid`]); the time of the others lies between their neighbours'.

use crate::algorithm::{Algorithm, Protocol};
use crate::choice::{NoChoice, float};
use crate::collective::Collective;
use crate::expected::{least_us, parts_by_size};
use crate::model::{self, Parts};
use crate::placement::{Launcher, MOST_NODES, Placement};
use crate::settings::Settings;

/// Weight of the fewer nodes' largest time in the (geometric) mean.
const FEWER: f64 = 0.25;

/// The most by which a call can be faster since a rack's domain of NVLink is fuller, and has more NICs.
const FULLER: f64 = 1.25;

/// The parts of the time to expect for `bytes`.
///
/// # Errors
/// If the settings leave no choice.
pub(crate) fn expected_parts(
    placement: &Placement,
    settings: &Settings,
    collective: Collective,
    bytes: u64,
) -> Result<Parts, NoChoice> {
    if matches!(collective, Collective::AllToAll | Collective::SendRecv) {
        return Ok(sends_and_receives(placement, settings, collective, bytes));
    }
    let call = Call { placement, settings, collective, bytes };
    let here = parts_by_size(placement, settings, collective, bytes)?;
    // Of few channels each carries another rate on one node than on several: their number says all.
    if settings.max_channels.is_some() {
        return Ok(here);
    }
    let mut us = call.mean_us(here)?;
    if placement.domains > 1 {
        let full = call.of_full_domain();
        if full.ranks > 1 {
            let full = Call { placement: &full, ..call };
            us = us.max(full.mean_us(parts_by_size(
                full.placement,
                settings,
                collective,
                bytes,
            )?)?);
        }
        us = us.max(call.least_of_network_us());
    }
    Ok(here.scaled(us / here.time_us()))
}

/// The same for a collective that is made of sends and receives. Its time grows with the nodes by itself, but
/// for the step from one domain of NVLink to several.
pub(crate) fn sends_and_receives(
    placement: &Placement,
    settings: &Settings,
    collective: Collective,
    bytes: u64,
) -> Parts {
    let of = |placement: &Placement| {
        let (way, protocol) = (Algorithm::P2p, Protocol::Simple);
        model::parts(placement, settings, collective, way, protocol, float(bytes))
    };
    let here = of(placement);
    if placement.domains == 1 {
        return here;
    }
    let full = Call { placement, settings, collective, bytes }.of_full_domain();
    if full.ranks < 2 {
        return here;
    }
    here.scaled((of(&full).time_us() / here.time_us()).max(1.0))
}

/// A call whose number of nodes varies.
#[derive(Clone, Copy)]
struct Call<'a> {
    placement: &'a Placement,
    settings: &'a Settings,
    collective: Collective,
    bytes: u64,
}

impl Call<'_> {
    /// The time in which the NICs carry the call's bytes at their full rate, microseconds. Two domains send to each
    /// other only, and use both directions of a ring.
    fn least_of_network_us(&self) -> f64 {
        let Self { placement, collective, bytes, .. } = *self;
        let directions = if placement.domains == 2 { 2.0 } else { 1.0 };
        let rate = directions * placement.net_gbps * 1000.0;
        float(bytes) * collective.bus_factor(placement.ranks) / rate.max(f64::MIN_POSITIVE)
    }

    /// The call on as many nodes as one domain of NVLink holds.
    fn of_full_domain(&self) -> Placement {
        // Over several domains a launcher that is not known counts as a process for each GPU.
        let launcher = match self.placement.launcher {
            Launcher::Unknown => Launcher::ProcessPerGpu,
            known => known,
        };
        Placement { launcher, ..self.placement.on_nodes(self.placement.domain_nodes) }
    }

    /// The mean of the two times that never fall, microseconds. One domain is only compared with one domain,
    /// and several with several.
    fn mean_us(&self, here: Parts) -> Result<f64, NoChoice> {
        let Self { placement, settings, collective, bytes } = *self;
        let (nodes, most_in_one) = (placement.nodes, placement.domain_nodes.max(1));
        let (first, last) = match placement.domains {
            1 => (1, most_in_one),
            _ => (most_in_one + 1, MOST_NODES),
        };
        if first >= last {
            return Ok(here.time_us());
        }
        let us_on = |nodes: u32| -> Result<f64, NoChoice> {
            let other = placement.on_nodes(nodes);
            match other.ranks {
                0 | 1 => Ok(0.0),
                _ => Ok(parts_by_size(&other, settings, collective, bytes)?.time_us()),
            }
        };
        let counts = grid(first, last);
        let above = counts.partition_point(|count| *count < nodes).min(counts.len() - 1);
        let is_on_grid = counts[above] == nodes;
        let below = if is_on_grid { above } else { above.saturating_sub(1) };
        let of_above = if is_on_grid { here.time_us() } else { us_on(counts[above])? };
        let of_below = if is_on_grid { of_above } else { us_on(counts[below])? };
        let mut largest = of_below;
        for count in &counts[..below] {
            largest = largest.max(us_on(*count)?);
        }
        let mut least = of_above;
        let fuller = if most_in_one > 1 { FULLER } else { 1.0 };
        for count in &counts[above + 1..] {
            let other = placement.on_nodes(*count);
            // Every algorithm's time grows with the nodes, but for racks that get fuller.
            if least_us(&other, settings, collective, bytes) >= least * fuller {
                break;
            }
            least = least.min(parts_by_size(&other, settings, collective, bytes)?.time_us());
        }
        let mean = |least: f64, largest: f64| {
            libm::exp((1.0 - FEWER) * libm::log(least) + FEWER * libm::log(largest))
        };
        let low = mean(least.min(of_below), largest);
        let high = mean(least, largest.max(of_above));
        let [from, to, at] =
            [counts[below], counts[above], nodes].map(|count| libm::log2(f64::from(count)));
        let part = if is_on_grid { 1.0 } else { (at - from) / (to - from) };
        Ok(libm::exp(libm::log(low) * (1.0 - part) + libm::log(high) * part))
    }
}

/// Numbers of nodes between two bounds, both included: the bounds, and two for every power of two, among them
/// the ten nodes of many tables.
fn grid(first: u32, last: u32) -> Vec<u32> {
    let mut counts = vec![first];
    let mut power = 1;
    while power <= last {
        let two = [power, power + power / 4];
        counts.extend(two.into_iter().filter(|count| first < *count && *count < last));
        power *= 2;
    }
    counts.push(last);
    counts.dedup();
    counts
}
