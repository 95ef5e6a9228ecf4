//! Calibration by measured points: what they say about latency and rates corrects every prediction.

use crate::choice::{NoChoice, float};
use crate::collective::Collective;
use crate::model::Parts;
use crate::node_counts::expected_parts;
use crate::placement::Placement;
use crate::quantity::{bytes_text, us_text};
use crate::settings::Settings;
use std::collections::{BTreeMap, BTreeSet};

/// A correction of the model's times at other sizes, from measured points.
///
/// The logarithm of measured over modelled time is taken to be a factor on the latency, a factor on
/// the transfer, a smooth remainder over size, and bumps such as those at a switch of protocol (a Gaussian
/// process with the covariances of [`Kernel`]); the given points narrow them. The variances were fitted on the
/// public tables: a point says much about sizes near it, and little about others. A point speaks less for another
/// collective, for another number of nodes and of ranks on each, and least for one node if it was
/// measured over several.
///
/// No corrected call takes longer than a larger one: points of one call count as the nearest times that never
/// fall, and so does the correction between and behind them ([`Calibration::time_us`]).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    /// The given points and the weight of each in a prediction.
    sites: Vec<(Site, f64)>,
    /// Sizes and corrected times of the points of each call, in order of size.
    anchors: BTreeMap<CallKey, BTreeMap<u64, f64>>,
    kernel: Kernel,
}

/// Collective, nodes (domains) and ranks of a call.
type CallKey = (Collective, u32, u32);

fn key(placement: &Placement, collective: Collective) -> CallKey {
    (collective, placement.domains, placement.ranks)
}

/// A point as the kernel sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Site {
    /// Share of latency in the modelled time.
    latency: f64,
    /// The size, and its base-2 logarithm.
    bytes: u64,
    size: f64,
    /// Base-2 logarithms of the nodes (domains of NVLink) and of the ranks on each.
    nodes: f64,
    per_node: f64,
    collective: Collective,
}

/// A measured time, with where it was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The placement of its ranks.
    pub placement: Placement,
    /// The collective that was measured.
    pub collective: Collective,
    /// Size, as nccl-tests counts it.
    pub bytes: u64,
    /// Microseconds.
    pub us: f64,
}

/// A measured time that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum GivenError {
    /// Faster than the links.
    #[error(
        "{} in {} would be {bus_gbps:.0} GB/s of bus bandwidth, and the {links} carry {most_gbps:.0} \
         GB/s at most: is it another size, another unit, or another number of nodes?",
        bytes_text(*bytes), us_text(*us)
    )]
    TooFast {
        /// The size.
        bytes: u64,
        /// The time, microseconds.
        us: f64,
        /// The bus bandwidth of both, GB/s.
        bus_gbps: f64,
        /// The links that are too slow for it.
        links: &'static str,
        /// Their most, GB/s.
        most_gbps: f64,
    },
    /// Faster than a kernel starts.
    #[error("{} in {}: no call takes less than {LEAST_US} µs", bytes_text(*bytes), us_text(*us))]
    TooShort {
        /// The size.
        bytes: u64,
        /// The time, microseconds.
        us: f64,
    },
    /// Slower than anything that such a machine does.
    #[error(
        "{} in {} is {times:.0} times as long as such a machine takes ({}): is it another size or another unit?",
        bytes_text(*bytes), us_text(*us), us_text(us / times)
    )]
    TooSlow {
        /// The size.
        bytes: u64,
        /// The time, microseconds.
        us: f64,
        /// The same as a multiple of the prediction.
        times: f64,
    },
    /// Two times that cannot both be.
    #[error(
        "{} in {} contradicts {} in {}: leave one of them out",
        bytes_text(one.0), us_text(one.1), bytes_text(other.0), us_text(other.1)
    )]
    Contradiction {
        /// A size and its time.
        one: (u64, f64),
        /// The same for another point.
        other: (u64, f64),
    },
}

/// The least time of a call: that of starting a kernel, microseconds.
const LEAST_US: f64 = 1.0;
/// Measured rates above those of data sheets that are believed: bursts, and NICs that were counted wrong.
const TOLERANCE: f64 = 1.1;
/// Times of one size that still agree, as a ratio.
const AGREE: f64 = 1.25;
/// A smaller call that takes so many times as long as a larger one contradicts it, in a whole table: real ones
/// have spikes of eight times. Of a few points one is wrong.
const SPIKE: f64 = 16.0;
const FEW_SPIKE: f64 = AGREE;
/// The most points that are no whole table.
const FEW: usize = 8;
/// Measured over predicted time from which on it was no such machine. Real tables come to ten.
const SLOWEST: f64 = 100.0;

/// Refuses a point that cannot have been measured.
///
/// # Errors
/// If it is faster than the links or than a kernel starts, or slower than such a machine can be.
pub(crate) fn check_point(point: &Point) -> Result<(), GivenError> {
    let Point { placement, collective, bytes, us } = point;
    let (bytes, us) = (*bytes, *us);
    if us < LEAST_US {
        return Err(GivenError::TooShort { bytes, us });
    }
    let bus_gbps = float(bytes) / (us * 1000.0) * collective.bus_factor(placement.ranks);
    let card = &placement.card;
    // A switch that reduces carries a byte once where nccl-tests count two.
    let times =
        if card.switch.is_some() && *collective == Collective::AllReduce { 2.0 } else { 1.0 };
    let inside = ("links of a GPU", card.gpu_gbps() * times);
    let (ranks, local) = (f64::from(placement.ranks), f64::from(placement.per_domain));
    let outside = match collective {
        Collective::AllToAll => {
            placement.net_gbps / local * (ranks - 1.0) / (ranks - local).max(1.0)
        }
        // A tree over two nodes sends everything once, where nccl-tests count it twice.
        Collective::AllReduce if placement.domains == 2 => placement.net_gbps * 2.0,
        _ => placement.net_gbps,
    };
    let mut bounds = Vec::new();
    if placement.per_domain > 1 {
        bounds.push(inside);
    }
    if placement.domains > 1 {
        bounds.push(("NICs of a node", outside));
    }
    for (links, most_gbps) in bounds {
        if bus_gbps > most_gbps * TOLERANCE {
            return Err(GivenError::TooFast { bytes, us, bus_gbps, links, most_gbps });
        }
    }
    let usual = expected_parts(placement, &Settings::default(), *collective, bytes);
    let times = usual.map_or(1.0, |usual| us / usual.time_us());
    if times > SLOWEST {
        return Err(GivenError::TooSlow { bytes, us, times });
    }
    Ok(())
}

/// Refuses points that cannot have been measured together.
///
/// # Errors
/// If one cannot be, or two of one placement and collective contradict each other.
pub fn check_points(points: &[Point]) -> Result<(), GivenError> {
    let spike = if points.len() > FEW { SPIKE } else { FEW_SPIKE };
    for (at, point) in points.iter().enumerate() {
        check_point(point)?;
        for known in &points[..at] {
            if known.collective != point.collective || known.placement != point.placement {
                continue;
            }
            let in_order = known.bytes <= point.bytes;
            let (less, more) = if in_order { (known, point) } else { (point, known) };
            let slower = less.us / more.us;
            let is_same = less.bytes == more.bytes;
            if slower > spike || is_same && !(1.0 / AGREE..=AGREE).contains(&slower) {
                let (one, other) = ((less.bytes, less.us), (more.bytes, more.us));
                return Err(GivenError::Contradiction { one, other });
            }
        }
    }
    Ok(())
}

/// Variance of the factors of latency and of transfer, which grows with the square of the given points, and its
/// most: one or two points cannot tell a slow machine from a bump, many can.
const FACTORS: f64 = 0.0025;
const MOST_FACTORS: f64 = 0.1;
/// Variances of the remainder and of a bump, with their reach in powers of two; and of a measurement.
const REMAINDER: f64 = 0.05;
const REACH: f64 = 2.0;
const BUMP: f64 = 0.05;
const BUMP_REACH: f64 = 0.7;
const NOISE: f64 = 0.001;
/// Weight of a point for another collective, and for one node where it was measured over several.
const OTHER_COLLECTIVE: f64 = 0.5;
const OTHER_REACH: f64 = 0.3;
/// Powers of two of nodes, and of ranks on each, over which a point says less and less.
const NODES_REACH: f64 = 3.0;

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "made of a size")]
fn rounded(bytes: f64) -> u64 {
    bytes.clamp(0.0, 1e18) as u64
}

impl Site {
    fn new(placement: &Placement, collective: Collective, parts: Parts, bytes: f64) -> Self {
        let transfer = parts.transfer_us;
        let latency = (parts.time_us() - transfer).max(0.0);
        let log = |count: u32| libm::log2(f64::from(count.max(1)));
        Self {
            latency: latency / (latency + transfer).max(1e-9),
            bytes: rounded(bytes),
            size: libm::log2(bytes.max(1.0)),
            nodes: log(placement.domains),
            per_node: log(placement.per_domain),
            collective,
        }
    }

    /// Likeness of two placements and collectives, as a weight: 1 for the same.
    fn likeness(self, other: Self) -> f64 {
        let near = |apart: f64| libm::exp(-0.5 * apart * apart);
        let nodes = near((self.nodes - other.nodes) / NODES_REACH);
        let per_node = near((self.per_node - other.per_node) / NODES_REACH);
        let reach = if (self.nodes > 0.0) == (other.nodes > 0.0) { 1.0 } else { OTHER_REACH };
        let same = if self.collective == other.collective { 1.0 } else { OTHER_COLLECTIVE };
        nodes * per_node * reach * same
    }
}

/// The covariances of what points say.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Kernel {
    /// Variance of the factors of latency and of transfer.
    factors: f64,
}

impl Kernel {
    fn new(points: usize) -> Self {
        let count = (0..points).fold(0.0, |sum, _| sum + 1.0);
        Self { factors: MOST_FACTORS.min(FACTORS * count * count) }
    }

    fn covariance(self, one: Site, other: Site) -> f64 {
        let near = |apart: f64| libm::exp(-0.5 * apart * apart);
        let apart = one.size - other.size;
        let shares = one.latency * other.latency + (1.0 - one.latency) * (1.0 - other.latency);
        let own = self.factors * shares
            + REMAINDER * near(apart / REACH)
            + BUMP * near(apart / BUMP_REACH);
        own * one.likeness(other)
    }
}

impl Calibration {
    /// The time of a call of `bytes`, microseconds.
    ///
    /// # Errors
    /// If the settings leave no choice.
    pub fn time_us(
        &self,
        placement: &Placement,
        settings: &Settings,
        collective: Collective,
        bytes: u64,
    ) -> Result<f64, NoChoice> {
        if self.sites.is_empty() {
            return Ok(expected_parts(placement, settings, collective, bytes)?.time_us());
        }
        let bytes = bytes.max(1);
        let own = self.anchors.get(&key(placement, collective));
        // The time at a size, no larger than that of the next measured one.
        let capped_us = |bytes: u64| -> Result<f64, NoChoice> {
            let parts = expected_parts(placement, settings, collective, bytes)?;
            let us = parts.time_us() * self.factor(placement, collective, parts, float(bytes));
            let next = own.and_then(|own| own.range(bytes..).next());
            Ok(next.map_or(us, |(_, most)| us.min(*most)))
        };
        let before = own.and_then(|own| own.range(..=bytes).next_back());
        let from = before.map_or(0, |(size, _)| *size);
        let mut least_us = before.map_or(0.0, |(_, us)| *us);
        for size in self.sizes(from, bytes) {
            least_us = least_us.max(capped_us(size)?);
        }
        let next = self.sizes(bytes, bytes.saturating_mul(2).saturating_add(1)).next();
        let most_us = match next {
            Some(next) => capped_us(next)?.max(least_us),
            None => f64::INFINITY,
        };
        Ok(capped_us(bytes)?.min(most_us).max(least_us))
    }

    /// Powers of two and measured sizes from `first` up to and without `end`, in order.
    fn sizes(&self, first: u64, end: u64) -> impl Iterator<Item = u64> {
        let powers = (0..63).map(|shift| 1u64 << shift);
        let measured = self.sites.iter().map(|(site, _)| site.bytes);
        let within: BTreeSet<u64> =
            powers.chain(measured).filter(|size| (first..end).contains(size)).collect();
        within.into_iter()
    }

    /// Factor to multiply the model's time by, from the points; 1 without points.
    fn factor(
        &self,
        placement: &Placement,
        collective: Collective,
        parts: Parts,
        bytes: f64,
    ) -> f64 {
        let here = Site::new(placement, collective, parts, bytes);
        self.factor_at(here)
    }

    fn factor_at(&self, here: Site) -> f64 {
        let shift: f64 =
            self.sites.iter().map(|(site, at)| self.kernel.covariance(*site, here) * at).sum();
        libm::exp(shift.clamp(-5.0, 5.0))
    }

    /// Learns from `given`: bytes and measured microseconds.
    ///
    /// # Errors
    /// If the settings leave no choice.
    pub fn fit(
        placement: &Placement,
        settings: &Settings,
        collective: Collective,
        given: &[(u64, f64)],
    ) -> Result<Self, NoChoice> {
        let point = |&(bytes, us): &(u64, f64)| Point {
            placement: placement.clone(),
            collective,
            bytes,
            us,
        };
        let points: Vec<Point> = given.iter().map(point).collect();
        Self::of_points(settings, &points)
    }

    /// Learns from points of any collectives and placements.
    ///
    /// # Errors
    /// If the settings leave no choice.
    pub fn of_points(settings: &Settings, points: &[Point]) -> Result<Self, NoChoice> {
        let mut calls: BTreeMap<CallKey, Vec<&Point>> = BTreeMap::new();
        for point in points {
            calls.entry(key(&point.placement, point.collective)).or_default().push(point);
        }
        let mut sites = Vec::new();
        let mut errors = Vec::new();
        let mut modelled = Vec::new();
        for (call, mut points) in calls {
            points.sort_by_key(|point| point.bytes);
            let logs: Vec<f64> = points.iter().map(|point| libm::log(point.us)).collect();
            for (point, log) in points.iter().zip(never_falling(&logs)) {
                let Point { placement, collective, bytes, .. } = point;
                let parts = expected_parts(placement, settings, *collective, *bytes)?;
                sites.push(Site::new(placement, *collective, parts, float(*bytes)));
                errors.push(log - libm::log(parts.time_us()));
                modelled.push((call, *bytes, parts.time_us()));
            }
        }
        let kernel = Kernel::new(sites.len());
        let weights = solve(kernel, &sites, errors);
        let sites = sites.into_iter().zip(weights).collect();
        let mut learned = Self { sites, anchors: BTreeMap::new(), kernel };
        let mut anchors: BTreeMap<CallKey, BTreeMap<u64, f64>> = BTreeMap::new();
        for ((call, bytes, us), (site, _)) in modelled.into_iter().zip(&learned.sites) {
            let own = anchors.entry(call).or_default();
            let smaller = own.last_key_value().map_or(0.0, |(_, us)| *us);
            own.insert(bytes, smaller.max(us * learned.factor_at(*site)));
        }
        learned.anchors = anchors;
        Ok(learned)
    }
}

/// The nearest values that never fall, by least squares: neighbours that fall are replaced by their mean (pool
/// adjacent violators).
fn never_falling(values: &[f64]) -> Vec<f64> {
    // Sum and number of each pool.
    let mut pools: Vec<(f64, f64)> = Vec::new();
    for value in values {
        pools.push((*value, 1.0));
        while let [.., (before, of_before), (last, of_last)] = pools.as_slice()
            && before / of_before > last / of_last
        {
            let pool = (before + last, of_before + of_last);
            pools.truncate(pools.len() - 2);
            pools.push(pool);
        }
    }
    let mut means = Vec::with_capacity(values.len());
    for (sum, count) in pools {
        let end = means.len() as f64 + count;
        while (means.len() as f64) < end {
            means.push(sum / count);
        }
    }
    means
}

/// Solves `(covariances + noise) · weights = errors` by elimination; the matrix is positive.
fn solve(kernel: Kernel, sites: &[Site], mut errors: Vec<f64>) -> Vec<f64> {
    let mut rows: Vec<Vec<f64>> = sites
        .iter()
        .enumerate()
        .map(|(row, one)| {
            let noise = |column| if column == row { NOISE } else { 0.0 };
            sites
                .iter()
                .enumerate()
                .map(|(at, it)| kernel.covariance(*one, *it) + noise(at))
                .collect()
        })
        .collect();
    for pivot in 0..rows.len() {
        let (above, below) = rows.split_at_mut(pivot + 1);
        let Some(pivot_row) = above.last() else { break };
        for (offset, row) in below.iter_mut().enumerate() {
            let factor = row[pivot] / pivot_row[pivot];
            for (cell, upper) in row.iter_mut().zip(pivot_row).skip(pivot) {
                *cell -= factor * upper;
            }
            errors[pivot + 1 + offset] -= factor * errors[pivot];
        }
    }
    for row in (0..rows.len()).rev() {
        let known: f64 =
            (row + 1..rows.len()).map(|column| rows[row][column] * errors[column]).sum();
        errors[row] = (errors[row] - known) / rows[row][row];
    }
    errors
}
